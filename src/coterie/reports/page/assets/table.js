// Tables that can be sorted, searched, paged and downloaded.

const PRINTED = 100; // rows of a table on paper, which has no pages to turn

const tables = new Map(); // element → what fills it; only those on the page

/** Fill the tables anew: before and after printing. */
function refillTables() {
  for (const [element, show] of tables) {
    if (element.isConnected) show();
    else tables.delete(element);
  }
}

/** Order of two values: missing ones last in both directions, numbers by size, texts as people sort them. */
function compareValues(a, b, direction) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  if (typeof a === "number" && typeof b === "number") return direction * (a - b);
  return direction * String(a).localeCompare(String(b), "en", { numeric: true });
}

/**
 * A table.
 *
 * `columns`: [{key, label, format, text?: row → text, cell?: row → content, kind?, help?}], numeric unless the format is
 * "text"; `rows`: objects; `sort`: {key, direction}; `search`: keys to search in; `tools`: elements beside the search;
 * `state`: name under which sorting, page and search are remembered; `kind` of a table: "wide" if it has many narrow
 * columns, of a column: "action" if it has buttons and is not printed.
 */
function dataTable({
  caption,
  columns,
  rows,
  sort = null,
  search = null,
  size = 25,
  state,
  file,
  tools = [],
  rowClass = null,
  kind = "",
}) {
  const kept = remembered(`table:${state}`, { sort, page: 0, query: "" });
  const body = h("tbody");
  const headers = columns.map((column) =>
    headerCell(column, kept, () => {
      kept.page = 0;
      show();
    }),
  );
  const status = h("span", { class: "count", role: "status" });
  const pager = h("div", { class: "pager" });
  const texts =
    search &&
    rows.map((row) =>
      search
        .map((key) => String(row[key] ?? ""))
        .join("\n")
        .toLowerCase(),
    );

  function show() {
    const query = kept.query.trim().toLowerCase();
    let order = rows.map((_, i) => i);
    if (query && texts) order = order.filter((i) => texts[i].includes(query));
    if (kept.sort)
      order.sort((a, b) => compareValues(rows[a][kept.sort.key], rows[b][kept.sort.key], kept.sort.direction) || a - b);
    const count = printing ? Math.max(size, PRINTED) : size;
    const pages = Math.max(1, Math.ceil(order.length / count));
    if (!printing) kept.page = Math.min(kept.page, pages - 1);
    const from = printing ? 0 : kept.page * count;
    body.replaceChildren(...order.slice(from, from + count).map((i) => bodyRow(rows[i], columns, rowClass)));
    if (!order.length)
      body.append(h("tr", null, h("td", { colspan: columns.length, class: "nothing" }, "No row matches.")));
    headers.forEach((cell, i) => {
      const mine = kept.sort && kept.sort.key === columns[i].key;
      cell.setAttribute("aria-sort", mine ? (kept.sort.direction > 0 ? "ascending" : "descending") : "none");
    });
    status.textContent =
      order.length > count
        ? `${fixed(from + 1, 0)}–${fixed(Math.min(from + count, order.length), 0)} of ${plural(order.length, "row")}`
        : plural(order.length, "row");
    showPager(pager, pages, kept, state, show);
  }

  const field =
    search &&
    h("input", {
      type: "search",
      placeholder: "Search",
      "aria-label": `Search in: ${caption}`,
      value: kept.query,
      "data-key": `search:${state}`,
      oninput: (event) => {
        kept.query = event.target.value;
        kept.page = 0;
        show();
      },
    });
  const csv =
    file &&
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": `Download as CSV: ${caption}`,
        "data-key": `csv:${state}`,
        onclick: () => saveCsv(file, { columns, rows }),
      },
      "CSV",
    );
  const table = h(
    "table",
    { class: kind ? `data ${kind}` : "data" },
    h("caption", { class: "spoken" }, caption),
    h("thead", null, h("tr", null, headers)),
    body,
  );
  show();
  const whole = h(
    "div",
    { class: "table" },
    h("div", { class: "table-tools" }, field, tools, status, csv),
    scrolling(caption, table),
    pager,
  );
  tables.set(whole, show);
  return whole;
}

/** A table that scrolls to the side where it is wider than the page, and then says so. */
function scrolling(caption, table) {
  const hint = h("p", { class: "scroll-hint", hidden: true }, "Scroll to the side for more columns \u2192");
  const frame = h("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": `Table: ${caption}` }, table);
  const look = () => {
    hint.hidden = frame.scrollWidth <= frame.clientWidth + 1;
  };
  const observer = new ResizeObserver(look);
  observer.observe(frame);
  observer.observe(table);
  return [hint, frame];
}

function headerCell(column, kept, changed) {
  const sort = () => {
    const again = kept.sort && kept.sort.key === column.key;
    // Scores begin with the best, everything else with the smallest.
    kept.sort = { key: column.key, direction: again ? -kept.sort.direction : column.better === "high" ? -1 : 1 };
    changed();
  };
  return h(
    "th",
    { scope: "col", class: [column.format === "text" ? "" : "number", column.kind || ""].join(" ").trim() },
    h(
      "button",
      { type: "button", onclick: sort, title: column.help },
      capitalized(column.label),
      h("span", { class: "arrow", "aria-hidden": "true" }),
    ),
  );
}

function bodyRow(row, columns, rowClass) {
  return h(
    "tr",
    { class: rowClass && rowClass(row) },
    columns.map((column, i) => {
      const content = column.cell
        ? column.cell(row)
        : column.text
          ? column.text(row)
          : formatValue(column.format, row[column.key]);
      const look = column.format === "text" ? textClass(row[column.key]) : "number";
      const attributes = { class: column.kind ? `${look} ${column.kind}` : look };
      return i === 0 ? h("th", { scope: "row", ...attributes }, content) : h("td", attributes, content);
    }),
  );
}

/** How a text breaks: short ones not at all, one endless word, such as a hostile name, anywhere. */
function textClass(value) {
  if (typeof value !== "string" || value.length <= 34) return "short";
  return /\S{31}/.test(value) ? "endless" : "prose";
}

function showPager(pager, pages, kept, state, show) {
  pager.hidden = pages <= 1;
  if (pages <= 1) return pager.replaceChildren();
  const focused = document.activeElement && document.activeElement.getAttribute("data-key");
  const go = (page, text, name) =>
    h(
      "button",
      {
        type: "button",
        disabled: page < 0 || page >= pages || page === kept.page,
        "aria-label": name,
        "data-key": `pager:${state}:${name}`,
        onclick: () => {
          kept.page = page;
          show();
        },
      },
      text,
    );
  pager.replaceChildren(
    go(0, "«", "First page"),
    go(kept.page - 1, "‹", "Previous page"),
    h("span", null, `Page ${fixed(kept.page + 1, 0)} of ${fixed(pages, 0)}`),
    go(kept.page + 1, "›", "Next page"),
    go(pages - 1, "»", "Last page"),
  );
  const again =
    focused && [...pager.querySelectorAll("button")].find((button) => button.getAttribute("data-key") === focused);
  if (again && !again.disabled) again.focus();
  return undefined;
}

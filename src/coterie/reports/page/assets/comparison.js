// A comparison of methods: result, table, tests.

const HIGHLIGHTED = 8; // with more methods than this, the others are drawn gray until they are chosen

const places = new WeakMap();

/** Color and shape of a method. With many methods the best ones get colors of their own, the others share them. */
function methodIndex(comparison, method) {
  if (!places.has(comparison)) {
    const order =
      comparison.methods.length > COLORS
        ? ranked(comparison, (each) => finalScore(comparison, each))
        : comparison.methods;
    places.set(comparison, new Map(order.map((each, i) => [each, i])));
  }
  return places.get(comparison).get(method) ?? -1;
}

function comparisonOverview(data) {
  const { comparison } = data;
  const sentences = [...new Set([...(comparison.headline || []), ...(comparison.conclusion || [])])];
  const facts = [
    ["Methods", comparison.methods.length],
    ["Runs", data.runs.length],
    ["Seeds", (comparison.seeds || []).join(", ")],
    ["Clients", comparison.n_clients],
    ["Data", comparison.data],
    ["Model", comparison.model],
  ];
  const bad = comparison.excluded || data.runs.filter((run) => run.status && run.status !== "done");
  return section(
    { id: "overview", title: "Result" },
    sentences.length
      ? h(
          "div",
          { class: "headline" },
          sentences.map((sentence) => h("p", null, sentence)),
        )
      : nothing("The runs have no results to compare."),
    bad.length
      ? h(
          "p",
          { class: "notice", role: "note" },
          h("strong", null, `${plural(bad.length, "run")} left out because unfinished: `),
          bad.map((run) => `${run.name || run.id} (${run.status})`).join(", "),
          ". ",
          bad[0].resume ? ["Continue one with, for example: ", h("code", null, bad[0].resume)] : null,
        )
      : null,
    h(
      "dl",
      { class: "facts" },
      facts
        .filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([name, value]) =>
          h(
            "div",
            null,
            h("dt", null, name),
            h("dd", null, isNumber(value) ? formatValue("count", value) : String(value)),
          ),
        ),
    ),
  );
}

const NARROW = 6; // with more columns than this, the deviation stands below the mean

/** Content of a cell: mean ± deviation, in one line or in two. */
function cellContent(format, cell, below) {
  if (cell === null || cell === undefined) return MISSING;
  if (typeof cell !== "object") return formatValue(format, cell);
  if (!isNumber(cell.mean)) return MISSING;
  if (!isNumber(cell.deviation) || !(cell.n > 1)) return formatValue(format, cell.mean);
  // Zero needs no unit.
  const deviation = `±${SPACE}${cell.deviation ? formatValue(format, cell.deviation) : "0"}`;
  if (below) return [formatValue(format, cell.mean), h("span", { class: "deviation" }, deviation)];
  if (format === "percent") return `${fixed(100 * cell.mean, 1)} ± ${fixed(100 * cell.deviation, 1)}${SPACE}%`;
  return `${formatValue(format, cell.mean)} ${deviation}`;
}

/** Columns and rows of a table of methods; the value to sort by is the mean. */
function methodTable(table, comparison, open) {
  // Where all methods are equal, none is best.
  const tied = new Set(
    table.columns
      .map(({ key }) => key)
      .filter((key) => table.rows.every(({ cells }) => !cells[key] || cells[key].best)),
  );
  const columns = [
    {
      key: "method",
      label: "Method",
      format: "text",
      cell: (row) =>
        h(
          "span",
          { class: "with-swatch" },
          swatch(methodIndex(comparison, row.method)),
          row.method,
          row.status && row.status !== "done" ? h("span", { class: "tag bad" }, row.status) : null,
        ),
    },
    ...table.columns.map((column) => ({
      ...column,
      cell: (row) => {
        const cell = row.cells[column.key];
        const content = cellContent(column.format, cell, table.columns.length > NARROW);
        return cell && cell.best && !tied.has(column.key)
          ? h("span", { class: "best" }, h("strong", null, content), h("span", { class: "spoken" }, " (best)"))
          : content;
      },
    })),
  ];
  const rows = table.rows.map((row) => ({
    ...row,
    ...Object.fromEntries(
      table.columns.map(({ key }) => [
        key,
        row.cells[key] && typeof row.cells[key] === "object" ? row.cells[key].mean : row.cells[key],
      ]),
    ),
  }));
  if (open && rows.some((row) => row.runs && row.runs.length)) {
    columns.push({
      key: "first",
      label: "Runs",
      format: "text",
      kind: "action",
      cell: (row) =>
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            "aria-label": `Open the runs of ${row.method}`,
            onclick: () => open(row.runs[0]),
          },
          "Open",
        ),
    });
    rows.forEach((row) => {
      row.first = (row.runs || [])[0];
    });
  }
  return { columns, rows };
}

function tableSection(data, open) {
  const { comparison } = data;
  if (!comparison.table || !comparison.table.rows.length)
    return section({ id: "table", title: "Methods" }, nothing("No run of this comparison has results."));
  const { columns, rows } = methodTable(comparison.table, comparison, open);
  const first = comparison.table.columns.find((column) => column.better);
  return section(
    {
      id: "table",
      title: "Methods",
    },
    h(
      "ul",
      { class: "notes" },
      [...(comparison.rows_notes || []), "The best value of each column is bold."].map((text) =>
        h("li", null, capitalized(text)),
      ),
    ),
    dataTable({
      caption: "Methods",
      columns,
      rows,
      sort: first ? { key: first.key, direction: first.better === "low" ? 1 : -1 } : null,
      size: 50,
      state: "methods",
      file: "methods",
      kind: "wide",
    }),
  );
}

function testsSection(data) {
  const { comparison } = data;
  const { tests } = comparison;
  const head = { id: "tests", title: "Paired tests", lead: comparison.tests_note || null };
  if (!tests || !tests.length)
    return section(
      head,
      nothing("There are no tests: they need at least two methods with results for the same clients."),
    );
  const format = comparison.metric && comparison.metric.percent ? "points" : "number";
  const few = (test) => isNumber(test.n) && test.n < 5; // as the legend of the table says
  const significant = tests.filter((test) => test.significant && !few(test)).length;
  const untested = new Set(tests.map((test) => test.why)).size === 1 && tests[0].why; // one reason for all
  const rows = tests.map((test) => ({
    ...test,
    significant: test.significant && !few(test),
    verdict: few(test) && !test.why
      ? "too few seeds"
      : test.significant
      ? `${test.better === "b" ? test.b : test.a} is better`
      : test.why || "no clear difference",
  }));
  const columns = [
    { key: "a", label: "Method", format: "text" },
    { key: "b", label: "Against", format: "text" },
    { key: "difference", label: format === "points" ? "Difference (points)" : "Difference", format },
    { key: "p", label: "p", format: "p" },
    { key: "p_adjusted", label: "p, corrected", format: "p" },
    { key: "wilcoxon", label: "p, Wilcoxon", format: "p" },
    { key: "n", label: "Pairs", format: "count" },
    {
      key: "verdict",
      label: "Verdict",
      format: "text",
      cell: (row) => (row.significant ? h("strong", null, row.verdict) : row.verdict),
    },
  ]
    .filter(({ key }) => rows.some((row) => row[key] !== null && row[key] !== undefined))
    .filter(({ key }) => !untested || !["n", "verdict"].includes(key));
  return section(
    head,
    h(
      "p",
      { class: "note" },
      untested
        ? `There are no p-values: ${untested}.`
        : `${significant} of ${plural(tests.length, "comparison")} show a clear difference.`,
    ),
    dataTable({
      caption: "Paired tests",
      columns,
      rows,
      sort: { key: "p_adjusted", direction: 1 },
      search: ["a", "b"],
      size: 15,
      state: "tests",
      file: "tests",
    }),
  );
}

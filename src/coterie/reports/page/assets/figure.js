// The frame of a chart: heading, downloads, the drawing, its legend, and the table of its values.

const figures = new Map(); // plot element → what draws it; only those on the page

let printing = false;

/** Whether the dark theme shows; paper is light. */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return !printing && (chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Draws a chart when it comes near the window. */
const nearby = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) drawFigure(entry.target);
  },
  { rootMargin: "500px 0px" },
);

/** Draws a chart anew when its width changes. */
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const known = figures.get(target);
    if (known && known.width && Math.abs(target.clientWidth - known.width) > 1)
      requestAnimationFrame(() => drawFigure(target, true));
  }
});

function drawFigure(plot, again = false) {
  const known = figures.get(plot);
  if (!known || (known.width && !again) || !plot.isConnected) return;
  const width = Math.max(280, Math.round(plot.clientWidth) || 720);
  const chart = known.spec.draw(width, { dark: isDark(), where: plot });
  known.width = plot.clientWidth || width;
  chart.svg.setAttribute("aria-label", chart.summary || known.spec.title);
  plot.replaceChildren(chart.svg);
  plot.style.minHeight = "";
  plot.closest("figure").classList.toggle("labelled", Boolean(chart.labelled));
  if (chart.walk) makeWalkable(plot, chart);
}

/** Draw everything: before printing, and when the theme changes. */
function drawAll(again = false) {
  for (const plot of figures.keys()) {
    if (!plot.isConnected) figures.delete(plot);
    else if (!again || figures.get(plot).width) drawFigure(plot, again);
  }
}

function redraw(figure) {
  const plot = figure.querySelector(".plot");
  if (figures.get(plot).width) drawFigure(plot, true);
}

/** An SVG of this size, scaled to the width of its place. */
const chartSvg = (width, height) =>
  s("svg", { class: "chart", role: "img", viewBox: `0 0 ${width} ${height}`, "font-size": 12 });

/**
 * A chart in its frame.
 *
 * `draw(width, {dark, where})` → {svg, walk?, labelled?, summary?}; `table()` → {columns, rows}: the values that are drawn;
 * `height`: expected height at 720 pixels, so that the page does not jump; `legend`: element; `controls`: elements.
 */
function figure(spec) {
  const { id, title, note, height = 320, legend = null, controls = [], table } = spec;
  spec.file = spec.file || id;
  const plot = h("div", {
    class: "plot",
    tabindex: 0,
    role: "group",
    "aria-label": `Chart: ${title}. Arrow keys move between values.`,
    "data-key": `plot:${id}`,
    style: `min-height:${height}px`,
  });
  const tool = (text, what, run) =>
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": `Download as ${text}: ${title}`,
        "data-key": `${what}:${id}`,
        onclick: run,
      },
      text,
    );
  const built = h(
    "figure",
    { class: "chart-frame", id: `figure-${id}` },
    h(
      "figcaption",
      null,
      h(
        "div",
        { class: "figure-head" },
        h("h3", null, title),
        h(
          "div",
          { class: "tools" },
          tool("SVG", "svg", () => saveSvg(spec)),
          tool("PNG", "png", () => savePng(spec)),
          table && tool("CSV", "csv", () => saveCsv(spec.file, table())),
        ),
      ),
      note ? h("p", { class: "note" }, note) : null,
      controls.length ? h("div", { class: "controls" }, controls) : null,
    ),
    plot,
    legend,
    table && tableDetails(id, title, spec.file, table),
  );
  figures.set(plot, { spec, width: 0 });
  nearby.observe(plot);
  resized.observe(plot);
  return built;
}

/** The values of a chart as a table, made when it is opened. */
function tableDetails(id, title, file, table) {
  const state = remembered(`details:${id}`, { open: false });
  const details = h("details", { class: "values", open: state.open });
  const make = () => {
    if (details.querySelector(".table")) return;
    const { columns, rows } = table();
    details.append(
      dataTable({
        caption: `Values of the chart: ${title}`,
        columns,
        rows,
        size: 12,
        state: `values:${id}`,
        file: null,
      }),
    );
  };
  details.append(h("summary", { "data-key": `summary:${id}` }, "Values as a table"));
  details.addEventListener("toggle", () => {
    state.open = details.open;
    if (details.open) make();
  });
  if (state.open) make();
  return details;
}

/** Legend entries that are text only. */
function legendOf(entries, kind = "marker") {
  return h(
    "ul",
    { class: "legend" },
    entries.map(({ index, name, mark }) => h("li", null, mark || swatch(index, kind), name)),
  );
}

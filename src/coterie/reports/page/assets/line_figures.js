// Line charts in their frame: tables of their values, and legends that switch series on and off.

/** Table of series that share their x: one row per x. */
function seriesTable(series, bands, x, y) {
  const all = [
    ...series.map((each) => ({ label: each.name || y.label, x: each.x, y: each.y })),
    ...(bands || []).flatMap((band) => [
      { label: `${band.name}, lower`, x: band.x, y: band.lower },
      { label: `${band.name}, upper`, x: band.x, y: band.upper },
    ]),
  ];
  const rows = new Map();
  all.forEach((each, column) =>
    each.x.forEach((value, i) => {
      if (!isNumber(value)) return;
      if (!rows.has(value)) rows.set(value, { x: value });
      rows.get(value)[`s${column}`] = isNumber(each.y[i]) ? each.y[i] : null;
    }),
  );
  const columns = [
    { key: "x", label: x.label, format: x.format },
    ...all.map((each, i) => ({ key: `s${i}`, label: each.label, format: y.format })),
  ];
  return { columns, rows: [...rows.values()].sort((a, b) => a.x - b.x) };
}

/** Table of series with an x of their own: one row per point. */
function pointTable(series, x, y) {
  return {
    columns: [
      { key: "name", label: "Series", format: "text" },
      { key: "x", label: x.label, format: x.format },
      { key: "y", label: y.label, format: y.format },
    ],
    rows: series.flatMap((each) =>
      each.x
        .map((value, i) => ({ name: each.name, x: value, y: each.y[i] }))
        .filter((row) => isNumber(row.x) && isNumber(row.y)),
    ),
  };
}

/** A figure with a line chart; `make(hidden)` → the spec. With several series, the names in the legend switch them on and off. */
function lineFigure({ id, title, note, height, make, toggles = false, controls = [] }) {
  const spec = make();
  const chosen = toggles ? remembered(`series:${id}`, new Map()) : new Map();
  const shown = () => spec.series.filter((each) => chosen.get(each.name) ?? !each.hidden);
  let built = null;
  const legend =
    spec.series.length > 1 &&
    (toggles
      ? seriesToggles(id, spec.series, chosen, () => redraw(built))
      : legendOf(
          spec.series.filter((each) => each.name && finiteCount(each.y)),
          "both",
        ));
  built = figure({
    id,
    title,
    note,
    height,
    controls,
    legend: legend || null,
    draw: (width) =>
      lineChart(width, {
        ...spec,
        series: shown(),
        bands: (spec.bands || []).filter((band) => !band.of || shown().some((each) => each.name === band.of)),
      }),
    table: () =>
      spec.pick === "point" ? pointTable(shown(), spec.x, spec.y) : seriesTable(shown(), spec.bands, spec.x, spec.y),
  });
  if (toggles) built.classList.add("toggles");
  return built;
}

function seriesToggles(id, series, chosen, changed) {
  return h(
    "div",
    { class: "legend", role: "group", "aria-label": "Show or hide series" },
    series
      .filter((each) => finiteCount(each.y))
      .map((each) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(chosen.get(each.name) ?? !each.hidden),
            "data-key": `series:${id}:${each.name}`,
            onclick: (event) => {
              const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
              chosen.set(each.name, on);
              event.currentTarget.setAttribute("aria-pressed", String(on));
              changed();
            },
          },
          swatch(each.index, "both"),
          each.name,
        ),
      ),
  );
}

// A comparison: curves of all methods, and what a score costs.

/** Methods, the best first. */
function ranked(comparison, valueOf) {
  const sign = comparison.metric && comparison.metric.greater_is_better === false ? 1 : -1;
  const value = (method) => (isNumber(valueOf(method)) ? sign * valueOf(method) : Infinity);
  return [...comparison.methods].sort((a, b) => value(a) - value(b));
}

function methodSeries(comparison, found, xKey, yKey) {
  const top = new Set(ranked(comparison, (method) => finalScore(comparison, method)).slice(0, HIGHLIGHTED - 1));
  const many = comparison.methods.length > HIGHLIGHTED;
  return comparison.methods
    .filter((method) => found[method] && found[method][yKey] && found[method][yKey].some(isNumber))
    .map((method) => ({
      name: method,
      x: found[method][xKey],
      y: found[method][yKey],
      index: methodIndex(comparison, method),
      hidden: many && !top.has(method),
    }));
}

/** A chart with one line per method; the legend chooses which are colored (many methods) or shown (few). */
function methodsFigure({
  id,
  title,
  note,
  comparison,
  found,
  xKey,
  yKey,
  x,
  y,
  bands = false,
  pick = "x",
  target = null,
}) {
  const series = methodSeries(comparison, found || {}, xKey, yKey);
  if (!series.length) return null;
  const many = comparison.methods.length > HIGHLIGHTED;
  const chosen = remembered(`series:${id}`, new Map());
  const isOn = (each) => chosen.get(each.name) ?? !each.hidden;
  const styled = () =>
    many ? series.map((each) => (isOn(each) ? each : { ...each, faint: true, name: "" })) : series.filter(isOn);
  const spreads = () =>
    bands
      ? series
          .filter(isOn)
          .filter((each) => found[each.name].lower && found[each.name].lower.some(isNumber))
          .map((each) => ({
            name: each.name,
            x: each.x,
            lower: found[each.name].lower,
            upper: found[each.name].upper,
            color: colorOf(each.index),
            opacity: 0.12,
          }))
      : [];
  let built = null;
  const named = () => styled().map((each, i) => (each.name ? each : { ...each, name: series[i].name }));
  built = figure({
    id,
    title,
    height: 380,
    note: paragraph(note, many ? `The best ${HIGHLIGHTED - 1} are in color, the others gray; choose below.` : null),
    legend: seriesToggles(id, series, chosen, () => redraw(built)),
    draw: (width) => lineChart(width, { height: 400, series: styled(), bands: spreads(), x, y, pick, target }),
    table: () => (pick === "point" ? pointTable(named(), x, y) : seriesTable(named(), spreads(), x, y)),
  });
  built.classList.add("toggles");
  return built;
}

function comparisonCurves(data) {
  const { comparison } = data;
  const metric = comparison.metric || { label: "Score" };
  const name = capitalized(metric.label || metric.name);
  const y = { format: metricFormat(metric), label: name };
  const spreadNote = (comparison.seeds || []).length > 1 ? "Mean over seeds; bands show the spread over seeds." : null;
  const figuresFound = [
    methodsFigure({
      id: "all-scores",
      title: `${name} over rounds`,
      note: spreadNote,
      comparison,
      found: comparison.curves,
      xKey: "round",
      yKey: "mean",
      x: ROUNDS,
      y,
      bands: true,
    }),
    methodsFigure({
      id: "all-losses",
      title: "Loss over rounds",
      note: spreadNote,
      comparison,
      found: comparison.loss_curves,
      xKey: "round",
      yKey: "mean",
      x: ROUNDS,
      y: { format: "number", label: "Loss" },
      bands: true,
    }),
  ].filter(Boolean);
  return section(
    { id: "curves", title: "Learning curves" },
    figuresFound.length ? figuresFound : nothing("No round was evaluated, so there are no curves."),
  );
}

function comparisonCost(data) {
  const { comparison } = data;
  const metric = comparison.metric || { label: "Score" };
  const name = capitalized(metric.label || metric.name);
  const y = { format: metricFormat(metric), label: name };
  const parts = [
    methodsFigure({
      id: "against-bytes",
      title: `${name} against traffic`,
      note: "Up and to the left is better. Mean over seeds, bytes in both directions.",
      comparison,
      found: comparison.score_against_bytes,
      xKey: "megabytes",
      yKey: "score",
      x: { label: "Traffic so far", format: "megabytes" },
      y,
      pick: "point",
    }),
    methodsFigure({
      id: "against-seconds",
      title: `${name} against time`,
      note: "Up and to the left is better. Mean over seeds.",
      comparison,
      found: comparison.score_against_seconds,
      xKey: "seconds",
      yKey: "score",
      x: { label: "Seconds so far", format: "seconds" },
      y,
      pick: "point",
    }),
    targetFigure(comparison),
  ].filter(Boolean);
  return section(
    { id: "cost", title: "What a score costs" },
    parts.length ? parts : nothing("The records have no traffic and no times to compare."),
  );
}

function targetFigure(comparison) {
  const target = comparison.rounds_to_target;
  if (!target || !target.rows || !target.rows.length) return null;
  const mean = (values) => {
    const there = values.filter(isNumber);
    return there.length ? sum(there) / there.length : null;
  };
  const rows = target.rows
    .map((row) => {
      const reached = row.rounds.filter(isNumber).length;
      return {
        method: row.method,
        rounds: mean(row.rounds),
        reached,
        of: row.rounds.length,
        bytes: row.bytes ? mean(row.bytes) : null,
      };
    })
    .sort((a, b) => (b.reached > 0) - (a.reached > 0) || a.rounds - b.rounds);
  const text = (row) => {
    if (!row.reached) return "not reached";
    const seeds = row.of > 1 && row.reached < row.of ? ` (${row.reached} of ${row.of} seeds)` : "";
    const unit = row.rounds === 1 ? "round" : "rounds";
    return `${formatValue("count", row.rounds)} ${unit}${row.bytes !== null ? `, ${formatValue("bytes", row.bytes)}` : ""}${seeds}`;
  };
  return figure({
    id: "to-target",
    title: `Rounds to ${formatValue(metricFormat(comparison.metric), target.target)}`,
    height: rows.length * 32,
    note: paragraph(target.note, "Mean over the seeds that reached it, with the bytes until then."),
    draw: (width) =>
      barChart(width, {
        rows: rows.map((row) => ({
          name: row.method,
          values: [
            { value: row.rounds || 0, text: text(row), index: methodIndex(comparison, row.method), name: "Rounds" },
          ],
        })),
      }),
    table: () => ({
      columns: [
        { key: "method", label: "Method", format: "text" },
        { key: "rounds", label: "Rounds", format: "count" },
        { key: "reached", label: "Seeds that reached it", format: "count" },
        { key: "of", label: "Seeds", format: "count" },
        { key: "bytes", label: "Bytes", format: "bytes" },
      ],
      rows,
    }),
  });
}

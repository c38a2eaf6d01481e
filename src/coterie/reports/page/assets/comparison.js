// A comparison of methods: table, tests, curves, cost.

const HIGHLIGHTED = 8; // with more methods than this, the others are drawn gray until they are chosen

const places = new WeakMap();

/** Color and shape of a method. With many methods the best ones get colors of their own, the others share them. */
function methodIndex(comparison, method) {
  if (!places.has(comparison)) {
    const order = comparison.methods.length > COLORS ? ranked(comparison, (each) => finalScore(comparison, each)) : comparison.methods;
    places.set(comparison, new Map(order.map((each, i) => [each, i])));
  }
  return places.get(comparison).get(method) ?? -1;
}

function comparisonOverview(data) {
  const { comparison } = data;
  const sentences = [...new Set([...(comparison.headline || []), ...(comparison.conclusion || [])])];
  const facts = [["Methods", comparison.methods.length], ["Runs", data.runs.length], ["Seeds", (comparison.seeds || []).join(", ")], ["Clients", comparison.n_clients], ["Data", comparison.data], ["Model", comparison.model]];
  const bad = comparison.excluded || data.runs.filter((run) => run.status && run.status !== "done");
  return section({ id: "overview", title: "Result" },
    sentences.length ? h("div", { class: "headline" }, sentences.map((sentence) => h("p", null, sentence))) : nothing("The runs have no results to compare."),
    bad.length ? h("p", { class: "notice", role: "note" }, h("strong", null, `${plural(bad.length, "run")} not compared, because not finished: `), bad.map((run) => `${run.name || run.id} (${run.status})`).join(", ")) : null,
    h("dl", { class: "facts" }, facts.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) =>
      h("div", null, h("dt", null, name), h("dd", null, isNumber(value) ? formatValue("count", value) : String(value))))));
}

/** Text of a cell: mean ± deviation. */
function cellText(format, cell) {
  if (cell === null || cell === undefined) return MISSING;
  if (typeof cell !== "object") return formatValue(format, cell);
  if (!isNumber(cell.mean)) return MISSING;
  if (!isNumber(cell.deviation) || !(cell.n > 1)) return formatValue(format, cell.mean);
  if (format === "percent") return `${fixed(100 * cell.mean, 1)} ± ${fixed(100 * cell.deviation, 1)}${SPACE}%`;
  return `${formatValue(format, cell.mean)} ± ${formatValue(format, cell.deviation)}`;
}

/** Columns and rows of a table of methods; the value to sort by is the mean. */
function methodTable(table, comparison, open) {
  // Where all methods are equal, none is best.
  const tied = new Set(table.columns.map(({ key }) => key).filter((key) => table.rows.every(({ cells }) => !cells[key] || cells[key].best)));
  const columns = [
    { key: "method", label: "Method", format: "text", cell: (row) => h("span", { class: "with-swatch" }, swatch(methodIndex(comparison, row.method)), row.method, row.status && row.status !== "done" ? h("span", { class: "tag bad" }, row.status) : null) },
    ...table.columns.map((column) => ({
      ...column,
      cell: (row) => {
        const cell = row.cells[column.key];
        const text = cellText(column.format, cell);
        return cell && cell.best && !tied.has(column.key) ? h("span", { class: "best" }, h("strong", null, text), h("span", { class: "spoken" }, " (best)")) : text;
      },
    })),
  ];
  const rows = table.rows.map((row) => ({ ...row, ...Object.fromEntries(table.columns.map(({ key }) => [key, row.cells[key] && typeof row.cells[key] === "object" ? row.cells[key].mean : row.cells[key]])) }));
  if (open && rows.some((row) => row.runs && row.runs.length)) {
    columns.push({ key: "first", label: "Runs", format: "text", cell: (row) => h("button", { type: "button", class: "quiet", "aria-label": `Open the runs of ${row.method}`, onclick: () => open(row.runs[0]) }, "Open") });
    rows.forEach((row) => { row.first = (row.runs || [])[0]; });
  }
  return { columns, rows };
}

function tableSection(data, open) {
  const { comparison } = data;
  if (!comparison.table || !comparison.table.rows.length) return section({ id: "table", title: "Methods" }, nothing("No run of this comparison has results."));
  const { columns, rows } = methodTable(comparison.table, comparison, open);
  const first = comparison.table.columns.find((column) => column.better);
  return section({ id: "table", title: "Methods", lead: comparison.rows_note || ((comparison.seeds || []).length > 1 ? "Mean ± standard deviation over seeds. The best value of each column is bold." : "The best value of each column is bold.") },
    dataTable({ caption: "Methods", columns, rows, sort: first ? { key: first.key, direction: first.better === "low" ? 1 : -1 } : null, size: 50, state: "methods", file: "methods" }));
}

function testsSection(data) {
  const { comparison } = data;
  const { tests } = comparison;
  const head = { id: "tests", title: "Paired tests", lead: comparison.tests_note || null };
  if (!tests || !tests.length) return section(head, nothing("There are no tests: they need at least two methods with results of the same clients."));
  const format = comparison.metric && comparison.metric.percent ? "points" : "number";
  const significant = tests.filter((test) => test.significant).length;
  const rows = tests.map((test) => ({ ...test, verdict: test.significant ? `${test.better === "b" ? test.b : test.a} is better` : test.why || "no clear difference" }));
  const columns = [
    { key: "a", label: "Method", format: "text" }, { key: "b", label: "Against", format: "text" },
    { key: "difference", label: format === "points" ? "Difference (points)" : "Difference", format }, { key: "p", label: "p", format: "p" },
    { key: "p_adjusted", label: "p, corrected", format: "p" }, { key: "wilcoxon", label: "p, Wilcoxon", format: "p" }, { key: "n", label: "Pairs", format: "count" },
    { key: "verdict", label: "Verdict", format: "text", cell: (row) => (row.significant ? h("strong", null, row.verdict) : row.verdict) },
  ].filter(({ key }) => rows.some((row) => row[key] !== null && row[key] !== undefined));
  return section(head, h("p", { class: "note" }, `${significant} of ${plural(tests.length, "comparison")} show a clear difference.`),
    dataTable({ caption: "Paired tests", columns, rows, sort: { key: "p_adjusted", direction: 1 }, search: ["a", "b"], size: 15, state: "tests", file: "tests" }));
}

/** Methods, the best first. */
function ranked(comparison, valueOf) {
  const sign = comparison.metric && comparison.metric.greater_is_better === false ? 1 : -1;
  const value = (method) => (isNumber(valueOf(method)) ? sign * valueOf(method) : Infinity);
  return [...comparison.methods].sort((a, b) => value(a) - value(b));
}

function methodSeries(comparison, found, xKey, yKey) {
  const top = new Set(ranked(comparison, (method) => finalScore(comparison, method)).slice(0, HIGHLIGHTED - 1));
  const many = comparison.methods.length > HIGHLIGHTED;
  return comparison.methods.filter((method) => found[method] && found[method][yKey] && found[method][yKey].some(isNumber)).map((method) => ({
    name: method, x: found[method][xKey], y: found[method][yKey], index: methodIndex(comparison, method), hidden: many && !top.has(method),
  }));
}

/** A chart with one line per method; the legend chooses which are colored (many methods) or shown (few). */
function methodsFigure({ id, title, note, comparison, found, xKey, yKey, x, y, bands = false, pick = "x", target = null }) {
  const series = methodSeries(comparison, found || {}, xKey, yKey);
  if (!series.length) return null;
  const many = comparison.methods.length > HIGHLIGHTED;
  const chosen = remembered(`series:${id}`, new Map());
  const isOn = (each) => chosen.get(each.name) ?? !each.hidden;
  const styled = () => (many ? series.map((each) => (isOn(each) ? each : { ...each, faint: true, name: "" })) : series.filter(isOn));
  const spreads = () => (bands ? series.filter(isOn).filter((each) => found[each.name].lower && found[each.name].lower.some(isNumber)).map((each) => ({
    name: each.name, x: each.x, lower: found[each.name].lower, upper: found[each.name].upper, color: colorOf(each.index), opacity: 0.12,
  })) : []);
  let built = null;
  const named = () => styled().map((each, i) => (each.name ? each : { ...each, name: series[i].name }));
  built = figure({
    id, title, height: 380, note: paragraph(note, many ? `The best ${HIGHLIGHTED - 1} are in color, the others gray; choose below.` : null),
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
    methodsFigure({ id: "all-scores", title: `${name} over rounds`, note: spreadNote, comparison, found: comparison.curves, xKey: "round", yKey: "mean", x: ROUNDS, y, bands: true }),
    methodsFigure({ id: "all-losses", title: "Loss over rounds", note: spreadNote, comparison, found: comparison.loss_curves, xKey: "round", yKey: "mean", x: ROUNDS, y: { format: "number", label: "Loss" }, bands: true }),
  ].filter(Boolean);
  return section({ id: "curves", title: "Learning curves" }, figuresFound.length ? figuresFound : nothing("No round was evaluated, so there are no curves."));
}

function comparisonCost(data) {
  const { comparison } = data;
  const metric = comparison.metric || { label: "Score" };
  const name = capitalized(metric.label || metric.name);
  const y = { format: metricFormat(metric), label: name };
  const parts = [
    methodsFigure({ id: "against-bytes", title: `${name} against traffic`, note: "Up and to the left is better. Mean over seeds, bytes in both directions.", comparison, found: comparison.score_against_bytes, xKey: "megabytes", yKey: "score", x: { label: "Traffic so far", format: "megabytes" }, y, pick: "point" }),
    methodsFigure({ id: "against-seconds", title: `${name} against time`, note: "Up and to the left is better. Mean over seeds.", comparison, found: comparison.score_against_seconds, xKey: "seconds", yKey: "score", x: { label: "Seconds so far", format: "seconds" }, y, pick: "point" }),
    targetFigure(comparison),
  ].filter(Boolean);
  return section({ id: "cost", title: "What a score costs" }, parts.length ? parts : nothing("The records have no traffic and no times to compare."));
}

function targetFigure(comparison) {
  const target = comparison.rounds_to_target;
  if (!target || !target.rows || !target.rows.length) return null;
  const mean = (values) => { const there = values.filter(isNumber); return there.length ? sum(there) / there.length : null; };
  const rows = target.rows.map((row) => {
    const reached = row.rounds.filter(isNumber).length;
    return { method: row.method, rounds: mean(row.rounds), reached, of: row.rounds.length, bytes: row.bytes ? mean(row.bytes) : null };
  }).sort((a, b) => (b.reached > 0) - (a.reached > 0) || a.rounds - b.rounds);
  const text = (row) => {
    if (!row.reached) return "not reached";
    const seeds = row.of > 1 && row.reached < row.of ? ` (${row.reached} of ${row.of} seeds)` : "";
    return `${formatValue("count", row.rounds)}${row.bytes !== null ? `, ${formatValue("bytes", row.bytes)}` : ""}${seeds}`;
  };
  return figure({
    id: "to-target", title: `Rounds to ${formatValue(metricFormat(comparison.metric), target.target)}`, height: rows.length * 32, note: paragraph(target.note, "Mean over the seeds that reached it, with the bytes until then."),
    draw: (width) => barChart(width, { rows: rows.map((row) => ({ name: row.method, values: [{ value: row.rounds || 0, text: text(row), index: methodIndex(comparison, row.method), name: "Rounds" }] })) }),
    table: () => ({
      columns: [{ key: "method", label: "Method", format: "text" }, { key: "rounds", label: "Rounds", format: "count" }, { key: "reached", label: "Seeds that reached it", format: "count" }, { key: "of", label: "Seeds", format: "count" }, { key: "bytes", label: "Bytes", format: "bytes" }],
      rows,
    }),
  });
}

// A run: what came out, in words and numbers, and how it went over rounds.

/** A section of the page; `level` is that of its heading. */
function section({ id, title, lead = null, level = 2 }, ...content) {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title`, "data-title": title },
    h(`h${level}`, { id: `${id}-title` }, title),
    lead ? h("p", { class: "lead" }, lead) : null,
    content,
  );
}

const STATUS = {
  running: "This run is still going on.",
  failed: "This run failed.",
  diverged: "This run diverged: models or replies contain NaN or infinity.",
  interrupted: "This run was interrupted.",
};

/** A notice if the run did not end well. */
function statusNotice(run) {
  if (!run.status || run.status === "done") return null;
  const what = STATUS[run.status] || `Status: ${run.status}.`;
  return h(
    "p",
    { class: `notice ${run.status}`, role: "note" },
    h("strong", null, what),
    run.reason ? ` ${run.reason}` : "",
    run.resume ? [" Continue it with: ", h("code", null, run.resume)] : null,
  );
}

function keyFigures(figures) {
  if (!figures || !figures.length) return null;
  // Up to five in one row, otherwise two rows of about the same length.
  const columns = figures.length <= 5 ? figures.length : Math.ceil(figures.length / 2);
  return h(
    "dl",
    { class: "figures", style: `--columns:${columns}` },
    figures.map((figure) => {
      // A unit is written by the format, unless the value is a bare number.
      const bare = !figure.format || figure.format === "number" || figure.format === "count";
      return h(
        "div",
        null,
        h("dt", null, capitalized(figure.label)),
        h(
          "dd",
          null,
          h(
            "span",
            { class: "big" },
            formatValue(figure.format || "number", figure.value),
            bare && figure.unit ? `${SPACE}${figure.unit}` : "",
          ),
          figure.note ? h("span", { class: "note" }, figure.note) : null,
        ),
      );
    }),
  );
}

function overviewSection(run, { prefix, title, level }) {
  const facts = [
    ["Method", run.method],
    ["Data", run.data],
    ["Model", run.model],
    ["Seed", run.seed],
    ["Started", startedText(run.started)],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return section(
    { id: `${prefix}overview`, title, level },
    statusNotice(run),
    run.headline && run.headline.length
      ? h(
          "div",
          { class: "headline" },
          run.headline.map((sentence) => h("p", null, sentence)),
        )
      : nothing("The record has no results yet."),
    keyFigures(run.figures),
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, String(value)))),
    ),
    (run.notes || []).map((note) => h("p", { class: "note" }, note)),
  );
}

function startedText(value) {
  const date = value ? new Date(value) : null;
  return date && !Number.isNaN(date.getTime()) ? date.toISOString().slice(0, 16).replace("T", " ") + " UTC" : value;
}

const ROUNDS = { label: "Round", name: "Round", format: "round", whole: true };

function eventsOf(run) {
  return ((run.curves && run.curves.events) || []).map(({ round, kind, label: text }) => ({
    x: round,
    kind,
    label: text || kind,
  }));
}

/** What the marks above a chart are, if it has them. */
function eventsNote(run) {
  const kinds = {
    shift: "data of clients changed",
    skipped: "the round was skipped",
    newcomers: "clients joined",
    phase: "a phase ended",
  };
  const events = (run.curves && run.curves.events) || [];
  if (events.length <= FEW_EVENTS) return null;
  return `Marks above the plot: rounds in which ${[...new Set(events.map((event) => kinds[event.kind] || event.kind))].join(", or ")}.`;
}

function curvesSection(run, { prefix, level }) {
  const { curves } = run;
  const head = { id: `${prefix}curves`, title: "Learning curves", level };
  if (!curves || !curves.round || !curves.round.length) {
    return section(
      head,
      nothing((run.missing && run.missing.curves) || "No round was evaluated, so there are no curves."),
    );
  }
  const options = { run, curves, prefix, x: curves.round };
  return section(
    head,
    scoreCurve(options),
    clusterCurves(options),
    lossCurve(options),
    h(
      "div",
      { class: "pair" },
      agreementCurve(options),
      discrepancyCurve(options),
      coverageCurve(options),
      otherCurves(options),
    ),
  );
}

function scoreCurve({ run, curves, prefix, x }) {
  const metric = run.metric || { label: "Score" };
  const format = metricFormat(metric);
  const band = curves.band || {};
  const bands = [];
  if (band.p10 && band.p90)
    bands.push({
      name: "10 % to 90 % of clients",
      x,
      lower: band.p10,
      upper: band.p90,
      color: "var(--c0)",
      opacity: 0.13,
    });
  if (band.p25 && band.p75)
    bands.push({
      name: "middle half of clients",
      x,
      lower: band.p25,
      upper: band.p75,
      color: "var(--c0)",
      opacity: 0.2,
    });
  const series = [];
  if (curves.mean) series.push({ name: "mean over clients", x, y: curves.mean, index: 2, dash: "6 3", width: 1.6 });
  series.push({ name: "all examples", x, y: curves.primary || [], index: 0, width: 2.6 });
  if (curves.worst_tenth) series.push({ name: "worst tenth", x, y: curves.worst_tenth, index: 1, width: 1.8 });
  if (curves.validation && curves.validation.some(isNumber))
    series.push({ name: "validation", x, y: curves.validation, index: 3, dash: "2 3", width: 1.8 });
  return lineFigure({
    id: `${prefix}score`,
    title: `${capitalized(metric.label || metric.name)} over rounds`,
    height: 340,
    note: paragraph(
      bands.length ? "Bands: the middle half of the clients, and all clients except the lowest and the highest tenth." : null,
      eventsNote(run),
    ),
    make: () => ({
      series,
      bands,
      x: ROUNDS,
      y: { format, label: metric.label },
      events: eventsOf(run),
      target: isNumber(curves.target)
        ? { value: curves.target, label: `target ${formatValue(format, curves.target)}` }
        : null,
    }),
  });
}

function clusterCurves({ run, curves, prefix, x }) {
  const clusters = Object.keys(curves.per_cluster || {}).sort((a, b) => a - b);
  if (clusters.length < 2) return null;
  const metric = run.metric || { label: "Score" };
  return lineFigure({
    id: `${prefix}per-cluster`,
    title: `${capitalized(metric.label || metric.name)} of each cluster`,
    height: 340,
    toggles: true,
    note: paragraph(
      "Over the clients that the cluster serves in that round. A line ends where its cluster ends.",
      run.sizes && run.sizes.note,
    ),
    make: () => ({
      series: clusters.map((cluster) => ({
        name: clusterName(cluster),
        x,
        y: curves.per_cluster[cluster],
        index: Number(cluster),
      })),
      x: ROUNDS,
      y: { format: metricFormat(metric), label: metric.label },
      events: eventsOf(run),
    }),
  });
}

function lossCurve({ run, curves, prefix, x }) {
  const train = curves.train || {};
  const series = [];
  if (curves.loss && curves.loss.some(isNumber)) series.push({ name: "test", x, y: curves.loss, index: 0 });
  if (train.loss && train.loss.some(isNumber))
    series.push({ name: "training", x: train.round, y: train.loss, index: 1, dash: "6 3", width: 1.6 });
  if (!series.length) return null;
  return lineFigure({
    id: `${prefix}loss`,
    title: "Loss over rounds",
    height: 340,
    make: () => ({ series, x: ROUNDS, y: { format: "number", label: "Loss", zero: true }, events: eventsOf(run) }),
  });
}

function agreementCurve({ curves, prefix, x }) {
  if (!curves.adjusted_rand || !curves.adjusted_rand.some(isNumber)) return null;
  return lineFigure({
    id: `${prefix}agreement`,
    title: "Agreement with the true clusters",
    height: 260,
    note: "Adjusted Rand index: 1 means the same partition, 0 is expected by chance.",
    make: () => ({
      height: 260,
      series: [{ name: "", x, y: curves.adjusted_rand, index: 2 }],
      x: ROUNDS,
      y: { format: "number", label: "Adjusted Rand", domain: niceDomain(extent(curves.adjusted_rand, [0, 1]), 5) },
    }),
  });
}

function discrepancyCurve({ curves, prefix }) {
  const train = curves.train || {};
  if (!train.discrepancy || !train.discrepancy.some(isNumber)) return null;
  return lineFigure({
    id: `${prefix}discrepancy`,
    title: "Discrepancy",
    height: 260,
    note: "Mean distance of the local models to the model of their cluster.",
    make: () => ({
      height: 260,
      series: [{ name: "", x: train.round, y: train.discrepancy, index: 0 }],
      x: ROUNDS,
      y: { format: "number", label: "Discrepancy", zero: true },
    }),
  });
}

function coverageCurve({ curves, prefix, x }) {
  if (!curves.coverage || !curves.coverage.some((value) => isNumber(value) && value < 1)) return null;
  return lineFigure({
    id: `${prefix}coverage`,
    title: "Coverage",
    height: 260,
    note: "Clients to which the method has assigned a model. The others are scored with the fallback model.",
    make: () => ({
      height: 260,
      series: [{ name: "", x, y: curves.coverage, index: 4 }],
      x: ROUNDS,
      y: { format: "percent", label: "Coverage", domain: [0, 1] },
    }),
  });
}

function otherCurves({ curves, prefix, x }) {
  const found = Object.entries(curves.other || {}).filter(
    ([, each]) => each && each.values && each.values.some(isNumber),
  );
  return found.map(([name, each]) =>
    lineFigure({
      id: `${prefix}metric-${slug(name)}`,
      title: capitalized(each.label || name),
      height: 260,
      make: () => ({
        height: 260,
        series: [{ name: "", x, y: each.values, index: 5 }],
        x: ROUNDS,
        y: { format: each.percent ? "percent" : "number", label: each.label || name },
      }),
    }),
  );
}

// A run: what it cost (bytes, seconds), what went wrong, what was drift, and what the server sees.

function costSection(run, { prefix, level }) {
  return section(
    { id: `${prefix}cost`, title: "Traffic and time", level },
    purposeFigure(run, prefix),
    perMegabyteFigure(run, prefix),
    secondsFigure(run, prefix),
  );
}

function purposeFigure(run, prefix) {
  const purposes = Object.entries((run.traffic && run.traffic.by_purpose) || {});
  if (!purposes.length) return nothing((run.missing && run.missing.traffic) || "The record has no traffic.");
  const size = ([, { down, up }]) => (down || 0) + (up || 0);
  purposes.sort((a, b) => size(b) - size(a));
  const rows = purposes.map(([purpose, { down, up, in_total: counted }]) => ({
    name: counted === false ? `${purpose} (not in totals)` : purpose,
    values: [
      { value: down || 0, text: `${formatValue("bytes", down || 0)} down`, name: "To clients", index: 0 },
      { value: up || 0, text: `${formatValue("bytes", up || 0)} up`, name: "From clients", index: 1, hatched: true },
    ],
  }));
  return figure({
    id: `${prefix}traffic`,
    title: "Bytes by purpose",
    height: rows.length * 50,
    note: run.traffic.note || "Down: from the server to clients. Up: from clients to the server.",
    draw: (width) => barChart(width, { rows }),
    table: () => ({
      columns: [
        { key: "purpose", label: "Purpose", format: "text" },
        { key: "down", label: "Down", format: "bytes" },
        { key: "up", label: "Up", format: "bytes" },
      ],
      rows: purposes.map(([purpose, { down, up }]) => ({ purpose, down: down || 0, up: up || 0 })),
    }),
  });
}

function perMegabyteFigure(run, prefix) {
  const found = run.traffic && run.traffic.per_megabyte;
  if (!found || !found.megabytes || !found.score.some(isNumber)) return null;
  const name = capitalized(run.metric?.label || "score");
  return lineFigure({
    id: `${prefix}per-megabyte`,
    title: `${name} against traffic`,
    height: 300,
    note: "Bytes in both directions up to the evaluated round.",
    make: () => ({
      height: 300,
      series: [{ name: "", x: found.megabytes, y: found.score, index: 0 }],
      pick: "point",
      x: { label: "Traffic so far", format: "megabytes" },
      y: { format: metricFormat(run.metric), label: name },
    }),
  });
}

const PARTS = {
  setup: "loading and building",
  training: "waiting for clients",
  clustering: "work of the server",
  evaluation: "evaluation",
  other: "records and the rest",
  compile: "compilation",
};

function secondsFigure(run, prefix) {
  const seconds = { ...run.seconds };
  const known = ["setup", "training", "clustering", "evaluation"].map((key) => seconds[key]);
  if (isNumber(seconds.total) && known.every(isNumber)) seconds.other = Math.max(0, seconds.total - sum(known));
  const parts = Object.entries(PARTS).filter(([key]) => isNumber(seconds[key]));
  if (!parts.length) return null;
  const total = isNumber(seconds.total) ? `${formatValue("seconds", seconds.total)} in total; compilation is part of the others.` : "";
  return figure({
    id: `${prefix}seconds`,
    title: "Seconds",
    height: parts.length * 32,
    note: total,
    draw: (width) =>
      barChart(width, {
        rows: parts.map(([key, name]) => ({
          name,
          values: [{ value: seconds[key], text: formatValue("seconds", seconds[key]), index: 2 }],
        })),
      }),
    table: () => ({
      columns: [
        { key: "part", label: "Part", format: "text" },
        { key: "seconds", label: "Seconds", format: "seconds" },
      ],
      rows: parts.map(([key, name]) => ({ part: name, seconds: seconds[key] })),
    }),
  });
}

function faultsSection(run, { prefix, level }) {
  const head = { id: `${prefix}faults`, title: "Faults", level };
  const { faults } = run;
  if (!faults)
    return section(
      head,
      nothing(
        (run.missing && run.missing.faults) || "The record has no counts of faults, because the run did not finish.",
      ),
    );
  const rejected = Object.entries(faults.rejected || {}).filter(([, count]) => count > 0);
  const skipped = faults.skipped || [];
  const counted = isNumber(faults.lost); // replies are counted when a run ends
  const calm = !rejected.length && !skipped.length && !faults.lost;
  return section(
    head,
    calm
      ? h("p", null, counted ? "No reply was lost or rejected, and no round was skipped." : "No round was skipped.")
      : null,
    faults.lost ? h("p", null, `${plural(faults.lost, "reply", "replies")} never arrived.`) : null,
    faults.attackers
      ? h(
          "p",
          null,
          `${plural(faults.attackers, "client")} ${faults.attackers === 1 ? "was" : "were"} malicious (simulated).`,
        )
      : null,
    (faults.notes || []).map((note) => h("p", null, note)),
    rejected.length
      ? figure({
          id: `${prefix}rejected`,
          title: "Rejected replies",
          height: rejected.length * 32,
          draw: (width) =>
            barChart(width, {
              rows: rejected.map(([reason, count]) => ({
                name: reason,
                values: [{ value: count, text: formatValue("count", count), index: 1 }],
              })),
            }),
          table: () => ({
            columns: [
              { key: "reason", label: "Reason", format: "text" },
              { key: "count", label: "Replies", format: "count" },
            ],
            rows: rejected.map(([reason, count]) => ({ reason, count })),
          }),
        })
      : null,
    skipped.length
      ? h(
          "div",
          { class: "block" },
          h("h3", null, plural(skipped.length, "skipped round")),
          dataTable({
            caption: "Skipped rounds",
            columns: [
              { key: "round", label: "Round", format: "round" },
              { key: "reason", label: "Reason", format: "text" },
            ],
            rows: skipped,
            size: 10,
            state: `${prefix}skipped`,
            file: `${prefix}skipped`,
          }),
        )
      : null,
  );
}

function driftSection(run, { prefix, level }) {
  if (!run.drift || !run.drift.figures || !run.drift.figures.length) return null;
  return section(
    {
      id: `${prefix}drift`,
      title: "Drift",
      level,
      lead: "Clients whose data changed during the run, and what the method detected.",
    },
    keyFigures(run.drift.figures),
    driftFigure(run, prefix),
    (run.drift.notes || []).map((note) => h("p", { class: "note" }, note)),
  );
}

function driftFigure(run, prefix) {
  const { shifted, flagged } = run.drift;
  const series = [
    ["data changed", shifted, 1],
    ["flagged by the method", flagged, 0],
  ]
    .filter(([, found]) => found && found.round && found.round.length)
    .map(([name, found, index]) => ({ name, x: found.round, y: found.clients, index, dots: true }));
  if (!series.length) return null;
  return lineFigure({
    id: `${prefix}drift-rounds`,
    title: "Drift over rounds",
    height: 260,
    note: "Clients whose data changed before a round, and clients that the method flagged in it.",
    make: () => ({ height: 260, series, x: ROUNDS, y: { format: "count", whole: true, label: "Clients", zero: true } }),
  });
}

function privacySection(run, { prefix, level }) {
  const { privacy } = run;
  const sees = [...new Set([...(run.sees || []), ...((privacy && privacy.sees) || [])])];
  const content = [];
  if (privacy) {
    content.push(
      keyFigures(
        [
          {
            label: "ε so far",
            value: privacy.epsilon,
            format: "number",
            note: isNumber(privacy.epsilon) ? `at δ = ${formatValue("number", privacy.delta)}` : "not bounded",
          },
          { label: "Noise multiplier", value: privacy.noise_multiplier, format: "number" },
          { label: "Largest norm of an update", value: privacy.max_update_norm, format: "number" },
          { label: "Smallest cluster", value: privacy.min_cluster_size, format: "count", note: "clients in a sum" },
        ].filter((each) => each.label === "ε so far" || isNumber(each.value)),
      ),
    );
    if (privacy.words) content.push(h("p", null, privacy.words));
    else if (privacy.bound) content.push(h("p", { class: "note" }, `Bound: ${privacy.bound}.`));
    if ((privacy.not_covered || []).length)
      content.push(h("p", null, `Not covered by ε: ${privacy.not_covered.join(", ")}.`));
    const over = privacy.over_rounds;
    if (over && over.epsilon && finiteCount(over.epsilon) > 1) {
      content.push(
        lineFigure({
          id: `${prefix}epsilon`,
          title: "ε over rounds",
          height: 260,
          make: () => ({
            height: 260,
            series: [{ name: "", x: over.round, y: over.epsilon, index: 3 }],
            x: ROUNDS,
            y: { format: "number", label: "ε", zero: true },
          }),
        }),
      );
    }
  } else content.push(h("p", null, "The run had no differential privacy."));
  if (sees.length)
    content.push(
      h("h3", null, "What the server receives"),
      h(
        "ul",
        { class: "plain" },
        sees.map((sentence) => h("li", null, sentence)),
      ),
    );
  return section({ id: `${prefix}privacy`, title: "Privacy", level }, content);
}

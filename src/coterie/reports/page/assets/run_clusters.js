// A run: its clusters over time, who moved where, and the classes of each cluster.

function clustersSection(run, { prefix, level }) {
  return section(
    { id: `${prefix}clusters`, title: "Clusters over time", level },
    sizesFigure(run, prefix),
    movementsPart(run, prefix),
  );
}

function sizesFigure(run, prefix) {
  const { sizes } = run;
  if (!sizes || !sizes.round || !sizes.round.length) {
    return nothing((run.missing && run.missing.sizes) || "The record has no cluster sizes: no round was evaluated.");
  }
  const clusters = Object.keys(sizes.clusters).sort((a, b) => a - b);
  const layers = clusters.map((cluster) => ({
    name: clusterName(cluster),
    index: Number(cluster),
    values: sizes.clusters[cluster],
  }));
  if ((sizes.unassigned || []).some((count) => count > 0))
    layers.push({ name: "no cluster", index: -1, values: sizes.unassigned });
  return figure({
    id: `${prefix}sizes`,
    title: "Cluster sizes",
    height: 300,
    note: paragraph("Number of clients that each cluster serves.", sizes.note),
    legend: legendOf(layers),
    draw: (width) => areaChart(width, { x: sizes.round, layers }),
    table: () =>
      seriesTable(
        layers.map((layer) => ({ name: layer.name, x: sizes.round, y: layer.values })),
        [],
        ROUNDS,
        { format: "count", label: "Clients" },
      ),
  });
}

function movementsPart(run, prefix) {
  const { movements } = run;
  if (!movements || !movements.nodes || !movements.nodes.length) {
    return nothing((run.missing && run.missing.movements) || "The record has no assignments of clients to clusters.");
  }
  const parts = [];
  if (movements.steps.length > 1) parts.push(movementsFigure(movements, prefix));
  else parts.push(nothing("Clients were assigned only once, so there are no moves to show."));
  parts.push(migrationsTable(movements, prefix));
  return parts;
}

function movementsFigure(movements, prefix) {
  const drifted = movements.links.some((link) => link.drifted > 0);
  const diamond = s(
    "svg",
    { class: "swatch", width: 18, height: 12, viewBox: "0 0 18 12", "aria-hidden": "true" },
    s("path", { class: "drift-mark", d: markerPath(3, 9, 6, 4) }),
  );
  return figure({
    id: `${prefix}movements`,
    title: "Moves between clusters",
    height: 380,
    note: paragraph(
      "Each column is an evaluation of all clients; a ribbon's height is its number of clients. Ribbons in strong colors are clients that changed their cluster from one column to the next.",
      movements.note,
    ),
    legend: drifted ? legendOf([{ mark: diamond, name: "with clients whose data had changed" }]) : null,
    draw: (width) => alluvialChart(width, movements),
    table: () => ({
      columns: [
        { key: "after", label: "After", format: "text" },
        { key: "until", label: "Until", format: "text" },
        { key: "from", label: "From", format: "text" },
        { key: "to", label: "To", format: "text" },
        { key: "clients", label: "Clients", format: "count" },
        { key: "drifted", label: "Data had changed", format: "count" },
        { key: "flagged", label: "Flagged", format: "count" },
      ],
      rows: movements.links.map((link) => ({
        after: movements.steps[link.step].label,
        until: movements.steps[link.step + 1].label,
        from: clusterName(link.from),
        to: clusterName(link.to),
        clients: link.clients,
        drifted: link.drifted ?? null,
        flagged: link.flagged ?? null,
      })),
    }),
  });
}

const ROUND_BY_ROUND =
  "The table has the assignments of the clients that took part in each round. The diagram above compares evaluations of all clients, so its numbers may differ.";

function migrationsTable(movements, prefix) {
  const rows = (movements.migrations || []).map((each) => ({
    ...each,
    from: clusterName(each.from),
    to: clusterName(each.to),
  }));
  const total = movements.total_migrations ?? rows.length;
  if (!total) return h("p", { class: "note" }, "No client that took part in a round changed its cluster.");
  const columns = [
    { key: "round", label: "Round", format: "round" },
    { key: "client", label: "Client", format: "text" },
    { key: "from", label: "From", format: "text" },
    { key: "to", label: "To", format: "text" },
  ];
  if (rows.some((row) => row.shifted)) columns.push({ key: "shifted", label: "Data had changed", format: "text" });
  if (rows.some((row) => row.correct !== null && row.correct !== undefined))
    columns.push({ key: "correct", label: "To its true cluster", format: "text" });
  return h(
    "div",
    { class: "block" },
    h("h3", null, "Changes of cluster"),
    h(
      "p",
      { class: "note" },
      rows.length < total
        ? `${plural(total, "change")}; the first ${fixed(rows.length, 0)} are listed. ${ROUND_BY_ROUND}`
        : `${plural(total, "change")}. ${ROUND_BY_ROUND}`,
    ),
    dataTable({
      caption: "Changes of cluster",
      columns,
      rows,
      search: ["client"],
      size: 10,
      state: `${prefix}migrations`,
      file: `${prefix}migrations`,
    }),
  );
}

function labelsSection(run, { prefix, level }) {
  const head = { id: `${prefix}labels`, title: "Classes in each cluster", level };
  const { labels } = run;
  const clusters = labels ? Object.keys(labels.per_cluster || {}).sort((a, b) => a - b) : [];
  if (!clusters.length) {
    return section(
      head,
      nothing(
        (run.missing && run.missing.labels) ||
          "The record has no class counts. Only simulations record them; on real machines they stay with the clients.",
      ),
    );
  }
  const rows = clusters.map((cluster) => {
    const values = labels.per_cluster[cluster];
    return {
      name: clusterName(cluster),
      short: cluster,
      index: Number(cluster),
      values,
      note: `${formatValue("count", sum(values))} examples`,
    };
  });
  return section(
    head,
    figure({
      id: `${prefix}classes`,
      title: "Share of each class",
      height: rows.length * 76 + 26,
      note: labels.note || "Share of the cluster's training examples. All rows have the same scale.",
      draw: (width) => columnRows(width, { rows, classes: labels.classes, what: "class" }),
      table: () => ({
        columns: [
          { key: "cluster", label: "Cluster", format: "text" },
          ...labels.classes.map((name, i) => ({ key: `k${i}`, label: String(name), format: "count" })),
        ],
        rows: rows.map((row) => ({
          cluster: row.name,
          ...Object.fromEntries(row.values.map((value, i) => [`k${i}`, value])),
        })),
      }),
    }),
  );
}

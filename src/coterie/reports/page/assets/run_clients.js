// A run: its clients in the matrix of distances and in a table.

/** What is known of client i, for tooltips. */
function clientDetails(run, i) {
  const { clients } = run;
  const format = metricFormat(run.metric);
  const at = (column) => (clients[column] ? clients[column][i] : null);
  const rows = [[swatch(at("cluster")), "Cluster", clusterName(at("cluster"))]];
  const add = (name, value) => {
    if (value !== MISSING) rows.push([null, name, value]);
  };
  if (clients.truth) add("True cluster", trueName(run, at("truth")));
  add("Samples", formatValue("count", at("samples")));
  add(capitalized((run.metric && run.metric.label) || "score"), formatValue(format, at("score")));
  add("Loss", formatValue("number", at("loss")));
  if (at("nearest") !== null && at("nearest") !== undefined) {
    const margin = isNumber(at("margin")) ? ` (margin ${formatValue("number", at("margin"))})` : "";
    add("Nearest other", `${clusterName(at("nearest"))}${margin}`);
  }
  add("Classes", formatValue("text", at("labels")));
  if (at("joined")) add("Joined", `round ${formatValue("round", at("joined"))}`);
  if (at("attacker")) add("Malicious", "yes");
  return { title: `Client ${at("name") ?? i}`, rows };
}

function trueName(run, value) {
  if (value === null || value === undefined) return MISSING;
  return (run.clients.truth_names && run.clients.truth_names[value]) || String(value);
}

/** Whether the cluster of client i is another one than that of most clients of its true cluster. */
const isMisplaced = (clients, i) => Boolean(clients.truth_matches && clients.truth_matches[i] === false);

function matrixSection(run, { prefix, level }) {
  const head = { id: `${prefix}matrix`, title: "Distances between clients", level };
  const { matrix, clients } = run;
  if (!matrix || !matrix.n || !matrix.values) {
    return section(
      head,
      nothing(
        (run.missing && run.missing.matrix) || "There is no matrix: the record has no distances between clients.",
      ),
    );
  }
  const bytes = bytesOf(matrix.values);
  const names =
    matrix.rows_label ||
    (matrix.order || []).map((i) => (clients && clients.name ? String(clients.name[i]) : String(i)));
  const clusters =
    matrix.cluster || (matrix.order || []).map((i) => (clients && clients.cluster ? clients.cluster[i] : -1));
  const tree = matrix.dendrogram && matrix.dendrogram.segments && matrix.dendrogram.segments.length;
  return section(
    head,
    figure({
      id: `${prefix}distances`,
      title: matrix.alike ? "Similarities, ordered by cluster" : "Distances, ordered by cluster",
      height: 600,
      note: paragraph(
        capitalized(matrix.what || "distance"),
        `Rows and columns are clients, ordered by cluster${tree ? "; the tree above shows which are merged first" : ""}. The strips show the clusters.`,
        matrix.note,
      ),
      draw: (width, context) => matrixChart(width, { matrix, bytes, names, clusters }, context),
      table: () => clusterDistances(matrix, bytes, clusters),
    }),
  );
}

function clientsSection(run, { prefix, level }) {
  const head = { id: `${prefix}clients`, title: "Clients", level };
  const { clients } = run;
  if (!clients || !clients.name || !clients.name.length) {
    return section(
      head,
      nothing((run.missing && run.missing.clients) || "The record has no results for single clients."),
    );
  }
  const format = metricFormat(run.metric);
  const all = [
    { key: "name", label: "Client", format: "text" },
    {
      key: "score",
      label: capitalized(run.metric?.label || "score"),
      format,
      better: run.metric?.greater_is_better === false ? "low" : "high",
    },
    { key: "loss", label: "Loss", format: "number" },
    { key: "samples", label: "Samples", format: "count" },
    {
      key: "cluster",
      label: "Cluster",
      format: "text",
      cell: (row) =>
        h("span", { class: "with-swatch" }, swatch(row.cluster), row.cluster < 0 ? "none" : String(row.cluster)),
    },
    {
      key: "truth",
      label: "True cluster",
      format: "text",
      cell: (row) =>
        h(
          "span",
          { class: row.misplaced ? "differs" : "" },
          trueName(run, row.truth),
          row.misplaced ? h("span", { class: "tag" }, "differs") : null,
        ),
    },
    {
      key: "nearest",
      label: "Nearest other",
      format: "text",
      text: (row) => (row.nearest === null || row.nearest === undefined ? MISSING : String(row.nearest)),
    },
    {
      key: "margin",
      label: "Margin",
      format: "number",
      help: "How much better its own cluster fits than the nearest other cluster",
    },
    { key: "moved", label: "Moves", format: "count" },
    { key: "joined", label: "Joined", format: "round" },
    { key: "attacker", label: "Malicious", format: "text" },
    { key: "labels", label: "Classes", format: "text" },
  ];
  const interesting = { joined: (value) => value > 0, attacker: Boolean, moved: (value) => value > 0 };
  const columns = all.filter(
    ({ key }) =>
      Array.isArray(clients[key]) &&
      clients[key].some(
        (value) => value !== null && value !== undefined && (!interesting[key] || interesting[key](value)),
      ),
  );
  const rows = clients.name.map((name, i) => {
    const row = { name: String(name), misplaced: isMisplaced(clients, i) };
    for (const { key } of columns) if (key !== "name") row[key] = clients[key][i];
    return row;
  });
  const worst = clients.score ? { key: "score", direction: run.metric?.greater_is_better === false ? -1 : 1 } : null;
  return section(
    { ...head, lead: `${plural(rows.length, "client")}${worst ? ", the worst first" : ""}.` },
    dataTable({
      caption: "Clients",
      columns,
      rows,
      sort: worst,
      search: ["name", "labels"],
      size: 25,
      state: `${prefix}clients`,
      file: `${prefix}clients`,
    }),
  );
}

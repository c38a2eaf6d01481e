// A run: the map of its clients.

function mapSection(run, { prefix, level }) {
  const head = { id: `${prefix}map`, title: "Map of clients", level };
  const { map, clients } = run;
  if (!map || !map.x || !map.x.length) {
    return section(
      head,
      nothing(
        (run.missing && run.missing.map) ||
          "There is no map: the record has no embeddings or distances on which clients were clustered.",
      ),
    );
  }
  const fullest = map.count ? Math.max(...map.count) : 1;
  const points = map.x.map((x, k) => {
    const i = map.client ? map.client[k] : null;
    const cluster = map.cluster ? map.cluster[k] : clients && clients.cluster && i !== null ? clients.cluster[i] : -1;
    return {
      x,
      y: map.y[k],
      client: i,
      cluster: cluster ?? -1,
      ring: i !== null && clients ? isMisplaced(clients, i) : false,
      radius: map.count ? 2 + 8 * Math.sqrt(map.count[k] / fullest) : null,
      count: map.count && map.count[k],
    };
  });
  return section(head, mapFigure(run, map, points, prefix));
}

function mapFigure(run, map, points, prefix) {
  const { clients } = run;
  const rings = sum(points.filter((point) => point.ring).map((point) => point.count || 1));
  const state = remembered(`map:${prefix}`, { color: "cluster" });
  const scores = clients && clients.score ? extent(points.map((point) => clients.score[point.client])) : null;
  const options = [["cluster", "Cluster"]];
  if (clients && clients.truth && points[0].client !== null) options.push(["truth", "True cluster"]);
  if (scores && scores[1] > scores[0] && !map.count) options.push(["score", "Score"]);
  if (!options.some(([value]) => value === state.color)) state.color = "cluster";
  const truths = clients && clients.truth ? [...new Set(clients.truth)].sort() : [];
  const styled = (dark) =>
    points.map((point) => {
      if (state.color === "truth") return { ...point, index: truths.indexOf(clients.truth[point.client]) };
      if (state.color === "score") {
        const t = (clients.score[point.client] - scores[0]) / (scores[1] - scores[0]);
        return {
          ...point,
          index: point.cluster,
          color: `rgb(${rampColor(RAMPS[dark ? "dark" : "light"].slice(0, 4), 1 - t).join(",")})`,
        };
      }
      return { ...point, index: point.cluster };
    });
  const legend = h("div");
  const showLegend = () => legend.replaceChildren(mapLegend(run, points, truths, state.color, scores, rings));
  const built = figure({
    id: `${prefix}map-of-clients`,
    title: "Clients, as the method sees them",
    height: 450,
    note: mapNote(map, clients),
    legend,
    controls:
      options.length > 1
        ? [
            h("span", { class: "control-name", "aria-hidden": "true" }, "Color"),
            choice("Color", options, state.color, (value) => {
              state.color = value;
              showLegend();
              redraw(built);
            }),
          ]
        : [],
    draw: (width, context) =>
      scatterChart(
        width,
        {
          points: styled(context.dark),
          equal: true,
          names: state.color === "cluster" ? clusterCenters(points) : [],
          x: { label: axisName(map, 0), format: "number" },
          y: { label: axisName(map, 1), format: "number" },
          describe: (k) => (points[k].count ? cellDetails(run, points[k]) : clientDetails(run, points[k].client)),
        },
        context,
      ),
    table: () => mapTable(run, points),
  });
  showLegend();
  return built;
}

/** What is known of the clients in one cell of an aggregated map; `client` is one of them. */
function cellDetails(run, { client, cluster, count }) {
  const rows = [[null, "Clients", formatValue("count", count)]];
  if (run.clients && run.clients.truth) rows.push([null, "True cluster", trueName(run, run.clients.truth[client])]);
  return { title: capitalized(clusterName(cluster)), rows };
}

function axisName(map, i) {
  const name = i ? map.y_label : map.x_label;
  const share = map.explained && isNumber(map.explained[i]) ? ` (${formatValue("percent", map.explained[i])})` : "";
  return `${name || (i ? "Second direction" : "First direction")}${share}`;
}

function mapNote(map, clients) {
  const ring =
    clients && clients.truth_matches
      ? "A ring marks misclustered clients: most clients of their cluster have another true cluster."
      : null;
  return paragraph(map.method || "What the method clustered on, in two dimensions", ring, map.note);
}

/** Names of clusters: in the middle of many clients, above the highest of few, so that they hide none. */
function clusterCenters(points) {
  const groups = groupBy(points, (point) => point.cluster);
  if (groups.size > 24) return [];
  const middle = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  return [...groups]
    .filter(([cluster]) => cluster >= 0)
    .map(([cluster, group]) => ({
      x: middle(group.map((point) => point.x)),
      text: String(cluster),
      above: group.length <= 30,
      y: group.length > 30 ? middle(group.map((point) => point.y)) : Math.max(...group.map((point) => point.y)),
    }));
}

function groupBy(values, key) {
  const groups = new Map();
  for (const value of values) {
    if (!groups.has(key(value))) groups.set(key(value), []);
    groups.get(key(value)).push(value);
  }
  return groups;
}

function mapLegend(run, points, truths, color, scores, rings) {
  const count = (found) =>
    formatValue(
      "count",
      found.reduce((all, point) => all + (point.count || 1), 0),
    );
  const ring = s(
    "svg",
    { class: "swatch", width: 18, height: 14, viewBox: "0 0 18 14", "aria-hidden": "true" },
    s("circle", { class: "ring", cx: 9, cy: 7, r: 5.5 }),
  );
  const entries = [];
  if (color === "cluster") {
    const ids = [...new Set(points.map((point) => point.cluster))].sort((a, b) => a - b);
    for (const id of ids)
      entries.push({
        index: id,
        name: `${clusterName(id)} (${count(points.filter((point) => point.cluster === id))})`,
      });
  } else if (color === "truth") {
    truths.forEach((truth, i) =>
      entries.push({
        index: i,
        name: `${trueName(run, truth)} (${count(points.filter((point) => run.clients.truth[point.client] === truth))})`,
      }),
    );
  } else {
    entries.push({
      mark: "",
      name: `stronger contrast: higher score, from ${formatValue(metricFormat(run.metric), scores[0])} to ${formatValue(metricFormat(run.metric), scores[1])}. Shapes are clusters.`,
    });
  }
  if (rings) entries.push({ mark: ring, name: `misclustered (${formatValue("count", rings)})` });
  return legendOf(entries);
}

function mapTable(run, points) {
  const { clients } = run;
  const columns = [
    { key: "client", label: "Client", format: "text" },
    { key: "cluster", label: "Cluster", format: "text" },
    { key: "x", label: "x", format: "number" },
    { key: "y", label: "y", format: "number" },
  ];
  if (clients && clients.truth) columns.push({ key: "truth", label: "True cluster", format: "text" });
  if (clients && clients.score && !points[0].count)
    columns.push({ key: "score", label: capitalized(run.metric?.label || "score"), format: metricFormat(run.metric) });
  return {
    columns,
    rows: points.map((point) => ({
      client: point.count ? plural(point.count, "client") : String(clients.name[point.client]),
      cluster: clusterName(point.cluster),
      x: point.x,
      y: point.y,
      truth: clients && clients.truth && point.client !== null ? trueName(run, clients.truth[point.client]) : null,
      score: clients && clients.score && !point.count ? clients.score[point.client] : null,
    })),
  };
}

// A comparison: which clients gain with which of two methods, drift, and the single runs.

function winsSection(data) {
  const { comparison } = data;
  const wins = comparison.client_wins;
  const head = { id: "wins", title: "Client by client" };
  const methods = wins ? comparison.methods.filter((method) => wins.scores[method]) : [];
  if (methods.length < 2) return section(head, nothing("Clients cannot be compared: fewer than two methods have results of single clients."));
  const best = ranked(comparison, (method) => (wins.scores[method] ? sum(wins.scores[method].filter(isNumber)) : null)).filter((method) => methods.includes(method));
  const state = remembered("wins", { a: best[0], b: best.includes("fedavg") && best[0] !== "fedavg" ? "fedavg" : best[1] });
  const place = h("div");
  const options = methods.map((method) => [method, method]);
  const show = () => place.replaceChildren(...winsOfPair(comparison, wins, state.a, state.b));
  show();
  return section({ ...head, lead: "Each dot is a client: its score with one method against its score with another, mean over seeds." },
    h("div", { class: "controls" },
      dropdown("Method", options, state.a, (value) => { state.a = value; show(); }),
      dropdown("Against", options, state.b, (value) => { state.b = value; show(); })), place);
}

function countWins(comparison, wins, a, b) {
  const sign = comparison.metric && comparison.metric.greater_is_better === false ? -1 : 1;
  const rows = wins.clients.map((client, i) => ({ client: String(client), a: wins.scores[a][i], b: wins.scores[b][i] }))
    .filter((row) => isNumber(row.a) && isNumber(row.b)).map((row) => ({ ...row, difference: row.a - row.b }));
  const outcome = (row) => (Math.abs(row.difference) <= 1e-9 ? 0 : Math.sign(row.difference) * sign);
  return { rows, outcome, won: rows.filter((row) => outcome(row) > 0).length, lost: rows.filter((row) => outcome(row) < 0).length };
}

function winsOfPair(comparison, wins, a, b) {
  if (a === b) return [nothing("Choose two different methods.")];
  const { rows, outcome, won, lost } = countWins(comparison, wins, a, b);
  if (!rows.length) return [nothing(`No client has results of both ${a} and ${b}.`)];
  const format = metricFormat(comparison.metric);
  const difference = format === "percent" ? "points" : "number";
  const index = (row) => (outcome(row) > 0 ? 0 : outcome(row) < 0 ? 1 : -1);
  const domain = scoreDomain(extent(rows.map((row) => row.a), rows.map((row) => row.b)), format === "percent");
  const even = rows.length - won - lost;
  const legend = legendOf([{ index: 0, name: `better with ${a} (${won})` }, { index: 1, name: `better with ${b} (${lost})` }, ...(even ? [{ index: -1, name: `equal (${even})` }] : [])]);
  return [
    h("p", { class: "verdict" }, `${a} is better for ${plural(won, "client")}, ${b} for ${plural(lost, "client")}`, even ? `; ${plural(even, "client")} equal.` : "."),
    figure({
      id: "client-wins", title: `${a} against ${b}`, height: 420, legend, file: `${slug(a)}-against-${slug(b)}`, note: `Above the line: better with ${comparison.metric && comparison.metric.greater_is_better === false ? b : a}.`,
      draw: (width, context) => scatterChart(width, {
        points: rows.map((row) => ({ x: row.b, y: row.a, index: index(row) })), diagonal: true, radius: rows.length > 400 ? 3 : 4.5,
        x: { label: `Score with ${b}`, format, domain: padded(domain) }, y: { label: `Score with ${a}`, format, domain: padded(domain) },
        describe: (i) => ({ title: `Client ${rows[i].client}`, rows: [[null, a, formatValue(format, rows[i].a)], [null, b, formatValue(format, rows[i].b)], [null, "Difference", formatValue(difference, rows[i].difference)]] }),
      }, context),
      table: () => ({ columns: [{ key: "client", label: "Client", format: "text" }, { key: "a", label: a, format }, { key: "b", label: b, format }, { key: "difference", label: "Difference", format: difference }], rows }),
    }),
  ];
}

const padded = ([low, high]) => [low - (high - low) * 0.03, high + (high - low) * 0.03];

function driftTableSection(data) {
  const { comparison } = data;
  const table = comparison.drift_table;
  if (!table || !table.rows || !table.rows.length) return null;
  const { columns, rows } = methodTable(table, comparison, null);
  return section({ id: "drift", title: "Drift", lead: table.note || "Changes of clients' data during the runs, and what the methods noticed." },
    dataTable({ caption: "Drift", columns, rows, size: 50, state: "drift", file: "drift" }));
}

/** The single runs: a choice, and the sections of the chosen one below it. */
function runsSection(data, state, show) {
  const select = dropdown("Run", [["", "Choose a run"], ...data.runs.map((run) => [run.id, run.name || run.id])], state.run || "", (value) => show(value, false));
  return section({ id: "runs", title: "Single runs", lead: "Choose a run to see its curves, clusters, clients, traffic and settings below." }, h("div", { class: "controls" }, select));
}

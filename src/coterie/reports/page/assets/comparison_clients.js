// A comparison: which clients gain with which of two methods, drift, and the single runs.

function winsSection(data) {
  const { comparison } = data;
  const wins = comparison.client_wins;
  const head = { id: "wins", title: "Client by client" };
  const methods = wins ? comparison.methods.filter((method) => wins.scores[method]) : [];
  if (methods.length < 2)
    return section(head, nothing("Clients cannot be compared: fewer than two methods have results for single clients."));
  const best = ranked(comparison, (method) => finalScore(comparison, method)).filter((method) =>
    methods.includes(method),
  );
  const other =
    methods.includes(comparison.reference) && comparison.reference !== best[0] ? comparison.reference : best[1];
  const state = remembered("wins", { a: best[0], b: other });
  const place = h("div");
  const options = methods.map((method) => [method, method]);
  const show = () => place.replaceChildren(...winsOfPair(comparison, wins, state.a, state.b));
  show();
  return section(
    { ...head, lead: wins.note || "Each mark is a client: its score with one method against its score with another." },
    h(
      "div",
      { class: "controls" },
      dropdown("Method", options, state.a, (value) => {
        state.a = value;
        show();
      }),
      dropdown("Against", options, state.b, (value) => {
        state.b = value;
        show();
      }),
    ),
    place,
  );
}

/** The number by which methods are ranked: the first column of the table that has a better direction. */
function finalScore(comparison, method) {
  const column = comparison.table && comparison.table.columns.find(({ better }) => better);
  const row = comparison.table && comparison.table.rows.find((each) => each.method === method);
  const cell = row && column ? row.cells[column.key] : null;
  return cell ? cell.mean : null;
}

/** The clients with scores of both methods, and how many of all clients are better with which. */
function countWins(comparison, wins, a, b) {
  const sign = comparison.metric && comparison.metric.greater_is_better === false ? -1 : 1;
  const name = (i) =>
    wins.seeds && new Set(wins.seeds).size > 1 ? `${wins.clients[i]}, seed ${wins.seeds[i]}` : String(wins.clients[i]);
  const rows = wins.clients
    .map((_, i) => ({ client: name(i), a: wins.scores[a][i], b: wins.scores[b][i] }))
    .filter((row) => isNumber(row.a) && isNumber(row.b))
    .map((row) => ({ ...row, difference: row.a - row.b }));
  const outcome = (row) => (Math.abs(row.difference) <= 1e-9 ? 0 : Math.sign(row.difference) * sign);
  const counted = {
    won: rows.filter((row) => outcome(row) > 0).length,
    lost: rows.filter((row) => outcome(row) < 0).length,
  };
  counted.even = rows.length - counted.won - counted.lost;
  // With very many clients only some are in the page; the counts of all are.
  for (const pair of wins.pairs || []) {
    if (pair.a === a && pair.b === b) Object.assign(counted, { won: pair.wins, lost: pair.losses, even: pair.ties });
    if (pair.a === b && pair.b === a) Object.assign(counted, { won: pair.losses, lost: pair.wins, even: pair.ties });
  }
  return { rows, outcome, ...counted };
}

function winsOfPair(comparison, wins, a, b) {
  if (a === b) return [nothing("Choose two different methods.")];
  const { rows, outcome, won, lost, even } = countWins(comparison, wins, a, b);
  if (!rows.length) return [nothing(`No client has results with both ${a} and ${b}.`)];
  const format = metricFormat(comparison.metric);
  const difference = format === "percent" ? "points" : "number";
  const kind = wins.seeds && new Set(wins.seeds).size > 1 ? "pair of client and seed" : "client";
  const many = (count) => plural(count, kind, kind === "client" ? "clients" : "pairs of client and seed");
  const legend = legendOf([
    { index: 0, name: `better with ${a} (${formatValue("count", won)})` },
    { index: 1, name: `better with ${b} (${formatValue("count", lost)})` },
    ...(even ? [{ index: -1, name: `equal (${formatValue("count", even)})` }] : []),
  ]);
  return [
    h(
      "p",
      { class: "verdict" },
      `${a} is better for ${fixed(won, 0)} of ${many(won + lost + even)}, ${b} for ${fixed(lost, 0)}`,
      even ? `; ${fixed(even, 0)} are equal.` : ".",
    ),
    figure({
      id: "client-wins",
      title: `${a} against ${b}`,
      height: 420,
      legend,
      file: `${slug(a)}-against-${slug(b)}`,
      note: `Above the line: better with ${comparison.metric && comparison.metric.greater_is_better === false ? b : a}. Larger marks stand for several clients with the same two scores.`,
      draw: (width, context) => scatterChart(width, winsChart({ rows, outcome, a, b, format, difference }), context),
      table: () => ({
        columns: [
          { key: "client", label: "Client", format: "text" },
          { key: "a", label: a, format },
          { key: "b", label: b, format },
          { key: "difference", label: "Difference", format: difference },
        ],
        rows,
      }),
    }),
  ];
}

/** Clients with the same two scores, which are common with few test examples, are one larger mark. */
function winsChart({ rows, outcome, a, b, format, difference }) {
  const domain = padded(
    scoreDomain(
      extent(
        rows.map((row) => row.a),
        rows.map((row) => row.b),
      ),
      format === "percent",
    ),
  );
  const groups = [...groupBy(rows, (row) => `${row.a} ${row.b}`).values()];
  const index = (row) => (outcome(row) > 0 ? 0 : outcome(row) < 0 ? 1 : -1);
  const base = rows.length > 400 ? 3 : 4.5;
  return {
    points: groups.map((group) => ({
      x: group[0].b,
      y: group[0].a,
      index: index(group[0]),
      radius: Math.min(18, base * Math.sqrt(group.length)),
      count: group.length,
    })),
    diagonal: true,
    x: { label: `Score with ${b}`, format, domain },
    y: { label: `Score with ${a}`, format, domain },
    describe: (i) => {
      const group = groups[i];
      const names = group
        .slice(0, 6)
        .map((row) => row.client)
        .join("; ");
      return {
        title: group.length > 1 ? plural(group.length, "client") : `Client ${group[0].client}`,
        note: group.length > 1 ? `${names}${group.length > 6 ? "; …" : ""}` : null,
        rows: [
          [null, a, formatValue(format, group[0].a)],
          [null, b, formatValue(format, group[0].b)],
          [null, "Difference", formatValue(difference, group[0].difference)],
        ],
      };
    },
  };
}

const padded = ([low, high]) => [low - (high - low) * 0.03, high + (high - low) * 0.03];

function driftTableSection(data) {
  const { comparison } = data;
  const table = comparison.drift_table;
  if (!table || !table.rows || !table.rows.length) return null;
  const { columns, rows } = methodTable(table, comparison, null);
  return section(
    {
      id: "drift",
      title: "Drift",
      lead: table.note || "Changes of clients' data during the runs, and what the methods detected.",
    },
    dataTable({ caption: "Drift", columns, rows, size: 50, state: "drift", file: "drift" }),
  );
}

/** The single runs: a choice, and the sections of the chosen one below it. */
function runsSection(data, state, show) {
  const select = dropdown(
    "Run",
    [["", "Choose a run"], ...data.runs.map((run) => [run.id, run.name || run.id])],
    state.run || "",
    (value) => show(value, false),
  );
  return section(
    {
      id: "runs",
      title: "Single runs",
      lead: "Choose a run to see its curves, clusters, clients, traffic and settings below.",
    },
    h("div", { class: "controls" }, select),
  );
}

// The list of runs in a folder, with their progress. A row is made again only if its run changed.

const root = document.documentElement;
const shown = {
  data: JSON.parse(document.getElementById("report-data").textContent),
  connection: "connecting",
  query: "",
  lag: 0,
};
const rows = new Map();
const address = (id) => `/run/${id}${location.search}`;

const COLUMNS = [
  ["Run", ""],
  ["Method", ""],
  ["Data", ""],
  ["Status", ""],
  ["Rounds", ""],
  ["Score", "number"],
  ["Over rounds", "curve"],
  ["Updated", "number"],
];

const body = h("tbody");
const count = h("span", { class: "count", role: "status" });
const empty = h("p", { class: "nothing" });
const table = h(
  "table",
  { class: "runs" },
  h("caption", { class: "spoken" }, "Runs"),
  h(
    "thead",
    null,
    h(
      "tr",
      null,
      COLUMNS.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)),
    ),
  ),
  body,
);
const state = h("span", { class: "live", id: "live-state" }, "live");

/** A small curve without axes; the table says its last value. */
function sparkline(values) {
  if (values.length < 2) return MISSING;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const place = (value, i) => [
    round2((88 * i) / (values.length - 1)),
    round2(high > low ? 21 - (18 * (value - low)) / (high - low) : 12),
  ];
  const [x, y] = place(values[values.length - 1], values.length - 1);
  return s(
    "svg",
    { class: "spark", viewBox: "0 0 88 24", "aria-hidden": "true", focusable: "false" },
    s("polyline", { points: values.map((value, i) => place(value, i).join(",")).join(" ") }),
    s("circle", { cx: x, cy: y, r: 2 }),
  );
}

function ago(seconds) {
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)}${SPACE}s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${SPACE}min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}${SPACE}h ago`;
  return `${Math.floor(seconds / 86400)}${SPACE}d ago`;
}

function roundsCell(run) {
  if (!run.rounds) return MISSING;
  const share = Math.min(100, (100 * run.round) / run.rounds);
  const left =
    run.status === "running" && isNumber(run.seconds_left) && run.seconds_left > 0
      ? `about ${roughSeconds(run.seconds_left)} left`
      : run.status === "running" && !run.round
        ? progressText(run)
        : null;
  return [
    `${fixed(run.round, 0)} of ${fixed(run.rounds, 0)}`,
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { style: `width: ${share}%` })),
    left ? h("span", { class: "more" }, left) : null,
  ];
}

function row(run) {
  const metric = run.metric || {};
  return h(
    "tr",
    { "data-run": run.id },
    h(
      "th",
      { scope: "row" },
      h("a", { href: address(run.id), "data-key": `run:${run.id}` }, run.name),
      run.reason ? h("span", { class: "why" }, run.reason) : null,
    ),
    h("td", { class: "method" }, run.method || MISSING),
    h("td", { class: "source" }, run.data || MISSING),
    h(
      "td",
      { class: "state" },
      h(
        "span",
        { class: "status", "data-status": run.status },
        h("span", { class: "live-dot", "aria-hidden": "true" }),
        STATUS_WORD[run.status] || run.status,
      ),
    ),
    h("td", { class: "rounds" }, roundsCell(run)),
    h(
      "td",
      { class: "number value" },
      isNumber(run.value)
        ? [formatValue(metricFormat(run.metric), run.value), h("span", { class: "metric-name" }, metric.label)]
        : MISSING,
    ),
    h("td", { class: "curve" }, sparkline(run.history)),
    h("td", { class: "number updated", "data-updated": run.updated }, ""),
  );
}

function showTimes() {
  const now = Date.now() / 1000 - shown.lag;
  for (const cell of body.querySelectorAll(".updated")) {
    const text = ago(Math.max(0, now - Number(cell.dataset.updated)));
    if (cell.textContent !== text) cell.textContent = text;
  }
}

function show() {
  const { data, query } = shown;
  const wanted = query.trim().toLowerCase();
  const found = data.runs.filter(
    (run) => !wanted || [run.name, run.method, run.data, run.status].join("\n").toLowerCase().includes(wanted),
  );
  const focused = document.activeElement && document.activeElement.getAttribute("data-key");
  const made = found.map((run) => {
    const text = JSON.stringify(run);
    const known = rows.get(run.id);
    if (known && known.text === text) return known.element;
    rows.set(run.id, { text, element: row(run) });
    return rows.get(run.id).element;
  });
  for (const id of rows.keys()) if (!data.runs.some((run) => run.id === id)) rows.delete(id);
  body.replaceChildren(...made);
  const again = focused && document.querySelector(`[data-key="${CSS.escape(focused)}"]`);
  if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  const running = data.runs.filter((run) => run.status === "running").length;
  const hidden = data.total - data.runs.length - data.reading;
  count.textContent = [
    plural(data.total, "run"),
    running ? `${running} going on` : null,
    data.reading ? `${data.reading} being read` : null,
    hidden > 0 ? `the latest ${data.runs.length} are shown; all: coterie runs` : null,
  ]
    .filter(Boolean)
    .join(" · ");
  table.hidden = !found.length;
  empty.hidden = Boolean(found.length);
  empty.textContent = data.runs.length
    ? "No run matches."
    : data.exists
      ? `No runs in ${data.folder} yet. New runs appear here automatically.`
      : `The folder ${data.folder} does not exist yet. Its runs will appear here.`;
  state.textContent = {
    open: "live",
    connecting: "connecting",
    lost: "server lost, trying again",
    ended: "the server has ended",
  }[shown.connection];
  state.classList.toggle("off", shown.connection !== "open");
  showTimes();
}

function chooseTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("coterie-theme");
    else localStorage.setItem("coterie-theme", theme);
  } catch {
    /* the choice is not kept */
  }
}

function start() {
  let theme = null;
  try {
    theme = localStorage.getItem("coterie-theme");
  } catch {
    /* no storage */
  }
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  document.getElementById("masthead").append(
    h(
      "div",
      { class: "brand" },
      h("span", { class: "mark-name" }, "Coterie"),
      h("span", { class: "kind" }, shown.data.folder),
      state,
    ),
    h("h1", null, "Runs"),
    choice(
      "Theme",
      [
        ["auto", "Auto"],
        ["light", "Light"],
        ["dark", "Dark"],
      ],
      theme || "auto",
      chooseTheme,
    ),
  );
  const search = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search runs",
    "data-key": "search",
    oninput: (event) => {
      shown.query = event.target.value;
      show();
    },
  });
  document.getElementById("content").replaceChildren(h("div", { class: "table-tools" }, search, count), table, empty);
  document
    .getElementById("colophon")
    .append(h("p", null, `Coterie ${shown.data.version}. Everything here is read from records.`));
  show();
  setInterval(showTimes, 1000);
  connect(
    shown.data.live.events,
    {
      list: (data) => {
        // The folder itself has become the record of a run.
        if (data.single) location.reload();
        shown.data = { ...shown.data, ...data };
        show();
      },
    },
    (connection) => {
      shown.connection = connection;
      show();
    },
  );
  root.dataset.ready = "true";
}

start();

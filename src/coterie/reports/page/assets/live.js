// The page of a run that goes on: a bar that says how far it is, and new data as rounds end.

function follow({ events, list }) {
  const known = { state: null, connection: "connecting", at: null };
  const words = h("span", { class: "live-words" });
  const bar = h(
    "div",
    { class: "live-bar", role: "region", "aria-label": "Progress of the run" },
    h(
      "div",
      { class: "live-inner" },
      h("span", { class: "live-dot", "aria-hidden": "true" }),
      words,
      list ? h("a", { class: "live-back", href: list }, "All runs") : null,
    ),
    h("div", { class: "live-progress", "aria-hidden": "true" }, h("div")),
  );
  document.body.append(bar);
  let said = "";

  function show() {
    const { state, connection } = known;
    const status =
      connection === "ended" && state && state.status === "running"
        ? "ended"
        : connection === "lost"
          ? "lost"
          : state
            ? state.status
            : "connecting";
    bar.dataset.status = status;
    bar.querySelector(".live-progress > div").style.width =
      state && state.rounds ? `${Math.min(100, (100 * state.round) / state.rounds)}%` : "0";
    const parts = liveWords(status, known);
    words.replaceChildren(...parts);
    const small = document.getElementById("live-state");
    if (small) {
      small.textContent = status === "running" ? "live" : (STATUS_WORD[status] || status).toLowerCase();
      small.classList.toggle("off", status !== "running");
    }
    if (status !== said && said) document.getElementById("spoken").textContent = words.textContent;
    said = status;
  }

  connect(
    events,
    {
      state: (state) => {
        known.state = state;
        show();
      },
      report: (next) => {
        known.at = new Date();
        if (next.created !== data.created || !data.runs.length) update(next);
        show();
      },
      problem: (text) => {
        known.state = { ...known.state, problem: text };
        show();
      },
    },
    (connection) => {
      known.connection = connection;
      show();
    },
  );
  known.at = new Date();
  show();
}

/** The text of the bar. */
function liveWords(status, { state, connection, at }) {
  const strong = (text) => h("strong", null, text);
  const time = at ? at.toLocaleTimeString() : "";
  const last = connection === "ended" ? " The server has ended; the page stays as it is." : "";
  if (status === "connecting") return ["Connecting…"];
  if (status === "lost") return [strong("Server lost."), ` Trying again. The page shows the run as it was at ${time}.`];
  if (status === "ended")
    return [strong("The server has ended."), ` The page shows the run as it was at ${time}, ${progressText(state)}.`];
  const problem = state.problem || state.reason ? ` ${state.problem || state.reason}` : "";
  if (status === "missing")
    return [strong("There is no record."), " The page waits until there is one."];
  if (status === "running") return [strong("Running"), `: ${progressText(state)}${problem ? `.${problem}` : ""}`];
  if (status === "done") return [strong("Finished"), `: ${plural(state.round, "round")}.${problem}${last}`];
  const parts = [strong(STATUS_WORD[status] || status), ` ${progressText(state)}.${problem}`];
  if (state.command) parts.push(" Continue with: ", h("code", null, state.command));
  return [...parts, last];
}

if (data.live) follow(data.live);

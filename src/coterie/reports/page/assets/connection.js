// A stream of server-sent events that survives lost connections. It rests while the page is hidden.

/** Seconds without a sign of life after which a connection counts as lost; the server gives one every ten seconds. */
const SILENCE = 30;

/**
 * Listen to the events of an address.
 *
 * `events`: name → function of the parsed data; `changed`: called with "open", "lost" or "ended".
 */
function connect(address, events, changed) {
  let source = null;
  let pause = 1;
  let timer = null;
  let silent = null;
  let ended = false;

  const alive = () => {
    clearTimeout(silent);
    silent = setTimeout(() => lost(), 1000 * SILENCE);
  };

  function close() {
    clearTimeout(timer);
    clearTimeout(silent);
    if (source) source.close();
    source = null;
  }

  function lost() {
    close();
    if (ended || document.hidden) return;
    changed("lost");
    timer = setTimeout(open, 1000 * pause);
    pause = Math.min(2 * pause, 15);
  }

  function open() {
    close();
    source = new EventSource(address);
    source.onopen = () => {
      pause = 1;
      alive();
      changed("open");
    };
    source.onerror = lost;
    source.addEventListener("alive", alive);
    source.addEventListener("end", () => {
      ended = true;
      close();
      changed("ended");
    });
    for (const [name, show] of Object.entries(events)) {
      source.addEventListener(name, (event) => {
        alive();
        show(JSON.parse(event.data));
      });
    }
  }

  document.addEventListener("visibilitychange", () => {
    if (ended) return;
    if (document.hidden) close();
    else open();
  });
  open();
}

/** How far a run is, in words. */
function progressText(state) {
  const of = state.rounds
    ? `round ${fixed(state.round, 0)} of ${fixed(state.rounds, 0)}`
    : `round ${fixed(state.round, 0)}`;
  if (state.status === "running" && !state.round) return state.preparing ? "preparing" : "beginning";
  if (state.status !== "running") return state.round ? `after ${of}` : "before the first round";
  const pace = isNumber(state.seconds_per_round) ? `${formatSeconds(state.seconds_per_round)} per round` : null;
  const left =
    state.round === state.rounds
      ? "ending"
      : isNumber(state.seconds_left) && state.seconds_left > 0
        ? `about ${roughSeconds(state.seconds_left)} left`
        : null;
  return [of, pace, left].filter(Boolean).join(" · ");
}

/** A duration that is an estimate: no more digits than it deserves. */
function roughSeconds(value) {
  if (value < 60) return `${Math.max(1, Math.round(value))}${SPACE}s`;
  if (value < 3600) return `${Math.round(value / 60)}${SPACE}min`;
  return `${Math.floor(value / 3600)}${SPACE}h ${Math.round((value % 3600) / 60)}${SPACE}min`;
}

const STATUS_WORD = {
  running: "Running",
  done: "Finished",
  interrupted: "Interrupted",
  failed: "Failed",
  diverged: "Diverged",
  missing: "No record",
  unreadable: "Unreadable",
};

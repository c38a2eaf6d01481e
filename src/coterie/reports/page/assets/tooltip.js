// One tooltip for all charts. It follows the pointer, a finger or the arrow keys, and is spoken from the keyboard.

/** Show a tooltip beside a point of the window: a title and rows of [swatch or null, name, value]. */
function showTooltip(x, y, { title, rows, note }) {
  const box = document.getElementById("tooltip");
  box.replaceChildren(
    h("strong", null, title),
    h(
      "table",
      null,
      (rows || []).map(([mark, name, value]) =>
        h("tr", null, h("td", null, mark), h("td", null, name), h("td", { class: "value" }, value)),
      ),
    ),
    note ? h("p", null, note) : "",
  );
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const left = x + 14 + width > room ? x - width - 14 : x + 14;
  const top = y - height - 10 < 4 ? y + 16 : y - height - 10;
  box.style.left = `${Math.max(6, Math.min(left, room - width - 6))}px`;
  box.style.top = `${Math.max(6, Math.min(top, window.innerHeight - height - 6))}px`;
}

function hideTooltip() {
  document.getElementById("tooltip").hidden = true;
}

function speak(text) {
  document.getElementById("spoken").textContent = text;
}

const spokenText = ({ title, rows, note }) =>
  [title, ...(rows || []).map(([, name, value]) => (name ? `${name}: ${value}` : value)), note]
    .filter(Boolean)
    .join(". ");

/**
 * Let people walk over the values of a chart.
 *
 * A chart that can be walked has `count`, `nearest(x, y)` → index or null, `move(index, key)` → index,
 * `show(index)` → {x, y, title, rows, note}, which also marks the value, and `clear()`. Places are in units of the drawing.
 */
function makeWalkable(plot, chart) {
  const { walk } = chart;
  let current = null;
  const place = (index, spoken) => {
    const svg = plot.querySelector("svg.chart");
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const what = walk.show(index);
    current = index;
    showTooltip(box.left + what.x * scale, box.top + what.y * scale, what);
    if (spoken) speak(spokenText(what));
  };
  const leave = () => {
    if (current === null) return;
    current = null;
    walk.clear();
    hideTooltip();
  };
  const point = (event) => {
    const svg = plot.querySelector("svg.chart");
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const index = walk.nearest((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    if (index === null) leave();
    else if (index !== current) place(index, false);
  };
  plot.onpointermove = point;
  plot.onpointerdown = point;
  plot.onpointerleave = leave;
  plot.onblur = leave;
  plot.onfocus = () => {
    if (plot.matches(":focus-visible") && walk.count) place(current ?? walk.first ?? 0, true);
  };
  plot.onkeydown = (event) => {
    if (event.key === "Escape") return leave();
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key) || !walk.count)
      return undefined;
    event.preventDefault();
    const index = current === null ? (walk.first ?? 0) : walk.move(current, event.key);
    return place(Math.max(0, Math.min(walk.count - 1, index)), true);
  };
}

/** Moves along a list: left and right by one, up and down too, Home and End to its ends. */
const alongList = (count) => (index, key) =>
  ({ ArrowLeft: index - 1, ArrowUp: index - 1, ArrowRight: index + 1, ArrowDown: index + 1, Home: 0, End: count - 1 })[
    key
  ];

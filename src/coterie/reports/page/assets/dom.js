// Elements. Text of records only ever becomes a text node: no function here parses HTML.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element; children are elements or texts, attributes `on…` are listeners. */
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
const s = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** SVG text. */
const label = (x, y, text, attributes) => s("text", { x: round2(x), y: round2(y), ...attributes }, text);

const round2 = (value) => Math.round(value * 100) / 100;

/** What the reader chose (sorting, searching, open tables, visible series); it survives when live data arrive. */
const memory = new Map();

function remembered(key, initial) {
  if (!memory.has(key)) memory.set(key, initial);
  return memory.get(key);
}

const slug = (text) =>
  String(text)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 60) || "item";

/** A group of buttons of which one is pressed. */
function choice(name, options, current, choose) {
  const group = h("div", { class: "choice", role: "group", "aria-label": name });
  const buttons = options.map(([value, text]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === current),
        "data-key": `${name}:${value}`,
        onclick: () => {
          buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(options[i][0] === value)));
          choose(value);
        },
      },
      text,
    ),
  );
  group.append(...buttons);
  return group;
}

/** A select with its label. */
function dropdown(name, options, current, choose) {
  const id = `choose-${slug(name)}`;
  const select = h(
    "select",
    { id, "data-key": name, onchange: () => choose(select.value) },
    options.map(([value, text]) => h("option", { value, selected: value === current }, text)),
  );
  return h("span", { class: "field" }, h("label", { for: id }, name), select);
}

/** A paragraph for what the record does not have. */
const nothing = (text) => h("p", { class: "nothing" }, text);

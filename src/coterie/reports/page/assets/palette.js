// Colors that people with color-blindness tell apart (Okabe and Ito's, moved to a contrast of 3:1 with the paper).
// Color is never alone: series also differ in marker shape and dash, and carry their name.

const COLORS = 8;
const DASHES = ["", "6 3", "2 3", "9 3 2 3"];

/** CSS color of the i-th category; categories without cluster are gray. */
const colorOf = (i) =>
  i === null || i === undefined || Number(i) < 0 ? "var(--none)" : `var(--c${Number(i) % COLORS})`;

const dashOf = (i) => DASHES[Math.floor(Math.max(0, Number(i)) / COLORS) % DASHES.length];

/** Outlines of markers with the area of a circle of radius 1. */
const SHAPES = [
  null, // circle
  [
    [-0.89, -0.89],
    [0.89, -0.89],
    [0.89, 0.89],
    [-0.89, 0.89],
  ],
  [
    [0, -1.4],
    [1.25, 0.85],
    [-1.25, 0.85],
  ],
  [
    [0, -1.35],
    [1.1, 0],
    [0, 1.35],
    [-1.1, 0],
  ],
  [
    [-0.45, -1.3],
    [0.45, -1.3],
    [0.45, -0.45],
    [1.3, -0.45],
    [1.3, 0.45],
    [0.45, 0.45],
    [0.45, 1.3],
    [-0.45, 1.3],
    [-0.45, 0.45],
    [-1.3, 0.45],
    [-1.3, -0.45],
    [-0.45, -0.45],
  ],
  [
    [0, 1.4],
    [1.25, -0.85],
    [-1.25, -0.85],
  ],
  [
    [-1.1, 0],
    [-0.55, -0.95],
    [0.55, -0.95],
    [1.1, 0],
    [0.55, 0.95],
    [-0.55, 0.95],
  ],
  [
    [0, -1.5],
    [0.4, -0.5],
    [1.45, -0.45],
    [0.6, 0.2],
    [0.9, 1.2],
    [0, 0.6],
    [-0.9, 1.2],
    [-0.6, 0.2],
    [-1.45, -0.45],
    [-0.4, -0.5],
  ],
];

/** Outline of the i-th category: with more than eight, color and shape together differ. */
function shapeOf(i) {
  const index = Math.max(0, Number(i) || 0);
  return SHAPES[((index % COLORS) + Math.floor(index / COLORS)) % SHAPES.length];
}

/** Path of a marker at a place, with the radius that a circle would have. */
function markerPath(i, x, y, radius) {
  const outline = shapeOf(i);
  if (!outline) {
    const r = round2(radius);
    return `M${round2(x - radius)} ${round2(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  }
  return `M${outline.map(([a, b]) => `${round2(x + a * radius)} ${round2(y + b * radius)}`).join("L")}Z`;
}

/** A small picture of a category for legends and tables. */
function swatch(i, kind = "marker") {
  const picture = s("svg", { class: "swatch", width: 18, height: 12, viewBox: "0 0 18 12", "aria-hidden": "true" });
  if (kind !== "marker") {
    picture.append(
      s("path", { d: "M0 6H18", stroke: colorOf(i), "stroke-width": 2, "stroke-dasharray": dashOf(i), fill: "none" }),
    );
  }
  if (kind !== "line")
    picture.append(s("path", { d: markerPath(i, 9, 6, kind === "marker" ? 4.6 : 3.2), fill: colorOf(i) }));
  return picture;
}

/** The RGB numbers of a CSS color, as it is where the element stands (themes differ). */
function resolved(color, where) {
  const probe = h("span", { style: `color:${color}` });
  where.append(probe);
  const [r, g, b] = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .map(Number);
  probe.remove();
  return [r, g, b];
}

// Scales and axes.

/** Extent of the finite numbers of several lists; null if there are none. */
function extent(...lists) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (const value of list || []) {
      if (!isNumber(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low > high ? null : [low, high];
}

/** Step between ticks: 1, 2 or 5 times a power of ten. */
function tickStep(span, count) {
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = raw / power;
  return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

function ticks([low, high], count, whole = false) {
  if (!(high > low)) return [low];
  const step = Math.max(tickStep(high - low, count), whole ? 1 : 0);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** A domain that ends on ticks. */
function niceDomain(range, count) {
  if (!range) return [0, 1];
  let [low, high] = range;
  if (low === high) {
    const around = Math.abs(low) * 0.1 || 1;
    [low, high] = [low - around, high + around];
  }
  const step = tickStep(high - low, count);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
}

/** Domain of scores: ends on ticks, and within 0 to 1 if the values are. */
function scoreDomain(range, percent) {
  const domain = niceDomain(range, 5);
  if (!range || !percent) return domain;
  return [range[0] >= 0 ? Math.max(0, domain[0]) : domain[0], range[1] <= 1 ? Math.min(1, domain[1]) : domain[1]];
}

/** A function from values to pixels, with its inverse. */
function linear([low, high], [from, to]) {
  const slope = high === low ? 0 : (to - from) / (high - low);
  const scale = (value) => (slope ? from + (value - low) * slope : (from + to) / 2);
  scale.invert = (pixel) => (slope ? low + (pixel - from) / slope : low);
  scale.domain = [low, high];
  return scale;
}

/** Text of ticks: only as many digits as the step needs. */
function tickFormat(kind, values) {
  const step = values.length > 1 ? values[1] - values[0] : 0;
  if (kind === "percent") {
    const digits = step && step < 0.0099 ? 1 : 0;
    return (value) => `${fixed(100 * value, digits)}${SPACE}%`;
  }
  if (kind === "number" || kind === "count" || kind === "round") {
    const digits = step ? Math.min(6, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))) : 2;
    return (value) =>
      Math.abs(value) >= 1e6 || digits >= 6
        ? value
          ? value.toExponential(1)
          : "0"
        : fixed(value, Number.isInteger(value) && !step ? 0 : digits);
  }
  if (kind === "megabytes") {
    const top = Math.max(...values.map(Math.abs));
    const [unit, scale] = top >= 1e6 ? ["TB", 1e6] : top >= 1e3 ? ["GB", 1e3] : top >= 1 ? ["MB", 1] : ["kB", 1e-3];
    const digits = Math.max(0, -Math.floor(Math.log10(step / scale || 1) + 1e-9));
    return (value) => (value ? `${fixed(value / scale, digits)}${SPACE}${unit}` : "0");
  }
  return (value) => formatValue(kind, value);
}

const textWidth = (text, size = 12) => String(text).length * size * 0.56;

/** A text that fits into so many pixels; what does not fit is in the tooltip and the table. */
function shortened(text, pixels) {
  if (textWidth(text) <= pixels) return text;
  return `${text.slice(0, Math.max(1, Math.floor(pixels / textWidth("n")) - 1))}…`;
}

/** Grid, ticks and titles of two axes; returns the scales and a group to draw behind the data. */
function axes({ width, height, margin, x, y }) {
  const inner = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  const yTicks = ticks(y.domain, Math.max(3, Math.round((inner.bottom - inner.top) / 48)), y.whole);
  const yText = tickFormat(y.format, yTicks);
  const toY = linear(y.domain, [inner.bottom, inner.top]);
  const toX = linear(x.domain, [inner.left, inner.right]);
  const xTicks = ticks(x.domain, Math.max(3, Math.round((inner.right - inner.left) / 80)), x.whole);
  const xText = tickFormat(x.format, xTicks);
  const group = s("g", { class: "axes", "aria-hidden": "true" });
  for (const value of yTicks) {
    const at = round2(toY(value));
    group.append(s("line", { class: "grid", x1: inner.left, x2: inner.right, y1: at, y2: at }));
    group.append(
      label(inner.left - 8, at, yText(value), { class: "tick", "text-anchor": "end", "dominant-baseline": "central" }),
    );
  }
  group.append(s("line", { class: "base", x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom }));
  for (const value of xTicks) {
    group.append(
      s("line", {
        class: "base",
        x1: round2(toX(value)),
        x2: round2(toX(value)),
        y1: inner.bottom,
        y2: inner.bottom + 4,
      }),
    );
    group.append(label(toX(value), inner.bottom + 18, xText(value), { class: "tick", "text-anchor": "middle" }));
  }
  if (x.label)
    group.append(
      label((inner.left + inner.right) / 2, height - 6, shortened(x.label, inner.right - inner.left), {
        class: "axis-title",
        "text-anchor": "middle",
      }),
    );
  if (y.label)
    group.append(
      label(margin.left - 8, margin.top - 12, shortened(y.label, inner.right - inner.left), {
        class: "axis-title",
        "text-anchor": "start",
        "data-y": "",
      }),
    );
  return { group, toX, toY, inner };
}

/** Room for the texts of y ticks. */
function leftMargin(domain, format) {
  // The number of ticks depends on the height, and their digits on their number.
  const texts = [3, 5, 8]
    .map((count) => ticks(domain, count))
    .flatMap((values) => values.map(tickFormat(format, values)));
  return 18 + Math.max(...texts.map((text) => textWidth(text)));
}

/** Vertical places for labels, moved apart so that they do not overlap. */
function spread(places, gap, top, bottom) {
  const order = places.map((place, i) => [place, i]).sort((a, b) => a[0] - b[0]);
  const moved = new Array(places.length);
  let last = -Infinity;
  for (const [place, i] of order) last = moved[i] = Math.max(place, last + gap, top);
  let limit = bottom;
  for (const [, i] of order.reverse()) limit = (moved[i] = Math.min(moved[i], limit)) - gap;
  return moved;
}

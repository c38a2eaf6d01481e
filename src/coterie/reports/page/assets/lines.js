// Line charts: series over rounds, bytes or seconds, with bands, events, a target, and names at the ends of lines.

/** Path of a line; missing values interrupt it. */
function linePath(xs, ys, toX, toY) {
  let path = "";
  let open = false;
  xs.forEach((x, i) => {
    if (!isNumber(x) || !isNumber(ys[i])) {
      open = false;
      return;
    }
    path += `${open ? "L" : "M"}${round2(toX(x))} ${round2(toY(ys[i]))}`;
    open = true;
  });
  return path;
}

/** Path of the area between two lists, where both have values. */
function bandPath(xs, lower, upper, toX, toY) {
  const there = xs.map((_, i) => i).filter((i) => isNumber(lower[i]) && isNumber(upper[i]));
  if (!there.length) return "";
  const up = there.map((i) => `${round2(toX(xs[i]))} ${round2(toY(upper[i]))}`);
  const down = there.reverse().map((i) => `${round2(toX(xs[i]))} ${round2(toY(lower[i]))}`);
  return `M${up.join("L")}L${down.join("L")}Z`;
}

const FEW_EVENTS = 6;
const NAME = 170; // pixels for the name of a series

const lastIndex = (values) => values.findLastIndex(isNumber);
const finiteCount = (values) => values.filter(isNumber).length;

/**
 * A line chart.
 *
 * `series`: [{name, x, y, index (color, shape), color?, dash?, width?, faint?}]; `bands`: [{name, x, lower, upper, color, opacity}];
 * `x`: {label, format, whole}; `y`: {format, domain?, zero?}; `events`: [{x, label, kind}]; `target`: {value, label};
 * `pick`: "x" shows all series at one x, "point" shows the nearest point.
 */
function lineChart(width, spec) {
  const series = spec.series.filter((each) => finiteCount(each.y));
  const bands = spec.bands || [];
  const height =
    width < 480 ? Math.min(300, spec.height || 260) : Math.max(spec.height || 340, 60 + 14 * series.length); // room for all names
  const yRange = extent(
    ...series.map((each) => each.y),
    ...bands.flatMap((band) => [band.lower, band.upper]),
    spec.target ? [spec.target.value] : [],
    spec.y.zero ? [0] : [],
  );
  const yDomain = spec.y.domain || scoreDomain(yRange, spec.y.format === "percent");
  let xDomain = extent(...series.map((each) => each.x), ...bands.map((band) => band.x)) || [0, 1];
  if (xDomain[0] === xDomain[1]) xDomain = [xDomain[0] - 0.5, xDomain[1] + 0.5];
  const names = series.filter((each) => each.name);
  const labelled = width >= 560 && names.length > 0;
  const right = labelled ? Math.min(NAME + 26, 26 + Math.max(...names.map((each) => textWidth(each.name)))) : 14;
  const margin = {
    top: spec.events && spec.events.length ? 30 : 14,
    right,
    bottom: spec.x.label ? 46 : 28,
    left: leftMargin(yDomain, spec.y.format),
  };
  const svg = chartSvg(width, height);
  const frame = axes({
    width,
    height,
    margin,
    x: { ...spec.x, domain: xDomain },
    y: { ...spec.y, label: null, domain: yDomain },
  });
  const { toX, toY, inner } = frame;
  svg.append(frame.group);
  for (const band of bands) {
    svg.append(
      s("path", {
        class: "band mark",
        d: bandPath(band.x, band.lower, band.upper, toX, toY),
        fill: band.color,
        "fill-opacity": band.opacity,
        "data-points": finiteCount(band.lower) + finiteCount(band.upper),
      }),
    );
  }
  drawEvents(svg, spec.events || [], toX, inner);
  drawTarget(svg, spec.target, toY, inner);
  // Faint series lie below the others.
  for (const each of [...series].sort((a, b) => (b.faint ? 1 : 0) - (a.faint ? 1 : 0))) drawSeries(svg, each, toX, toY);
  if (labelled) {
    const atEdge = (each) => spec.pick !== "point" && toX(each.x[lastIndex(each.y)]) > inner.right - 24;
    drawNames(svg, names.filter(atEdge), toY, inner);
    drawNamesAtEnds(
      svg,
      names.filter((each) => !atEdge(each)),
      toY,
      inner,
      toX,
    );
  }
  const cursor = s("g", { class: "cursor" });
  svg.append(cursor);
  const walkers = spec.pick === "point" ? pointWalk : columnWalk;
  return { svg, labelled, summary: spec.summary, walk: walkers({ spec, series, bands, toX, toY, inner, cursor }) };
}

function seriesStyle(each) {
  return {
    color: each.faint ? "var(--faint)" : each.color || colorOf(each.index),
    dash: each.dash ?? dashOf(each.index),
  };
}

function drawSeries(svg, each, toX, toY) {
  const { color, dash } = seriesStyle(each);
  if (each.dots) {
    // counts at single rounds: a line between them would claim values in between
    const stems = each.x.map((x, i) => `M${round2(toX(x))} ${round2(toY(0))}V${round2(toY(each.y[i]))}`).join("");
    const dots = each.x.map((x, i) => markerPath(each.index, toX(x), toY(each.y[i]), 3.6)).join("");
    svg.append(
      s("path", { class: "line", d: stems, stroke: color, "stroke-width": 1.2 }),
      s("path", { class: "mark", d: dots, fill: color, "data-points": finiteCount(each.y) }),
    );
    return;
  }
  svg.append(
    s("path", {
      class: "line mark",
      d: linePath(each.x, each.y, toX, toY),
      stroke: color,
      "stroke-width": each.width || (each.faint ? 1.2 : 2),
      "stroke-dasharray": dash || null,
      "data-points": finiteCount(each.y),
    }),
  );
  if (each.faint || each.plain) return;
  const there = each.x.map((_, i) => i).filter((i) => isNumber(each.y[i]) && isNumber(each.x[i]));
  const every = Math.max(1, Math.ceil(there.length / 5));
  // Counted from the end, so that the last value has a marker.
  const marked = there.filter((_, i) => (there.length - 1 - i) % every === 0);
  svg.append(
    s("path", {
      class: "point",
      fill: color,
      d: marked.map((i) => markerPath(each.index, toX(each.x[i]), toY(each.y[i]), 3.4)).join(""),
    }),
  );
}

function drawNames(svg, names, toY, inner) {
  const places = spread(
    names.map((each) => toY(each.y[lastIndex(each.y)])),
    14,
    inner.top + 2,
    inner.bottom,
  );
  names.forEach((each, i) => {
    const { color } = seriesStyle(each);
    const actual = toY(each.y[lastIndex(each.y)]);
    if (Math.abs(places[i] - actual) > 4) {
      svg.append(
        s("path", {
          class: "leader",
          d: `M${inner.right + 4} ${round2(actual)}L${inner.right + 11} ${round2(places[i])}`,
          stroke: color,
        }),
      );
    }
    const text = shortened(each.name, NAME);
    svg.append(
      label(inner.right + 14, places[i], text, {
        class: each.faint ? "name faint" : "name",
        "dominant-baseline": "central",
      }),
    );
  });
}

/** Names beside the last points of lines that end at different places, moved apart where they would overlap. */
function drawNamesAtEnds(svg, names, toY, inner, toX) {
  const taken = [];
  for (const each of names) {
    const last = lastIndex(each.y);
    const x = toX(each.x[last]) + 9;
    const text = shortened(each.name, NAME);
    const width = textWidth(text);
    const free = (y) => taken.every((box) => x > box.right || x + width < box.left || Math.abs(y - box.y) >= 13);
    const actual = toY(each.y[last]);
    const shifts = [0, 13, -13, 26, -26, 39, -39, 52, -52, 65, -65, 78, 91, 104];
    const shift =
      shifts.find((by) => free(actual + by) && actual + by > inner.top - 6 && actual + by < inner.bottom + 4) ?? 0;
    taken.push({ left: x, right: x + width, y: actual + shift });
    svg.append(label(x, actual + shift, text, { class: "name haloed", "dominant-baseline": "central" }));
  }
}

/** Few events are lines with their name; many are marks above the plot, which the tooltip names. */
function drawEvents(svg, events, toX, inner) {
  if (events.length > FEW_EVENTS) {
    const places = events.map((event) => toX(event.x)).filter((x) => x >= inner.left - 1 && x <= inner.right + 1);
    const mark = (x) =>
      events.length > 40
        ? `M${round2(x - 0.5)} ${inner.top - 13}h1v7h-1Z`
        : `M${round2(x - 3.5)} ${inner.top - 13}h7l-3.5 7Z`;
    svg.append(s("path", { class: "event-ticks", d: places.map(mark).join("") }));
    return;
  }
  let free = -Infinity;
  for (const event of events) {
    const x = round2(toX(event.x));
    if (x < inner.left - 1 || x > inner.right + 1) continue;
    svg.append(s("line", { class: `event ${event.kind}`, x1: x, x2: x, y1: inner.top - 6, y2: inner.bottom }));
    const room = textWidth(event.label, 11);
    if (x < free || x + room > inner.right + 60) continue;
    svg.append(label(x + 3, inner.top - 10, event.label, { class: "event-name" }));
    free = x + room + 10;
  }
}

function drawTarget(svg, target, toY, inner) {
  if (!target || !isNumber(target.value)) return;
  const y = round2(toY(target.value));
  svg.append(s("line", { class: "target", x1: inner.left, x2: inner.right, y1: y, y2: y }));
  svg.append(label(inner.left + 6, y - 5, target.label, { class: "event-name" }));
}

// Scatter charts: the map of clients, and the scores of clients with two methods.

const MANY = 1500; // more points than this are painted into one image: thousands of elements make scrolling slow

/** The plot area and scales of a scatter chart; `equal` gives both axes the same unit. */
function scatterFrame(width, { x, y, equal, height }) {
  const yRange = extent(y.values) || [0, 1];
  const xRange = extent(x.values) || [0, 1];
  const pad = ([low, high]) => {
    const more = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return [low - more, high + more];
  };
  let xDomain = x.domain || pad(xRange);
  let yDomain = y.domain || pad(yRange);
  const margin = { top: 26, right: 16, bottom: 46, left: leftMargin(yDomain, y.format) };
  if (equal) {
    const wide = width - margin.left - margin.right;
    const tall = height - margin.top - margin.bottom;
    const unit = Math.max((xDomain[1] - xDomain[0]) / wide, (yDomain[1] - yDomain[0]) / tall);
    const around = ([low, high], pixels) => [(low + high - unit * pixels) / 2, (low + high + unit * pixels) / 2];
    [xDomain, yDomain] = [around(xDomain, wide), around(yDomain, tall)];
    margin.left = leftMargin(yDomain, y.format);
  }
  return axes({ width, height, margin, x: { ...x, domain: xDomain }, y: { ...y, domain: yDomain } });
}

/**
 * A scatter chart.
 *
 * `points`: [{x, y, index (color, shape), color?, ring?, radius?}]; `describe(i)` → {title, rows, note} for the tooltip;
 * `names`: [{x, y, text, above}] written at or above these places; `diagonal`: draw the line of equal values.
 */
function scatterChart(width, spec, { where }) {
  const height = spec.height ? spec.height(width) : Math.min(560, Math.max(300, width * 0.62));
  const svg = chartSvg(width, height);
  const { points } = spec;
  const frame = scatterFrame(width, {
    ...spec,
    height,
    x: { ...spec.x, values: points.map((p) => p.x) },
    y: { ...spec.y, values: points.map((p) => p.y) },
  });
  const { toX, toY, inner } = frame;
  svg.append(frame.group);
  if (spec.diagonal) {
    const from = Math.max(toX.domain[0], toY.domain[0]);
    const to = Math.min(toX.domain[1], toY.domain[1]);
    svg.append(s("line", { class: "diagonal", x1: toX(from), y1: toY(from), x2: toX(to), y2: toY(to) }));
  }
  const radius = spec.radius || (points.length > 4000 ? 2.2 : points.length > 400 ? 3.2 : 5);
  const places = points.map((point) => ({ ...point, px: toX(point.x), py: toY(point.y), r: point.radius || radius }));
  svg.append(points.length > MANY ? paintedPoints(places, inner, where) : drawnPoints(places));
  for (const name of spec.names || []) {
    svg.append(
      label(toX(name.x), toY(name.y) - (name.above ? radius + 11 : 0), name.text, {
        class: "over",
        "text-anchor": "middle",
        "dominant-baseline": "central",
      }),
    );
  }
  const cursor = s("g");
  svg.append(cursor);
  return { svg, labelled: false, summary: spec.summary, walk: scatterWalk(places, spec, cursor) };
}

function drawnPoints(places) {
  const group = s("g", { class: "points" });
  for (const { px, py, r, index, color, count } of places) {
    group.append(
      s("path", {
        class: "mark dot",
        d: markerPath(index, px, py, r),
        fill: color || colorOf(index),
        "data-points": count || 1,
      }),
    );
  }
  // Rings come last, so that no mark hides them.
  for (const { px, py, r } of places.filter((place) => place.ring))
    group.append(s("circle", { class: "ring", cx: round2(px), cy: round2(py), r: r + 3.2 }));
  return group;
}

/** Many points as one image in the chart. */
function paintedPoints(places, inner, where) {
  const scale = 2;
  const wide = inner.right - inner.left + 20;
  const tall = inner.bottom - inner.top + 20;
  const canvas = h("canvas", { width: wide * scale, height: tall * scale });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.translate(10 - inner.left, 10 - inner.top);
  const colors = new Map();
  const rgb = (color) => {
    if (!colors.has(color)) colors.set(color, `rgb(${resolved(color, where).join(",")})`);
    return colors.get(color);
  };
  pen.globalAlpha = 0.75;
  for (const { px, py, r, index, color } of places) {
    pen.fillStyle = rgb(color || colorOf(index));
    pen.fill(new Path2D(markerPath(index, px, py, r)));
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = rgb("var(--ink)");
  for (const { px, py, r } of places.filter((place) => place.ring)) {
    pen.beginPath();
    pen.arc(px, py, r + 2, 0, 7);
    pen.stroke();
  }
  return s("image", {
    class: "mark",
    x: inner.left - 10,
    y: inner.top - 10,
    width: wide,
    height: tall,
    href: canvas.toDataURL(),
    "data-points": places.length,
    "data-rings": places.filter((place) => place.ring).length,
  });
}

function scatterWalk(places, spec, cursor) {
  // The keyboard goes through the points in the order of the chart: by category, then from left to right.
  const order = places
    .map((_, i) => i)
    .sort((a, b) => places[a].index - places[b].index || places[a].px - places[b].px);
  const rank = new Map(order.map((i, position) => [i, position]));
  return {
    count: places.length,
    nearest: (px, py) => {
      let best = null;
      let least = 24 * 24;
      places.forEach((place, i) => {
        const distance = (place.px - px) ** 2 + (place.py - py) ** 2;
        if (distance < least) [best, least] = [i, distance];
      });
      return best === null ? null : rank.get(best);
    },
    move: (position, key) => {
      if (key === "Home") return 0;
      if (key === "End") return places.length - 1;
      if (key === "ArrowLeft") return position - 1;
      if (key === "ArrowRight") return position + 1;
      const mine = places[order[position]].index;
      return key === "ArrowDown"
        ? order.findIndex((i) => places[i].index > mine) >>> 0
        : Math.max(
            0,
            order.findLastIndex((i) => places[i].index < mine),
          );
    },
    show: (position) => {
      const place = places[order[position]];
      cursor.replaceChildren(s("circle", { class: "halo", cx: place.px, cy: place.py, r: place.r + 5 }));
      return { x: place.px, y: place.py, ...spec.describe(order[position]) };
    },
    clear: () => cursor.replaceChildren(),
  };
}

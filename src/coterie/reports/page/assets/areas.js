// Stacked areas: how many clients each cluster has over rounds.

/** `x`: rounds; `layers`: [{name, index, values}]; the first layer is at the bottom. */
function areaChart(width, { x, layers, yLabel }) {
  const height = width < 480 ? 240 : Math.max(300, 60 + 14 * layers.length); // room for all names
  // One round would be an area without width: it is drawn as a column.
  const xs = x.length === 1 ? [x[0] - 0.5, x[0] + 0.5] : x;
  const valuesOf = (layer) => (x.length === 1 ? [layer.values[0], layer.values[0]] : layer.values);
  const base = new Array(xs.length).fill(0);
  const stacked = layers.map((layer) => {
    const lower = [...base];
    valuesOf(layer).forEach((value, i) => {
      base[i] += value || 0;
    });
    return { ...layer, lower, upper: [...base] };
  });
  const labelled = width >= 560;
  const right = labelled ? 30 + Math.max(...layers.map((layer) => textWidth(layer.name))) : 14;
  const yDomain = [0, Math.max(1, ...base)];
  const margin = { top: 14, right, bottom: 46, left: leftMargin(yDomain, "count") };
  const svg = chartSvg(width, height);
  const frame = axes({
    width,
    height,
    margin,
    x: { label: "Round", format: "round", whole: true, domain: [xs[0], xs.at(-1)] },
    y: { format: "count", whole: true, domain: yDomain },
  });
  const { toX, toY, inner } = frame;
  svg.append(frame.group);
  for (const layer of stacked) {
    svg.append(
      s("path", {
        class: "area mark",
        d: bandPath(xs, layer.lower, layer.upper, toX, toY),
        fill: colorOf(layer.index),
        "data-points": x.length,
      }),
    );
  }
  if (labelled) nameLayers(svg, stacked, toY, inner);
  const cursor = s("g");
  svg.append(cursor);
  return { svg, labelled, walk: areaWalk({ x, layers, toX, inner, cursor, yLabel }) };
}

function nameLayers(svg, stacked, toY, inner) {
  const there = stacked.filter((layer) => layer.upper.at(-1) > layer.lower.at(-1));
  const places = spread(
    there.map((layer) => toY((layer.upper.at(-1) + layer.lower.at(-1)) / 2)),
    14,
    inner.top,
    inner.bottom,
  );
  there.forEach((layer, i) => {
    svg.append(s("path", { d: markerPath(layer.index, inner.right + 10, places[i], 4), fill: colorOf(layer.index) }));
    svg.append(label(inner.right + 18, places[i], layer.name, { class: "name", "dominant-baseline": "central" }));
  });
}

function areaWalk({ x, layers, toX, inner, cursor }) {
  const place = (i) => toX(x.length === 1 ? toX.domain[0] + 0.5 : x[i]);
  return {
    count: x.length,
    first: x.length - 1,
    move: alongList(x.length),
    clear: () => cursor.replaceChildren(),
    nearest: (px) => {
      if (px < inner.left - 20 || px > inner.right + 20) return null;
      return x.reduce((best, _, i) => (Math.abs(place(i) - px) < Math.abs(place(best) - px) ? i : best), 0);
    },
    show: (i) => {
      cursor.replaceChildren(
        s("line", { class: "crosshair", x1: place(i), x2: place(i), y1: inner.top, y2: inner.bottom }),
      );
      const rows = [...layers]
        .reverse()
        .filter((layer) => layer.values[i])
        .slice(0, 16)
        .map((layer) => [swatch(layer.index), layer.name, formatValue("count", layer.values[i])]);
      return { x: place(i), y: inner.top + 30, title: `Round ${formatValue("round", x[i])}`, rows };
    },
  };
}

// The matrix of distances between clients, ordered by cluster, with its dendrogram.

const RAMPS = {
  light: [
    [8, 48, 107],
    [33, 113, 181],
    [107, 174, 214],
    [198, 219, 239],
    [250, 251, 253],
  ],
  dark: [
    [222, 240, 255],
    [120, 184, 235],
    [52, 122, 186],
    [28, 66, 108],
    [24, 30, 40],
  ],
};

/** Color between the stops of a ramp; 0 is near, 1 is far. */
function rampColor(ramp, t) {
  const place = Math.max(0, Math.min(1, t)) * (ramp.length - 1);
  const i = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[i].map((low, channel) => Math.round(low + (ramp[i + 1][channel] - low) * (place - i)));
}

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Distances as an image, one pixel per pair. */
function matrixImage(bytes, n, ramp, reversed) {
  const canvas = h("canvas", { width: n, height: n });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(n, n);
  const colors = Array.from({ length: 256 }, (_, i) => rampColor(ramp, (reversed ? 255 - i : i) / 255));
  for (let i = 0; i < n * n; i += 1) {
    const [r, g, b] = colors[bytes[i]];
    image.data.set([r, g, b, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/** Runs of equal clusters along the order: [{cluster, from, to}]. */
function clusterRuns(clusters) {
  const runs = [];
  clusters.forEach((cluster, i) => {
    if (runs.length && runs.at(-1).cluster === cluster) runs.at(-1).to = i + 1;
    else runs.push({ cluster, from: i, to: i + 1 });
  });
  return runs;
}

/** `matrix` as in the data; `names`: name of each row; `clusters`: cluster of each row. */
function matrixChart(width, { matrix, bytes, names, clusters }, { dark }) {
  const { n } = matrix;
  const tree = matrix.dendrogram && matrix.dendrogram.segments.length ? 84 : 0;
  const strip = 12;
  const left = width < 480 ? 26 : 84;
  const side = Math.min(width - left - 12, 620);
  const shift = Math.max(0, (width - left - side) / 2 - left / 2);
  const height = tree + strip + side + 54;
  const top = tree + strip + 6;
  const x0 = left + strip - 6 + shift;
  const cell = side / n;
  const ramp = RAMPS[dark ? "dark" : "light"];
  const svg = chartSvg(width, height);
  if (tree) svg.append(dendrogram(matrix.dendrogram, x0, cell, tree - 4));
  svg.append(
    s("image", {
      class: "cells mark",
      x: x0,
      y: top,
      width: side,
      height: side,
      preserveAspectRatio: "none",
      href: matrixImage(bytes, n, ramp, matrix.alike),
      "data-points": bytes.length,
    }),
  );
  const runs = clusterRuns(clusters);
  const free = { end: -Infinity };
  for (const run of runs)
    svg.append(clusterStrip(run, { x0, top, cell, strip, side, wide: width >= 480, free, many: runs.length > 60 }));
  svg.append(s("rect", { class: "outline", x: x0, y: top, width: side, height: side }));
  svg.append(rampLegend(matrix, ramp, x0, top + side + 14, Math.min(side, 220)));
  const cursor = s("g");
  svg.append(cursor);
  return { svg, labelled: true, walk: matrixWalk({ matrix, bytes, names, clusters, x0, top, cell, cursor }) };
}

function dendrogram({ segments, height }, x0, cell, room) {
  const top = height || Math.max(...segments.map((segment) => Math.max(segment[1], segment[3]))) || 1;
  const y = (value) => round2(room - (value / top) * (room - 6));
  const x = (value) => round2(x0 + value * cell);
  const path = segments.map(([x1, h1, x2, h2]) => `M${x(x1)} ${y(h1)}L${x(x2)} ${y(h2)}`).join("");
  return s("path", { class: "tree", d: path, "data-segments": segments.length });
}

function clusterStrip({ cluster, from, to }, { x0, top, cell, strip, side, wide, free, many }) {
  const group = s("g");
  const [start, size] = [from * cell, (to - from) * cell];
  const color = colorOf(cluster);
  group.append(
    s("rect", { x: round2(x0 + start), y: top - strip, width: round2(size), height: strip - 4, fill: color }),
  );
  group.append(
    s("rect", { x: x0 - strip, y: round2(top + start), width: strip - 4, height: round2(size), fill: color }),
  );
  if (from > 0 && !many) {
    group.append(
      s("path", { class: "boundary", d: `M${x0} ${round2(top + start)}h${side}M${round2(x0 + start)} ${top}v${side}` }),
    );
  }
  const middle = top + start + size / 2;
  if (middle > free.end && size > 5) {
    const text = wide ? clusterName(cluster) : Number(cluster) < 0 ? "–" : String(cluster);
    group.append(
      label(x0 - strip - 5, middle, text, { class: "name", "text-anchor": "end", "dominant-baseline": "central" }),
    );
    free.end = middle + 13;
  }
  return group;
}

function rampLegend(matrix, ramp, x, y, width) {
  const group = s("g");
  const steps = 44;
  for (let i = 0; i < steps; i += 1) {
    const t = i / (steps - 1);
    const [r, g, b] = rampColor(ramp, matrix.alike ? 1 - t : t);
    group.append(
      s("rect", {
        x: round2(x + (i * width) / steps),
        y,
        width: round2(width / steps + 0.4),
        height: 9,
        fill: `rgb(${r},${g},${b})`,
      }),
    );
  }
  group.append(s("rect", { class: "outline", x, y, width, height: 9 }));
  group.append(label(x, y + 24, formatValue("number", matrix.min), { class: "tick" }));
  group.append(label(x + width, y + 24, formatValue("number", matrix.max), { class: "tick", "text-anchor": "end" }));
  group.append(
    label(x + width / 2, y + 24, matrix.alike ? "far to near" : "near to far", {
      class: "tick",
      "text-anchor": "middle",
    }),
  );
  return group;
}

function matrixWalk({ matrix, bytes, names, clusters, x0, top, cell, cursor }) {
  const { n, min, max } = matrix;
  const place = (index) => [Math.floor(index / n), index % n];
  return {
    count: n * n,
    first: Math.min(1, n * n - 1),
    nearest: (px, py) => {
      const column = Math.floor((px - x0) / cell);
      const row = Math.floor((py - top) / cell);
      return column < 0 || row < 0 || column >= n || row >= n ? null : row * n + column;
    },
    move: (index, key) => {
      const [row, column] = place(index);
      const bounded = (value) => Math.max(0, Math.min(n - 1, value));
      return {
        ArrowLeft: row * n + bounded(column - 1),
        ArrowRight: row * n + bounded(column + 1),
        ArrowUp: bounded(row - 1) * n + column,
        ArrowDown: bounded(row + 1) * n + column,
        Home: row * n,
        End: row * n + n - 1,
      }[key];
    },
    show: (index) => {
      const [row, column] = place(index);
      const size = Math.max(cell, 5);
      cursor.replaceChildren(
        s("rect", {
          class: "cell-cursor",
          x: round2(x0 + (column + 0.5) * cell - size / 2),
          y: round2(top + (row + 0.5) * cell - size / 2),
          width: size,
          height: size,
        }),
      );
      const value = min + (bytes[index] / 255) * (max - min);
      return {
        x: x0 + (column + 1) * cell,
        y: top + row * cell,
        title: matrix.what || "Distance",
        rows: [
          [swatch(clusters[row]), names[row], clusterName(clusters[row])],
          [swatch(clusters[column]), names[column], clusterName(clusters[column])],
          [null, "Value", formatValue("number", value)],
        ],
      };
    },
    clear: () => cursor.replaceChildren(),
  };
}

/** Mean distance between the clients of each pair of clusters; a client has no distance to itself. */
function clusterDistances({ n, min, max }, bytes, clusters) {
  const ids = [...new Set(clusters)].sort((a, b) => a - b);
  const at = new Map(ids.map((id, i) => [id, i]));
  const total = new Float64Array(ids.length ** 2);
  const count = new Float64Array(ids.length ** 2);
  for (let row = 0; row < n; row += 1) {
    for (let column = 0; column < n; column += 1) {
      if (row === column) continue;
      const cell = at.get(clusters[row]) * ids.length + at.get(clusters[column]);
      total[cell] += bytes[row * n + column];
      count[cell] += 1;
    }
  }
  const columns = [
    { key: "cluster", label: "Cluster", format: "text" },
    ...ids.map((id) => ({ key: `c${id}`, label: `To ${clusterName(id)}`, format: "number" })),
  ];
  const rows = ids.map((id, i) => ({
    cluster: clusterName(id),
    ...Object.fromEntries(
      ids.map((other, j) => {
        const cell = i * ids.length + j;
        return [`c${other}`, count[cell] ? min + (total[cell] / count[cell] / 255) * (max - min) : null];
      }),
    ),
  }));
  return { columns, rows };
}

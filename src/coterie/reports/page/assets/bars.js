// Horizontal bars with their values, and rows of small columns.

/** `rows`: [{name, values: [{value, text, index, hatched?, name?}]}]: one bar for each value, values in the same unit. */
function barChart(width, { rows, max = null }) {
  const narrow = width < 480;
  const bar = 16;
  const gap = 3;
  const left = narrow ? 6 : Math.min(220, 16 + Math.max(...rows.map((row) => textWidth(row.name))));
  const head = narrow ? 18 : 0;
  const texts = rows.flatMap((row) => row.values.map((value) => value.text));
  const right = 16 + Math.max(...texts.map((text) => textWidth(text)));
  const largest = max || Math.max(...rows.flatMap((row) => row.values.map((value) => value.value || 0))) || 1;
  const scale = linear([0, largest], [0, Math.max(40, width - left - right)]);
  const svg = chartSvg(width, 10);
  const places = [];
  let y = 4;
  for (const row of rows) {
    const block = row.values.length * (bar + gap);
    svg.append(
      narrow
        ? label(left, y + 12, shortened(row.name, width - 12), { class: "name" })
        : label(left - 10, y + block / 2, shortened(row.name, 204), {
            class: "name",
            "text-anchor": "end",
            "dominant-baseline": "central",
          }),
    );
    y += head;
    for (const value of row.values) {
      const length = Math.max(value.value > 0 ? 1.5 : 0, scale(value.value || 0));
      svg.append(
        s("rect", {
          class: `bar mark ${value.hatched ? "hollow" : ""}`,
          x: left,
          y,
          width: round2(length),
          height: bar,
          rx: 2,
          fill: value.hatched ? "none" : colorOf(value.index),
          stroke: colorOf(value.index),
        }),
      );
      svg.append(label(left + length + 7, y + bar / 2, value.text, { class: "value", "dominant-baseline": "central" }));
      places.push({ x: left + length, y, title: row.name, rows: [[null, value.name || "", value.text]] });
      y += bar + gap;
    }
    y += 12;
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${Math.max(20, y)}`);
  return {
    svg,
    labelled: false,
    walk: {
      count: places.length,
      move: alongList(places.length),
      clear: () => {},
      show: (i) => places[i],
      nearest: (_, py) => {
        const i = places.findIndex((place) => py >= place.y - gap && py < place.y + bar + gap);
        return i < 0 ? null : i;
      },
    },
  };
}

/** Distribution of classes in each cluster: one row of columns per cluster; `rows`: [{name, index, values}]. */
function columnRows(width, { rows, classes, what }) {
  const left = width < 480 ? 30 : 118;
  const tall = 54;
  const gap = 22;
  const step = (width - left - 10) / Math.max(1, classes.length);
  const height = rows.length * (tall + gap) + 26;
  const svg = chartSvg(width, height);
  const cursor = s("rect", { class: "cell-cursor", visibility: "hidden" });
  const shares = rows.map((row) => {
    const total = sum(row.values) || 1;
    return row.values.map((value) => value / total);
  });
  const largest = Math.max(...shares.flat(), 1e-9);
  rows.forEach((row, i) => {
    const base = i * (tall + gap) + tall + 12;
    svg.append(s("path", { d: markerPath(row.index, 8, base - tall / 2, 4.5), fill: colorOf(row.index) }));
    svg.append(
      label(18, base - tall / 2, width < 480 ? String(row.short) : row.name, {
        class: "name",
        "dominant-baseline": "central",
      }),
    );
    if (width >= 480)
      svg.append(label(18, base - tall / 2 + 15, row.note, { class: "tick", "dominant-baseline": "central" }));
    svg.append(s("line", { class: "base", x1: left, x2: width - 10, y1: base, y2: base }));
    shares[i].forEach((share, k) => {
      const high = (share / largest) * tall;
      svg.append(
        s("rect", {
          class: "mark column",
          x: round2(left + k * step + step * 0.1),
          y: round2(base - high),
          width: round2(step * 0.8),
          height: round2(high),
          fill: colorOf(row.index),
        }),
      );
    });
  });
  const widest = Math.max(...classes.map((name) => textWidth(String(name).slice(0, 12), 11)));
  const every = Math.max(1, Math.ceil((widest + 6) / step));
  classes.forEach((name, k) => {
    if (k % every) return;
    svg.append(
      label(left + (k + 0.5) * step, height - 14, String(name).slice(0, 12), {
        class: "tick",
        "text-anchor": "middle",
      }),
    );
  });
  svg.append(cursor);
  return { svg, labelled: true, walk: columnWalkRows({ rows, classes, shares, left, step, tall, gap, cursor, what }) };
}

function columnWalkRows({ rows, classes, shares, left, step, tall, gap, cursor, what }) {
  const width = classes.length;
  return {
    count: rows.length * width,
    nearest: (px, py) => {
      const row = Math.floor((py - 6) / (tall + gap));
      const column = Math.floor((px - left) / step);
      return row < 0 || row >= rows.length || column < 0 || column >= width ? null : row * width + column;
    },
    move: (i, key) =>
      ({
        ArrowLeft: i - 1,
        ArrowRight: i + 1,
        ArrowUp: i - width,
        ArrowDown: i + width,
        Home: 0,
        End: rows.length * width - 1,
      })[key],
    show: (i) => {
      const [row, column] = [Math.floor(i / width), i % width];
      const top = row * (tall + gap) + 12;
      for (const [name, value] of Object.entries({
        x: left + column * step,
        y: top,
        width: step,
        height: tall,
        visibility: "visible",
      }))
        cursor.setAttribute(name, value);
      return {
        x: left + (column + 0.5) * step,
        y: top,
        title: `${capitalized(rows[row].name)}, ${what} ${classes[column]}`,
        rows: [
          [null, "Examples", formatValue("count", rows[row].values[column])],
          [null, "Share", formatValue("percent", shares[row][column])],
        ],
      };
    },
    clear: () => cursor.setAttribute("visibility", "hidden"),
  };
}

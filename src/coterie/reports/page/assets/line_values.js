// Walking over the values of line charts.

/** All series at one x. */
function columnWalk({ spec, series, bands, toX, toY, inner, cursor }) {
  const xs = [...new Set(series.flatMap((each) => each.x.filter((_, i) => isNumber(each.y[i]))))].sort((a, b) => a - b);
  const at = series.map((each) => new Map(each.x.map((x, i) => [x, i])));
  const nearest = (px, py) => {
    if (py < inner.top - 20 || py > inner.bottom + 30 || px < inner.left - 30 || px > inner.right + 30 || !xs.length)
      return null;
    const x = toX.invert(px);
    return xs.reduce((best, value, i) => (Math.abs(value - x) < Math.abs(xs[best] - x) ? i : best), 0);
  };
  const show = (index) => {
    const x = xs[index];
    cursor.replaceChildren(s("line", { class: "crosshair", x1: toX(x), x2: toX(x), y1: inner.top, y2: inner.bottom }));
    const found = [];
    series.forEach((each, i) => {
      const row = at[i].get(x);
      const value = row === undefined ? null : each.y[row];
      if (!isNumber(value)) return;
      cursor.append(s("circle", { cx: toX(x), cy: toY(value), r: 4, fill: seriesStyle(each).color, class: "spot" }));
      found.push([value, [swatch(each.index, "both"), each.name || spec.y.label, formatValue(spec.y.format, value)]]);
    });
    found.sort((a, b) => b[0] - a[0]);
    const rows = found.slice(0, 14).map(([, row]) => row);
    for (const band of bands) {
      const i = band.x.indexOf(x);
      if (i >= 0 && isNumber(band.lower[i]))
        rows.push([
          null,
          band.name,
          `${formatValue(spec.y.format, band.lower[i])} to ${formatValue(spec.y.format, band.upper[i])}`,
        ]);
    }
    const more = found.length > 14 ? `and ${found.length - 14} more` : null;
    const y = found.length ? toY(found[0][0]) : inner.top;
    const events = (spec.events || [])
      .filter((event) => event.x === x)
      .map((event) => event.label)
      .join("; ");
    return {
      x: toX(x),
      y,
      title: `${spec.x.name || spec.x.label} ${formatValue(spec.x.format, x)}`,
      rows,
      note: [more, events].filter(Boolean).join("; "),
    };
  };
  return {
    count: xs.length,
    first: xs.length - 1,
    nearest,
    show,
    move: alongList(xs.length),
    clear: () => cursor.replaceChildren(),
  };
}

/** The nearest point of any series; up and down change the series. */
function pointWalk({ spec, series, toX, toY, cursor }) {
  const points = series.flatMap((each, line) =>
    each.x.map((x, i) => ({ line, i, x, y: each.y[i] })).filter((point) => isNumber(point.x) && isNumber(point.y)),
  );
  const nearest = (px, py) => {
    let best = null;
    let least = 40 * 40;
    points.forEach((point, i) => {
      const distance = (toX(point.x) - px) ** 2 + (toY(point.y) - py) ** 2;
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  };
  const move = (index, key) => {
    if (key === "ArrowLeft") return index - 1;
    if (key === "ArrowRight") return index + 1;
    if (key === "Home") return 0;
    if (key === "End") return points.length - 1;
    const line = points[index].line + (key === "ArrowDown" ? 1 : -1);
    const next = points.findLastIndex((point) => point.line === line);
    return next < 0 ? index : next;
  };
  const show = (index) => {
    const point = points[index];
    const each = series[point.line];
    cursor.replaceChildren(
      s("circle", { class: "spot", cx: toX(point.x), cy: toY(point.y), r: 5, fill: seriesStyle(each).color }),
    );
    return {
      x: toX(point.x),
      y: toY(point.y),
      title: each.name || spec.y.label,
      rows: [
        [null, spec.x.label, formatValue(spec.x.format, point.x)],
        [null, spec.y.label, formatValue(spec.y.format, point.y)],
      ],
    };
  };
  return { count: points.length, nearest, move, show, clear: () => cursor.replaceChildren() };
}

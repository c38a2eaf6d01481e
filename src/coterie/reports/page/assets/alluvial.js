// Alluvial diagram: how clients moved between clusters.

const NODE = 18;

/**
 * `steps`: [{label}]; `nodes`: [{step, cluster, clients}]; `links`: [{step, from, to, clients, drifted, flagged}].
 * Ribbons of clients that changed their cluster are strong; a diamond marks those with clients whose data had changed.
 */
function alluvialChart(width, { steps, nodes, links }) {
  const height = width < 480 ? 320 : 380;
  const total = Math.max(
    ...steps.map((_, i) => sum(nodes.filter((node) => node.step === i).map((node) => node.clients))),
  );
  const clusters = [...new Set(nodes.map((node) => node.cluster))].sort((a, b) => a - b);
  const gap = Math.min(14, 90 / Math.max(1, clusters.length));
  const margin = { top: 10, bottom: 30, left: 6, right: width >= 560 ? 86 : 6 };
  const scale = (height - margin.top - margin.bottom - gap * (clusters.length - 1)) / Math.max(1, total);
  const columnX = (i) =>
    margin.left + (steps.length === 1 ? 0 : (i * (width - margin.left - margin.right - NODE)) / (steps.length - 1));
  const svg = chartSvg(width, height);
  const placed = placeNodes(nodes, steps.length, scale, gap, margin.top);
  const ribbons = placeLinks(links, placed, scale);
  const lower = s("g");
  const upper = s("g");
  for (const ribbon of ribbons) {
    const moved = ribbon.link.from !== ribbon.link.to;
    ribbon.element = s("path", {
      class: `ribbon mark ${moved ? "moved" : "stayed"}`,
      fill: colorOf(ribbon.link.from),
      d: ribbonPath(columnX(ribbon.link.step) + NODE, columnX(ribbon.link.step + 1), ribbon),
    });
    (moved ? upper : lower).append(ribbon.element);
  }
  svg.append(lower, upper, drawNodes(placed, columnX, steps, width, margin), driftMarks(ribbons, columnX));
  svg.append(stepNames(steps, columnX, height, width));
  return { svg, labelled: true, walk: ribbonWalk(ribbons, columnX, svg) };
}

const sum = (values) => values.reduce((all, value) => all + value, 0);

function placeNodes(nodes, count, scale, gap, top) {
  const placed = new Map();
  for (let step = 0; step < count; step += 1) {
    let y = top;
    for (const node of nodes.filter((each) => each.step === step).sort((a, b) => a.cluster - b.cluster)) {
      placed.set(`${step}:${node.cluster}`, { ...node, y, height: node.clients * scale, out: 0, in: 0 });
      y += node.clients * scale + gap;
    }
  }
  return placed;
}

function placeLinks(links, placed, scale) {
  const order = [...links].sort((a, b) => a.step - b.step || a.from - b.from || a.to - b.to);
  return order
    .map((link) => {
      const from = placed.get(`${link.step}:${link.from}`);
      const to = placed.get(`${link.step + 1}:${link.to}`);
      if (!from || !to) return null;
      const ribbon = { link, left: from.y + from.out, right: to.y + to.in, size: link.clients * scale };
      from.out += ribbon.size;
      to.in += ribbon.size;
      return ribbon;
    })
    .filter(Boolean);
}

function ribbonPath(x1, x2, { left, right, size }) {
  const middle = (x1 + x2) / 2;
  const thick = Math.max(size, 1);
  const at = (value) => round2(value);
  return (
    `M${at(x1)} ${at(left)}C${at(middle)} ${at(left)} ${at(middle)} ${at(right)} ${at(x2)} ${at(right)}V${at(right + thick)}` +
    `C${at(middle)} ${at(right + thick)} ${at(middle)} ${at(left + thick)} ${at(x1)} ${at(left + thick)}Z`
  );
}

function drawNodes(placed, columnX, steps, width, margin) {
  const group = s("g");
  for (const node of placed.values()) {
    const x = columnX(node.step);
    group.append(
      s("rect", {
        class: "node",
        x: round2(x),
        y: round2(node.y),
        width: NODE,
        height: Math.max(1, round2(node.height)),
        rx: 2,
        fill: colorOf(node.cluster),
      }),
    );
    if (node.height >= 16 && (steps.length <= 14 || node.step === 0)) {
      group.append(
        label(x + NODE / 2, node.y + node.height / 2, formatValue("compact", node.clients), {
          class: "on-color",
          "text-anchor": "middle",
          "dominant-baseline": "central",
          "font-size": node.clients > 99 ? 8.5 : 10,
        }),
      );
    }
    if (node.step === steps.length - 1 && width >= 560 && node.height >= 9) {
      group.append(
        label(width - margin.right + 8, node.y + node.height / 2, clusterName(node.cluster), {
          class: "name",
          "dominant-baseline": "central",
        }),
      );
    }
  }
  return group;
}

function driftMarks(ribbons, columnX) {
  const group = s("g", { class: "drift-marks" });
  for (const ribbon of ribbons.filter(({ link }) => link.drifted > 0 && link.from !== link.to)) {
    const x = (columnX(ribbon.link.step) + NODE + columnX(ribbon.link.step + 1)) / 2;
    const y = (ribbon.left + ribbon.right + ribbon.size) / 2;
    group.append(s("path", { class: "drift-mark", d: markerPath(3, x, y, 4.5) }));
  }
  return group;
}

function stepNames(steps, columnX, height, width) {
  const group = s("g");
  const room = width / Math.max(1, steps.length);
  steps.forEach((step, i) => {
    // With many steps only the first one says "round"; the others are numbers, and those that would touch are left out.
    const text = i > 0 && room < 90 ? step.label.replace(/^round /, "") : step.label;
    const every = Math.max(1, Math.ceil((textWidth(text) + 6) / Math.max(1, room)));
    const last = steps.length - 1;
    if (i !== last && (i % every || last - i < every)) return;
    const anchor = i === 0 ? "start" : i === steps.length - 1 ? "end" : "middle";
    const x = i === 0 ? 2 : columnX(i) + (anchor === "end" ? NODE : NODE / 2);
    group.append(label(x, height - 8, text, { class: "tick", "text-anchor": anchor }));
  });
  return group;
}

function ribbonWalk(ribbons, columnX, svg) {
  const clear = () => svg.querySelectorAll(".ribbon.current").forEach((node) => node.classList.remove("current"));
  const contains = (ribbon, px, py) => {
    const x1 = columnX(ribbon.link.step) + NODE;
    const x2 = columnX(ribbon.link.step + 1);
    if (px < x1 || px > x2) return false;
    const t = (px - x1) / (x2 - x1);
    const y = ribbon.left + (ribbon.right - ribbon.left) * t * t * (3 - 2 * t);
    return py >= y - 2 && py <= y + Math.max(ribbon.size, 1) + 2;
  };
  const moved = ({ link }) => link.from !== link.to;
  return {
    count: ribbons.length,
    clear,
    move: alongList(ribbons.length),
    first: Math.max(0, ribbons.findIndex(moved)),
    nearest: (px, py) => {
      const found = ribbons.map((_, i) => i).filter((i) => contains(ribbons[i], px, py));
      return found.find((i) => moved(ribbons[i])) ?? found[0] ?? null;
    },
    show: (i) => {
      clear();
      const { link, left, right, size, element } = ribbons[i];
      element.classList.add("current");
      const rows = [[null, "Clients", formatValue("count", link.clients)]];
      if (link.drifted) rows.push([null, "Whose data had changed", formatValue("count", link.drifted)]);
      if (link.flagged) rows.push([null, "Flagged as drifted", formatValue("count", link.flagged)]);
      const title =
        link.from === link.to
          ? `${capitalized(clusterName(link.from))}: stayed`
          : `${capitalized(clusterName(link.from))} → ${clusterName(link.to)}`;
      return { x: (columnX(link.step) + columnX(link.step + 1)) / 2, y: (left + right + size) / 2, title, rows };
    },
  };
}

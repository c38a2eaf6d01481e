// Files for the reader: charts as SVG and PNG, tables as CSV.

const EXPORT_WIDTH = 960;
const STYLES = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linejoin",
  "opacity",
  "fill-opacity",
  "stroke-opacity",
  "font-size",
  "font-weight",
  "font-family",
  "text-anchor",
  "dominant-baseline",
  "paint-order",
  "image-rendering",
  "display",
];

function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The chart as a standalone SVG text: drawn anew at a fixed width, in the light theme, with styles written out. */
function standalone(spec) {
  const stage = h("div", { class: "stage", "aria-hidden": "true" });
  document.body.append(stage);
  try {
    const { svg } = spec.draw(EXPORT_WIDTH, { dark: false, where: stage });
    stage.append(svg);
    const copy = svg.cloneNode(true);
    const originals = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
      const computed = getComputedStyle(originals[i]);
      for (const name of STYLES) {
        const value = computed.getPropertyValue(name);
        if (value && value !== "none" && value !== "normal" && value !== "auto") node.setAttribute(name, value);
        else if (value === "none" && (name === "fill" || name === "display")) node.setAttribute(name, value);
      }
      node.removeAttribute("class");
      node.removeAttribute("style");
    });
    const { width, height } = svg.viewBox.baseVal;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.prepend(s("title", null, spec.title), s("rect", { width, height, fill: "#ffffff" }));
    return { text: new XMLSerializer().serializeToString(copy), width, height };
  } finally {
    stage.remove();
  }
}

function saveSvg(spec) {
  save(`${spec.file}.svg`, new Blob([standalone(spec).text], { type: "image/svg+xml" }));
}

async function savePng(spec, scale = 2) {
  const { text, width, height } = standalone(spec);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = h("canvas", { width: width * scale, height: height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, width * scale, height * scale);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  save(`${spec.file}.png`, blob);
}

/** One field of a CSV file. Names come from other machines, and spreadsheets execute texts that look like formulas. */
function csvField(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value === "string" && /^[=+@\t\r-]/.test(text) && !isNumber(Number(text))) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvText({ columns, rows }) {
  const lines = [
    columns.map((column) => csvField(column.label)),
    ...rows.map((row) => columns.map((column) => csvField(row[column.key]))),
  ];
  return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
}

function saveCsv(name, table) {
  // The byte order mark tells spreadsheets that the file is UTF-8.
  save(`${name}.csv`, new Blob(["\ufeff", csvText(table)], { type: "text/csv" }));
}

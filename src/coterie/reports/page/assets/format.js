// Numbers as people read them. Everywhere on the page a value is written by `formatValue`, so that it looks the same.

const SPACE = "\u00a0";
const MISSING = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A number with so many digits, thousands separated. Halves go to the even digit, as in Python, which writes the headline. */
function fixed(value, digits) {
  const size = Math.abs(value);
  let text = size.toFixed(digits);
  // `toFixed` is exact except that it rounds halves up; a half is an odd multiple of a power of two.
  const halves = size * 2 ** (digits + 1);
  if (halves % 2 === 1 && Number(text.at(-1)) % 2 === 1) text = (Number(text) - 10 ** -digits).toFixed(digits);
  const grouped = text.replace(/^\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
  return value < 0 && /[1-9]/.test(text) ? `−${grouped}` : grouped;
}

/** A number without unit: three or four significant digits, thousands separated. */
function formatPlain(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  if (Number.isInteger(value)) return fixed(value, 0);
  if (size >= 1000) return fixed(value, 0);
  if (size >= 100) return fixed(value, 1);
  if (size >= 10) return fixed(value, 2);
  if (size >= 0.001) return fixed(value, 3);
  return value.toExponential(1).replace(".0e", "e").replace("-", "−");
}

function formatBytes(value) {
  const size = Math.abs(value);
  if (size < 1000) return `${fixed(value, 0)}${SPACE}B`;
  for (const [unit, scale] of [
    ["kB", 1e3],
    ["MB", 1e6],
    ["GB", 1e9],
  ]) {
    // 999.95 of a unit would be written as 1,000.0 of it.
    if (size < 999.95 * scale) return `${fixed(value / scale, 1)}${SPACE}${unit}`;
  }
  return `${fixed(value / 1e12, 1)}${SPACE}TB`;
}

function formatSeconds(value) {
  if (value < 10) return `${fixed(value, 2)}${SPACE}s`;
  if (value < 100) return `${fixed(value, 1)}${SPACE}s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)}${SPACE}min ${whole % 60}${SPACE}s`;
  return `${fixed(Math.floor(whole / 3600), 0)}${SPACE}h ${Math.floor((whole % 3600) / 60)}${SPACE}min`;
}

const FORMATS = {
  percent: (value) => `${fixed(100 * value, 1)}${SPACE}%`,
  points: (value) => `${value > 0 ? "+" : ""}${fixed(100 * value, 1)}`,
  number: formatPlain,
  compact: (value) =>
    value < 1000 ? fixed(value, 0) : value < 99950 ? `${fixed(value / 1000, 1)}k` : `${fixed(value / 1000, 0)}k`,
  count: (value) => fixed(value, Number.isInteger(value) ? 0 : 1),
  bytes: formatBytes,
  megabytes: (value) => formatBytes(1e6 * value),
  seconds: formatSeconds,
  p: (value) => (value < 0.001 ? "< 0.001" : fixed(value, 3)),
  round: (value) => fixed(value, 0),
};

/** The text of a value; a dash for what is missing. */
function formatValue(kind, value) {
  if (value === null || value === undefined || value === "" || (typeof value === "number" && !Number.isFinite(value))) {
    return MISSING;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  return (FORMATS[kind] || formatPlain)(value);
}

const metricFormat = (metric) => (metric && metric.percent ? "percent" : "number");

const plural = (count, one, many = `${one}s`) => `${fixed(count, 0)} ${count === 1 ? one : many}`;

const ABSENT = -2; // a client that had not joined yet
const OTHERS = -3; // stands for all clusters that are not drawn one by one

function clusterName(cluster) {
  if (Number(cluster) === OTHERS) return "other clusters";
  if (Number(cluster) === ABSENT) return "not joined yet";
  return cluster === null || cluster === undefined || Number(cluster) < 0 ? "no cluster" : `cluster ${cluster}`;
}

/** Texts as one paragraph, each ending with a period; missing ones are left out. */
const paragraph = (...texts) =>
  texts
    .filter(Boolean)
    .map((text) => (/[.!?)]$/.test(text) ? text : `${text}.`))
    .join(" ");

/** With a capital first letter, unless it is a symbol: p, ε. */
const capitalized = (text) => String(text).replace(/^[a-z](?=[a-z])/, (letter) => letter.toUpperCase());

// What the parts of the page share: the data, elements, numbers. Texts from the data only ever become text nodes.
const report = JSON.parse(document.getElementById("report-data").textContent);
const NOTHING = "\u2013";
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Numbers are written by the rules of words.py: rows that were rendered in Python must not change when sorted back.
function fixed(value, decimals) {
  const [whole, rest] = value.toFixed(decimals).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}

function significant(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 1e7) {
    let exponent = Math.floor(Math.log10(size));
    let mantissa = Number((value / 10 ** exponent).toFixed(1));
    if (Math.abs(mantissa) >= 10) [mantissa, exponent] = [mantissa / 10, exponent + 1];
    return `${mantissa}e${exponent}`;
  }
  if (size >= 100) return fixed(value, 0);
  const text = fixed(value, 2 - Math.floor(Math.log10(size)));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function formatted(column, value) {
  if (value === null || value === undefined) return NOTHING;
  if (column.style === "text") return value;
  if (column.style === "integer") return fixed(value, 0);
  return column.style === "fixed" ? fixed(value, column.decimals) : significant(value);
}

// Round numbers between two others, as in scales.py.
function ticks(low, high, about) {
  if (!(high > low)) return [low];
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index <= Math.floor(high / step + 1e-9); index += 1) {
    found.push(Number((index * step).toPrecision(12)));
  }
  return found;
}

function tickTexts(values) {
  if (values.some((value) => Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-4))) return values.map(significant);
  let decimals = 0;
  const rounds = (value) => Math.abs(Number(value.toFixed(decimals)) - value) <= 1e-9 * Math.max(1, Math.abs(value));
  while (decimals < 6 && !values.every(rounds)) decimals += 1;
  return values.map((value) => fixed(value, decimals));
}

function countOf(number, singular, plural = `${singular}s`) {
  return `${fixed(number, 0)} ${number === 1 ? singular : plural}`;
}

// The leaderboard's columns by key, with values by row; texts also get numbers that sort as people expect (8 before 16).
const columns = new Map();
for (const column of report.columns) {
  if (column.style === "text") {
    const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
    const places = column.texts.map((_, index) => index).sort((a, b) => collator.compare(column.texts[a], column.texts[b]));
    const order = [];
    places.forEach((index, place) => { order[index] = place; });
    column.lower = column.texts.map((text) => text.toLowerCase());
    column.values = column.codes.map((code) => (code < 0 ? null : column.texts[code]));
    column.sorting = column.codes.map((code) => (code < 0 ? null : order[code]));
  } else {
    column.sorting = column.values;
  }
  columns.set(column.key, column);
}
const rowCount = report.columns.length ? report.columns[0].values.length : 0;

function valueOf(key, row) {
  const column = columns.get(key);
  return column ? column.values[row] : null;
}

function shown(key, row) {
  const column = columns.get(key);
  return column ? formatted(column, column.values[row]) : NOTHING;
}

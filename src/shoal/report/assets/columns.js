// The leaderboard's columns by key, with values by row. Texts also get numbers for natural sorting (8 before 16).
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

function formatted(column, value) {
  if (value === null || value === undefined) return NOTHING;
  if (column.style === "text") return value;
  if (column.style === "integer") return fixed(value, 0);
  return column.style === "fixed" ? fixed(value, column.decimals) : significant(value);
}

function countOf(number, singular, plural = `${singular}s`) {
  return `${fixed(number, 0)} ${number === 1 ? singular : plural}`;
}

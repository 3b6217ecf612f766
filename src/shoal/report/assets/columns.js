// The leaderboard's columns by key. A cell is a code into the column's distinct texts; texts that are numbers are also
// in `numbers`, and `order` has the place of each text when the column is sorted (8 before 16).
const columns = new Map();
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
for (const column of report.columns) {
  const { texts } = column;
  column.numbers = column.number ? texts.map((text) => Number(text.replaceAll(",", ""))) : null;
  column.lower = texts.map((text) => text.toLowerCase());
  column.order = [];
  const compare = column.number ? (a, b) => column.numbers[a] - column.numbers[b] : (a, b) => collator.compare(texts[a], texts[b]);
  texts.map((_, code) => code).sort(compare).forEach((code, place) => { column.order[code] = place; });
  columns.set(column.key, column);
}
const rowCount = report.columns[0].codes.length;

function valueOf(key, row) {
  return columns.get(key)?.numbers[columns.get(key).codes[row]] ?? null;
}

function shown(key, row) {
  return columns.get(key)?.texts[columns.get(key).codes[row]] ?? NOTHING;
}

function countOf(number, singular = "", plural = `${singular}s`) {
  const text = number.toLocaleString("en");
  return singular ? `${text} ${number === 1 ? singular : plural}` : text;
}

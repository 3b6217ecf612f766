// The syntax of the filter: words that must occur, and conditions such as width<64, 16<=width<=64, width=16..64,
// activation=relu, score>75%. All of them must hold. Returns a predicate on rows, or an error message.
const OPERATORS = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
};
const MIRRORED = { "<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=" };

function plainSigns(text) {
  let plain = text.replace(/\u2264/g, "<=").replace(/\u2265/g, ">=").replace(/\u2260/g, "!=").replace(/==/g, "=");
  for (const column of report.columns) {
    if (!/\s/.test(column.label)) continue;
    const label = column.label.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+");
    plain = plain.replace(new RegExp(`([<>=]\\s*)?\\b${label}(\\s*[<>=!])?`, "gi"), (whole, before, after) =>
      (before || after ? `${before || ""}${column.key}${after || ""}` : whole));
  }
  return plain.replace(/\s*(<=|>=|!=|<|>|=)\s*/g, "$1");
}

function numberFrom(text) {
  const match = /^([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(%?)$/i.exec(text);
  if (!match) return null;
  return match[2] ? Number(match[1]) / 100 : Number(match[1]);
}

function columnNamed(name) {
  const wanted = name.toLowerCase().replace(/[\s-]+/g, "_");
  return report.columns.find((column) => column.key.toLowerCase() === wanted) || null;
}

function textCondition(column, sign, wanted) {
  if (sign !== "=" && sign !== "!=") return { error: `${column.label} is text: use = or != with it.` };
  const lowered = wanted.toLowerCase();
  const codes = new Set();
  column.lower.forEach((text, code) => { if (text === lowered) codes.add(code); });
  const missing = lowered === "";
  return { test: (row) => (codes.has(column.codes[row]) || (missing && column.codes[row] < 0)) === (sign === "=") };
}

function condition(name, sign, wanted) {
  const column = columnNamed(name);
  if (!column) {
    return { error: `There is no column \u201c${name}\u201d; there are ${report.columns.map((one) => one.key).join(", ")}.` };
  }
  if (!column.number) return textCondition(column, sign, wanted);
  const range = wanted.split("..").map(numberFrom);
  if (range.some((bound) => bound === null) || range.length > 2 || (range.length === 2 && sign !== "=")) {
    return { error: `\u201c${wanted}\u201d is not a number; write for example ${column.key}${sign === "!=" ? "=" : sign}64.` };
  }
  const compare = OPERATORS[sign];
  const holds = range.length === 2 ? (value) => value >= range[0] && value <= range[1] : (value) => compare(value, range[0]);
  const held = column.numbers.map(holds);
  return { test: (row) => held[column.codes[row]] ?? false };
}

function wordCondition(word) {
  const lowered = word.toLowerCase();
  const found = report.columns
    .filter((column) => !column.number)
    .map((column) => [column.codes, column.lower.map((text) => text.includes(lowered))]);
  return { test: (row) => found.some(([codes, hits]) => codes[row] >= 0 && hits[codes[row]]) };
}

function conditionsOf(token) {
  const parts = token.replace(/"/g, "").split(/(<=|>=|!=|<|>|=)/);
  if (parts.length === 1) return [wordCondition(parts[0])];
  if (parts.length === 3) {
    const [left, sign, right] = parts;
    const turned = numberFrom(left) !== null && columnNamed(right);
    return [turned ? condition(right, MIRRORED[sign], left) : condition(left, sign, right)];
  }
  if (parts.length === 5) {
    const [low, first, name, second, high] = parts;
    return [condition(name, MIRRORED[first], low), condition(name, second, high)];
  }
  return [{ error: `\u201c${token}\u201d is not a condition; write for example 16<=width<64.` }];
}

function parseFilter(text) {
  const tokens = plainSigns(text).match(/(?:[^\s,;"]|"[^"]*")+/g) || [];
  const tests = [];
  for (const token of tokens) {
    if (/^(and|&&?)$/i.test(token)) continue;
    for (const { error, test } of conditionsOf(token)) {
      if (error) return { error };
      tests.push(test);
    }
  }
  return { test: (row) => tests.every((test) => test(row)) };
}

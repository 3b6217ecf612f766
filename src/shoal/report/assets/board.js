// The leaderboard: sorting, filtering and paging. Only one page of rows is in the document at a time.
const board = { order: [], matching: [], key: null, descending: false, test: null, activation: "", page: 0, size: 25 };

function sortRows() {
  const column = columns.get(board.key);
  board.order = Array.from({ length: rowCount }, (_, row) => row);
  const sign = board.descending ? -1 : 1;
  const places = column.codes.map((code) => (code < 0 ? Infinity : sign * column.order[code]));
  board.order.sort((a, b) => (places[a] === places[b] ? a - b : places[a] - places[b]));
}

function matchRows() {
  const column = columns.get("activation");
  const code = board.activation === "" ? null : column.texts.indexOf(board.activation);
  board.matching = board.order.filter((row) => (code === null || column.codes[row] === code) && (!board.test || board.test(row)));
  board.page = Math.max(0, Math.min(board.page, Math.ceil(board.matching.length / board.size) - 1));
}

function rowElement(row) {
  const line = make("tr");
  report.columns.forEach((column, place) => {
    const kind = column.number ? "number" : null;
    const text = shown(column.key, row);
    line.append(place === 0 ? make("th", { scope: "row", class: kind }, text) : make("td", { class: kind }, text));
  });
  return line;
}

function directionWords() {
  const column = columns.get(board.key);
  const ends = column.number ? ["smallest first", "largest first"] : ["A to Z", "Z to A"];
  return `, sorted by ${column.label}, ${ends[board.descending ? 1 : 0]}`;
}

function showStatus(error) {
  const status = document.getElementById("board-status");
  const first = board.page * board.size;
  const last = Math.min(first + board.size, board.matching.length);
  const all = countOf(rowCount, "recipe");
  let text = board.matching.length === rowCount ? all : `${countOf(board.matching.length)} of ${all} match`;
  if (board.matching.length) text += `; showing ${countOf(first + 1)} to ${countOf(last)}${directionWords()}`;
  status.textContent = error || `${text}.`;
  status.classList.toggle("error", Boolean(error));
}

function showHeads() {
  for (const head of document.querySelectorAll("#leaderboard thead th")) {
    const sorted = head.dataset.key === board.key;
    head.setAttribute("aria-sort", sorted ? (board.descending ? "descending" : "ascending") : "none");
  }
}

function showPages() {
  const pages = Math.max(1, Math.ceil(board.matching.length / board.size));
  document.getElementById("page-number").textContent = `Page ${countOf(board.page + 1)} of ${countOf(pages)}`;
  // aria-disabled, not disabled: a disabled button would lose the keyboard focus on the last page.
  const ends = { "page-first": board.page === 0, "page-back": board.page === 0 };
  ends["page-on"] = ends["page-last"] = board.page >= pages - 1;
  for (const [name, atEnd] of Object.entries(ends)) document.getElementById(name).setAttribute("aria-disabled", atEnd);
}

function showBoard(error) {
  const rows = board.matching.slice(board.page * board.size, (board.page + 1) * board.size);
  document.querySelector("#leaderboard tbody").replaceChildren(...rows.map(rowElement));
  showHeads();
  showPages();
  showStatus(error);
}

function sortBy(key) {
  const largestFirst = key === "score";
  board.descending = board.key === key ? !board.descending : largestFirst;
  board.key = key;
  board.page = 0;
  sortRows();
  matchRows();
  showBoard();
}

function filterBoard() {
  const field = document.getElementById("filter");
  const { error, test } = parseFilter(field.value);
  field.setAttribute("aria-invalid", Boolean(error));
  if (!error) board.test = test;
  board.activation = document.getElementById("filter-activation").value;
  board.page = 0;
  matchRows();
  showBoard(error);
}

function turnTo(page) {
  const last = Math.max(0, Math.ceil(board.matching.length / board.size) - 1);
  board.page = Math.max(0, Math.min(page, last));
  showBoard();
}

function chooser(id, label, options) {
  const list = make("select", { id });
  for (const [value, text] of options) list.append(make("option", { value }, text));
  return make("div", { class: "field" }, make("label", { for: id }, label), list);
}

function boardControls() {
  const controls = document.getElementById("board-controls");
  const field = make("input", {
    id: "filter", type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "off",
    placeholder: "width<64 score>0.7", "aria-describedby": "filter-help",
  });
  const help = make("p", { id: "filter-help" }, "Words to look for, or conditions such as ",
    make("code", {}, "width<64"), ", ", make("code", {}, "0.001<=learning_rate<0.01"), " or ", make("code", {}, "activation=relu"), ".");
  controls.setAttribute("role", "search");
  controls.setAttribute("aria-label", "Leaderboard");
  controls.append(make("div", { class: "field grow" }, make("label", { for: "filter" }, "Filter"), field));
  const activations = chooser("filter-activation", "Activation", [["", "all"], ...columns.get("activation").texts.map((text) => [text, text])]);
  activations.addEventListener("change", filterBoard);
  controls.append(activations);
  controls.append(chooser("page-size", "Rows", [["25", "25"], ["50", "50"], ["100", "100"]]), help);
  field.addEventListener("input", filterBoard);
  controls.hidden = false;
  document.getElementById("page-size").addEventListener("change", (event) => {
    board.size = Number(event.target.value);
    matchRows();
    showBoard();
  });
}

function boardPages() {
  const pages = document.getElementById("board-pages");
  const button = (id, text, target) => {
    const made = make("button", { id, type: "button" }, text);
    made.addEventListener("click", () => { if (made.getAttribute("aria-disabled") !== "true") turnTo(target()); });
    return made;
  };
  pages.setAttribute("role", "group");
  pages.setAttribute("aria-label", "Pages of the leaderboard");
  pages.append(
    button("page-first", "First", () => 0), button("page-back", "Back", () => board.page - 1),
    make("span", { id: "page-number" }),
    button("page-on", "Next", () => board.page + 1), button("page-last", "Last", () => Infinity),
  );
  pages.hidden = false;
}

function startBoard() {
  boardControls();
  boardPages();
  for (const head of document.querySelectorAll("#leaderboard thead th")) sortButton(head, () => sortBy(head.dataset.key));
  board.key = "rank";
  sortRows();
  matchRows();
  showBoard();
}

// Show one recipe in the leaderboard; called by other parts of the page.
function showRecipe(recipe) {
  const field = document.getElementById("filter");
  document.getElementById("filter-activation").value = "";
  field.value = `recipe=${recipe}`;
  filterBoard();
  field.focus();
}
startBoard();

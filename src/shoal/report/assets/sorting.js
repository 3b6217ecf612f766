// Tables that sort by any column. Cells with a number to sort by have it in data-order; cells without a value come last.
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function sortTable(table, place, descending) {
  const value = (row) => row.cells[place].dataset.order ?? (row.cells[place].textContent || null);
  const numeric = table.tHead.rows[0].cells[place].classList.contains("number");
  const rows = [...table.tBodies[0].rows].map((row, index) => ({ row, index, key: value(row) }));
  const missing = ({ key }) => key === null || (numeric && Number.isNaN(Number(key)));
  rows.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b) || a.index - b.index;
    const difference = numeric ? Number(a.key) - Number(b.key) : collator.compare(a.key, b.key);
    return (descending ? -difference : difference) || a.index - b.index;
  });
  table.tBodies[0].append(...rows.map(({ row }) => row));
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    head.setAttribute("aria-sort", index !== place ? "none" : descending ? "descending" : "ascending");
  });
}

function startSorting(table) {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    sortButton(head, () => sortTable(table, place, head.getAttribute("aria-sort") === "ascending"));
    head.setAttribute("aria-sort", "none");
  });
}
document.querySelectorAll("table.sortable").forEach(startSorting);
document.querySelectorAll(".with-script").forEach((part) => { part.hidden = false; });

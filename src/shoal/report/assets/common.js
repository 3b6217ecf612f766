// Shared by the scripts of reports: the data.
const report = JSON.parse(document.getElementById("report-data").textContent);
const NOTHING = "\u2013";

// Makes the heading of a column a button with an arrow.
function sortButton(head, sort) {
  const button = make("button", { type: "button" }, ...head.childNodes, make("span", { class: "arrow", "aria-hidden": "true" }));
  button.addEventListener("click", sort);
  head.replaceChildren(button);
}

// Shared by all scripts: the data and elements. Texts from the data become text nodes, never HTML.
const report = JSON.parse(document.getElementById("report-data").textContent);
const NOTHING = "\u2013";

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

// Makes the heading of a column a button with an arrow.
function sortButton(head, sort) {
  const button = make("button", { type: "button" }, ...head.childNodes, make("span", { class: "arrow", "aria-hidden": "true" }));
  button.addEventListener("click", sort);
  head.replaceChildren(button);
}

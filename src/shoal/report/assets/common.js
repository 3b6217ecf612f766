// Shared by all scripts: the data, elements, number formats. Texts from the data become text nodes, never HTML.
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

// Numbers are formatted as in words.py: rows rendered by Python must look the same when the script renders them.
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

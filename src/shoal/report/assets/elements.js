// Elements for all scripts. Texts from the data become text nodes, never HTML.
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

const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Strategies: a legend picks those that stand out, in all figures and in the table.
const picked = new Set();

function highlight(places) {
  document.body.classList.toggle("picking", places.size > 0);
  for (const part of document.querySelectorAll("[data-strategy]")) {
    part.classList.toggle("picked", places.has(Number(part.dataset.strategy)));
  }
}

function pick(place) {
  if (!picked.delete(place)) picked.add(place);
  for (const item of document.querySelectorAll("[data-pick]")) {
    item.querySelector("button").setAttribute("aria-pressed", picked.has(Number(item.dataset.pick)));
  }
  highlight(picked);
}

function startLegend(item) {
  const place = Number(item.dataset.pick);
  const button = make("button", { type: "button", "aria-pressed": "false" }, ...item.childNodes);
  button.addEventListener("click", () => pick(place));
  button.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") highlight(new Set([...picked, place])); });
  button.addEventListener("pointerleave", () => highlight(picked));
  item.append(button);
}

document.querySelectorAll(".strategies").forEach((list) => list.setAttribute("aria-label", "Strategies to highlight"));
document.querySelectorAll("[data-pick]").forEach(startLegend);

// Strategies: a legend picks those that stand out, in all figures and in the table. Figures have a slider each.
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

function startReading(block) {
  const { label, points, texts, first } = report.readings[block.dataset.read];
  const images = [...block.querySelectorAll("svg[data-plot]")];
  if (points.length < 2) return;
  // Screen readers get one sentence, the screen a line for each strategy.
  const moved = (place) => block.querySelector("output").replaceChildren(...texts[place].map((text) => make("span", {}, text)));
  block.append(startCursor({ images, points, first, label, words: (place) => texts[place].join("; "), moved }));
  moved(first);
}

document.querySelectorAll(".strategies").forEach((list) => list.setAttribute("aria-label", "Strategies to highlight"));
document.querySelectorAll("[data-pick]").forEach(startLegend);
document.querySelectorAll("[data-read]").forEach(startReading);

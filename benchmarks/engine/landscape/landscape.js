// The maps: the pointer or the arrow keys choose a cell, a box has its numbers, a slider the epoch that is shown.
function startMaps(place) {
  const { cells, starts, rates, widths, seeds } = report;
  const epochs = cells[0].means.length;
  const rects = [...place.querySelectorAll(".tint")];
  const byCell = new Map(rects.map((rect) => [Number(rect.dataset.cell), rect]));
  const panels = [...place.querySelectorAll("svg")].map((image) => Number(image.querySelector(".tint").dataset.cell));
  const tip = make("div", { class: "tip", role: "status" });
  let [chosen, epoch, timer] = [null, epochs, null];
  place.append(tip);
  place.classList.add("plot");
  fill(place, { tabindex: "0", role: "application", "aria-roledescription": "map", "aria-label": "Maps of recipes, one for each activation" }, []);

  const percent = (value) => `${(value / 100).toFixed(1)}%`;
  const lines = (cell) => {
    const said = [cell.name, `${percent(cell.means[epoch - 1])} after ${epoch} ${epoch === 1 ? "epoch" : "epochs"}, the mean of ${seeds} seeds`];
    return epoch === epochs ? [...said, `${cell.range} by seed; ${cell.fresh} on fresh rows`] : said;
  };
  const tell = () => {
    if (chosen !== null) tip.replaceChildren(...lines(cells[chosen]).map((line) => make("span", {}, line)));
  };
  const choose = (cell) => {
    byCell.get(chosen)?.classList.remove("on");
    chosen = cell;
    tip.classList.toggle("on", cell !== null);
    if (cell === null) return tip.replaceChildren();
    const rect = byCell.get(cell);
    rect.classList.add("on");
    rect.parentNode.append(rect); // above its neighbours, so that its edge is whole
    tell();
    const [edge, box] = [place.getBoundingClientRect(), rect.getBoundingClientRect()];
    const middle = box.left + box.width / 2 - edge.left - tip.offsetWidth / 2;
    tip.style.left = `${Math.max(0, Math.min(edge.width - tip.offsetWidth, middle))}px`;
    tip.style.top = `${box.top - edge.top - tip.offsetHeight - 10}px`;
  };
  const walk = (right, up, next) => {
    if (chosen === null) return choose(panels[0]);
    const size = widths * rates;
    const first = chosen - (chosen % size);
    const inside = chosen - first;
    if (next) return choose((panels[panels.indexOf(first) + next] ?? first) + inside);
    const width = Math.max(0, Math.min(widths - 1, Math.floor(inside / rates) + right));
    const rate = Math.max(0, Math.min(rates - 1, (inside % rates) + up));
    return choose(first + width * rates + rate);
  };
  const keys = { ArrowLeft: [-1, 0, 0], ArrowRight: [1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0], PageDown: [0, 0, 1], PageUp: [0, 0, -1] };
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return choose(null);
    if (!keys[event.key]) return;
    event.preventDefault();
    walk(...keys[event.key]);
  });
  for (const kind of ["pointermove", "pointerdown"]) {
    place.addEventListener(kind, (event) => {
      const rect = event.target.closest?.(".tint");
      const cell = rect ? Number(rect.dataset.cell) : document.activeElement === place ? chosen : null;
      if (cell !== chosen) choose(cell);
    });
  }
  place.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && document.activeElement !== place) choose(null); });
  place.addEventListener("focus", () => { if (chosen === null && place.matches(":focus-visible")) choose(panels[0]); });
  place.addEventListener("blur", () => choose(null));

  const level = (mean) => starts.filter((start) => start <= mean + 1e-6).length;
  const slider = make("input", { type: "range", min: 1, max: epochs, step: 1, value: epochs, "aria-label": "Epoch that the maps show" });
  const output = make("output", {});
  const show = (value) => {
    epoch = value;
    slider.value = value;
    output.textContent = `after ${value} of ${epochs} epochs`;
    slider.setAttribute("aria-valuetext", output.textContent);
    for (const [cell, rect] of byCell) {
      rect.setAttribute("class", `tint t${level(cells[cell].means[value - 1])}${cell === chosen ? " on" : ""}`);
    }
    tell();
  };
  const button = make("button", { type: "button" }, "Play");
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    button.textContent = "Stop";
    show(1);
    timer = setInterval(() => (epoch < epochs ? show(epoch + 1) : stop()), 300);
  });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  output.textContent = `after ${epochs} of ${epochs} epochs`;
  slider.setAttribute("aria-valuetext", output.textContent);
  if (epochs > 1) place.before(make("div", { class: "epochs" }, button, make("div", { class: "slider" }, slider, output)));
}
document.querySelectorAll(".maps").forEach(startMaps);

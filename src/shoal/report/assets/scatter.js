// Score against width, by activation. One path per activation, so that ten thousand dots are drawn quickly.
const scatter = { points: [], series: [], hidden: new Set(), place: null, plot: null, tip: null, chosen: -1 };

function short(number) {
  return Number(number.toFixed(1)).toString();
}

// The marker of a series, relative to its centre; a shape without corners is a disc.
function markerPath(kind, radius) {
  const corners = report.shapes[kind % report.shapes.length].map((corner) => corner.map((part) => part * radius));
  if (!corners.length) return `m${-radius} 0a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0z`;
  const steps = corners.map(([x, y], place) => `${short(x - (corners[place - 1]?.[0] ?? 0))} ${short(y - (corners[place - 1]?.[1] ?? 0))}`);
  return `m${steps.join("l")}z`;
}

// Many recipes have the same width, so dots would overlap: each is shifted by an amount that depends on its row alone.
function jitter(row) {
  return (((row * 2654435761) >>> 0) / 4294967296) - 0.5;
}

function collectPoints() {
  const activations = columns.get("activation");
  const used = new Set();
  for (let row = 0; row < rowCount; row += 1) {
    const [width, score] = [valueOf("width", row), valueOf("score", row)];
    if (width === null || score === null || activations.codes[row] < 0) continue;
    scatter.points.push({ row, width, score, place: 0, x: 0, y: 0 });
    used.add(activations.codes[row]);
  }
  const present = activations.texts.map((name, code) => ({ name, code })).filter(({ code }) => used.has(code));
  const places = new Map(present.map(({ code }, place) => [code, place]));
  for (const point of scatter.points) point.place = places.get(activations.codes[point.row]);
  scatter.series = present.map(({ name }) => name);
}

function widthScale(left, right) {
  const widths = scatter.points.map(({ width }) => width).filter((width) => width > 0);
  const linear = scatter.points.some(({ width }) => width <= 0);
  const start = linear && widths.length ? left + 44 : left;
  const low = Math.log2(Math.min(...new Set(widths))) - 0.4;
  const high = Math.log2(Math.max(...new Set(widths))) + 0.4;
  const at = (width) => (width <= 0 ? left + (widths.length ? 14 : (right - left) / 2) : start + ((Math.log2(width) - low) / (high - low)) * (right - start));
  const marks = linear ? [[at(0), "linear"]] : [];
  if (widths.length) {
    const step = Math.max(1, Math.ceil((high - low) / ((right - start) / 44)));
    for (let power = Math.ceil(low); power <= high; power += step) marks.push([at(2 ** power), countOf(2 ** power)]);
  }
  return { at, marks, jitter: widths.length ? Math.min(14, ((right - start) / (high - low)) * 0.25) : 14 };
}

function scatterAxes(box, across, up) {
  const parts = [];
  const { low, high, ticks, texts } = report.scale;
  texts.forEach((text, index) => {
    const y = up(ticks[index]);
    parts.push(draw("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "hair" }));
    parts.push(draw("text", { x: box.left - 8, y: y + 4, class: "tick", "text-anchor": "end" }, text));
  });
  for (const [x, text] of across.marks) {
    parts.push(draw("text", { x, y: box.bottom + 18, class: "tick", "text-anchor": text === "linear" ? "start" : "middle", dx: text === "linear" ? -16 : 0 }, text));
  }
  parts.push(draw("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }));
  parts.push(draw("text", { x: box.right, y: box.bottom + 36, class: "name", "text-anchor": "end" }, "hidden neurons"));
  parts.push(draw("text", { x: 0, y: 12, class: "name" }, report.metric ? `score (${report.metric})` : "score"));
  if (report.chance !== null && report.chance > low && report.chance < high) {
    const y = up(report.chance);
    parts.push(draw("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "ideal" }));
    parts.push(draw("text", { x: box.right, y: y - 5, class: "tick", "text-anchor": "end" }, "guessing"));
  }
  return parts;
}

function describeScatter() {
  const best = scatter.points.reduce((a, b) => (b.score > a.score ? b : a));
  const edge = report.scale.clipped ? ` ${countOf(report.scale.clipped, "recipe")} with lower scores on the lower edge.` : "";
  return `${countOf(scatter.points.length, "recipe")}; the best, recipe ${shown("recipe", best.row)}, has ${countOf(best.width, "hidden neuron")}, ${shown("activation", best.row)} and a score of ${shown("score", best.row)}.${edge}`;
}

function drawScatter() {
  const width = Math.max(280, Math.round(scatter.plot.clientWidth));
  const height = Math.round(Math.min(460, Math.max(300, width * 0.6)));
  const { low, high } = report.scale;
  const box = { left: 58, right: width - 8, top: 28, bottom: height - 44 };
  const across = widthScale(box.left + 8, box.right);
  const up = (score) => box.bottom - ((Math.max(score, low) - low) / (high - low)) * (box.bottom - box.top);
  const radius = scatter.points.length > 3000 ? 1.8 : scatter.points.length > 600 ? 2.7 : 3.6;
  const paths = scatter.series.map(() => []);
  const rings = [];
  const chosenOnes = new Set(report.ensemble);
  const marks = scatter.series.map((_, place) => markerPath(place, radius));
  for (const point of scatter.points) {
    point.x = across.at(point.width) + jitter(point.row) * 2 * across.jitter;
    point.y = up(point.score);
    const { place } = point;
    paths[place].push(`M${short(point.x)} ${short(point.y)}${marks[place]}`);
    const recipe = valueOf("recipe", point.row);
    if (recipe !== null && chosenOnes.has(recipe)) rings.push(draw("circle", { cx: short(point.x), cy: short(point.y), r: 7.5, class: "ring", "data-series": place }));
  }
  const dots = paths.map((parts, place) => draw("path", { d: parts.join(""), class: `mark hue${place % 11}`, "data-series": place }));
  const image = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "scatter-title scatter-description" },
    draw("title", { id: "scatter-title" }, "Score against width, by activation"),
    draw("desc", { id: "scatter-description" }, describeScatter()),
    ...scatterAxes(box, across, up), ...dots, ...rings, draw("circle", { r: 9, class: "focus", visibility: "hidden" }));
  scatter.plot.querySelector("svg")?.remove();
  scatter.plot.prepend(image);
  hideSeries();
  choose(scatter.chosen);
}

const isVisible = (point) => !scatter.hidden.has(point.place);

function hideSeries() {
  for (const part of scatter.plot.querySelectorAll("[data-series]")) {
    part.setAttribute("visibility", scatter.hidden.has(Number(part.dataset.series)) ? "hidden" : "visible");
  }
}

function tipText(row) {
  const facts = [`score ${shown("score", row)}`];
  for (const key of ["hidden", "learning_rate", "weight_decay", "dropout", "batch_size"]) {
    if (shown(key, row) !== NOTHING) facts.push(`${columns.get(key).label} ${shown(key, row)}`);
  }
  const inside = report.ensemble.includes(valueOf("recipe", row)) ? ", in the final model" : "";
  return [make("strong", {}, `Recipe ${shown("recipe", row)}: ${shown("activation", row)}${inside}`), make("span", {}, facts.join(", "))];
}

function choose(place) {
  const focus = scatter.plot.querySelector(".focus");
  const point = scatter.points[place];
  scatter.chosen = point && isVisible(point) ? place : -1;
  if (scatter.chosen < 0) {
    focus.setAttribute("visibility", "hidden");
    scatter.tip.replaceChildren();
    scatter.tip.classList.remove("on");
    return;
  }
  focus.setAttribute("cx", point.x);
  focus.setAttribute("cy", point.y);
  focus.setAttribute("visibility", "visible");
  scatter.tip.replaceChildren(...tipText(point.row));
  scatter.tip.classList.add("on");
  const room = scatter.plot.clientWidth - scatter.tip.offsetWidth;
  const above = point.y - scatter.tip.offsetHeight - 16;
  scatter.tip.style.left = `${Math.max(0, Math.min(room, point.x - scatter.tip.offsetWidth / 2))}px`;
  scatter.tip.style.top = `${above >= 0 ? above : point.y + 16}px`;
}

function nearest(event) {
  const edge = scatter.plot.getBoundingClientRect();
  const [x, y] = [event.clientX - edge.left, event.clientY - edge.top];
  let [found, least] = [-1, 28 * 28];
  scatter.points.forEach((point, place) => {
    const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
    if (distance < least && isVisible(point)) [found, least] = [place, distance];
  });
  return found;
}

function walk(by, step) {
  const order = scatter.points.map((_, place) => place).filter((place) => isVisible(scatter.points[place]));
  order.sort((a, b) => by(scatter.points[a], scatter.points[b]) || a - b);
  if (!order.length) return;
  if (scatter.chosen < 0) choose(order.reduce((a, b) => (scatter.points[b].score > scatter.points[a].score ? b : a)));
  else choose(order[Math.max(0, Math.min(order.length - 1, order.indexOf(scatter.chosen) + step))]);
}

function scatterKeys(event) {
  const byWidth = (a, b) => a.width - b.width || a.score - b.score;
  const byScore = (a, b) => a.score - b.score;
  const keys = {
    ArrowLeft: () => walk(byWidth, -1), ArrowRight: () => walk(byWidth, 1),
    ArrowUp: () => walk(byScore, 1), ArrowDown: () => walk(byScore, -1),
    Home: () => walk(byScore, Infinity), End: () => walk(byScore, -Infinity),
    Escape: () => choose(-1),
    Enter: () => { if (scatter.chosen >= 0) showRecipe(valueOf("recipe", scatter.points[scatter.chosen].row)); },
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  keys[event.key]();
}

function toggleSeries(place, button) {
  if (scatter.hidden.has(place)) scatter.hidden.delete(place);
  else scatter.hidden.add(place);
  button.setAttribute("aria-pressed", !scatter.hidden.has(place));
  hideSeries();
  choose(scatter.chosen);
}

function legend() {
  const list = make("ul", { class: "legend toggles", "aria-label": "Activations, shown or hidden" });
  const buttons = scatter.series.map((name, place) => {
    const mark = draw("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, draw("path", { d: `M0 0${markerPath(place, 5)}`, class: `mark hue${place % 11}` }));
    const button = make("button", { type: "button", "aria-pressed": "true" }, mark, name);
    button.addEventListener("click", () => toggleSeries(place, button));
    list.append(make("li", {}, button));
    return button;
  });
  const all = make("button", { type: "button", class: "quiet" }, "all or none");
  all.addEventListener("click", () => {
    const show = scatter.hidden.size > 0;
    buttons.forEach((button, place) => { if (scatter.hidden.has(place) === show) toggleSeries(place, button); });
  });
  if (buttons.length > 1) list.append(make("li", {}, all));
  return list;
}

function startScatter() {
  scatter.place = document.getElementById("scatter");
  if (!scatter.place) return;
  collectPoints();
  if (!scatter.points.length) return;
  scatter.tip = make("div", { class: "tip", role: "status" });
  scatter.plot = make("div", {
    class: scatter.points.length > 600 ? "plot" : "plot few", tabindex: "0", role: "application", "aria-roledescription": "scatter plot",
    "aria-label": "Score against width, by activation", "aria-describedby": "scatter-help",
  }, scatter.tip);
  const ringed = report.ensemble.length ? " Ringed recipes are part of the final model." : "";
  const { clipped } = report.scale;
  const outside = clipped ? ` ${countOf(clipped, "recipe")} with lower scores ${clipped === 1 ? "is" : "are"} drawn on the lower edge.` : "";
  const help = make("p", { id: "scatter-help", class: "help" }, `Point at a dot to see its recipe; click to show it in the leaderboard. Keyboard: left and right arrow keys move by width, up and down by score, Enter shows the recipe in the leaderboard.${ringed}${outside}`);
  scatter.place.append(make("figure", {}, legend(), scatter.plot, help));
  scatter.plot.addEventListener("pointermove", (event) => choose(nearest(event)));
  scatter.plot.addEventListener("pointerleave", () => { if (document.activeElement !== scatter.plot) choose(-1); });
  scatter.plot.addEventListener("blur", () => choose(-1));
  scatter.plot.addEventListener("keydown", scatterKeys);
  scatter.plot.addEventListener("click", (event) => {
    const found = nearest(event);
    choose(found);
    if (found >= 0 && event.pointerType !== "touch") showRecipe(valueOf("recipe", scatter.points[found].row));
  });
  drawScatter();
  let drawn = scatter.plot.clientWidth;
  new ResizeObserver(() => {
    if (scatter.plot.clientWidth === drawn) return;
    drawn = scatter.plot.clientWidth;
    requestAnimationFrame(drawScatter);
  }).observe(scatter.plot);
}
startScatter();

// One cursor for figures that share an axis: the slider moves it, and so does the pointer over any of the figures.
// `points` are the values on the axis, `words` gives the text for one, `first` is the initial index; the line appears
// when the cursor is first moved. Returns the slider with its text, for the caller to insert.
function startCursor({ images, points, first, label, words, moved = () => {} }) {
  const slider = make("input", { type: "range", min: 0, max: points.length - 1, step: 1, value: first, "aria-label": label });
  const output = make("output", {});
  const plots = images.map((image) => ({ image, cursor: image.querySelector(".cursor"), scale: image.dataset.plot.split(" ").map(Number) }));
  const say = (place) => {
    output.textContent = words(place);
    slider.setAttribute("aria-valuetext", output.textContent);
  };
  const show = (place) => {
    for (const { cursor, scale: [low, high, start, end] } of plots) {
      const x = start + ((points[place] - low) / (high - low)) * (end - start);
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.setAttribute("visibility", "visible");
    }
    say(place);
    moved(place);
  };
  const fromPointer = (event, { image, scale: [low, high, start, end] }) => {
    const edge = image.getBoundingClientRect();
    const x = ((event.clientX - edge.left) / edge.width) * image.viewBox.baseVal.width;
    const point = low + ((x - start) / (end - start)) * (high - low);
    let found = 0;
    points.forEach((value, place) => { if (Math.abs(value - point) < Math.abs(points[found] - point)) found = place; });
    slider.value = found;
    show(found);
  };
  for (const plot of plots) {
    const around = make("div", { class: "hover" });
    plot.image.replaceWith(around);
    around.append(plot.image);
    for (const kind of ["pointermove", "pointerdown"]) around.addEventListener(kind, (event) => fromPointer(event, plot));
  }
  slider.addEventListener("input", () => show(Number(slider.value)));
  say(first);
  return make("div", { class: "slider" }, slider, output);
}

// Figures whose texts are in the data: one slider for all figures of a block, above the same numbers as a table. The
// captions of figures may have a text for each place, too.
function startReading(block) {
  if (!(block.dataset.read in report.readings)) return;
  const { label, points, texts, first, captions = {} } = report.readings[block.dataset.read];
  const images = [...block.querySelectorAll("svg[data-plot]")];
  // Screen readers get one sentence, the screen a line for each text.
  const moved = (place) => {
    block.querySelector("output").replaceChildren(...texts[place].map((text) => make("span", {}, text)));
    for (const [key, said] of Object.entries(captions)) block.querySelector(`[data-series="${key}"]`).textContent = said[place];
  };
  const slider = startCursor({ images, points, first, label, words: (place) => texts[place].join("; "), moved });
  block.insertBefore(slider, block.querySelector("details"));
  moved(first);
}
document.querySelectorAll("[data-read]").forEach(startReading);

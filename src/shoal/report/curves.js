// Learning curves: a slider of epochs under each, which the pointer moves too, and the numbers in words.
function startCurve(figure) {
  const curve = report.curves[Number(figure.dataset.curve)];
  const image = figure.querySelector("svg");
  const [low, high, start, end] = image.dataset.plot.split(" ").map(Number);
  const cursor = image.querySelector(".cursor");
  const known = curve.valid.map((value, place) => [value, place]).filter(([value]) => value !== null);
  const best = known.length ? known.reduce((a, b) => (b[0] < a[0] ? b : a))[1] : curve.epochs.length - 1;
  const slider = make("input", { type: "range", min: 0, max: curve.epochs.length - 1, step: 1, value: best });
  const output = make("output", {});
  const words = (place) => {
    const named = [["training", curve.train[place]], ["held out", curve.valid[place]]];
    const numbers = named.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${significant(value)}`);
    return `Epoch ${curve.epochs[place]}: ${numbers.join(", ") || "no loss known"}`;
  };
  const show = (place) => {
    const x = start + ((curve.epochs[place] - low) / (high - low)) * (end - start);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    output.textContent = words(place);
    slider.setAttribute("aria-valuetext", words(place));
  };
  const fromPointer = (event) => {
    const edge = image.getBoundingClientRect();
    const x = ((event.clientX - edge.left) / edge.width) * image.viewBox.baseVal.width;
    const epoch = low + ((x - start) / (end - start)) * (high - low);
    let found = 0;
    curve.epochs.forEach((value, place) => { if (Math.abs(value - epoch) < Math.abs(curve.epochs[found] - epoch)) found = place; });
    slider.value = found;
    show(found);
  };
  slider.setAttribute("aria-label", `Epoch, ${image.querySelector("title").textContent}`);
  slider.addEventListener("input", () => show(Number(slider.value)));
  const plot = make("div", { class: "hover" });
  image.replaceWith(plot);
  plot.append(image);
  plot.addEventListener("pointermove", fromPointer);
  figure.append(make("div", { class: "slider" }, slider, output));
  output.textContent = words(best);
  slider.setAttribute("aria-valuetext", output.textContent);
}
document.querySelectorAll("figure[data-curve]").forEach(startCurve);

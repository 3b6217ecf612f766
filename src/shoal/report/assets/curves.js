// Learning curves of recipes, each with a slider over its epochs that starts at the best one.
function startCurve(figure) {
  const curve = report.curves[Number(figure.dataset.curve)];
  const image = figure.querySelector("svg");
  const known = curve.valid.map((value, place) => [value, place]).filter(([value]) => value !== null);
  const best = known.length ? known.reduce((a, b) => (b[0] < a[0] ? b : a))[1] : curve.epochs.length - 1;
  const words = (place) => {
    const named = [["training", curve.train[place]], ["held out", curve.valid[place]]];
    const numbers = named.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${significant(value)}`);
    return `Epoch ${curve.epochs[place]}: ${numbers.join(", ") || "no loss known"}`;
  };
  const label = `Epoch, ${image.querySelector("title").textContent}`;
  figure.append(startCursor({ images: [image], points: curve.epochs, first: best, label, words }));
}
document.querySelectorAll("figure[data-curve]").forEach(startCurve);

// Effects of columns, each with a slider over the values of the column.
function startEffect(figure) {
  const effect = report.effects[Number(figure.dataset.effect)];
  const image = figure.querySelector("svg");
  const label = `Value, ${image.querySelector("title").textContent}`;
  const words = (place) => effect.words[place];
  const slider = startCursor({ images: [image], points: effect.points, first: Math.floor(effect.points.length / 2), label, words });
  figure.insertBefore(slider, figure.querySelector("details"));
}
document.querySelectorAll("figure[data-effect]").forEach(startEffect);

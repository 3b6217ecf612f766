// Training by step: one slider for all figures, with the values as text and in the captions.
const { steps, series } = report;

// The latest measurement up to a step: not every step has an evaluation, so the text names the step it is from.
function measured(one, place) {
  let index = one.places ? -1 : place;
  if (one.places) while (index + 1 < one.places.length && one.places[index + 1] <= place) index += 1;
  if (index < 0) return null;
  const at = one.places ? one.places[index] : place;
  return { value: one.values[index], step: at === place ? null : steps[at] };
}

function reading(one, place) {
  const found = measured(one, place);
  if (!found) return NOTHING;
  const text = found.value === null ? NOTHING : significant(found.value) + one.unit;
  return found.step === null ? text : `${text} (step ${fixed(found.step, 0)})`;
}

function startCourse(course) {
  const named = new Map(series.map((one) => [one.key, one]));
  const losses = ["loss", "eval_loss"].filter((key) => named.has(key)).map((key) => named.get(key));
  const words = (place) => {
    const epoch = named.has("epoch") ? `, epoch ${reading(named.get("epoch"), place)}` : "";
    const values = losses.map((one) => `${one.label} ${reading(one, place)}`).join(", ");
    return `Step ${fixed(steps[place], 0)}${epoch}${values ? `: ${values}` : ""}`;
  };
  const captions = [...course.querySelectorAll("[data-series]")].map((element) => [element, named.get(element.dataset.series)]);
  const moved = (place) => captions.forEach(([element, one]) => { element.textContent = reading(one, place); });
  const images = [...course.querySelectorAll("svg[data-plot]")];
  course.append(startCursor({ images, points: steps, first: steps.length - 1, label: "Step", words, moved }));
}
document.querySelectorAll(".course").forEach(startCourse);

// Charts of numbers over steps, for a training and for fine-tuning.
const MOST_POINTS = 600; // of a line: more cannot be told apart

class Chart {
  constructor(place, title, names, write = significant) {
    Object.assign(this, { names, write, key: "" });
    Chart.count = (Chart.count || 0) + 1;
    const id = `live-chart-${Chart.count}`;
    this.words = draw("desc", { id: `${id}-words` }, "Nothing yet.");
    this.title = draw("title", { id: `${id}-title` }, title);
    this.image = draw("svg", { role: "img", "aria-labelledby": `${id}-title ${id}-words` }, this.title, this.words);
    this.keys = names.map((name, place) => make("span", { class: `key hue${place}`, hidden: true }, name));
    this.legend = make("p", { class: "small keys" }, ...this.keys);
    this.box = make("figure", { hidden: true }, make("figcaption", {}, title), this.image, ...(names.length > 1 ? [this.legend] : []));
    place.append(this.box);
  }

  // One list of [x, y] for each name.
  update(all, across) {
    const series = all.map(thinned);
    const points = series.flat().filter(([, y]) => Number.isFinite(y));
    const width = Math.max(280, this.box.clientWidth || 480);
    const key = `${points.length} ${points.at(-1)} ${width}`;
    if (!points.length || key === this.key) return;
    this.key = key;
    this.box.hidden = false;
    const [height, left, right, top, bottom] = [220, 54, 8, 10, 190];
    const [first, last] = [Math.min(...points.map(([x]) => x)), Math.max(...points.map(([x]) => x))];
    const [least, most] = [Math.min(...points.map(([, y]) => y)), Math.max(...points.map(([, y]) => y))];
    const step = niceStep(most - least || Math.abs(most) || 1, 4);
    const [low, high] = [Math.floor(least / step) * step, Math.ceil(most / step) * step || step];
    const x = (value) => left + ((value - first) / (last - first || 1)) * (width - left - right);
    const y = (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - top);
    const parts = [];
    for (let value = low; value <= high + step / 1e6; value += step) {
      parts.push(draw("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "hair" }));
      parts.push(draw("text", { x: left - 8, y: y(value) + 4, class: "tick", "text-anchor": "end" }, this.write(value)));
    }
    if (last > first) parts.push(draw("text", { x: left, y: bottom + 18, class: "tick" }, first.toLocaleString("en-US")));
    parts.push(draw("text", { x: width - right, y: bottom + 18, class: "tick", "text-anchor": "end" }, `${across} ${last.toLocaleString("en-US")}`));
    const told = [];
    series.forEach((line, place) => {
      const known = line.filter(([, value]) => Number.isFinite(value));
      this.keys[place].hidden = !known.length;
      if (known.length) told.push(`${this.names[place]}: ${this.write(known[0][1])} at first, ${this.write(known.at(-1)[1])} at last`);
      const path = known.map(([a, b], index) => `${index ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
      parts.push(draw("path", { d: path, class: `line hue${place}` }));
      if (known.length && known.length < 40) for (const [a, b] of known) parts.push(draw("circle", { cx: x(a), cy: y(b), r: 2.5, class: `spot hue${place}` }));
    });
    this.image.setAttribute("viewBox", `0 0 ${width} ${height}`);
    say(this.words, `${told.join("; ")}.`);
    this.image.replaceChildren(this.title, this.words, ...parts);
  }
}

// The first, the last, and evenly many between.
function thinned(line) {
  const every = Math.ceil(line.length / MOST_POINTS);
  return every < 2 ? line : line.filter((_, place) => place % every === 0 || place === line.length - 1);
}

function pairsOf(steps, across, name) {
  return steps.filter((step) => typeof step[name] === "number").map((step) => [step[across], step[name]]);
}

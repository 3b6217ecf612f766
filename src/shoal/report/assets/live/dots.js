// The population: each assessment of a network is a dot on a canvas; axes, the best so far and the final ensemble are SVG.
const BOX = { left: 58, right: 14, top: 26, bottom: 40 };
const [MOST_TRAILS, MOST_ANIMATED] = [12000, 4000];
const REST = 60; // times that painting all dots takes, until they are all painted again
const COLOURS = ["--accent", "--soft", "--accent", "--middle"]; // by what became of a candidate
const OPACITY = [0.65, 0.4, 0.95, 1];
const still = matchMedia("(prefers-reduced-motion: reduce)");

function niceStep(span, parts) {
  const raw = span / Math.max(1, parts);
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
}

function timeStep(least) {
  return [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200].find((step) => step >= least) || Math.ceil(least / 86400) * 86400;
}

// Where the axis of time ends: it grows in steps up to the budget, so that the first dots are not all at its left end.
function timeShown(time, budget) {
  const least = Math.max(15, 1.02 * time);
  let end = 15;
  for (let k = 0; end < least; k += 1) end *= [2, 2, 2, 2.5][k % 4];
  return budget && budget >= time ? Math.min(budget, end) : end;
}

class Dots {
  constructor(place, shown) {
    Object.assign(this, { shown, run: new Run(), painted: 0, changed: -1, scale: null, from: null, moved: 0, chosen: -1, radius: 0, total: 0, width: 0, paintedAt: 0, cost: 0 });
    this.axes = draw("svg", { "aria-hidden": "true", class: "axes" });
    this.canvas = make("canvas", { role: "img", "aria-label": "Score of each recipe against time", "aria-describedby": "live-summary" });
    this.marks = draw("svg", { "aria-hidden": "true", class: "marks" });
    this.best = draw("path", { class: "best-line" });
    this.trails = draw("g", { class: "trails" });
    this.rings = draw("g", { class: "rings" });
    this.focus = draw("circle", { class: "focus", r: 8, visibility: "hidden" });
    this.range = draw("rect", { class: "range", visibility: "hidden" });
    this.rangeName = draw("text", { class: "tick over", "text-anchor": "end", visibility: "hidden" }, "to expect on new rows");
    this.under = draw("svg", { "aria-hidden": "true" }, this.range);
    this.marks.append(this.best, this.rangeName, this.trails, this.rings, this.focus);
    this.tip = make("div", { class: "tip" });
    this.plot = make("div", { class: "plot live-plot" }, this.under, this.axes, this.canvas, this.marks, this.tip);
    place.append(this.plot);
    this.plot.addEventListener("pointermove", (event) => this.choose(this.nearest(event)));
    this.plot.addEventListener("pointerleave", () => this.choose(-1));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.changed = -1; });
    new ResizeObserver(() => this.resize()).observe(this.plot);
    this.resize();
  }

  // `total`: seconds of the whole run, where it is over.
  show(run, total) {
    this.total = total;
    if (run === this.run) return;
    Object.assign(this, { run, painted: 0, changed: -1, scale: null });
    this.lit = null;
    this.choose(-1);
  }

  resize() {
    if (this.plot.clientWidth === this.width && this.plot.clientHeight === this.height) return;
    this.width = this.plot.clientWidth;
    this.height = this.plot.clientHeight;
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    for (const image of [this.under, this.axes, this.marks]) image.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.changed = -1;
    this.drawnAxes = "";
  }

  // ---- scales ----

  wanted(clock) {
    const { about, sample, highest, time } = this.run;
    const end = this.total > 0 ? Math.max(this.total, 1) : timeShown(time, about.budget);
    if (!sample.length) return { end, low: 0, high: 1, step: 0.2 };
    const sorted = Float64Array.from(sample).sort();
    const top = highest;
    const middle = sorted[sorted.length >> 1];
    let low = Math.max(sorted[Math.floor(sorted.length * 0.05)], middle - 3 * (top - middle));
    if (!(top > low)) low = top - Math.max(Math.abs(top) * 0.05, 0.01);
    // The range is shown where it is not far away from the dots.
    const [least, most] = this.expected() || [top, top];
    const span = top - low;
    low = Math.min(low, Math.max(least, low - span));
    const upper = Math.max(top, Math.min(most, top + span));
    const grid = niceStep(upper - low, 5);
    const part = grid / 5; // the edges need no line of the grid
    const high = Math.ceil((upper + (upper - low) * 0.04) / part) * part;
    const limit = [0, 1].find((most) => upper <= most && high > most); // of shares, and of what is at best zero
    return { end, low: Math.floor(low / part) * part, high: limit ?? high, step: grid };
  }

  // Low and high of what to expect on new rows: roughly while networks train, exactly at the end.
  expected() {
    const { end, latest } = this.run;
    if (end && end.score && !end.score.problem) return [end.score.low, end.score.high];
    return latest.range ? [latest.range[0], latest.range[2]] : null;
  }

  // Scales change in steps, so that the picture stands still most of the time.
  rescale(clock, now) {
    const goal = this.wanted(clock);
    const { scale } = this;
    if (scale) {
      const inside = goal.high <= scale.high + 1e-12 && goal.low >= scale.low - 1e-12 && goal.end <= scale.end;
      const roomy = goal.high - goal.low > 0.6 * (scale.high - scale.low) && goal.end > 0.5 * scale.end;
      if (inside && roomy && (!this.total || scale.end === goal.end)) return;
    }
    const animated = scale && !still.matches && this.run.dots.count < MOST_ANIMATED;
    this.from = animated ? { ...this.current(now) } : null;
    this.scale = goal;
    this.moved = now;
    this.changed = -1;
  }

  current(now) {
    const part = this.from ? Math.min(1, (now - this.moved) / 350) : 1;
    if (part >= 1) { this.from = null; return this.scale; }
    const eased = 1 - (1 - part) ** 3;
    const between = (name) => this.from[name] + (this.scale[name] - this.from[name]) * eased;
    return { end: between("end"), low: between("low"), high: between("high"), step: this.scale.step };
  }

  x(seconds) {
    return BOX.left + (seconds / this.now.end) * (this.width - BOX.left - BOX.right);
  }

  y(score) {
    const { low, high } = this.now;
    const share = (Math.max(low, Math.min(high, score)) - low) / (high - low);
    return this.height - BOX.bottom - share * (this.height - BOX.top - BOX.bottom);
  }

  // ---- painting ----

  // Called many times a second: paints what is new, and all of it where something has changed.
  paint(clock, now) {
    if (!this.width) return;
    if (!this.scale || now - this.rescaled > 1000) {
      this.rescaled = now;
      this.rescale(clock, now);
    }
    const moving = this.from !== null;
    this.now = this.current(now);
    const { count } = this.run.dots;
    const radius = count > 30000 ? 1 : count > 6000 ? 1.5 : count > 1200 ? 2.1 : count > 200 ? 2.8 : 3.6;
    const changed = this.changed !== this.run.changed && now - this.paintedAt > REST * this.cost;
    const everything = moving || this.changed === -1 || changed || radius !== this.radius;
    if (everything) {
      this.radius = radius;
      this.changed = this.run.changed;
      this.paintAll(clock);
      this.drawAxes();
      this.paintedAt = now;
      this.cost = performance.now() - now;
    } else this.paintNew(clock);
    if (everything || this.bestLength !== this.run.highs.length || now - (this.bestDrawn || 0) > 1000) this.drawBest(clock, now);
    if (everything || this.lit !== this.run.end) this.lightUp();
  }

  sprites() {
    const style = getComputedStyle(this.plot);
    const size = (rung) => this.radius + 0.45 * Math.min(3, rung) * (this.radius > 1.3 ? 1 : 0.4);
    const ratio = this.ratio;
    return COLOURS.map((name, status) => Array.from({ length: 8 }, (_, rung) => {
      const radius = size(rung);
      const side = Math.ceil(2 * radius * ratio) + 2;
      const disc = make("canvas", { width: side, height: side });
      const pen = disc.getContext("2d");
      const hollow = status === GOING && radius > 2; // a ring until it is decided
      pen.globalAlpha = hollow ? 0.3 : OPACITY[status];
      pen.fillStyle = pen.strokeStyle = style.getPropertyValue(name);
      pen.beginPath();
      pen.arc(side / 2, side / 2, (hollow ? radius - 0.7 : radius) * ratio, 0, 2 * Math.PI);
      pen.fill();
      pen.globalAlpha = 1;
      pen.lineWidth = 1.4 * ratio;
      if (hollow) pen.stroke();
      return { disc, half: side / 2, side: 2 * radius * ratio };
    }));
  }

  paintAll(clock) {
    this.discs = this.sprites();
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const { dots, status } = this.run;
    this.paintTrails(pen, clock);
    this.painted = 0;
    const style = getComputedStyle(this.plot);
    for (const wanted of [DROPPED, GOING, DONE, CHOSEN]) {
      pen.fillStyle = style.getPropertyValue(COLOURS[wanted]);
      const small = dots.count > 30000;
      pen.globalAlpha = small ? OPACITY[wanted] : 1; // discs have their own
      this.paintDots(pen, 0, clock, (who) => status.values[who] === wanted, small);
    }
    pen.globalAlpha = 1;
    this.painted = this.countUntil(clock, dots);
  }

  paintNew(clock) {
    this.painted = this.paintDots(this.canvas.getContext("2d"), this.painted, clock, () => true);
  }

  countUntil(clock, { x, count }) {
    let end = count;
    while (end > 0 && x.values[end - 1] > clock) end -= 1;
    return end;
  }

  // `small`: squares of a pixel or two look the same as discs, and are painted sooner.
  paintDots(pen, start, clock, wanted, small = false) {
    const { dots, status } = this.run;
    const [xs, ys, who, rung] = [dots.x.values, dots.y.values, dots.who.values, dots.rung.values];
    const { ratio, discs } = this;
    const { low, high, end } = this.now;
    const across = ((this.width - BOX.left - BOX.right) / end) * ratio;
    const tall = (this.height - BOX.top - BOX.bottom) * ratio;
    const floor = (this.height - BOX.bottom) * ratio;
    let place = start;
    for (; place < dots.count && xs[place] <= clock; place += 1) {
      if (!wanted(who[place])) continue;
      const { disc, half, side } = discs[status.values[who[place]]][rung[place]];
      const share = (ys[place] < low ? 0 : ys[place] > high ? 1 : (ys[place] - low) / (high - low));
      if (small) pen.fillRect(BOX.left * ratio + xs[place] * across - side / 2, floor - share * tall - side / 2, side, side);
      else pen.drawImage(disc, BOX.left * ratio + xs[place] * across - half, floor - share * tall - half);
    }
    return place;
  }

  // Lines from rung to rung, of those that are still in the race.
  paintTrails(pen, clock) {
    const { dots, status } = this.run;
    if (dots.count > MOST_TRAILS) return;
    pen.strokeStyle = getComputedStyle(this.plot).getPropertyValue("--accent");
    pen.globalAlpha = 0.2;
    pen.lineWidth = this.ratio;
    pen.beginPath();
    for (let place = 0; place < dots.count && dots.x.values[place] <= clock; place += 1) {
      const before = dots.before.values[place];
      if (before < 0 || status.values[dots.who.values[place]] === DROPPED) continue;
      pen.moveTo(this.x(dots.x.values[before]) * this.ratio, this.y(dots.y.values[before]) * this.ratio);
      pen.lineTo(this.x(dots.x.values[place]) * this.ratio, this.y(dots.y.values[place]) * this.ratio);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawAxes() {
    const { low, high, end, step } = this.now;
    const cut = this.run.sample.some((score) => score < low); // those are drawn at the lower edge
    const key = [low, high, end, cut, this.width, this.height].join();
    if (key === this.drawnAxes) return;
    this.drawnAxes = key;
    const parts = [];
    const [left, right, bottom] = [BOX.left, this.width - BOX.right, this.height - BOX.bottom];
    const label = (y, text) => parts.push(draw("text", { x: left - 8, y: y + 4, class: "tick", "text-anchor": "end" }, text));
    if (cut) label(bottom, `\u2264 ${this.shown.score(low, step / 5)}`);
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step / 1e6; value += step) {
      const y = this.y(value);
      parts.push(draw("line", { x1: left, x2: right, y1: y, y2: y, class: "hair" }));
      if (!cut || y < bottom - 20) label(y, this.shown.score(value, step));
    }
    const wide = timeStep(end / (this.width < 500 ? 4 : 8));
    for (let value = 0; value <= end + wide / 1e6; value += wide) {
      parts.push(draw("text", { x: this.x(value), y: bottom + 18, class: "tick", "text-anchor": value ? (this.x(value) > right - 16 ? "end" : "middle") : "start" }, duration(value)));
    }
    parts.push(draw("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    parts.push(draw("text", { x: 0, y: 12, class: "name" }, this.shown.metric()));
    parts.push(draw("text", { x: right, y: bottom + 34, class: "name", "text-anchor": "end" }, "time"));
    this.axes.replaceChildren(...parts);
  }

  drawBest(clock, now) {
    const { highs } = this.run;
    this.bestLength = highs.length;
    this.bestDrawn = now;
    const seen = highs.filter(([time, score]) => time <= clock && score >= this.now.low);
    const steps = seen.map(([time, score], place) => (place ? `H${this.x(time).toFixed(1)}V${this.y(score).toFixed(1)}` : `M${this.x(time).toFixed(1)} ${this.y(score).toFixed(1)}`));
    if (seen.length) steps.push(`H${this.x(Math.max(Math.min(clock, this.run.time, this.now.end), seen.at(-1)[0])).toFixed(1)}`);
    this.best.setAttribute("d", steps.join(""));
    this.drawRange();
  }

  drawRange() {
    const known = this.expected();
    const [low, high] = known ? [this.y(known[0]), this.y(known[1])] : [0, 0];
    const right = this.width - BOX.right;
    for (const part of [this.range, this.rangeName]) part.setAttribute("visibility", known ? "visible" : "hidden");
    fill(this.range, { x: BOX.left, width: Math.max(0, right - BOX.left), y: high, height: Math.max(1, low - high) }, []);
    fill(this.rangeName, { x: right - 6, y: Math.max(12, high - 7) }, []);
  }

  // The networks of the final model, each with the way that it has taken.
  lightUp() {
    const { dots, last, chosen, end } = this.run;
    const isNew = this.lit !== end && end;
    this.lit = end;
    const [rings, trails] = [[], []];
    chosen.forEach((number, place) => {
      let dot = last.at(number) - 1;
      if (dot < 0) return;
      const style = `animation-delay:${Math.min(place * 60, 1500)}ms`;
      rings.push(draw("circle", { cx: this.x(dots.x.at(dot)).toFixed(1), cy: this.y(dots.y.at(dot)).toFixed(1), r: 6, class: isNew ? "lit rises" : "lit", style }));
      const way = [];
      for (; dot >= 0; dot = dots.before.at(dot)) way.push(`${this.x(dots.x.at(dot)).toFixed(1)} ${this.y(dots.y.at(dot)).toFixed(1)}`);
      if (way.length > 1) trails.push(draw("path", { d: `M${way.join("L")}`, class: "trail" }));
    });
    this.rings.replaceChildren(...rings);
    this.trails.replaceChildren(...trails);
    this.plot.classList.toggle("over", rings.length > 0);
  }

  // ---- one dot ----

  nearest(event) {
    if (!this.now) return -1;
    const edge = this.plot.getBoundingClientRect();
    const [x, y] = [event.clientX - edge.left, event.clientY - edge.top];
    let [found, least] = [-1, 18 * 18];
    for (let place = 0; place < this.painted; place += 1) {
      const across = this.x(this.run.dots.x.values[place]) - x;
      if (across * across > least) continue;
      const distance = across * across + (this.y(this.run.dots.y.values[place]) - y) ** 2;
      if (distance < least) [found, least] = [place, distance];
    }
    return found;
  }

  choose(place) {
    if (place === this.chosen) return;
    this.chosen = place;
    this.tip.classList.toggle("on", place >= 0);
    this.focus.setAttribute("visibility", place < 0 ? "hidden" : "visible");
    if (place < 0) return;
    const { dots, recipes } = this.run;
    const recipe = recipes[dots.who.at(place)];
    const [x, y] = [this.x(dots.x.at(place)), this.y(dots.y.at(place))];
    this.focus.setAttribute("cx", x);
    this.focus.setAttribute("cy", y);
    this.tip.replaceChildren(
      make("strong", {}, `Recipe ${recipe.number}: ${this.shown.score(dots.y.at(place))}`),
      make("span", {}, `${recipeWords(recipe)}; ${this.shown.fate(this.run.status.at(recipe.number))}`),
    );
    this.tip.style.left = `${Math.max(0, Math.min(this.width - this.tip.offsetWidth, x - this.tip.offsetWidth / 2))}px`;
    this.tip.style.top = `${y > this.tip.offsetHeight + 18 ? y - this.tip.offsetHeight - 14 : y + 16}px`;
  }
}

// What is known of a run after some of its events. Knows nothing of the page.
const [GOING, DROPPED, DONE, CHOSEN] = [0, 1, 2, 3]; // what became of a candidate

// Numbers in an array that grows.
class Column {
  constructor(kind) {
    this.values = new kind(1024);
    this.length = 0;
  }

  set(place, value) {
    if (place >= this.values.length) {
      const larger = new this.values.constructor(Math.max(place + 1, 2 * this.values.length));
      larger.set(this.values);
      this.values = larger;
    }
    this.values[place] = value;
    if (place >= this.length) this.length = place + 1;
  }

  at(place) {
    return place < this.length ? this.values[place] : 0;
  }
}

// One property of recipes: how many were tried with each value, and the best score.
class Tally {
  constructor(label, nameOf) {
    Object.assign(this, { label, nameOf, rows: new Map() });
  }

  add(recipe, score, isNew) {
    const [order, name] = this.nameOf(recipe);
    if (!this.rows.has(name)) this.rows.set(name, { order, name, count: 0, best: null });
    const row = this.rows.get(name);
    row.count += isNew ? 1 : 0;
    if (score !== null && (row.best === null || score > row.best)) row.best = score;
  }
}

function widthOf(hidden) {
  return hidden ? hidden.split("-").reduce((sum, one) => sum + Number(one), 0) : 0;
}

function widthName({ width }) {
  if (!width) return [0, "linear"];
  const power = Math.max(3, Math.ceil(Math.log2(width)));
  return [power, power === 3 ? "up to 8 neurons" : `${2 ** (power - 1) + 1}\u2013${2 ** power} neurons`];
}

const RATES = [0.0003, 0.001, 0.003, 0.01, 0.03];

function rateName({ rate }) {
  const place = RATES.findIndex((limit) => rate < limit);
  if (place === 0) return [0, `below ${RATES[0]}`];
  return place < 0 ? [RATES.length, `${RATES.at(-1)} and more`] : [place, `${RATES[place - 1]}\u2013${RATES[place]}`];
}

class Run {
  constructor() {
    Object.assign(this, {
      time: 0, about: {}, started: null, latest: {}, notes: [], rungs: [], end: null, steps: [],
      tried: 0, trained: 0, // recipes; recipes with each of their seeds
      diverged: 0, changed: 0, // counts what changes dots that were painted
    });
    this.dots = { x: new Column(Float32Array), y: new Column(Float32Array), who: new Column(Int32Array), before: new Column(Int32Array), rung: new Column(Uint8Array), count: 0 };
    this.last = new Column(Int32Array); // of each candidate: its last dot, plus one
    this.status = new Column(Uint8Array);
    this.recipes = [];
    this.sinceRung = [];
    this.dotsUntil = 0;
    this.chosen = [];
    this.highest = -Infinity;
    this.highs = []; // when a dot was higher than all before: [seconds, score]
    this.sample = []; // scores, for the scale
    this.tallies = [
      new Tally("Activation", ({ activation }) => [0, activation]),
      new Tally("Width", widthName),
      new Tally("Learning rate", rateName),
      new Tally("Encoding of numbers", ({ encoding }) => [0, encoding]),
    ];
  }

  apply(event) {
    if (typeof event.t === "number") this.time = Math.max(this.time, event.t);
    const known = {
      begin: () => this.beginAgain(event),
      started: () => { this.started = event; this.dotsUntil = event.t; },
      now: () => { this.latest = event; },
      note: () => { this.notes.push(event); },
      dots: () => this.addDots(event),
      rung: () => this.endRung(event),
      epoch: () => { this.steps.push(event); },
      fold: () => { this.steps.push(event); },
      logged: () => { this.steps.push(event); },
      sample: () => { this.steps.push(event); },
      end: () => this.finish(event),
      tested: () => { this.end = { ...this.end, ...event }; },
    };
    if (!Object.hasOwn(known, event.e)) return;
    try { known[event.e](); } catch { /* a damaged line, or another program's: the rest is shown */ }
  }

  // A resumed run has no model yet.
  beginAgain(event) {
    [this.about, this.end] = [event, null];
    for (const number of this.chosen) this.status.set(number, DONE);
    this.chosen = [];
    this.changed += 1;
  }

  addDots({ t, stage, dots }) {
    const [from, span] = [this.dotsUntil, t - this.dotsUntil];
    dots.forEach(([number, score, epochs, hidden, activation, rate, encoding], place) => {
      // A resumed run trains and tells again what a killed one had not saved.
      const [isTold, isFirst] = [activation !== undefined, this.recipes[number] === undefined];
      const isNew = isTold && isFirst && stage !== "more seeds";
      if (isTold && isFirst) {
        this.recipes[number] = { number, hidden, activation, rate, encoding, width: widthOf(hidden), score: null, epochs: 0 };
        this.trained += 1;
        this.tried += isNew ? 1 : 0;
      }
      const recipe = this.recipes[number];
      if (!recipe || epochs <= recipe.epochs) return;
      [recipe.score, recipe.epochs] = [score, epochs];
      for (const tally of this.tallies) tally.add(recipe, score, isNew);
      if (score === null) this.diverged += 1;
      else this.addDot(number, from + (span * (place + 1)) / dots.length, score);
      this.sinceRung.push(number);
    });
    this.dotsUntil = t;
  }

  addDot(number, x, score) {
    const { dots } = this;
    const before = this.last.at(number) - 1;
    dots.x.set(dots.count, x);
    dots.y.set(dots.count, score);
    dots.who.set(dots.count, number);
    dots.before.set(dots.count, before);
    dots.rung.set(dots.count, before < 0 ? 0 : Math.min(7, dots.rung.at(before) + 1));
    dots.count += 1;
    this.last.set(number, dots.count);
    this.status.set(number, GOING);
    if (score > this.highest) {
      this.highest = score;
      this.highs.push([x, score]);
    }
    if (this.sample.length < 2000) this.sample.push(score);
    else if (dots.count % Math.ceil(dots.count / 2000) === 0) this.sample[(dots.count * 7919) % 2000] = score;
  }

  endRung({ t, stage, trained, kept }) {
    const going = kept === "all" ? null : new Set(kept);
    const after = stage === "measuring" ? DROPPED : DONE;
    for (const number of this.sinceRung) {
      const fate = going === null ? after : going.has(number) ? GOING : DROPPED;
      if (this.status.at(number) === CHOSEN || fate === GOING) continue;
      this.status.set(number, fate);
    }
    this.sinceRung = [];
    this.changed += 1;
    this.rungs.push({ t, stage, trained, kept: going === null ? trained : going.size });
    this.dotsUntil = t;
  }

  // How many recipes are still trained further, or wait for that.
  inTheRace() {
    return this.recipes.reduce((sum, recipe) => sum + (recipe && recipe.score !== null && this.status.at(recipe.number) === GOING ? 1 : 0), 0);
  }

  finish(event) {
    this.end = event;
    this.chosen = (event.ensemble || []).map(([number]) => number).filter((number) => this.recipes[number]);
    const found = this.recipes.filter(Boolean);
    const most = found.reduce((sum, { epochs }) => Math.max(sum, epochs), 0);
    for (const { number, epochs } of found) if (this.status.at(number) === GOING) this.status.set(number, epochs === most ? DONE : DROPPED);
    for (const number of this.chosen) this.status.set(number, CHOSEN);
    this.changed += 1;
  }
}

// Words, numbers and tables beside the picture. Each element is changed only where its text has changed.
const NONE = "\u2013";

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function counted(number, what) {
  return `${number.toLocaleString("en-US")} ${what}${number === 1 ? "" : "s"}`;
}

function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  const two = (number) => String(number).padStart(2, "0");
  if (whole % 60 === 0 && !hours) return `${minutes} min`;
  return hours ? `${hours}:${two(minutes)} h` : `${minutes}:${two(whole % 60)} min`;
}

function significant(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  return Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

function recipeWords({ hidden, activation, rate, encoding }) {
  return `${hidden ? hidden.replaceAll("-", "\u2013") : "linear"}, ${activation}, rate ${significant(rate, 2)}, ${encoding} numbers`;
}

// How scores are written: as in the report, shares as percentages.
class Shown {
  constructor(run) {
    this.run = run;
  }

  metric() {
    return this.run.about.metric || "score";
  }

  score(value, step = null) {
    if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
    if (this.run.about.percent) {
      const decimals = step === null ? 1 : Math.max(0, Math.min(3, -Math.floor(Math.log10(step * 100 + 1e-12))));
      return `${(value * 100).toFixed(decimals)}%`;
    }
    if (step !== null) return value.toFixed(Math.max(0, Math.min(6, -Math.floor(Math.log10(step + 1e-12)))));
    return Math.abs(value) < 1e4 && (!value || Math.abs(value) >= 1e-3) ? value.toPrecision(4) : significant(value);
  }

  fate(status) {
    return ["still in the race", "dropped", "trained to its end", "in the final model"][status];
  }
}

const STAGES = {
  measuring: "Measuring the speed", searching: "Searching", "more seeds": "More seeds of the best", repeating: "Repeating an earlier run",
};

function stageWords(run, state) {
  if (state === "gone") return "The run folder is empty: nothing was saved";
  if (state === "ended") return run.end ? "Ended early, with the best so far" : "Ended before it was finished. The same command resumes it.";
  if (state === "finished") return run.end && run.end.ended === "interrupted" ? "Ended early, with the best so far" : "Finished";
  if (run.end) return "Saving";
  if (run.about.kind !== "search") return run.started ? "Training" : "Preparing";
  if (!run.started) return "Encoding the table";
  if (!run.latest.stage) return "Training begins";
  return STAGES[run.latest.stage] || run.latest.stage;
}

function timeWords(run, clock, state) {
  const used = duration(clock);
  if (state !== "running" || run.end) return `${used} used`;
  const { budget } = run.about;
  const share = run.latest.share || 0;
  const left = budget ? budget - clock : share > 0.02 ? clock * (1 / share - 1) : null;
  return left === null ? `${used} used` : `${used} used, ${budget ? "" : "about "}${duration(left)} left`;
}

function shareDone(run, clock, state) {
  if (state === "finished" || run.end) return 1;
  const { budget } = run.about;
  return Math.min(1, budget ? clock / budget : run.latest.share || 0);
}

function headline(run, shown) {
  const { end, latest, tried } = run;
  const metric = shown.metric();
  if (end && end.score) {
    const { corrected, low, high, problem, raw } = end.score;
    if (problem) return [shown.score(raw), `${metric} of the final model on the rows it did not train on; ${problem}.`];
    return [shown.score(corrected), `${metric} to expect on new rows; the 95% interval is ${shown.score(low)} to ${shown.score(high)}.${tried > 1 ? ` Corrected for choosing among ${counted(end.recipes || tried, "recipe")}.` : ""}`];
  }
  if (!latest.best || latest.best[1] === null) return [NONE, "Nothing has been measured yet."];
  const range = latest.range ? ` Choosing the best flatters it: expect about ${shown.score(latest.range[0])} to ${shown.score(latest.range[2])} on new rows.` : "";
  return [shown.score(latest.best[1]), `${metric} of the best of ${counted(tried, "recipe")} so far.${range}`];
}

// ---- what was tried ----

class Tallies {
  constructor(place, shown) {
    Object.assign(this, { place, shown, tables: new Map() });
    place.classList.add("tallies");
  }

  update(run) {
    for (const tally of run.tallies) {
      let table = this.tables.get(tally.label);
      if (!table) {
        const body = make("tbody");
        const head = make("tr", {}, make("th", { scope: "col" }, tally.label), make("td", { class: "bars" }), make("th", { scope: "col", class: "number" }, "tried"), make("th", { scope: "col", class: "number" }, "best"));
        this.place.append(make("table", { class: "tally" }, make("caption", { class: "unseen" }, `Recipes tried by ${tally.label.toLowerCase()}`), make("thead", {}, head), body));
        table = { body, rows: new Map() };
        this.tables.set(tally.label, table);
      }
      this.fillTable(table, [...tally.rows.values()].sort((a, b) => a.order - b.order || (a.name < b.name ? -1 : 1)));
    }
  }

  fillTable(table, rows) {
    const most = Math.max(1, ...rows.map(({ count }) => count));
    const best = Math.max(...rows.map((row) => row.best ?? -Infinity));
    if (rows.length !== table.rows.size || rows.some(({ name }) => !table.rows.has(name))) {
      table.rows = new Map(rows.map(({ name }) => {
        const bar = make("div", { class: "amount" });
        const [count, score] = [make("td", { class: "number" }), make("td", { class: "number" })];
        const line = make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "bars" }, bar), count, score);
        return [name, { line, bar, count, score }];
      }));
      table.body.replaceChildren(...[...table.rows.values()].map(({ line }) => line));
    }
    for (const row of rows) {
      const cells = table.rows.get(row.name);
      cells.bar.style.transform = `scaleX(${(row.count / most).toFixed(3)})`;
      say(cells.count, row.count.toLocaleString("en-US"));
      say(cells.score, this.shown.score(row.best));
      cells.line.classList.toggle("leads", row.best !== null && row.best === best);
    }
  }
}

// ---- facts, notes, tables ----

function searchFacts(run, state) {
  const { about, latest, started } = run;
  const going = state === "running" && !run.end;
  const found = [
    ["in the race now", going && run.tried ? counted(run.inTheRace(), "recipe") : NONE],
    ["recipes tried", run.tried ? ((run.end && run.end.recipes) || run.tried).toLocaleString("en-US") : NONE],
    ["networks trained", run.tried && started ? (run.trained * started.folds).toLocaleString("en-US") : NONE],
    ["trains on", started && started.workers ? started.workers : about.threads ? counted(about.threads, "thread") : NONE],
    ["rows and folds", started ? `${counted(started.rows, "row")}, ${about.folds || counted(started.folds, "fold")}` : NONE],
    ["process", about.host ? `${about.pid} on ${about.host}` : NONE],
    ["the budget reduced", about.reduced || null],
    ["diverged", run.diverged ? counted(run.diverged, "recipe") : null],
  ];
  if (latest.workers) {
    const [workers, busy, done, waiting, lost, repeated] = latest.workers;
    found.push(["workers busy", going ? `${busy} of ${workers}` : NONE]);
    found.push(["shards done", `${done.toLocaleString("en-US")}${going ? `, ${waiting.toLocaleString("en-US")} waiting` : ""}`]);
    found.push(["workers lost", `${lost || "none"}${lost && going ? `; now there ${workers === 1 ? "is" : "are"} ${workers}` : ""}`]);
    found.push(["shards repeated", repeated ? repeated.toLocaleString("en-US") : "none"]);
  }
  return found;
}

class Facts {
  constructor(place) {
    Object.assign(this, { place, cells: new Map() });
  }

  update(pairs) {
    for (const [name, value] of pairs) {
      if (value === null || value === undefined) continue;
      if (!this.cells.has(name)) {
        const cell = make("dd");
        this.place.append(make("div", {}, make("dt", {}, name), cell));
        this.cells.set(name, cell);
      }
      say(this.cells.get(name), String(value));
    }
  }
}

class Notes {
  constructor(place) {
    Object.assign(this, { place, shown: null, count: 0 });
  }

  update(run) {
    if (run !== this.shown) this.place.replaceChildren();
    if (run !== this.shown) [this.shown, this.count] = [run, 0];
    for (; this.count < run.notes.length; this.count += 1) {
      const { t, text } = run.notes[this.count];
      this.place.append(make("li", {}, make("span", { class: "when" }, duration(t)), ` ${text}`));
    }
  }
}

class Table {
  constructor(place, caption, names) {
    this.body = make("tbody");
    this.size = names.length;
    const heads = names.map(([name, kind]) => make("th", { scope: "col", class: kind }, name));
    this.kinds = names.map(([, kind]) => kind);
    Table.count = (Table.count || 0) + 1;
    const id = `live-table-${Table.count}`;
    const table = make("table", {}, make("caption", { id }, caption), make("thead", {}, make("tr", {}, ...heads)), this.body);
    place.append(make("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": id }, table));
  }

  update(rows) {
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    while (this.body.rows.length < rows.length) {
      this.body.append(make("tr", {}, ...this.kinds.map((kind, place) => make(place ? "td" : "th", place ? { class: kind } : { scope: "row", class: kind }))));
    }
    rows.forEach((cells, place) => cells.forEach((text, column) => say(this.body.rows[place].cells[column], text)));
  }
}

class SearchTables {
  constructor(place, shown) {
    this.shown = shown;
    this.best = new Table(place, "The ten best recipes so far", [["score", "number"], ["recipe", "number"], ["network", ""], ["epochs", "number"], ["state", ""]]);
    const more = make("details", {}, make("summary", {}, "Every rung"));
    place.append(more);
    this.rungs = new Table(more, "Rungs: how many recipes were trained, and how many continued", [["time", "number"], ["stage", ""], ["trained", "number"], ["continued", "number"]]);
  }

  update(run) {
    const top = [];
    for (const recipe of run.recipes) {
      if (!recipe || recipe.score === null || (top.length === 10 && recipe.score <= top[9].score)) continue;
      top.push(recipe);
      top.sort((a, b) => b.score - a.score);
      top.length = Math.min(top.length, 10);
    }
    this.best.update(top.map((one) => [this.shown.score(one.score), String(one.number), recipeWords(one), String(one.epochs), this.shown.fate(run.status.at(one.number))]));
    this.rungs.update(run.rungs.slice(-200).reverse().map(({ t, stage, trained, kept }) => [duration(t), stage, trained.toLocaleString("en-US"), kept.toLocaleString("en-US")]));
  }
}

// What a training and a fine-tuning run show.
function trainingView() {
  at("rows").hidden = true;
  at("charts").hidden = false;
  const place = at("lines");
  const loss = new Chart(place, "Loss", ["training", "validation"]);
  const accuracy = new Chart(place, "Share right", ["validation"], (value) => `${(100 * value).toFixed(1)}%`);
  const each = new Chart(place, "Training loss of each worker", Array.from({ length: 8 }, (_, rank) => `worker ${rank + 1}`));
  const seconds = new Chart(place, "Seconds of an epoch", ["computing", "communicating", "predicted"]);
  const table = readingsTable("Every epoch", [["epoch", "number"], ["training loss", "number"], ["validation loss", "number"], ["seconds", "number"], ["communicating", "number"]]);
  return {
    paint() {},
    tables(run) {
      table(epochsOf(run).map((one) => [String(one.epoch), significant(one.train_loss), significant(one.valid_loss), significant(one.seconds, 3), share(one.communicating)]));
    },
    panels(run) {
      const { started, about } = run;
      const epochs = epochsOf(run);
      say(at("title"), about.net ? `Training ${about.net} on ${about.title}` : about.title || data.run);
      const [figure, meaning] = trainingHeadline(run, epochs);
      sayFigure(figure);
      say(at("meaning"), meaning);
      loss.update([pairsOf(epochs, "epoch", "train_loss"), pairsOf(epochs, "epoch", "valid_loss")], "epoch");
      accuracy.update([pairsOf(epochs, "epoch", "valid_accuracy")], "epoch");
      const own = epochs.filter(({ losses }) => losses && losses.filter((one) => one !== null).length > 1);
      each.update(Array.from({ length: 8 }, (_, rank) => own.map((step) => [step.epoch, step.losses[rank] ?? NaN])), "epoch");
      const timed = epochs.filter((step) => typeof step.seconds === "number");
      const part = (of) => timed.map((step) => [step.epoch, step.seconds * of(step.communicating || 0)]);
      const { predicted } = about;
      const expected = predicted && predicted.seconds_per_epoch ? timed.map((step) => [step.epoch, predicted.seconds_per_epoch]) : [];
      seconds.update([part((of) => 1 - of), started && started.workers > 1 ? part((of) => of) : [], expected], "epoch");
      facts.update(trainingFacts(run, timed));
    },
  };
}

// Epochs count from 1, as on the command line.
function epochsOf({ steps }) {
  return steps.filter((step) => typeof step.epoch === "number").map((step) => ({ ...step, epoch: step.epoch + 1 }));
}

function share(value) {
  return typeof value === "number" ? `${Math.round(100 * value)}%` : NONE;
}

function trainingHeadline({ end, latest }, epochs) {
  const metrics = (end && end.metrics) || {};
  if (typeof metrics.test_accuracy === "number") return [`${(100 * metrics.test_accuracy).toFixed(1)}%`, "of the test rows right"];
  if (typeof metrics.test_r2 === "number") return [significant(metrics.test_r2), "R\u00b2 on the test rows: the share of the differences that is explained"];
  const valid = pairsOf(epochs, "epoch", "valid_loss").at(-1);
  if (valid) return [significant(valid[1]), `loss on the validation rows after epoch ${valid[0]}, lower is better`];
  return typeof latest.loss === "number" ? [significant(latest.loss), "training loss of this epoch so far, lower is better"] : [NONE, "Nothing has been measured yet."];
}

function trainingFacts({ started, latest, about, end, steps }, timed) {
  const several = started && started.workers > 1;
  const last = timed.at(-1) || {};
  const fold = steps.filter((step) => step.e === "fold").at(-1);
  const found = [
    ["epoch", latest.epoch === undefined && !last.epoch ? NONE : `${Math.max(latest.epoch + 1 || 0, last.epoch || 0)}${started ? ` of ${started.epochs}` : ""}`],
    ["strategy", started ? `${started.strategy}, ${counted(started.workers, "worker")}${several ? ` (${started.backend})` : ""}` : NONE],
    ["rows", started ? started.rows.toLocaleString("en-US") : NONE],
    ["parameters", started ? started.parameters.toLocaleString("en-US") : NONE],
    ["rows a second", last.samples_per_second ? Math.round(last.samples_per_second).toLocaleString("en-US") : NONE],
    ["communicating", several && typeof last.communicating === "number" ? `${share(last.communicating)} of the time` : null],
    ["folds done", fold ? `${fold.fold + 1} of ${fold.folds}` : null],
    ["process", about.host ? `${about.pid} on ${about.host}` : NONE],
  ];
  return about.predicted ? [...found, ...predictedFacts(about.predicted, end || {}, timed)] : found;
}

// What a plan has predicted, and what was measured: until the end, the mean so far.
function predictedFacts(predicted, { metrics = {}, waited }, timed) {
  const mean = timed.length ? timed.reduce((sum, { seconds }) => sum + seconds, 0) / timed.length : null;
  const score = metrics[`test_${predicted.metric}`];
  const said = (name, before, now) => (typeof before === "number" ? [[name, `${significant(before)} predicted${typeof now === "number" ? `, ${significant(now)} measured` : ""}`]] : []);
  return [
    ...said("seconds an epoch", predicted.seconds_per_epoch, metrics.seconds_per_epoch ?? mean),
    ...said("seconds in all", predicted.seconds, predicted.start_seconds ? waited : metrics.seconds),
    ...said(`${predicted.metric === "r2" ? "R\u00b2" : predicted.metric} on the test rows`, predicted.accuracy, score),
  ];
}

// The numbers of the charts as a table, at most a hundred rows of it; returns what updates it.
function readingsTable(caption, names) {
  const more = make("details", {}, make("summary", {}, "As a table"));
  at("lines").after(more);
  const table = new Table(more, caption, names);
  return (rows) => {
    const every = Math.ceil(rows.length / 100);
    table.update(rows.filter((_, place) => every < 2 || place % every === 0 || place === rows.length - 1));
  };
}

function finetuneView() {
  at("charts").hidden = false;
  at("tables").replaceChildren();
  const place = at("lines");
  const loss = new Chart(place, "Loss", ["training", "test"]);
  const rate = new Chart(place, "Learning rate", ["learning rate"]);
  const speed = new Chart(place, "Tokens a second", ["tokens a second"]);
  const table = readingsTable("Logged steps", [["step", "number"], ["training loss", "number"], ["test loss", "number"], ["learning rate", "number"], ["tokens a second", "number"]]);
  say(at("rows-heading"), "What it writes");
  let written = 0;
  return {
    paint() {},
    tables(run) {
      const logged = run.steps.filter((step) => step.e === "logged");
      table(logged.map((one) => [String(one.step), significant(one.loss), significant(one.eval_loss), significant(one.learning_rate, 3), significant(one.tokens_per_second, 3)]));
    },
    panels(run) {
      const { steps, latest, about, started } = run;
      say(at("title"), about.model ? `Fine-tuning ${about.model} on ${about.title}` : about.title || data.run);
      const tested = pairsOf(steps, "step", "eval_loss").at(-1);
      const found = tested ? tested[1] : latest.loss;
      sayFigure(significant(found));
      say(at("meaning"), tested ? "loss on the test texts, lower is better" : typeof found === "number" ? "training loss so far" : "Nothing has been measured yet.");
      loss.update([pairsOf(steps, "step", "loss"), pairsOf(steps, "step", "eval_loss")], "step");
      rate.update([pairsOf(steps, "step", "learning_rate")], "step");
      speed.update([pairsOf(steps, "step", "tokens_per_second")], "step");
      const samples = steps.filter((step) => step.e === "sample");
      if (samples.length !== written) {
        written = samples.length;
        const open = [...at("tables").querySelectorAll("details")].map((one) => one.open);
        const prompts = [...new Set(samples.map(({ prompt }) => prompt))];
        at("tables").replaceChildren(...prompts.map((prompt, place) => writtenFor(prompt, samples.filter((one) => one.prompt === prompt), open[place])));
      }
      facts.update([
        ["step", steps.length ? `${(pairsOf(steps, "step", "step").at(-1) || [0])[0].toLocaleString("en-US")}${about.steps ? ` of ${about.steps.toLocaleString("en-US")}` : ""}` : NONE],
        ["texts", started ? started.texts.toLocaleString("en-US") : NONE],
        ["tokens", started ? started.tokens.toLocaleString("en-US") : NONE],
        ["workers", about.workers ? String(about.workers) : NONE],
        ["process", about.host ? `${about.pid} on ${about.host}` : NONE],
      ]);
    },
  };
}

// What was written for a prompt: at first, at last, and what came between.
function writtenFor(prompt, texts, open) {
  const titles = { before: "Before training", after: "After training" };
  const block = ({ when, text }) => make("div", {}, make("h3", {}, Object.hasOwn(titles, when) ? titles[when] : `At ${when}`), make("pre", { tabindex: "0", dir: "auto" }, text.trim() || "(blank)"));
  const [first, between, last] = [texts[0], texts.slice(1, -1), texts.slice(1).at(-1)];
  const figure = make("figure", { class: "sample" }, make("figcaption", {}, prompt), block(first));
  if (between.length) figure.append(make("details", open ? { open: "" } : {}, make("summary", {}, `${counted(between.length, "text")} between`), ...between.map(block)));
  if (last) figure.append(block(last));
  return figure;
}

// What a training and a fine-tuning run show.
function trainingView() {
  at("rows").hidden = true;
  at("charts").hidden = false;
  const place = at("lines");
  const loss = new Chart(place, "Loss", ["training", "validation"]);
  const accuracy = new Chart(place, "Share right", ["validation"], (value) => `${(100 * value).toFixed(1)}%`);
  const each = new Chart(place, "Training loss of each worker", Array.from({ length: 8 }, (_, rank) => `worker ${rank + 1}`));
  const seconds = new Chart(place, "Seconds of an epoch", ["computing", "communicating", "predicted"]);
  return {
    paint() {},
    tables() {},
    panels(run) {
      const { steps, latest, started, about, end } = run;
      const valid = pairsOf(steps, "epoch", "valid_loss").at(-1);
      say(at("figure"), significant(valid ? valid[1] : latest.loss));
      say(at("meaning"), valid ? "loss on the validation rows after the last epoch" : typeof latest.loss !== "number" ? "Nothing has been measured yet." : "training loss of this epoch so far");
      loss.update([pairsOf(steps, "epoch", "train_loss"), pairsOf(steps, "epoch", "valid_loss")], "epoch");
      accuracy.update([pairsOf(steps, "epoch", "valid_accuracy")], "epoch");
      const own = steps.filter(({ losses }) => losses && losses.filter((one) => one !== null).length > 1);
      each.update(Array.from({ length: 8 }, (_, rank) => own.map((step) => [step.epoch, step.losses[rank] ?? NaN])), "epoch");
      const epochs = steps.filter((step) => typeof step.seconds === "number");
      const part = (share) => epochs.map((step) => [step.epoch, step.seconds * share(step.communicating || 0)]);
      const { predicted } = about;
      const expected = predicted && predicted.seconds_per_epoch ? epochs.map((step) => [step.epoch, predicted.seconds_per_epoch]) : [];
      seconds.update([part((share) => 1 - share), started && started.workers > 1 ? part((share) => share) : [], expected], "epoch");
      facts.update([
        ["strategy", started ? `${started.strategy}, ${counted(started.workers, "worker")}${started.workers > 1 ? ` (${started.backend})` : ""}` : null],
        ["rows", started ? started.rows.toLocaleString("en-US") : null],
        ["parameters", started ? started.parameters.toLocaleString("en-US") : null],
        ["epoch", latest.epoch === undefined ? null : `${latest.epoch + 1}${started ? ` of ${started.epochs}` : ""}`],
        ["rows a second", epochs.length ? Math.round(epochs.at(-1).samples_per_second || 0).toLocaleString("en-US") : null],
        ["communicating", started && started.workers > 1 && epochs.length ? `${Math.round(100 * (epochs.at(-1).communicating || 0))}% of the time` : null],
        ["seconds predicted", predicted ? significant(predicted.seconds, 3) : null],
        ["seconds measured", end && end.metrics ? significant(end.metrics.seconds, 3) : null],
        ["process", about.host ? `${about.pid} on ${about.host}` : null],
      ]);
    },
  };
}

function finetuneView() {
  at("charts").hidden = false;
  at("tables").replaceChildren();
  const place = at("lines");
  const loss = new Chart(place, "Loss", ["training", "test"]);
  const rate = new Chart(place, "Learning rate", ["learning rate"]);
  const speed = new Chart(place, "Tokens a second", ["tokens a second"]);
  say(at("rows-heading"), "What it writes");
  let written = 0;
  return {
    paint() {},
    tables() {},
    panels(run) {
      const { steps, latest, about, started } = run;
      const tested = pairsOf(steps, "step", "eval_loss").at(-1);
      const found = tested ? tested[1] : latest.loss;
      say(at("figure"), significant(found));
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
        ["texts", started ? started.texts.toLocaleString("en-US") : null],
        ["tokens", started ? started.tokens.toLocaleString("en-US") : null],
        ["model", about.model || null],
        ["workers", about.workers || null],
        ["process", about.host ? `${about.pid} on ${about.host}` : null],
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

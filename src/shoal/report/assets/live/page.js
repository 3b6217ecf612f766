// The page: takes events from the server or from its own data, and shows them as they come, or again from the beginning.
const data = JSON.parse(document.getElementById("live-data").textContent);
const at = (id) => document.getElementById(`live-${id}`);
const [TICK, PANELS, TABLES, BEHIND, REPLAY_SECONDS] = [80, 500, 2000, 2.2, 20];

const page = {
  run: new Run(), events: [], state: data.events === null ? "running" : "finished", arrived: 0, dirty: true,
  replay: null, panels: -Infinity, tables: -Infinity, report: "", asked: false, source: null, place: 0,
};
const shown = new Shown(page.run);
const STOP = { search: "Stop and keep the best", train: "Stop after this epoch and save", finetune: "Stop and save a checkpoint" }[data.kind] || "Stop";

// ---- what is shown ----

function current() {
  return page.replay ? page.replay.run : page.run;
}

// Seconds of the run, now.
function clockOf(now) {
  if (page.replay) return page.replay.clock;
  const { run, state } = page;
  return state === "running" && !run.end && page.arrived ? run.time + Math.min(30, (now - page.arrived) / 1000) : run.time;
}

function search() {
  at("population").hidden = at("tried").hidden = false;
  const dots = new Dots(at("dots"), shown);
  const summary = make("p", { id: "live-summary", class: "unseen" });
  const keys = ["in the race", "dropped", "trained to its end", "in the final model"].map((name, place) => make("span", { class: `key fate${place}` }, name));
  at("dots").prepend(make("p", { class: "small keys" }, make("span", {}, "A dot is a recipe, trained on every fold:"), ...keys, make("span", { class: "key bestline" }, "highest so far")));
  at("dots").append(player(), summary);
  const [tallies, tables] = [new Tallies(at("tallies"), shown), new SearchTables(at("tables"), shown)];
  let told = -Infinity;
  return {
    paint(run, clock, now) {
      dots.show(run, page.run.end || page.state !== "running" ? page.run.time : 0);
      const behind = page.replay || page.state !== "running" || run.end || still.matches ? 0 : BEHIND;
      dots.paint(behind ? clock - behind : Infinity, now);
    },
    panels(run, now) {
      tallies.update(run);
      facts.update(searchFacts(run, page.state));
      if (run.tried && now - told > 10000) {
        told = now;
        const rung = run.rungs.at(-1);
        say(summary, `${counted(run.tried, "recipe")} tried.${rung ? ` At the last rung, ${rung.kept} of ${rung.trained} continued.` : ""} The section "As a table" has the best ones.`);
      }
    },
    tables: (run) => tables.update(run),
  };
}

const [facts, notes] = [new Facts(at("facts")), new Notes(at("notes"))];
const views = { search, train: trainingView, finetune: finetuneView };
const view = (views[data.kind] || search)();
requestAnimationFrame(() => requestAnimationFrame(() => document.body.classList.remove("empty")));

// The number in large type; nothing is known yet: a faint dash that is no text.
function sayFigure(text) {
  say(at("figure"), text === NONE ? "" : text);
}

function updatePanels(run, clock, now) {
  const { about } = run;
  say(at("stage"), page.replay ? `Replay: ${stageWords(run, "running")}` : stageWords(run, page.state));
  const share = shareDone(run, clock, page.replay ? "running" : page.state);
  at("progress").setAttribute("aria-valuenow", Math.round(share * 100));
  at("progress").firstChild.style.transform = `scaleX(${share.toFixed(4)})`;
  if (data.kind === "search") {
    say(at("title"), about.target ? `Predicting ${about.target} in ${about.title}` : about.title || data.run);
    const [figure, meaning] = headline(run, shown);
    sayFigure(figure);
    say(at("meaning"), meaning);
  }
  notes.update(run);
  view.panels(run, now);
  say(document.head.querySelector("title"), [at("figure").textContent, about.title || data.run, "Shoal"].filter(Boolean).join(" \u00b7 "));
  showButtons();
}

function tick() {
  const now = performance.now();
  if (page.replay) advance(now);
  const [run, clock] = [current(), clockOf(now)];
  shown.run = run;
  if (document.hidden) return;
  const isDue = now - page.panels >= PANELS;
  if (isDue) {
    page.panels = now;
    say(at("time"), timeWords(run, clock, page.replay ? "replay" : page.state));
    if (page.dirty || page.replay) updatePanels(run, clock, now);
    else if (page.state === "running") {
      const share = shareDone(run, clock, page.state);
      at("progress").firstChild.style.transform = `scaleX(${share.toFixed(4)})`;
    }
    page.dirty = false;
    slide(clock, run);
  }
  if (now - page.tables >= TABLES) {
    page.tables = now;
    view.tables(run);
  }
  if (!still.matches || isDue) view.paint(run, clock, now);
}

// ---- replay ----

function player() {
  page.play = make("button", { type: "button" }, "Replay");
  page.slider = make("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Time of the run that is shown" });
  page.play.addEventListener("click", () => {
    if (!page.replay) restart(0);
    else if (page.replay.playing) { page.replay.playing = false; say(page.play, "Continue"); return; }
    page.replay.playing = true;
    page.replay.since = performance.now();
    say(page.play, "Pause");
  });
  page.slider.addEventListener("input", () => {
    const share = page.slider.value / 1000;
    if (share >= 1 && page.state === "running") { leave(); return; }
    restart(share * page.run.time);
    say(page.play, "Continue");
  });
  return make("div", { class: "player toggles" }, page.play, page.slider);
}

function restart(clock) {
  if (!page.replay || clock < page.replay.clock) page.replay = { run: new Run(), next: 0, clock: 0, playing: false, since: 0 };
  page.replay.playing = false;
  moveTo(clock);
  page.panels = -Infinity;
}

function leave() {
  page.replay = null;
  page.dirty = true;
  page.panels = -Infinity;
  say(page.play, "Replay");
}

function moveTo(clock) {
  const { replay } = page;
  replay.clock = clock;
  while (replay.next < page.events.length && page.events[replay.next].t <= clock) replay.run.apply(page.events[replay.next++]);
}

function advance(now) {
  const { replay } = page;
  if (!replay.playing) return;
  const passed = (now - replay.since) / 1000;
  replay.since = now;
  moveTo(replay.clock + (passed * page.run.time) / REPLAY_SECONDS);
  if (replay.clock >= page.run.time) leave();
}

function slide(clock, run) {
  if (!page.slider || document.activeElement === page.slider) return;
  page.slider.value = page.replay ? Math.round((1000 * clock) / Math.max(page.run.time, 1e-9)) : 1000;
}

// ---- stop ----

function showButtons() {
  const stoppable = data.events === null && page.state === "running" && !page.run.end;
  at("stop").hidden = !stoppable;
  at("to-report").hidden = !page.report || stoppable;
}

function askToStop() {
  const button = at("stop");
  if (page.asked) return;
  if (!button.classList.contains("sure")) {
    button.classList.add("sure");
    say(button, "Really stop? Click again");
    setTimeout(() => { if (!page.asked) { button.classList.remove("sure"); say(button, STOP); } }, 4000);
    return;
  }
  page.asked = true;
  button.setAttribute("aria-disabled", "true");
  say(button, "Stopping");
  page.source.close(); // browsers connect six times to a server, and five more pages may be open
  fetch(`stop${location.search}`, { method: "POST" }).finally(connect).then((answer) => {
    if (answer.ok) return null;
    page.asked = false;
    button.removeAttribute("aria-disabled");
    return answer.text().then((text) => say(button, text.trim()));
  }, () => {
    page.asked = false;
    button.removeAttribute("aria-disabled");
    say(button, "No connection. Click to try again");
  });
}

// ---- events ----

function take(lines, now) {
  for (const line of lines) {
    try { // a process was killed while it wrote, or somebody changed the file
      const event = JSON.parse(line);
      if (event === null || typeof event.e !== "string" || typeof event.t !== "number") continue;
      page.run.apply(event);
      page.events.push(event);
    } catch { continue; }
  }
  page.arrived = now;
  page.dirty = true;
}

function connect() {
  const source = new EventSource(`events${location.search}&from=${page.place}`);
  page.source = source;
  source.onopen = () => say(at("connection"), "");
  source.onmessage = (event) => {
    if (Number(event.lastEventId) <= page.place) return;
    page.place = Number(event.lastEventId);
    take(event.data.split("\n"), performance.now());
  };
  source.addEventListener("state", (event) => {
    const { state, report } = JSON.parse(event.data);
    page.state = state;
    page.dirty = true;
    if (report && report !== page.report && state !== "running") becomeReport(report);
  });
  source.addEventListener("over", () => source.close());
  source.addEventListener("again", () => location.reload()); // the run was begun anew
  source.onerror = () => {
    const ended = source.readyState === EventSource.CLOSED;
    say(at("connection"), ended ? "The server of this page has ended. To open it again: shoal watch" : "Connection lost. Trying again. If the run was killed: shoal watch");
  };
}

// The report comes below what is there, so that readers keep their place.
function becomeReport(version) {
  fetch(`report${location.search}`).then((answer) => (answer.ok ? answer.text() : null)).then((text) => {
    if (!text || page.report === version) return;
    page.report = version;
    const found = new DOMParser().parseFromString(text, "text/html");
    for (const odd of found.querySelectorAll("base, embed, form, iframe, link, meta, object")) odd.remove(); // in a folder of somebody else's, these might lead elsewhere
    const script = [...found.querySelectorAll("body > script")].find((one) => !one.type);
    const place = at("report");
    if (!script || script.textContent !== data.report_script) {
      at("to-report").setAttribute("href", `report${location.search}`); // of another version of Shoal
    } else {
      const parts = [found.querySelector("h1"), found.querySelector("nav"), ...found.querySelectorAll("main > section"), found.getElementById("report-data")];
      place.replaceChildren(...parts.filter(Boolean).map((part) => document.importNode(part, true)));
      place.append(make("script", {}, data.report_script));
    }
    page.dirty = true;
  }, () => {});
}

function start() {
  say(at("stop"), STOP);
  at("stop").addEventListener("click", askToStop);
  if (data.about) page.run.about = data.about; // so that the heading has its size before the first events
  if (data.events === null) connect();
  else {
    take(data.events.split("\n"), performance.now());
    if (!page.run.end) page.state = "ended";
    at("stop").parentElement.hidden = true;
  }
  tick();
  setInterval(tick, TICK);
}
start();

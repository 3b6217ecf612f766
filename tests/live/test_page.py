"""The live page in a real browser."""

import json
import re
import signal

import numpy as np
import pytest
from support.commands import start
from support.live import ABOUT, DOTS_SHOWN, FakeTime, dots, record_search, running, serving, watching
from support.pages import CONTRAST, NASTY, STRUCTURE
from support.waiting import wait_until

from shoal import ShoalClassifier
from shoal.live.page import REPORT_SCRIPTS, write_replay
from shoal.live.recorders import SearchRecorder
from shoal.live.recording import Recording
from shoal.report.shell.shell import scripts
from shoal.runs.kinds import FINETUNE, LIVE, STOP, TRAIN, read_run

SHIFTS = """() => { window.shift = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true }); }"""


@pytest.fixture
def run(tmp_path):
    """A folder, its recording, and the clock of that."""
    with running(tmp_path / "run") as folder:
        clock = FakeTime()
        recording = Recording(folder.path, print, clock)
        yield folder.path, recording, clock
        recording.close()


def text(page, name):
    return page.locator(f"#live-{name}").inner_text()


def test_a_real_search_is_seen_while_it_trains_is_stopped_and_becomes_the_report(window, tmp_path):
    search = start(tmp_path, "search", "--demo", "--budget", "600", "--live", "--out", "r", "--explain-seconds", "1")
    url = next(line for line in search.stdout if line.startswith("live page: ")).split()[-1]
    with watching(window, url) as page, watching(window, url, viewport={"width": 400, "height": 800}) as phone:
        page.evaluate(SHIFTS)
        wait_until(lambda: page.evaluate(DOTS_SHOWN) > 300, 120)
        assert search.poll() is None
        wait_until(lambda: phone.evaluate(DOTS_SHOWN) > 100, 120)
        assert re.search(r"accuracy of the best of \d+ recipes? so far", text(page, "meaning"))
        page.get_by_role("button", name="Stop and keep the best").click()
        assert not (tmp_path / "r" / STOP).exists()  # the first click only asks
        page.get_by_role("button", name="Really stop?").click()
        page.get_by_role("link", name="To the report").wait_for(timeout=120_000)
        phone.get_by_role("link", name="To the report").wait_for(timeout=120_000)
        out, err = search.communicate(timeout=120)
        assert search.returncode == 0, err
        assert "ended early by the live page" in out
        assert text(page, "stage").startswith("Ended early, with the best so far")
        assert re.search(r"accuracy to expect on new rows; the 95% interval is", text(page, "meaning"))
        page.locator("#leaderboard tbody tr").first.wait_for()  # the report's script works
        assert page.evaluate("scrollY") == 0  # the reader's place
        assert page.evaluate("window.shift") < 0.02
        assert phone.evaluate("document.documentElement.scrollWidth") == 400
    assert json.loads((tmp_path / "r" / "settings.json").read_text())["result"]["ended"] == "interrupted"
    assert not (tmp_path / "r" / STOP).exists()


def test_a_page_that_loses_its_server_says_so_and_continues_where_it_was(window, run):
    path, recording, clock = run
    tried = record_search(recording, clock)
    with serving(path) as server:
        port, token = server.server_address[1], server.token
        with watching(window, server.url) as page:
            page.get_by_text("of the best of 60 recipes so far").wait_for()
            server.close()
            page.get_by_text("Connection lost").wait_for()
            page.locator("#live-stop").click()
            page.locator("#live-stop").click()
            page.get_by_role("button", name="No connection. Click to try again").wait_for()
            recording.write("dots", stage="searching", dots=dots(tried, [0.95]))
            recording.write("now", stage="searching", tried=tried + 1, best=[tried, 0.95], range=None)
            with serving(path, port=port) as second:
                second.token = token
                page.get_by_text("of the best of 61 recipes so far").wait_for()
                assert text(page, "connection") == ""
                assert text(page, "figure") == "95.0%"
            page.complaints[:] = [line for line in page.complaints if "Failed to load resource" not in line]


def test_stop_works_when_one_browser_has_as_many_pages_as_it_may_connect(window, run):
    path, recording, clock = run
    tried = record_search(recording, clock)
    with serving(path) as server, watching(window, server.url) as page:
        page.get_by_text("of the best of 60 recipes so far").wait_for()
        for _ in range(5):
            other = page.context.new_page()
            other.goto(server.url)
            other.get_by_text("of the best of 60 recipes so far").wait_for()
        page.bring_to_front()
        page.locator("#live-stop").click()
        page.locator("#live-stop").click()
        wait_until(lambda: (path / STOP).exists())
        recording.write("dots", stage="searching", dots=dots(tried, [0.95]))
        recording.write("now", stage="searching", tried=tried + 1, best=[tried, 0.95], range=None)
        page.get_by_text("of the best of 61 recipes so far").wait_for()
        assert page.locator("#live-tables tbody").nth(1).locator("tr").count() == 3, "no rung came twice"


def test_a_killed_search_is_shown_as_it_was_when_it_ended(window, tmp_path):
    search = start(tmp_path, "search", "--demo", "--budget", "600", "--out", "r")
    for line in search.stderr:
        if re.search(r"searching: \d\d+ recipes", line):
            break
    search.send_signal(signal.SIGKILL)
    search.communicate()
    with serving(tmp_path / "r") as server, watching(window, server.url) as page:
        page.get_by_text("Ended before it was finished. The same command resumes it.").wait_for()
        assert page.evaluate(DOTS_SHOWN) > 50
        assert not page.get_by_role("button", name="Stop").is_visible()


def test_what_a_resumed_search_tells_again_counts_once(window, run):
    """A killed search had recorded more than it had saved, and an interrupted one had a model."""
    path, recording, clock = run
    tried = record_search(recording, clock)
    recording.write("end", last=True, score=None, ended="interrupted", ensemble=[[0, 1.0]], best=0)
    with serving(path) as server, watching(window, server.url) as page:
        wait_until(lambda: page.locator("circle.lit").count() == 1)
        clock.seconds += 5
        recording.write("begin", kind="search", host="here", pid=1, **ABOUT)
        recording.write("started", rows=100, folds=5, metric="accuracy", budget=60.0, workers=None)
        recording.write("dots", stage="searching", dots=dots(tried - 10, [0.7] * 12))
        recording.write("now", stage="searching", share=0.1, tried=tried + 2, best=[0, 0.9], range=None)
        page.get_by_text(f"of the best of {tried + 2} recipes so far").wait_for()
        wait_until(lambda: page.locator("circle.lit").count() == 0)
        wait_until(lambda: page.locator("#live-tallies tbody tr").first.locator("td").nth(1).inner_text() == "62")


def test_a_page_shows_the_run_that_was_begun_anew(window, run):
    path, recording, clock = run
    record_search(recording, clock)
    with serving(path) as server, watching(window, server.url) as page:
        page.get_by_text("of the best of 60 recipes so far").wait_for()
        recording.close()
        (path / LIVE).unlink()
        second = Recording(path, print, FakeTime())
        record_search(second, FakeTime(), rounds=1)
        page.get_by_text("of the best of 20 recipes so far").wait_for()
        second.close()


def test_a_report_that_somebody_else_wrote_reaches_nothing(window, run):
    """Opened alone, its scripts have no origin: no token, no cookies of other servers here, no requests."""
    path, _, _ = run
    tries = """document.title = [
      () => document.cookie, () => localStorage.length, () => parent.origin === "null" && self.origin,
    ].map((one) => { try { return one(); } catch (error) { return error.name; } }).join();
    fetch("/stop" + location.search, { method: "POST" }).catch(() => { document.body.append("refused"); });"""
    (path / "report.html").write_text(f"<body><script>{tries}</script>")
    with serving(path) as server, watching(window, server.url.replace("/?", "/report?")) as page:
        page.get_by_text("refused").wait_for()
        assert page.title() == "SecurityError,SecurityError,null"
        assert not (path / STOP).exists()
        page.complaints.clear()


def test_a_report_that_somebody_else_wrote_leads_nowhere(window, run):
    path, _, _ = run
    odd = "<meta http-equiv='refresh' content='0;url=about:blank'><base href='http://evil.example/'><iframe></iframe>"
    body = f"<main><section>{odd}<p>the report</p></section></main><script id='report-data' type='x'>{{}}</script>"
    (path / "report.html").write_text(f"<body>{body}<script>{scripts(REPORT_SCRIPTS['search'])}</script>")
    with serving(path) as server:
        server.state.is_over = True
        with watching(window, server.url) as page:
            page.get_by_text("the report", exact=True).wait_for()
            page.wait_for_timeout(500)  # in which it would go elsewhere
            assert page.url == server.url
            assert page.locator("#live-report :is(meta, base, iframe)").count() == 0
            page.complaints.clear()  # of the report's own script, which has no data


def test_hostile_names_are_text(window, run):
    path, recording, clock = run
    names = {**ABOUT, "title": NASTY, "target": NASTY, "metric": NASTY}
    recording.write("begin", kind="search", host=NASTY, pid=1, folds=NASTY, reduced=NASTY, **names)
    recording.write("started", rows=10, folds=3, metric=NASTY, budget=None, workers=NASTY)
    recording.write("note", text=NASTY)
    clock.seconds += 10
    recipe = [0, 0.7, 3, "64", NASTY, 0.01, NASTY]
    recording.write("dots", stage=NASTY, dots=[recipe, *dots(1, [0.6, None])])
    recording.write("now", stage="__proto__", share=0.1, tried=3, best=[0, 0.7], range=None)
    with open(path / "live.jsonl", "ab") as file:
        file.write(b'{"e":"__proto__","t":1}\n{"e":"constructor","t":1}\nnull\n[]\n{"e":5}\n{"e":"note"}\n')
        file.write(b'{"e":"dots","t":11,"dots":null}\n{"e":"rung","t":11,"kept":5}\n{"half')
    with serving(path) as server, watching(window, server.url) as page:
        page.get_by_text("of the best of 3 recipes so far").wait_for()
        assert page.locator("#live-title").text_content() == f"Predicting {NASTY} in {NASTY}"
        wait_until(lambda: page.locator("#live-tables tbody tr").count() >= 2)
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        replay = write_replay(read_run(path), path / "replay.html")
    assert "<img" not in replay.read_text(encoding="utf-8").split("live-data", 1)[1].split("</script>", 1)[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_it(window, run, scheme):
    """Structure, names and contrast; and the picture as a table."""
    path, recording, clock = run
    record_search(recording, clock)
    settings = {"color_scheme": scheme, "reduced_motion": "reduce", "viewport": {"width": 400, "height": 800}}
    with serving(path) as server, watching(window, server.url, **settings) as page:
        page.get_by_text("of the best of 60 recipes so far").wait_for()
        wait_until(lambda: page.locator("#live-tables tbody tr").count() >= 10)
        found = page.evaluate(STRUCTURE)
        assert {name: value for name, value in found.items() if value} == {}
        poor = [part for part in page.evaluate(CONTRAST) if part[0] < (3 if part[1] else 4.5)]
        assert poor == []
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        page.get_by_text("Every rung").click()
        assert page.locator("#live-tables details tbody tr").count() == 3
        assert "60 recipes tried" in page.locator("#live-summary").text_content()


def test_nothing_moves_on_a_phone_when_the_title_and_the_first_scores_arrive(window, run):
    path, recording, _ = run
    names = {**ABOUT, "title": "all the houses of the town.csv"}
    recording.write("begin", kind="search", host="here", pid=1, **names)
    recording.write("started", rows=10, folds=3, metric="accuracy", budget=60.0, workers=None)
    with serving(path) as server, watching(window, server.url, viewport={"width": 400, "height": 800}) as page:
        page.evaluate(SHIFTS)
        page.get_by_text("all the houses").wait_for()
        recording.write("dots", stage="searching", dots=dots(0, [0.8, 0.9, 0.7]))
        recording.write("now", stage="searching", tried=3, best=[1, 0.9], range=[0.85, 0.88, 0.9])
        page.get_by_text("of the best of 3 recipes so far").wait_for()
        assert page.evaluate("window.shift") < 0.01


def test_texts_of_a_fine_tuned_model_over_time(window, tmp_path):
    with running(tmp_path / "run", FINETUNE) as folder:
        recording = Recording(folder.path, print, FakeTime())
        recording.write("begin", kind="finetune", host="here", pid=1, title="texts.csv")
        for when in ("before", "step 10", "constructor"):
            recording.write("sample", when=when, prompt=NASTY, text=f"{NASTY} {when}")
        with serving(folder.path) as server, watching(window, server.url) as page:
            page.get_by_text("At constructor").wait_for()
            page.get_by_text("1 text between").click()
            recording.write("sample", when="after", prompt=NASTY, text="all learned")
            page.get_by_text("2 texts between").wait_for()
            assert page.locator(".sample h3").all_inner_texts() == [
                "Before training", "At step 10", "At constructor", "After training",
            ], "what was open stays open"  # fmt: skip
            assert page.evaluate("window.hacked") is None
        recording.close()


def test_what_trains_now_and_which_workers_were_lost(window, run):
    path, recording, clock = run
    tried = record_search(recording, clock)
    recording.write("dots", stage="searching", dots=dots(tried, [0.95, 0.96, None]))
    best, workers = [tried, 0.96], [2, 1, 40, 3, 1, 2]
    recording.write("now", stage="searching", tried=tried + 3, best=best, range=None, workers=workers)
    with serving(path) as server, watching(window, server.url) as page:
        page.get_by_text("of the best of 63 recipes so far").wait_for()
        facts = text(page, "facts")
        assert "in the race now\n32 recipes" in facts  # ten of each rung, and two that did not diverge
        for words in ("busy\n1 of 2", "done\n40, 3 waiting", "workers lost\n1; now there are 2", "repeated\n2"):
            assert words in facts
        recording.write("end", last=True, score=None, ended="", ensemble=[[0, 1.0]], best=0)
        wait_until(lambda: "in the race now\n\u2013" in text(page, "facts"))
        assert "workers busy\n\u2013" in text(page, "facts")


def test_more_seeds_of_a_recipe_are_no_more_recipes(window, tmp_path):
    """A real search with two seeds: page and leaderboard have the same number of recipes."""
    X = np.random.default_rng(0).normal(size=(120, 3))
    with running(tmp_path / "run") as folder, SearchRecorder(folder.path, ABOUT, print) as recorder:
        quick = {"recipes": 6, "seeds": 3, "epochs": 9, "cv": 2, "n_jobs": 1, "explain_seconds": 0}
        model = ShoalClassifier(**quick, callbacks=[recorder]).fit(X, X[:, 0] > 0)
        recipes, networks = len(model.board_), model.n_networks_
        assert networks > 2 * recipes
        with serving(folder.path) as server, watching(window, server.url) as page:
            page.get_by_text(f"Corrected for choosing among {recipes} recipes").wait_for()
            facts = text(page, "facts")
            assert f"recipes tried\n{recipes}\n" in facts
            assert f"networks trained\n{networks}\n" in facts
        lines = (folder.path / LIVE).read_text().splitlines(keepends=True)
        (folder.path / LIVE).write_text("".join(line for line in lines if '"e":"end"' not in line))
        with serving(folder.path) as server, watching(window, server.url) as page:  # as it was before the end
            page.get_by_text(f"accuracy of the best of {recipes} recipes so far").wait_for()


def test_a_replay_is_one_file_that_plays_and_can_be_moved(window, run):
    path, recording, clock = run
    tried = record_search(recording, clock, rounds=50, size=200)
    clock.seconds += 1
    score = {"raw": 0.9, "corrected": 0.88, "low": 0.85, "high": 0.9, "problem": ""}
    recording.write("end", last=True, score=score, ended="", ensemble=[[5, 0.5], [199, 0.5]], best=199)
    file = write_replay(read_run(path), path / "replay.html")
    assert tried == 10_000
    assert file.stat().st_size < 2e6
    with watching(window, file.as_uri()) as page:
        assert text(page, "figure") == "88.0%"
        assert page.locator("circle.lit").count() == 2
        whole = page.evaluate(DOTS_SHOWN)
        page.locator(".player input").evaluate("one => { one.value = 300; one.dispatchEvent(new Event('input')); }")
        page.get_by_text("of the best of 3,000 recipes so far").wait_for()
        assert text(page, "stage") == "Replay: Searching"
        assert 0 < page.evaluate(DOTS_SHOWN) < whole
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Pause").wait_for()
        page.get_by_text(re.compile(r"of the best of [5-9],\d{3} recipes so far")).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_training_is_legible_as_charts_and_as_a_table(window, tmp_path, scheme):
    with running(tmp_path / "run", TRAIN) as folder:
        recording = Recording(folder.path, print, FakeTime())
        predicted = {"seconds_per_epoch": 1.5, "seconds": 6.0, "start_seconds": 2.0, "metric": "r2", "accuracy": 0.9}
        about = {"title": "houses.csv", "net": "mlp:8-16-1", "predicted": predicted}
        recording.write("begin", kind="train", host="here", pid=1, **about)
        started = {"strategy": "local_sgd", "backend": "processes", "workers": 2, "rows": 100, "parameters": 161}
        recording.write("started", epochs=3, **started)
        for epoch in range(3):
            loss = 1 / (epoch + 1)
            record = {"epoch": epoch, "train_loss": loss, "valid_loss": loss + 0.1, "seconds": 2, "communicating": 0.25}
            recording.write("epoch", epochs=3, losses=[loss - 0.01, loss + 0.01], **record)
        settings = {"color_scheme": scheme, "viewport": {"width": 400, "height": 800}}
        with serving(folder.path) as server, watching(window, server.url, **settings) as page:
            page.get_by_text("loss on the validation rows after epoch 3").wait_for()
            assert text(page, "title") == "Training mlp:8-16-1 on houses.csv"
            assert "seconds an epoch\n1.5 predicted, 2 measured" in text(page, "facts")
            assert "seconds in all\n6 predicted\n" in text(page, "facts")
            page.locator("#live-charts summary").click()
            rows = page.locator("#live-charts tbody tr")
            wait_until(lambda: rows.count() == 3)
            assert rows.nth(2).inner_text().split("\t") == ["3", "0.3333", "0.4333", "2", "25%"]
            told = page.locator("#live-lines desc").all_text_contents()
            assert "worker 1: 0.99 at first, 0.3233 at last; worker 2: 1.01 at first, 0.3433 at last." in told
            found = page.evaluate(STRUCTURE)
            assert {name: value for name, value in found.items() if value} == {}
            assert [part for part in page.evaluate(CONTRAST) if part[0] < (3 if part[1] else 4.5)] == []
            assert page.evaluate("document.documentElement.scrollWidth") == 400
            recording.write("end", last=True, metrics={"seconds": 5.5, "seconds_per_epoch": 1.8})
            recording.write("tested", last=True, metrics={"seconds": 5.5, "test_r2": 0.8125}, waited=7.25)
            wait_until(lambda: text(page, "figure") == "0.8125")
            assert "seconds in all\n6 predicted, 7.25 measured" in text(page, "facts")
            assert "R\u00b2 on the test rows\n0.9 predicted, 0.8125 measured" in text(page, "facts")
        recording.close()

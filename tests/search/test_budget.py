"""A budget is a budget: how its seconds are shared out, what is left out where they are few, and Ctrl-C early on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.callbacks import watching
from support.commands import command, start

from shoal import ShoalClassifier
from shoal.cli import search_session
from shoal.metrics.find import find_metric
from shoal.metrics.tasks import Task
from shoal.search import fit, measuring
from shoal.search.conclude import conclude
from shoal.search.data import TrainingData
from shoal.search.ensemble import weigh
from shoal.search.honest import BOOTSTRAPS, ENSEMBLE_CANDIDATES, FEWEST_BOOTSTRAPS
from shoal.search.measuring import draw_rows
from shoal.search.schedule import Limits
from shoal.search.timing import (
    AFTER_INTERRUPT,
    FIRST_LOOK,
    SEARCH_SHARE,
    Clock,
    Effort,
    Pace,
    Passes,
    begin,
    finish,
)
from shoal.tables import csv_columns, files
from shoal.tables.schema import Schema
from shoal.tables.table import Table

FOLDS = (8, 3, 2)
seconds_a_row = st.floats(1e-8, 1e-3)
paces = st.builds(Pace, fixed=st.floats(0, 1), row=seconds_a_row, epoch=seconds_a_row, end=st.floats(1e-9, 1e-5))


class Machine:
    """A computer whose time passes with its work, and that becomes slower at some moment."""

    def __init__(self, slow_at: float, slower: float) -> None:
        self.time, self.slow_at, self.slower = 0.0, slow_at, slower

    def now(self) -> float:
        return self.time

    def speed(self) -> float:
        return self.slower if self.time >= self.slow_at else 1.0

    def work(self, seconds: float) -> None:
        fast = max(0.0, min(seconds, self.slow_at - self.time))
        self.time += fast + (seconds - fast) * self.slower


# ---- the plan ----


@settings(deadline=None)
@given(paces, st.floats(1, 1000), st.integers(20, 10_000_000))
def test_most_of_the_time_is_for_the_search_or_all_that_may_be_is_left_out(pace: Pace, left: float, rows: int) -> None:
    effort = begin(pace, left, rows, FOLDS, fewer_rows=True)
    kept, folds, encodings = effort.rows or rows, effort.folds or FOLDS[0], 0.5 if effort.encodings else 1.0
    other = pace.encoding(kept, folds, encodings) + pace.end * kept
    fits = other <= (1 - SEARCH_SHARE) * left and pace.look(kept, folds, encodings) <= FIRST_LOOK * left
    assert fits or (kept == min(rows, 2000) and folds == FOLDS[-1] and encodings == 0.5)
    if effort.rows is not None:
        assert folds == FOLDS[-1]  # rows go last
    assert begin(replace(pace, spare=False), left, rows, FOLDS, fewer_rows=True).encodings is None
    again = begin(pace, 1e9, rows, FOLDS, fewer_rows=True)
    assert again == Effort()
    assert begin(pace, left, rows, FOLDS, fewer_rows=False).rows is None


@settings(max_examples=200, deadline=None)
@given(
    paces, st.integers(1000, 1_000_000), st.floats(10, 300), st.floats(0.1, 0.5), st.floats(0, 400), st.floats(1, 2),
    st.floats(1e-9, 1e-7), st.floats(1e-9, 2e-8), st.integers(1, 400),
)  # fmt: skip
def test_a_run_ends_in_time_on_any_machine_that_may_become_twice_as_slow(
    pace: Pace, rows: int, budget: float, reading: float, slow_at: float, slower: float, whole: float, cell: float,
    candidates: int,
) -> None:  # fmt: skip
    """All phases on a clock of its own: each takes what was predicted, times what the machine has become slower by."""
    machine = Machine(slow_at, slower)
    clock = Clock(budget, machine.now(), now=machine.now)
    machine.work(reading * budget / slower)
    now = machine.speed()
    pace = Pace(pace.fixed, pace.row, pace.epoch, 37 * whole)
    told = Pace(now * pace.fixed, now * pace.row, now * pace.epoch, now * pace.end)
    effort = begin(told, clock.time_left(), rows, FOLDS, fewer_rows=True)
    rows, folds = effort.rows or rows, effort.folds or FOLDS[0]
    encodings = 0.5 if effort.encodings else 1.0
    machine.work(pace.encoding(rows, folds, encodings))
    while clock.left() > 0:  # training is stopped by the clock, a tenth of a second late at most
        passes = measured(machine, rows, whole, cell)
        clock.reserve = passes.reserve(budget, True, candidates, min(rows, 16_000))
        machine.time += max(min(clock.left(), budget / 10), 0.1)
    passes = measured(machine, rows, whole, cell)
    last, seconds = finish(passes, clock.time_left(), True, candidates, rows, min(rows, 16_000))
    known = min(candidates, ENSEMBLE_CANDIDATES)
    machine.work(passes.choosing(last.candidates or known) * (last.ensemble_rows or rows) / machine.speed())
    sampled = last.sampled or min(rows, 16_000)
    at_least = machine.now() + seconds  # more samples than the fewest are drawn until the clock says so
    machine.work(passes.scoring(known) * sampled / machine.speed())
    machine.time = max(machine.time, at_least)
    machine.work(passes.fixed(True) / machine.speed())
    if told.encoding(rows, folds, encodings) + told.end * rows <= (1 - SEARCH_SHARE) * budget * (1 - reading):
        assert machine.now() <= budget + max(2.0, 0.05 * budget)


def measured(machine: Machine, rows: int, whole: float, cell: float) -> Passes:
    """What a trial says now, if a row of a pass takes `whole` and a number of it `cell` on a fast machine."""
    return Passes(rows, whole * rows * machine.speed(), cell * machine.speed(), 0.3 * machine.speed())


def test_an_interrupt_is_a_budget_of_its_own() -> None:
    machine = Machine(1e9, 1.0)
    endless, short = Clock(None, 0.0, now=machine.now), Clock(10.0, 0.0, now=machine.now)
    machine.work(9.5)
    for clock, left in ((endless, AFTER_INTERRUPT), (short, 0.5)):
        clock.hurry()
        assert clock.time_left() == pytest.approx(left)
        assert clock.left() <= left


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(60, 400), st.integers(0, 5))
def test_rows_that_are_drawn_leave_no_class_out(classes: int, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    y = np.where(random.random(2000) < 0.99, 0, random.integers(classes, size=2000))
    rows = draw_rows(y, Task("classification", classes), count, seed)
    assert len(np.unique(rows)) == len(rows) == count
    assert (np.diff(rows) > 0).all()
    for k in range(classes):
        assert (y[rows] == k).sum() >= min(10, (y == k).sum())


def test_an_encoding_of_numbers_is_left_out_only_where_there_are_two() -> None:
    def spare(X: dict[str, Any], encodings: tuple[str, ...] | None = None) -> bool:
        table, y = Table.of(X), np.arange(300) % 2
        task, schema = Task("classification", 2), Schema.of(table)
        limits = Limits(recipes=1, seeds=1, finalists=1, default_epochs=1, threads=1, seed=0)
        data = TrainingData(task, schema, table, y, np.ones(300))
        return measuring.measure_pace(data, find_metric(None, task), limits, False, encodings).spare

    numbers = {f"x{j}": column for j, column in enumerate(small_table(columns=90)[0].T)}
    few = {name: numbers[name] for name in ("x0", "x1")}
    assert spare(few)
    assert not spare(few, ("plain", "piecewise"))  # the user asked for them
    assert not spare(numbers)  # too many for a second encoding
    assert not spare({"word": np.array(["a", "b", "c"] * 100, dtype=object)})


def test_what_is_left_out_is_a_warning_in_python_and_a_sentence_of_the_report(tmp_path: Path) -> None:
    model = ShoalClassifier(budget=0.5)
    with pytest.warns(UserWarning, match=r"short of time: 2 folds, .*[\d,]+ of the 40,000 rows \(nothing") as warned:
        model.fit(*small_table(40_000, 20))
    assert [one.filename for one in warned] == [__file__]
    rows = model.result_.effort.rows
    page = model.report(tmp_path / "page.html").read_text()
    assert f"on {rows:,} rows of 20 columns. Time was short: it searched on {rows:,} of the 40,000 rows, in 2" in page


def test_encodings_of_numbers_that_the_user_asks_for_stay() -> None:
    said: list[str] = []
    space = {"encoding": ["piecewise"], "hidden": [(), (8,)], "epochs": [1, 2]}
    model = ShoalClassifier(space, callbacks=[SimpleNamespace(note=said.append)])
    X, y = small_table(20_000, 20)
    model.fit_table(Table.of(X), y, "y", clock=Clock(0.5, advised=1e5))
    assert {candidate.recipe.encoding for candidate in model.result_.search.candidates} == {"piecewise"}
    assert "2 folds" in said[0]
    assert "encoding" not in said[0]
    assert "a budget of about 100000 s" in said[0]


def test_advice_on_the_budget_does_not_contradict_itself(
    tmp_path: Path,
    call: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_session, "started", lambda: time.monotonic() - 1000)  # reading took long
    X, y = small_table(4000, 20)
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([X, y]), "%.3f", ",", header=",".join("abcdefghijklmnopqrstu"), comments=""
    )
    done = call(tmp_path, "search", "t.csv", "--target", "u", "--task", "classification", "--budget", 1)
    first = re.search(r"--budget (\d+) would leave enough", done.stdout)
    second = re.search(r"nothing is left out with a budget of about (\d+) s", done.stderr)
    assert first is not None
    assert second is not None
    assert int(second[1]) >= int(first[1]) >= 4000


# ---- the time kept back ----


def small_table(rows: int = 300, columns: int = 4) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(rows, columns))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def test_weighing_is_measured_on_many_numbers_also_for_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few numbers, what is measured is a call of a function: 128 recipes seem to take seconds."""
    model = ShoalClassifier(recipes=40, strategy="random", seeds=1, epochs=1, cv=2).fit(*small_table())
    sizes = []

    def recorded(task: Task, loss_inputs: np.ndarray, *others: Any) -> np.ndarray:
        sizes.append(loss_inputs.shape[:2])
        return weigh(task, loss_inputs, *others)

    monkeypatch.setattr(measuring, "weigh", recorded)
    assert measuring.measure_passes(model.result_.search, report=False) is not None
    assert set(sizes) == {(len(model.result_.search.best_candidates()), 300)}
    assert sizes[0][0] > 20


def test_no_more_is_kept_back_for_a_refit_than_it_takes() -> None:
    model = ShoalClassifier(budget=1000, refit=True, epochs=1, cv=2)
    model.set_params(callbacks=[watching(lambda progress: progress.candidates > 6)])
    search = model.fit(*small_table()).result_.search
    reserves = []
    for search.costs.rate in (0.0, 1e9):
        search.after_round()
        reserves.append(search.clock.reserve)
    assert reserves[1] > 200  # a fifth of the budget at most
    assert reserves[0] < 150


# ---- what is left out is repeated ----


def test_a_run_that_went_without_is_repeated_to_the_bit(tmp_path: Path, call: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 12))
    lines = [",".join(f"{x:.3f}" for x in row) + f",{int(row[0] * row[1] > 0)}" for row in X.tolist()]
    (tmp_path / "t.csv").write_text(",".join(f"x{j}" for j in range(12)) + ",y\n" + "\n".join(lines) + "\n")
    call(tmp_path, "search", "t.csv", "--target", "y", "--recipes", 3, "--seeds", 1, "--epochs", 2, "--out", "full")
    known = json.loads((tmp_path / "full/settings.json").read_text())
    assert known["search"]["effort"] == {}
    known["search"]["effort"] = {
        "folds": 2, "encodings": ["plain"], "rows": 1000, "candidates": 2, "ensemble_rows": 600, "sampled": 700,
    }  # fmt: skip
    for entry in known["log"]:  # as if the run had been short of time: no other encoding, no more than two folds
        entry["recipes"] = [["plain", member] for _, member in entry["recipes"]]
        for rung in entry["rungs"]:
            rung["epochs"] = [epochs[:2] for epochs in rung["epochs"]]
    (tmp_path / "less.json").write_text(json.dumps(known))
    for out in ("less", "again"):
        call(tmp_path, "search", "--repeat", "less.json" if out == "less" else "less/settings.json", "--out", out)
    found = [json.loads((tmp_path / out / "settings.json").read_text()) for out in ("less", "again")]
    assert found[0]["search"]["effort"] == found[1]["search"]["effort"] == known["search"]["effort"]
    assert found[0]["result"]["score"] == found[1]["result"]["score"]
    weights = [(tmp_path / out / "model/weights.safetensors").read_bytes() for out in ("full", "less", "again")]
    assert weights[1] == weights[2] != weights[0]
    assert len(weights[1]) < len(weights[0])


# ---- files are read in another way, with the same result ----

cell = st.sampled_from(["1", "2.5", "-1e3", "", "NA", "?", "x", " 7 ", '"3"', "1_2", "nan", "0x1", "\u0661", "-0"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(cell, min_size=3, max_size=3), min_size=2, max_size=30), st.sampled_from([1, 3, 1200]))
def test_a_file_read_by_blocks_is_the_table_that_it_was(rows: list[list[str]], head: int) -> None:
    text = "a,b,c\n" + "\n".join(",".join(row) for row in rows) + "\n"
    _, decoded, understood = files._begin(text.encode(), Path("t.csv"), ",", '"')
    before = files.HEAD, csv_columns.BLOCK
    try:
        files.HEAD, csv_columns.BLOCK = head + 1, 2
        quick = files._read_columns(text.encode(), "_" in text, understood, True, frozenset())
    finally:
        files.HEAD, csv_columns.BLOCK = before
    names, plain = files._read_rows(decoded, True, understood)
    if quick is None:
        return
    assert quick[0] == names
    for one, other in zip(quick[1], zip(*plain, strict=True), strict=True):
        expected = csv_columns.typed(other, frozenset())
        assert one.dtype == expected.dtype
        assert one.tolist() == expected.tolist() or np.array_equal(one, expected, equal_nan=True)


# ---- Ctrl-C ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_table_is_read_says_so(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "slow.csv")
    process = start(tmp_path, "search", "slow.csv", "--target", "y")
    with (tmp_path / "slow.csv").open("wb"):  # opens when the process has begun to read
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == "interrupted"
    assert out == ""


def test_an_interrupted_repetition_ends_as_any_other_search() -> None:
    """It does not draw the samples of the run that it was to repeat."""
    X, y = small_table()
    first = ShoalClassifier(recipes=6, seeds=1, epochs=8, cv=2).fit(X, y).result_
    model = ShoalClassifier(recipes=6, seeds=1, epochs=8, cv=2)
    model.set_params(callbacks=[watching(lambda progress: progress.candidates > 0)])
    model.repeat(X, y, replace(first.as_earlier(), bootstraps=3000))
    assert model.result_.search.ended == "interrupted"
    assert 0 < model.honest_score_.bootstraps <= BOOTSTRAPS


def test_an_interrupt_after_the_search_shortens_the_rest(
    tmp_path: Path,
    call: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(search: Any, *others: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        while not search.clock.hurried:
            time.sleep(0.01)
        return conclude(search, *others)

    def bootstraps(name: str) -> int:
        return int(json.loads((tmp_path / name / "settings.json").read_text())["result"]["score"]["bootstraps"])

    monkeypatch.setattr(fit, "conclude", interrupted)
    arguments = ("search", "--demo", "--recipes", 3, "--seeds", 1, "--epochs", 1, "--folds", 2)
    said = call(tmp_path, *arguments, "--out", "cut")
    assert "ending the search" in said.stderr
    assert bootstraps("cut") == FEWEST_BOOTSTRAPS < BOOTSTRAPS
    monkeypatch.undo()
    assert "the same: every byte" in call(tmp_path, "search", "--repeat", "cut", "--check").stdout


def test_an_interrupt_while_libraries_are_loaded_says_so(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    done = subprocess.run(command("--version"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    # The signal's default action has ended it, for which a shell shows the exit code 130.
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "interrupted\n")


def test_a_command_counts_from_the_start_of_its_process() -> None:
    lines = "import time; time.sleep(0.3); from shoal import progress; progress.count_from_process_start();"
    lines += "print(time.monotonic() - progress.started())"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.3

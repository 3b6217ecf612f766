"""A budget is a budget: what is left out where seconds are few, what is kept back, and Ctrl-C at any moment."""

from __future__ import annotations

import json
import os
import re
import signal
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
from support.commands import start
from support.fitting import fit_table
from support.machine import Machine
from support.tables import small_table
from support.waiting import wait_until

from shoal import ShoalClassifier
from shoal.cli import search_run
from shoal.runs.kinds import check_of
from shoal.search import estimator
from shoal.search import run as search_module
from shoal.search.budget import model as time_model
from shoal.search.budget.clock import MOST_BUSY, Clock
from shoal.search.budget.trial import measure_passes
from shoal.search.results.conclude import conclude
from shoal.search.scoring.honest import BOOTSTRAPS, FEWEST_BOOTSTRAPS
from shoal.tables.schema import Schema
from shoal.tables.table import Table

# ---- what is left out ----


def test_what_is_left_out_is_a_warning_in_python_and_a_sentence_of_the_report(
    tmp_path: Path, machine_of_speed: Callable[[float], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimator, "Clock", machine_of_speed(1e9).clock)
    model = ShoalClassifier(budget=1)
    with pytest.warns(UserWarning, match=r"short of time: 2 folds, .*[\d,]+ of the 10,000 rows \(a budget") as warned:
        model.fit(*small_table(10_000, 20))
    assert [one.filename for one in warned] == [__file__]
    rows = model.result_.effort.rows
    page = model.report(tmp_path / "page.html").read_text()
    assert f"To save time, it used only {rows:,} of the 10,000 rows, 2 folds" in page


def test_encodings_of_numbers_that_the_user_asks_for_stay(machine_of_speed: Callable[[float], Machine]) -> None:
    said: list[str] = []
    space = {"encoding": ["piecewise"], "hidden": [(), (8,)], "epochs": [1, 2]}
    model = ShoalClassifier(space, callbacks=[SimpleNamespace(note=said.append)])
    X, y = small_table(10_000, 20)
    fit_table(model, X, y, clock=replace(machine_of_speed(1e9).clock(1.0), advised=1e5))
    assert {candidate.recipe.encoding for candidate in model.result_.search.candidates} == {"piecewise"}
    assert "2 folds" in said[0]
    assert "encoding" not in said[0]
    assert "a budget of about 100000 s" in said[0]


def test_advice_on_the_budget_does_not_contradict_itself(
    tmp_path: Path,
    call: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_run, "started", lambda: time.monotonic() - 1000)  # reading took long
    X, y = small_table(4000, 20)
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([X, y]), "%.3f", ",", header=",".join("abcdefghijklmnopqrstu"), comments=""
    )
    done = call(tmp_path, "search", "t.csv", "--target", "u", "--task", "classification", "--budget", 1)
    first = re.search(r"--budget (\d+) would leave enough", done.stdout)
    second = re.search(r"a budget of about (\d+) s needs no reductions", done.stderr)
    assert first is not None
    assert second is not None
    assert int(second[1]) >= int(first[1]) >= 4000


# ---- the time kept back ----


def test_no_more_is_kept_back_for_a_refit_than_it_takes(machine_of_speed: Callable[[float], Machine]) -> None:
    machine_of_speed(1e8)
    model = ShoalClassifier(budget=1000, refit=True, epochs=1, cv=2)
    model.set_params(callbacks=[watching(lambda progress: progress.recipes > 6)])
    search = model.fit(*small_table()).result_.search
    reserves = []
    for search.costs.rate in (0.0, 1e9):
        search.after_round(search)
        reserves.append(search.clock.reserve)
    assert reserves[1] > 200  # a fifth of the budget at most
    assert reserves[0] < 150


def test_time_that_more_seeds_do_not_need_is_searched_in(machine_of_speed: Callable[[float], Machine]) -> None:
    """Up to the reserve. A tenth of the budget went unused where seeds took less than their share."""
    machine, budget = machine_of_speed(3e9), 30.0
    X, y = small_table()
    model = fit_table(ShoalClassifier(seeds=2, cv=2), X, y, clock=machine.clock(budget))
    assert 0.96 * budget < machine.time + model.result_.search.clock.reserve
    assert machine.time < budget + machine.longest


def test_no_more_is_kept_back_for_an_explanation_than_it_makes_use_of(
    machine_of_speed: Callable[[float], Machine],
) -> None:
    """On small tables it takes a moment; a tenth of the budget was kept for it."""
    machine_of_speed(1e8)
    model = ShoalClassifier(budget=30, epochs=1, cv=2)
    model.set_params(callbacks=[watching(lambda progress: progress.recipes > 6)])
    search = model.fit(*small_table()).result_.search
    reserves = []
    for search.costs.rate in (1e-12, 1e-6):
        search.after_round(search)
        reserves.append(search.clock.reserve)
    assert 3.0 < reserves[1] < reserves[0] + 3.0
    assert reserves[0] < 2.0


# ---- a busy machine ----


@settings(deadline=None)
@given(st.floats(0.2, 100), st.floats(0.01, 100))
def test_a_busy_machine_is_one_where_work_takes_longer_than_it_computes(seconds: float, computed: float) -> None:
    clock = Clock(10.0)
    clock.watch(0.01, 1e-6)  # too short to tell
    assert clock.busy == 1.0
    clock.watch(seconds, computed)
    assert clock.busy == pytest.approx(min(max(seconds / computed, 1.0), MOST_BUSY))
    clock.watch(1.0, 1.0)  # it was busy before, and may be so again
    assert clock.busy >= min(max(seconds / computed, 1.0), MOST_BUSY)


def test_a_trial_on_a_busy_machine_counts_for_what_longer_work_would_take() -> None:
    quiet, busy = Clock(10.0), Clock(10.0)
    busy.watch(4.0, 1.0)
    work = [np.random.default_rng(0).normal(size=(300, 300)) for _ in range(2)]

    def product() -> None:
        for _ in range(20):
            np.sort(work[0] @ work[1], axis=0)

    begun = time.thread_time()
    found = busy.timed(product)
    assert found >= 4.0 * 0.5 * (time.thread_time() - begun)
    assert quiet.timed(lambda: None) < 1.0
    there = Clock(10.0, now=lambda: 0.0)  # a clock of a test: nothing is known of its machine
    there.watch(4.0, 1.0)
    assert there.busy == 1.0


def test_more_is_kept_back_on_a_busy_machine_and_for_wide_tables(machine_of_speed: Callable[[float], Machine]) -> None:
    machine_of_speed(1e8)
    model = ShoalClassifier(budget=1000, epochs=1, cv=2)
    model.set_params(callbacks=[watching(lambda progress: progress.recipes > 6)])
    search = model.fit(*small_table()).result_.search
    fixed = []
    for busy, columns in ((1.0, 1), (3.0, 1), (3.0, 5000)):
        search.clock.busy = busy
        search.problem = replace(search.problem, schema=_schema(columns))
        passes = measure_passes(search, report=True)
        assert passes is not None
        fixed.append(passes.fixed)
    assert fixed[1] > 2 * fixed[0] > 0.6
    assert fixed[2] - fixed[1] == pytest.approx(2 * 3 * 1e-4 * 4999, rel=0.5)


def _schema(columns: int) -> Schema:
    return Schema.of(Table([f"c{k}" for k in range(columns)], [np.arange(20.0)] * columns))


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
    known["sha256"] = check_of(known)
    (tmp_path / "less.json").write_text(json.dumps(known))
    for out in ("less", "again"):
        call(tmp_path, "search", "--repeat", "less.json" if out == "less" else "less/settings.json", "--out", out)
    found = [json.loads((tmp_path / out / "settings.json").read_text()) for out in ("less", "again")]
    assert found[0]["search"]["effort"] == found[1]["search"]["effort"] == known["search"]["effort"]
    assert found[0]["result"]["score"] == found[1]["result"]["score"]
    weights = [(tmp_path / out / "model/weights.safetensors").read_bytes() for out in ("full", "less", "again")]
    assert weights[1] == weights[2] != weights[0]
    assert len(weights[1]) < len(weights[0])


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


def test_an_interrupted_repetition_ends_as_any_other_search(machine_of_speed: Callable[[float], Machine]) -> None:
    """It does not draw the samples of the run that it was to repeat."""
    machine_of_speed(1e8)
    X, y = small_table()
    first = ShoalClassifier(recipes=6, seeds=1, epochs=8, cv=2).fit(X, y).result_
    model = ShoalClassifier(recipes=6, seeds=1, epochs=8, cv=2)
    model.set_params(callbacks=[watching(lambda progress: progress.recipes > 0)])
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
        wait_until(lambda: search.clock.hurried)
        return conclude(search, *others)

    def bootstraps(name: str) -> int:
        return int(json.loads((tmp_path / name / "settings.json").read_text())["result"]["score"]["bootstraps"])

    monkeypatch.setattr(search_module, "conclude", interrupted)
    arguments = ("search", "--demo", "--recipes", 3, "--seeds", 1, "--epochs", 1, "--folds", 2)
    said = call(tmp_path, *arguments, "--out", "cut")
    assert "ending the search" in said.stderr
    assert bootstraps("cut") == FEWEST_BOOTSTRAPS < BOOTSTRAPS
    monkeypatch.undo()
    assert "the same: every byte" in call(tmp_path, "search", "--repeat", "cut", "--check").stdout


# ---- decided once ----


def test_speed_folds_and_metric_are_found_once(
    tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the plan on the screen, for what is reduced, and for the search."""
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def count(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, count)

    counted(time_model, "encode_some")
    counted(search_module, "make_folds")
    counted(search_module, "find_metric")
    call(tmp_path, "search", "--demo", "--budget", 3, "--out", "run", "--explain-seconds", 0)
    assert sorted(calls) == ["encode_some", "find_metric", "make_folds"]

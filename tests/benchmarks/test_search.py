"""The benchmarks of the grid search and of waiting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.bench import bench

from benchmarks.peers import gridsearch
from benchmarks.search import explain, live, live_browser, startup
from benchmarks.search.ingredients import BASE, VARIANTS

# ---- the grid search ----


def test_the_grid_has_a_hundred_recipes_and_parts_of_it_have_every_value() -> None:
    work = gridsearch.make_work(100, 10, 20)
    assert (len(work.recipes), len(work.folds), work.epochs) == (100, 10, 20)
    members = [gridsearch.member(recipe, 20) for recipe in work.recipes]
    assert len(set(members)) == 100
    assert {member.batch_size for member in members} == {32}
    for count in (10, 20, 30, 50):
        part = gridsearch.spaced(work.recipes, count)
        assert len({tuple(recipe.values()) for recipe in part}) == count
        for name, values in gridsearch.GRID.items():
            assert {recipe[name] for recipe in part} == set(values)
    with pytest.raises(ValueError, match="--recipes must be from 1 to 100; got 101"):
        gridsearch.spaced(work.recipes, 101)


def test_all_three_searches_do_the_same_work() -> None:
    work = gridsearch.make_work(100, folds=3, epochs=10)
    chosen = [recipe for recipe in work.recipes if recipe["hidden_layer_sizes"] == (32,) and recipe["alpha"] == 1e-4]
    work = work._replace(recipes=[recipe for recipe in chosen if recipe["activation"] == "tanh"])
    theirs = gridsearch.by_scikit_learn(work)
    assert np.ptp(theirs) > 0.02  # recipes differ by more than what is allowed below
    for method in (gridsearch.by_population, gridsearch.by_estimator):
        ours = method(work)
        assert ours.shape == theirs.shape == (5,)
        np.testing.assert_allclose(ours, theirs, atol=0.035)


def test_scikit_learn_trains_for_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.neural_network import MLPClassifier

    epochs = []
    fit = MLPClassifier.fit

    def watched(self: Any, X: Any, y: Any) -> Any:
        fitted = fit(self, X, y)
        epochs.append(fitted.n_iter_)
        return fitted

    monkeypatch.setattr(MLPClassifier, "fit", watched)
    work = gridsearch.make_work(100, folds=2, epochs=15)
    gridsearch.by_scikit_learn(work._replace(recipes=work.recipes[-1:]))  # the largest learning rate: it jumps about
    assert epochs == [15, 15]


def test_gridsearch(tmp_path: Path) -> None:
    result = bench(tmp_path, "gridsearch --recipes 4 --share 0.5 --folds 2 --epochs 2 --repeats 1")
    contenders = result["contenders"]
    assert list(contenders) == list(gridsearch.NAMES)
    assert [contenders[name]["networks"] for name in gridsearch.NAMES] == [8, 8, 4]
    theirs = contenders["gridsearchcv"]
    assert theirs["scaled"]
    assert theirs["measured_on"] == "2 of 4 recipes"
    assert theirs["seconds"] == pytest.approx(2 * theirs["raw_seconds"]["only"][0], rel=1e-4)
    assert theirs["faster_than_gridsearchcv"] == 1
    for name in ("estimator", "population"):
        numbers = contenders[name]
        assert numbers["faster_than_gridsearchcv"] == pytest.approx(theirs["seconds"] / numbers["seconds"], rel=1e-4)
        assert len(numbers["accuracy"]) == 4
    assert [target["complete"] for target in result["targets"]] == [False, False]
    assert "~ GridSearchCV: measured on 2 of 4 recipes" in (tmp_path / "gridsearch.md").read_text()


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--share must be above 0 and at most 1; got 1\.5"):
        gridsearch.gridsearch(share=1.5)


def test_the_target_of_the_grid_search_can_be_missed() -> None:
    data = {"contenders": {name: {"faster_than_gridsearchcv": ratio} for name, ratio in
                           (("estimator", 19.0), ("population", 30.0))}}  # fmt: skip
    targets = gridsearch.targets(data, True)
    assert [(target.met, target.complete) for target in targets] == [(False, True), (True, True)]
    assert not gridsearch.targets(data, False)[0].complete


# ---- waiting ----


def test_report(tmp_path: Path) -> None:
    result = bench(tmp_path, "report --members 40 --repeats 1")
    assert set(result["seconds"]) == {"import shoal", "shoal --help", "python", "report"}
    assert min(result["seconds"].values()) > 0
    assert result["report_bytes"] > 1000
    assert [target["complete"] for target in result["targets"]] == [True, True, False]


def test_targets_of_waiting_can_be_missed() -> None:
    best = {"import shoal": 0.31, "shoal --help": 0.4, "report": 11.0}
    assert [target.met for target in startup.targets(startup.MEMBERS, best)] == [False, True, False]


def test_searches_of_growing_size_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    found = bench(tmp_path, "scale --recipes 20 40 --rows 60 --quick")
    assert [one["recipes"] for one in found["searches"]] == [20, 40]
    for one in found["searches"]:
        assert one["peak_bytes"] > one["imports_bytes"] > 1e6
        assert min(one["seconds"], one["cpu_seconds"]) > 0
        assert one["sample_bytes"] == one["recipes"] * 60 * 2 * 4
        assert {"model.json", "leaderboard.csv", "report.html", "settings.json"} <= set(one["files"])
    assert not any(target["complete"] for target in found["targets"])
    assert "| 40 |" in (tmp_path / "scale.md").read_text()


# ---- explanations ----


def test_the_benchmark_of_explanations_counts_intervals_and_seconds() -> None:
    result = explain.explain(rows=120, columns=4, budget=1.0, seeds=2)
    assert result.data["noise"]["intervals"] == 10
    assert set(result.data["time"]["single"]) == {1, 10, 100}
    assert [target.complete for target in result.targets] == [False, False, False]
    assert result.draw() is not None
    assert "of noise" in result.tables[1].title


# ---- the live page ----


def test_the_benchmark_of_the_live_page_searches_in_turn_and_writes_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    browsers = {"1280": {"dots": 2, "script_ms": 51.0, "task_ms": 60.0, "load_ms": 9.0}}
    monkeypatch.setattr(live, "browse", lambda dots, seconds: browsers)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y: (np.eye(60)[:, :4], np.arange(60) % 2))
    result = live.live(pairs=1, recipes=2, networks=20, dots=2, seconds=0.0)
    assert len(result.data["cost"]["raw"]["with"]) == len(result.data["cost"]["raw"]["without"]) == 1
    assert result.data["replay"]["recipes"] == 20
    assert result.data["replay"]["bytes"] > result.data["replay"]["recorded_bytes"] > 500
    assert [target.complete for target in result.targets] == [False] * 3
    assert [target.met for target in result.targets][1:] == [True, False]
    assert result.draw() is not None


def test_a_made_up_search_has_as_many_dots_as_asked(tmp_path: Path) -> None:
    from shoal.live.recording import Recording

    clock = [0.0]
    recording = Recording(tmp_path, print, lambda: clock[0])
    search = live_browser.MadeUpSearch(recording, clock)
    search.fill(5_000)
    recording.close()
    assert 5_000 <= search.dots < 7_000
    events = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert sum(len(event.get("dots", [])) for event in events) == search.dots
    assert {event["e"] for event in events} == {"begin", "started", "dots", "now", "rung"}


def test_ingredients_are_judged_on_rows_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One informative number that only a threshold tells: the encoding with steps has the lowest loss."""
    generator = np.random.default_rng(0)
    x = generator.lognormal(sigma=2, size=240)
    (tmp_path / "tables").mkdir()
    pd.DataFrame({"x": x, "noise": generator.normal(size=240), "target": (x > 1.3) * 4.0}).to_csv(
        tmp_path / "tables" / "beps.csv.gz", index=False
    )
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    (case,) = bench(tmp_path / "out", "ingredients --recipes 3 --only beps")["cases"]
    assert set(case["losses"]) == set(VARIANTS)
    assert case["losses"]["and encoding steps"] < case["losses"][BASE]
    assert max(case["losses"].values()) < 1.0, "guessing the mean has a loss of 2"

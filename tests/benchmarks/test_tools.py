"""The benchmarks of the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bench import bench

from benchmarks.__main__ import find as find_benchmark
from benchmarks.__main__ import main
from benchmarks.engine.tools import forest, selection, tables
from benchmarks.papers.parallel_mlps import growing, lottery
from shoal.datasets import find

TINY = {
    forest: {"networks": 10, "bagged": 2, "trees": 10}, selection: {"networks": 5, "controls": 1}, growing: {},
    lottery: {"million": 300, "networks": 200, "trained": 20, "keep": 5},
}  # fmt: skip


@pytest.fixture(autouse=True)
def there() -> None:
    try:
        find("tables/index.json")
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any) -> dict[str, Any]:
    name = f"tools-{module.__name__.rpartition('.')[2]}"
    one = find_benchmark(name)
    monkeypatch.setattr(one, "quick", one.quick | TINY[module])
    result = bench(tmp_path, f"{name} --tables penguins --quick")
    assert not any(target["complete"] for target in result["targets"])
    return result


def test_forest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = measured(tmp_path, monkeypatch, forest)["tables"]
    assert one["shoal"]["loss"] < 0.5
    assert one["faster_than_bagging"] == pytest.approx(one["bagging"]["seconds"] / one["shoal"]["seconds"], rel=1e-4)


def test_forests_of_numbers_are_measured_too() -> None:
    (case,) = tables.load(["autompg"])
    found = forest.measure(case, networks=10, bagged=1, trees=5)
    assert 0 < found["forest"]["loss"] < 0.5
    assert 0 < found["bagging"]["loss"] < 0.5


def test_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = selection.FeatureSelector
    quick = {"epochs": 10, "max_masks": 128}
    monkeypatch.setattr(selection, "FeatureSelector", lambda **given: made(**given | quick))
    result = measured(tmp_path, monkeypatch, selection)
    (one,) = result["tables"]
    assert 1 <= one["selected"] <= one["columns"] == 6
    assert result["control"]["columns"] == 8


def test_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grow = growing.grow
    monkeypatch.setattr(growing, "grow", lambda *a, **given: grow(*a, **given, epochs=3))
    (one,) = measured(tmp_path, monkeypatch, growing)["fits"]
    assert set(one["losses"]) == set(growing.NAMES)
    assert one["stages"] == sum(record["kept"] for record in one["history"])


def test_lottery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(tmp_path, monkeypatch, lottery)["lotteries"]
    assert [(one["solved"], one["count"]) for one in found] == [(False, 300), (True, 300)]
    assert all(one["median"] <= one["best"] for one in found)
    assert found[0]["median"] < found[0]["best"]


def test_an_unknown_tool_or_table_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'tools-forest'"):
        main(["tools-florest"])
    with pytest.raises(ValueError, match=r"--tables must be one of .* got 'pinguins'; did you mean 'penguins'"):
        tables.load(["pinguins"])


def test_losses_are_those_of_scikit_learn() -> None:
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.metrics import log_loss

    classes, numbers = tables.load(["penguins", "autompg"])
    model = DummyClassifier(strategy="prior").fit(classes.X, classes.y)
    theirs = log_loss(classes.y_new, model.predict_proba(classes.X_new), labels=model.classes_)
    assert tables.loss(model, classes.X_new, classes) == pytest.approx(theirs)
    flat = DummyRegressor().fit(numbers.X, numbers.y)
    assert tables.loss(flat, numbers.X_new, numbers) == pytest.approx(1 - flat.score(numbers.X_new, numbers.y_new))
    assert len(np.unique(classes.y)) == 3

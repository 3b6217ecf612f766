"""The benchmark that explains Iris: it trains what `pays` trains, and each row changes what it says."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from support.bench import bench

pytest.importorskip("sklearn")

from sklearn.datasets import load_iris

from benchmarks.papers.what_pays import iris


def test_the_first_row_is_what_pays_trains():
    torch = pytest.importorskip("torch")
    from benchmarks.papers.what_pays import pays

    X, y = load_iris(return_X_y=True)
    mine, theirs = iris.split(y, 0, stratified=True), pays.iris_problem()
    assert np.array_equal(y[mine.train], theirs.stored.classes.numpy())
    assert torch.equal(torch.from_numpy(X[mine.valid]).float(), _unscaled(theirs, X))
    assert iris.CHANGES[0] == iris.Setting("nothing") == iris.AS_PAYS


def _unscaled(problem, X):
    """The test rows of `pays` before they were scaled."""
    import torch

    scaled = torch.from_numpy(X).float()
    rows = (scaled - scaled.mean(0)) / scaled.std(0)
    return torch.stack([scaled[(rows - row).abs().sum(1).argmin()] for row in problem.test.tensors[0]])


def test_each_row_changes_what_it_says():
    for setting in iris.CHANGES[1:]:
        changed = {name for name, value in asdict(setting).items() if value != asdict(iris.AS_PAYS)[name]} - {"changed"}
        words = {"stratified": "split", "scaled": "scaling", "batch": "batches", "epochs": "epochs"}
        assert changed == {name for name, word in words.items() if word in setting.changed.split(", as ")[0]}


def test_splits_and_weights_vary_by_their_own_seeds():
    few = iris.Setting(epochs=3)
    both = iris.accuracies(few, splits=[0, 1], weights=[0, 1, 2])
    assert len(both) == 6
    assert both[::2] == iris.accuracies(few, splits=[0], weights=[0, 1, 2])
    assert both[:2] == iris.accuracies(few, splits=[0, 1], weights=[0])


def test_bench_iris(tmp_path):
    result = bench(tmp_path, "iris --seeds 3")
    changes = {one["changed"]: one for one in result["changes"]}
    assert [one["steps"] for one in result["changes"]][:2] == [200, 200]
    assert changes["batches of 8"]["steps"] == 1500
    for one in changes.values():
        assert len(one["weights"]["accuracies"]) == len(one["splits"]["accuracies"]) == 3
        assert 0.6 < one["weights"]["lowest"] <= one["weights"]["mean"] <= one["weights"]["highest"] <= 1
    assert changes["scaling: none"]["weights"]["mean"] > changes["nothing"]["weights"]["mean"]

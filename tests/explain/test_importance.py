"""Permutation importance: what is shuffled, what the intervals promise, and how it compares with scikit-learn's."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as draw
from sklearn.inspection import permutation_importance

import shoal
from shoal.explain.importance import HeldOut, Shuffler, confidence_intervals
from shoal.explain.networks import FoldNetworks, finished
from shoal.metrics.metric import METRICS
from shoal.tables.table import Table

SEEDS = 20
QUICK = {"hidden": [(6,)], "encoding": ["plain"], "epochs": [25], "learning_rate": [0.02]}


def shuffler_of(model, X, y, metric="r2"):
    networks = FoldNetworks(model.model_, 0, 1)
    rows = np.arange(len(X))
    held_out = HeldOut(0, rows, np.ones(len(X)), networks.encode(Table.of(X)))
    return Shuffler(model.model_, [held_out], np.asarray(y).reshape(len(y), -1), METRICS[metric], 1)


def test_shuffled_rows_are_those_of_a_shuffled_table(mixed):
    """Of each kind of column: numbers in two encodings, categories, dates, texts."""
    problem, model, table = mixed.result_.problem, mixed.model_, mixed.schema_.check(mixed.result_.table)
    first = np.unique(problem.row_of, return_index=True)[1]
    table = table.take(first)  # distinct rows, in the order of the problem
    rows = np.flatnonzero(problem.folds[1].valid > 0)
    inputs = {name: problem.inputs[name][rows + problem.n] for name in model.networks}
    assert set(inputs) == {"plain", "piecewise"}
    shuffler = Shuffler(model, [HeldOut(1, rows, np.ones(len(rows)), inputs)], problem.y, METRICS["neg_log_loss"], 1)
    donor = np.random.default_rng(0).permutation(len(rows))
    networks, here = FoldNetworks(model, 1, 1), table.take(rows)
    groups = [(j,) for j in range(7)] + [(0, 3), (5, 6)]
    found = shuffler._shuffled([(group, 0) for group in groups], [donor[None]])
    for group, prediction in zip(groups, found, strict=True):
        cells = [column[donor] if j in group else column for j, column in enumerate(here.columns)]
        told = finished(model, networks.predict(networks.encode(Table(here.names, cells))))
        assert np.allclose(prediction, told, atol=1e-6)
        assert not np.allclose(prediction, finished(model, networks.predict(inputs)), atol=1e-4)


def test_no_row_keeps_its_cell_and_rounds_do_not_depend_on_how_they_are_batched(numbers, monkeypatch):
    model, X, y = numbers
    shuffler = shuffler_of(model, X, y)
    donors = shuffler._donors(shuffler.held_out[0], np.random.default_rng(3))
    assert sorted(donors) == list(range(len(X)))
    assert (donors != np.arange(len(X))).all()
    groups = [(0,), (1,), (0, 1)]
    together = shuffler.drops(groups, 5, np.random.default_rng(1))
    monkeypatch.setattr("shoal.explain.importance.FEW_PREDICTIONS", 1)
    single = shuffler.drops(groups, 5, np.random.default_rng(1))
    assert together.rounds == single.rounds == 5
    assert np.allclose(together.values, single.values, atol=1e-9)
    assert shuffler.drops(groups, 5, np.random.default_rng(1), enough=lambda: True).rounds == 1


def test_it_agrees_with_scikit_learn(numbers):
    model, X, y = numbers
    theirs = permutation_importance(model, X, y, scoring="r2", n_repeats=40, random_state=0)
    shuffler = shuffler_of(model, X, y)
    ours = shuffler.drops([(0,), (1,), (2,)], 40, np.random.default_rng(0)).values.mean(axis=1)
    error = 4 * theirs.importances_std / np.sqrt(20) + theirs.importances_mean * 1 / len(X)
    assert (np.abs(ours - theirs.importances_mean) <= error + 1e-4).all()
    assert ours[0] > ours[1] > 10 * abs(ours[2])


@settings(max_examples=25, deadline=None)
@given(draw.integers(3, 40), draw.integers(1, 4), draw.integers(0, 999))
def test_a_row_that_is_held_out_often_counts_once(rows, dealings, seed):
    random = np.random.default_rng(seed)
    values, fold = random.normal(size=(2, rows)), np.arange(rows) % 3
    once = confidence_intervals(values, np.ones(rows), np.arange(rows), fold, 3)
    again = confidence_intervals(
        np.tile(values, dealings), np.ones(rows * dealings), np.tile(np.arange(rows), dealings),
        np.concatenate([fold + 3 * k for k in range(dealings)]), 3,
    )  # fmt: skip
    assert np.allclose(once, again)


def test_intervals_cover_what_they_should():
    """Means of 2,000 samples. Folds here share nothing, which the correction does not know: more than 95%."""
    random = np.random.default_rng(0)
    fold = np.repeat(np.arange(8), 20)
    noise = random.normal(size=(2000, 160))
    for shift, least, widest in ((0.0, 0.97, 0.6), (0.5, 0.95, 1.4)):
        values = noise + shift * random.normal(size=(2000, 8))[:, fold]
        _, low, high = confidence_intervals(values, np.ones(160), np.arange(160), fold, 8).T
        assert ((low <= 0) & (high >= 0)).mean() > least
        assert np.median(high - low) < widest


def generated(seed):
    """Three columns that count 2 : 1 : 0.5, and three of noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(150, 6))
    return X, 2 * X[:, 0] + X[:, 1] + 0.5 * X[:, 2] + random.normal(size=150) * 0.5


def test_noise_covers_zero_and_the_order_is_right():
    """60 intervals of columns of noise: 95% of them should cover zero, and fewer than 52 are one case in 500."""
    covered, on_trained = [], []
    for seed in range(SEEDS):
        X, y = generated(seed)
        model = shoal.ShoalRegressor(QUICK, recipes=1, seeds=1, cv=4, n_jobs=1, random_state=seed).fit(X, y)
        found = model.importance_
        assert [one.name for one in found][:3] == ["x0", "x1", "x2"]
        assert found["x0"].matters
        assert found["x1"].matters
        covered += [found[f"x{j}"].low <= 0 <= found[f"x{j}"].high for j in (3, 4, 5)]
        shuffler = trained_on(model.result_)
        drops = shuffler.drops([(3,), (4,), (5,)], 10, np.random.default_rng(seed))
        on_trained += (shuffler.intervals(drops.values)[:, 1] <= 0).tolist()
    assert len(covered) == 60
    assert sum(covered) >= 52
    assert sum(on_trained) < 30  # rows that were trained on would tell another story


def trained_on(result):
    """The same networks on the rows that they have seen."""
    problem, held_out = result.problem, []
    for k, fold in enumerate(problem.folds):
        rows = np.flatnonzero(fold.train > 0)
        inputs = {name: problem.inputs[name][rows + k * problem.n] for name in result.model.networks}
        held_out.append(HeldOut(k, rows, np.ones(len(rows)), inputs))
    return Shuffler(result.model, held_out, problem.y, METRICS["r2"], 1)

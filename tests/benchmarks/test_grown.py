"""Networks that grow stage by stage."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks.papers.parallel_mlps import grown as module
from benchmarks.papers.parallel_mlps.grown import GrownClassifier, GrownRegressor, grow
from shoal import Member

FEW = [Member(hidden=8, learning_rate=0.02), Member(hidden=4, activation="tanh", learning_rate=0.02)]


@parametrize_with_checks([GrownClassifier(members=FEW, epochs=60), GrownRegressor(members=FEW, epochs=60)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def spirals(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two spirals: one small layer is not enough for them."""
    random = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    angle = random.uniform(0.5, 2.5, rows) * np.pi
    X = angle[:, None] * np.column_stack([np.cos(angle + y * np.pi), np.sin(angle + y * np.pi)])
    return X + 0.1 * random.normal(size=X.shape), y


@pytest.fixture(scope="module")
def grown():
    X, y = spirals(600)
    return grow(X, y, members=FEW, epochs=80)


def test_it_grows_where_one_layer_is_not_enough(grown):
    X, y = spirals(400, 1)
    assert grown.n_stages_ >= 2
    one = grow(*spirals(600), members=FEW, epochs=80, max_stages=1)
    assert grown.score(X, y) > one.score(X, y) + 0.02
    assert all(record["kept"] for record in grown.history_[: grown.n_stages_])
    losses = [record["loss"] for record in grown.history_[: grown.n_stages_]]
    assert losses == sorted(losses, reverse=True)
    assert len(grown.history_) <= grown.n_stages_ + 1
    assert grown.history_[0]["feed"] == "columns"
    assert all("hidden" in r["feed"] or "outputs" in r["feed"] for r in grown.history_[1:])


def test_it_stops_at_once_where_there_is_nothing_to_gain():
    X = np.random.default_rng(0).normal(size=(300, 4))
    grown = grow(X, np.random.default_rng(1).normal(size=300), members=FEW)
    assert grown.n_stages_ == 1
    assert [record["kept"] for record in grown.history_] == [True, False]


def test_no_stage_sees_the_rows_that_stop_it(monkeypatch):
    seen = []
    fit = module.Population.fit

    def watched(self, X, y, *given, **named):
        split = named["rows"]
        seen.append(set(split.train) | set(split.valid))
        return fit(self, X, y, *given, **named)

    monkeypatch.setattr(module.Population, "fit", watched)
    X, y = spirals(200)
    made = GrownClassifier(members=FEW, epochs=20, refit=False)
    made.fit(X, y)
    growth = module._Growth.of(made, module.prepare(made, X, y))
    assert len(growth.unseen) == 40
    assert seen
    assert not any(rows & set(growth.unseen) for rows in seen)


def test_a_schedule_is_as_long_when_a_stage_is_trained_again():
    X, y = spirals(100)[0], np.random.default_rng(0).integers(2, size=100)  # nothing to learn: best soon
    recipe = Member(hidden=8, learning_rate=0.03, schedule="cosine")
    made = GrownClassifier(members=[recipe], epochs=40, max_stages=1)
    growth = module._Growth.of(made, module.prepare(made, X, y))
    (stage,), _ = growth.run(1)
    assert stage.epochs < 40
    alone = module.Population([stage.recipe.replace(patience=0)], growth.columns.shape[1], 2, growth.data.task.loss)
    for _ in alone.iter_fit(
        growth.columns, growth.data.target, 40, rows=module.Split(np.arange(growth.data.n)), seed=growth.seed
    ):
        if alone.epochs[0] == stage.epochs:
            break
    (again,) = growth.again([stage])
    for (W, _), (own, _) in zip(alone.weights(0), again.network.weights(0), strict=True):
        np.testing.assert_allclose(own, W, atol=1e-6)


def test_tables_with_words_and_missing_cells_and_pickles():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"word": random.choice(["a", "b"], 120), "size": random.normal(size=120)})
    frame.loc[::9, "size"] = np.nan
    grown = grow(frame, np.where(frame["word"] == "a", "yes", "no"), members=FEW, epochs=20)
    assert grown.score(frame, np.where(frame["word"] == "a", "yes", "no")) > 0.95
    same = pickle.loads(pickle.dumps(grown))
    np.testing.assert_array_equal(same.predict_proba(frame), grown.predict_proba(frame))


@settings(max_examples=5, deadline=None)
@given(st.integers(3, 70), st.integers(1, 5), st.integers(2, 4), st.integers(0, 9))
def test_threads_change_no_bit(rows, columns, threads, seed):
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    made = {"members": FEW, "epochs": 4, "random_state": seed, "task": "regression"}
    one, other = (grow(X, X[:, 0], n_jobs=n, **made).predict(X) for n in (1, threads))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"members": [Member(hidden=())]}, "a stage needs a hidden layer"),
        ({"members": []}, "got an empty list"),
        ({"max_stages": 0}, "max_stages must be a whole number from 1"),
        ({"members": [Member(learning_rate=1e30, optimizer="sgd")]}, "every network diverged"),
        ({"refit": "yes"}, "refit must be True or False"),
    ],
)
def test_what_a_user_can_mend_is_said(made, message):
    with pytest.raises(ValueError, match=message):
        grow(*spirals(40), **{"epochs": 2} | made)


def test_too_few_rows_and_one_class_are_refused():
    with pytest.raises(ValueError, match="at least 3 different rows"):
        grow([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="the target has 1 class"):
        grow(np.arange(20.0)[:, None], ["a"] * 20)

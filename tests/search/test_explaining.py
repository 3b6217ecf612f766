"""Which columns matter to a search: in the time there is, in files, and where nothing can be said."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import ShuffleSplit

import shoal
from shoal.explain.results import Explanation, importance_lines
from shoal.search.budget.clock import Clock
from shoal.search.results import explaining
from shoal.search.results.explaining import Subject, Time, explain_search
from shoal.search.results.report_rows import one_row
from shoal.search.screen import matter_words

QUICK = {"hidden": [(6,)], "encoding": ["plain"], "epochs": [20], "learning_rate": [0.03]}


def fitted(X, y, kind=shoal.ShoalRegressor, **more):
    return kind(QUICK, **{"recipes": 1, "seeds": 1, "cv": 3, "n_jobs": 1, **more}).fit(X, y)


@pytest.fixture(scope="module")
def twins():
    """Two columns that say the same, one of its own, one of noise."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 4))
    X[:, 1] = X[:, 0] + 0.02 * random.normal(size=300)
    return fitted(X, X[:, 0] + X[:, 1] + X[:, 2] + 0.1 * random.normal(size=300))


def subject_of(model, **changes):
    result = model.result_
    made = Subject(model.model_, result.problem, result.table, result.search.metric, threads=1)
    return replace(made, **changes)


def test_columns_that_say_the_same_are_a_group(twins):
    found = twins.importance_
    (group,) = found.groups
    assert set(group.columns) == {"x0", "x1"}
    assert group.low > found["x0"].importance + found["x1"].importance
    assert group.importance > found["x2"].importance > 0
    assert not found["x3"].matters
    assert found.metric == "r2"
    assert {"x0", "x1", "x2"} >= {effect.column for effect in twins.explanation_.effects} != set()
    words = matter_words(twins.explanation_, "price")
    assert words[1].startswith("What matters for price: how much r2 falls when a column is shuffled")
    assert f"the same information is in {' and '.join(group.columns)}" in words[-1]
    assert matter_words(None, "price") == []
    assert repr(found).split()[0] == found.columns[0].name == importance_lines(found, 1)[0].split()[0]


def test_columns_that_say_different_things_are_no_group():
    X = np.random.default_rng(1).normal(size=(200, 3))
    assert fitted(X, X.sum(axis=1)).importance_.groups == ()


def test_the_same_search_says_the_same_on_any_number_of_threads(twins):
    X, y = twins.result_.table, twins.result_.problem.y[twins.result_.problem.row_of][:, 0]
    again = fitted(X, y, n_jobs=2)
    assert replace(again.explanation_.importance) == twins.explanation_.importance
    assert again.explanation_ == twins.explanation_


def test_no_time_at_all_and_a_wish_for_nothing(twins):
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = fitted(X, X[:, 0], explain_seconds=0)
    with pytest.raises(AttributeError, match=r"has no importance_: .*fit again with explain_seconds=5"):
        _ = model.importance_
    assert not hasattr(model, "importance_")
    assert model.explain(X[:1]).values.shape == (1, 3)  # for that there are rows to compare with
    seconds = iter(np.arange(0, 1e9, 10.0))
    ticking = Clock(start=0.0, now=lambda: float(next(seconds)))
    assert explain_search(subject_of(twins), Time(0.001, ticking)) is None


def test_a_slow_clock_means_fewer_rounds_rows_and_columns(twins, monkeypatch):
    def explained(pace, seconds=1.0, **changes):
        monkeypatch.setattr(explaining, "_pace", lambda subject, time: pace)
        return explain_search(subject_of(twins, **changes), Time(seconds, Clock(start=0.0, now=lambda: 0.0)))

    plenty, less = explained(1e-9), explained(0.55 / (5 * 4 * 250))
    assert plenty.importance.rounds == explaining.MOST_ROUNDS
    assert plenty.importance.rows == 300
    assert 240 <= less.importance.rows <= 260
    few = explained(0.55 / (2 * 2.5 * 200)).importance
    assert len(few) == 2
    assert set(few.left_out) < {"x0", "x1", "x2", "x3"}
    assert "x3" in few.left_out  # noise has the smallest weights
    assert explained(1.0) is None


def test_ctrl_c_ends_it(twins):
    clock = Clock()
    time = Time(None, clock)
    over = time.until(1.0, clock.now())
    assert not over()
    clock.hurry()
    assert over()


def test_folds_of_one_row_take_cells_from_others():
    X = np.random.default_rng(0).normal(size=(24, 2))
    found = fitted(X, X[:, 0], cv=24).importance_
    assert found["x0"].importance > 0.5
    assert found["x0"].matters


def test_weights_groups_and_scores_of_all_sorts(iris):
    X, y = iris
    weight = np.where(y == 2, 3.0, 1.0)
    for scoring in ("roc_auc", "f1_macro", "neg_log_loss", "matthews_corrcoef", None):
        model = shoal.ShoalClassifier(QUICK, recipes=1, seeds=1, cv=3, n_jobs=1, scoring=scoring)
        found = model.fit(X, y, sample_weight=weight).importance_
        assert found["x3"].importance > found["x1"].importance
        assert np.isfinite([[one.low, one.high] for one in found]).all()
    by_group = shoal.ShoalClassifier(QUICK, recipes=1, seeds=1, n_jobs=1).fit(X, y, groups=np.arange(150) // 10)
    assert len(by_group.importance_) == 4


def test_a_model_trained_again_on_all_rows_is_explained_by_its_folds():
    X = np.random.default_rng(0).normal(size=(90, 3))
    model = fitted(X, X[:, 1], refit=True)
    assert len(model.model_.folds) == 1
    assert model.importance_.columns[0].name == "x1"
    labels = np.stack([X[:, 0] > 0, X[:, 1] > 0], axis=1).astype(int)
    several = fitted(X, labels, kind=shoal.ShoalClassifier)
    assert {effect.output for effect in several.explanation_.effects} == {"0", "1"}
    numbers = fitted(X, X[:, :2] * [1, 100])
    assert {effect.output for effect in numbers.explanation_.effects} == {"number 1", "number 2"}


def test_two_rows_are_enough_or_a_sentence():
    model = fitted(np.array([[0.0], [1.0]]), [0.0, 1.0], cv=2)
    assert np.isfinite(model.importance_["x0"].importance)
    assert model.explain([[0.5]]).values.shape == (1, 1)


# ---- files


def test_it_is_in_a_file_of_its_own_that_the_model_does_not_need(twins, tmp_path):
    shoal.save(twins, tmp_path / "model")
    loaded = shoal.load(tmp_path / "model")
    assert loaded.explanation_ == twins.explanation_
    rows = np.zeros((2, 4))
    assert (loaded.explain(rows).values == twins.explain(rows).values).all()
    copied = pickle.loads(pickle.dumps(twins))
    assert copied.importance_ == twins.importance_
    file = tmp_path / "model/explanation.json"
    content = json.loads(file.read_text())
    for change, words in (
        ({"format": "other"}, "is no explanation of Shoal's"),
        ({"version": 9}, "has format version 9; this Shoal reads version 1"),
        ({"explanation": {"importance": {}}}, "explanation.importance.metric is missing"),
        ({"background": {"rows": 3, "columns": [{"name": "x0", "dates": False, "cells": [1]}]}}, "must be 3; got 1"),
    ):
        file.write_text(json.dumps({**content, **change}))
        with pytest.raises(shoal.errors.UserError, match=f"{words}.*the model does not need it: delete it"):
            shoal.load(tmp_path / "model")
    file.unlink()
    bare = shoal.load(tmp_path / "model")
    assert (bare.predict(rows) == twins.predict(rows)).all()
    with pytest.raises(AttributeError, match=r"saved without explanation\.json"):
        _ = bare.importance_
    with pytest.raises(shoal.errors.UserError, match=r"explanation.json is missing.*training data as backgro"):
        bare.explain(rows)
    assert bare.explain(rows, background=np.eye(4)).values.shape == (2, 4)
    shoal.save(bare, tmp_path / "again")
    assert not (tmp_path / "again/explanation.json").exists()


def test_explanations_of_every_kind_of_column_come_back(tmp_path):
    from support.tables import columns

    X = columns()
    y = [0.0 if size is None else size for size in X["size"]]
    model = shoal.ShoalRegressor(QUICK, recipes=1, seeds=1, cv=2, n_jobs=1).fit(X, y)
    shoal.save(model, tmp_path / "model")
    loaded = shoal.load(tmp_path / "model")
    row = {name: cells[5:6] for name, cells in X.items()}
    assert np.allclose(loaded.explain(row).values, model.explain(row).values)
    plain = model.explanation_.as_dict()
    assert Explanation.from_dict(json.loads(json.dumps(plain))) == model.explanation_


def test_the_code_of_the_docs_runs(capsys):
    page = Path(__file__).parents[2] / "docs/explain.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, str(page), "exec"), {})
    assert "bmi" in capsys.readouterr().out


def test_a_model_trained_again_is_explained_by_the_networks_that_left_rows_out():
    """Also where there is one fold, as there is one in the final model: that one has seen all rows."""
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 3))
    y = X[:, 0] + random.normal(size=120)
    split = ShuffleSplit(1, test_size=0.3, random_state=0)
    once, again = (fitted(X, y, cv=split, refit=refit) for refit in (False, True))
    assert again.result_.outcome.refit
    assert not np.array_equal(once.predict(X), again.predict(X))
    assert once.importance_.columns == again.importance_.columns
    assert one_row(again.result_, None)["refit"], "the page says so"
    assert not one_row(once.result_, None)["refit"]

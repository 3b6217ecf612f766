"""Intervals, sets and strange rows of fitted estimators: true, saved, and refused in words where there are none."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import TimeSeriesSplit

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor
from shoal.models import certainty
from shoal.models.model import Model
from shoal.search.results.report_rows import for_whom, one_row
from shoal.tables.inputs import new_table
from shoal.tables.table import Table

QUICK = {"space": [Member(hidden=8, learning_rate=0.03, epochs=12), Member(hidden=(), learning_rate=0.03, epochs=12)]}


def table(rows, seed=0):
    """A number that is calm where x is low, and a class."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": generator.uniform(-2, 2, rows), "z": generator.normal(size=rows)})
    frame["colour"] = generator.choice(["red", "green", "blue"], rows)
    y = frame["x"] + np.where(frame["x"] > 0, 1.5, 0.2) * generator.normal(size=rows)
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def regressor():
    return ShoalRegressor(**QUICK, seeds=1, cv=4).fit(*table(400))


@pytest.fixture(scope="module")
def classifier():
    X, y = table(400)
    return ShoalClassifier(**QUICK, seeds=1, cv=4).fit(X, np.digitize(y, [-1, 1]).astype(str))


def test_intervals_hold_the_truth_as_often_as_asked_and_are_narrow_where_data_are_calm(regressor):
    X, y = table(3000, seed=1)
    for coverage in (0.8, 0.9):
        low, high = regressor.predict_interval(X, coverage).T
        assert coverage - 0.04 < ((low <= y) & (y <= high)).mean() < coverage + 0.05
        width = high - low
        assert width[X["x"] > 0.5].mean() > 2 * width[X["x"] < -0.5].mean()
        inside = regressor.predict(X)
        assert ((low <= inside) & (inside <= high)).all()
    narrow, wide = (np.diff(regressor.predict_interval(X, coverage)).mean() for coverage in (0.5, 0.95))
    assert narrow < wide / 2


def test_sets_hold_the_truth_as_often_as_asked(classifier):
    X, y = table(3000, seed=1)
    truth = np.searchsorted(classifier.classes_, np.digitize(y, [-1, 1]).astype(str))
    for coverage in (0.8, 0.9):
        inside = classifier.predict_set(X, coverage)
        assert inside.dtype == bool
        assert inside.shape == (3000, 3)
        assert inside.any(axis=1).all()
        assert coverage - 0.04 < inside[np.arange(3000), truth].mean() < coverage + 0.08
        assert inside[np.arange(3000), np.searchsorted(classifier.classes_, classifier.predict(X))].all()


def test_the_mean_over_folds_is_the_prediction(regressor, classifier):
    X, _ = table(50, seed=2)
    for model in (regressor, classifier):
        folds = model.model_.predict_folds(new_table(model, X))
        assert folds.shape[:2] == (4, 50)
        mean = model.model_.task.temper(folds.mean(axis=0), model.model_.temperature)
        np.testing.assert_allclose(mean, model.model_.predict(new_table(model, X)), rtol=1e-6, atol=1e-6)


def test_scores_come_from_rows_that_a_fold_did_not_train_on(regressor):
    held, problem = regressor.result_.outcome.held_out, regressor.result_.problem
    for k, fold in enumerate(problem.folds):
        mine = held.rows[held.row[held.fold == k]]
        assert (fold.valid[mine] > 0).all()
        assert (fold.train[mine] == 0).all()
    assert len(held.row) == 400


def test_strange_rows_are_marked_with_their_columns(regressor):
    X, _ = table(2000, seed=3)
    assert regressor.strange(X, 0.05).marked.mean() < 0.06
    odd = pd.DataFrame({"x": [0.0, 1e3, 0.0], "z": [0.0, 0.0, 0.0], "colour": ["red", "red", "mauve"]})
    found = regressor.strange(odd)
    assert found.columns == [[], ["x"], ["colour"]]
    assert found.marked.tolist() == [False, True, True]


def test_a_saved_model_knows_it_all(regressor, classifier, tmp_path):
    X, _ = table(60, seed=4)
    X.loc[0, "colour"] = "mauve"
    for model, ask in ((regressor, "predict_interval"), (classifier, "predict_set")):
        for name in ("one", "other"):
            shoal.save(model, tmp_path / ask / name)
        for file in ("model.json", "weights.safetensors"):
            one, other = ((tmp_path / ask / name / file).read_bytes() for name in ("one", "other"))
            assert one == other
        loaded = shoal.load(tmp_path / ask / "one")
        np.testing.assert_array_equal(getattr(loaded, ask)(X, 0.8), getattr(model, ask)(X, 0.8))
        assert loaded.strange(X).columns == model.strange(X).columns
        np.testing.assert_array_equal(loaded.strange(X).p_values, model.strange(X).p_values)


def test_the_wrong_question_is_answered_in_words(regressor, classifier):
    X, _ = table(3)
    with pytest.raises(ValueError, match="intervals are for numbers, and this model predicts classes: use predict_set"):
        classifier.predict_interval(X)
    with pytest.raises(ValueError, match="sets are for classes, and this model predicts numbers: use predict_interval"):
        regressor.predict_set(X)
    for coverage in (0, 1, 90):
        with pytest.raises(ValueError, match=rf"coverage must be a share .*; got {coverage}"):
            regressor.predict_interval(X, coverage)
        with pytest.raises(ValueError, match=rf"coverage must be a share .*; got {coverage}"):
            classifier.predict_set(X, coverage)
    with pytest.raises(ValueError, match="share must be a share of rows above zero and below 1; got 5"):
        regressor.strange(X, 5)


def test_two_rows_predict_and_are_too_few_for_intervals():
    model = ShoalRegressor(**QUICK, seeds=1).fit([[0.0], [1.0]], [0.0, 1.0])
    assert np.isfinite(model.predict([[0.5]])).all()
    with pytest.raises(ValueError, match=r"a coverage of 0.9 needs at least 9 held-out rows to learn from; .* has 2"):
        model.predict_interval([[0.5]])
    assert not model.strange([[1e9]]).marked.any()
    assert one_row(model.result_, None) is None


def test_several_numbers_and_several_labels():
    X, y = table(120)
    both = ShoalRegressor(**QUICK, seeds=1, cv=3).fit(X, np.column_stack([y, 10 * y]))
    ends = both.predict_interval(X)
    assert ends.shape == (120, 2, 2)
    assert np.diff(ends)[:, 1].mean() > 5 * np.diff(ends)[:, 0].mean()
    labels = ShoalClassifier(**QUICK, seeds=1, cv=3).fit(X, np.column_stack([y > 0, y > 1]).astype(int))
    with pytest.raises(ValueError, match="this model predicts several labels: use predict_proba"):
        labels.predict_set(X)
    assert labels.strange(X).p_values.shape == (120,)


@pytest.mark.parametrize("how", [{"refit": True, "cv": 4}, {"cv": TimeSeriesSplit(4)}], ids=["refit", "time series"])
def test_a_model_that_is_trained_again_has_intervals_from_residuals_of_its_folds(how, tmp_path):
    X, y = table(300)
    model = ShoalRegressor(**QUICK, seeds=1, **how).fit(X, y)
    assert len(model.model_.folds) == 1
    new, truth = table(1000, seed=5)
    low, high = model.predict_interval(new).T
    assert 0.85 < ((low <= truth) & (truth <= high)).mean() < 0.97
    shoal.save(model, tmp_path / "model")
    np.testing.assert_array_equal(shoal.load(tmp_path / "model").predict_interval(new).T, [low, high])
    assert one_row(model.result_, None)["refit"]


def test_rows_may_be_dealt_several_times_and_have_weights():
    from sklearn.model_selection import RepeatedKFold

    X, y = table(80)
    weight = np.random.default_rng(0).integers(1, 4, 80)
    cv = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    model = ShoalRegressor(**QUICK, seeds=1, cv=cv).fit(X, y, sample_weight=weight)
    calibration = model.model_.certainty.calibration
    assert calibration.counts.sum() == 160
    assert calibration.rows == weight.sum()
    assert calibration.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert calibration.weight.sum() == 2 * weight.sum()
    assert np.isfinite(model.predict_interval(X)).all()


def test_the_report_tells_for_whom(regressor, classifier):
    found = one_row(regressor.result_, None)
    assert found["columns"][0]["name"] == "x"
    sizes = [part["size"] for part in found["columns"][0]["parts"]]
    assert sizes[-1] > 1.5 * sizes[0]
    assert sum(one_row(classifier.result_, list(classifier.classes_))["sizes"]) == pytest.approx(1.0)
    size = np.random.default_rng(0).normal(size=300)
    noise = Table.of({"a": size[::-1].copy(), "b": np.array(["u", "v", None] * 100, dtype=object)})
    assert for_whom(noise, size) == [], "nothing is found in noise"


def test_a_compact_model_learns_from_the_rows_that_its_own_folds_left_out(tmp_path):
    """Few networks of few folds: scores are those of the rows that these folds held out, and hold on new rows."""
    X, y = table(1200, seed=2)
    model = ShoalRegressor(**QUICK, seeds=1, cv=4, model="compact").fit(X, y)
    calibration, folds = model.model_.certainty.calibration, len(model.model_.folds)
    assert folds < 4, "the table is so easy that a few folds will do"
    assert len(calibration.counts) == folds
    assert calibration.rows == pytest.approx(folds / 4 * 1200, rel=0.01)
    X, y = table(3000, seed=3)
    low, high = model.predict_interval(X, 0.9).T
    assert 0.85 < ((low <= y) & (y <= high)).mean() < 0.95
    assert (high - low)[X["x"] > 0.5].mean() > 2 * (high - low)[X["x"] < -0.5].mean(), "narrow where data are calm"
    shoal.save(model, tmp_path / "compact")
    assert np.array_equal(shoal.load(tmp_path / "compact").predict_interval(X, 0.9), np.stack([low, high], axis=1))
    classes = ShoalClassifier(**QUICK, seeds=1, cv=4, model="compact").fit(X, y > 0)
    assert classes.predict_set(X[:5], 0.9).any(axis=1).all()


@pytest.mark.parametrize("kind", [ShoalRegressor, ShoalClassifier])
def test_scores_of_a_compact_model_are_those_of_its_own_networks(kind):
    """Those of the whole ensemble would be too small."""
    X, y = table(300)
    model = kind(**QUICK, seeds=3, cv=4, model="compact").fit(X, y if kind is ShoalRegressor else y > 0)
    result, held = model.result_, model.result_.outcome.held_out
    assert model.model_.compact.whole_networks < len(result.outcome.model.parts) * 4 or len(model.model_.folds) < 4
    first = np.unique(result.problem.row_of, return_index=True)[1]
    said = model.model_.predict_folds(result.searched.table.take(first[held.rows]))[held.fold, held.row]
    said = said if kind is ShoalRegressor else said / said.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(held.prediction, model.model_.task.temper(said, model.model_.temperature), rtol=1e-4)


def test_rows_are_answered_some_at_a_time(regressor, classifier, monkeypatch):
    X, _ = table(50, seed=4)
    whole = regressor.predict_interval(X), classifier.predict_set(X)
    most = []
    predict = Model.predict_folds
    monkeypatch.setattr(
        Model, "predict_folds", lambda self, rows, *more: most.append(len(rows)) or predict(self, rows, *more)
    )
    monkeypatch.setattr(certainty, "CELLS_AT_ONCE", 200)
    np.testing.assert_allclose(regressor.predict_interval(X), whole[0], rtol=1e-6)
    np.testing.assert_array_equal(classifier.predict_set(X), whole[1])
    assert 1 < max(most) < 50

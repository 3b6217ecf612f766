"""The estimators as scikit-learn users meet them."""

import pickle
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.stats
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, make_multilabel_classification
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor

SMALL = {"recipes": 6, "seeds": 1, "epochs": 20}


@parametrize_with_checks([ShoalClassifier(recipes=4, seeds=1), ShoalRegressor(recipes=4, seeds=1)])
def test_scikit_learns_own_checks(estimator, check, monkeypatch):
    monkeypatch.setattr("shoal.search.budget.model.BOOTSTRAPS", 40)  # no check looks at the interval
    check(estimator)


def test_another_order_of_columns_is_no_error_as_it_is_in_scikit_learn():
    """A check that scikit-learn keeps for its own estimators; it holds up to where names come in another order."""
    with pytest.raises(AssertionError, match=r"^predict did not raise$"):
        check_dataframe_column_names_consistency("ShoalRegressor", ShoalRegressor(recipes=1, seeds=1, epochs=1))


@pytest.fixture(scope="module")
def fitted(iris):
    return ShoalClassifier(recipes=36, seeds=2).fit(*iris)


def test_results_are_there_and_agree(fitted, iris):
    X, y = iris
    board = fitted.leaderboard_
    assert fitted.score(X, y) > 0.93
    assert len(board) == 36 == len(fitted.cv_results_["params"])
    np.testing.assert_array_equal(board["rank"], np.arange(1, 37))
    best = fitted.board_[fitted.best_index_]
    splits = [fitted.cv_results_[f"split{k}_test_score"][fitted.best_index_] for k in range(8)]
    assert np.mean(splits) == pytest.approx(best["score"])
    params = fitted.cv_results_["params"][fitted.best_index_]
    assert fitted.best_member_ == Member.from_dict({k: v for k, v in params.items() if k != "encoding"})
    assert fitted.cv_results_["param_hidden"][fitted.best_index_] == fitted.best_member_.hidden
    assert fitted.best_score_ == best["score"]
    assert fitted.n_networks_ == 8 * sum(board["seeds"])
    assert best["seeds"] == 2
    assert best["seed_spread"] is not None
    assert sum(fitted.luck_.values()) == pytest.approx(1)
    finished = board["stopped"] == ""
    assert finished.argmin() == finished.sum(), "recipes trained to the end come first"
    assert np.all(np.diff(board["score"][finished]) <= 1e-12)


def test_probabilities_are_those_of_the_classes(fitted, iris):
    X, _ = iris
    probability = fitted.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(fitted.classes_[probability.argmax(axis=1)], fitted.predict(X))


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(iris):
    first, again, other = (
        ShoalClassifier(**SMALL, random_state=s).fit(*iris).predict_proba(iris[0]) for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_one_thread_gives_the_bits_of_two(iris):
    one, two = (ShoalClassifier(**SMALL, n_jobs=jobs).fit(*iris).predict_proba(iris[0]) for jobs in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("labels", [np.array(["no", "maybe", "yes"]), np.array([3, 5, 9]), np.array([0.0, 1.0, 2.0])])
def test_labels_of_any_kind_come_back(iris, labels):
    X, y = iris
    model = ShoalClassifier(**SMALL).fit(X, labels[y])
    assert model.predict(X).dtype == labels.dtype
    assert np.mean(model.predict(X) == labels[y]) > 0.9


def test_boolean_labels(iris):
    X, y = iris
    predicted = ShoalClassifier(**SMALL).fit(X, y == 1).predict(X)
    assert predicted.dtype == bool
    assert np.mean(predicted == (y == 1)) > 0.9


def test_several_labels_at_once():
    X, y = make_multilabel_classification(300, n_features=10, n_classes=4, random_state=0)
    model = ShoalClassifier(recipes=8, seeds=1).fit(X, y)
    assert model.predict_proba(X).shape == (300, 4)
    assert model.predict(X).shape == (300, 4)
    assert np.mean(model.predict(X) == y) > 0.85
    assert model.score(X, y) == pytest.approx(np.mean((model.predict(X) == y).all(axis=1)))


def test_several_numbers_at_once():
    X = np.random.default_rng(0).normal(size=(300, 3))
    Y = np.column_stack([X[:, 0] * 100, X[:, 1] - X[:, 2]])
    model = ShoalRegressor(recipes=8, seeds=1).fit(X, Y)
    assert model.predict(X).shape == (300, 2)
    assert model.score(X, Y) > 0.95


def test_works_in_pipelines_and_searches_of_scikit_learn(iris):
    X, y = iris
    pipeline = make_pipeline(StandardScaler(), ShoalClassifier(**SMALL))
    assert cross_val_score(pipeline, X, y, cv=2).min() > 0.85
    grid = GridSearchCV(ShoalClassifier(**SMALL), {"model": ["ensemble", "best"]}, cv=2).fit(X, y)
    assert grid.best_score_ > 0.85
    with sklearn.config_context(transform_output="pandas"):
        assert pipeline.fit(X, y).score(X, y) > 0.9


def test_metadata_routing_brings_weights_and_groups(iris):
    X, y = iris
    given = []

    class Recorded(ShoalClassifier):
        def fit(self, X, y, sample_weight=None, groups=None):
            given.append((X[:, 0], sample_weight, groups))
            return super().fit(X, y, sample_weight, groups)

    with sklearn.config_context(enable_metadata_routing=True):
        model = Recorded(**SMALL, cv=GroupKFold(3)).set_fit_request(groups=True, sample_weight=True)
        model.set_score_request(sample_weight=False)
        groups = np.arange(len(y)) % 10
        scores = cross_val_score(model, X, y, cv=2, params={"groups": groups, "sample_weight": X[:, 0]})
    assert scores.min() > 0.8
    assert len(given) == 2
    for sizes, weight, part in given:
        np.testing.assert_array_equal(weight, sizes, "each row has its own weight")
        assert sorted(set(part)) == list(range(10))


def test_pickles_predict_alike_without_the_search_and_clones_are_not_fitted(fitted, iris):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(iris[0]), fitted.predict_proba(iris[0]))
    assert not hasattr(copy, "result_")
    assert not hasattr(clone(fitted), "model_")


@pytest.mark.parametrize(
    "cv",
    [
        3, TimeSeriesSplit(4), RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
        ShuffleSplit(3, test_size=0.2, random_state=0),
    ],
    ids=lambda cv: type(cv).__name__,
)  # fmt: skip
def test_any_splitter_of_scikit_learn_will_do(iris, cv):
    X, y = iris
    order = np.random.default_rng(0).permutation(len(y))
    model = ShoalClassifier(**SMALL, cv=cv).fit(X[order], y[order])
    assert model.score(X, y) > 0.85
    folds = cv if isinstance(cv, int) else cv.get_n_splits(X[order], y[order])
    assert sum(name.startswith("split") for name in model.cv_results_) == folds
    assert len(model.model_.folds) == (1 if isinstance(cv, TimeSeriesSplit) else folds), "time series are fitted anew"


def test_groups_are_never_on_both_sides():
    """Rows of a group share a column that gives their label away: only a split by groups shows that it is useless."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 6)
    y = generator.integers(2, size=30)[groups]
    X = generator.normal(size=(30, 5))[groups] + 0.01 * generator.normal(size=(180, 5))
    members = [Member(hidden=32, learning_rate=0.03, batch_size=16)]
    leaky = ShoalClassifier(members, epochs=60, seeds=1, model="best", cv=5, group_repeats=False).fit(X, y)
    honest = ShoalClassifier(members, epochs=60, seeds=1, model="best", cv=GroupKFold(5)).fit(X, y, groups=groups)
    default = ShoalClassifier(members, epochs=60, seeds=1, model="best").fit(X, y, groups=groups)
    assert default.best_score_ < 0.7, "groups count without a splitter as well"
    assert leaky.best_score_ > 0.95
    assert honest.best_score_ < 0.7


def test_a_weight_of_two_is_the_row_twice_and_of_zero_no_row(iris):
    X, y = iris
    weight = np.random.default_rng(0).integers(0, 3, size=len(y))
    half = np.arange(len(y)) % 2
    twice = np.repeat(np.arange(len(y)), weight)
    weighted = ShoalClassifier(**SMALL, cv=[(np.flatnonzero(half == k), np.flatnonzero(half != k)) for k in (0, 1)])
    repeated = clone(weighted).set_params(
        cv=[(np.flatnonzero(half[twice] == k), np.flatnonzero(half[twice] != k)) for k in (0, 1)]
    )
    weighted.fit(X, y, sample_weight=weight)
    repeated.fit(X[twice], y[twice])
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))
    assert weighted.honest_score_ == repeated.honest_score_
    assert weighted.leaderboard_["loss"].tolist() == repeated.leaderboard_["loss"].tolist()


@pytest.mark.parametrize("kind", [ShoalClassifier, ShoalRegressor])
def test_weights_are_repetitions_for_scikit_learn_with_default_settings_too(kind):
    check_sample_weight_equivalence_on_dense_data(kind.__name__, kind())


def test_balanced_classes_find_the_rare_one():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(600, 2))
    y = (X[:, 0] + 0.5 * generator.normal(size=600) > 2.0).astype(int)
    found = [
        ShoalClassifier(**SMALL, class_weight=w).fit(X, y).predict(X)[y == 1].mean() for w in (None, "balanced")
    ]  # fmt: skip
    assert found[1] > found[0] + 0.1


def mixed_table(n=200):
    generator = np.random.default_rng(0)
    colour = generator.choice(["red", "green", "blue"], n)
    size = generator.normal(size=n)
    y = np.where((colour == "red") ^ (size > 0), "yes", "no")
    frame = {
        "size": np.where(generator.random(n) < 0.1, np.nan, size), "colour": colour, "flag": size > 0,
        "day": np.datetime64("2024-01-01") + np.arange(n), "code": [f"id{k:05d}" for k in range(n)], "same": ["x"] * n,
    }  # fmt: skip
    return frame, y


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict], ids=["pandas", "polars", "dict"])
def test_tables_as_people_have_them(make):
    columns, y = mixed_table()
    frame = make(columns)
    model = ShoalClassifier(recipes=10, seeds=1).fit(frame, y)
    assert model.score(frame, y) > 0.9
    kinds = {column.name: column.kind for column in model.schema_.columns}
    assert kinds["code"] == "identifier"
    assert kinds["same"] == "constant"
    if make is pd.DataFrame:
        assert list(model.feature_names_in_) == list(columns)
        unseen = frame.assign(colour="violet")
        assert model.predict_proba(unseen).shape == (200, 2)


def test_infinities_name_their_column():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [1.0, np.inf, 2.0, 3.0]})
    with pytest.raises(ValueError, match="'b'"):
        ShoalClassifier(**SMALL).fit(frame, [0, 1, 0, 1])


def test_preprocessing_never_sees_the_rows_a_fold_is_scored_on(iris):
    """Wild values in the validation rows must leave that fold's encoder and weights as they are."""
    X, y = iris
    train, valid = np.arange(0, 150, 2), np.arange(1, 150, 2)
    wild = X.copy()
    wild[valid] *= 1e6
    fits = [ShoalClassifier(**SMALL, cv=[(train, valid)], model="best", refit=False).fit(Z, y) for Z in (X, wild)]
    numbers = [fit.model_.folds[0].encoder.scaling for fit in fits]
    np.testing.assert_array_equal(numbers[0].centre, numbers[1].centre)
    np.testing.assert_array_equal(numbers[0].edges, numbers[1].edges)
    one, two = (fit.board_.columns["label"] for fit in fits)
    assert sorted(one) == sorted(two), "the same recipes were tried"
    # Fitted on all rows instead, as a careless pipeline would be, the scale would be another one.
    from shoal.encoders.scaling import NumberScaling

    assert not np.array_equal(NumberScaling.fit(wild, np.ones(150)).centre, numbers[0].centre)


def test_noise_scores_at_chance():
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=120)
    frame = pd.DataFrame({"x": generator.normal(size=120)})
    model = ShoalClassifier(recipes=20, seeds=1).fit(frame, y)
    assert abs(model.honest_score_.corrected - 0.5) < 0.12


@pytest.mark.parametrize("strategy", ["halving", "random", "grid", "optuna"])
def test_strategies_over_a_space(iris, strategy):
    X, y = iris
    space = {"hidden": [8, (8, 8)], "activation": ["relu", "tanh"], "learning_rate": [0.01, 0.03]}
    if strategy != "grid":
        space["learning_rate"] = scipy.stats.loguniform(0.003, 0.1)
    model = ShoalClassifier(space, strategy=strategy, recipes=8, epochs=30, seeds=1, cv=3).fit(X, y)
    assert len(model.leaderboard_) == 8
    assert model.score(X, y) > 0.85
    assert set(model.leaderboard_["hidden"]) <= {"8", "8x8"}


def test_a_list_of_members_is_tried_as_given(iris):
    X, y = iris
    members = shoal.grid(hidden=[4, 16], activation=["relu", "elu"], learning_rate=0.01, repeats=2)
    model = ShoalClassifier(members, strategy="grid", epochs=20, seeds=1, cv=3, model="best").fit(X, y)
    assert len(model.leaderboard_) == 4, "seeds of a recipe share a row"
    assert set(model.leaderboard_["seeds"]) == {2}
    assert model.best_member_.replace(epochs=None) in members
    assert len(model.model_.parts) == 1


def test_the_leaderboard_is_a_frame_where_pandas_is_installed(fitted, monkeypatch):
    board = fitted.leaderboard_
    assert isinstance(board, pd.DataFrame)
    assert board.head(3)["rank"].tolist() == [1, 2, 3]
    assert str(fitted.board_).startswith("Leaderboard of 36 recipes\n    1  0.9")
    assert fitted.board_[-1]["rank"] == board.iloc[-1]["rank"] == 36
    board["score"] = 0.0
    assert fitted.leaderboard_["score"].max() > 0.9, "it is the user's copy"
    assert not hasattr(ShoalClassifier(), "leaderboard_")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert fitted.leaderboard_ is fitted.board_


def test_the_honest_score_is_a_number(fitted):
    score = fitted.honest_score_
    assert float(score) == score.corrected
    assert f"{score:.3f}" == f"{score.corrected:.3f}"
    assert f"{score}" == str(score)
    assert str(score).startswith("accuracy 0.")


def test_an_estimator_writes_its_report(fitted, iris, tmp_path):
    X, y = iris
    page = fitted.report(tmp_path / "page.html")
    said = page.read_text(encoding="utf-8")
    assert "150 rows" in said
    assert fitted.board_[0]["label"].split(",")[0].split()[0] in said
    model = ShoalClassifier(Member(epochs=2), seeds=1, cv=3).fit(X, pd.Series(y, name="kind of iris"))
    assert "kind of iris" in model.report(tmp_path / "named.html", title="Irises & more").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="files and pickles of a model do not hold; call it after fit"):
        pickle.loads(pickle.dumps(model)).report(tmp_path / "no.html")
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ShoalClassifier().report(tmp_path / "no.html")
    assert not (tmp_path / "no.html").exists()


def test_a_member_is_a_space_of_one_and_a_set_has_an_order(iris):
    model = ShoalClassifier(Member(hidden=4, epochs=3), seeds=1, cv=3).fit(*iris)
    assert (len(model.leaderboard_), model.best_member_.hidden) == (1, (4,))
    space = {"hidden": (4, 4), "activation": ("relu", "tanh"), "learning_rate": {0.03, 0.01}, "epochs": 2}
    model = ShoalClassifier(space, strategy="grid", seeds=1, cv=3).fit(*iris)
    tried = [
        (candidate.recipe.member.activation, candidate.recipe.member.learning_rate)
        for candidate in model.result_.search.candidates
    ]
    assert tried == [("relu", 0.01), ("relu", 0.03), ("tanh", 0.01), ("tanh", 0.03)]
    assert set(model.leaderboard_["hidden"]) == {"4x4"}


def test_one_row_may_be_a_dict_of_values_and_equal_names_are_made_different():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "colour": rng.choice(["red", "blue"], 60)})
    y = (frame["colour"] == "red").astype(int)
    model = ShoalClassifier(Member(epochs=3), seeds=1, cv=3).fit(frame, y)
    one = model.predict_proba({"size": 0.5, "colour": "red"})
    assert one.tolist() == model.predict_proba(pd.DataFrame({"size": [0.5], "colour": ["red"]})).tolist()
    frame.columns = ["a", "a"]
    with pytest.warns(UserWarning, match=r"'a' occurs more than once: one is now 'a \(2\)'"):
        model.fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "a (2)"]
    with pytest.warns(UserWarning, match="more than once"):
        assert model.predict(frame).shape == (60,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"space": 5}, "space must be a dict of choices.*; got 5: a number of recipes is recipes=, .* budget="),
        ({"space": {"hidden": []}}, r"a linear model, without hidden layers, is hidden=\(\)"),
        ({"strategy": "halvin"}, "did you mean 'halving'"),
        ({"scoring": "accurac"}, "did you mean 'accuracy'"),
        ({"budget": -1}, "budget must be a number of seconds above zero"),
        ({"recipes": 0}, "recipes must be a whole number"),
        ({"cv": 1}, "at least 2 folds"),
        ({"space": {"hiden": [3]}}, "did you mean 'hidden'"),
        ({"space": []}, "empty list"),
        ({"refit": "maybe"}, "refit must be"),
        ({"model": "bset"}, "model must be one of ensemble, compact, best; got 'bset'; did you mean 'best'?"),
        ({"recipes": 3, "budget": 5}, r"give budget \(time\) or recipes \(a fixed amount of work\), not both"),
        ({"strategy": "grid"}, "needs lists of values"),
    ],
)
def test_mistakes_say_the_rule_the_value_and_the_remedy(iris, arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ShoalClassifier(**{**SMALL, **arguments}).fit(*iris)


MISSING = {
    "None among strings": (
        np.array(["a", None, "b", None] * 10, dtype=object),
        "the target y is missing in 20 of 40 rows",
    ),
    "NaN": (np.array([0.0, np.nan, 1.0, 1.0] * 10), "Input y contains NaN: the target y is missing in 10 of 40 rows"),
    "NaN among strings": (np.array(["a", np.nan, "b", "b"] * 10, dtype=object), "missing in 10 of 40 rows"),
    "a column of pandas": (
        pd.Series([1, None, 0, 0] * 10, dtype="Int64", name="sold"),
        "the target 'sold' is missing in 10",
    ),
    "a column of polars": (pl.Series("sold", ["a", None, "b", "b"] * 10), "the target 'sold' is missing in 10 of 40"),
    "several labels": (np.array([[0.0, 1.0], [np.nan, np.nan]] * 20), "missing in 20 of 40 rows"),
    "infinity": (np.array([0.0, np.inf, 1.0, -np.inf] * 10), "infinity: the target y is infinite in 20 of 40 rows"),
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("kind", [ShoalClassifier, ShoalRegressor])
def test_missing_targets_are_counted(name, kind):
    y, words = MISSING[name]
    with pytest.raises(ValueError, match=words) as error:
        kind(**SMALL).fit(np.arange(40.0)[:, None], y)
    assert "remove those rows" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("size", "remedy"), [(1e300, "divide"), (1e160, "divide"), (1e38, "divide"), (1e-40, "multiply")]
)
def test_numbers_too_large_or_small_to_be_squared_are_refused_by_name(size, remedy):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=rf"the target 'price' goes up to .*: {remedy} it by a constant") as error:
        ShoalRegressor(**SMALL).fit(X, pd.Series(size * X[:, 0], name="price"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [1e36, 1e-29])
def test_numbers_that_can_just_be_squared_are_predicted(size):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = size * X[:, 0]
    model = ShoalRegressor(recipes=2, seeds=1, cv=3, scoring="r2").fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.honest_score_.corrected > 0.8


def test_every_network_diverging_is_an_error_with_a_remedy(iris):
    members = [Member(hidden=8, optimizer="sgd", learning_rate=1e12)]
    with pytest.raises(ValueError, match="lower learning_rate"):
        ShoalClassifier(members, epochs=5, cv=3).fit(*iris)


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score"])
def test_scores_of_classes_are_those_of_scikit_learn(scoring):
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, log_loss

    X, y = load_breast_cancer(return_X_y=True)
    half = np.arange(len(y)) % 2 == 0
    model = ShoalClassifier(**SMALL, scoring=scoring, cv=[(np.flatnonzero(half), np.flatnonzero(~half))], model="best")
    model.fit(X, y)
    outcome = model.result_.outcome
    seen = np.flatnonzero(model.result_.search.problem.valid_weight > 0)
    p, truth = outcome.best.prediction[seen], model.result_.search.problem.y[seen]
    expected = {
        "accuracy": accuracy_score(truth, p.argmax(axis=1)),
        "balanced_accuracy": balanced_accuracy_score(truth, p.argmax(axis=1)),
        "neg_log_loss": -log_loss(truth, p.astype(float) / p.astype(float).sum(axis=1, keepdims=True)),
        "neg_brier_score": -brier_score_loss(truth, p[:, 1]),
    }[scoring]
    assert model.best_score_ == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error", "neg_mean_absolute_error"])
def test_scores_of_numbers_are_those_of_scikit_learn(scoring):
    from sklearn.metrics import get_scorer

    X, y = load_diabetes(return_X_y=True)
    half = np.arange(len(y)) % 2 == 0
    cv = [(np.flatnonzero(half), np.flatnonzero(~half))]
    model = ShoalRegressor(**SMALL, scoring=scoring, cv=cv, model="best", refit=False).fit(X, y)
    assert model.best_score_ == pytest.approx(get_scorer(scoring)(model, X[~half], y[~half]), rel=1e-5)


def test_verbose_tells_how_far_it_is(iris, capfd):
    ShoalClassifier(recipes=12, seeds=2, verbose=True).fit(*iris)
    told = capfd.readouterr().err
    assert "recipes" in told
    assert "best accuracy" in told
    ShoalClassifier(**SMALL).fit(*iris)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("other", [1, 2.5, True, 10**20])
@pytest.mark.parametrize("place", [0, 7, 59])
def test_classes_of_several_types_are_refused_in_one_sentence(other, place):
    y = np.array(["a", "b"] * 30, dtype=object)
    y[place] = other
    with pytest.raises(ValueError, match=rf"^classes must be all strings or none; y has strings, and {other!r}: give"):
        ShoalClassifier(**SMALL).fit(np.arange(60.0).reshape(30, 2).repeat(2, axis=0), y)

"""Scores: equal to scikit-learn's, as the mean of a value per row, and refused in words where they do not exist."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
from sklearn.datasets import load_breast_cancer, load_iris

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor
from shoal.metrics.find import find_metric
from shoal.metrics.metric import ALIASES, METRICS
from shoal.metrics.scorers import _partly_wrong, scorer_names
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import make_problem
from shoal.search.results.report_data import chance, honest_words
from shoal.search.rounds.candidates import LocalTrainer
from shoal.search.scoring.evidence import Evidence
from shoal.search.scoring.honest import HonestScore, correct
from shoal.tables.schema import Schema
from shoal.tables.table import Table

MEMBERS = [Member(hidden=4, epochs=6, learning_rate=0.01), Member(hidden=(), epochs=6, learning_rate=0.01)]


def drawn(kind, outputs, n=200, seed=0, candidates=3):
    """Predictions (candidates, n, outputs) with many equal ones, targets with rare classes, weights with zeros."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 4, n) * 0.5
    if kind == REGRESSION:
        return rng.normal(size=(candidates, n, outputs)), rng.normal(size=(n, outputs)), weight
    p = np.round(rng.random((candidates, n, outputs)), 1).astype(np.float32)
    if kind == MULTILABEL:
        return p, (rng.random((n, outputs)) < 0.3).astype(np.float32), weight
    share = np.linspace(1, 3, outputs)
    y = rng.choice(outputs, n, p=share / share.sum())
    p[:, np.arange(n), y] += 0.2
    return p / p.sum(axis=-1, keepdims=True), y, weight


def trained_too_early(*arguments):
    raise AssertionError("a network was trained")


def roc_auc(y, p, w):
    score = p[:, 1] if p.shape[1] == 2 and y.ndim == 1 else p.astype(float)
    return sklearn_metrics.roc_auc_score(y, score, sample_weight=w, multi_class="ovr")


def f1(y, p, w, average=None):
    said = p > 0.5 if y.ndim == 2 else p.argmax(axis=1)
    average = average or ("binary" if y.ndim == 1 and p.shape[1] == 2 else "macro")
    return sklearn_metrics.f1_score(y, said, sample_weight=w, average=average)


EXPECTED = {
    "balanced_accuracy": lambda y, p, w: sklearn_metrics.balanced_accuracy_score(y, p.argmax(axis=1), sample_weight=w),
    "roc_auc": roc_auc,
    "f1": f1,
    "f1_macro": lambda y, p, w: f1(y, p, w, "macro"),
    "neg_mean_absolute_error": lambda y, p, w: -sklearn_metrics.mean_absolute_error(y, p, sample_weight=w),
    "neg_mean_squared_error": lambda y, p, w: -sklearn_metrics.mean_squared_error(y, p, sample_weight=w),
}
CLASSES, LABELS = ("balanced_accuracy", "roc_auc", "f1", "f1_macro"), ("roc_auc", "f1", "f1_macro")
NUMBERS = ("neg_mean_absolute_error", "neg_mean_squared_error")
CASES = [
    *[(name, CLASSIFICATION, outputs) for name in CLASSES for outputs in (2, 4)],
    *[(name, MULTILABEL, 3) for name in LABELS],
    *[(name, REGRESSION, outputs) for name in NUMBERS for outputs in (1, 2)],
]


@pytest.mark.parametrize(("name", "kind", "outputs"), CASES)
def test_scores_are_those_of_scikit_learn(name, kind, outputs):
    p, y, weight = drawn(kind, outputs)
    task, metric = Task(kind, outputs), METRICS[name]
    expected = [EXPECTED[name](y, each, weight) for each in p]
    assert len(set(expected)) == len(p)
    assert metric.score(task, p, y, weight) == pytest.approx(expected, rel=1e-6)
    assert metric.score(task, p[1], y, weight) == pytest.approx(expected[1], rel=1e-6)
    assert metric.score(task, p, y, np.ones(len(y)))[0] == pytest.approx(EXPECTED[name](y, p[0], None), rel=1e-6)


@pytest.mark.parametrize("name", ["balanced_accuracy", "roc_auc", "f1", "f1_macro"])
@pytest.mark.parametrize("outputs", [2, 4])
def test_influences_of_rows_predict_the_scores_of_bootstrap_samples(name, outputs):
    """Thousands of bootstrap samples are scored by a mean over rows; each of them scored anew says nearly the same."""
    p, y, _ = drawn(CLASSIFICATION, outputs, n=2_000, candidates=1)
    task, metric = Task(CLASSIFICATION, outputs), METRICS[name]
    rng = np.random.default_rng(1)
    rows = metric.rows(task, p[0], y, np.ones(len(y)))
    exact, quick = [], []
    for _ in range(60):
        counts = np.bincount(rng.integers(len(y), size=len(y)), minlength=len(y)).astype(float)
        exact.append(float(metric.score(task, p[0], y, counts)))
        quick.append(rows @ counts / counts.sum())
    assert np.corrcoef(exact, quick)[0, 1] > 0.98
    assert np.std(quick) == pytest.approx(np.std(exact), rel=0.1)


def test_a_class_that_is_not_there_does_not_count():
    p, y, _ = drawn(CLASSIFICATION, 4, candidates=1)
    rows = np.flatnonzero(y != 2)
    task, one = Task(CLASSIFICATION, 4), np.ones(len(rows))
    areas = [sklearn_metrics.roc_auc_score(y[rows] == k, p[0, rows, k]) for k in (0, 1, 3)]
    assert METRICS["roc_auc"].score(task, p[0, rows], y[rows], one) == pytest.approx(np.mean(areas))
    assert METRICS["f1"].score(task, p[0, rows], y[rows], one) == pytest.approx(f1(y[rows], p[0, rows], one, "macro"))


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [("roc_auc", 0, "needs rows of a second class"), ("roc_auc", 1, "second class"), ("f1", 0, "positive class")],
)
def test_folds_without_a_score_are_refused_before_anything_is_trained(name, bad, words, monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    only = np.flatnonzero(y == bad)[:10]
    folds = [(np.arange(30), np.arange(30, 60)), (np.setdiff1d(np.arange(60), only), only)]
    weight = np.where((np.arange(60) >= 30) & (y != bad), 0.0, 1.0)  # rows that do not count
    with monkeypatch.context() as patch:
        patch.setattr(LocalTrainer, "train", trained_too_early)
        with pytest.raises(ValueError, match=rf"{words}.* fold 1 has none; use fewer folds") as error:
            ShoalClassifier(MEMBERS, scoring=name, cv=folds).fit(X, y)
        assert "\n" not in str(error.value)
        with pytest.raises(ValueError, match="fold 0 has none"):
            ShoalClassifier(MEMBERS, scoring=name, cv=folds[:1]).fit(X, y, sample_weight=weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(ShoalClassifier(MEMBERS, scoring="f1_macro", cv=folds).fit(X, y).best_score_)


def test_draws_without_a_score_do_not_spoil_the_honest_score():
    """With three positives in 40 rows every fourth bootstrap sample leaves out none of them."""
    rng = np.random.default_rng(0)
    y = (np.arange(40) < 3).astype(int)
    X = rng.normal(size=(40, 2)) + 3 * y[:, None]
    for scoring in ("roc_auc", "f1"):
        model = ShoalClassifier(MEMBERS, scoring=scoring, cv=3, seeds=1).fit(X, y)
        honest = model.honest_score_
        assert np.isfinite([honest.raw, honest.corrected, honest.low, honest.high]).all()
        assert honest.low <= honest.corrected <= honest.high


@pytest.mark.parametrize("scoring", ["roc_auc", "roc_auc_ovr", "f1", "f1_macro"])
@pytest.mark.parametrize("data", [load_iris, load_breast_cancer])
def test_a_search_ranks_by_the_score(scoring, data):
    X, y = data(return_X_y=True)
    fold = (np.flatnonzero(np.arange(len(y)) % 2), np.flatnonzero(np.arange(len(y)) % 2 == 0))
    model = ShoalClassifier(MEMBERS, scoring=scoring, cv=[fold], model="best", seeds=1).fit(X, y)
    metric = ALIASES.get(scoring, scoring)
    problem, best = model.result_.search.problem, model.result_.outcome.best
    seen = np.flatnonzero(problem.valid_weight)
    expected = EXPECTED[metric](problem.y[seen], best.prediction[seen], problem.valid_weight[seen])
    assert model.best_score_ == pytest.approx(expected, rel=1e-5)
    assert model.leaderboard_["score"].argmax() == 0
    assert model.honest_score_.metric == metric
    assert 0.3 < model.honest_score_.low <= model.honest_score_.high <= 1.0


def test_numbers_are_scored_by_their_absolute_errors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    model = ShoalRegressor(MEMBERS, scoring="mean_absolute_error", cv=3, seeds=1).fit(X, X[:, 0])
    assert model.honest_score_.metric == "neg_mean_absolute_error"
    errors = np.abs(model.result_.outcome.best.prediction - model.result_.search.problem.y)
    assert model.best_score_ == pytest.approx(-errors.mean(), rel=1e-5)  # folds are of equal size


def test_names_of_scores_are_found_or_refused_with_the_nearest_one():
    two, number = Task(CLASSIFICATION, 2), Task(REGRESSION, 1)
    assert find_metric("log_loss", two) is METRICS["neg_log_loss"]
    for name, task, words in (
        ("roc_acu", two, "did you mean 'roc_auc'"),
        ("F1-macro", two, "did you mean 'f1_macro'"),
        ("mean_absolute_eror", number, "did you mean 'mean_absolute_error'"),
        (
            "roc_auc",
            number,
            "scoring must be one of r2, neg_mean_squared_error, neg_mean_absolute_error for regression",
        ),
        ("r2", two, "for classification"),
    ):
        with pytest.raises(ValueError, match=words):
            find_metric(name, task)


def test_the_command_names_every_score():
    from shoal.search.options import SCORING

    assert set(METRICS) <= set(re.findall(r"\w+", SCORING))


def test_rows_are_ranked_once_for_all_samples_of_an_honest_area():
    """A ranking for each sample and candidate would take minutes."""
    rng = np.random.default_rng(0)
    n, candidates = 4_000, 150
    y = rng.integers(0, 2, n)
    p = rng.random((candidates, n, 1)).astype(np.float32)
    p = np.concatenate([1 - p, p], axis=2)
    ones = np.ones(n)
    calls = []
    area = METRICS["roc_auc"]

    def counting(*arguments):
        calls.append(1)
        return area.rows(*arguments)

    evidence = Evidence(Task(CLASSIFICATION, 2), replace(area, rows=counting), p, y, ones, ones, 1.0)
    score = correct(evidence, p[0], bootstraps=50)
    assert score.bootstraps == 50
    assert len(calls) <= candidates + 2 * 50 + 2
    assert abs(score.corrected - 0.5) < 0.02


# ---- scikit-learn's scorers ----


def test_scorers_see_predictions_as_scikit_learn_gives_them():
    """Names, objects and functions; labels, probabilities and thresholds; weights, and rows repeated in their place."""
    p, y, weight = drawn(CLASSIFICATION, 2, candidates=1)
    task, classes, weight = Task(CLASSIFICATION, 2), np.array(["no", "yes"]), 2 * weight
    said, times = classes[p[0].argmax(axis=1)], weight.astype(int)

    def agreement(estimator, X, y):
        return float(np.mean(estimator.predict(X) == y))

    beta = sklearn_metrics.make_scorer(sklearn_metrics.fbeta_score, beta=2, pos_label="yes")
    expected = {
        "precision": sklearn_metrics.precision_score(y, p[0].argmax(axis=1), sample_weight=weight),
        "average_precision": sklearn_metrics.average_precision_score(y, p[0][:, 1], sample_weight=weight),
        beta: sklearn_metrics.fbeta_score(classes[y], said, beta=2, pos_label="yes", sample_weight=weight),
        agreement: float(np.average(said == classes[y], weights=times)),
    }
    for scoring, value in expected.items():
        metric = find_metric(scoring, task, classes)
        assert metric.score(task, p, y, weight) == pytest.approx([value], rel=1e-6)
        assert metric.rows(task, p[0], y, weight) @ weight / weight.sum() == pytest.approx(value, rel=1e-6)
    assert [find_metric(scoring, task, classes).name for scoring in (beta, agreement)] == ["fbeta_score", "agreement"]
    p, y, weight = drawn(REGRESSION, 1, candidates=1)
    value = sklearn_metrics.root_mean_squared_error(y, p[0], sample_weight=weight)
    metric = find_metric("neg_root_mean_squared_error", Task(REGRESSION, 1))
    assert metric.score(Task(REGRESSION, 1), p, y, weight) == pytest.approx([-value])
    p, y, weight = drawn(MULTILABEL, 3, candidates=1)
    value = sklearn_metrics.jaccard_score(y, p[0] > 0.5, average="macro", sample_weight=weight)
    metric = find_metric("jaccard_macro", Task(MULTILABEL, 3))
    assert metric.score(Task(MULTILABEL, 3), p, y, weight) == pytest.approx([value])


@pytest.mark.parametrize(
    ("name", "kind", "outputs"),
    [
        ("matthews_corrcoef", CLASSIFICATION, 2), ("average_precision", CLASSIFICATION, 2),
        ("precision_macro", CLASSIFICATION, 4), ("neg_root_mean_squared_error", REGRESSION, 1),
        ("explained_variance", REGRESSION, 2), ("jaccard_samples", MULTILABEL, 3),
    ],
)  # fmt: skip
def test_influences_of_groups_of_rows_predict_the_scores_of_bootstrap_samples(name, kind, outputs):
    """The last of ten predictions: its influences are means over the first eight, at one evaluation."""
    p, y, _ = drawn(kind, outputs, n=1_000, candidates=10)
    task, metric = Task(kind, outputs), find_metric(name, Task(kind, outputs))
    evaluations = []
    ask = metric.rows.value
    metric.rows.value = lambda *arguments: evaluations.append(1) or ask(*arguments)
    rows = metric.rows(task, p, y, np.ones(len(y)))
    assert len(evaluations) <= 8 * (1 + 72) + 2, "bounded, however many predictions there are"
    rng = np.random.default_rng(1)
    exact, quick = [], []
    for _ in range(40):
        counts = np.bincount(rng.integers(len(y), size=len(y)), minlength=len(y)).astype(float)
        exact.append(float(metric.score(task, p[9], y, counts)))
        quick.append(rows[9] @ counts / counts.sum())
    assert np.corrcoef(exact, quick)[0, 1] > 0.85
    assert np.std(quick) == pytest.approx(np.std(exact), rel=0.2)


def test_a_search_with_a_scorer_is_honest_saved_and_reported(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    y = np.array(["ill", "well"])[y]

    def share_found(estimator, X, y):
        return float(np.mean(estimator.predict(X)[y == "ill"] == "ill"))

    model = ShoalClassifier(MEMBERS, scoring=share_found, cv=3, seeds=1).fit(X, y)
    honest = model.honest_score_
    assert honest.metric == "share_found"
    assert 0.5 < honest.low <= float(honest) <= honest.raw <= 1.0
    assert honest.low < honest.high
    assert "share found" in model.report(tmp_path / "page.html").read_text(encoding="utf-8")
    shoal.save(model, tmp_path / "model")
    loaded = shoal.load(tmp_path / "model")
    assert loaded.honest_score_ == honest
    assert loaded.scoring is None, "a function cannot be saved"


def looks_at_columns(estimator, X, y):
    return float(X[:, 0].mean())


def looks_at_all(estimator, X, y):
    return float(np.asarray(X).mean())


@pytest.mark.parametrize(
    ("scoring", "words"),
    [
        (
            looks_at_columns,
            "'looks_at_columns' gives no number .* it reads X, but scores are computed from pred",
        ),
        (looks_at_all, "it reads X"),
        (sklearn_metrics.f1_score, r"f1_score takes y_true, y_pred: give sklearn.metrics.make_scorer\(f1_score\)"),
        (lambda estimator, X, y: np.nan, "it is nan"),
        ({"a": "f1"}, "scoring must be one score: .*; got dict"),
        ("max_errors", "for classification, or another name"),
        ("neg_max_error", "for classification, or another name"),
        ("precison", "did you mean 'precision'"),
    ],
)
def test_what_is_no_score_of_predictions_is_refused_before_anything_is_trained(scoring, words, monkeypatch):
    monkeypatch.setattr(LocalTrainer, "train", trained_too_early)
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    with pytest.raises((ValueError, TypeError), match=words):
        ShoalClassifier(MEMBERS, scoring=scoring, cv=2).fit(X, y)


def test_scores_are_cut_off_only_at_the_best_value_that_they_can_have():
    """A ratio of 18 was shown as 1."""
    two, number = Task(CLASSIFICATION, 2), Task(REGRESSION, 1)
    make = sklearn_metrics.make_scorer
    best = {
        "positive_likelihood_ratio": np.inf, "neg_negative_likelihood_ratio": 0, "mutual_info_score": np.inf,
        "jaccard": 1, "neg_log_loss": 0, make(sklearn_metrics.fbeta_score, beta=2): 1,
        make(sklearn_metrics.cohen_kappa_score, greater_is_better=False): np.inf,
    }  # fmt: skip
    assert [find_metric(scoring, two, np.arange(2)).most for scoring in best] == list(best.values())
    best = {
        make(sklearn_metrics.mean_squared_error): np.inf, "neg_max_error": 0, "explained_variance": 1,
        make(sklearn_metrics.r2_score, greater_is_better=False): np.inf,
    }  # fmt: skip
    assert [find_metric(scoring, number).most for scoring in best] == list(best.values())
    X, y = load_breast_cancer(return_X_y=True)
    model = ShoalClassifier(MEMBERS, scoring="positive_likelihood_ratio", cv=3, seeds=1).fit(X, y)
    assert model.honest_score_.raw > 2
    assert model.honest_score_.corrected > 2


SUMS = {
    CLASSIFICATION: [
        lambda e, X, y: float((e.predict(X) == y).sum()), lambda e, X, y: -float((e.predict(X) != y).sum()),
        lambda e, X, y: float(np.log(e.predict_proba(X)[np.arange(len(y)), y]).sum()),
        sklearn_metrics.make_scorer(sklearn_metrics.accuracy_score, normalize=False),
    ],
    REGRESSION: [
        lambda e, X, y: -float(((e.predict(X) - y) ** 2).sum()),
        lambda e, X, y: -float(np.sqrt(((e.predict(X) - y) ** 2).sum())),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", SUMS)
def test_sums_over_rows_are_refused_and_scores_of_any_number_of_rows_are_not(kind):
    """Folds, bootstrap samples and all rows would be on three scales."""
    task = Task(kind, 2 if kind == CLASSIFICATION else 1)
    _, y, weight = drawn(kind, task.n_outputs, n=40)
    y, folds = np.abs(y), [np.arange(20), np.arange(20, 40)]
    for scoring in SUMS[kind]:
        with pytest.raises(ValueError, match=r"must not grow with the number of rows; .* 40 rows .*: divide it by len"):
            find_metric(scoring, task, np.arange(2)).check(task, y, np.ones(40), folds)
    corrected = sklearn_metrics.make_scorer(lambda y, p: (y - p).std(ddof=1) + (y - p).mean())
    fine = [name for name in scorer_names(task) if not name.endswith("samples")]
    for scoring in [corrected, *fine]:
        metric = find_metric(scoring, task, np.arange(2))
        assert np.isfinite(metric.score(task, _partly_wrong(task, y), y, weight)), scoring
        metric.check(task, y, weight, folds)


def test_scores_without_weights_refuse_rows_with_weights():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    weight = np.random.default_rng(0).random(40)
    with pytest.raises(ValueError, match="it takes no sample_weight, but rows have weights; fit without weights"):
        ShoalClassifier(MEMBERS, scoring=lambda e, X, y: 1.0, cv=2).fit(X, y, sample_weight=weight)


# ---- words ----


def problem_of(task, y):
    table = Table.of(np.arange(len(y), dtype=float)[:, None])
    ones, rows = np.ones(len(y)), np.arange(len(y))
    return make_problem(TrainingData(task, Schema.of(table, plain=True), table, y, ones), [(rows, rows)])


@pytest.mark.parametrize(
    ("name", "task", "y", "expected"),
    [
        ("f1", Task(CLASSIFICATION, 2), np.repeat([0, 1], [9, 3]), 2 * 3 / (12 + 3)),  # always the second class
        ("roc_auc", Task(CLASSIFICATION, 2), np.repeat([0, 1], [9, 3]), 0.5),
        ("balanced_accuracy", Task(CLASSIFICATION, 3), np.repeat([0, 1, 2], [9, 3, 3]), 1 / 3),
        ("neg_mean_absolute_error", Task(REGRESSION, 1), np.array([[0.0], [0.0], [0.0], [8.0]]), -2.0),  # the median
        ("neg_mean_squared_error", Task(REGRESSION, 1), np.array([[0.0], [0.0], [0.0], [8.0]]), -12.0),  # the mean
        ("f1", Task(MULTILABEL, 2), np.array([[1, 0], [0, 0], [0, 1], [0, 0]], np.float32), 0.4),  # all labels
    ],
)
def test_guessing_is_the_best_answer_that_needs_no_columns(name, task, y, expected):
    assert chance(problem_of(task, y), METRICS[name]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "score", "guess", "words"),
    [
        ("roc_auc", 0.931, 0.5, "93.1 times in 100 (area under the ROC curve 0.931; 95% confidence: 0.881 to 0.981)"),
        ("neg_mean_absolute_error", -3.5, -7.0, "miss price by about 3.5 on average (95% confidence: 3.45 to 3.55)"),
        ("f1", 0.75, 0.4, "expect an F1 score of about 0.75"),
        ("balanced_accuracy", 0.75, 0.5, "expect a balanced accuracy of about 0.75"),
    ],
)
def test_scores_in_words(metric, score, guess, words):
    honest = HonestScore(metric, score + 0.01, score, score - 0.05, score + 0.05, 0.95, 200, averaging=0.02)
    said = honest_words(honest, guess, "price", 10)
    assert words in said[0]
    assert len(said) == 3
    assert f"On held-out rows it scored {score + 0.01:.4f}. Shoal subtracts 0.0300 because" in said[2]
    assert "It adds 0.0200 because the model averages the networks of all folds" in said[2]


def test_the_brier_score_of_three_classes_is_not_halved():
    """As in scikit-learn: only that of two classes is."""
    p = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    y = np.arange(50) % 3
    found = METRICS["neg_brier_score"].score(Task(CLASSIFICATION, 3), p, y, np.ones(50))
    assert found == pytest.approx(-((p - np.eye(3)[y]) ** 2).sum(axis=1).mean())

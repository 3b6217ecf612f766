"""The honest score, with its negative control: where there is nothing to find, it finds nothing."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

import shoal
from shoal import ShoalClassifier, ShoalRegressor
from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.search.budget import model as time_model
from shoal.search.scoring.evidence import Evidence
from shoal.search.scoring.honest import correct

SPACE = {
    "hidden": [(), (8,), (16,), (32,), (16, 16)], "activation": ["relu", "tanh", "gelu"],
    "learning_rate": [0.003, 0.01, 0.03], "epochs": [10, 20], "batch_size": [16, 32], "dropout": [0.0, 0.2],
}  # fmt: skip


@pytest.fixture
def fewer_samples(monkeypatch):
    """A third of the usual bootstrap samples: means over many searches need no more, and they take most of the time."""
    monkeypatch.setattr(time_model, "BOOTSTRAPS", 66)


def signal(generator, n):
    X = generator.normal(size=(n, 6))
    chance = 1 / (1 + np.exp(-1.5 * (1.2 * X[:, 0] + X[:, 1] * X[:, 2])))
    return X, (generator.random(n) < chance).astype(int)


@pytest.mark.usefixtures("fewer_samples")
@pytest.mark.parametrize("wanted", ["best", "ensemble"])
def test_on_random_labels_the_best_looks_good_and_the_honest_score_is_at_chance(wanted):
    raw, corrected, covered = [], [], 0
    for seed in range(6):
        generator = np.random.default_rng(seed)
        X, y = generator.normal(size=(150, 6)), np.tile([0, 1], 75)
        model = ShoalClassifier(
            SPACE,
            strategy="random",
            recipes=120,
            seeds=1,
            cv=4,
            random_state=seed,
            model=wanted,
        ).fit(X, y)
        raw.append(model.best_score_)
        corrected.append(model.honest_score_.corrected)
        covered += model.honest_score_.low <= 0.5 <= model.honest_score_.high
    assert np.mean(raw) > 0.56, "far above chance, though there is nothing to learn"
    # The mean of six estimates with a standard deviation of about 0.05 each.
    assert abs(np.mean(corrected) - 0.5) < 0.05
    assert np.mean(raw) - np.mean(corrected) > 0.04
    assert covered >= 4


@pytest.mark.usefixtures("fewer_samples")
@pytest.mark.parametrize("wanted", ["best", "ensemble"])
def test_with_real_signal_the_interval_covers_fresh_data_about_as_often_as_it_claims(wanted):
    covered, errors = [], []
    for seed in range(24):
        generator = np.random.default_rng(100 + seed)
        X, y = signal(generator, 200)
        fresh = signal(generator, 10_000)
        model = ShoalClassifier(SPACE, recipes=12, seeds=1, cv=4, random_state=seed, model=wanted).fit(X, y)
        score = model.score(*fresh)
        covered.append(model.honest_score_.low <= score <= model.honest_score_.high)
        errors.append(model.honest_score_.corrected - score)
    # 95% of 24 is 22.8; fewer than 19 has a probability of 0.4% if the claim is true.
    assert sum(covered) >= 19
    # Pessimistic by a little: the model is an average over folds, what is scored are its parts.
    assert -0.05 < np.mean(errors) < 0.02


def test_the_price_grows_with_the_number_of_coin_flippers():
    generator = np.random.default_rng(0)
    task, metric = Task(CLASSIFICATION, 2), METRICS["accuracy"]
    y = np.tile([0, 1], 100)
    for count in (1, 10, 1000):
        guesses = generator.random((count, 200, 1))
        evidence = Evidence(
            task, metric, np.concatenate([1 - guesses, guesses], axis=2), y, np.ones(200), np.ones(200), 1.0
        )
        raw = metric.score(task, evidence.prediction, y, np.ones(200))
        found = correct(evidence, evidence.prediction[int(raw.argmax())], bootstraps=100)
        assert found.raw == pytest.approx(raw.max())
        assert abs(found.corrected - 0.5) < 0.08
        assert found.low < found.corrected < found.high
    assert found.raw > 0.58


def test_rows_of_a_group_are_drawn_together():
    group = np.repeat(np.arange(10), 5)
    y = np.zeros(50, np.int64)
    evidence = Evidence(
        Task(CLASSIFICATION, 2), METRICS["accuracy"], np.full((1, 50, 2), 0.5), y, np.ones(50), np.ones(50), 1.0, group
    )
    counts = evidence.counts(np.random.default_rng(0)).reshape(10, 5)
    assert np.all(counts == counts[:, :1])
    assert counts[:, 0].sum() == 10
    assert len(set(counts[:, 0])) > 1


@pytest.mark.parametrize(
    ("n", "group", "problem"),
    [(1, None, "too few rows"), (19, None, "19; it needs 20"), (40, 1, "too few groups"), (40, 10, "4; it needs 5")],
)
def test_too_few_rows_or_groups_have_no_honest_score(n, group, problem):
    ones, groups = np.ones(n), None if group is None else np.arange(n) // (n if group == 1 else group)
    y = np.zeros(n, np.int64)
    evidence = Evidence(
        Task(CLASSIFICATION, 2), METRICS["accuracy"], np.full((2, n, 2), 0.5), y, ones, ones, 1.0, groups
    )
    found = correct(evidence, evidence.prediction[0])
    assert np.isnan([found.corrected, found.low, found.high]).all()
    assert found.bootstraps == 0
    assert problem in found.problem
    assert problem in str(found)


def test_an_estimator_of_few_rows_says_so_and_is_saved_with_it(tmp_path):
    X = np.arange(12.0)[:, None]
    model = ShoalRegressor(recipes=3, seeds=1).fit(X, X[:, 0])
    assert "too few rows" in str(model.honest_score_)
    assert np.isfinite(model.predict(X)).all()
    shoal.save(model, tmp_path / "model")
    again = shoal.load(tmp_path / "model").honest_score_
    assert str(again) == str(model.honest_score_)
    assert np.isnan(again.corrected)


def test_intervals_stay_where_scores_can_be():
    X = np.random.default_rng(0).normal(size=(30, 2))
    found = ShoalClassifier(recipes=5, seeds=1).fit(X, (X[:, 0] > 0).astype(int)).honest_score_
    assert 0 <= found.low <= found.corrected <= found.high <= 1


def test_numbers_have_honest_scores_too():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 4))
    noise = ShoalRegressor(recipes=30, seeds=1).fit(X, generator.normal(size=120))
    assert noise.honest_score_.metric == "r2"
    assert noise.honest_score_.corrected < 0.1
    real = ShoalRegressor(recipes=30, seeds=1).fit(X, X[:, 0] + 0.1 * generator.normal(size=120))
    assert real.honest_score_.corrected > 0.9


@pytest.mark.parametrize("wanted", ["ensemble", "best"])
def test_the_score_is_of_the_tempered_model(wanted):
    """Networks that were stopped early are far too unsure of themselves; the model's temperature mends it."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(20_400, 4))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    model = ShoalClassifier(
        recipes=4,
        seeds=1,
        epochs=8,
        cv=3,
        scoring="neg_log_loss",
        model=wanted,
        random_state=0,
    ).fit(X[:400], y[:400])
    assert model.model_.temperature < 0.7
    fresh = -float(log_loss(y[400:], model.predict_proba(X[400:])))
    flat = model.model_.task.temper(model.predict_proba(X[400:]), 1 / model.model_.temperature)
    untempered = -float(log_loss(y[400:], flat))
    found = model.honest_score_
    assert abs(found.corrected - fresh) < 0.5 * abs(found.corrected - untempered)
    assert found.low < fresh < found.high


def test_a_score_that_no_prediction_has_is_said():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    y = np.exp(X[:, 0]) + 1e-6
    model = ShoalRegressor(
        {"hidden": [()], "epochs": [2]}, strategy="grid", cv=3, seeds=1, scoring="neg_mean_gamma_deviance"
    )
    with pytest.warns(UserWarning, match="no recipe's predictions have a finite"):
        model.fit(X, y)


@pytest.mark.parametrize("scoring", ["roc_auc", "f1"])
def test_a_class_of_few_rows_is_in_every_fold_of_ours(scoring):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (np.arange(60) < 6).astype(int)
    model = ShoalClassifier(recipes=2, seeds=1, epochs=3, scoring=scoring).fit(X, y)
    assert np.isfinite(model.honest_score_.corrected)


def test_one_row_that_outweighs_all_others_is_one_row():
    X = np.random.default_rng(0).normal(size=(40, 2))
    weight = np.where(np.arange(40) == 7, 1e12, 1.0)
    model = ShoalRegressor(recipes=2, seeds=1, epochs=3).fit(X, X[:, 0], sample_weight=weight)
    assert "too few different rows for an honest score (1; it needs 5)" in str(model.honest_score_)

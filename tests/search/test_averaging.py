"""What averaging over folds adds to a score, against worlds in which the answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.scoring.averaging import FoldPredictions, averaging_gain, best_temperature


def folds_of(task, y, truth, noise, folds, pull, generator, repeats=1, new=False):
    """Fold networks: the truth and noise of their own; on rows they have trained on, pulled towards the target.

    Classes and labels live as logits. With `new`, nobody has seen any row.
    """
    n = len(y)
    values = truth + noise * generator.normal(size=(folds * repeats, *truth.shape))
    fold_of = np.stack([generator.permutation(np.arange(n) % folds) for _ in range(repeats)])
    held_out = np.concatenate([fold_of[r] == np.arange(folds)[:, None] for r in range(repeats)])
    if not new:
        target = np.eye(task.n_outputs)[y] if task.kind == CLASSIFICATION else y
        pulled = values + pull * (target - task.activate(values))
        values = np.where(held_out[..., None], values, pulled)
    return FoldPredictions(task, task.activate(values), held_out, ~held_out, y, np.ones(n), np.ones(n))


def world(kind, n, generator):
    """A task with targets drawn from a truth: values, or logits."""
    if kind == REGRESSION:
        truth = generator.normal(size=(n, 2))
        return Task(kind, 2), truth, truth + generator.normal(size=(n, 2))
    if kind == MULTILABEL:
        truth = 1.5 * generator.normal(size=(n, 3))
        return Task(kind, 3), truth, (generator.random((n, 3)) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    truth = 1.5 * generator.normal(size=(n, 3))
    chances = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
    return Task(kind, 3), truth, (generator.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)


def true_gain(task, metric, y, truth, noise, folds, generator, repeats=1):
    """The average of all folds against that of `repeats` of them, where nobody has seen a row."""
    new = folds_of(task, y, truth, noise, folds, 0.0, generator, repeats, new=True).prediction
    one = [new[k::folds].mean(axis=0) for k in range(folds)]
    even = np.ones(len(y))
    return float(metric.score(task, new.mean(axis=0), y, even) - np.mean([metric.score(task, p, y, even) for p in one]))


@given(
    folds=st.integers(2, 12), noise=st.floats(0.1, 0.3), pull=st.floats(0.0, 0.5), repeats=st.integers(1, 3),
    seed=st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_squared_errors_shrink_by_the_variance_that_averaging_removes(folds, noise, pull, repeats, seed):
    generator = np.random.default_rng(seed)
    task, truth, y = world(REGRESSION, 4000, generator)
    seen = folds_of(task, y, truth, noise, folds, pull, generator, repeats)
    found = averaging_gain(seen, METRICS["neg_mean_squared_error"], 1.0, seed)
    assert found == pytest.approx(noise**2 * (1 / repeats - 1 / (folds * repeats)), rel=0.25, abs=0.003)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("pull", [0.0, 0.3])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(CLASSIFICATION, "accuracy"), (CLASSIFICATION, "neg_log_loss"), (CLASSIFICATION, "roc_auc"),
     (MULTILABEL, "neg_log_loss"), (REGRESSION, "r2"), (REGRESSION, "neg_mean_absolute_error")],
)  # fmt: skip
def test_any_score_is_extrapolated_to_that_of_the_average(kind, name, pull, count):
    noise = 0.3 if kind == REGRESSION else 0.8
    generator = np.random.default_rng(1)
    task, truth, y = world(kind, 6000, generator)
    metric = METRICS[name]
    seen = folds_of(task, y, truth, noise, count, pull, generator)
    found = averaging_gain(seen, metric, 1.0, 0)
    wanted = np.mean([true_gain(task, metric, y, truth, noise, count, generator) for _ in range(5)])
    assert wanted > 0.01
    assert found == pytest.approx(wanted, rel=0.4)


def test_folds_that_agree_and_models_that_are_not_averages_gain_nothing():
    generator = np.random.default_rng(0)
    task, truth, y = world(CLASSIFICATION, 500, generator)
    metric, even = METRICS["accuracy"], np.ones(500)
    same = folds_of(task, y, truth, 0.0, 5, 0.0, generator)
    assert averaging_gain(same, metric, 1.0, 0) == 0
    other = folds_of(task, y, truth, 0.8, 5, 0.0, generator)
    once = FoldPredictions(task, other.prediction, other.held_out, other.seen, y, even, even, averaged=False)
    assert averaging_gain(once, metric, 1.0, 0) == 0
    assert averaging_gain(other, metric, 1.0, 0) > 0


def test_where_there_is_nothing_to_learn_averaging_gains_nothing():
    """Folds that have seen a row know its class, and so does their disagreement about it. It must not get out."""
    gains = []
    for seed in range(30):
        generator = np.random.default_rng(seed)
        task, truth, _ = world(CLASSIFICATION, 300, generator)
        y = generator.integers(3, size=300)
        folds = folds_of(task, y, truth, 0.8, 5, 0.0, generator)
        learnt = folds.prediction + 0.3 * (np.eye(3)[y] - folds.prediction)
        prediction = np.where(folds.held_out[..., None], folds.prediction, learnt)
        knowing = FoldPredictions(task, prediction, folds.held_out, folds.seen, y, np.ones(300), np.ones(300))
        gains.append(averaging_gain(knowing, METRICS["accuracy"], 1.0, seed))
    error = np.std(gains) / np.sqrt(len(gains))
    assert abs(np.mean(gains)) < 3 * error + 0.002


def test_the_temperature_is_that_of_the_average():
    generator = np.random.default_rng(0)
    task, truth, y = world(CLASSIFICATION, 6000, generator)
    seen = folds_of(task, y, truth, 1.0, 5, 0.2, generator)
    new = folds_of(task, y, truth, 1.0, 5, 0.0, generator, new=True).prediction.mean(axis=0)
    even = np.ones(len(y))

    def loss(temperature):
        return -float(METRICS["neg_log_loss"].score(task, task.temper(new, temperature), y, even))

    once = FoldPredictions(task, seen.prediction, seen.held_out, seen.seen, y, even, even, averaged=False)
    of_one, of_all = best_temperature(once, 0), best_temperature(seen, 0)
    best = min(np.geomspace(0.5, 4.0, 43), key=loss)
    assert of_all < of_one  # an average is less sure of itself than its parts are
    assert abs(np.log(of_all / best)) < 0.5 * abs(np.log(of_one / best))
    assert loss(of_all) < loss(of_one) - 0.001


def test_rows_that_are_held_out_everywhere_stay_as_they_are():
    generator = np.random.default_rng(0)
    task, truth, y = world(REGRESSION, 200, generator)
    folds = folds_of(task, y, truth, 0.5, 4, 0.0, generator)
    nobody = FoldPredictions(
        task, folds.prediction, np.ones_like(folds.held_out), np.zeros_like(folds.seen), y, np.ones(200), np.ones(200)
    )
    assert averaging_gain(nobody, METRICS["r2"], 1.0, 0) == 0


def test_the_temperature_of_one_network_undoes_what_it_is_too_sure_of():
    generator = np.random.default_rng(0)
    task = Task(CLASSIFICATION, 2)
    logit = generator.normal(size=5000)
    y = (generator.random(5000) < 1 / (1 + np.exp(-logit))).astype(int)
    over = 1 / (1 + np.exp(-3 * logit))

    def found(prediction, y):
        n = len(y)
        once = np.ones((1, n), dtype=bool)
        folds = FoldPredictions(task, prediction[None], once, ~once, y, np.ones(n), np.ones(n), averaged=False)
        return best_temperature(folds, 0)

    assert found(np.column_stack([1 - over, over]), y) == pytest.approx(3, rel=0.15)
    sure = np.tile([0.9, 0.1], (50, 1))
    assert found(sure, np.zeros(50, int)) > 0.5, "fifty right answers prove no certainty"

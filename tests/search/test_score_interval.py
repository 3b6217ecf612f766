"""Intervals of honest scores hold on few rows, for every score; and they do what their parts say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.metrics.find import find_metric
from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.scoring.evidence import Evidence
from shoal.search.scoring.honest import correct, score_interval

CASES, CANDIDATES, NEW = 60, 6, 4_000


def guesses(generator, task, n):
    """Rows, and what several candidates of different worth say of them: (candidates, n, n_outputs), (n, ...)."""
    signal = generator.normal(size=n)
    errors = generator.normal(size=(CANDIDATES, n)) * np.linspace(0.3, 1.0, CANDIDATES)[:, None]
    if task.kind == REGRESSION:
        return (signal + errors)[..., None], (signal + 0.2 * generator.normal(size=n))[:, None]
    odds = 2 * (signal + errors)
    y = (2 * signal + generator.logistic(size=n) > 0).astype(int)
    p = 1 / (1 + np.exp(-odds))
    if task.kind == MULTILABEL:
        return np.stack([p, 1 - p], axis=-1), np.stack([y, 1 - y], axis=-1).astype(np.float32)
    return np.stack([1 - p, p], axis=-1), y


def task_of(metric):
    if REGRESSION in metric.kinds:
        return Task(REGRESSION, 1)
    return Task(CLASSIFICATION, 2)


def evidence_of(task, metric, prediction, y, group=None):
    ones = np.ones(len(y))
    return Evidence(task, metric, prediction, y, ones, ones, 1.0, group)


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("name", sorted(METRICS))
def test_the_truth_is_inside_about_as_often_as_claimed(name, n):
    metric, held = METRICS[name], 0
    task = task_of(metric)
    for seed in range(CASES):
        prediction, y = guesses(np.random.default_rng([seed, n]), task, n + NEW)
        evidence = evidence_of(task, metric, prediction[:, :n], y[:n])
        raw = metric.score(task, evidence.prediction, evidence.y, evidence.weight)
        best = int(np.argmax(raw))
        steady = replace(metric, otherwise=float(raw[best]))  # where rows are of one class
        found = correct(replace(evidence, metric=steady), evidence.prediction[best], bootstraps=30)
        truth = float(metric.score(task, prediction[best, n:], y[n:], np.ones(NEW)))
        held += found.low <= truth <= found.high
    # 95% of 60 is 57; fewer than 51 has a probability of 0.2% if the claim is true.
    assert held >= 51


def test_r2_of_few_rows_is_measured_against_the_spread_of_all():
    """Of rows with nearly the same target R2 is hugely negative; averaged, that was -311 where 0.8 is true."""
    generator = np.random.default_rng(0)
    y = np.concatenate([0.01 * generator.normal(size=17), [-10.0, 5.0, 10.0]])[:, None]
    prediction = (y + 0.3 * generator.normal(size=(3, 20, 1))).astype(np.float32)
    found = correct(evidence_of(Task(REGRESSION, 1), METRICS["r2"], prediction, y), prediction[0])
    assert found.raw > 0.98
    assert found.raw - found.corrected < 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(5, 60), st.sampled_from([1.0, 1e-6, 1e6]), st.floats(0.0, 3.0))
def test_the_mean_of_the_values_of_rows_is_r2_and_they_tell_what_a_row_changes(seed, n, unit, noise):
    generator = np.random.default_rng(seed)
    y = unit * generator.normal(size=(n, 1))
    p = y + noise * unit * generator.normal(size=(n, 1))
    task, metric, ones = Task(REGRESSION, 1), METRICS["r2"], np.ones(n)
    values = metric.rows(task, p, y, ones)
    whole = float(metric.score(task, p, y, ones))
    assert values.mean() == pytest.approx(whole, rel=1e-9, abs=1e-9)
    weight = ones.copy()
    weight[0] += 1e-4
    change = (float(metric.score(task, p, y, weight)) - whole) / 1e-4 * n
    assert change == pytest.approx(values[0] - whole, rel=0.01, abs=0.01 * (1 + abs(whole)))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(20, 60), st.sampled_from(sorted(METRICS)), st.sampled_from([0.0, 1e-9, 1.0]),
    st.floats(0.0, 0.5), st.floats(-0.1, 0.1),
)  # fmt: skip
def test_an_interval_is_finite_ordered_and_within_the_bounds_of_its_score(seed, n, name, doubt, correction, gain):
    generator, metric = np.random.default_rng(seed), METRICS[name]
    task = task_of(metric)
    prediction, y = guesses(generator, task, n)
    final = prediction[0]
    if task.kind == REGRESSION:
        final = y + doubt * (final - y)  # also without any error
    evidence = evidence_of(task, metric, prediction, y)
    measured = float(metric.score(task, final, y, evidence.weight))
    corrected = float(np.clip(measured - correction + gain, metric.least, metric.most))
    low, high = score_interval(evidence, final, measured, corrected, correction, gain)
    assert np.isfinite([low, high]).all()
    assert metric.least <= low <= corrected <= high <= metric.most


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "neg_log_loss", "r2"])
def test_copies_in_groups_make_no_interval_narrower(name):
    generator, metric = np.random.default_rng(0), METRICS[name]
    task = task_of(metric)
    prediction, y = guesses(generator, task, 40)
    widths = []
    for copies, grouped in ((1, False), (5, True), (5, False)):
        final, truth = np.repeat(prediction[0], copies, axis=0), np.repeat(y, copies, axis=0)
        group = np.repeat(np.arange(40), copies) if grouped else None
        evidence = evidence_of(task, metric, final[None], truth, group)
        measured = float(metric.score(task, final, truth, evidence.weight))
        low, high = score_interval(evidence, final, measured, measured, 0.0, 0.0)
        widths.append(high - low)
    alone, together, independent = widths
    assert together == pytest.approx(alone, rel=0.1)
    assert independent < 0.7 * alone


def test_a_hundred_right_answers_do_not_prove_that_there_are_no_wrong_ones():
    y = np.arange(100) % 2
    final = np.eye(2)[y]
    for name in ("accuracy", "balanced_accuracy", "roc_auc", "f1", "f1_macro"):
        evidence = evidence_of(Task(CLASSIFICATION, 2), METRICS[name], final[None], y)
        low, high = score_interval(evidence, final, 1.0, 1.0, 0.0, 0.0)
        assert 0.9 < low < 0.99
        assert high == 1.0


def test_scores_of_scikit_learn_have_intervals_as_well():
    generator = np.random.default_rng(0)
    task = Task(CLASSIFICATION, 2)
    prediction, y = guesses(generator, task, 60)
    for name in ("matthews_corrcoef", "average_precision", "precision", "d2_log_loss_score"):
        metric = find_metric(name, task)
        evidence = evidence_of(task, metric, prediction, y)
        measured = float(metric.score(task, prediction[0], y, evidence.weight))
        low, high = score_interval(evidence, prediction[0], measured, measured, 0.0, 0.0)
        assert max(metric.least, measured - 1.0) <= low < measured < high <= 1.0

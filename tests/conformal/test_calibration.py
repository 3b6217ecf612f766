"""Intervals and sets: the same as the definition says, and true as often as asked."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.conformal.calibration import Calibration, check_coverage
from shoal.search.scoring.evidence import effective_rows


def drawn(seed, folds, outputs=1):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 30, folds) + np.eye(folds, dtype=int)[0] * 12
    pairs = int(counts.sum())
    scores = generator.choice(np.round(generator.exponential(size=8), 2), (pairs, outputs))  # with ties
    weight = generator.choice([0.5, 1.0, 2.0], pairs)
    return generator, Calibration(scores, weight, counts, float(pairs), float(pairs))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.1, 0.9))
def test_an_interval_is_what_its_definition_says(seed, folds, coverage):
    generator, calibration = drawn(seed, folds, outputs=2)
    prediction, spread = generator.normal(size=(folds, 5, 2)), generator.uniform(0.5, 2.0, (folds, 5, 2))
    low, high = calibration.interval(prediction, spread, coverage)
    fold = np.repeat(np.arange(folds), calibration.counts)
    level = calibration.level(coverage) * calibration.weight.sum()
    for row, output in np.ndindex(5, 2):
        away = spread[fold, row, output] * calibration.scores[:, output]
        for found, ends, sign in (
            (high[row, output], prediction[fold, row, output] + away, 1),
            (-low[row, output], -prediction[fold, row, output] + away, -1),
        ):
            order = np.argsort(ends)
            exact = ends[order[np.searchsorted(np.cumsum(calibration.weight[order]), level)]]
            exact = max(exact, sign * prediction[:, row, output].mean())
            assert found == pytest.approx(exact, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.1, 0.9))
def test_a_set_is_what_its_definition_says(seed, folds, coverage):
    generator, calibration = drawn(seed, folds)
    probability = generator.dirichlet([0.5] * 4, (folds, 6))
    found = calibration.sets(probability, coverage)
    fold = np.repeat(np.arange(folds), calibration.counts)
    candidate = 1.0 - probability
    for row, label in np.ndindex(6, 4):
        below = calibration.weight[calibration.scores[:, 0] < candidate[fold, row, label]].sum()
        expected = below < min(coverage * (1 + 2 / calibration.rows), 1.0) * calibration.weight.sum() - 1e-9
        first = probability[:, row].mean(axis=0).argmax() == label
        assert found[row, label] == (expected or first)


def straight_lines(generator, rows, new, folds=5):
    """Least squares on folds of noisy lines: predictions of held-out rows, and of new rows by each fold."""
    X, noise = generator.normal(size=(rows + new, 6)), generator.normal(size=rows + new)
    y = X @ np.ones(6) + noise
    fold = np.arange(rows) % folds
    order = np.argsort(fold, kind="stable")
    beta = [np.linalg.lstsq(X[:rows][fold != k], y[:rows][fold != k], rcond=None)[0] for k in range(folds)]
    held_out = np.abs(y[:rows] - (X[:rows] * np.array(beta)[fold]).sum(axis=1))[order]
    return held_out[:, None], np.bincount(fold), np.stack([X[rows:] @ each for each in beta])[..., None], y[rows:]


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_the_truth_is_inside_as_often_as_asked(coverage):
    generator = np.random.default_rng(0)
    covered, too_narrow = [], []
    for _ in range(150):
        scores, counts, prediction, truth = straight_lines(generator, 40, 40)
        for factor, found in ((1.0, covered), (0.7, too_narrow)):
            calibration = Calibration(factor * scores, np.ones(40), counts, 40.0, 40.0)
            low, high = calibration.interval(prediction, np.ones_like(prediction), coverage)
            found.append(((low[:, 0] <= truth) & (truth <= high[:, 0])).mean())
    assert coverage - 0.01 < np.mean(covered) < coverage + 0.05
    assert np.mean(too_narrow) < coverage - 0.05, "the control: scores that are too small"


def test_a_set_has_the_truth_as_often_as_asked():
    generator = np.random.default_rng(1)
    covered, wrong = [], []
    for _ in range(150):
        probability = generator.dirichlet([1.0] * 4, 100)
        y = np.array([generator.choice(4, p=each) for each in probability])
        said = probability**2 / (probability**2).sum(axis=1, keepdims=True)  # too sure of itself
        scores = 1 - said[np.arange(100), y]
        for shift, found in ((0, covered), (1, wrong)):
            first = scores[:50] if shift == 0 else 1 - said[:50].max(axis=1)  # as if it were always right
            inside = Calibration(first[:, None], np.ones(50), np.array([50]), 50.0, 50.0).sets(said[None, 50:], 0.8)
            found.append(inside[np.arange(50), y[50:]].mean())
    assert 0.79 < np.mean(covered) < 0.85
    assert np.mean(wrong) < 0.75, "the control: scores of the answers, not of the truth"


def test_a_weight_of_two_is_the_row_twice():
    generator = np.random.default_rng(2)
    scores, times = generator.exponential(size=(30, 1)), generator.integers(1, 4, 30)
    prediction, spread = generator.normal(size=(2, 7, 1)), np.ones((2, 7, 1))
    once = Calibration(scores, times.astype(float), np.array([10, 20]), float(times.sum()), 30.0)
    counts = np.array([times[:10].sum(), times[10:].sum()])
    often = Calibration(np.repeat(scores, times, axis=0), np.ones(times.sum()), counts, float(times.sum()), 30.0)
    for one, other in zip(once.interval(prediction, spread, 0.8), often.interval(prediction, spread, 0.8), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("coverage", [0, 1, 90, -0.5, float("nan"), "0.9", None, True])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises((ValueError, TypeError), match=r"coverage must be a share .* such as 0.9 for 90 in 100; got"):
        check_coverage("coverage", coverage)


def test_too_few_rows_for_a_coverage():
    few = Calibration(np.ones((8, 1)), np.ones(8), np.array([8]), 8.0, 8.0)
    assert few.level(0.88) <= 1
    with pytest.raises(
        ValueError, match=r"a coverage of 0.9 needs at least 9 held-out rows .* this model has 8: ask for"
    ):
        few.level(0.9)
    with pytest.raises(ValueError, match=r"this model has 80, worth 8.0 of equal weight: ask for"):
        replace(few, rows=80.0).level(0.9)


@pytest.mark.parametrize("uneven", [0.0, 1.0, 2.0])
def test_the_new_row_is_as_heavy_as_rows_drawn_by_weight(uneven):
    """Log-normal weights, of rows whose errors grow with them; new rows are drawn by weight."""
    generator, rows = np.random.default_rng(3), 100
    covered, too_light = [], []
    for _ in range(1000):
        size = generator.normal(size=(2, rows))
        weight, new_weight = np.exp(uneven * size)
        scores, new_scores = generator.exponential(size=(2, rows)) * np.exp(0.5 * size)
        if (effective := effective_rows(weight)) < 4:
            continue  # too few for this coverage
        calibration = Calibration(scores[:, None], weight, np.array([rows]), float(rows), effective)
        for tried, found in ((calibration, covered), (replace(calibration, effective=float(rows)), too_light)):
            found.append(np.average(new_scores <= tried.typical(0.8), weights=new_weight))
    assert 0.79 < np.mean(covered) < 0.84
    assert uneven < 2 or np.mean(too_light) < 0.78, "the control: the new row as heavy as any other"

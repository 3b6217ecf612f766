"""What is picked on a bootstrap sample: the same with all predictions in one block and in many."""

import numpy as np
import pytest

from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.scoring import picks
from shoal.search.scoring.evidence import Evidence, Sampled, Samples
from shoal.search.scoring.honest import ModelSelection, correct

N, CANDIDATES = 60, 300


def evidence(kind, metric, generator):
    """Candidates of which some are better than others, on weighted rows."""
    outputs = 2 if kind == REGRESSION else 3
    task, skill = Task(kind, outputs), generator.random((CANDIDATES, 1, 1))
    raw = generator.normal(size=(CANDIDATES, N, outputs))
    if kind == CLASSIFICATION:
        y = generator.integers(outputs, size=N)
        prediction = task.activate(raw + 2 * skill * np.eye(outputs)[y])
    else:
        y = generator.integers(2, size=(N, outputs)).astype(float)
        prediction = task.activate(raw + 2 * skill * (2 * y - 1))
    weight = generator.integers(0, 3, size=N).astype(float)
    return Evidence(task, METRICS[metric], prediction.astype(np.float32), y, weight, weight * 0.5, 1.0)


def in_blocks(plain):
    store = Samples(np.arange(N), plain.task.n_outputs, limit=0)
    for number, prediction in enumerate(plain.prediction):
        store.put(number, prediction)
    sampled = Sampled(store, range(CANDIDATES), np.arange(N))
    return Evidence(
        plain.task, plain.metric, sampled, plain.y, plain.weight, plain.loss_weight, plain.scale, plain.group
    )


def numbers(honest):
    return [value for value in honest.as_dict().values() if not isinstance(value, str)]


CASES = [
    (CLASSIFICATION, "neg_log_loss"), (CLASSIFICATION, "roc_auc"), (MULTILABEL, "neg_log_loss"), (REGRESSION, "r2"),
]  # fmt: skip


def both_picks(plain, kind, drawn, monkeypatch):
    """With all predictions in one block of memory; and from a file, in blocks that do not end where candidates end."""
    pick = kind(plain, drawn)
    monkeypatch.setattr(picks, "BLOCK_CELLS", 23 * N * 3)
    return pick, kind(in_blocks(plain), drawn)


@pytest.mark.parametrize("pick", [picks.BestPick, picks.EnsemblePick])
@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_blocks_do_not_change_what_is_picked(kind, metric, pick, monkeypatch):
    generator = np.random.default_rng(0)
    plain = evidence(kind, metric, generator)
    drawn = [plain.counts(generator) for _ in range(30)]
    one, other = both_picks(plain, pick, drawn, monkeypatch)
    for number, counts in enumerate(drawn):
        np.testing.assert_allclose(other(number, counts), one(number, counts), rtol=1e-5, atol=1e-7)


def test_the_best_candidate_of_a_sample_is_picked():
    generator = np.random.default_rng(0)
    plain = evidence(CLASSIFICATION, "neg_log_loss", generator)
    drawn = [plain.counts(generator) for _ in range(10)]
    pick = picks.BestPick(plain, drawn)
    for number, counts in enumerate(drawn):
        scores = [plain.metric.score(plain.task, one, plain.y, counts * plain.weight) for one in plain.prediction]
        np.testing.assert_array_equal(pick(number, counts), plain.prediction[int(np.argmax(scores))])


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_of_candidates_with_as_many_right_answers_either_may_be_picked(metric, monkeypatch):
    generator = np.random.default_rng(0)
    plain = evidence(CLASSIFICATION, metric, generator)
    drawn = [plain.counts(generator) for _ in range(30)]
    for number, counts in enumerate(drawn):
        one, other = (
            plain.metric.rows(plain.task, each(number, counts), plain.y, plain.weight) @ (counts * plain.weight)
            for each in both_picks(plain, picks.BestPick, drawn, monkeypatch)
        )
        assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("ensemble", [False, True])
def test_the_honest_score_is_the_same(ensemble):
    plain = evidence(CLASSIFICATION, "neg_log_loss", np.random.default_rng(1))
    final = plain.prediction[0]
    one, other = (correct(each, final, ModelSelection(ensemble), bootstraps=50) for each in (plain, in_blocks(plain)))
    np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-6)


def test_a_score_that_is_no_number_is_picked_in_any_block(monkeypatch):
    """It is the largest one for numpy; what matters is that both say the same."""
    plain = evidence(CLASSIFICATION, "neg_log_loss", np.random.default_rng(2))
    plain.prediction[[250, 120]] = np.nan
    counts = np.ones(N, np.int64)
    for pick in both_picks(plain, picks.BestPick, [counts], monkeypatch):
        assert np.isnan(pick(0, counts)).all()

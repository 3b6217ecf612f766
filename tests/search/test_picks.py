"""What is picked on a bootstrap sample: the same with all predictions in memory and in blocks."""

import numpy as np
import pytest

from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.scoring import picks
from shoal.search.scoring.evidence import Evidence, Sampled, Samples
from shoal.search.scoring.honest import Selection, correct

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


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_both_ways_pick_the_same(kind, metric, ensemble, monkeypatch):
    monkeypatch.setattr(picks, "BLOCK_CELLS", 23 * N * 3)  # blocks that do not end where all candidates end
    generator = np.random.default_rng(0)
    plain = evidence(kind, metric, generator)
    drawn = [plain.counts(generator) for _ in range(30)]
    pick, _ = picks.make_pick(plain, ensemble, drawn)
    block_pick, samples = picks.make_pick(in_blocks(plain), ensemble, iter(drawn))
    assert type(pick) is not type(block_pick)
    for number, counts in enumerate(samples):
        np.testing.assert_allclose(block_pick(number, counts), pick(number, counts), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_of_candidates_with_as_many_right_answers_either_may_be_picked(metric, monkeypatch):
    monkeypatch.setattr(picks, "BLOCK_CELLS", 23 * N * 3)
    generator = np.random.default_rng(0)
    plain = evidence(CLASSIFICATION, metric, generator)
    drawn = [plain.counts(generator) for _ in range(30)]
    pick, _ = picks.make_pick(plain, False, drawn)
    block_pick, samples = picks.make_pick(in_blocks(plain), False, drawn)
    for number, counts in enumerate(samples):
        one, other = (
            plain.metric.rows(plain.task, each(number, counts), plain.y, plain.weight) @ (counts * plain.weight)
            for each in (pick, block_pick)
        )
        assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("ensemble", [False, True])
def test_the_honest_score_is_the_same(ensemble):
    plain = evidence(CLASSIFICATION, "neg_log_loss", np.random.default_rng(1))
    final = plain.prediction[0]
    one, other = (correct(each, final, Selection(ensemble), bootstraps=50) for each in (plain, in_blocks(plain)))
    np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-6)


def test_a_score_that_is_no_number_is_picked_in_blocks_as_it_is_in_memory(monkeypatch):
    """It is the largest one for numpy; what matters is that both say the same."""
    monkeypatch.setattr(picks, "BLOCK_CELLS", 23 * N * 3)
    plain = evidence(CLASSIFICATION, "neg_log_loss", np.random.default_rng(2))
    plain.prediction[[250, 120]] = np.nan
    counts = np.ones(N, np.int64)
    for each in (plain, in_blocks(plain)):
        pick, _ = picks.make_pick(each, False, [counts])
        assert np.isnan(pick(0, counts)).all()

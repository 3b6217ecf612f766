"""What would have been picked on a bootstrap sample of the rows: the best candidate, or an ensemble.

With all predictions in memory each sample is a product of the values of all candidates with its counts. Where there
are too many, predictions are read in blocks of candidates, once for all samples: the values of a block times the
counts of all samples is one matrix product, of which the best candidates of each sample are kept. So time and memory
are linear: each prediction is read once, and what is kept does not depend on the number of candidates. Both ways pick
the same, up to the rounding of the products: of two candidates that are equally good, either may be picked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from shoal.search.scoring.ensemble import equal_shares, nested_picks, weigh
from shoal.search.scoring.evidence import Evidence

ENSEMBLE_CANDIDATES = 128
COMPACT_CANDIDATES = 32  # from which a compact ensemble is picked in each bootstrap sample
QUICK_STEPS = 10  # of greedy selection in each bootstrap sample
BLOCK_CELLS = 1 << 22  # rows times outputs times candidates that are read at a time

Pick = Callable[[int, np.ndarray], np.ndarray]  # number and counts of a sample -> (n, n_outputs)


def make_pick(
    evidence: Evidence, ensemble: bool, samples: Iterable[np.ndarray], parts: int | None = None
) -> tuple[Pick, Iterable[np.ndarray]]:
    """How to pick on each of these samples (their counts); and the samples.

    `parts`: how many a compact ensemble has.
    """
    if isinstance(evidence.prediction, np.ndarray):
        return EnsemblePick(evidence, parts) if ensemble else BestPick(evidence), samples
    drawn = list(samples)
    return EnsembleOfBlocks(evidence, drawn, parts) if ensemble else BestOfBlocks(evidence, drawn), drawn


def _shares(
    evidence: Evidence, loss_inputs: np.ndarray, y: np.ndarray, mass: np.ndarray, parts: int | None
) -> np.ndarray:
    if parts is None:
        return weigh(evidence.task, loss_inputs, y, mass, evidence.scale, QUICK_STEPS)
    picked = nested_picks(evidence.task, loss_inputs[:COMPACT_CANDIDATES], y, mass, evidence.scale, parts)
    return equal_shares(len(loss_inputs), picked)


class BestPick:
    """The candidate with the best score on a bootstrap sample, ties by loss."""

    def __init__(self, evidence: Evidence) -> None:
        self.prediction, self.weight = evidence.prediction, evidence.weight
        self.rows = np.empty(evidence.prediction.shape[:2], dtype=np.float32)
        for k in range(len(self.rows)):
            self.rows[k] = _score_rows(evidence, self.prediction[k])

    def __call__(self, number: int, counts: np.ndarray) -> np.ndarray:
        return np.asarray(self.prediction[int(np.argmax(self.rows @ (counts * self.weight).astype(np.float32)))])


class EnsemblePick:
    """An ensemble weighed on a bootstrap sample."""

    def __init__(self, evidence: Evidence, parts: int | None = None) -> None:
        self.evidence, self.parts = evidence, parts
        task, y = evidence.task, evidence.y
        self.loss_inputs = task.loss_inputs(evidence.prediction[:], y)
        self.losses = np.empty(self.loss_inputs.shape[:2], dtype=np.float32)
        for start, block in _blocks(evidence):  # a few at a time: what is computed on the way takes memory, too
            places = slice(start, start + len(block))
            self.losses[places] = task.losses_of_inputs(self.loss_inputs[places], y, evidence.scale)

    def __call__(self, number: int, counts: np.ndarray) -> np.ndarray:
        evidence = self.evidence
        inside = np.flatnonzero(counts * evidence.loss_weight)
        mass = (counts * evidence.loss_weight)[inside]
        order = np.argsort(self.losses[:, inside] @ mass.astype(np.float32), kind="stable")[:ENSEMBLE_CANDIDATES]
        loss_inputs = self.loss_inputs[order][:, inside]
        shares = _shares(evidence, loss_inputs, evidence.y[inside], mass, self.parts)
        used = np.flatnonzero(shares)
        return np.asarray(np.tensordot(shares[used], evidence.prediction[order[used]], axes=1))


class BestOfBlocks:
    """As BestPick, for samples that are all known beforehand."""

    def __init__(self, evidence: Evidence, samples: Sequence[np.ndarray]) -> None:
        self.prediction = evidence.prediction
        mass = _masses(samples, evidence.weight)
        self.place = np.zeros(len(samples), dtype=np.int64)  # the best candidate of each sample so far
        best = np.full(len(samples), -np.inf, dtype=np.float32)
        for start, block in _blocks(evidence):
            totals = _score_rows(evidence, block) @ mass
            first = totals.argmax(axis=0)  # where a score is no number, that one, as in BestPick
            values = np.take_along_axis(totals, first[None], axis=0)[0]
            better = (values > best) | (np.isnan(values) & ~np.isnan(best))
            self.place[better], best[better] = start + first[better], values[better]

    def __call__(self, number: int, counts: np.ndarray) -> np.ndarray:
        return np.asarray(self.prediction[int(self.place[number])])


class EnsembleOfBlocks:
    """As EnsemblePick, for samples that are all known beforehand."""

    def __init__(self, evidence: Evidence, samples: Sequence[np.ndarray], parts: int | None = None) -> None:
        self.evidence, self.parts = evidence, parts
        task, y = evidence.task, evidence.y
        mass = _masses(samples, evidence.loss_weight)
        best: np.ndarray = np.empty((0, len(samples)), np.float32)  # losses of the best of each sample so far
        self.places: np.ndarray = np.empty((0, len(samples)), np.int64)
        for start, block in _blocks(evidence):
            losses = task.losses(block, y, evidence.scale).astype(np.float32, copy=False) @ mass
            places = np.repeat(np.arange(start, start + len(block))[:, None], len(samples), axis=1)
            best, places = np.concatenate([best, losses]), np.concatenate([self.places, places])
            order = np.argsort(best, axis=0, kind="stable")[:ENSEMBLE_CANDIDATES]
            best = np.take_along_axis(best, order, axis=0)
            self.places = np.take_along_axis(places, order, axis=0)

    def __call__(self, number: int, counts: np.ndarray) -> np.ndarray:
        evidence = self.evidence
        prediction = evidence.prediction[self.places[:, number]]
        inside = np.flatnonzero(counts * evidence.loss_weight)
        mass, y = (counts * evidence.loss_weight)[inside], evidence.y[inside]
        loss_inputs = evidence.task.loss_inputs(prediction[:, inside], y)
        shares = _shares(evidence, loss_inputs, y, mass, self.parts)
        used = np.flatnonzero(shares)
        return np.asarray(np.tensordot(shares[used], prediction[used], axes=1))


def _score_rows(evidence: Evidence, prediction: np.ndarray) -> np.ndarray:
    """Values of rows whose mean is the score, less a little of their losses: of equal scores the lower loss counts."""
    task, y = evidence.task, evidence.y
    rows = evidence.metric.rows(task, prediction, y, evidence.weight)
    return np.asarray((rows - 1e-6 * task.losses(prediction, y, evidence.scale)).astype(np.float32))


def _masses(samples: Sequence[np.ndarray], weight: np.ndarray) -> np.ndarray:
    """(n, n_samples) weight of each row in each sample."""
    mass = np.empty((len(weight), len(samples)), dtype=np.float32)
    for k, counts in enumerate(samples):
        mass[:, k] = counts * weight
    return mass


def _blocks(evidence: Evidence) -> Iterator[tuple[int, np.ndarray]]:
    """Predictions of a few candidates at a time, with the place of the first one."""
    count, n, outputs = evidence.prediction.shape
    step = max(1, BLOCK_CELLS // (n * outputs))
    for start in range(0, count, step):
        yield start, evidence.prediction[start : start + step]

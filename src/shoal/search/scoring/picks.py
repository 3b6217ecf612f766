"""The selection repeated on bootstrap samples of the rows: the best candidate, or an ensemble.

Predictions are read in blocks of candidates, once for all samples: the values of a block times the counts of each
sample are its scores or losses there, of which the best candidates of each sample are kept. So time and memory are
linear: each prediction is read once, and what is kept does not depend on the number of candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shoal.search.scoring.ensemble import equal_shares, nested_picks, weigh
from shoal.search.scoring.evidence import Evidence

ENSEMBLE_CANDIDATES = 128
COMPACT_CANDIDATES = 32  # from which a compact ensemble is picked in each bootstrap sample
QUICK_STEPS = 10  # of greedy selection in each bootstrap sample
BLOCK_CELLS = 1 << 22  # rows times outputs times candidates that are read at a time


class BestPick:
    """The candidate with the best score on each sample, ties by loss. `samples`: the counts of their rows."""

    def __init__(self, evidence: Evidence, samples: Sequence[np.ndarray]) -> None:
        self.prediction = evidence.prediction
        mass = _masses(samples, evidence.weight)
        self.place = np.zeros(len(samples), dtype=np.int64)  # the best candidate of each sample so far
        best = np.full(len(samples), -np.inf, dtype=np.float32)
        for start, block in _blocks(evidence):
            rows = _score_rows(evidence, block)
            totals = np.stack([rows @ one for one in mass.T], axis=1)  # one by one: rounding decides between ties
            first = totals.argmax(axis=0)  # a score that is no number is the largest one
            values = np.take_along_axis(totals, first[None], axis=0)[0]
            better = (values > best) | (np.isnan(values) & ~np.isnan(best))
            self.place[better], best[better] = start + first[better], values[better]

    def __call__(self, number: int, counts: np.ndarray) -> np.ndarray:
        """(n, n_outputs) of the pick on a sample, given its number and counts."""
        return np.asarray(self.prediction[int(self.place[number])])


class EnsemblePick:
    """An ensemble weighed on each sample. `parts`: how many a compact ensemble has."""

    def __init__(self, evidence: Evidence, samples: Sequence[np.ndarray], parts: int | None = None) -> None:
        self.evidence, self.parts = evidence, parts
        task, y = evidence.task, evidence.y
        in_memory = isinstance(evidence.prediction, np.ndarray)
        self.loss_inputs = task.loss_inputs(evidence.prediction[:], y) if in_memory else None
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
        evidence, places = self.evidence, self.places[:, number]
        inside = np.flatnonzero(counts * evidence.loss_weight)
        mass, y = (counts * evidence.loss_weight)[inside], evidence.y[inside]
        if self.loss_inputs is not None:
            loss_inputs = self.loss_inputs[places][:, inside]
        else:
            loss_inputs = evidence.task.loss_inputs(evidence.prediction[places][:, inside], y)
        shares = self._shares(loss_inputs, y, mass)
        used = np.flatnonzero(shares)
        return np.asarray(np.tensordot(shares[used], evidence.prediction[places[used]], axes=1))

    def _shares(self, loss_inputs: np.ndarray, y: np.ndarray, mass: np.ndarray) -> np.ndarray:
        task, scale = self.evidence.task, self.evidence.scale
        if self.parts is None:
            return weigh(task, loss_inputs, y, mass, scale, QUICK_STEPS)
        picked = nested_picks(task, loss_inputs[:COMPACT_CANDIDATES], y, mass, scale, self.parts)
        return equal_shares(len(loss_inputs), picked)


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

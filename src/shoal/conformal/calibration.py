"""Cross-conformal prediction: how wrong networks were on rows that they did not train on says how sure they may be.

CV+ (Barber, Candès, Ramdas and Tibshirani, 2021; for classes Romano, Sesia and Candès, 2020): each fold has networks,
and scores of the rows that it held out. A new row is looked at by every fold. A value is left out of the interval, or a
class out of the set, where too few of the scores are as high as that value's, each score compared with what the
networks of its own fold say. If rows are alike (exchangeable), the truth is inside with a probability of at least
1 - 2 (1 - coverage) less a little, whatever the model is, and in practice with about `coverage`.

A model with one fold, trained again on all rows, is compared with all scores. That has no such guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.validate import number

STEPS = 24  # that halve the distance between the folds' own bounds
ROUNDING = 1e-12  # by which sums of weights may miss
NEW_ROW, SELECTION = 1, 1  # rows that count as the worst: the new one; and one since these rows also chose the networks


def check_coverage(name: str, coverage: Any) -> float:
    """A share of rows.

    >>> check_coverage("coverage", 90)
    Traceback (most recent call last):
    shoal.errors.UserError: coverage must be a share above zero and below 1, such as 0.9 for 90 in 100; got 90
    """
    try:
        return number(name, coverage, above=0, below=1, what="a share")
    except UserError as error:
        rule, _, got = str(error).rpartition("; got ")
        raise type(error)(f"{rule}, such as 0.9 for 90 in 100; got {got}") from None


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of rows that networks did not train on, and who they are compared with.

    A score belongs to a row and to a fold that held it out; where rows were dealt into folds several times, a row has
    several. For numbers it is the distance to the truth in units of the row's spread, for each output; for classes, one
    minus the probability of the true class (Sadinle, Lei and Wasserman, 2019), which gave smaller sets than the scores
    APS and RAPS (`python -m benchmarks coverage`).
    """

    scores: np.ndarray  # (pairs, n_outputs), or (pairs, 1) for classes; folds one after the other
    weight: np.ndarray  # (pairs,)
    counts: np.ndarray  # (n_folds,) pairs of each fold of the model
    rows: float  # how many rows the scores stand for
    effective: float  # how many rows of equal weight would tell as much

    @cached_property
    def _by_fold(self) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """For each output and fold: ascending scores, and the share of all weight up to each, from 0."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        total = self.weight.sum()
        found = []
        for column in self.scores.T:
            parts = []
            for start, end in pairwise(ends.tolist()):
                order = np.argsort(column[start:end], kind="stable")
                share = np.concatenate([[0.0], np.cumsum(self.weight[start:end][order]) / total])
                parts.append((column[start:end][order], share))
            found.append(parts)
        return found

    def level(self, coverage: float, name: str = "coverage") -> float:
        """The share of scores that must be reached. Two more rows count as the worst.

        One is the new row, as in every conformal prediction. With uneven weights it is as heavy as a row drawn by
        weight is on average (Tibshirani, Barber, Candès and Ramdas, 2019): the more uneven, the heavier. The other one
        makes up for the selection: the networks were chosen and weighed by the same rows, which without it costs 0.2
        points of coverage at 100 to 300 rows.
        """
        coverage = check_coverage(name, coverage)
        new_row = NEW_ROW / self.effective
        if coverage * (1 + new_row) > 1 + ROUNDING:
            least = int(np.ceil(coverage / (1 - coverage) - 1e-9))
            worth = f", worth {self.effective:.1f} of equal weight" if self.effective < 0.99 * self.rows else ""
            raise UserError(
                f"a {name} of {coverage:g} needs at least {least:,} held-out rows to learn from; this model has "
                f"{self.rows:.0f}{worth}: ask for less, or search on more rows"
            )
        return min(coverage * (1 + new_row + SELECTION / self.rows), 1.0) - ROUNDING

    def interval(self, prediction: np.ndarray, spread: np.ndarray, coverage: float) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest values, (n, n_outputs) each, from predictions and spreads of each fold (k, n, n_outputs).

        The model's own prediction, the mean over folds, is always inside.
        """
        level = self.level(coverage)
        mean = prediction.mean(axis=0)
        low, high = np.empty_like(mean), np.empty_like(mean)
        for j in range(mean.shape[1]):
            high[:, j] = self._bound(j, prediction[:, :, j], spread[:, :, j], level)
            low[:, j] = -self._bound(j, -prediction[:, :, j], spread[:, :, j], level)
        return np.minimum(low, mean), np.maximum(high, mean)

    def _bound(self, output: int, prediction: np.ndarray, spread: np.ndarray, level: float) -> np.ndarray:
        """(n,) the lowest value that `level` of all prediction + spread * score are not above; rounded upwards."""
        parts = [(k, *part) for k, part in enumerate(self._by_fold[output]) if len(part[0])]
        own = np.stack([prediction[k] + spread[k] * _quantile(scores, share, level) for k, scores, share in parts])
        low, high = own.min(axis=0), own.max(axis=0)  # below the one no fold has enough, at the other each has
        for _ in range(STEPS if len(parts) > 1 else 0):
            middle = 0.5 * (low + high)
            reached = np.zeros(len(middle))
            for k, scores, share in parts:
                reached += share[np.searchsorted(scores, (middle - prediction[k]) / spread[k], side="right")]
            enough = reached >= level
            high, low = np.where(enough, middle, high), np.where(enough, low, middle)
        return np.asarray(high)

    def sets(self, probability: np.ndarray, coverage: float) -> np.ndarray:
        """(n, n_classes) whether a class may be it, from probabilities of each fold, (k, n, n_classes).

        The likeliest class is always among them.
        """
        inside = self.within(1.0 - probability, coverage)
        inside[np.arange(len(inside)), probability.mean(axis=0).argmax(axis=1)] = True
        return inside

    def within(self, candidates: np.ndarray, coverage: float) -> np.ndarray:
        """(n, n_classes) whether enough scores are as high as those of candidates, by each fold (k, n, n_classes)."""
        below = np.zeros(candidates.shape[1:])
        for candidate, (scores, share) in zip(candidates, self._by_fold[0], strict=True):
            below += share[np.searchsorted(scores, candidate - ROUNDING, side="left")]
        return below < self.level(coverage)

    def typical(self, coverage: float) -> np.ndarray:
        """(n_outputs,) the score that `coverage` of all scores reach, whichever fold they are of."""
        level = self.level(coverage)
        order = np.argsort(self.scores, axis=0, kind="stable")
        share = np.cumsum(self.weight[order], axis=0) / self.weight.sum()
        places = [min(int(np.searchsorted(column, level)), len(column) - 1) for column in share.T]
        return np.array([self.scores[order[place, j], j] for j, place in enumerate(places)])


def _quantile(ascending: np.ndarray, share: np.ndarray, level: float) -> float:
    """The lowest score of one fold that `level` of its own weight reaches."""
    place = int(np.searchsorted(share[1:], level * share[-1], side="left"))
    return float(ascending[min(place, len(ascending) - 1)])

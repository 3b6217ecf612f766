"""Permutation importance on rows that the networks did not see: by how much the score falls when columns are shuffled.

Each fold's networks predict the rows that the fold held out, as they are and with the cells of a column moved to other
rows. What a column becomes inside (categories, pieces, parts of dates, words) moves together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.explain.networks import FoldNetworks, chunks, finished
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import weighted_mean
from shoal.models.model import Model

CONFIDENCE = 0.95
PREDICTIONS_AT_ONCE, FEW_PREDICTIONS = 1 << 22, 1 << 14
Job = tuple[tuple[int, ...], int]  # columns, and the round whose donors they get cells from


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that one fold held out, as its networks see them."""

    fold: int
    rows: np.ndarray  # (m,) their numbers
    weight: np.ndarray  # (m,) in the score
    inputs: dict[str, np.ndarray]
    donors: dict[str, np.ndarray] | None = None  # rows that cells are taken from, where the rows themselves are too few


@dataclass(frozen=True, eq=False)
class Drops:
    """What shuffling took from the score, row by row: the weighted mean of a line is the importance of its columns."""

    values: np.ndarray  # (groups, n)
    rounds: int


class Shuffler:
    """Shuffles columns of the rows that folds held out, and scores what comes of it."""

    def __init__(
        self, model: Model, held_out: Sequence[HeldOut], y: np.ndarray, metric: Metric, threads: int | None = None
    ) -> None:
        """`y` of all rows, by number."""
        self.model, self.held_out, self.metric = model, [one for one in held_out if len(one.rows)], metric
        self.networks = [FoldNetworks(model, one.fold, threads) for one in self.held_out]
        self.owners = [networks.owners() for networks in self.networks]
        self.rows = np.concatenate([one.rows for one in self.held_out])
        self.weight = np.concatenate([one.weight for one in self.held_out])
        self.fold = np.repeat(np.arange(len(self.held_out)), [len(one.rows) for one in self.held_out])
        self.y = y[self.rows]
        parts = [networks.predict(one.inputs) for networks, one in zip(self.networks, self.held_out, strict=True)]
        self.usual = self._values(finished(model, np.concatenate(parts))[None])[0]

    def drops(
        self,
        groups: Sequence[tuple[int, ...]],
        rounds: int,
        random: np.random.Generator,
        enough: Callable[[], bool] = lambda: False,
    ) -> Drops:
        """Shuffle each group of columns `rounds` times, or until there is `enough`, but once at least."""
        total, done = np.zeros((len(groups), len(self.rows))), 0
        cells = len(self.rows) * self.model.task.n_outputs
        together = max(1, FEW_PREDICTIONS // (cells * len(groups)))  # rounds of small tables: few calls are quicker
        while done < rounds and not (done and enough()):
            count = min(together, rounds - done)
            donors = [np.array([self._donors(one, random) for _ in range(count)]) for one in self.held_out]
            for part in chunks(len(groups), cells * count, PREDICTIONS_AT_ONCE):
                jobs = [(group, k) for group in groups[part] for k in range(count)]
                values = self._values(self._shuffled(jobs, donors)).reshape(-1, count, len(self.rows))
                total[part] += (self.usual - values).sum(axis=1)
            done += count
        return Drops(total / max(done, 1), done)

    def _donors(self, one: HeldOut, random: np.random.Generator) -> np.ndarray:
        """(m,) the row whose cell each row gets: never its own, where rows count alike."""
        count = len(one.rows)
        if one.donors is not None:
            return random.integers(len(next(iter(one.donors.values()))), size=count)
        if (one.weight != one.weight[0]).any():
            return random.choice(count, count, p=one.weight / one.weight.sum())
        order = random.permutation(count)
        donor = np.empty(count, dtype=np.int64)
        donor[order] = np.roll(order, 1)
        return donor

    def _shuffled(self, jobs: Sequence[Job], donors: Sequence[np.ndarray]) -> np.ndarray:
        """(jobs, n, n_outputs) predictions, each with the columns of a group shuffled."""
        found = []
        for networks, one, owner, donor in zip(self.networks, self.held_out, self.owners, donors, strict=True):
            count, width = len(one.rows), sum(matrix.shape[1] for matrix in one.inputs.values())
            source = one.donors or one.inputs
            pieces = []
            for part in chunks(len(jobs), count * width):
                copies = {
                    encoding: _copies(matrix, source[encoding], owner[encoding], jobs[part], donor)
                    for encoding, matrix in one.inputs.items()
                }
                pieces.append(networks.predict(copies).reshape(-1, count, self.model.task.n_outputs))
            found.append(np.concatenate(pieces))
        return finished(self.model, np.concatenate(found, axis=1))

    def _values(self, prediction: np.ndarray) -> np.ndarray:
        """(groups, n) what each row adds to the score."""
        task, metric = self.model.task, self.metric
        values = metric.rows(task, prediction, self.y, self.weight)
        if type(metric) is not Metric:  # those of scikit-learn: values of rows are estimates, the score is not
            score = metric.score(task, prediction, self.y, self.weight)
            values = values + (score - weighted_mean(values, self.weight))[:, None]
        return values

    def intervals(self, drops: np.ndarray, unit: np.ndarray | None = None) -> np.ndarray:
        """(groups, 3) mean, low and high of drops (groups, n); `unit` of each row, where some belong together."""
        units = self.rows if unit is None else unit[self.rows]
        dealings = len(self.rows) / len(np.unique(self.rows))  # how often each row was held out
        return confidence_intervals(drops, self.weight, units, self.fold, len(self.held_out) / dealings)


def _copies(
    matrix: np.ndarray, source: np.ndarray, owner: np.ndarray, jobs: Sequence[Job], donors: np.ndarray
) -> np.ndarray:
    """(jobs * m, width): the rows once for each job, with its columns taken from the donors in `source`."""
    made = np.empty((len(jobs), *matrix.shape), dtype=matrix.dtype)
    made[:] = matrix
    inputs = {group: np.flatnonzero(np.isin(owner, group)) for group in dict.fromkeys(group for group, _ in jobs)}
    for copy, (group, k) in zip(made, jobs, strict=True):
        mine = inputs[group]
        copy[:, mine] = source[donors[k][:, None], mine]
    return made.reshape(-1, matrix.shape[1])


def confidence_intervals(
    values: np.ndarray, weight: np.ndarray, unit: np.ndarray, fold: np.ndarray, folds: float
) -> np.ndarray:
    """(groups, 3): weighted means of values (groups, n), and the ends of their intervals.

    The standard error is the larger one of two: over units (rows; each counts once, however often it was held out),
    and over folds, whose networks differ as well. `folds`: how many there are in one dealing. Networks of several folds
    share most of their training rows, so that what folds say is not independent: the variance is corrected for it as
    Nadeau and Bengio (2003) do, by 1 + (held-out rows times folds) / (training rows).
    """
    from scipy.stats import t

    means = weighted_mean(values, weight)
    share = weight / weight.sum()
    rest = (values - means[:, None]) * share
    sums = _sums(rest, unit)
    count = sums.shape[1]
    variance = (sums**2).sum(axis=1) * count / max(count - 1, 1)
    if folds > 1.5:
        of_folds, weights = _sums(rest, fold), _sums(share[None], fold)[0]
        with_folds = (of_folds**2 / weights).sum(axis=1) / (folds - 1)  # weighted variance of the folds' means
        variance = np.maximum(variance, with_folds) * (1 + folds / (folds - 1))
    half = t.ppf(0.5 + CONFIDENCE / 2, max(count - 1, 1)) * np.sqrt(variance)
    return np.stack([means, means - half, means + half], axis=1)


def _sums(values: np.ndarray, key: np.ndarray) -> np.ndarray:
    """(groups, keys) sums of values (groups, n) that have the same key."""
    order = np.argsort(key, kind="stable")
    ranked = key[order]
    first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    return np.asarray(np.add.reduceat(values[:, order], first, axis=1))

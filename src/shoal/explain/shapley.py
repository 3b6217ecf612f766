"""Why a row is predicted as it is: Shapley values of its columns, by sampling or exactly.

The value of a set of columns is the mean prediction of rows that have these columns from the row and all others from a
background row. A column's Shapley value is what it adds, on average over all orders in which columns may come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np

from shoal.explain.networks import FoldNetworks, chunks, finished, with_none
from shoal.models.model import Model
from shoal.tables.table import Table

PAIRS = 32  # of walks, for each row
FOLDS_OF_WALKS = 3  # that a walk looks at, where there are more: folds agree better than walks do
MOST_EXACT = 8  # columns: 2 ** 8 sets of them
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # rows, background rows, sets -> (q, n_outputs)


@dataclass(frozen=True, eq=False)
class Game:
    """What columns are worth: predictions of mixed rows, rows (n, n_outputs) and background (m, n_outputs)."""

    predict: Predict
    rows: np.ndarray
    background: np.ndarray


class Mixer:
    """Predictions of a model, or of some of its folds, for rows that have some columns from a background row."""

    def __init__(
        self,
        model: Model,
        rows: Table,
        background: Table,
        threads: int | None = None,
        folds: Sequence[int] | None = None,
    ) -> None:
        self.model, self.columns = model, len(model.schema.used)
        chosen = range(len(model.folds)) if folds is None else folds
        self.networks = [FoldNetworks(model, fold, threads) for fold in chosen]
        self.owners = [networks.owners() for networks in self.networks]
        rows, background = model.schema.check(rows), model.schema.check(background)
        self.rows = [networks.encode(rows) for networks in self.networks]
        self.background = [networks.encode(background) for networks in self.networks]
        self.counts = len(rows), len(background)

    def __call__(self, row: np.ndarray, other: np.ndarray, own: np.ndarray) -> np.ndarray:
        """(q, n_outputs): columns where `own` (q, columns) is true are of `row` (q,), others of `other` (q,)."""
        width = sum(networks.n_features for networks in self.model.networks.values())
        pieces = [self._some(row[part], other[part], own[part]) for part in chunks(len(row), width)]
        return np.concatenate([np.empty((0, self.model.task.n_outputs)), *pieces])

    def _some(self, row: np.ndarray, other: np.ndarray, own: np.ndarray) -> np.ndarray:
        total = np.zeros((len(row), self.model.task.n_outputs))
        whose = with_none(own)
        for networks, owner, rows, background in zip(
            self.networks, self.owners, self.rows, self.background, strict=True
        ):
            made = {
                encoding: np.where(whose[:, owner[encoding]], rows[encoding][row], background[encoding][other])
                for encoding in rows
            }
            total += networks.predict(made)
        return finished(self.model, total / len(self.networks))

    def game(self) -> Game:
        return Game(self, self._plain(self.counts[0], own=True), self._plain(self.counts[1], own=False))

    def _plain(self, count: int, own: bool) -> np.ndarray:
        here, zeros = np.arange(count), np.zeros(count, dtype=np.int64)
        row, other = (here, zeros) if own else (zeros, here)
        return self(row, other, np.full((count, self.columns), own))


def games_of(model: Model, rows: Table, background: Table, threads: int | None, seed: int) -> tuple[Game, list[Game]]:
    """The whole model, and parts of it of a few folds each, among which walks take turns: the model is their mean."""
    count = len(model.folds)
    whole = Mixer(model, rows, background, threads).game()
    parts = max(1, count // FOLDS_OF_WALKS)
    if parts == 1:
        return whole, [whole]
    order = np.random.default_rng(seed).permutation(count)
    return whole, [Mixer(model, rows, background, threads, order[k::parts].tolist()).game() for k in range(parts)]


def sampled_values(
    whole: Game,
    parts: Sequence[Game],
    columns: int,
    pairs: int = PAIRS,
    seed: int = 0,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Shapley values (n, columns, n_outputs), their standard errors, and the walks of each row.

    parts  what walks from background rows to the rows look at, in turn
    pairs  of walks in opposite orders, for each row; `enough` may end it earlier, after two pairs at least

    The values of a row sum to its prediction less the mean of the background, by the whole model.
    """
    random, (count, outputs), many = np.random.default_rng(seed), whole.rows.shape, len(whole.background)
    total, squares, done = np.zeros((count, columns, outputs)), np.zeros((count, columns, outputs)), 0
    order_of_background = np.array([random.permutation(many) for _ in range(count)]).reshape(count, many)
    while done < pairs and not (done >= 2 and enough()):
        game = parts[done % len(parts)]
        order = random.permuted(np.tile(np.arange(columns), (count, 1)), axis=1)
        other = order_of_background[:, done % many]
        both = (_walk(game, order, other) + _walk(game, order[:, ::-1], other)) / 2
        total, squares, done = total + both, squares + both**2, done + 1
    mean = total / done
    variance = np.maximum(squares / done - mean**2, 0.0) / max(done - 1, 1)
    wanted = whole.rows - whole.background.mean(axis=0)
    return _summing(mean, variance, wanted), np.sqrt(variance), 2 * done


def _walk(game: Game, order: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n, columns, n_outputs) what each column adds on the way from a background row to the row."""
    count, columns = order.shape
    place = np.argsort(order, axis=1)  # when each column comes
    steps = np.arange(1, columns)
    own = place[:, None, :] < steps[:, None]  # (n, steps, columns)
    rows = np.repeat(np.arange(count), len(steps))
    between = game.predict(rows, other[rows], own.reshape(-1, columns)).reshape(count, len(steps), game.rows.shape[1])
    path = np.concatenate([game.background[other][:, None], between, game.rows[:, None]], axis=1)
    return np.asarray(np.take_along_axis(np.diff(path, axis=1), place[:, :, None], axis=1))


def _summing(mean: np.ndarray, variance: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Values that sum to what they have to; those that are known least well are changed most.

    All outputs are changed in the same shares, so that those of probabilities still sum to zero.
    """
    rest = wanted - mean.sum(axis=1)
    doubt = variance.sum(axis=2, keepdims=True)
    whole = doubt.sum(axis=1, keepdims=True)
    even = np.full_like(doubt, 1 / max(doubt.shape[1], 1))
    share = np.divide(doubt, whole, out=even, where=whole > 0)
    return np.asarray(mean + share * rest[:, None])


def exact_values(game: Game, columns: int) -> np.ndarray:
    """Shapley values (n, columns, n_outputs) from every set of columns and every background row.

    >>> def add(row, other, own):  # a sum of columns: each adds its difference from the mean
    ...     return np.where(own, np.array([3.0, 5.0]), np.array([1.0, 1.0])).sum(axis=1, keepdims=True)
    >>> exact_values(Game(add, np.array([[8.0]]), np.array([[2.0]])), 2).tolist()
    [[[2.0], [4.0]]]
    """
    (count, outputs), background = game.rows.shape, game.background
    sets = (np.arange(1 << columns)[:, None] >> np.arange(columns) & 1).astype(bool)
    found = np.zeros((count, columns, outputs))
    many = len(background)
    for row in range(count):
        rows = np.full(len(sets) * many, row)
        values = game.predict(rows, np.tile(np.arange(many), len(sets)), np.repeat(sets, many, axis=0))
        value = values.reshape(len(sets), many, outputs).mean(axis=1)
        value[0], value[-1] = background.mean(axis=0), game.rows[row]
        for column in range(columns):
            without = np.flatnonzero(~sets[:, column])
            size = sets[without].sum(axis=1)
            weight = np.array([factorial(s) * factorial(columns - s - 1) / factorial(columns) for s in size])
            found[row, column] = weight @ (value[without | 1 << column] - value[without])
    return found

"""Effects of columns on the prediction: partial dependence, and pairs that act together by Friedman's H statistic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.explain.networks import CELLS_AT_ONCE, FoldNetworks, chunks, finished
from shoal.explain.results import Effect, Pair
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.models.model import Model
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table

ENDS = 0.02  # the lowest and highest values are few: the networks know little there
RUG = 60
BAND = 0.1, 0.9  # of the networks
Setting = tuple[tuple[int, ...], np.ndarray]  # columns, and places in their grids (settings, columns)
Encoded = Callable[[int], Mapping[str, np.ndarray]]  # a fold's inputs of the background rows


@dataclass(frozen=True, eq=False)
class Grid:
    """Some values of one column, and how the rows are shared out among them."""

    column: int  # its place in the table
    name: str
    kind: str
    cells: np.ndarray  # (v,) as the table has them
    shown: tuple[Any, ...]  # numbers, or words
    nearest: np.ndarray  # (n,) for each row the value that is nearest to its own; -1: none
    rug: tuple[float, ...]

    @property
    def words(self) -> bool:
        """Whether the values have no order."""
        return any(isinstance(value, str) for value in self.shown) and self.kind != "date"


def make_grid(table: Table, column: int, kind: str, most: int) -> Grid | None:
    """Of a column of a table as `Schema.check` gives it. None: it has no values to set it to, as texts have none."""
    cells = table.columns[column]
    known = ~missing_cells(cells)
    if kind == "text" or len(np.unique(cells[known].astype(str) if cells.dtype == object else cells[known])) < 2:
        return None
    name = table.names[column]
    if cells.dtype == object:
        return _words(column, name, kind, cells, known, most)
    numbers = cells[known].astype(np.float64)
    different = np.unique(numbers)
    if len(different) > most:
        different = np.unique(np.quantile(numbers, np.linspace(ENDS, 1 - ENDS, most)))
    values = different.astype(np.int64).astype("datetime64[us]") if cells.dtype.kind == "M" else different
    nearest = np.full(len(cells), -1)
    nearest[known] = np.abs(numbers[:, None] - different).argmin(axis=1)
    rug = np.quantile(numbers, np.linspace(0, 1, min(RUG, len(numbers)))) if kind != "boolean" else ()
    return Grid(column, name, kind, values, _shown(kind, different), nearest, tuple(float(value) for value in rug))


def _words(column: int, name: str, kind: str, cells: np.ndarray, known: np.ndarray, most: int) -> Grid:
    """The most common values, the most common first."""
    values, place, count = np.unique(cells[known].astype(str), return_inverse=True, return_counts=True)
    common = np.argsort(-count, kind="stable")[:most]
    rank = np.full(len(values), -1)
    rank[common] = np.arange(len(common))
    nearest = np.full(len(cells), -1)
    nearest[known] = rank[place]
    shares = tuple(float(share) for share in count[common] / len(cells))
    shown = tuple(str(value) for value in values[common])
    return Grid(column, name, kind, np.array(shown, dtype=object), shown, nearest, shares)


def _shown(kind: str, values: np.ndarray) -> tuple[Any, ...]:
    if kind == "boolean":
        return tuple("yes" if value else "no" for value in values)
    return tuple(float(value) for value in values)


def grid_table(table: Table, grids: list[Grid]) -> Table:
    """A table whose row g has the g-th value of every grid: one encoding serves them all."""
    longest = max(len(grid.cells) for grid in grids)
    columns = [np.repeat(cells[:1], longest) for cells in table.columns]
    for grid in grids:
        columns[grid.column] = grid.cells[np.arange(longest) % len(grid.cells)]
    return Table(table.names, columns)


@dataclass(frozen=True, eq=False)
class Dependence:
    """Predictions of background rows with some columns set to values of their grids."""

    model: Model
    grids: Sequence[Grid]
    table: Table  # as `Schema.check` gives it
    background: Encoded
    threads: int | None = None

    def curves(self, names: Sequence[str] | None, folds: Sequence[int]) -> list[Effect]:
        """The effect of each grid's column; `names` of the outputs."""
        settings = [self._alone(grid) for grid in self.grids]
        totals: list[np.ndarray | float] = [0.0] * len(settings)
        single: list[list[np.ndarray]] = [[] for _ in settings]
        weights: list[np.ndarray] = []
        for fold in folds:
            for place, (weight, each) in enumerate(self._fold(fold, settings)):
                totals[place] = totals[place] + np.einsum("p,pqbo->qbo", weight, each)
                single[place].append(finished(self.model, each).mean(axis=2))
            weights.append(weight)
        return [
            self._effect(grid, np.asarray(total) / len(folds), np.concatenate(one), np.concatenate(weights), names)
            for grid, total, one in zip(self.grids, totals, single, strict=True)
        ]

    def pairs(self, names: Sequence[str] | None, folds: Sequence[int]) -> list[Pair]:
        """Every pair of the grids' columns, the strongest first."""
        count = len(self.grids)
        both = [(a, b) for a in range(count) for b in range(a + 1, count)]
        settings = [self._alone(grid) for grid in self.grids]
        settings += [self._pair_settings(self.grids[a], self.grids[b]) for a, b in both]
        totals: list[np.ndarray | float] = [0.0] * len(settings)
        for fold in folds:
            for place, (weight, each) in enumerate(self._fold(fold, settings)):
                totals[place] = totals[place] + np.einsum("p,pqbo->qbo", weight, each)
        means = [finished(self.model, np.asarray(total) / len(folds)).mean(axis=1) for total in totals]
        found = []
        for (a, b), mean in zip(both, means[count:], strict=True):
            surface = mean.reshape(len(self.grids[a].cells), len(self.grids[b].cells), -1)
            found.append(self._pair(self.grids[a], self.grids[b], means[a], means[b], surface, names))
        return sorted(found, key=lambda pair: -pair.strength)

    def _alone(self, grid: Grid) -> Setting:
        return (grid.column,), np.arange(len(grid.cells))[:, None]

    def _pair_settings(self, a: Grid, b: Grid) -> Setting:
        first, second = np.meshgrid(np.arange(len(a.cells)), np.arange(len(b.cells)), indexing="ij")
        return (a.column, b.column), np.stack([first.ravel(), second.ravel()], axis=1)

    def _fold(self, fold: int, settings: Sequence[Setting]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each setting the weights (parts,) and predictions (parts, values, rows, n_outputs) of single networks."""
        networks = FoldNetworks(self.model, fold, self.threads)
        owner, base = networks.owners(), self.background(fold)
        values = networks.encode(grid_table(self.table, list(self.grids)))
        rows = len(next(iter(base.values())))
        pieces: list[list[np.ndarray]] = [[] for _ in settings]
        for batch in self._batches(settings, rows * sum(matrix.shape[1] for matrix in base.values())):
            made = {
                encoding: np.concatenate([
                    _set(matrix, owner[encoding], values[encoding], settings[place][0], settings[place][1][part])
                    for place, part in batch
                ])
                for encoding, matrix in base.items()
            }  # fmt: skip
            weight, each = networks.each(made)
            each, at = each.reshape(len(weight), -1, rows, each.shape[-1]), 0
            for place, part in batch:
                count = len(settings[place][1][part])
                pieces[place].append(each[:, at : at + count])
                at += count
        return [(weight, np.concatenate(one, axis=1)) for one in pieces]

    def _batches(self, settings: Sequence[Setting], cells_each: int) -> Iterator[list[tuple[int, slice]]]:
        """Settings, or parts of long ones, that are predicted in one call."""
        batch: list[tuple[int, slice]] = []
        cells = 0
        for place, (_, places) in enumerate(settings):
            for part in chunks(len(places), cells_each):
                more = (part.stop - part.start) * cells_each
                if batch and cells + more > CELLS_AT_ONCE:
                    yield batch
                    batch, cells = [], 0
                batch, cells = [*batch, (place, part)], cells + more
        if batch:
            yield batch

    def _effect(
        self, grid: Grid, total: np.ndarray, single: np.ndarray, weights: np.ndarray, names: Sequence[str] | None
    ) -> Effect:
        """From the mean over networks (values, rows, n_outputs), and curves of single ones (networks, values, n)."""
        mean = finished(self.model, total).mean(axis=1)
        output = self._most_changed(mean)
        curve, curves = mean[:, output], single[:, :, output]
        centred = curves - curves.mean(axis=1, keepdims=True) + curve.mean()  # how they disagree on its shape
        low, high = _weighted_quantiles(centred, weights, BAND)
        return Effect(
            grid.name, grid.kind, None if names is None else names[output], grid.shown, _floats(curve),
            _floats(np.minimum(low, curve)), _floats(np.maximum(high, curve)), grid.rug,
            self.model.task.kind != REGRESSION,
        )  # fmt: skip

    def _most_changed(self, mean: np.ndarray) -> int:
        """The output to show: of two classes the second one, else that which varies most."""
        if self.model.task.kind == CLASSIFICATION and mean.shape[-1] == 2:
            return 1
        flat = mean.reshape(-1, mean.shape[-1])
        return int(np.argmax(np.ptp(flat, axis=0) / self._scale()))

    def _scale(self) -> np.ndarray | float:
        return self.model.folds[0].target.scale if self.model.task.kind == REGRESSION else 1.0

    def _pair(
        self, a: Grid, b: Grid, alone_a: np.ndarray, alone_b: np.ndarray, surface: np.ndarray,
        names: Sequence[str] | None,
    ) -> Pair:  # fmt: skip
        strength = h_statistic(surface / self._scale(), alone_a / self._scale(), alone_b / self._scale(), joint(a, b))
        output = self._most_changed(surface)
        shown = tuple(_floats(row) for row in surface[:, :, output])
        name = None if names is None else names[output]
        is_share = self.model.task.kind != REGRESSION
        return Pair((a.name, b.name), strength, name, (a.shown, b.shown), shown, is_share)


def joint(a: Grid, b: Grid) -> np.ndarray:
    """(values of a, values of b) the share of rows that are nearest to both."""
    both = (a.nearest >= 0) & (b.nearest >= 0)
    table = np.zeros((len(a.cells), len(b.cells)))
    np.add.at(table, (a.nearest[both], b.nearest[both]), 1.0)
    return table / max(table.sum(), 1.0)


def h_statistic(surface: np.ndarray, alone_a: np.ndarray, alone_b: np.ndarray, share: np.ndarray) -> float:
    """Friedman's H of two columns: the part of their joint effect (a, b, n) that the effects of each do not give.

    >>> a, b = np.arange(3.0)[:, None], np.arange(4.0)[:, None]
    >>> even = np.full((3, 4), 1 / 12)
    >>> h_statistic((a + b.T)[:, :, None], a + b.mean(), b + a.mean(), even)
    0.0
    """
    a, b = share.sum(axis=1), share.sum(axis=0)
    centred = surface - np.einsum("ab,abo->o", share, surface)
    rest = centred - (alone_a - a @ alone_a)[:, None] - (alone_b - b @ alone_b)[None]
    whole = float(np.einsum("ab,abo->", share, centred**2))
    part = float(np.einsum("ab,abo->", share, rest**2))
    return min(float(np.sqrt(part / whole)), 1.0) if part > 1e-12 * whole > 0 else 0.0


def _set(
    base: np.ndarray, owner: np.ndarray, values: np.ndarray, columns: Sequence[int], places: np.ndarray
) -> np.ndarray:
    """(settings * rows, width): the rows once for each setting (settings, columns) of values of grids."""
    made = np.empty((len(places), *base.shape), dtype=base.dtype)
    made[:] = base
    for j, column in enumerate(columns):
        mine = np.flatnonzero(owner == column)
        made[:, :, mine] = values[places[:, j][:, None], mine][:, None]
    return made.reshape(-1, base.shape[1])


def _weighted_quantiles(curves: np.ndarray, weights: np.ndarray, shares: Sequence[float]) -> list[np.ndarray]:
    """(values,) for each share, over networks (networks, values)."""
    order = np.argsort(curves, axis=0)
    reached = np.cumsum(weights[order], axis=0) / weights.sum()
    ranked = np.take_along_axis(curves, order, axis=0)
    return [np.take_along_axis(ranked, (reached >= share - 1e-12).argmax(axis=0)[None], axis=0)[0] for share in shares]


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)

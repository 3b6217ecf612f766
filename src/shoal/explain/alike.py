"""Columns that carry the same information: found by how well the cells of one tell those of another."""

from __future__ import annotations

import numpy as np

from shoal.tables.missing import missing_cells
from shoal.tables.table import Table

BINS = 8
ROWS = 2_000  # that are looked at
MOST_COLUMNS = 300
ALIKE = 0.6  # of 1: columns that tell each other so well may stand in for each other


def alike_groups(table: Table, most: float = ALIKE) -> list[list[int]]:
    """Columns that may stand in for each other, by their places; those that are like no other are not listed.

    >>> random = np.random.default_rng(0)
    >>> a, b = random.normal(size=(2, 500))
    >>> alike_groups(Table.of({"a": a, "b": b, "twice a": 2 * a}))
    [[0, 2]]
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if not 2 <= len(table.names) <= MOST_COLUMNS or len(table) < 4:
        return []
    distance = 1.0 - association(table)
    np.fill_diagonal(distance, 0.0)
    labels = fcluster(linkage(squareform(distance, checks=False), "average"), 1.0 - most, "distance")
    found = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    return [group for group in found if len(group) > 1]


def association(table: Table) -> np.ndarray:
    """(columns, columns) between 0 and 1: the larger one of Cramer's V of binned cells and Spearman's correlation."""
    table = table.take(np.linspace(0, len(table) - 1, min(len(table), ROWS)).astype(np.int64))
    binned = [_binned(column) for column in table.columns]
    counts = [int(codes.max()) + 1 for codes in binned]
    edges = np.cumsum([0, *counts])
    hot = np.zeros((len(table), edges[-1]), dtype=np.float32)
    for codes, start in zip(binned, edges, strict=False):
        hot[np.arange(len(table)), start + codes] = 1.0
    together = np.asarray(hot.T @ hot, dtype=np.float64)
    alone = np.diag(together)
    expected = np.outer(alone, alone) / len(table)
    surprise = np.divide((together - expected) ** 2, expected, out=np.zeros_like(expected), where=expected > 0)
    blocks = np.add.reduceat(np.add.reduceat(surprise, edges[:-1], axis=0), edges[:-1], axis=1) / len(table)
    free = np.array(counts, dtype=np.float64) - 1
    by_chance = np.outer(free, free) / max(len(table) - 1, 1)  # what columns without any relation have
    least = np.maximum(np.minimum.outer(free, free), 1.0)
    found = np.sqrt(np.clip((blocks - by_chance) / least, 0.0, 1.0))
    return np.maximum(found, _ranked(table))


def _binned(column: np.ndarray) -> np.ndarray:
    """(n,) a small whole number for each cell; missing cells have one of their own."""
    missing = missing_cells(column)
    codes = np.zeros(len(column), dtype=np.int64)
    if column.dtype == object:
        values, place, count = np.unique(column[~missing].astype(str), return_inverse=True, return_counts=True)
        common = np.argsort(-count, kind="stable")[: BINS - 1]
        rank = np.full(len(values), min(len(values), BINS - 1))
        rank[common] = np.arange(len(common))
        codes[~missing] = rank[place]
    elif (~missing).any():
        numbers = column[~missing].astype(np.float64)
        cuts = np.unique(np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1]))
        codes[~missing] = np.searchsorted(cuts, numbers, side="right")
    codes[missing] = BINS
    return np.unique(codes, return_inverse=True)[1]


def _ranked(table: Table) -> np.ndarray:
    """Absolute rank correlations of columns of numbers; zero for others."""
    from scipy.stats import rankdata

    numbers = [j for j, column in enumerate(table.columns) if column.dtype != object]
    found = np.zeros((len(table.columns), len(table.columns)))
    if len(numbers) < 2:
        return found
    ranks = []
    for j in numbers:
        column = table.columns[j]
        cells = column.astype(np.float64)
        known = ~missing_cells(column)
        cells[~known] = np.median(cells[known]) if known.any() else 0.0
        rank = rankdata(cells)
        ranks.append(rank - rank.mean())
    matrix = np.array(ranks)
    size = np.sqrt((matrix**2).sum(axis=1))
    matrix = np.divide(matrix, size[:, None], out=np.zeros_like(matrix), where=size[:, None] > 0)
    found[np.ix_(numbers, numbers)] = np.abs(matrix @ matrix.T)
    return np.clip(found, 0.0, 1.0)

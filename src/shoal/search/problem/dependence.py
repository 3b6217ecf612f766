"""Rows that depend on each other, found before a search: copies. For ids and dates see `column_notes`.

A network that has seen one of two dependent rows knows the other one: scores on such rows say little about new ones.

Equal inputs alone prove nothing. In a table of a few categories, independent people often have the same cells. So the
targets decide. Rows with (nearly) equal inputs are copies if one of these holds:

- every row is there several times, target included, and always a multiple of the same number of times;
- targets of equal inputs are alike, and hardly any other rows differ in one column only: no coincidence;
- targets of equal inputs are far more alike than what other inputs tell of them;
- targets of equal inputs are often, but not always, the same number, and hardly ever the next one.

The last two need more equal rows than chance gives where each column is shuffled. Rows that differ in one column, or in
a few that always differ, are copies as well, if their targets agree and are far more alike than other inputs tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.tables.table import Table

TOGETHER = "copies stay together: all are trained on, or all are held out"
INDEPENDENT = f"{TOGETHER}; if they are independent of each other, pass"
FEWEST_COPIED, COPIED_SHARE = 5, 0.01  # sets of copies; share of the rows that have a copy: fewer change no score
FEWEST_COMPARED = 15  # sets of copies that are compared with other inputs
MOST_COPIES = 20  # rows of such a set, on average
FEWEST_SETS = 10  # of rows with different inputs, to be dealt into folds
ALIKE, MUCH_MORE_ALIKE = 0.6, 0.65  # 0: as alike as any two rows, 1: equal; and the lead over the nearest others
MOST_ASKED, MOST_OTHERS = 500, 5_000  # rows that are compared with their nearest neighbours
MOST_SCREENED = 50  # columns in which rows are compared first
FEWEST_FINE, WIDEST = 3, 0.1  # columns of fine numbers, and interquartile ranges between rows that are nearly equal
GRIDS, CELLS_PER_ROW = 10, 10
NEARER, NEARLY_ALL = 0.1, 0.9  # distance of a copy as a share of that of the nearest other row; copies that hold it
MOST_INDICATORS = 20  # categories of a column that distances know
OFTEN, ALWAYS, MORE_THAN_NEXT = 0.1, 0.98, 5  # shares of pairs with the same number; how much rarer the next one is
NEAR_MISSES = 0.5  # per pair with equal inputs: at most so many, where coincidence is improbable
NEAR = 0.002, 0.1, 1.0  # tolerance in (spread of a column / rows), with one column of fine numbers, two, and more
CLOSE_TARGET = 1e-3  # standard deviations between targets that are the same number
MOST_CELLS = 2_000_000  # of a table in which nearly equal numbers are looked for; in larger ones only equal ones
TIMES_CHANCE = 2  # equal rows per equal row of the table with each column shuffled
SAME_TARGET, UNTOLD = 0.9, 0.5  # how alike targets are of rows that are equal in most columns; of others, at most
MOSTLY, MOST_TIED = 0.9, 2_000  # share of rows with the same number that have the same in a column; pairs compared
OFF_TREND = 0.01  # share of variance that a straight trend leaves


@dataclass(frozen=True)
class Note:
    """What was found, and what the user can do about it: in Python, and on the command line."""

    found: str
    in_python: str
    on_command_line: str

    def for_python(self) -> str:
        return f"{self.found}; {self.in_python}"

    def for_command_line(self) -> str:
        return f"{self.found}; {self.on_command_line}"


class Alikeness:
    """How alike the targets of rows are. 0: as alike as any two rows, 1: equal.

    Classes are indicators, and numbers are ranks, so that outliers do not matter.
    """

    def __init__(self, task: Task, target: np.ndarray) -> None:
        y = np.asarray(target, dtype=np.float64).reshape(len(target), -1)
        values = np.eye(task.n_outputs)[target] if task.kind == CLASSIFICATION else y
        if task.kind == REGRESSION:
            values = np.stack([np.unique(column, return_inverse=True)[1] for column in y.T], axis=1).astype(np.float64)
            y = np.stack([_clusters(column, CLOSE_TARGET * column.std()) for column in y.T], axis=1)
        values = values - values.mean(axis=0)
        self.values = values / max(float(np.sqrt((values**2).sum(axis=1).mean())), 1e-300)  # variances sum to 1
        self.label = hash_rows(y.T)
        self.steps = y if task.kind == REGRESSION else None  # numbers of the different values, in their order

    def within(self, key: np.ndarray) -> float:
        """Of rows and others with the same key. Each row counts the same, however many have its key."""
        order, first, counts = runs_of(key)
        ranked, several = self.values[order], counts > 1
        totals = np.add.reduceat(ranked, first, axis=0)
        squares = counts * np.add.reduceat((ranked**2).sum(axis=1), first) - (totals**2).sum(axis=1)
        rows = counts[several]
        return 1 - float((rows * squares[several] / _pairs(rows)).sum() / max(rows.sum(), 1)) / 2

    def between(self, one: np.ndarray, other: np.ndarray) -> float:
        """Of pairs of rows."""
        return 1 - float(((self.values[one] - self.values[other]) ** 2).sum(axis=1).mean()) / 2

    def along(self, order: np.ndarray) -> float:
        """Of neighbours in an order, apart from a straight trend; 0 where rows are sorted by their targets."""
        values, changes = self.values[order], int((np.diff(self.label[order]) != 0).sum())
        blocks = self.steps is None and changes < 2 * len(np.unique(self.label))
        place = np.linspace(-1, 1, len(order))[:, None]
        rest = values - place * ((place * values).sum(axis=0) / (place**2).sum())
        off, least = float((rest**2).sum()), OFF_TREND * len(rest)
        return 1 - float((np.diff(rest, axis=0) ** 2).sum()) / off / 2 if off > least and not blocks else 0.0

    def same_number(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Whether pairs of rows often have the same number, and hardly ever one that is next to it.

        If all have the same, it may follow from the inputs without noise.
        """
        if self.steps is None:
            return False
        apart = np.abs(self.steps[one] - self.steps[other]).max(axis=1)
        same, next_to_it = (apart == 0).mean(), (apart == 1).mean()
        return bool(OFTEN <= same < ALWAYS and same >= MORE_THAN_NEXT * next_to_it)


def repeated_rows(table: Table, task: Task, target: np.ndarray) -> tuple[np.ndarray, Note] | None:
    """The set of equal rows that each row belongs to, (n,) from 0, and what to say; None where none are copies."""
    some = _Columns(table.select(np.unique(np.linspace(0, len(table.names) - 1, MOST_SCREENED).astype(int)).tolist()))
    alikeness = Alikeness(task, target)
    near = some.nearly_equal()
    order, _, counts = runs_of(near)
    found = near if _enough(counts) and _Comparison(table, alikeness, order, counts).are_copies() else None
    columns = some if len(some.table.names) == len(table.names) else _Columns(table)
    if _enough(runs_of(some.total())[2]):  # rows that differ in some columns are not equal in all
        total = columns.total()
        if _are_copies(columns, total, alikeness):
            found = _connected(len(near), np.concatenate([_chained(near), _chained(total)], axis=1))
    sets, but = 0 if found is None else len(np.unique(found)), ""
    if (broken := _broken_copies(columns, alikeness)) is not None:
        found = _connected(len(near), np.concatenate([broken, *([] if found is None else [_chained(found)])], axis=1))
        but = "" if len(np.unique(found)) == sets else ", but for a column or a few cells"
    if found is None:
        return None
    order, _, counts = runs_of(found)
    group = np.empty(len(found), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(counts)), counts)
    several = counts > 1
    note = Note(
        f"{counts[several].sum():,} of {len(found):,} rows repeat each other{but}: they have only {several.sum():,} "
        "different inputs, and their targets agree",
        f"{INDEPENDENT} group_repeats=False", f"{INDEPENDENT} --no-group-repeats",
    )  # fmt: skip
    return group, note


def _enough(counts: np.ndarray) -> bool:
    """Whether sets of so many equal rows matter to a score, and can be dealt into folds."""
    several = counts > 1
    copied = several.sum() >= FEWEST_COPIED and counts[several].sum() >= COPIED_SHARE * counts.sum()
    return bool(copied and len(counts) >= FEWEST_SETS)


def _are_copies(columns: _Columns, total: np.ndarray, alikeness: Alikeness) -> bool:
    """Whether rows with the same total, thus with equal inputs, depend on each other."""
    order, _, counts = runs_of(total)
    if not _enough(counts):
        return False
    whole = runs_of(total ^ alikeness.label)[2]  # how often each row is there, target included
    if len(whole) >= FEWEST_COMPARED and np.gcd.reduce(whole) > 1:
        return True
    compared = _Comparison(columns.table, alikeness, order, counts)
    if columns.improbable(total, counts):
        return compared.separate and alikeness.within(total) >= ALIKE
    return compared.are_copies() and _pairs(counts).sum() >= TIMES_CHANCE * columns.by_chance()


def _broken_copies(columns: _Columns, alikeness: Alikeness) -> np.ndarray | None:
    """(2, m) pairs of rows that are copies but for one column, or for a few that differ among most copies."""
    table = columns.table
    if len(table.names) < 3 or len(table) * len(table.names) > MOST_CELLS:
        return None
    hashed = np.stack([columns.hashed(j, NEAR[0]) for j in range(len(table.names))])
    totals = [(cells, cells.sum(axis=0)) for cells in (hashed, np.random.default_rng(0).permuted(hashed, axis=1))]
    different = np.array([len(np.unique(one)) for one in hashed])
    pairs = []
    for left_out in {*((j,) for j in range(len(hashed))), *_differing(hashed, different)}:
        key, mixed = (total - cells[[*left_out]].sum(axis=0) for cells, total in totals)
        counts = runs_of(key)[2]
        by_chance = _pairs(counts).sum() < TIMES_CHANCE * _pairs(runs_of(mixed)[2]).sum()
        by_chance |= np.delete(different, left_out).max() < (counts > 1).sum() / 2
        if _enough(counts) and not by_chance and alikeness.within(key) >= SAME_TARGET:
            if len(counts) >= FEWEST_COMPARED and np.gcd.reduce(runs_of(key ^ alikeness.label)[2]) > 1:
                return _chained(key)
            one, other = _chained(key)  # a few may be equal by coincidence: those with other targets
            apart = ((alikeness.values[one] - alikeness.values[other]) ** 2).sum(axis=1)
            pairs.append(np.stack([one, other])[:, apart <= 2 * (1 - SAME_TARGET)])
    joined = np.concatenate([np.empty((2, 0), dtype=np.int64), *pairs], axis=1)
    order, _, counts = runs_of(_connected(len(table), joined))
    compared = _Comparison(table, alikeness, order, counts) if _enough(counts) else None
    weak = compared is None or not compared.few or compared.alike < SAME_TARGET or compared.others > UNTOLD
    return None if weak else joined


def _differing(hashed: np.ndarray, different: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Columns that differ among most rows with the same number of another column, where few rows have the same."""
    rows = hashed.shape[1]
    for j in np.flatnonzero((different < rows) & (different * MOST_COPIES >= rows))[:MOST_SCREENED]:
        one, other = _chained(hashed[j])
        some = np.linspace(0, len(one) - 1, min(len(one), MOST_TIED)).astype(int)
        same = (hashed[:, one[some]] == hashed[:, other[some]]).mean(axis=1)
        left_out = np.flatnonzero(same < MOSTLY)
        if 1 < len(left_out) <= len(hashed) // 3:
            yield tuple(left_out.tolist())


# ---- pairs of rows ----


class _Columns:
    """A number for every cell of a table, the same for equal cells of a column, and for nearly equal numbers."""

    def __init__(self, table: Table) -> None:
        self.table = table
        small = len(table) * len(table.names) <= MOST_CELLS
        self.fine = [j for j, column in enumerate(table.columns) if small and _is_fine(column)]
        self.near = NEAR[min(max(len(self.fine), 1), len(NEAR)) - 1]

    def hashed(self, j: int, near: float | None = None) -> np.ndarray:
        codes = self.table.code(j)
        if j in self.fine:
            codes = _clusters(codes, (self.near if near is None else near) * _spread(codes) / len(codes))
        return hash_rows([codes, np.full(len(codes), float(j))])

    def total(self) -> np.ndarray:
        """(n,) the same for rows whose cells are all the same: a sum, from which columns can be taken out."""
        total = np.zeros(len(self.table), dtype=np.uint64)
        for j in range(len(self.table.names)):
            total += self.hashed(j)
        return total

    def by_chance(self) -> float:
        """Pairs of equal rows in the table with each column shuffled."""
        random = np.random.default_rng(0)
        total = sum(random.permutation(self.hashed(j)) for j in range(len(self.table.names)))
        return float(_pairs(runs_of(np.asarray(total))[2]).sum())

    def improbable(self, total: np.ndarray, counts: np.ndarray) -> bool:
        """Whether rows with equal cells are no coincidence: hardly any pair of rows differs in one column only."""
        columns, equal = len(self.table.names), _pairs(counts).sum()
        missed = 0.0
        for j in range(columns):
            missed += float(_pairs(runs_of(total - self.hashed(j))[2]).sum() - equal)
            if missed > NEAR_MISSES * equal:
                return False
        return columns > 1

    def nearly_equal(self) -> np.ndarray:
        """(n,) the same for rows that are closer to each other than independent rows would ever be.

        Rows are looked for in cells of random grids over a few columns, and compared in all columns there.
        """
        alone = np.arange(len(self.table), dtype=np.uint64)
        if len(self.fine) < FEWEST_FINE:
            return alone
        random, rows = np.random.default_rng(0), len(alone)
        codes = [self.table.code(j) for j in self.fine]
        values = np.stack([column / _spread(column) for column in codes], axis=1)  # -inf where missing
        width = min(WIDEST, 0.5 * (0.2 / rows**2) ** (1 / len(self.fine)))  # a coincidence in ten tables
        others = np.zeros(rows, dtype=np.uint64)
        for j in set(range(len(self.table.names))) - set(self.fine):
            others += self.hashed(j)
        count = int(np.ceil(np.log(CELLS_PER_ROW * rows) / np.log(1 / width)))  # columns: most cells are empty
        pairs = []
        for _ in range(GRIDS):
            chosen = random.choice(len(self.fine), min(count, len(self.fine)), replace=False)
            cells = np.floor(values[:, chosen] / width + random.random(len(chosen)))
            key = others ^ hash_rows(cells.T)
            order = np.lexsort((values[:, chosen[0]], key))
            one, other = order[:-1], order[1:]
            together = np.flatnonzero(key[one] == key[other])
            one, other = one[together], other[together]
            with np.errstate(invalid="ignore"):  # both are missing
                near = (np.abs(values[one] - values[other]) <= width) | (values[one] == values[other])
            pairs.append(np.stack([one, other])[:, near.all(axis=1)])
        return _connected(rows, np.concatenate(pairs, axis=1))


def _connected(rows: int, pairs: np.ndarray) -> np.ndarray:
    """(rows,) the number of the set that each row is in, where pairs (2, m) are together."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(pairs.shape[1], dtype=np.int8), (pairs[0], pairs[1])), shape=(rows, rows))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.uint64)


def _spread(numbers: np.ndarray) -> float:
    """The interquartile range of the different numbers."""
    low, high = np.quantile(np.unique(numbers[np.isfinite(numbers)]), [0.25, 0.75])
    return float(high - low)


def _chained(key: np.ndarray) -> np.ndarray:
    """(2, m) pairs of rows that connect all rows with the same key."""
    order = np.argsort(key, kind="stable")
    same = key[order[1:]] == key[order[:-1]]
    return np.stack([order[:-1][same], order[1:][same]])


def _is_fine(column: np.ndarray) -> bool:
    """Numbers of which most are different and not whole: two that are nearly equal may be one, measured or stored."""
    if column.dtype != np.float64:
        return False
    known = column[~np.isnan(column)]
    return len(known) > 1 and len(np.unique(known)) >= 0.5 * len(known) and not bool((known == np.floor(known)).all())


class _Comparison:
    """Rows with equal inputs, each compared with another one of its set, and with the nearest row of another set."""

    def __init__(self, table: Table, alikeness: Alikeness, order: np.ndarray, counts: np.ndarray) -> None:
        """`order` has rows one set of equal ones after the other, and `counts` how many each set has."""
        several = counts > 1
        self.sets, self.rows = int(several.sum()), int(counts[several].sum())
        random = np.random.default_rng(0)
        first = np.cumsum(counts) - counts
        shuffled = [random.permutation(np.flatnonzero(which)) for which in (several, ~several)]
        sets = np.concatenate([shuffled[0][: MOST_OTHERS // 2], shuffled[1]])[:MOST_OTHERS]
        place = np.repeat(np.arange(len(sets)), counts[sets] * several[sets])  # once for each row that has a copy
        asked = random.permutation(place)[:MOST_ASKED]
        many, start = counts[sets[asked]], first[sets[asked]]
        here = random.integers(many)
        one, copy = order[start + here], order[start + (here + random.integers(1, many)) % many]
        inputs = _inputs(table, np.concatenate([order[first[sets]], one, copy]))
        inputs, at_one, at_copy = np.split(inputs, [len(sets), len(sets) + len(asked)])
        distance = (at_one**2).sum(axis=1)[:, None] + (inputs**2).sum(axis=1) - 2 * at_one @ inputs.T
        distance += 1e-6 * random.random(distance.shape)  # of equally near ones any is taken
        distance[np.arange(len(asked)), asked] = np.inf
        other = sets[distance.argmin(axis=1)]
        apart, gap = ((at_one - at_copy) ** 2).sum(axis=1), distance.min(axis=1)
        self.separate = bool(np.quantile(apart / np.maximum(gap, 1e-300), NEARLY_ALL) <= NEARER**2)
        self.alike, self.same_number = alikeness.between(one, copy), alikeness.same_number(one, copy)
        explained = _explained_by_others(inputs, alikeness.values[order[first[sets]]])
        self.others = max(alikeness.between(one, order[first[other] + random.integers(counts[other])]), explained, 0.0)
        self.few = self.sets >= FEWEST_COMPARED and self.rows <= MOST_COPIES * self.sets

    def are_copies(self) -> bool:
        """Whether targets of rows with equal inputs are far more alike than what other rows tell of them."""
        return self.few and self.separate and (self.alike - self.others >= MUCH_MORE_ALIKE or self.same_number)


def _inputs(table: Table, rows: np.ndarray) -> np.ndarray:
    """(rows, d) numbers in standard units, 0 where missing; the usual categories as indicators."""
    found = []
    for j, column in enumerate(table.columns):
        cells = table.code(j)[rows]
        if column.dtype == object:
            values, counts = np.unique(cells, return_counts=True)
            usual = values[np.argsort(-counts, kind="stable")[:MOST_INDICATORS]]
            found.append((cells[:, None] == usual) / np.sqrt(2))  # two categories are one apart
            continue
        known = np.isfinite(cells)
        cells = cells / max(float(np.abs(cells[known]).max(initial=0.0)), 1e-300)  # large squares are infinite
        centre, scale = (cells[known].mean(), cells[known].std()) if known.any() else (0.0, 0.0)
        found.append(np.where(known, (np.where(known, cells, 0.0) - centre) / (scale or 1.0), 0.0)[:, None])
    return np.concatenate(found, axis=1)


def _explained_by_others(inputs: np.ndarray, values: np.ndarray) -> float:
    """The share of the targets' variance that a linear model explains in rows that it was not fitted to."""
    fitted = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    inverse = np.linalg.inv(fitted.T @ fitted + np.eye(fitted.shape[1]))
    leverage = np.einsum("ij,jk,ik->i", fitted, inverse, fitted)
    least = 0.1 if len(fitted) > 2 * fitted.shape[1] else 1e-6  # of many columns all rows have a high leverage
    rest = (values - fitted @ (inverse @ (fitted.T @ values))) / np.maximum(1 - leverage, least)[:, None]
    return 1 - float((rest**2).sum() / max(float(((values - values.mean(axis=0)) ** 2).sum()), 1e-300))


def _clusters(values: np.ndarray, tolerance: float) -> np.ndarray:
    """(n,) numbers of runs of values, in order, whose neighbours differ by no more than the tolerance.

    >>> _clusters(np.array([1.0, 5.0, 1.0001, 7.0]), 0.001).tolist()
    [0.0, 1.0, 0.0, 2.0]
    """
    different, place = np.unique(values, return_inverse=True)
    run = np.concatenate([[0], np.cumsum(np.diff(different) > tolerance)])
    return np.asarray(run[place.reshape(-1)], dtype=np.float64)


def hash_rows(columns: Iterable[np.ndarray]) -> np.ndarray:
    """(n,) a well-mixed number for each row of columns."""
    key: Any = np.uint64(0x9E3779B97F4A7C15)
    for column in columns:
        key = (key ^ (np.asarray(column, dtype=np.float64) + 0.0).view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        key = key ^ (key >> np.uint64(32))
    return np.asarray(key)


def runs_of(key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of their keys, where each key begins, and how many rows have it."""
    order = np.argsort(key, kind="stable")
    ranked = key[order]
    first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    return order, first, np.diff(np.append(first, len(key)))


def _pairs(counts: np.ndarray) -> np.ndarray:
    counts = counts.astype(np.float64)
    return counts * (counts - 1) / 2

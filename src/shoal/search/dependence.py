"""Rows that depend on each other, found before a search: repeated rows, ids that repeat, targets that follow a date.

A network that has seen one of two dependent rows knows the other one: scores on such rows say little about new ones.

Equal inputs alone prove nothing. In a table of a few categories, independent people often have the same cells. So the
targets decide. Rows with (nearly) equal inputs are copies if their targets are alike, and if either hardly any other
rows differ in one column only, so that the inputs are not equal by coincidence, or their targets are far more alike
than those of the nearest other inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from shoal.metrics.tasks import REGRESSION, Task
from shoal.tables.schema import Schema, named_like_identifier
from shoal.tables.table import Table

FEWEST_COPIED, COPIED_SHARE = 5, 0.01  # sets of copies; share of the rows that have a copy: fewer change no score
FEWEST_COMPARED, MOST_COPIES = (
    15,
    20,
)  # sets that are compared with the nearest other inputs; and rows of each, on average
FEWEST_SETS = 10  # of rows with different inputs, to be dealt into folds
ALIKE, MUCH_MORE_ALIKE = 0.6, 0.6  # 0: as alike as any two rows, 1: equal; and the lead over the nearest others
MOST_ASKED, MOST_OTHERS = 500, 5_000  # rows that are compared with their nearest neighbours
NEAR_MISSES = 0.5  # per pair with equal inputs: at most so many, where coincidence is improbable
NEAR = 0.002, 0.1, 1.0  # tolerance in (spread of a column / rows), with one column of fine numbers, two, and more
CLOSE_TARGET = 1e-3  # standard deviations between targets that are the same number
MOST_CELLS = 5_000_000  # of a table in which nearly equal numbers are looked for; in larger ones only equal ones
ENTITY_ROWS, FEWEST_ENTITIES = 10, 20  # an id has at most so many rows on average, and at least so many values
NAMED_ENTITIES = 10  # values that are enough for a column that is named like an id
REPEATING = 0.8  # share of rows whose id is there twice
SAME_ENTITY, NEXT_ENTITY = 0.5, 0.4  # how alike targets of one id are; and by how much more than those of the next one
FOLLOWS, FEWEST_MOMENTS = 0.5, 30
DIFFERENT_MOMENTS = 0.5  # share of rows with a time of their own, where only the name says that numbers are times
TIMES = {"date", "day", "time", "timestamp", "datetime", "week", "month", "hour", "minute", "second", "epoch", "step"}


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

    In one or two ways: by how many are the same; and, for numbers, by their distance.
    """

    def __init__(self, task: Task, target: np.ndarray) -> None:
        y = np.asarray(target, dtype=np.float64).reshape(len(target), -1)
        self.values: np.ndarray | None = None  # (n, n_outputs) with mean 0, variances sum to 1; of numbers
        if task.kind == REGRESSION:
            scale = y.std(axis=0)
            self.values = (y - y.mean(axis=0)) / np.where(scale > 0, scale, 1.0) / np.sqrt(y.shape[1])
            y = np.stack([_clusters(column, CLOSE_TARGET * column.std()) for column in y.T], axis=1)
        self.label = _hash(y.T)
        pairs = _pairs(np.array([len(y)])).sum()
        self.same_by_chance = float(_pairs(_runs(self.label)[2]).sum() / pairs)

    def within(self, key: np.ndarray) -> np.ndarray:
        """Of rows and others with the same key. Each row counts the same, however many have its key."""
        order, first, counts = _runs(key)
        several = counts > 1
        pairs, rows = _pairs(counts[several]), counts[several]
        place = np.repeat(np.arange(len(counts)), counts)
        inner = _runs(_hash([place.astype(np.float64)]) ^ self.label[order])
        same = np.bincount(place[inner[0][inner[1]]], _pairs(inner[2]), len(counts))[several]
        squares = np.zeros(len(rows))
        if self.values is not None:
            ranked = self.values[order]
            totals = np.add.reduceat(ranked, first, axis=0)
            squares = (counts * np.add.reduceat((ranked**2).sum(axis=1), first) - (totals**2).sum(axis=1))[several]
        share = rows / max(rows.sum(), 1)
        return self._scaled(float(share @ (same / pairs)), float(share @ (squares / pairs)))

    def between(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Of pairs of rows."""
        squares = (
            0.0 if self.values is None else float(((self.values[one] - self.values[other]) ** 2).sum(axis=1).mean())
        )
        return self._scaled(float((self.label[one] == self.label[other]).mean()), squares)

    def _scaled(self, same: float, squares: float) -> np.ndarray:
        found = [(same - self.same_by_chance) / max(1 - self.same_by_chance, 1e-12)]
        return np.array(found if self.values is None else [*found, 1 - squares / 2])


def repeated_rows(table: Table, task: Task, target: np.ndarray) -> tuple[np.ndarray, Note] | None:
    """The set of equal rows that each row belongs to, (n,) from 0, and what to say; None where none are copies."""
    columns = _Columns(table)
    total = columns.total()
    order, first, counts = _runs(total)
    repeated = counts > 1
    rows = int(counts[repeated].sum())
    if repeated.sum() < FEWEST_COPIED or rows < COPIED_SHARE * len(total) or len(counts) < FEWEST_SETS:
        return None
    alikeness = Alikeness(task, target)
    alike = alikeness.within(total)
    if alike.max() < ALIKE:
        return None
    if not columns.improbable(total, counts):
        if repeated.sum() < FEWEST_COMPARED or rows > MOST_COPIES * repeated.sum():
            return None
        lead = alike - alikeness.between(*_nearest_others(table, order[first], repeated))
        if not ((alike >= ALIKE) & (lead >= MUCH_MORE_ALIKE)).any():
            return None
    group = np.empty(len(total), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(counts)), counts)
    note = Note(
        f"{rows:,} of {len(total):,} rows repeat each other: they have only {int(repeated.sum()):,} different inputs, "
        "and their targets agree. Equal rows stay in one fold",
        "if they are independent of each other, pass group_repeats=False",
        "if they are independent of each other, pass --no-group-repeats",
    )
    return group, note


def notes_on_columns(table: Table, schema: Schema, task: Task, target: np.ndarray, given: Table) -> list[Note]:
    """An id that repeats, and a date that the target follows; `given` has the columns that the schema drops as well."""
    alikeness = Alikeness(task, target)
    return [*_entities(table, schema, alikeness), *_times(table, schema, alikeness, given)]


# ---- ids ----


def _entities(table: Table, schema: Schema, alikeness: Alikeness) -> Iterator[Note]:
    """The id with the most values whose rows have targets that are alike."""
    found = []
    for j, column in enumerate(schema.used):
        if column.kind not in ("number", "category", "text"):
            continue
        cells = table.code(j)
        if column.kind == "number" and not (cells == np.floor(cells)).all():
            continue
        counts = np.unique(cells, return_counts=True)[1]
        named = named_like_identifier(column.name)
        enough = NAMED_ENTITIES if named else max(FEWEST_ENTITIES, len(cells) / ENTITY_ROWS)
        if len(counts) < enough or counts[counts > 1].sum() < REPEATING * len(cells):
            continue
        alike = alikeness.within(_hash([cells]))
        lead = alike - (alikeness.between(*_next_values(cells)) if column.kind == "number" else 0.0)
        if ((alike >= SAME_ENTITY) & (lead >= NEXT_ENTITY)).any():
            found.append((len(counts), column.name))
    if found:
        count, name = max(found, key=lambda one: one[0])
        remedy = "if new rows come from new values of it, pass"
        yield Note(
            f"column {name!r} repeats: {len(table):,} rows have {count:,} values, and the target hardly differs among "
            "rows of one value",
            f"{remedy} groups={name!r}", f"{remedy} --groups {_quoted(name)}",
        )  # fmt: skip


# ---- dates ----


def _times(table: Table, schema: Schema, alikeness: Alikeness, given: Table) -> Iterator[Note]:
    """The first date whose neighbours have targets that are alike."""
    place = {column.name: j for j, column in enumerate(schema.used)}
    for column in schema.columns:
        if column.kind == "date":
            cells = table.code(place[column.name])
        elif column.kind in ("number", "identifier") and given[column.name].dtype == np.float64:
            cells = given[column.name]
            words = set(column.name.lower().replace("_", " ").replace("-", " ").split())
            if not words & TIMES or len(np.unique(cells)) < DIFFERENT_MOMENTS * len(cells):
                continue
        else:
            continue
        order = np.argsort(cells, kind="stable")
        alike = alikeness.between(order[:-1], order[1:])
        if len(np.unique(cells)) >= FEWEST_MOMENTS and alike.max() >= FOLLOWS:
            yield Note(
                f"the target follows column {column.name!r}: neighbours in it have nearly the same target, so the "
                "score holds between the dates of this table, and not after them",
                f"to be scored on later rows, pass time={column.name!r}",
                f"to be scored on later rows, pass --time {_quoted(column.name)}",
            )  # fmt: skip
            return


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)


# ---- pairs of rows ----


class _Columns:
    """A number for every cell of a table, the same for equal cells of a column, and for nearly equal numbers."""

    def __init__(self, table: Table) -> None:
        self.table = table
        small = len(table) * len(table.names) <= MOST_CELLS
        self.fine = [j for j, column in enumerate(table.columns) if small and _is_fine(column)]
        self.near = NEAR[min(max(len(self.fine), 1), len(NEAR)) - 1]

    def hashed(self, j: int) -> np.ndarray:
        codes = self.table.code(j)
        if j in self.fine:
            low, high = np.quantile(np.unique(codes[np.isfinite(codes)]), [0.25, 0.75])
            codes = _clusters(codes, self.near * (high - low) / len(codes))
        return _hash([codes, np.full(len(codes), float(j))])

    def total(self) -> np.ndarray:
        """(n,) the same for rows whose cells are all the same: a sum, from which columns can be taken out."""
        total = np.zeros(len(self.table), dtype=np.uint64)
        for j in range(len(self.table.names)):
            total += self.hashed(j)
        return total

    def improbable(self, total: np.ndarray, counts: np.ndarray) -> bool:
        """Whether rows with equal cells are no coincidence: hardly any pair of rows differs in one column only."""
        columns, equal = len(self.table.names), _pairs(counts).sum()
        missed = 0.0
        for j in range(columns):
            missed += float(_pairs(_runs(total - self.hashed(j))[2]).sum() - equal)
            if missed > NEAR_MISSES * equal:
                return False
        return columns > 1


def _is_fine(column: np.ndarray) -> bool:
    """Numbers of which most are different and not whole: two that are nearly equal may be one, measured or stored."""
    if column.dtype != np.float64:
        return False
    known = column[~np.isnan(column)]
    return len(known) > 1 and len(np.unique(known)) >= 0.5 * len(known) and not bool((known == np.floor(known)).all())


def _nearest_others(table: Table, different: np.ndarray, repeated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are repeated, and for each one the row that is nearest to it among those with other inputs.

    different  a row of each set of equal ones
    repeated   whether that set has several
    """
    random = np.random.default_rng(0)
    others = random.permutation(different)[:MOST_OTHERS]
    asked = random.permutation(different[repeated])[:MOST_ASKED]
    distance = 1e-6 * random.random((len(asked), len(others)))  # of equally near ones any is taken
    for j, column in enumerate(table.columns):
        cells = table.code(j)
        here, there = cells[asked][:, None], cells[others][None]
        if column.dtype == object:
            distance += here != there
            continue
        known = cells[np.isfinite(cells)]
        scale = float(known.std()) or 1.0
        with np.errstate(invalid="ignore"):  # both are missing
            apart = np.nan_to_num(np.abs(here - there) / scale, nan=0.0, posinf=1.0)
        distance += apart
    distance[asked[:, None] == others[None]] = np.inf
    return asked, others[distance.argmin(axis=1)]


def _next_values(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and for each the next one that has another value."""
    order = np.argsort(cells, kind="stable")
    ends = np.flatnonzero(cells[order[1:]] != cells[order[:-1]])
    return order[ends], order[ends + 1]


def _clusters(values: np.ndarray, tolerance: float) -> np.ndarray:
    """(n,) numbers of runs of values, in order, whose neighbours differ by no more than the tolerance.

    >>> _clusters(np.array([1.0, 5.0, 1.0001, 7.0]), 0.001).tolist()
    [0.0, 1.0, 0.0, 2.0]
    """
    different, place = np.unique(values, return_inverse=True)
    run = np.concatenate([[0], np.cumsum(np.diff(different) > tolerance)])
    return np.asarray(run[place.reshape(-1)], dtype=np.float64)


def _hash(columns: Iterable[np.ndarray]) -> np.ndarray:
    """(n,) a well-mixed number for each row of columns."""
    key = np.uint64(0x9E3779B97F4A7C15)
    for column in columns:
        key = (key ^ (np.asarray(column, dtype=np.float64) + 0.0).view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        key = key ^ (key >> np.uint64(32))
    return np.asarray(key)


def _runs(key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of their keys, where each key begins, and how many rows have it."""
    order = np.argsort(key, kind="stable")
    ranked = key[order]
    first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    return order, first, np.diff(np.append(first, len(key)))


def _pairs(counts: np.ndarray) -> np.ndarray:
    counts = counts.astype(np.float64)
    return counts * (counts - 1) / 2

"""Columns that make rows depend on each other: an id that repeats, and a date that the target follows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from shoal.metrics.tasks import Task
from shoal.search.problem.dependence import Alikeness, Note, hash_rows, runs_of
from shoal.tables.schema import Schema, named_like_identifier
from shoal.tables.table import Table

ENTITY_ROWS, FEWEST_ENTITIES = 10, 20  # an id has at most so many rows on average, and at least so many values
NAMED_ENTITIES = 10  # values that are enough for a column that is named like an id
REPEATING = 0.8  # share of rows whose id is there twice
SAME_ENTITY, NEXT_ENTITY = 0.5, 0.4  # how alike targets of one id are; and by how much more than those of the next one
FOLLOWS, FEWEST_MOMENTS = 0.5, 30  # how alike targets of neighbours are; and different times, at least
DIFFERENT_MOMENTS = 0.5  # share of rows with a time of their own, where numbers are times
EVEN, UNEVEN = 0.9, 4  # share of steps between numbers in their order that are so many times longer or shorter at most
DATES = {"date", "timestamp", "datetime", "epoch"}
TIMES = {"day", "time", "week", "month", "year", "hour", "minute", "second", "step"}  # or durations, if uneven


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
        alike = alikeness.within(hash_rows([cells]))
        next_one = alikeness.between(*_next_values(cells)) if column.kind == "number" else 0.0
        if alike >= SAME_ENTITY and alike - next_one >= NEXT_ENTITY:
            found.append((len(counts), column.name))
    if found:
        count, name = max(found, key=lambda one: one[0])
        remedy = "if new rows come from new values of it, pass"
        yield Note(
            f"column {name!r} repeats: {len(table):,} rows have {count:,} values, and the target barely differs among "
            "rows of one value",
            f"{remedy} groups={name!r}", f"{remedy} --groups {shlex.quote(name)}",
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
            if not _are_moments(column.name, cells):
                continue
        else:
            continue
        order = np.argsort(cells, kind="stable")
        alike = alikeness.between(order[:-1], order[1:]) if column.kind == "date" else alikeness.along(order)
        if len(np.unique(cells)) >= FEWEST_MOMENTS and alike >= FOLLOWS:
            yield Note(
                f"the target follows column {column.name!r}: neighbours in it have nearly the same target, so the "
                "score holds between the dates of this table, and not after them",
                f"to be scored on later rows, pass time={column.name!r}",
                f"to be scored on later rows, pass --time {shlex.quote(column.name)}",
            )  # fmt: skip
            return


def _are_moments(name: str, cells: np.ndarray) -> bool:
    """Whether numbers are times: rows are in their order, or they are named so, and they are nearly evenly spaced."""
    words = set(name.lower().replace("_", " ").replace("-", " ").split())
    if not np.isfinite(cells).all() or len(np.unique(cells)) < DIFFERENT_MOMENTS * len(cells):
        return False
    if words & DATES:
        return True
    in_order = bool((np.diff(cells) > 0).all() or (np.diff(cells) < 0).all()) and not named_like_identifier(name)
    month, day = cells // 100 % 100, cells % 100
    if ((cells >= 1800_00_00) & (cells < 2200_00_00) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all():
        cells = cells // 10_000 * 372 + month * 31 + day  # as in 20240131
    steps = np.diff(np.unique(cells))
    even = (np.abs(np.log(steps / np.median(steps))) <= np.log(UNEVEN)).mean() >= EVEN
    return bool(even and (in_order or words & TIMES))


def _next_values(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose value repeats, and for each a row of the next such value: rare values at the ends are unlike all."""
    order, _, counts = runs_of(cells)
    order, counts = order[np.repeat(counts > 1, counts)], counts[counts > 1]
    place = np.repeat(np.arange(len(counts)), counts)
    other = np.where(place + 1 < len(counts), place + 1, np.maximum(place - 1, 0))
    first = np.cumsum(counts) - counts
    return order, order[first[other] + np.random.default_rng(0).integers(counts[other])]

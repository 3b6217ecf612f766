"""Finds the columns that matter to the model of a search, in the time left (see `shoal.explain`).

Where a clock decides, what the networks take is measured first, and rows, rounds and columns are chosen by it. Without
one they are chosen by the number of products, so that the same search gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.explain.alike import alike_groups
from shoal.explain.effects import Dependence, Grid, make_grid
from shoal.explain.importance import CONFIDENCE, HeldOut, Shuffler
from shoal.explain.networks import FoldNetworks
from shoal.explain.results import Effect, Explanation, Importance, Importances, Pair
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import REGRESSION
from shoal.models.model import Model
from shoal.population.population import Population
from shoal.search.budget.clock import Clock
from shoal.search.problem.problem import Problem
from shoal.tables.table import Table

ASSUMED_SECONDS = 1.0  # where no clock decides: so much of an assumed machine's time
ASSUMED_SPEED = 1e10  # products a second
FIXED_PRODUCTS = 300.0  # of a network and row, however small it is
IMPORTANCE, LEAST_EFFECTS, LEAST_PAIRS = 0.55, 0.1, 0.05  # shares of the time
MOST_ROUNDS, FEWEST_ROUNDS, ROUNDS = 30, 2, 5  # of shuffling; the last: how many are worth fewer rows
USUAL_ROUNDS, USUAL_AVERAGED = 10, 50  # where no clock decides; rows averaged over, about
TIMED_ROWS = 2_048
CALL_SECONDS = 1e-4  # of the networks of a fold, however few rows there are
LEAST_SECONDS = 0.2  # where no time is left: better than knowing nothing
FEWEST_SHUFFLED_ROWS, MOST_SHUFFLED_ROWS = 200, 20_000
MOST_DROPS = 20_000_000  # columns times rows that are kept in memory
MOST_EFFECTS, VALUES = 6, 16  # columns whose effect is shown, and at how many values
PAIR_COLUMNS, PAIR_VALUES, PAIRS_SHOWN = 6, 7, 3
LEAST_EFFECT = 0.02  # of the largest importance, for a column's effect to be shown
LEAST_STRENGTH = 0.1  # of pairs that are shown
BACKGROUND, MOST_AVERAGED, FEWEST_AVERAGED = 100, 200, 10  # rows: kept for single explanations; averaged over
SMALL_FOLD = 5  # rows; smaller ones take cells from rows of other folds
PAIR_FOLDS = 4


@dataclass(frozen=True, eq=False)
class Subject:
    """What is explained: a model whose folds held out rows, and those rows."""

    model: Model
    problem: Problem
    table: Table  # as given, in the columns of the model
    metric: Metric
    names: Sequence[str] | None = None  # of the outputs
    unit: np.ndarray | None = None  # of each distinct row, where some belong together
    threads: int | None = None
    seed: int = 0

    def encoded(self, fold: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: self.problem.inputs[name][rows + fold * self.problem.n] for name in self.model.networks}


@dataclass(frozen=True, eq=False)
class Time:
    """Seconds that an explanation may take; None: no clock decides."""

    seconds: float | None
    clock: Clock

    def until(self, share: float, begun: float) -> Callable[[], bool]:
        """Whether this share of the time is over."""
        hurried = self.clock.hurried
        if self.seconds is None:
            return lambda: self.clock.hurried and not hurried
        end = begun + share * self.seconds
        return lambda: self.clock.now() >= end or (self.clock.hurried and not hurried)


def explain_search(subject: Subject, time: Time) -> Explanation | None:
    """Importance, effects and pairs. None: no time even for the least, or no finite scores."""
    begun = time.clock.now()
    pace = _pace(subject, time)
    seconds = ASSUMED_SECONDS if time.seconds is None else time.seconds
    importance = _importance(subject, time, pace, seconds, begun)
    if importance is None:
        return None
    grids, few = (_grids(subject, importance, values) for values in (VALUES, PAIR_VALUES))

    def copies(share: float, least: float) -> float:
        """Rows that can be predicted in a share of the time left, or in the least share of all time."""
        left = seconds * (1 - IMPORTANCE) if time.seconds is None else seconds - (time.clock.now() - begun)
        return max(share * left, least * seconds) / pace

    effects = _effects(subject, grids, copies(0.5, LEAST_EFFECTS)) if grids else []
    pairs = _pairs(subject, few[:PAIR_COLUMNS], copies(0.5, LEAST_PAIRS)) if len(few) > 1 else []
    return Explanation(importance, tuple(effects), tuple(pairs))


def useful_seconds(problem: Problem, pace: float) -> float:
    """About what an explanation takes that is as good as one without a clock; with less it has fewer rounds and rows.

    pace  seconds that the networks of one fold take for a row
    """
    columns, folds = len(problem.schema.used), len(problem.folds)
    entries = min(sum(len(split.valid) for split in problem.splits), MOST_SHUFFLED_ROWS)
    settings = MOST_EFFECTS * VALUES * folds + PAIR_COLUMNS * (PAIR_COLUMNS - 1) // 2 * PAIR_VALUES**2 * PAIR_FOLDS
    copies = USUAL_ROUNDS * columns * entries + settings * min(USUAL_AVERAGED, problem.n)
    return LEAST_SECONDS + copies * pace + USUAL_ROUNDS * columns * folds * CALL_SECONDS


def background_rows(table: Table, weight: np.ndarray, seed: int) -> Table:
    """Rows that single rows are compared with."""
    there = np.flatnonzero(weight > 0)
    chosen = np.random.default_rng(seed).choice(there, min(BACKGROUND, len(there)), replace=False)
    return table.take(np.sort(chosen))


def _pace(subject: Subject, time: Time) -> float:
    """Seconds that the networks of one fold take for a row."""
    model = subject.model
    products = model.parameters / len(model.folds) + FIXED_PRODUCTS * len(model.parts)
    if time.seconds is None:
        return products / ASSUMED_SPEED
    rows = np.flatnonzero(subject.problem.folds[0].valid > 0)
    networks = FoldNetworks(model, 0, subject.threads)
    networks.predict(subject.encoded(0, rows[:1]))  # the first call takes longer
    inputs = subject.encoded(0, np.resize(rows, TIMED_ROWS))
    begun = time.clock.now()
    networks.predict(inputs)
    return max((time.clock.now() - begun) / TIMED_ROWS, 1e-9)


# ---- importance ----


def _importance(subject: Subject, time: Time, pace: float, seconds: float, begun: float) -> Importances | None:
    columns = len(subject.model.schema.used)
    entries = sum(len(split.valid) for split in subject.problem.splits)
    copies = max(IMPORTANCE * seconds, LEAST_SECONDS) / pace  # of rows, that can be predicted
    wanted = copies / (ROUNDS * columns)
    rows = int(
        min(
            max(wanted, FEWEST_SHUFFLED_ROWS),
            entries,
            MOST_SHUFFLED_ROWS,
            max(MOST_DROPS / columns, FEWEST_SHUFFLED_ROWS),
        )
    )
    kept = _columns_in_time(subject, int(copies / (FEWEST_ROUNDS * rows)))
    if not kept:
        return None
    shuffler = Shuffler(
        subject.model, _held_out(subject, rows / entries), subject.problem.y, subject.metric, subject.threads
    )
    alike = alike_groups(subject.table.select(kept))
    groups = [(column,) for column in kept] + [tuple(kept[place] for place in group) for group in alike]
    rounds = MOST_ROUNDS
    if time.seconds is None:
        rounds = int(np.clip(copies / (len(groups) * len(shuffler.rows)), FEWEST_ROUNDS, USUAL_ROUNDS))
    random = np.random.default_rng(subject.seed)
    with np.errstate(invalid="ignore"):  # scores that some predictions do not have
        drops = shuffler.drops(groups, rounds, random, time.until(IMPORTANCE, begun))
    if not np.isfinite(drops.values).all():
        return None
    names = [column.name for column in subject.model.schema.used]
    found = shuffler.intervals(drops.values, subject.unit)
    single = [Importance((names[group[0]],), *map(float, row)) for group, row in zip(groups, found, strict=False)]
    together = []
    for place, group in enumerate(alike, len(kept)):
        excess = shuffler.intervals(drops.values[place : place + 1] - drops.values[group].sum(axis=0), subject.unit)[0]
        if excess[1] > 0 and found[place, 1] > 0:
            mine = sorted(group, key=lambda member: -found[member, 0])
            together.append(Importance(tuple(names[kept[member]] for member in mine), *map(float, found[place])))
    return Importances(
        subject.metric.name, CONFIDENCE,
        tuple(sorted(single[: len(kept)], key=lambda one: -one.importance)),
        tuple(sorted(together, key=lambda one: -one.importance)), drops.rounds, len(np.unique(shuffler.rows)),
        tuple(name for j, name in enumerate(names) if j not in set(kept)),
    )  # fmt: skip


def _columns_in_time(subject: Subject, most: int) -> list[int]:
    """The columns to look at: all, or those to which the first layers give the largest weights."""
    count = len(subject.model.schema.used)
    if most >= count:
        return list(range(count))
    if most < 2:
        return []
    model, size = subject.model, np.zeros(count + 1)
    owner = FoldNetworks(model, 0).owners()
    spread = {name: matrix[: subject.problem.n].std(axis=0) for name, matrix in subject.problem.inputs.items()}
    for encoding, population in model.networks.items():
        assert isinstance(population, Population)  # as every model of a search has
        weights = [part.weight for part in model.parts if part.encoding == encoding]
        for place, weight in enumerate(weights):
            first, _ = population.weights(place * len(model.folds))[0]
            np.add.at(size, owner[encoding], weight * np.abs(first).sum(axis=1) * spread[encoding])
    return sorted(np.argsort(-size[:count], kind="stable")[:most].tolist())


def _held_out(subject: Subject, share: float) -> list[HeldOut]:
    """What each fold held out, or an even share of it."""
    problem, found = subject.problem, []
    for fold, weights in enumerate(problem.folds):
        rows = np.flatnonzero(weights.valid > 0)
        if share < 1:
            count = int(np.clip(round(share * len(rows)), min(SMALL_FOLD, len(rows)), len(rows)))
            rows = rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]
        donors = None
        if len(rows) < SMALL_FOLD:
            donors = subject.encoded(fold, np.arange(problem.n))
        found.append(HeldOut(fold, rows, weights.valid[rows], subject.encoded(fold, rows), donors))
    weight = np.concatenate([one.weight for one in found])
    y = problem.y[np.concatenate([one.rows for one in found])]
    if share < 1 and not subject.metric.defined(problem.task, y, weight):
        return _held_out(subject, 1.0)
    return found


# ---- effects ----


def _grids(subject: Subject, importance: Importances, values: int) -> list[Grid]:
    """Of the columns that matter most."""
    names = [column.name for column in subject.model.schema.used]
    least = LEAST_EFFECT * max((one.importance for one in importance.columns), default=0.0)
    strongest = [one for one in importance.columns if one.matters and one.importance >= least]
    chosen = [one.columns[0] for one in strongest]
    chosen += [group.columns[0] for group in importance.groups if group.columns[0] not in chosen]
    found: list[Grid] = []
    for name in chosen:
        place = names.index(name)
        grid = make_grid(subject.table, place, subject.model.schema.used[place].kind, values)
        found += [] if grid is None else [grid]
        if len(found) == MOST_EFFECTS:
            break
    return found


def _dependence(subject: Subject, grids: Sequence[Grid], rows: float) -> Dependence:
    problem, random = subject.problem, np.random.default_rng(subject.seed)
    count = int(np.clip(rows, FEWEST_AVERAGED, min(MOST_AVERAGED, problem.n))) if problem.n > 10 else problem.n
    share = problem.valid_weight / problem.valid_weight.sum()
    chosen = np.sort(random.choice(problem.n, min(count, int((share > 0).sum())), replace=False, p=share))
    return Dependence(subject.model, grids, subject.table, lambda fold: subject.encoded(fold, chosen), subject.threads)


def _effects(subject: Subject, grids: list[Grid], copies: float) -> list[Effect]:
    """In as many folds as there is time for, and of fewer columns where one is too many."""
    sizes = [len(grid.cells) for grid in grids]
    while len(grids) > 1 and copies < FEWEST_AVERAGED * sum(sizes):
        grids, sizes = grids[:-1], sizes[:-1]
    folds = _some_folds(subject, copies / (FEWEST_AVERAGED * sum(sizes)))
    return _dependence(subject, grids, copies / (len(folds) * sum(sizes))).curves(subject.names, folds)


def _pairs(subject: Subject, grids: list[Grid], copies: float) -> list[Pair]:
    def settings() -> int:
        sizes = [len(grid.cells) for grid in grids]
        return sum(a * b for k, a in enumerate(sizes) for b in sizes[k + 1 :])

    while len(grids) > 2 and copies < FEWEST_AVERAGED * settings():
        grids = grids[:-1]
    folds = _some_folds(subject, min(copies / (FEWEST_AVERAGED * settings()), PAIR_FOLDS))
    found = _dependence(subject, grids, copies / (len(folds) * settings())).pairs(subject.names, folds)
    return [pair for pair in found if pair.strength >= LEAST_STRENGTH][:PAIRS_SHOWN]


def _some_folds(subject: Subject, most: float) -> list[int]:
    count = len(subject.model.folds)
    return sorted(set(np.linspace(0, count - 1, int(np.clip(most, 1, count))).astype(int).tolist()))


def output_names(model: Model, classes: np.ndarray | None) -> list[str] | None:
    """Classes, or several numbers, by name; None for one number."""
    if classes is not None:
        return [str(name) for name in classes]
    count = model.task.n_outputs
    assert model.task.kind == REGRESSION
    return None if count == 1 else [f"number {k + 1}" for k in range(count)]

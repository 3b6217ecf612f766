"""What explanations take, and whether they are right: noise covers zero, and the order of columns is right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS, COLUMNS, SEEDS = 1_000, 30, 40
FIRST = 100  # of the seeds: by tables of the first twenty (from 0) the correction of intervals was found
REAL, NOISE = 3, 5  # columns of the tables that the intervals are tried on
SECONDS, COVERED = 5.0, 0.95
EXPLAINED = (1, 10, 100)  # rows
QUICK_SPACE = {"hidden": [(16,)], "encoding": ["plain"], "epochs": [30], "learning_rate": [0.01, 0.02]}


@benchmark(quick={"budget": 4.0, "seeds": 5})
def explain(*, rows: int = ROWS, columns: int = COLUMNS, budget: float = 15.0, seeds: int = SEEDS) -> Result:
    """Which columns matter: the time that it takes, and whether columns of noise are told from others.

    rows: Rows of the table that is explained.
    columns: Its columns.
    budget: Seconds of the search whose model is explained.
    seeds: Tables with columns of noise.
    """
    with progress_bar("explain", seeds + 2) as tick:
        timed = measure_time(rows, columns, budget, tick)
        right = measure_noise(seeds, tick)
    data = {"time": timed, "noise": right}
    return Result(
        title="Which columns matter: time, and noise as a control", data=data, tables=tables(data),
        targets=targets(rows, columns, seeds, data), notes=notes(budget, data), draw=lambda: draw(data),
    )  # fmt: skip


def generated(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three columns that count 2 : 1 : 0.5; the others are noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns))
    return X, 2 * X[:, 0] + X[:, 1] + 0.5 * X[:, 2] + 0.5 * random.normal(size=rows)


def measure_time(rows: int, columns: int, budget: float, tick: Tick) -> dict[str, Any]:
    """Seconds of importance, effects and pairs on all rows, in five rounds; and of explaining single rows."""
    import shoal
    from shoal.search.budget.clock import Clock
    from shoal.search.results.explaining import Subject, Time, explain_search

    tick("search")
    X, y = generated(rows, columns, 0)
    model = shoal.ShoalRegressor(budget=budget).fit(X, y)
    result = model.result_
    tick("explaining")
    subject = Subject(model.model_, result.problem, result.table, result.search.metric)
    begun = time.perf_counter()
    found = explain_search(subject, Time(0.9 * SECONDS, Clock()))
    seconds = time.perf_counter() - begun
    assert found is not None
    single = {}
    for count in EXPLAINED:
        begun = time.perf_counter()
        why = model.explain(X[:count])
        single[count] = time.perf_counter() - begun
    error = float(np.median(why.error) / np.std(y))
    return {
        "seconds": seconds, "rounds": found.importance.rounds, "rows": found.importance.rows,
        "networks": len(model.model_), "parameters": model.model_.parameters, "single": single, "error": error,
    }  # fmt: skip


def measure_noise(seeds: int, tick: Tick) -> dict[str, Any]:
    """How many intervals of columns of noise cover zero, and how often the order is right."""
    import shoal

    covered, ordered = [], []
    for seed in range(FIRST, FIRST + seeds):
        tick("noise")
        X, y = generated(200, REAL + NOISE, seed)
        found = shoal.ShoalRegressor(QUICK_SPACE, recipes=2, seeds=1, random_state=seed).fit(X, y).importance_
        ordered.append([one.name for one in found][:REAL] == [f"x{k}" for k in range(REAL)])
        covered += [found[f"x{k}"].low <= 0 <= found[f"x{k}"].high for k in range(REAL, REAL + NOISE)]
    return {
        "covered": int(sum(covered)),
        "intervals": len(covered),
        "ordered": int(sum(ordered)),
        "tables": len(ordered),
    }


def targets(rows: int, columns: int, seeds: int, data: dict[str, Any]) -> list[Target]:
    right, full = data["noise"], rows >= ROWS and columns >= COLUMNS
    share = right["covered"] / right["intervals"]
    order = right["ordered"] / right["tables"]
    complete = seeds >= SEEDS
    return [
        Target(f"{ROWS:,} rows x {COLUMNS} columns", data["time"]["seconds"], SECONDS, at_least=False, unit=" s",
               complete=full),
        Target("intervals of noise that cover zero", share, COVERED, at_least=True, complete=complete),
        Target("tables with the right order", order, 1.0, at_least=True, complete=complete),
    ]  # fmt: skip


def tables(data: dict[str, Any]) -> list[ResultTable]:
    timed, right = data["time"], data["noise"]
    rows = [[f"importance ({timed['rounds']} rounds, {timed['rows']:,} rows), effects, pairs",
             significant(timed["seconds"])]]  # fmt: skip
    rows += [
        [f"why: {count} row{'s' * (count > 1)}", significant(seconds)] for count, seconds in timed["single"].items()
    ]
    control = [["intervals of columns of noise that cover zero", f"{right['covered']} of {right['intervals']}"],
               ["tables with the columns in the right order", f"{right['ordered']} of {right['tables']}"]]  # fmt: skip
    return [
        ResultTable("Seconds", ["what", "seconds"], rows),
        ResultTable("200 rows: 3 columns that count 2 : 1 : 0.5, and 5 of noise", ["what", "how many"], control),
    ]  # fmt: skip


def notes(budget: float, data: dict[str, Any]) -> list[str]:
    timed = data["time"]
    return [
        f"The model is of a search of {budget:g} s: {timed['networks']:,} networks, {timed['parameters']:,} "
        "parameters in all. A clock ends importance, effects and pairs: what varies is the number of rounds.",
        f"Single rows have 64 samples each; the median standard error is {timed['error']:.3f} of the target's spread.",
    ]


def draw(data: dict[str, Any]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.4)
    single = data["time"]["single"]
    bars = {"importance, effects, pairs": data["time"]["seconds"]}
    bars |= {f"why: {count} rows": seconds for count, seconds in single.items()}
    shown = axis.barh(list(bars)[::-1], list(bars.values())[::-1], color=COLORS["native"], height=0.5)
    axis.bar_label(shown, fmt="%.2f s", padding=3)
    axis.set(xlabel="seconds", xlim=(0, 1.2 * max(bars.values())))
    return figure

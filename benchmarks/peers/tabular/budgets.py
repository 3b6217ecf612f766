"""Does more time buy a better model? The loss of each contender against the seconds it is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.plots import COLORS, grid_of_axes, plain_ticks
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable
from benchmarks.harness.verdict import Target
from benchmarks.peers.tabular import data as tabular_data
from benchmarks.peers.tabular.contenders import OURS
from benchmarks.peers.tabular.environments import find_environments
from benchmarks.peers.tabular.runs import Run, check_again
from benchmarks.peers.tabular.standing import SMALLEST_LOSS, Standing
from shoal.datasets import find

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORT, LONG = 30.0, 120.0
BETTER = 0.7  # of the tables are to have a lower loss after the long time

Curves = dict[str, np.ndarray]  # contender -> (budgets, tables) losses, means over splits


@benchmark(name="tabular-budgets", quick={"only": ("car", "autompg"), "budgets": (3.0, 6.0), "splits": 1})
def tabular_budgets(
    *,
    tables: Path | None = None,
    budgets: tuple[float, ...] = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
    splits: int = 2,
    contenders: tuple[str, ...] = (OURS,),
    only: tuple[str, ...] = (),
    held_out: bool = False,
    again: tuple[str, ...] = (),
    out: Path,
) -> Result:
    """Real tables: Shoal's loss against the seconds it is given. Shares its fits with `tabular`.

    tables: Folder of tables; none: SHOAL_DATA/tables.
    budgets: Seconds for each fit.
    splits: Splits of each table.
    contenders: As of `tabular`.
    only: Names of tables.
    held_out: Only the tables that no choice may look at, instead of the others.
    again: Contenders to measure again, or `failed` for what failed.
    """
    check_again(again)
    folder, budgets = tables or find("tables"), tuple(sorted(budgets))
    names = tabular_data.names(folder, only, held_out)
    environments = find_environments(contenders)
    run = Run(environments, splits, out)
    entries = run.measure("tabular-budgets", [tabular_data.load(folder, name) for name in names], budgets, again)
    curves = curves_of(names, list(environments.present), budgets, entries)
    data = {"tables": names, "budgets": budgets, "fits": entries, "packages": environments.packages()}
    data["curves"] = {name: relative(curve).tolist() for name, curve in curves.items()}
    complete = not only and splits >= 2
    return Result(
        title="Loss against seconds", data=data, tables=result_tables(names, budgets, curves),
        targets=targets(budgets, curves, complete), notes=run.notes(entries), draw=lambda: draw(budgets, curves),
    )  # fmt: skip


def curves_of(
    tables: Sequence[str], contenders: Sequence[str], budgets: Sequence[float], entries: Sequence[dict[str, Any]]
) -> Curves:
    standings = [
        Standing.of(tables, contenders, [entry for entry in entries if entry["seconds"] == seconds])
        for seconds in budgets
    ]
    return {
        name: np.maximum([standing.values["loss"][:, k] for standing in standings], SMALLEST_LOSS)
        for k, name in enumerate(contenders)
    }


def relative(curve: np.ndarray) -> np.ndarray:
    """(budgets,) geometric mean over tables of the loss over that of the shortest budget.

    >>> relative(np.array([[0.4, 1.0], [0.2, 0.5]])).tolist()
    [1.0, 0.5]
    """
    return np.asarray(np.exp(np.log(curve / curve[0]).mean(axis=1)))


def targets(budgets: Sequence[float], curves: Curves, complete: bool) -> list[Target]:
    better = rises = None
    if OURS in curves:
        ours = curves[OURS]
        rises = float((np.diff(relative(ours)) >= 0).sum())
        if SHORT in budgets and LONG in budgets:
            better = float((ours[budgets.index(LONG)] < ours[budgets.index(SHORT)]).mean())
    return [
        Target(
            f"share of tables with a lower loss at {LONG:g} s than at {SHORT:g} s", better, BETTER, complete=complete
        ),
        Target("steps at which the mean loss does not fall", rises, 1.0, at_least=False, complete=complete),
    ]


def result_tables(tables: Sequence[str], budgets: Sequence[float], curves: Curves) -> list[ResultTable]:
    header = [f"{seconds:g} s" for seconds in budgets]
    means = [[name, *(f"{value:.4f}" for value in relative(curve))] for name, curve in curves.items()]
    made = [ResultTable("Loss over that of the shortest budget (geometric mean)", ["contender", *header], means)]
    for name, curve in curves.items():
        rows = [[table, *(f"{value:.4f}" for value in curve[:, k])] for k, table in enumerate(tables)]
        made.append(ResultTable(f"Loss of {name} (mean over splits)", ["table", *header], rows))
    return made


def draw(budgets: Sequence[float], curves: Curves) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.0)
    for name, curve in curves.items():
        color = COLORS["native"] if name == OURS else None
        axis.plot(budgets, relative(curve), marker="o", color=color, label=name)
    axis.set(xscale="log", xlabel="seconds", ylabel="loss over that of the shortest budget")
    plain_ticks(axis, budgets)
    axis.legend(frameon=False)
    return figure

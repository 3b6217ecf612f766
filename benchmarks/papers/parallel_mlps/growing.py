"""Networks grown stage by stage beside a search that is given the same time."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.tools.tables import TABLES, Case, load, loss, mean_ranks
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.papers.parallel_mlps.grown import grow
from shoal.search.estimators import ShoalClassifier, ShoalRegressor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("grow", "one stage", "search")
TITLES = {"grow": "grown", "one stage": "its first stage alone", "search": "search, same time"}


@benchmark(name="tools-growing", quick={"tables": ("penguins", "autompg"), "seeds": 1})
def tools_growing(*, tables: tuple[str, ...] = TABLES, seeds: int = 2) -> Result:
    """Networks grown stage by stage beside a search that is given the same time.

    tables: Names of tables.
    seeds: Other splits of the rows, other networks.
    """
    found = []
    with progress_bar("growing", len(tables) * seeds) as tick:
        for seed in range(seeds):
            for case in load(tables, seed):
                tick(case.name)
                found.append(measure(case, seed))
    data = {"fits": found, "mean_ranks": ranks(found)}
    return Result(
        title="Networks grown stage by stage", data=data, tables=result_tables(data), notes=notes(),
        draw=lambda: draw(found),
    )  # fmt: skip


def measure(case: Case, seed: int) -> dict[str, Any]:
    begun = time.perf_counter()
    grown = grow(case.X, case.y, task=case.task, random_state=seed)
    seconds = time.perf_counter() - begun
    single = grow(case.X, case.y, task=case.task, random_state=seed, max_stages=1)
    search = (ShoalClassifier if case.classes else ShoalRegressor)(budget=max(seconds, 1.0), random_state=seed)
    with warnings.catch_warnings():  # of what a short budget leaves out
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        search.fit(case.X, case.y)
    models = {"grow": grown, "one stage": single, "search": search}
    return {
        "name": case.name, "seed": seed, "rows": len(case.y), "stages": grown.n_stages_, "history": grown.history_,
        "networks": grown.n_networks_, "seconds": seconds, "search_seconds": time.perf_counter() - begun,
        "losses": {name: loss(model, case.X_new, case) for name, model in models.items()},
    }  # fmt: skip


def ranks(found: list[dict[str, Any]]) -> dict[str, float]:
    means = mean_ranks([[one["losses"][name] for name in NAMES] for one in found])
    return dict(zip(NAMES, means, strict=True))


def result_tables(data: dict[str, Any]) -> list[ResultTable]:
    rows = []
    for one in data["fits"]:
        kept = [record for record in one["history"] if record["kept"]]
        shape = " - ".join("x".join(map(str, record["hidden"])) for record in kept)
        rows.append([
            one["name"], str(one["seed"]), f"{one['stages']} ({shape})", *(f"{one['losses'][n]:.4f}" for n in NAMES),
            f"{one['networks']:,}", significant(one["seconds"]), significant(one["search_seconds"]),
        ])  # fmt: skip
    rows.append(["mean rank", "", "", *(f"{data['mean_ranks'][name]:.2f}" for name in NAMES), "", "", ""])
    header = ["table", "seed", "stages", *(TITLES[n] for n in NAMES), "networks", "seconds", "search's seconds"]
    return [ResultTable("Log-loss, or 1 - R2, on new rows", header, rows)]


def notes() -> list[str]:
    return [
        "70% of the rows are fitted, the others scored. The search is given the seconds that growing took, at least "
        "one; it gives an ensemble back, growing one network.",
        "stages: how many were kept, with their neurons; one more was tried and did not help.",
    ]


def draw(found: list[dict[str, Any]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=8.0, height=3.6)
    at = np.arange(len(found))
    for place, (name, color) in enumerate(zip(NAMES, (COLORS["native"], COLORS["grouped"], "0.65"), strict=True)):
        relative = [one["losses"][name] / one["losses"]["search"] for one in found]
        axis.bar(at + 0.28 * (place - 1), relative, 0.27, color=color, label=TITLES[name])
    axis.set(ylabel="loss on new rows, search = 1")
    axis.set_xticks(at, [f"{one['name']} {one['seed']}" for one in found], rotation=45, ha="right", fontsize=8)
    axis.legend(frameon=False, fontsize=8)
    return figure

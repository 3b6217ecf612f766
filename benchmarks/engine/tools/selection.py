"""Does the selector find columns, and leave noise? Real tables with as many columns of noise beside their own."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.tools.tables import Case, load, loss
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.papers.parallel_mlps.random_networks import correlation
from shoal.tools.forest import ShoalForestClassifier, ShoalForestRegressor
from shoal.tools.selection import FeatureSelector

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.05
CONTROL_ROWS, CONTROL_COLUMNS = 100, 8
WAYS = ("own", "all", "selected")


@benchmark(name="tools-selection", quick={"tables": ("penguins", "autompg"), "networks": 50, "controls": 5})
def tools_selection(
    *,
    tables: tuple[str, ...] = ("penguins", "vehicle", "heart-disease", "cmc", "concrete", "autompg", "cps1985"),
    networks: int = 300,
    controls: int = 100,
) -> Result:
    """Does the selector find columns, and leave noise? Real tables with as many columns of noise beside their own.

    tables: Names of tables.
    networks: Networks of the forests that judge a selection.
    controls: Tables of pure noise.
    """
    found = []
    with progress_bar("selection", len(tables) + 1) as tick:
        for case in load(tables):
            tick(case.name)
            found.append(measure(case, networks))
        tick("tables of noise")
        control = noise(controls)
    whole = tools_selection.is_whole(tables=tables, networks=networks, controls=controls)
    data = {"tables": found, "control": control}
    return Result(
        title="Which columns are worth having", data=data, tables=result_tables(data), targets=targets(data, whole),
        notes=notes(networks, controls), draw=lambda: draw(found),
    )  # fmt: skip


def measure(case: Case, networks: int) -> dict[str, Any]:
    """Select among the columns and shuffled copies of them; forests say what that was worth."""
    random, own = np.random.default_rng(0), list(case.X)
    wide, wide_new = case.X.copy(), case.X_new.copy()
    for name in own:
        wide[f"noise {name}"] = random.permutation(case.X[name].to_numpy())
        wide_new[f"noise {name}"] = random.permutation(case.X_new[name].to_numpy())
    begun = time.perf_counter()
    selector = FeatureSelector(level=LEVEL, task=case.task).fit(wide, case.y)
    seconds = time.perf_counter() - begun
    support = selector.get_support()
    columns = {
        "own": own,
        "all": list(wide),
        "selected": [name for name, kept in zip(wide, support, strict=True) if kept],
    }
    losses = {}
    for way, names in columns.items():
        kind = ShoalForestClassifier if case.classes else ShoalForestRegressor
        forest = kind(networks, oob_score=False)
        losses[way] = np.nan
        if names:
            losses[way] = loss(forest.fit(wide[names], case.y), wide_new[names], case)
        if way == "own":
            shuffled = permutation(forest, case)
    ranked = correlation(selector.importances_[: len(own)], shuffled)
    return {
        "name": case.name, "rows": len(case.y), "columns": len(own), "selected": int(support[: len(own)].sum()),
        "noise_selected": int(support[len(own) :].sum()), "networks": selector.n_networks_, "masks": selector.n_masks_,
        "stopped": selector.stopped_, "seconds": seconds, "losses": losses, "rank_correlation": ranked,
        "importances": dict(zip(own, selector.importances_.tolist(), strict=False)),
        "intervals": selector.intervals_.tolist(), "permutation_importances": shuffled.tolist(),
    }  # fmt: skip


def permutation(forest: Any, case: Case) -> np.ndarray:
    """How much the loss on new rows grows when one column of them is shuffled."""
    random, before = np.random.default_rng(1), loss(forest, case.X_new, case)
    found = []
    for name in case.X_new:
        grown = []
        for _ in range(3):
            changed = case.X_new.copy()
            changed[name] = random.permutation(changed[name].to_numpy())
            grown.append(loss(forest, changed, case) - before)
        found.append(np.mean(grown))
    return np.array(found)


def noise(controls: int) -> dict[str, Any]:
    """Columns that are selected where neither they nor any other has to do with the target."""
    selected = 0
    for seed in range(controls):
        random = np.random.default_rng(seed)
        X, y = random.normal(size=(CONTROL_ROWS, CONTROL_COLUMNS)), random.integers(2, size=CONTROL_ROWS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            selected += int(FeatureSelector(level=LEVEL, random_state=seed, epochs=10).fit(X, y).support_.sum())
    count = controls * CONTROL_COLUMNS
    return {"columns": count, "selected": selected, "share": selected / count}


def targets(data: dict[str, Any], whole: bool) -> list[Target]:
    beside = sum(one["noise_selected"] for one in data["tables"]) / sum(one["columns"] for one in data["tables"])
    return [
        Target("share of noise selected beside real columns", beside, LEVEL, at_least=False, complete=whole),
        Target(
            "share of noise selected in pure noise", data["control"]["share"], LEVEL, at_least=False, complete=whole
        ),
    ]


def result_tables(data: dict[str, Any]) -> list[ResultTable]:
    rows = []
    for one in data["tables"]:
        value, low, high = one["rank_correlation"]
        rows.append([
            one["name"], f"{one['selected']} of {one['columns']}", f"{one['noise_selected']} of {one['columns']}",
            *(f"{one['losses'][way]:.4f}" for way in WAYS), f"{value:.2f} ({low:.2f} to {high:.2f})",
            f"{one['networks']:,}", significant(one["seconds"]),
        ])  # fmt: skip
    header = [
        "table", "own columns selected", "noise selected", "loss: own columns", "own and noise", "selected",
        "rank correlation with permutation importance", "networks", "seconds",
    ]  # fmt: skip
    control = data["control"]
    pure = [[str(control["columns"]), str(control["selected"]), f"{control['share']:.2%}"]]
    return [
        ResultTable("Real tables with a shuffled copy of every column", header, rows),
        ResultTable(f"Pure noise, level {LEVEL:.0%}", ["columns", "selected", "share"], pure),
    ]


def notes(networks: int, controls: int) -> list[str]:
    return [
        f"Losses are log-loss, or 1 - R2, on 30% of the rows, of a ShoalForest of {networks} networks on the "
        "columns named. A shuffled copy of a column is a column of noise that looks like it.",
        "Permutation importance: growth of that forest's loss on new rows when a column is shuffled, mean of three.",
        f"Pure noise: {controls} tables of {CONTROL_ROWS} rows and {CONTROL_COLUMNS} columns, ten epochs.",
    ]


def draw(found: list[dict[str, Any]]) -> Figure:
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.0, height=3.6)
    at = np.arange(len(found))
    for place, (way, color) in enumerate(zip(WAYS, ("0.65", COLORS["vmap"], COLORS["native"]), strict=True)):
        relative = [one["losses"][way] / one["losses"]["own"] for one in found]
        left.bar(at + 0.28 * (place - 1), relative, 0.27, color=color, label=way)
    left.set(ylabel="loss on new rows, own columns = 1")
    left.legend(frameon=False, fontsize=8)
    right.bar(at - 0.2, [one["selected"] / one["columns"] for one in found], 0.38, color=COLORS["native"], label="own")
    right.bar(at + 0.2, [one["noise_selected"] / one["columns"] for one in found], 0.38, color="0.5", label="noise")
    right.set(ylabel="share selected")
    right.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.set_xticks(at, [one["name"] for one in found], rotation=45, ha="right", fontsize=8)
    return figure

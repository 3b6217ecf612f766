"""What a compact model costs on rows set aside, beside the whole ensemble and beside one distilled network."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.datasets import find
from shoal.encoders.encoder import Encoder
from shoal.metrics.tasks import REGRESSION
from shoal.models.compact import compact_model
from shoal.population.population import Population
from shoal.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = (
    "autompg", "carseats", "cmc", "concrete", "contraception", "credit-data", "dermatology", "heart-statlog",
    "orange-juice", "penguins", "segment", "spam7", "vehicle", "wage",
)  # fmt: skip
HELD_OUT = 0.25
WAYS = ("whole", "compact", "distilled from out-of-fold", "distilled from the average")
SMALLEST = 1e-4  # probability that a distilled network is taught


@benchmark(needs=("pandas",), quick={"tables": ("penguins", "concrete"), "recipes": 8})
def compact(*, tables: tuple[str, ...] = TABLES, recipes: int = 40, splits: int = 1) -> Result:
    """What a compact model costs on rows set aside, beside the whole ensemble and one distilled network.

    tables: Tables of the folder `tables` of SHOAL_DATA.
    recipes: Recipes of each search.
    splits: How often rows are set aside.
    """
    cases = []
    with progress_bar("compact", len(tables) * splits) as tick:
        for name in tables:
            for split in range(splits):
                tick(name)
                cases.append(measure(name, split, recipes))
    ratios = {way: _ratio(cases, way) for way in WAYS[1:]}
    better = {way: sum(c["loss"][way] < c["loss"]["compact"] for c in cases) for way in WAYS[2:]}
    target = Target(
        "compact models within one standard error", sum(_within(case) for case in cases) / len(cases), 0.68,
        note="share of splits, on rows set aside",
    )  # fmt: skip
    notes = [
        f"A quarter of the rows is set aside; {recipes} recipes on the rest. Loss: log-loss, or squared error "
        "over the variance of the target. Within: at most one standard error (of the rows set aside) above the whole.",
        "Distilled: one network of the compact model's first recipe, trained on all rows that were searched, with "
        "predictions of the whole ensemble in the place of the target.",
        *(f"{way}: lower loss than compact in {count} of {len(cases)} splits" for way, count in better.items()),
    ]
    return Result(
        title="Compact models on rows set aside", data={"cases": cases, "ratios": ratios},
        tables=[table(cases, ratios)], targets=[target], notes=notes, draw=lambda: draw(cases),
    )  # fmt: skip


def measure(name: str, split: int, recipes: int) -> dict[str, Any]:
    """One table: losses on rows set aside, and networks, of each way."""
    import pandas as pd

    from shoal import ShoalClassifier, ShoalRegressor

    frame = pd.read_csv(find(f"tables/{name}.csv.gz"))
    y, X = frame["target"], frame.drop(columns="target")
    aside = np.random.default_rng(split).permutation(len(X)) < HELD_OUT * len(X)
    regression = y.dtype.kind == "f" or y.nunique() > 20
    kind = ShoalRegressor if regression else ShoalClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = kind(recipes=recipes, seeds=1).fit(X[~aside], y[~aside])
    model, task = estimator.model_, estimator.model_.task
    table, truth = Table.of(X[aside]), y[aside].to_numpy()
    known = np.ones(len(truth), dtype=bool) if regression else np.isin(truth, estimator.classes_)
    target = truth[:, None].astype(float) if regression else np.searchsorted(estimator.classes_, truth[known])
    scale = float(np.std(truth)) if regression else 1.0
    answers = {
        "whole": model.predict(table),
        "compact": compact_model(model).predict(table),
        **{way: distilled(estimator, Table.of(X[~aside]), table, way) for way in WAYS[2:]},
    }
    losses = {way: task.losses(answer[known], target, scale) for way, answer in answers.items()}
    return {
        "table": name, "split": split, "rows": len(X), "networks": len(model), "compact": model.compact.networks,
        "loss": {way: float(values.mean()) for way, values in losses.items()},
        "error": float(losses["whole"].std() / np.sqrt(len(target))),
    }  # fmt: skip


def distilled(estimator: Any, train: Table, new: Table, way: str) -> np.ndarray:
    """What one network says that was taught what the ensemble says of its own training rows."""
    model, outcome, problem = estimator.model_, estimator.result_.outcome, estimator.result_.problem
    task = model.task
    taught = outcome.out_of_fold[problem.row_of] if way == WAYS[2] else model.predict(train)
    recipe = outcome.chosen[model.compact.parts[0]].recipe
    encoder = Encoder.fit(model.schema, train, np.ones(len(train)))
    inputs, new_inputs = (encoder.transform(table, [recipe.encoding])[recipe.encoding] for table in (train, new))
    values = taught if task.kind == REGRESSION else np.log(np.maximum(taught, SMALLEST))
    values = values if task.kind == REGRESSION else values - values.mean(axis=1, keepdims=True)
    centre, spread = values.mean(axis=0), values.std(axis=0) + 1e-9
    member = replace(recipe.member, label_smoothing=0.0)
    population = Population([member], inputs.shape[1], task.n_outputs, "mse")
    population.fit(inputs, ((values - centre) / spread).astype(np.float32), epochs=member.epochs or 20)
    raw = population.predict(new_inputs)[0] * spread + centre
    return raw if task.kind == REGRESSION else task.activate(raw)


def _within(case: dict[str, Any]) -> bool:
    return bool(case["loss"]["compact"] <= case["loss"]["whole"] + case["error"])


def _ratio(cases: list[dict[str, Any]], way: str) -> float:
    """Geometric mean of the loss over that of the whole ensemble."""
    ratios = [case["loss"][way] / max(case["loss"]["whole"], 1e-6) for case in cases]
    return float(np.exp(np.mean(np.log(ratios))))


def table(cases: list[dict[str, Any]], ratios: dict[str, float]) -> ResultTable:
    header = ["table", "networks", "compact", *WAYS, "standard error"]
    rows = [
        [case["table"], str(case["networks"]), str(case["compact"]),
         *(significant(case["loss"][way]) for way in WAYS), significant(case["error"], 2)]
        for case in cases
    ]  # fmt: skip
    rows.append(["geometric mean, of the whole", "", "", "1", *(f"{ratios[way]:.3f}" for way in WAYS[1:]), ""])
    return ResultTable("Loss on rows set aside", header, rows)


def draw(cases: list[dict[str, Any]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.4)
    for way, color in zip(WAYS[1:], COLORS.values(), strict=False):
        axis.plot([case["loss"][way] / max(case["loss"]["whole"], 1e-6) for case in cases], "o", label=way, color=color)
    axis.set_xticks(range(len(cases)), [case["table"] for case in cases], rotation=60, ha="right")
    axis.axhline(1.0, color="0.5")
    axis.set_ylabel("loss over that of the whole ensemble")
    axis.legend()
    return figure

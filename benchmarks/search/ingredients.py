"""What does each ingredient of the default space gain? The same networks with and without it, on real tables.

For each table: random recipes train on five folds in each variant, an ensemble is chosen on held-out rows as in a
search, and judged on rows set aside. No clock decides, so a busy machine changes nothing but the seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable
from benchmarks.peers.tabular.data import Dataset, load, names, split
from shoal.datasets import find
from shoal.encoders.encoder import ENCODINGS
from shoal.metrics.find import find_metric
from shoal.metrics.tasks import CLASSIFICATION, Task
from shoal.population.members import Member
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import Problem, default_epochs, make_folds, make_problem
from shoal.search.rounds.training import Workload, train
from shoal.search.scoring.ensemble import weigh
from shoal.search.space import default_space
from shoal.tables.schema import Schema
from shoal.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDS = 5
BASE = "plain and piecewise"
SMALLEST_LOSS = 1e-3  # losses below it count as this much in ratios


@dataclass(frozen=True)
class Variant:
    """What networks see, and how their recipes are changed."""

    encodings: tuple[str, ...] = ("plain", "piecewise")
    beta2: float | None = None
    longer: int = 1  # times as many epochs
    deeper: bool = False  # one more hidden layer
    with_base: bool = True  # the ensemble may also use the networks of the base

    def change(self, member: Member) -> Member:
        assert member.epochs is not None
        hidden = (*member.hidden, member.hidden[-1]) if self.deeper else member.hidden
        beta2 = member.beta2 if self.beta2 is None else self.beta2
        return member.replace(epochs=member.epochs * self.longer, beta2=beta2, hidden=hidden)


VARIANTS = {
    BASE: Variant(with_base=False),
    "twice as many networks": Variant(),
    "beta2 0.95 instead": Variant(beta2=0.95, with_base=False),
    "and encoding quantile": Variant(("quantile",)),
    "and encoding steps": Variant(("steps",)),
    "and twice the epochs": Variant(beta2=0.95, longer=2),
    "and four times the epochs": Variant(beta2=0.95, longer=4),
    "and one more layer": Variant(beta2=0.95, longer=2, deeper=True),
}


@benchmark(quick={"recipes": 2, "rows": 100, "only": ("hepatitis",)})
def ingredients(
    *, tables: Path | None = None, recipes: int = 16, rows: int = 2000, splits: int = 1, only: tuple[str, ...] = ()
) -> Result:
    """What each ingredient of the default space gains on real tables, apart from the search.

    tables: Folder of NAME.csv.gz files with the target in the last column [tables in SHOAL_DATA].
    recipes: Random recipes in each encoding.
    rows: Training rows, at most.
    splits: Splits of each table.
    only: Names of tables.
    """
    folder = tables or find("tables")
    cases = [(name, seed) for name in names(folder, only, held_out=False) for seed in range(splits)]
    found = []
    with progress_bar("ingredients", len(cases)) as tick:
        for name, seed in cases:
            tick(f"{name}, split {seed}")
            found.append(judge(load(folder, name), seed, recipes, rows))
    summary = [_row(name, [case["losses"] for case in found]) for name in VARIANTS]
    return Result(
        title="What does each ingredient of the default space gain?", data={"cases": found},
        tables=[_summary_table(summary), _losses_table(found)], draw=lambda: _draw(summary),
        notes=[
            f"{recipes} random recipes in each encoding, {FOLDS} folds, at most {rows:,} training rows; the ensemble "
            "may use the networks of the base and those of the variant, unless it says 'instead'.",
            "'Twice as many networks' is the control: the base with other seeds.",
        ],
    )  # fmt: skip


# ---- one table ----


def judge(data: Dataset, seed: int, recipes: int, most_rows: int) -> dict[str, Any]:
    """The loss of each variant on rows set aside."""
    train_rows, test_rows = split(data, seed)
    problem, table = _problem(data, train_rows[:most_rows]), _table(data, test_rows)
    members = _members(problem, recipes, np.random.default_rng(seed))
    losses, seconds, base = {}, {}, None
    for name, variant in VARIANTS.items():
        begun = time.perf_counter()
        shift = 1000 if name == "twice as many networks" else 0
        mine = [_train(problem, table, encoding, [_reseeded(variant.change(one), shift) for one in members])
                for encoding in variant.encodings if encoding in problem.inputs]  # fmt: skip
        seconds[name] = time.perf_counter() - begun
        base = mine if base is None else base
        pool = [*base, *mine] if variant.with_base else mine
        losses[name] = _ensemble_loss(problem, pool, data.y[test_rows])
    return {"table": data.name, "split": seed, "losses": losses, "seconds": seconds}


def _problem(data: Dataset, rows: np.ndarray) -> Problem:
    table, classes = _table(data, rows), data.classes
    schema = Schema.of(table)
    task = Task(CLASSIFICATION, classes) if classes else Task(data.task, 1)
    target = data.y[rows] if classes else data.y[rows].reshape(-1, 1)
    given = TrainingData(task, schema, schema.check(table), target, np.ones(len(rows)))
    pairs, _ = make_folds(FOLDS, task, table, target, None, 0)
    return make_problem(given, pairs, ENCODINGS)


def _table(data: Dataset, rows: np.ndarray) -> Table:
    return Table.of(data.X.iloc[rows].reset_index(drop=True))


def _members(problem: Problem, count: int, generator: np.random.Generator) -> list[Member]:
    """Recipes of the default space with a hidden layer and the usual beta2."""
    classes = problem.task.kind == CLASSIFICATION
    space = default_space(problem.n_rows, classes, ["plain"], default_epochs(problem.n_rows))
    found: list[Member] = []
    while len(found) < count:
        member = space.sample(1, generator)[0].member
        if member.hidden and member.activation not in ("identity", "hardshrink", "sigmoid"):
            found.append(member.replace(beta2=0.999))
    return found


def _reseeded(member: Member, shift: int) -> Member:
    return member.replace(seed=member.seed + shift)


def _train(problem: Problem, new: Table, encoding: str, members: Sequence[Member]) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of each recipe: of held-out rows (recipes, n, outputs), and of new rows, averaged over folds."""
    until = np.repeat([[member.epochs or 1] for member in members], FOLDS, axis=1)
    work = Workload(encoding, tuple(members), until, seed=0)
    trained = train(problem, find_metric(None, problem.task, None), work, threads=None)
    held_out = np.stack([trained.assessments[k].prediction for k in range(len(members))])  # type: ignore[misc]
    total = np.zeros((len(members), len(new), problem.task.n_outputs))
    for k, fold in enumerate(problem.folds):
        inputs = np.zeros((len(new), problem.inputs[encoding].shape[1]), dtype=np.float32)
        problem.encoders[k].write(new, {encoding: inputs})
        raw = trained.networks.predict(inputs, np.arange(len(members)) * FOLDS + k)
        total += fold.target.back(problem.task, raw) / FOLDS
    return held_out, total


def _ensemble_loss(problem: Problem, pool: Sequence[tuple[np.ndarray, np.ndarray]], y: np.ndarray) -> float:
    """Log-loss, or root of the mean squared error, of an ensemble that was weighed on held-out rows."""
    held_out, new = (np.concatenate(parts) for parts in zip(*pool, strict=True))
    task, weight = problem.task, problem.loss_weight
    losses = task.losses(held_out, problem.y, problem.loss_scale) @ (weight / weight.sum())
    best = [k for k in np.argsort(losses, kind="stable") if np.isfinite(losses[k]) and np.isfinite(new[k]).all()]
    inputs = task.loss_inputs(held_out[best], problem.y)
    shares = weigh(task, inputs, problem.y, weight, problem.loss_scale)
    prediction = np.tensordot(shares, new[best], axes=1)
    if task.kind != CLASSIFICATION:
        return float(np.sqrt(((prediction[:, 0] - y) ** 2).mean()))
    return float(replace(task, label_noise=0.0).losses(prediction / prediction.sum(axis=1, keepdims=True), y).mean())


# ---- the result ----


def _row(name: str, losses: Sequence[dict[str, float]]) -> tuple[str, float, float, float]:
    """Variant, the mean and median change of the loss in percent, and the share of tables where it falls."""
    change = np.array([np.log(max(one[name], SMALLEST_LOSS) / max(one[BASE], SMALLEST_LOSS)) for one in losses])
    return (
        name,
        100 * float(np.expm1(change.mean())),
        100 * float(np.expm1(np.median(change))),
        float((change < 0).mean()),
    )


def _summary_table(summary: Sequence[tuple[str, float, float, float]]) -> ResultTable:
    rows = [[name, f"{mean:+.1f}%", f"{median:+.1f}%", f"{better:.0%}"] for name, mean, median, better in summary[1:]]
    columns = ["variant", "loss, geometric mean", "loss, median", "better on"]
    return ResultTable(f"Change of the loss against {BASE} with beta2 0.999", columns, rows)


def _losses_table(found: Sequence[dict[str, Any]]) -> ResultTable:
    rows = [[f"{one['table']}, {one['split']}", *(f"{loss:.4g}" for loss in one["losses"].values())] for one in found]
    return ResultTable("Loss on rows set aside", ["table, split", *VARIANTS], rows)


def _draw(summary: Sequence[tuple[str, float, float, float]]) -> Figure:
    figure, axes = grid_of_axes(1, 1)
    axis = axes[0, 0]
    axis.barh([row[0] for row in summary[:0:-1]], [row[1] for row in summary[:0:-1]], color=COLORS["native"])
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlabel("change of the loss in percent, geometric mean over tables")
    return figure

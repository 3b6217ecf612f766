"""Forests of networks beside scikit-learn's random forest and its bagging of networks: losses, seconds."""

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
from benchmarks.harness.verdict import Target
from shoal.machine import thread_count
from shoal.search.problem.problem import default_epochs
from shoal.tools.forest import DEFAULT, ShoalForestClassifier, ShoalForestRegressor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("shoal", "forest", "bagging")
TITLES = {"shoal": "ShoalForest", "forest": "RandomForest", "bagging": "Bagging(MLP)"}
SPEED_UP = 50.0
COLUMNS = 0.8


@benchmark(name="tools-forest", quick={"tables": ("penguins", "autompg"), "networks": 100, "bagged": 2, "trees": 100})
def tools_forest(
    *, tables: tuple[str, ...] = TABLES, networks: int = 1000, bagged: int = 6, trees: int = 1000
) -> Result:
    """Forests of networks beside scikit-learn's random forest and its bagging of networks: losses, seconds.

    tables: Names of tables.
    networks: Networks of our forest.
    trees: Trees of the random forest.
    bagged: Networks that scikit-learn's bagging is measured on; its time is scaled, and said so.
    """
    found, cases = [], load(tables)
    with progress_bar("forest", len(tables)) as tick:
        with warnings.catch_warnings():  # processes of scikit-learn's are started before anything is timed
            warnings.simplefilter("ignore")
            _bagging(cases[0], 2).fit(cases[0].X, cases[0].y)
        for case in cases:
            tick(case.name)
            found.append(measure(case, networks, bagged, trees))
    data = {"tables": found, "mean_ranks": ranks(found)}
    whole = tools_forest.is_whole(tables=tables, networks=networks, bagged=bagged, trees=trees)
    return Result(
        title=f"Forests of {networks:,} networks", settings={"recipe": str(DEFAULT[0])},
        data=data, tables=result_tables(data), targets=targets(found, whole), notes=notes(networks, bagged, trees),
        draw=lambda: draw(found),
    )  # fmt: skip


def measure(case: Case, networks: int, bagged: int, trees: int) -> dict[str, Any]:
    """Seconds of `fit` and loss on new rows of each contender on one table."""
    made: dict[str, Any] = {"name": case.name, "task": case.task, "rows": len(case.y), "columns": case.X.shape[1]}
    ours = (ShoalForestClassifier if case.classes else ShoalForestRegressor)(networks, max_features=COLUMNS)
    models = {"shoal": ours, "forest": _forest(case, trees), "bagging": _bagging(case, bagged)}
    for name, model in models.items():
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(case.X, case.y)
        seconds = time.perf_counter() - begun
        scale = networks / bagged if name == "bagging" else 1.0
        made[name] = {"seconds": seconds * scale, "loss": loss(model, case.X_new, case)}
    made["faster_than_bagging"] = made["bagging"]["seconds"] / made["shoal"]["seconds"]
    made["out_of_bag"] = ours.oob_score_
    made["score"] = float(ours.score(case.X_new, case.y_new))
    return made


def _encoding(case: Case, scale: bool) -> Any:
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), *([StandardScaler()] if scale else []))
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include=np.number)),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude=np.number)),
    )


def _forest(case: Case, trees: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.pipeline import make_pipeline

    kind = RandomForestClassifier if case.classes else RandomForestRegressor
    return make_pipeline(_encoding(case, False), kind(trees, n_jobs=thread_count(), random_state=0))


def _bagging(case: Case, bagged: int) -> Any:
    """The same networks: shape, optimiser, learning rate, batch size, epochs, share of the columns."""
    from sklearn.ensemble import BaggingClassifier, BaggingRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline

    recipe, epochs = DEFAULT[0], default_epochs(len(case.y))
    network = (MLPClassifier if case.classes else MLPRegressor)(
        hidden_layer_sizes=recipe.hidden, learning_rate_init=recipe.learning_rate, alpha=recipe.weight_decay,
        batch_size=recipe.batch_size, max_iter=epochs, n_iter_no_change=epochs + 1, tol=0.0,
    )  # fmt: skip
    # In a pipeline, so that it is given repeated rows and no weights: its batches must not have only weights of zero.
    bagging = (BaggingClassifier if case.classes else BaggingRegressor)(
        make_pipeline(network), bagged, max_features=COLUMNS, n_jobs=thread_count(), random_state=0
    )
    return make_pipeline(_encoding(case, True), bagging)


def ranks(found: list[dict[str, Any]]) -> dict[str, float]:
    both = ("shoal", "forest")
    means = mean_ranks([[one[name]["loss"] for name in both] for one in found])
    return dict(zip(both, means, strict=True))


def targets(found: list[dict[str, Any]], whole: bool) -> list[Target]:
    least = min(one["faster_than_bagging"] for one in found)
    what = "ShoalForest against Bagging(MLP), least of all tables"
    return [Target(what, least, SPEED_UP, unit="x", complete=whole, scaled=True)]


def result_tables(data: dict[str, Any]) -> list[ResultTable]:
    rows, times = [], []
    for one in data["tables"]:
        rows.append([
            one["name"], f"{one['rows']:,} x {one['columns']}", *(f"{one[name]['loss']:.4f}" for name in NAMES),
            f"{one['out_of_bag']:.3f}", f"{one['score']:.3f}",
        ])  # fmt: skip
        times.append([
            one["name"], significant(one["shoal"]["seconds"]), significant(one["forest"]["seconds"]),
            f"~{significant(one['bagging']['seconds'])}", f"~{significant(one['faster_than_bagging'])}x",
        ])  # fmt: skip
    titles = [TITLES[name] for name in NAMES]
    means = data["mean_ranks"]
    rows.append(["mean rank of the first two", "", *(f"{means[name]:.2f}" for name in means), "", "", ""])
    header = ["table", "rows x columns", *titles, "our out-of-bag score", "our score on new rows"]
    return [
        ResultTable("Log-loss, or 1 - R2, on new rows", header, rows),
        ResultTable("Seconds of fit (~ scaled)", ["table", *titles, "faster than Bagging(MLP)"], times),
    ]


def notes(networks: int, bagged: int, trees: int) -> list[str]:
    return [
        f"70% of the rows are fitted, the others scored; {networks:,} networks, {trees:,} trees, all "
        "with the defaults of their makers beside that. Scores are accuracy, or R2.",
        f"Bagging(MLP) is measured on {bagged} networks of the same shape, optimiser, batch size, epochs and "
        f"share of columns, with a process for each core; its time is scaled to {networks:,} (~). Its loss is "
        f"that of {bagged} networks, and would be lower with all: it is left out of the ranks.",
        "Its epochs go over repeated rows; ours over each row once, with its repeats as weight: 63% of the rows.",
    ]


def draw(found: list[dict[str, Any]]) -> Figure:
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.0, height=3.6)
    names = [one["name"] for one in found]
    for place, (name, color) in enumerate(zip(NAMES, (COLORS["native"], "0.65", COLORS["vmap"]), strict=True)):
        at = np.arange(len(found)) + 0.28 * (place - 1)
        left.bar(at, [one[name]["seconds"] for one in found], 0.27, color=color, label=TITLES[name])
        relative = [one[name]["loss"] / one["forest"]["loss"] for one in found]
        right.bar(at, relative, 0.27, color=color, label=TITLES[name])
    left.set(yscale="log", ylabel="seconds of fit")
    right.set(ylabel="loss on new rows, RandomForest = 1")
    for axis in (left, right):
        axis.set_xticks(range(len(found)), names, rotation=45, ha="right", fontsize=8)
        axis.legend(frameon=False, fontsize=8)
    return figure

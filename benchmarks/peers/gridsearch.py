"""A cross-validated grid search: 100 recipes, 10 folds, 1,000 networks, against scikit-learn's doing the same work."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Contender, Timing, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.errors import UserError
from shoal.machine import thread_count
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.population.rows import Split, cross

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 32
GRID: dict[str, Sequence[Any]] = {
    "hidden_layer_sizes": ((16,), (32,), (64,), (128,), (64, 64)),
    "activation": ("relu", "tanh"),
    "learning_rate_init": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "alpha": (1e-4, 1e-1),
}
NAMES = ("estimator", "population", "gridsearchcv")
TITLES = {
    "estimator": "ShoalClassifier", "population": "shoal.Population", "gridsearchcv": "GridSearchCV(MLPClassifier)",
}  # fmt: skip
SPEED_UP = 20.0


class Work(NamedTuple):
    """What everybody does: these recipes on these folds of this table."""

    X: np.ndarray  # (n_rows, n_features) float32, from 0 to 1
    y: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]
    recipes: list[dict[str, Any]]
    epochs: int


Entry = tuple[Callable[[Work], np.ndarray], Work]  # accuracy of each recipe (mean over folds) <- the work


@benchmark(quick={"recipes": 20, "share": 0.5, "folds": 5, "repeats": 1})
def gridsearch(
    *, recipes: int = 100, share: float = 1.0, folds: int = 10, epochs: int = 20, repeats: int = 2
) -> Result:
    """A cross-validated grid search on digits: 1,000 networks, against scikit-learn's GridSearchCV(MLPClassifier).

    recipes: Recipes, of a grid of 100.
    share: Share of the recipes that scikit-learn is measured on, and scaled.
    folds: Folds.
    epochs: Epochs of each network.
    repeats: Times that everything is measured.
    """
    if not 0 < share <= 1:
        raise UserError(f"--share must be above 0 and at most 1; got {share:g}")
    work = make_work(recipes, folds, epochs)
    part = work._replace(recipes=spaced(work.recipes, max(1, round(share * len(work.recipes)))))
    entries: dict[str, Entry] = {
        "estimator": (by_estimator, work), "population": (by_population, work), "gridsearchcv": (by_scikit_learn, part),
    }  # fmt: skip
    accuracies: dict[str, np.ndarray] = {}
    contenders = [enter(name, *entry, work, accuracies) for name, entry in entries.items()]
    with progress_bar("gridsearch", rounds(len(contenders), repeats)) as tick:
        timings = race(contenders, repeats, tick)
    whole = gridsearch.is_whole(recipes=recipes, share=share, folds=folds, epochs=epochs)
    data = collect(folds, work, part, timings, accuracies)
    return Result(
        title=f"Grid search on digits: {len(work.recipes)} recipes x {folds} folds x {epochs} epochs",
        settings={"batch_size": BATCH, "grid": GRID}, data=data,
        tables=[time_table(data), accuracy_table(data)], targets=targets(data, whole), notes=notes(data),
        draw=lambda: draw(data),
    )  # fmt: skip


def make_work(recipes: int, folds: int, epochs: int) -> Work:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import StratifiedKFold

    X, y = load_digits(return_X_y=True)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
    grid = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    X = (X / 16).astype(np.float32)  # in single precision scikit-learn is faster, too
    return Work(X, y, list(splitter.split(X, y)), spaced(grid, recipes), epochs)


def spaced(items: list[Any], count: int) -> list[Any]:
    """`count` of them: in steps that share no factor with the grid, so that every value of it is among them.

    >>> spaced([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 4)
    [0, 3, 6, 9]
    """
    if not 1 <= count <= len(items):
        raise UserError(f"--recipes must be from 1 to {len(items)}; got {count}")
    if count == len(items):
        return items
    step = max(3, len(items) // count)
    step += next(extra for extra in range(len(items)) if np.gcd(step + extra, len(items)) == 1)
    return [items[k] for k in sorted(k * step % len(items) for k in range(count))]


def enter(
    name: str, method: Callable[[Work], np.ndarray], mine: Work, whole: Work, accuracies: dict[str, np.ndarray]
) -> Contender:
    """A contender that leaves its accuracies behind. The warm-up is a small part of the work."""
    small = mine._replace(recipes=mine.recipes[:2], folds=mine.folds[:2], epochs=1)

    def measure() -> None:
        accuracies[name] = method(mine)

    scale = len(whole.recipes) / len(mine.recipes)
    words = "" if scale == 1 else f"{len(mine.recipes)} of {len(whole.recipes)} recipes"
    return Contender(name, measure, lambda: method(small), scale=scale, scaled=words)


def member(recipe: dict[str, Any], epochs: int) -> Member:
    """The same recipe for Shoal. scikit-learn divides its penalty by the batch size."""
    return Member(
        hidden=recipe["hidden_layer_sizes"], activation=recipe["activation"], optimizer="adam", init="glorot",
        learning_rate=recipe["learning_rate_init"], weight_decay=recipe["alpha"] / BATCH, batch_size=BATCH,
        epochs=epochs,
    )  # fmt: skip


def by_scikit_learn(work: Work) -> np.ndarray:
    """`GridSearchCV` with a process for each core."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import GridSearchCV
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier(
        solver="adam", batch_size=BATCH, max_iter=work.epochs, n_iter_no_change=work.epochs + 1, tol=0.0, random_state=0
    )
    grid = [{name: [value] for name, value in recipe.items()} for recipe in work.recipes]
    search = GridSearchCV(network, grid, cv=work.folds, n_jobs=thread_count(), refit=False, scoring="accuracy")
    with warnings.catch_warnings():  # here for the case of one process; others print theirs, if they do
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(work.X, work.y)
    return np.asarray(search.cv_results_["mean_test_score"])


def by_estimator(work: Work) -> np.ndarray:
    """All that `fit` does: scaling within the folds, out-of-fold predictions, the honest score, the final model."""
    from shoal.search.estimators import ShoalClassifier

    members = [member(recipe, work.epochs) for recipe in work.recipes]
    search = ShoalClassifier(
        members, strategy="grid", cv=work.folds, recipes=len(members), seeds=1, epochs=work.epochs, model="best",
        refit=False, scoring="accuracy", random_state=0,
    )  # fmt: skip
    search.fit(work.X, work.y)
    results = search.cv_results_
    found = {_key(params): score for params, score in zip(results["params"], results["mean_test_score"], strict=True)}
    return np.array([found[_key(wanted.as_dict())] for wanted in members])


def by_population(work: Work) -> np.ndarray:
    """The bare engine: one population, one fit."""
    recipes = [member(recipe, work.epochs) for recipe in work.recipes]
    members, rows = cross(recipes, [Split(train, valid) for train, valid in work.folds])
    population = Population(members, work.X.shape[1], int(work.y.max()) + 1)
    population.fit(work.X, work.y, work.epochs, rows=rows, threads=thread_count())
    return population.history.last("valid_score").reshape(len(recipes), -1).mean(axis=1)


def _key(params: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(params["hidden"]), params["activation"], params["learning_rate"], params["weight_decay"]


def collect(
    folds: int, work: Work, part: Work, timings: dict[str, Timing], accuracies: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Times, ratios, and the accuracy of every recipe from everybody."""
    theirs = timings["gridsearchcv"].seconds
    common = [work.recipes.index(recipe) for recipe in part.recipes]
    reference = accuracies["gridsearchcv"]
    contenders = {}
    for name in NAMES:
        found = accuracies[name]
        same = found if name == "gridsearchcv" else found[common]
        contenders[name] = {
            **timings[name].as_dict(), "faster_than_gridsearchcv": theirs / timings[name].seconds,
            "networks": len(found) * folds, "accuracy": found.tolist(), "best": float(np.max(found)),
            "median": float(np.median(found)), "mean_difference": float(np.mean(same - reference)),
            "mean_absolute_difference": float(np.mean(np.abs(same - reference))),
            "rank_correlation": rank_correlation(same, reference),
        }  # fmt: skip
    return {"contenders": contenders, "recipes": work.recipes, "recipes_of_gridsearchcv": common}


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's: 1 if both put the recipes in the same order.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.5, 0.9]))
    1.0
    """
    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    ranks = [((v[:, None] > v).sum(1) + (v[:, None] >= v).sum(1)) / 2 for v in (one, other)]
    return round(float(np.corrcoef(*ranks)[0, 1]), 12)


def targets(data: dict[str, Any], whole: bool) -> list[Target]:
    return [
        Target(
            f"{TITLES[name]} against GridSearchCV", data["contenders"][name]["faster_than_gridsearchcv"], SPEED_UP,
            unit="x", complete=whole,
        )
        for name in ("estimator", "population")
    ]  # fmt: skip


def time_table(data: dict[str, Any]) -> ResultTable:
    """What is scaled, and every ratio to it, has a mark."""
    rows = []
    ratio_mark = "~" if data["contenders"]["gridsearchcv"]["scaled"] else ""
    for name, numbers in data["contenders"].items():
        mark = "~" if numbers["scaled"] else ""
        rows.append([
            TITLES[name], f"{mark}{significant(numbers['seconds'])}", f"{numbers['networks']:,}",
            f"{ratio_mark}{significant(numbers['faster_than_gridsearchcv'])}x",
        ])  # fmt: skip
    return ResultTable("Seconds (~ scaled)", ["search", "seconds", "networks trained", "against GridSearchCV"], rows)


def accuracy_table(data: dict[str, Any]) -> ResultTable:
    rows = []
    for name, numbers in data["contenders"].items():
        difference, absolute = 100 * numbers["mean_difference"], 100 * numbers["mean_absolute_difference"]
        rows.append([
            TITLES[name], f"{100 * numbers['best']:.2f}%", f"{100 * numbers['median']:.2f}%", f"{difference:+.2f}",
            f"{absolute:.2f}", f"{numbers['rank_correlation']:.3f}",
        ])  # fmt: skip
    header = ["search", "best recipe", "median recipe", "mean difference, points", "mean absolute", "rank correlation"]
    return ResultTable("Cross-validated accuracy: is it the same work?", header, rows)


def notes(data: dict[str, Any]) -> list[str]:
    found = [
        "Same recipes, folds, epochs and batch size for all: Adam, Glorot's initialisation, weight decay alpha / 32. "
        "Differences and the rank correlation compare the accuracy of each recipe with that of GridSearchCV.",
        "GridSearchCV has a process for each core, already started, and data in single precision; it refits nothing. "
        "MLPClassifier stops on nothing: every network is trained for all epochs.",
        "ShoalClassifier also scales the columns within the folds, keeps out-of-fold predictions, corrects the best "
        "score for having been chosen, and builds the final model; Population does what GridSearchCV does.",
    ]
    theirs = data["contenders"]["gridsearchcv"]
    if theirs["scaled"]:
        found.append(f"~ GridSearchCV: measured on {theirs['measured_on']}, its time scaled by their number.")
    return found


def draw(data: dict[str, Any]) -> Figure:
    contenders = data["contenders"]
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.0, height=3.6)
    labels = [TITLES[name].replace("(", "\n(") for name in NAMES]
    seconds = [contenders[name]["seconds"] for name in NAMES]
    bars = left.bar(labels, seconds, color=[COLORS["native"], COLORS["grouped"], "0.65"], width=0.6)
    left.bar_label(bars, fmt="{:,.1f} s", padding=3)
    left.set(yscale="log", ylabel="seconds", ylim=(min(seconds) / 3, max(seconds) * 3))
    left.tick_params(axis="x", labelsize=8)
    theirs = 100 * np.array(contenders["gridsearchcv"]["accuracy"])
    for name, color in (("estimator", COLORS["native"]), ("population", COLORS["vmap"])):
        ours = 100 * np.array(contenders[name]["accuracy"])[data["recipes_of_gridsearchcv"]]
        right.plot(theirs, ours, "o", color=color, alpha=0.6, markersize=4, label=TITLES[name])
    ends = [theirs.min(), theirs.max()]
    right.plot(ends, ends, color="0.6", linewidth=1, linestyle="--")
    right.set(xlabel="accuracy from GridSearchCV, %", ylabel="accuracy from Shoal, %")
    right.set_title("each recipe, cross-validated", fontsize=10)
    right.legend(frameon=False, fontsize=9)
    return figure

"""Do intervals and sets hold the truth as often as asked, how wide are they, and how many rows are called strange?

Each table is split at random; the rows set aside judge what a search on the others promises. MAPIE is given the same
networks: its CV+ for numbers, its cross-conformal sets for classes, with the folds that the search had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import installed
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.datasets import find

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COVERAGES = (0.8, 0.9, 0.95)
SHOWN = 0.9
SHARES = (0.01, 0.05)  # of rows that may be called strange
TRAIN = 0.6
FIRST_SEED = 200
TOLERANCE = 0.01
RAPS_PRICE = 0.1  # for each class beyond the first two


@benchmark(quick={"splits": 1, "recipes": 3, "only": ("penguins", "autompg")})
def coverage(*, splits: int = 2, recipes: int = 24, only: tuple[str, ...] = ()) -> Result:
    """Whether intervals and sets hold the truth as often as asked, on rows set aside; their width beside MAPIE's.

    splits: Splits of each table.
    recipes: Recipes of a search.
    only: Names of real tables.
    """
    cases = list(_cases(splits, only))
    found = []
    with progress_bar("coverage", len(cases)) as tick:
        for name, task, path, seed in cases:
            tick(f"{name}, split {seed - FIRST_SEED}")
            found.append(judge(name, task, path, seed, recipes))
    data = {"summary": summary(found), "cases": found}
    return Result(
        title="Do intervals and sets hold the truth as often as asked?", data=data, tables=tables(found),
        targets=targets(only, found), notes=notes(splits, recipes), draw=lambda: draw(found),
    )  # fmt: skip


def _cases(splits: int, only: tuple[str, ...]) -> Iterator[tuple[str, str, Any, int]]:
    import json

    index = find("tables/index.json")
    for entry in json.loads(index.read_text()):
        if not only or entry["name"] in only:
            for seed in range(FIRST_SEED, FIRST_SEED + splits):
                yield entry["name"], entry["task"], index.parent / f"{entry['name']}.csv.gz", seed


# ---- one case ----


def judge(name: str, task: str, path: Any, seed: int, recipes: int) -> dict[str, Any]:
    """Search on a part of a table, and compare what is promised with the rest."""
    import pandas as pd

    from shoal import ShoalClassifier, ShoalRegressor

    table = pd.read_csv(path)
    order = np.random.default_rng(seed).permutation(len(table))
    cut = int(TRAIN * len(table))
    train, new = table.iloc[order[:cut]], table.iloc[order[cut:]]
    kind = ShoalClassifier if task == "classification" else ShoalRegressor
    model = kind(recipes=recipes, seeds=1, random_state=seed).fit(train.iloc[:, :-1], train.iloc[:, -1])
    if task == "classification":  # a class that was not among the rows to search on cannot be told
        new = new[new.iloc[:, -1].isin(model.classes_)]
    X, y = new.iloc[:, :-1], new.iloc[:, -1].to_numpy()
    found = {"name": name, "task": task, "seed": seed, "rows": len(train), "new": len(new)}
    found["strange"] = {str(share): float(model.strange(X, share).marked.mean()) for share in SHARES}
    return found | (sets_of(model, X, y) if task == "classification" else intervals_of(model, X, y.astype(float)))


def intervals_of(model: Any, X: Any, y: np.ndarray) -> dict[str, Any]:
    """Coverage and mean width in standard deviations of the target, ours and MAPIE's."""
    unit = float(y.std()) or 1.0

    def measured(ends: np.ndarray) -> dict[str, float]:
        low, high = ends[:, 0], ends[:, 1]
        return {"covered": float(((low <= y) & (y <= high)).mean()), "size": float((high - low).mean() / unit)}

    ours = {str(coverage): measured(model.predict_interval(X, coverage)) for coverage in COVERAGES}
    if not installed("mapie"):
        return {"ours": ours}
    return {"ours": ours, "mapie": {str(c): measured(e) for c, e in zip(COVERAGES, mapie(model, X), strict=True)}}


def aps(probability: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Romano, Sesia and Candès (2020): the probability of all likelier classes and a random part of its own."""
    order = np.argsort(-probability, axis=-1, kind="stable")
    descending = np.take_along_axis(probability, order, axis=-1)
    before = np.cumsum(descending, axis=-1) - descending
    scores = np.empty_like(probability)
    np.put_along_axis(scores, order, before + part[..., None] * descending, axis=-1)
    return scores


def raps(probability: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Angelopoulos et al. (2021): the same, and a price for each class beyond the first two."""
    rank = np.argsort(np.argsort(-probability, axis=-1, kind="stable"), axis=-1, kind="stable")
    return aps(probability, part) + RAPS_PRICE * np.maximum(rank - 1, 0)


OTHERS = {"aps": aps, "raps": raps}  # scores of classes that are compared with the one in use


def sets_of(model: Any, X: Any, y: np.ndarray) -> dict[str, Any]:
    """Coverage and mean number of classes, with each score, and MAPIE's."""
    from shoal.models.certainty import Certainty
    from shoal.tables.inputs import new_table

    truth = np.searchsorted(model.classes_, y)

    def measured(inside: np.ndarray) -> dict[str, float]:
        covered = inside[np.arange(len(truth)), truth].mean()
        return {"covered": float(covered), "size": float(inside.sum(axis=1).mean())}

    found = {"ours": {str(coverage): measured(model.predict_set(X, coverage)) for coverage in COVERAGES}}
    fitted, outcome = model.model_, model.result_.outcome
    probability = fitted.task.temper(fitted.predict_folds(new_table(model, X)), fitted.temperature)
    drawn = np.random.default_rng(1).random(len(truth))
    certainty: Certainty = fitted.certainty
    assert certainty.calibration is not None
    held, likeliest = outcome.held_out, probability.mean(axis=0).argmax(axis=1)
    truths = model.result_.problem.y[held.rows][held.row]
    for score, misfit in OTHERS.items():
        scores = misfit(held.prediction, np.random.default_rng(0).random(len(truths)))
        other = replace(certainty.calibration, scores=scores[np.arange(len(truths)), truths][:, None])
        candidates = np.stack([misfit(each, drawn) for each in probability])
        found[score] = {}
        for coverage in COVERAGES:
            inside = other.within(candidates, coverage)
            inside[np.arange(len(inside)), likeliest] = True
            found[score][str(coverage)] = measured(inside)
    if installed("mapie"):
        found["mapie"] = {str(c): measured(inside) for c, inside in zip(COVERAGES, mapie(model, X), strict=True)}
    return found


class Recorded:
    """A fold's networks as MAPIE sees them: rows are known by number, and what networks say of them is looked up."""

    def __init__(self, answers: Any = None) -> None:
        self.answers = answers

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"answers": self.answers}

    def set_params(self, **parameters: Any) -> Recorded:
        self.answers = parameters["answers"]
        return self

    def fit(self, X: Any, y: Any) -> Recorded:
        """Which fold trains on these rows: the one that they are not held out by."""
        rows = np.asarray(X)[:, 0].astype(int)
        absent = np.setdiff1d(self.answers.fold_of, self.answers.fold_of[rows])
        self.fold_ = int(absent[0]) if len(absent) == 1 else -1
        self.classes_ = np.arange(self.answers.said.shape[2])
        self.is_fitted_ = True
        return self

    def _look_up(self, X: Any) -> np.ndarray:
        rows = np.asarray(X)[:, 0].astype(int)
        return self.answers.mean[rows] if self.fold_ < 0 else self.answers.said[self.fold_, rows]

    def predict(self, X: Any) -> np.ndarray:
        said = self._look_up(X)
        return said[:, 0] if self.answers.numbers else said.argmax(axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        return self._look_up(X)

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

        mixin = RegressorMixin if self.answers.numbers else ClassifierMixin
        return type("Tags", (mixin, BaseEstimator), {})().__sklearn_tags__()


@dataclass(frozen=True, eq=False)
class Answers:
    """What each fold says of training rows that it held out, then of new rows."""

    said: np.ndarray  # (n_folds, n + new, n_outputs)
    fold_of: np.ndarray  # (n,) that held out a training row
    numbers: bool

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.said.mean(axis=0))

    def __deepcopy__(self, memo: Any) -> Answers:
        return self  # scikit-learn copies parameters, and MAPIE has an estimator for each fold


def mapie(model: Any, X: Any) -> list[np.ndarray]:
    """For each coverage what MAPIE makes of the same networks: (new, 2) ends or (new, n_classes) sets."""
    from mapie.classification import CrossConformalClassifier
    from mapie.regression import CrossConformalRegressor
    from sklearn.model_selection import PredefinedSplit

    from shoal.tables.inputs import new_table

    fitted, held = model.model_, model.result_.outcome.held_out
    numbers = fitted.task.kind == "regression"
    new = fitted.task.temper(fitted.predict_folds(new_table(model, X)), fitted.temperature)
    n = len(held.rows)
    said = np.full((len(fitted.folds), n + new.shape[1], fitted.task.n_outputs), np.nan)
    said[held.fold, held.row] = held.prediction
    said[:, n:] = new
    answers = Answers(said, held.held_out.argmax(axis=0), numbers)
    known, asked = np.arange(n)[:, None], np.arange(n, said.shape[1])[:, None]
    y = model.result_.problem.y[held.rows]
    common = {"confidence_level": list(COVERAGES), "cv": PredefinedSplit(answers.fold_of)}
    if numbers:
        maker = CrossConformalRegressor(Recorded(answers), method="plus", **common)
        _, ends = maker.fit_conformalize(known, y[:, 0]).predict_interval(asked)
        return [ends[:, :, k] for k in range(len(COVERAGES))]
    maker = CrossConformalClassifier(Recorded(answers), conformity_score="lac", **common)
    _, inside = maker.fit_conformalize(known, y).predict_set(asked)
    first = np.eye(new.shape[2], dtype=bool)[new.mean(axis=0).argmax(axis=1)]
    return [inside[:, :, k] | (first & ~inside[:, :, k].any(axis=1, keepdims=True)) for k in range(len(COVERAGES))]


# ---- all cases ----


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean coverage and size over tables, by task, way and coverage; and the share of rows called strange."""
    made: dict[str, Any] = {}
    for task in ("regression", "classification"):
        cases = [case for case in found if case["task"] == task]
        for way in ("ours", *OTHERS, "mapie"):
            mine = [case for case in cases if way in case]
            for coverage in COVERAGES if mine else ():
                values = [case[way][str(coverage)] for case in mine]
                pairs = [
                    (value["size"], case["ours"][str(coverage)]["size"])
                    for value, case in zip(values, mine, strict=True)
                ]
                made[f"{task}, {way}, {coverage}"] = {
                    "tables": len({case["name"] for case in mine}),
                    "covered": float(np.mean([value["covered"] for value in values])),
                    "size": float(np.mean([value["size"] for value in values])),
                    "ours_over_it": float(np.exp(np.mean([np.log(max(b, 1e-9) / max(a, 1e-9)) for a, b in pairs]))),
                }
    for share in SHARES:
        made[f"strange, {share}"] = float(np.mean([case["strange"][str(share)] for case in found]))
    return made


def tables(found: Sequence[dict[str, Any]]) -> list[ResultTable]:
    names = {"ours": "Shoal", "mapie": "MAPIE, same networks", "aps": "Shoal with APS", "raps": "Shoal with RAPS"}
    rows = []
    for key, value in summary(found).items():
        if isinstance(value, dict):
            task, way, coverage = key.split(", ")
            rows.append([
                task, names[way], f"{float(coverage):.0%}", f"{value['covered']:.1%}", significant(value["size"]),
                "" if way == "ours" else f"{value['ours_over_it']:.3f}",
            ])  # fmt: skip
    title = (
        "Mean over tables: share of new rows covered; width in standard deviations of the target, or classes in a set"
    )
    made = [ResultTable(title, ["task", "way", "asked", "covered", "size", "Shoal's size over it"], rows)]
    marked = [[f"{share:.0%}", f"{summary(found)[f'strange, {share}']:.2%}"] for share in SHARES]
    made.append(ResultTable("New rows of the same tables that are called strange", ["asked", "marked"], marked))
    made.append(_by_table(found))
    return made


def _by_table(found: Sequence[dict[str, Any]]) -> ResultTable:
    rows = []
    for name in dict.fromkeys(case["name"] for case in found):
        cases = [case for case in found if case["name"] == name]

        def mean(way: str, what: str, cases: list[dict[str, Any]] = cases) -> str:
            values = [case[way][str(SHOWN)][what] for case in cases if way in case]
            return (
                ""
                if not values
                else f"{np.mean(values):.1%}"
                if what == "covered"
                else significant(float(np.mean(values)))
            )

        marked = np.mean([case["strange"][str(SHARES[0])] for case in cases])
        rows.append([
            name, cases[0]["task"], f"{cases[0]['rows']:,}", f"{sum(case['new'] for case in cases):,}",
            mean("ours", "covered"), mean("ours", "size"), mean("mapie", "covered"), mean("mapie", "size"),
            f"{marked:.1%}",
        ])  # fmt: skip
    header = ["table", "task", "rows", "new rows", "covered", "size", "MAPIE: covered", "MAPIE: size", "strange"]
    return ResultTable(f"Each table, {SHOWN:.0%} asked", header, rows)


def targets(only: tuple[str, ...], found: Sequence[dict[str, Any]]) -> list[Target]:
    made, values = [], summary(found)
    complete = not only
    for task in ("regression", "classification"):
        for coverage in COVERAGES:
            value = values.get(f"{task}, ours, {coverage}")
            if value:
                words = f"{task}: mean coverage where {coverage:.0%} is asked"
                made.append(Target(words, value["covered"], coverage - TOLERANCE, complete=complete))
        beside = values.get(f"{task}, mapie, {SHOWN}")
        if beside:
            words = f"{task}: size over MAPIE's at {SHOWN:.0%}"
            made.append(Target(words, beside["ours_over_it"], 1.0 + TOLERANCE, at_least=False, complete=complete))
    for share in SHARES:
        words = f"share of rows called strange where {share:.0%} may be"
        made.append(Target(words, values[f"strange, {share}"], share, at_least=False, complete=complete))
    return made


def notes(splits: int, recipes: int) -> list[str]:
    made = [
        f"Each table: {TRAIN:.0%} of the rows, drawn at random, to search on with {recipes} recipes and one "
        f"seed; the rest to judge; {splits} splits.",
        "MAPIE has the same networks, folds and held-out predictions: its CV+ (method plus) for numbers, without a "
        "learnt spread; its sets (lac) for classes, where empty ones get the likeliest class, as ours do. "
        "Equal rows are one row for it.",
        "Shoal's size over it: the geometric mean over tables of Shoal's mean width, or number of classes, over its.",
    ]
    if not installed("mapie"):
        made.append("MAPIE was not installed: pip install mapie.")
    return made


def draw(found: Sequence[dict[str, Any]]) -> Figure:
    figure, ((left, right),) = grid_of_axes(1, 2, width=9)
    for axis, task in ((left, "regression"), (right, "classification")):
        cases = sorted((case for case in found if case["task"] == task), key=lambda case: case["new"])
        for coverage, shade in zip(COVERAGES, (0.4, 0.7, 1.0), strict=True):
            covered = [case["ours"][str(coverage)]["covered"] for case in cases]
            rows = [case["new"] for case in cases]
            axis.plot(rows, covered, "o", color=COLORS["native"], alpha=shade, markersize=4, label=f"{coverage:.0%}")
            axis.axhline(coverage, color="0.3", linestyle=":", linewidth=1)
        axis.set(xscale="log", xlabel="new rows", ylabel="share covered", title=task)
        axis.legend(frameon=False, title="asked")
    return figure

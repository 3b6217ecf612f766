"""Does the honest score hold? Searches on real and generated tables, their 95% intervals against rows set aside.

A case is one search on a part of a table, scored on the rest. The score on the rest has noise of its own: it counts as
covered when it differs from the estimate by no more than the two errors, the interval's and its own, added as
independent errors are. The negative control: on random labels there is nothing to find, and the truth is chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable
from benchmarks.harness.verdict import Target
from shoal.datasets import find

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Z = 1.959964
SCORES = {"classification": ("accuracy", "neg_log_loss"), "regression": ("r2", "neg_mean_absolute_error")}
GENERATED = ("clusters", "noisy clusters", "products", "curves")
LEAST, MOST = 0.92, 0.98
CHANCE_ROWS = 200
FIRST_SEED = 100  # the width of intervals was chosen on splits 0 to 2


@dataclass(frozen=True)
class Case:
    """One search to be made: rows to search on, rows to score on, and what the estimator is given."""

    kind: str  # "real", "generated" or "random labels"
    name: str
    task: str
    scoring: str
    seed: int
    options: dict[str, Any]
    load: Callable[[], tuple[Any, Any, Any, Any]]  # X, y, X_new, y_new


@benchmark(
    quick={
        "splits": 1,
        "recipes": 6,
        "rows": 4_000,
        "seeds": 1,
        "seconds": 3.0,
        "chance": 3,
        "only": ("penguins", "autompg"),
    }
)
def honest(
    *,
    splits: int = 3,
    recipes: int = 24,
    rows: int = 50_000,
    seeds: int = 3,
    seconds: float = 15.0,
    chance: int = 20,
    only: tuple[str, ...] = (),
) -> Result:
    """Whether honest scores hold: the 95% intervals of about 230 searches against rows set aside; random labels.

    splits: Splits of each real table.
    recipes: Recipes of a search on one.
    rows: Rows of generated tables to search on.
    seeds: Generated tables of each kind.
    seconds: Seconds of a search on one.
    chance: Searches on random labels.
    only: Names of real tables.
    """
    cases = [*real(splits, recipes, only), *generated(rows, seeds, seconds), *random_labels(chance)]
    found = []
    with progress_bar("honest", len(cases)) as tick:
        for case in cases:
            tick(f"{case.kind}: {case.name}, {case.scoring}")
            found.append(judge(case))
    data = {"coverage": coverage(found), "temperature": temperatures(found), "cases": found}
    return Result(
        title="Does the 95% interval of the honest score hold?", data=data, tables=tables(found),
        targets=targets(chance, only, found), notes=notes(recipes, rows, seconds, found), draw=lambda: draw(found),
    )  # fmt: skip


# ---- cases ----


def real(splits: int, recipes: int, only: tuple[str, ...]) -> Iterator[Case]:
    """Each table in the folder `tables` of the data, split at random; the target is its last column."""
    import json

    index = find("tables/index.json")
    for entry in json.loads(index.read_text()):
        if only and entry["name"] not in only:
            continue
        path = index.parent / f"{entry['name']}.csv.gz"
        for seed in range(FIRST_SEED, FIRST_SEED + splits):
            for scoring in SCORES[entry["task"]]:
                options = {"recipes": recipes, "seeds": 2}
                yield Case("real", entry["name"], entry["task"], scoring, seed, options, _split(path, seed))


def _split(path: Any, seed: int) -> Callable[[], tuple[Any, Any, Any, Any]]:
    def load() -> tuple[Any, Any, Any, Any]:
        import pandas as pd

        table = pd.read_csv(path)
        order = np.random.default_rng(seed).permutation(len(table))
        cut = int(0.6 * len(table))
        train, new = table.iloc[order[:cut]], table.iloc[order[cut:]]
        return train.iloc[:, :-1], train.iloc[:, -1], new.iloc[:, :-1], new.iloc[:, -1]

    return load


def generated(rows: int, seeds: int, seconds: float) -> Iterator[Case]:
    for name in GENERATED:
        task = "regression" if name == "curves" else "classification"
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for scoring in SCORES[task]:
                options = {"budget": seconds}
                yield Case("generated", name, task, scoring, seed, options, _generate(name, rows, seed))


def _generate(name: str, rows: int, seed: int) -> Callable[[], tuple[Any, Any, Any, Any]]:
    def load() -> tuple[Any, Any, Any, Any]:
        from sklearn.datasets import make_classification

        random, n = np.random.default_rng(seed), 2 * rows
        if name in ("clusters", "noisy clusters"):
            noisy = name == "noisy clusters"
            X, y = make_classification(
                n, 20, n_informative=6 if noisy else 10, n_clusters_per_class=4 if noisy else 8,
                flip_y=0.3 if noisy else 0.03, class_sep=0.7 if noisy else 1.0, random_state=seed,
            )  # fmt: skip
        else:
            X = random.normal(size=(n, 12))
            if name == "products":
                signal = X[:, 0] * X[:, 1] * X[:, 2] + X[:, 3] * X[:, 4] + 0.3 * random.normal(size=n)
                y = (signal > 0).astype(int)
            else:
                y = np.sin(3 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2] * X[:, 3]) + random.normal(size=n)
        return X[:rows], y[:rows], X[rows:], y[rows:]

    return load


def random_labels(chance: int) -> Iterator[Case]:
    for seed in range(FIRST_SEED, FIRST_SEED + chance):

        def load(seed: int = seed) -> tuple[Any, Any, Any, Any]:
            X = np.random.default_rng(seed).normal(size=(CHANCE_ROWS, 6))
            y = np.random.default_rng(1000 + seed).permutation(np.arange(CHANCE_ROWS) % 2)
            return X, y, X[:0], y[:0]

        yield Case(
            "random labels", "noise", "classification", "accuracy", seed, {"recipes": 60, "seeds": 1, "cv": 5}, load
        )


# ---- one case ----


def judge(case: Case) -> dict[str, Any]:
    """Search, and compare what was promised with what new rows say."""
    from shoal import ShoalClassifier, ShoalRegressor

    X, y, X_new, y_new = case.load()
    kind = ShoalClassifier if case.task == "classification" else ShoalRegressor
    model = kind(scoring=case.scoring, random_state=case.seed, **case.options).fit(X, y)
    honest = model.honest_score_
    found = {
        "kind": case.kind, "name": case.name, "scoring": case.scoring, "seed": case.seed, "rows": len(y),
        "raw": honest.raw, "estimate": honest.corrected, "low": honest.low, "high": honest.high,
        "averaging": honest.averaging,
    }  # fmt: skip
    if case.kind == "random labels":
        return found | compare(honest, 0.5, 0.0)
    score, error, losses = score_of(model, case, X_new, np.asarray(y_new))
    return found | compare(honest, score, error) | losses


def compare(honest: Any, score: float, error: float) -> dict[str, Any]:
    """Whether a score with a standard error of its own is within the interval."""
    side = honest.high if score > honest.corrected else honest.low
    total = float(np.hypot((side - honest.corrected) / Z, error))
    distance = (score - honest.corrected) / max(total, 1e-12)
    return {"score": score, "error": error, "distance": distance, "covered": abs(distance) <= Z}


def score_of(model: Any, case: Case, X: Any, y: np.ndarray) -> tuple[float, float, dict[str, float]]:
    """The model's score on new rows, its standard error; and, for classes, log-losses at several temperatures."""
    from shoal.metrics.metric import METRICS
    from shoal.search.scoring.averaging import TEMPERATURES

    task, metric = model.model_.task, METRICS[case.scoring]
    if case.task == "regression":
        truth, answers = y.astype(float).reshape(-1, 1), model.predict(X).reshape(-1, 1)
    else:
        known = np.isin(y, model.classes_)  # a class that was not among the rows to search on cannot be told
        truth = np.searchsorted(model.classes_, y[known])
        answers = model.predict_proba(X)[known]
    even = np.ones(len(truth))
    rows = metric.rows(task, answers, truth, even)
    losses = {}
    if case.task == "classification":
        log_loss, used = METRICS["neg_log_loss"], model.model_.temperature
        others = [-float(log_loss.score(task, task.temper(answers, t / used), truth, even)) for t in TEMPERATURES]
        losses = {
            "temperature": used, "best_temperature": float(TEMPERATURES[int(np.argmin(others))]),
            "log_loss": -float(log_loss.score(task, answers, truth, even)), "best_log_loss": min(others),
            "untempered_log_loss": -float(log_loss.score(task, task.temper(answers, 1 / used), truth, even)),
        }  # fmt: skip
    return float(rows.mean()), standard_error(rows, case.scoring), losses


def standard_error(rows: np.ndarray, scoring: str) -> float:
    """Of the mean over rows."""
    error = float(rows.std() / np.sqrt(len(rows)))
    if scoring == "accuracy":  # no mistake among 40 rows does not mean that there are none
        share = (rows.sum() + 2) / (len(rows) + 4)
        error = max(error, float(np.sqrt(share * (1 - share) / (len(rows) + 4))))
    return error


# ---- all cases ----


def coverage(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Share of cases covered, and how far off they are in standard errors, by kind and score."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in found:
        groups.setdefault(f"{case['kind']}, {case['scoring']}", []).append(case)
        if case["kind"] != "random labels":
            groups.setdefault("real and generated", []).append(case)
    summary = {}
    for name, cases in groups.items():
        distance = np.array([case["distance"] for case in cases])
        summary[name] = {
            "cases": len(cases),
            "covered": float(np.mean([case["covered"] for case in cases])),
            "mean": float(distance.mean()),
            "spread": float(distance.std()),
            "estimate": float(np.mean([case["estimate"] for case in cases])),
            "score": float(np.mean([case["score"] for case in cases])),
        }
    return summary


def temperatures(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Mean log-loss on new rows: at the model's temperature, at one, and at the best for these very rows."""
    cases = [case for case in found if "log_loss" in case]
    names = ("log_loss", "untempered_log_loss", "best_log_loss")
    return {name: float(np.mean([case[name] for case in cases])) for name in names} if cases else {}


def tables(found: Sequence[dict[str, Any]]) -> list[ResultTable]:
    rows = [
        [name, f"{entry['cases']:.0f}", f"{entry['covered']:.1%}", f"{entry['mean']:+.2f}", f"{entry['spread']:.2f}",
         f"{entry['estimate']:.4f}", f"{entry['score']:.4f}"]
        for name, entry in coverage(found).items()
    ]  # fmt: skip
    header = ["cases", "number", "covered", "mean distance", "spread of distance", "mean estimate", "mean score"]
    made = [ResultTable("Scores on new rows against the 95% interval; distances in standard errors", header, rows)]
    losses = temperatures(found)
    if losses:
        words = {
            "log_loss": "the model's temperature",
            "untempered_log_loss": "temperature 1",
            "best_log_loss": "the best temperature for the new rows, known afterwards",
        }
        made.append(
            ResultTable(
                "Mean log-loss on new rows",
                ["at", "log-loss"],
                [[text, f"{losses[name]:.4f}"] for name, text in words.items()],
            )
        )
    return made


def targets(chance: int, only: tuple[str, ...], found: Sequence[dict[str, Any]]) -> list[Target]:
    summary = coverage(found)
    complete = not only
    everything = summary["real and generated"]["covered"]
    made = [
        Target("covered, real and generated", everything, LEAST, complete=complete),
        Target("covered, real and generated", everything, MOST + 1e-9, at_least=False, complete=complete),
    ]
    by_chance = summary.get("random labels, accuracy")
    if by_chance:
        made.append(
            Target("random labels: distance of the mean estimate from 0.5", abs(by_chance["estimate"] - 0.5), 0.02,
                   at_least=False, complete=chance >= honest.settings({})["chance"])
        )  # fmt: skip
    return made


def notes(recipes: int, rows: int, seconds: float, found: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"Real tables: 60% of the rows, drawn at random, to search on with {recipes} recipes.",
        f"Generated tables: {rows:,} rows to search on in {seconds:g} s, as many to score on.",
        "The width of intervals was chosen on small generated tables (see `small`), not on these splits.",
        "Splits of one table share rows, so cases are not independent; with about 230 of them the share covered has a "
        "standard error of at least 1.4 points.",
        f"Random labels: {CHANCE_ROWS} rows, two equally frequent classes; the truth is 0.5.",
    ]


def draw(found: Sequence[dict[str, Any]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=7.5)
    distance = np.clip([case["distance"] for case in found if case["kind"] != "random labels"], -4, 4)
    edges = np.linspace(-4, 4, 33)
    axis.hist(distance, edges, color=COLORS["native"], label="searches")
    middle = np.linspace(-4, 4, 161)
    expected = len(distance) * (edges[1] - edges[0]) * np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi)
    axis.plot(middle, expected, color="0.3", label="if the estimate is right")
    for bound in (-Z, Z):
        axis.axvline(bound, color="0.3", linestyle=":")
    axis.set(xlabel="score on new rows less the estimate, in standard errors", ylabel="searches")
    axis.legend(frameon=False)
    return figure

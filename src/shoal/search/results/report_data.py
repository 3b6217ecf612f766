"""A finished search in numbers and words: what its report and the screen show, from its result."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.machine import peak_memory, processor, thread_count
from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION
from shoal.models.model import Model
from shoal.search.options import BEST
from shoal.search.problem.problem import has_texts
from shoal.search.results.leaderboard import variance_shares
from shoal.search.results.report_rows import one_row
from shoal.search.results.result import Conclusion, SearchResult, report_parts
from shoal.search.rounds.candidates import Candidate
from shoal.search.scoring.honest import HonestScore
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table

ROWS_SHOWN = 10_000  # of the leaderboard
POINTS_SHOWN = 2_000  # of predictions against true values
BINS = 10
TIMED_ROWS = 1_000
TIMED_TEXTS = 100
NO_DIFFERENCE = 0.00005  # shown as 0.0000


@dataclass
class Context:
    """What a search was not told."""

    title: str
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None
    before: dict[str, float] = field(default_factory=dict)  # seconds of what was done before the fit


def report_data(result: SearchResult, context: Context) -> dict[str, Any]:
    """Data of `shoal.report.search_page`, in values that JSON knows."""
    from shoal.version import __version__

    outcome = result.outcome
    kind = outcome.model.task.kind
    classes = None if result.data.classes is None else [str(name) for name in result.data.classes]
    return {
        "title": context.title,
        "created": datetime.datetime.now().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
        "task": kind,
        "data": _data(result, context, classes),
        "search": _search(result, context),
        "score": _score(result.problem, result.search.metric, outcome),
        "explanation": None if result.explanation is None else result.explanation.as_dict(),
        "one_row": one_row(result, classes),
        "ensemble": _ensemble(result),
        "leaderboard": _board(outcome),
        "curves": _curves(outcome),
        "luck": variance_shares(outcome.groups),
        "confusion": _confusion(result.problem, outcome, classes) if kind == CLASSIFICATION else None,
        "residuals": _residuals(result.problem, outcome) if kind == REGRESSION else None,
        "calibration": _calibration(result.problem, outcome) if kind != REGRESSION else None,
    }


def _data(result: SearchResult, context: Context, classes: list[str] | None) -> dict[str, Any]:
    X, schema = result.table, result.model.schema
    table = [
        {"name": column.name, "kind": column.kind, "missing": float(missing_cells(cells).mean()), "note": column.note}
        for column, cells in zip(schema.columns, X.columns, strict=True)
    ]
    return {
        "rows": len(X), "columns": len(X.names), "target": result.data.target_name, "classes": classes,
        "notes": list(context.notes), "table": table,
    }  # fmt: skip


def _search(result: SearchResult, context: Context) -> dict[str, Any]:
    search, folds = result.search, len(result.problem.folds)
    phases = context.before | result.phases
    threads = search.limits.threads
    return {
        "strategy": str(result.options.strategy),
        "recipes": len(result.outcome.board),
        "networks": sum(candidate.epochs > 0 for candidate in search.candidates) * folds,
        "folds": folds,
        "cv": result.cv,
        "epochs": int(search.costs.network_epochs),
        "seconds": sum(phases.values()) if context.seconds is None else context.seconds,
        "memory": peak_memory(),
        "budget": result.options.budget,
        "seed": result.options.seed,
        "threads": thread_count() if threads is None else threads,
        "processor": processor(),
        "trained_on": result.trained_on,
        "phases": [{"name": name, "seconds": seconds} for name, seconds in phases.items()],
        "space": result.space,
        "interrupted": result.ended == "interrupted",
        "effort": result.effort.as_dict(),
        "skipped": skipped(result),
    }


def skipped(result: SearchResult) -> list[dict[str, Any]]:
    """Recipes that nobody could train, and why."""
    return [{"recipe": one.number, "label": str(one.recipe), "reason": one.skip_reason} for one in result.skipped]


# ---- scores ----


def chance(problem: Any, metric: Any) -> float:
    """The score of always giving the same answer, the best one that needs no columns."""
    weight, task = problem.valid_weight, problem.task
    share = weight / weight.sum()
    y = problem.y.reshape(problem.n, -1)
    if task.kind == CLASSIFICATION:
        shares = np.bincount(problem.y, weights=share, minlength=task.n_outputs)
        kept = slice(None) if task.n_outputs == 2 else [int(shares.argmax())]  # no score prefers a rarer one of many
        answers = [shares, *np.eye(task.n_outputs)[kept]]
    elif task.kind == MULTILABEL:
        answers = [share @ y, np.ones(task.n_outputs)]
    else:
        answers = [share @ y, np.array([_median(column, share) for column in y.T])]
    same = [np.broadcast_to(answer, (problem.n, task.n_outputs)) for answer in answers]
    return max(float(metric.score(task, each, problem.y, weight)) for each in same)


def _median(values: np.ndarray, share: np.ndarray) -> float:
    """The value at which half of the weight is reached."""
    order = np.argsort(values)
    return float(values[order[np.searchsorted(np.cumsum(share[order]), 0.5)]])


def _score(problem: Any, metric: Any, outcome: Conclusion) -> dict[str, Any]:
    honest = outcome.honest.as_dict()
    honest.pop("bootstraps", None)
    return honest | {"chance": chance(problem, metric), "others": _others(problem, metric, outcome)}


def _others(problem: Any, metric: Any, outcome: Conclusion) -> dict[str, float]:
    """Other scores of the same out-of-fold predictions, in the sense that people know them by."""
    weight = problem.valid_weight
    scored = np.flatnonzero(weight > 0)
    task, p, y, w = problem.task, outcome.out_of_fold[scored], problem.y[scored], weight[scored]

    def score(name: str) -> float:
        return float(METRICS[name].score(task, p, y, w))

    if task.kind == REGRESSION:
        found = {
            "r2": score("r2"),
            "root mean squared error": float(np.sqrt(-score("neg_mean_squared_error"))),
            "mean absolute error": -score("neg_mean_absolute_error"),
        }
    else:
        found = {"accuracy": score("accuracy"), "log-loss": -score("neg_log_loss")}
        if task.kind == CLASSIFICATION:
            found["balanced_accuracy"] = score("balanced_accuracy")
        if task.kind == CLASSIFICATION and task.n_outputs == 2 and len(np.unique(y)) == 2:
            found["roc_auc"] = score("roc_auc")
    return {name: value for name, value in found.items() if name != metric.name}


def _ensemble(result: SearchResult) -> dict[str, Any]:
    outcome = result.outcome
    parts = report_parts(outcome)
    return {
        "used": result.options.model != BEST,
        "recipes": len(parts),
        "networks": len(outcome.model),
        "parameters": outcome.model.parameters,
        "best_single": outcome.best_pooled,
        "score": outcome.ensemble_score,
        "gain": outcome.ensemble_score - outcome.best_pooled,
        "milliseconds_per_1000_rows": _milliseconds(outcome.model, result.table),
        "parts": parts,
    }


def _milliseconds(model: Model, X: Table) -> float:
    """What 1,000 rows take to predict. Of texts, which take long, few are tried, and one row for what is fixed."""
    rows = min(len(X), TIMED_TEXTS if has_texts(model.schema) else TIMED_ROWS)

    def seconds(count: int) -> float:
        part = X.take(np.arange(count))
        begun = time.perf_counter()
        model.predict(part)
        return time.perf_counter() - begun

    fixed = seconds(1) if rows < TIMED_ROWS else 0.0
    each = max(seconds(rows) - fixed, 0.0) / rows
    return (fixed + TIMED_ROWS * each) * 1e3


# ---- recipes ----


def _board(outcome: Conclusion) -> dict[str, Any]:
    columns = {name: values[:ROWS_SHOWN] for name, values in outcome.board.columns.items() if name != "label"}
    described = [
        {"key": name, "label": name.replace("_", " "), "kind": _kind(values)} for name, values in columns.items()
    ]
    return {"columns": described, "rows": [list(row) for row in zip(*columns.values(), strict=True)]}


def _kind(values: list[Any]) -> str:
    return "text" if any(isinstance(value, str) for value in values) else "number"


def _curves(outcome: Conclusion) -> list[dict[str, Any]]:
    """Losses by epoch of the best candidate, and of the one in the middle of those that were trained to the end."""
    ended = [candidates[0] for candidates in outcome.groups if all(candidate.finished for candidate in candidates)]
    shown = {"best": outcome.best}
    if len(ended) > 2:
        shown["median"] = ended[len(ended) // 2]
    number = {candidate.number: candidates[0].number for candidates in outcome.groups for candidate in candidates}
    return [
        _curve(label, number[candidate.number], candidate)
        for label, candidate in shown.items()
        if len(candidate.train_curve)
    ]


def _curve(label: str, recipe: int, candidate: Candidate) -> dict[str, Any]:
    return {
        "label": label,
        "recipe": recipe,
        "epochs": list(range(1, len(candidate.train_curve) + 1)),
        "train": candidate.train_curve.tolist(),
        "valid": candidate.valid_curve.tolist(),
    }


# ---- mistakes ----


def _counted(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows that were scored, and how many rows of the table each of them stands for."""
    scored = np.flatnonzero(problem.valid_weight > 0)
    return scored, np.bincount(problem.row_of, minlength=problem.n)[scored]


def _confusion(problem: Any, outcome: Conclusion, classes: list[str] | None) -> dict[str, Any]:
    scored, count = _counted(problem)
    matrix = np.zeros((problem.task.n_outputs, problem.task.n_outputs), dtype=np.int64)
    np.add.at(matrix, (problem.y[scored], outcome.out_of_fold[scored].argmax(axis=1)), count)
    return {"classes": classes, "counts": matrix.tolist()}


def _residuals(problem: Any, outcome: Conclusion) -> dict[str, Any] | None:
    if problem.task.n_outputs != 1:
        return None
    scored, _ = _counted(problem)
    if len(scored) > POINTS_SHOWN:
        scored = np.sort(np.random.default_rng(0).choice(scored, POINTS_SHOWN, replace=False))
    return {"true": problem.y[scored, 0].tolist(), "predicted": outcome.out_of_fold[scored, 0].tolist()}


def _calibration(problem: Any, outcome: Conclusion) -> dict[str, Any]:
    """How often what was said came true. For two classes of the second one, for more of the one that was predicted."""
    scored, count = _counted(problem)
    p, y = outcome.out_of_fold[scored], problem.y[scored]
    if problem.task.kind == MULTILABEL:
        said, so, count = p.ravel(), y.ravel() > 0.5, np.repeat(count, p.shape[1])
    elif problem.task.n_outputs == 2:
        said, so = p[:, 1], y == 1
    else:
        said, so = p.max(axis=1), p.argmax(axis=1) == y
    place = np.minimum((said * BINS).astype(np.int64), BINS - 1)
    bins, error = [], 0.0
    for k in np.unique(place):
        inside = place == k
        rows = int(count[inside].sum())
        predicted = float(said[inside] @ count[inside] / rows)
        observed = float(so[inside] @ count[inside] / rows)
        error += abs(predicted - observed) * rows / count.sum()
        bins.append({"predicted": predicted, "observed": observed, "count": rows})
    return {"bins": bins, "error": float(error), "temperature": float(outcome.model.temperature)}


# ---- words ----


def honest_words(
    honest: HonestScore, guess: float, target: str, recipes: int, averaged: str = "all folds"
) -> list[str]:
    """The honest score for somebody who has never heard of cross-validation.

    `averaged`: whose networks the model averages; those of one fold are as they were measured.
    """
    if honest.problem:
        said = honest.problem[0].upper() + honest.problem[1:]
        return [f"{said}. The measured score is {honest.raw:.4f}; part of it may be luck."]
    words = list(_expectation(honest, guess, target))
    if guess > honest.high:
        words.append("Guessing is better than the whole interval: do not use this model on new rows.")
    elif guess >= honest.low:
        words.append("Guessing is within the interval, so the model may have learned nothing.")
    luck = honest.raw - (honest.corrected - honest.averaging)
    said, who = f"On held-out rows it scored {honest.raw:.4f}.", "Shoal"
    if luck >= NO_DIFFERENCE:
        many = f"{recipes:,} recipe{'s' * (recipes != 1)}"
        said, who = f"{said} Shoal subtracts {luck:.4f} because it is the best of {many}.", "It"
    if abs(honest.averaging) >= NO_DIFFERENCE:
        said += (
            f" {who} {'adds' if honest.averaging >= 0 else 'subtracts'} {abs(honest.averaging):.4f} because the model "
            f"averages the networks of {averaged}, while the measured score is that of one fold at a time."
        )
    return [*words, said]


def _expectation(honest: HonestScore, guess: float, target: str) -> tuple[str, str]:
    """What to expect of new rows, and what would come of guessing."""
    low, high = honest.low, honest.high
    if honest.metric == "accuracy":
        said = (
            f"On new rows like these, expect about {_in_100(honest.corrected, 'right answer')} "
            f"({honest.confidence:.0%} confidence: {_of_100(low)} to {_of_100(high)})."
        )
        base = f"Always giving the commonest answer is right {_in_100(guess, 'time')}."
    elif honest.metric == "r2":
        said = (
            f"On new rows like these, expect about {max(honest.corrected, 0):.0%} of the differences in {target} to be "
            f"explained (R2 {honest.corrected:.3f}; {honest.confidence:.0%} confidence: {low:.3f} to {high:.3f})."
        )
        base = "Always predicting the mean explains nothing (R2 0)."
    elif honest.metric == "roc_auc":
        said = (
            f"Of two new rows like these, one of a class and one of another, expect the right one to get the higher "
            f"probability {_in_100(honest.corrected, 'time')} (area under the ROC curve {honest.corrected:.3f}; "
            f"{honest.confidence:.0%} confidence: {low:.3f} to {high:.3f})."
        )
        base = "Guessing does so 50 times in 100."
    elif honest.metric == "neg_mean_absolute_error":
        said = (
            f"On new rows like these, expect to miss {target} by about {-honest.corrected:.4g} on average "
            f"({honest.confidence:.0%} confidence: {-high:.4g} to {-low:.4g})."
        )
        base = f"Always predicting the median misses it by {-guess:.4g}."
    else:
        known = METRICS.get(honest.metric)
        label = honest.metric.replace("_", " ") if known is None else known.label
        article = "an" if label[0] in "aeiouF" else "a"  # an F1 score
        said = (
            f"On new rows like these, expect {article} {label} of about {honest.corrected:.4g} "
            f"({honest.confidence:.0%} confidence: {low:.4g} to {high:.4g}); higher is better."
        )
        base = f"Always giving the same answer scores {guess:.4g}."
    return said, base


def _in_100(share: float, noun: str) -> str:
    """
    >>> _in_100(0.931, "time"), _in_100(0.01, "time")
    ('93.1 times in 100', '1 time in 100')
    """
    number = _of_100(share)
    return f"{number} {noun}{'' if number == '1' else 's'} in 100"


def _of_100(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.1f}".removesuffix(".0")

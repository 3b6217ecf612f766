"""What trackers write: the events of any run as plain names and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.runs.kinds import BOARD, HISTORY, MODEL, REPORT, SETTINGS, STATE_DICT

CURVE_POINTS = 20  # of a recipe
Values = dict[str, Any]
Scores = dict[str, float]


@dataclass(frozen=True)
class TriedRecipe:
    """A row of the leaderboard."""

    name: str
    parameters: Values
    scores: Scores
    curve: list[tuple[int, Scores]]  # by epochs done


def numbers(values: Mapping[str, Any]) -> Scores:
    """Those that are finite numbers.

    >>> numbers({"loss": 0.5, "who": "me", "score": float("nan"), "sure": True, "n": np.int64(3)})
    {'loss': 0.5, 'n': 3.0}
    """
    known = {name: value for name, value in values.items() if isinstance(value, int | float | np.number)}
    return {name: float(value) for name, value in known.items()
            if not isinstance(value, bool) and math.isfinite(value)}  # fmt: skip


# ---- what is asked ----


def parameters(event: Any) -> Values:
    """Of `started`."""
    found = {one.name: getattr(event, one.name) for one in fields(event)} if is_dataclass(event) else {}
    options, _, _ = found.pop("options", None), found.pop("journal", None), found.pop("workplace", None)
    found = {name: value for name, value in found.items() if isinstance(value, int | float | str)}
    asked = {} if options is None else options.as_dict()
    return {name: _plain(value) for name, value in (asked | found).items() if value is not None}


def _plain(value: Any) -> Any:
    """Objects of the user's, such as strategies, by what they say of themselves."""
    return value if isinstance(value, bool | int | float | str | list | np.generic) else str(value)


# ---- what happens ----


def scores(event: Any) -> Scores:
    """Of `step_ended`."""
    kind = type(event).__name__
    return STEPS[kind](event) if kind in STEPS else {}


def _of_rung(event: Any) -> Scores:
    known = [one.score for one in event.trained if math.isfinite(one.score)]
    found = {"best_score": max(known), "median_score": float(np.median(known))} if known else {}
    return found | {"trained": len(event.trained), "kept": len(event.kept)}


def _of_history(history: Any) -> Scores:
    """The medians over networks, and the best score."""
    found = {}
    for name in ("loss", "valid_loss", "valid_score"):
        known = history.last(name)
        known = known[np.isfinite(known)]
        if len(known):
            found[f"median_{name}"] = float(np.median(known))
    if "median_valid_score" in found:
        found["best_valid_score"] = float(known.max())
    return found


STEPS: dict[str, Callable[[Any], Scores]] = {
    "EpochEnded": lambda event: numbers(event.record),
    "Evaluated": lambda event: {"test_loss": event.loss},
    "FoldEnded": lambda event: numbers(event.metrics),
    "History": _of_history,
    "RungEnded": _of_rung,
}


def place_of(event: Any) -> int | None:
    """The step or the epoch of `step_ended`, counted from 1; None: it does not say."""
    epoch = getattr(event, "epoch", None) if type(event).__name__ == "EpochEnded" else None
    step = getattr(event, "step", None)
    return step if epoch is None else int(epoch) + 1


# ---- what was found ----


def results(result: Any) -> Scores:
    """Of `finished`."""
    kind = type(result).__name__
    return numbers(RESULTS[kind](result)) if kind in RESULTS else {}


def _of_search(result: Any) -> Values:
    outcome = result.outcome
    honest = outcome.honest
    return {
        "honest_score": honest.corrected, "honest_low": honest.low, "honest_high": honest.high,
        "honest_confidence": honest.confidence, "measured_score": honest.raw,
        "recipes": len(outcome.board), "networks": len(result.candidates) * len(result.problem.folds),
        "recipes_in_the_model": len({part.recipe for part in outcome.model.parts}),
        "skipped_recipes": len(result.skipped), "seconds": sum(result.phases.values()),
    }  # fmt: skip


RESULTS: dict[str, Callable[[Any], Values]] = {
    "FinetuneResult": vars,
    "History": lambda history: _of_history(history) | {"seconds": history.seconds},
    "Result": lambda result: result.metrics,
    "SearchResult": _of_search,
}


def metric_of(result: Any) -> str:
    """The name of the score of a search."""
    return str(result.outcome.honest.metric) if type(result).__name__ == "SearchResult" else ""


def tried(result: Any, most: int) -> list[TriedRecipe]:
    """The best recipes of a search."""
    if type(result).__name__ != "SearchResult":
        return []
    outcome, found = result.outcome, []
    for row, settings, group in zip(outcome.board[:most], outcome.params, outcome.groups, strict=False):
        known = ("rank", "score", "loss", "fold_spread", "seed_spread", "epochs", "parameters", "seconds")
        given = {name: value for name, value in settings.items() if value is not None}
        found.append(TriedRecipe(row["label"], given, numbers({name: row[name] for name in known}), _curve(group[0])))
    return found


def _curve(candidate: Any) -> list[tuple[int, Scores]]:
    """The mean losses over folds, thinned; epochs count from 1."""
    curves = {"train_loss": candidate.train_curve, "valid_loss": candidate.valid_curve}
    length = max(map(len, curves.values()))
    chosen = np.unique(np.linspace(0, length - 1, CURVE_POINTS).astype(int)).tolist() if length else []
    return [
        (epoch + 1, numbers({name: curve[epoch] for name, curve in curves.items() if epoch < len(curve)}))
        for epoch in chosen
    ]


# ---- files ----

FILES = {
    "FinetuneResult": (REPORT, SETTINGS),  # its model may be large, and is in the run folder
    "Result": (SETTINGS, HISTORY, STATE_DICT, MODEL),
    "SearchResult": (REPORT, BOARD, SETTINGS, MODEL),
}


def files_of(result: Any, folder: Path) -> list[Path]:
    """What there is to log of a folder."""
    names = FILES.get(type(result).__name__, ())
    return [folder / name for name in names if (folder / name).exists()]


def write_files(result: Any, folder: Path) -> None:
    """The model, the report and the leaderboard of a search that has no run folder."""
    if type(result).__name__ != "SearchResult":
        return
    from shoal.models.saving import save
    from shoal.report import write_search_page
    from shoal.search.estimators import fitted_estimator
    from shoal.search.results.report_data import Context, report_data

    notes = [note.for_python() for note in result.data.notes]
    save(fitted_estimator(result, None), folder / MODEL)
    result.outcome.board.to_csv(folder / BOARD)
    write_search_page(report_data(result, Context(f"{len(result.table):,} rows", notes)), folder / REPORT)

"""The leaderboard: one row for every recipe, best first."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.console.notebook import InNotebook
from shoal.files import atomic
from shoal.search.rounds.candidates import Candidate
from shoal.search.space import Recipe


class Leaderboard(InNotebook):
    """A table of recipes. `board["score"]` is a column, `board[0]` a row; `board.to_pandas()` a DataFrame."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            return np.array(self.columns[key])
        if isinstance(key, slice):
            return Leaderboard({name: values[key] for name, values in self.columns.items()})
        return {name: values[key] for name, values in self.columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[k] for k in range(len(self)))

    def to_pandas(self) -> Any:
        import pandas  # noqa: F401, ModuleNotFoundError where there is none

        from shoal.search.results.frame import LeaderboardFrame

        return LeaderboardFrame(self.columns)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        with atomic.new_file(Path(path)) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(
                ["" if cell is None else cell for cell in row] for row in zip(*self.columns.values(), strict=True)
            )

    def __repr__(self) -> str:
        lines = [f"Leaderboard of {len(self)} recipe{'s' * (len(self) != 1)}"]
        for row in self[:10]:
            lines.append(f"{row['rank']:>5}  {row['score']:.4f} +- {row['fold_spread']:.4f}  {row['label']}")
        return "\n".join(lines)


def group(candidates: Sequence[Candidate]) -> dict[Recipe, list[Candidate]]:
    """Candidates with a result by recipe, seeds together, in the order in which recipes were first tried."""
    groups: dict[Recipe, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.epochs:
            groups.setdefault(candidate.key, []).append(candidate)
    return groups


def make_leaderboard(
    candidates: Sequence[Candidate], parameters: dict[int, int]
) -> tuple[Leaderboard, list[list[Candidate]]]:
    """The board, and the candidates behind each of its rows. Recipes that were trained to the end come first.

    A row is about the seeds that were trained to the end, where there are any: the clock may have cut off others.
    """
    groups = [[one for one in g if one.finished] or g for g in group(candidates).values()]
    groups.sort(
        key=lambda g: (
            not all(one.finished for one in g),
            -_mean([one.score for one in g]),
            _mean([one.loss for one in g]),
        )
    )
    rows = [_row(rank, members, parameters) for rank, members in enumerate(groups, 1)]
    names = list(rows[0]) if rows else []
    return Leaderboard({name: [row[name] for row in rows] for name in names}), groups


def _row(rank: int, candidates: Sequence[Candidate], parameters: dict[int, int]) -> dict[str, Any]:
    recipe, member = candidates[0].recipe, candidates[0].recipe.member
    scores = np.array([candidate.fold_scores for candidate in candidates])
    finite = bool(np.isfinite(scores).all())
    by_seed = scores.mean(axis=1)
    return {
        "rank": rank,
        "recipe": candidates[0].number,
        "score": _mean([candidate.score for candidate in candidates]),
        "fold_spread": float(scores.mean(axis=0).std(ddof=1)) if finite and scores.shape[1] > 1 else 0.0,
        "seed_spread": float(by_seed.std(ddof=1)) if finite and len(candidates) > 1 else None,
        "loss": _mean([candidate.loss for candidate in candidates]),
        "hidden": "x".join(map(str, member.hidden)) if member.hidden else "linear",
        "width": sum(member.hidden),
        "activation": member.activation if member.hidden else "linear",
        "encoding": recipe.encoding,
        "optimizer": member.optimizer,
        "learning_rate": member.learning_rate,
        "weight_decay": member.weight_decay,
        "dropout": member.dropout,
        "batch_size": member.batch_size,
        "label_smoothing": member.label_smoothing,
        "epochs": min(candidate.epochs for candidate in candidates),
        "stopped": "" if all(candidate.finished for candidate in candidates) else "yes",
        "seeds": len(candidates),
        "parameters": parameters[candidates[0].number],
        "seconds": sum(candidate.seconds for candidate in candidates),
        "label": str(recipe),
    }


def variance_shares(groups: Sequence[Sequence[Candidate]]) -> dict[str, float] | None:
    """How much of the spread of scores is architecture, seed and fold; None where there are too few to tell.

    Over candidates trained to the end. A score on a fold is taken as the sum of an effect of the recipe, one of the
    seed and one of the fold; variances within a level are taken off the level above it.
    """
    ended = [[one for one in g if one.finished] for g in groups]
    ended = [g for g in ended if g]
    several = [g for g in ended if len(g) > 1]
    if len(ended) < 3 or not several or len(ended[0][0].fold_scores) < 2:
        return None
    folds = np.array([one.fold_scores for g in ended for one in g])
    seed = float(np.mean([np.var([one.score for one in g], ddof=1) for g in several]))
    means = np.array([_mean([one.score for one in g]) for g in ended])
    architecture = max(float(np.var(means, ddof=1)) - seed * float(np.mean([1 / len(g) for g in ended])), 0.0)
    fold = max(float(np.var(folds.mean(axis=0), ddof=1)), 0.0)
    total = architecture + seed + fold
    if total <= 0:
        return None
    return {"architecture": architecture / total, "seeds": seed / total, "folds": fold / total}


def _mean(values: Sequence[float]) -> float:
    """Infinite where any value is: scores that diverged are minus infinity, losses plus infinity."""
    return float(np.sum(values) / len(values))


# ---- as scikit-learn's searches have it ----


def cv_results(board: Leaderboard, fold_scores: np.ndarray, params: list[dict[str, Any]]) -> dict[str, Any]:
    """In scikit-learn's form: one entry per recipe, in the order of the leaderboard. fold_scores (recipes, folds)."""
    finite = np.isfinite(fold_scores).all(axis=1)
    results: dict[str, Any] = {f"split{k}_test_score": scores for k, scores in enumerate(fold_scores.T.copy())}
    results["mean_test_score"] = board["score"]
    results["std_test_score"] = np.where(finite, np.where(finite[:, None], fold_scores, 0.0).std(axis=1), np.nan)
    results["rank_test_score"] = board["rank"].astype(np.int32)
    results["mean_fit_time"] = board["seconds"] / (board["seeds"] * fold_scores.shape[1])  # of one network
    results["params"] = params
    for name in params[0]:
        results[f"param_{name}"] = column = np.empty(len(params), dtype=object)
        column[:] = [recipe[name] for recipe in params]
    return results

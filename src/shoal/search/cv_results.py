"""Results of a search in the form that scikit-learn's searches have."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.search.result import Outcome


def cv_results(outcome: Outcome) -> dict[str, Any]:
    """In scikit-learn's form: one entry per recipe, in the order of the leaderboard."""
    board = outcome.board
    scores = np.array([np.mean([one.fold_scores for one in candidates], axis=0) for candidates in outcome.groups])
    results: dict[str, Any] = {f"split{k}_test_score": scores[:, k] for k in range(scores.shape[1])}
    results["mean_test_score"] = board["score"]
    finite = np.isfinite(scores).all(axis=1)
    results["std_test_score"] = np.where(finite, np.where(finite[:, None], scores, 0.0).std(axis=1), np.nan)
    results["rank_test_score"] = board["rank"].astype(np.int32)
    results["mean_fit_time"] = board["seconds"] / (board["seeds"] * scores.shape[1])
    chosen = [
        candidates[0] if place != outcome.place else outcome.best for place, candidates in enumerate(outcome.groups)
    ]
    results["params"] = [
        candidate.recipe.member.as_dict() | {"encoding": candidate.recipe.encoding} for candidate in chosen
    ]
    return results | param_columns(results["params"])


def param_columns(params: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """`param_hidden` and the like: a column of `cv_results_` for each field."""
    columns = {}
    for name in params[0]:
        columns[f"param_{name}"] = column = np.empty(len(params), dtype=object)
        column[:] = [recipe[name] for recipe in params]
    return columns

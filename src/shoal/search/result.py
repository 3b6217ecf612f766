"""From trained candidates to what a user gets: an ensemble, a model, a leaderboard and an honest score."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.layout import Layout
from shoal.metrics.metric import Metric
from shoal.models.model import Model
from shoal.search.averaging import FoldPredictions, averaging_gain, best_temperature
from shoal.search.candidates import Candidate, Pool, candidate_cost
from shoal.search.ensemble import weigh
from shoal.search.final_model import make_model
from shoal.search.honest import BOOTSTRAPS, ENSEMBLE_CANDIDATES, Evidence, HonestScore, correct
from shoal.search.leaderboard import Leaderboard, make_leaderboard
from shoal.search.loop import Search
from shoal.search.problem import Problem
from shoal.search.timing import Effort

FULL = Effort()

AVERAGING_ROWS, FEWEST_AVERAGING_ROWS = 1 << 14, 500  # times folds, of the estimate of what averaging adds


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that a search found out."""

    model: Model
    board: Leaderboard
    groups: list[list[Candidate]]  # candidates behind each row of the board
    place: int  # row of the best recipe that has weights: nearly always the first one
    best: Candidate  # its best seed
    chosen: list[Candidate]  # of the ensemble
    shares: np.ndarray  # their weights
    honest: HonestScore  # of the model
    honest_best: HonestScore  # of the best single recipe
    out_of_fold: np.ndarray  # (n, n_outputs) of the model, for distinct rows
    ensemble_score: float  # of its out-of-fold predictions
    best_pooled: float  # the same for the best candidate alone


def conclude(
    search: Search,
    ensemble: bool,
    seconds: float,
    refit: Problem | None = None,
    group: np.ndarray | None = None,
    bootstraps: int | None = None,
    effort: Effort = FULL,
    hurry: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Pick, weigh, correct.

    seconds     for the honest score, roughly
    refit       the whole data as one fold, to train the picked recipes on anew
    group       of each distinct row
    bootstraps  that the honest score takes, whatever time that needs; for a run to be repeated
    effort      candidates and rows to be content with, where time is short
    hurry       whether the user has asked for an end since that was decided
    """
    problem, task, metric = search.problem, search.problem.task, search.metric
    candidates = search.best_candidates()
    if not candidates:
        raise ValueError(_nothing(search))
    weight = problem.valid_weight
    board, groups = make_leaderboard(search.candidates, _parameter_counts(search))
    place, best = _first_with_weights(groups, candidates)
    chosen, shares = _choose(problem, candidates, effort) if ensemble else ([best], np.ones(1))
    predictions = [u.prediction for u in chosen if u.prediction is not None]
    combined = np.tensordot(shares, np.array(predictions), axes=1)
    scored = np.flatnonzero(weight > 0)
    folds = _fold_predictions(search, chosen, shares, effort, averaged=refit is None)
    temperature = best_temperature(folds, search.limits.seed)
    combined = task.temper(combined, temperature)
    combined_score = float(metric.score(task, combined[scored], problem.y[scored], weight[scored]))
    steady = replace(metric, otherwise=combined_score)
    alone = _fold_predictions(search, [best], np.ones(1), effort, averaged=refit is None)
    gains = (
        averaging_gain(folds, steady, temperature, search.limits.seed),
        averaging_gain(alone, steady, temperature if not ensemble else 1.0, search.limits.seed),
    )
    honest, honest_best = _correct(
        search, steady, best, (combined, temperature), ensemble,
        (seconds, bootstraps, hurry), group, effort.sampled, gains,
    )  # fmt: skip
    if not np.isfinite(honest.corrected):
        warnings.warn(
            f"no recipe's predictions have a finite {metric.label}, so there is no honest score; use another scoring",
            UserWarning,
            stacklevel=2,
        )
    recipe_of = {candidate.number: members[0].number for members in groups for candidate in members}
    members = chosen
    if refit is not None:
        chosen, shares = _fitting(search, refit, chosen, shares)
        members = _train_again(search, refit, chosen)
    recipe_of |= {new.number: recipe_of[old.number] for new, old in zip(members, chosen, strict=True)}
    model = make_model(refit or problem, members, shares.tolist(), recipe_of, temperature)
    assert best.prediction is not None
    return Outcome(
        model, board, groups, place, best, chosen, shares, honest, honest_best, combined,
        combined_score, float(metric.score(task, best.prediction[scored], problem.y[scored], weight[scored])),
    )  # fmt: skip


def _first_with_weights(
    groups: Sequence[Sequence[Candidate]], candidates: Sequence[Candidate]
) -> tuple[int, Candidate]:
    """The highest row of the board of which there still are weights, and its best candidate."""
    alive = {candidate.number for candidate in candidates}
    for place, members in enumerate(groups):
        mine = [candidate for candidate in members if candidate.number in alive]
        if mine:
            return place, max(mine, key=lambda candidate: (candidate.score, -candidate.loss))
    raise AssertionError("candidates are candidates, and every candidate with a result has a row")


def spread(rows: np.ndarray, count: int | None) -> np.ndarray:
    """So many of the rows, evenly taken; all of them for None. Their order is that of a hash, so they are as drawn."""
    return rows if count is None else rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]


def _choose(problem: Problem, candidates: Sequence[Candidate], effort: Effort) -> tuple[list[Candidate], np.ndarray]:
    """An ensemble of the candidates with the lowest loss."""
    few = candidates[: effort.candidates or ENSEMBLE_CANDIDATES]
    weight = problem.loss_weight
    scored = spread(np.flatnonzero(weight > 0), effort.ensemble_rows)
    loss_inputs = np.array([problem.task.loss_inputs(_prediction(u)[scored], problem.y[scored]) for u in few])
    shares = weigh(problem.task, loss_inputs, problem.y[scored], weight[scored], problem.loss_scale)
    taken = np.flatnonzero(shares).tolist()
    return [few[k] for k in taken], shares[taken]


def _fold_predictions(
    search: Search, candidates: Sequence[Candidate], shares: np.ndarray, effort: Effort, averaged: bool
) -> FoldPredictions:
    """What the networks of each fold, weighed as in the model, say of some of the rows kept for honest estimates."""
    problem, task = search.problem, search.problem.task
    most = max(AVERAGING_ROWS // len(problem.folds), FEWEST_AVERAGING_ROWS)
    count = min(effort.sampled or most, most, len(search.sample_rows))
    rows = spread(search.sample_rows, count)
    total = np.zeros((len(problem.folds), len(rows), task.n_outputs))
    for k in range(len(problem.folds)):
        inputs = {
            encoding: problem.inputs[encoding][rows + k * problem.n]
            for encoding in {u.recipe.encoding for u in candidates}
        }
        for candidate, share in zip(candidates, shares, strict=True):
            assert candidate.pool is not None
            total[k] += share * candidate.pool.predict(
                candidate, k, inputs[candidate.recipe.encoding], search.limits.threads
            )
    held_out = np.array([fold.valid[rows] > 0 for fold in problem.folds])
    seen = np.array([fold.train[rows] > 0 for fold in problem.folds]) & ~held_out
    return FoldPredictions(
        task, total, held_out, seen, problem.y[rows], problem.valid_weight[rows], problem.loss_weight[rows],
        problem.loss_scale, averaged,
    )  # fmt: skip


def _correct(
    search: Search,
    metric: Metric,
    best: Candidate,
    final: tuple[np.ndarray, float],
    ensemble: bool,
    effort: tuple[float, int | None, Callable[[], bool]],
    group: np.ndarray | None,
    sampled: int | None,
    gains: tuple[float, float],
) -> tuple[HonestScore, HonestScore]:
    """The honest scores of the model and of the best candidate alone; `gains`: what averaging over folds adds.

    `final` are the model's out-of-fold predictions and its temperature. `metric` says what to take for the score of
    rows that have none, such as those of one class left out by a draw.
    """
    problem, places = search.problem, spread(np.arange(len(search.sample_rows)), sampled)
    rows = search.sample_rows[places]
    samples = [candidate.sample[places] for candidate in search.candidates if candidate.sample is not None]
    evidence = Evidence(
        problem.task, metric, np.array(samples), problem.y[rows],
        problem.valid_weight[rows], problem.loss_weight[rows], problem.loss_scale,
        None if group is None else group[rows],
    )  # fmt: skip
    seconds, bootstraps, hurry = effort
    count, limit = (BOOTSTRAPS, seconds) if bootstraps is None else (bootstraps, np.inf)
    common: dict[str, Any] = {"seed": search.limits.seed, "bootstraps": count, "hurry": hurry, "now": search.clock.now}
    combined, common["temperature"] = final
    if not ensemble:
        single = correct(evidence, combined[rows], raw=best.score, seconds=limit, gain=gains[0], **common)
        return single, single
    model = correct(evidence, combined[rows], ensemble=True, seconds=limit, gain=gains[0], **common)
    common["temperature"] = 1.0
    return model, correct(evidence, _prediction(best)[rows], raw=best.score, seconds=limit / 3, gain=gains[1], **common)


def _fitting(
    search: Search, problem: Problem, chosen: Sequence[Candidate], shares: np.ndarray
) -> tuple[list[Candidate], np.ndarray]:
    """The parts with the largest shares that can be trained again in the time left; at least one."""
    left = search.clock.time_left()
    kept: list[int] = []
    for k in np.argsort(-shares, kind="stable").tolist():
        left -= search.rate * candidate_cost(problem, chosen[k].recipe) * chosen[k].target
        if kept and left < 0:
            break
        kept.append(k)
    return [chosen[k] for k in kept], shares[kept] / shares[kept].sum()


def _train_again(search: Search, problem: Problem, chosen: Sequence[Candidate]) -> list[Candidate]:
    """The chosen recipes on all rows, to the end: for splitters whose folds leave out much of the data."""
    candidates = [Candidate(len(search.candidates) + k, candidate.recipe) for k, candidate in enumerate(chosen)]
    for encoding in problem.inputs:
        mine = [candidate for candidate in candidates if candidate.recipe.encoding == encoding]
        if mine:
            until = {candidate.number: [candidate.target] for candidate in mine}
            Pool(problem, encoding, mine).train(until, search.limits.threads, search.limits.seed, lambda: False)
    return candidates


def _parameter_counts(search: Search) -> dict[int, int]:
    counts: dict[int, int] = {}
    for encoding, matrix in search.problem.inputs.items():
        mine = [candidate for candidate in search.candidates if candidate.recipe.encoding == encoding]
        if mine:
            layout = Layout([u.recipe.member for u in mine], matrix.shape[1], search.problem.task.n_outputs)
            counts |= dict(zip([u.number for u in mine], layout.counts.tolist(), strict=True))
    return counts


def _prediction(candidate: Candidate) -> np.ndarray:
    assert candidate.prediction is not None
    return candidate.prediction


def _nothing(search: Search) -> str:
    if search.ended == "interrupted":
        return "the search was interrupted before any network had been trained for an epoch; give it more time"
    if not any(candidate.epochs and np.isfinite(candidate.loss) for candidate in search.candidates) and any(
        u.epochs for u in search.candidates
    ):
        return "every network diverged: its losses became infinite; lower learning_rate, or set clip=1"
    return "no network could be trained in the time given: give a longer budget, fewer folds or smaller networks"


def report_parts(outcome: Outcome) -> list[dict[str, Any]]:
    """What the ensemble is made of, the largest share first; seeds of one recipe together."""
    shares: dict[int, dict[str, Any]] = {}
    for part in outcome.model.parts:
        entry = shares.setdefault(part.recipe, {"recipe": part.recipe, "label": part.label, "weight": 0.0})
        entry["weight"] += part.weight
    return sorted(shares.values(), key=lambda entry: -entry["weight"])

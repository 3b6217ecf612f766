"""From trained candidates to what a user gets: an ensemble, a model, a leaderboard and an honest score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.errors import NothingTrained, UserError
from shoal.metrics.metric import Metric
from shoal.models.compact import Compact, reduced
from shoal.models.model import FoldTransforms, Model, Part, bare, empty_networks
from shoal.population.layout import Layout
from shoal.population.population import Population
from shoal.search.budget.model import Ending
from shoal.search.budget.shares import Effort
from shoal.search.options import BEST, COMPACT
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import Problem, evenly
from shoal.search.results.leaderboard import make_leaderboard
from shoal.search.results.result import Conclusion
from shoal.search.rounds.candidates import Candidate, LocalTrainer, Order, candidate_cost
from shoal.search.rounds.loop import INTERRUPTED, Search
from shoal.search.rounds.training import Control
from shoal.search.scoring.averaging import FoldPredictions, averaging_gain, best_temperature
from shoal.search.scoring.calibrate import calibrate, held_out
from shoal.search.scoring.ensemble import choose_compact, equal_shares, weigh
from shoal.search.scoring.evidence import Evidence, Sampled
from shoal.search.scoring.honest import BOOTSTRAPS, CELLS_IN_MEMORY, HonestScore, ModelSelection, correct
from shoal.search.scoring.picks import ENSEMBLE_CANDIDATES

AVERAGING_ROWS, FEWEST_AVERAGING_ROWS = 1 << 14, 500  # times folds, of the estimate of what averaging adds


@dataclass(frozen=True, eq=False)
class Pick:
    """Candidates with their shares, as a model: what it says of rows that its networks did not train on."""

    chosen: list[Candidate]
    shares: np.ndarray
    folds: FoldPredictions  # of some rows, by fold
    temperature: float
    prediction: np.ndarray  # (n, n_outputs) out-of-fold, tempered
    parts: np.ndarray  # (chosen, n_folds, rows, n_outputs) `folds` of each candidate alone
    compact: bool = False  # picked to be few


def conclude(
    search: Search,
    deliver: str,
    ending: Ending,
    data: TrainingData,
    refit: Problem | None = None,
    group: np.ndarray | None = None,
) -> Conclusion:
    """Pick, weigh, correct.

    deliver  an ensemble, a compact one (the fewest networks that are about as good), or the best recipe
    data     that the problem was made of
    refit    the whole data as one fold, to train the picked recipes on anew
    group    of each distinct row
    """
    problem, task, metric = search.problem, search.problem.task, search.metric
    candidates = search.best_candidates()
    if not candidates:
        raise _nothing(search)
    board, groups = make_leaderboard(search.candidates, _parameter_counts(search))
    place, best = _first_with_weights(groups, candidates)
    alone = deliver == BEST
    chosen, shares = ([best], np.ones(1)) if alone else _choose(problem, candidates, ending.effort)
    averaged = refit is None
    model_pick = _ensemble(search, chosen, shares, ending.effort, averaged)
    few, few_pick = _compact(search, model_pick, ending.effort)
    if deliver == COMPACT:  # where none can be spared, it is the same pick
        model_pick = few_pick
    scored = np.flatnonzero(problem.valid_weight > 0)
    y, weight = problem.y[scored], problem.valid_weight[scored]
    ensemble_score = float(metric.score(task, model_pick.prediction[scored], y, weight))
    steady = replace(metric, otherwise=ensemble_score)  # for rows that have no score, such as those of one class
    evidence = _evidence(search, steady, ending.effort, group)
    honest = _honest(search, evidence, model_pick, ending, best=best if alone else None)
    if not honest.problem and not np.isfinite(honest.corrected):
        warnings.warn(
            f"no recipe's predictions have a finite {metric.label}, so there is no honest score; use another scoring",
            UserWarning,
            stacklevel=2,
        )
    recipe_of = {candidate.number: members[0].number for members in groups for candidate in members}
    model, chosen, shares = _model(search, model_pick, recipe_of, refit)
    unseen = held_out(search, chosen, shares, model_pick.temperature, data, ending.effort.sampled)
    if model_pick.compact:
        places = tuple(range(len(chosen)))
        model = reduced(model, replace(few, parts=places, temperature=model_pick.temperature))
    elif len(chosen) == len(model_pick.chosen):  # else there was no time to train all of them again
        model = replace(model, compact=few)
    kept = few.folds if model_pick.compact and refit is None else None
    certainty, unseen = calibrate(search, unseen, model, data, folds=kept)
    best_score = float(metric.score(task, _prediction(best)[scored], y, weight))
    return Conclusion(
        replace(model, certainty=certainty), board, groups, place, best, chosen, shares, honest,
        model_pick.prediction, ensemble_score, best_score, unseen, few,
        refit is not None,
    )  # fmt: skip


def _model(
    search: Search, pick: Pick, recipe_of: dict[int, int], refit: Problem | None
) -> tuple[Model, list[Candidate], np.ndarray]:
    """The networks of a pick; trained again, where that is asked for, as far as there is time. And what is in it."""
    chosen, shares = pick.chosen, pick.shares
    members = chosen
    if refit is not None:
        chosen, shares = _fitting(search, refit, chosen, shares)
        members = _train_again(search, refit, chosen)
    known = recipe_of | {new.number: recipe_of[old.number] for new, old in zip(members, chosen, strict=True)}
    model = make_model(refit or search.problem, members, shares.tolist(), known, pick.temperature)
    return model, chosen, shares


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


def _choose(problem: Problem, candidates: Sequence[Candidate], effort: Effort) -> tuple[list[Candidate], np.ndarray]:
    """An ensemble of the candidates with the lowest loss."""
    few = candidates[: effort.candidates or ENSEMBLE_CANDIDATES]
    weight = problem.loss_weight
    scored = evenly(np.flatnonzero(weight > 0), effort.ensemble_rows)
    loss_inputs = np.array([problem.task.loss_inputs(_prediction(one)[scored], problem.y[scored]) for one in few])
    shares = weigh(problem.task, loss_inputs, problem.y[scored], weight[scored], problem.loss_scale)
    taken = np.flatnonzero(shares).tolist()
    return [few[k] for k in taken], shares[taken]


def _ensemble(search: Search, chosen: list[Candidate], shares: np.ndarray, effort: Effort, averaged: bool) -> Pick:
    """The chosen with the temperature that fits best. `averaged`: the model averages the networks of all folds."""
    folds, parts = _fold_predictions(search, chosen, shares, effort, averaged)
    temperature = best_temperature(folds, search.limits.seed)
    return Pick(chosen, shares, folds, temperature, _combined(search, chosen, shares, temperature), parts)


def _combined(search: Search, chosen: list[Candidate], shares: np.ndarray, temperature: float) -> np.ndarray:
    """(n, n_outputs) out-of-fold predictions of candidates together."""
    combined = np.tensordot(shares, np.array([_prediction(candidate) for candidate in chosen]), axes=1)
    return search.problem.task.temper(combined, temperature)


def _compact(search: Search, pick: Pick, effort: Effort) -> tuple[Compact, Pick]:
    """The fewest networks of a pick that will do, and these as a pick."""
    problem, seed = search.problem, search.limits.seed
    rows = evenly(np.flatnonzero(problem.loss_weight > 0), effort.ensemble_rows)
    y, weight = problem.y[rows], problem.loss_weight[rows]
    inputs = np.array([problem.task.loss_inputs(_prediction(one)[rows], y) for one in pick.chosen])
    few = choose_compact(pick.folds, pick.parts, pick.shares, (inputs, y, weight), seed)
    mine = list(few.parts)
    if few.networks == few.whole_networks:
        return replace(few, temperature=pick.temperature), pick
    chosen, shares = [pick.chosen[k] for k in mine], equal_shares(len(mine), list(range(len(mine))))
    parts = pick.parts[mine]
    folds = replace(pick.folds, prediction=parts.mean(axis=0, dtype=np.float64), delivered=few.folds)
    temperature = best_temperature(folds, seed)
    prediction = _combined(search, chosen, shares, temperature)
    return replace(few, temperature=temperature), Pick(chosen, shares, folds, temperature, prediction, parts, True)


def _fold_predictions(
    search: Search, candidates: Sequence[Candidate], shares: np.ndarray, effort: Effort, averaged: bool
) -> tuple[FoldPredictions, np.ndarray]:
    """What the networks of each fold, weighed as in the model, say of some of the rows kept for honest estimates.

    And what they say one by one, (candidates, n_folds, n, n_outputs).
    """
    problem, task = search.problem, search.problem.task
    most = max(AVERAGING_ROWS // len(problem.folds), FEWEST_AVERAGING_ROWS)
    count = min(effort.sampled or most, most, len(search.sample_rows))
    rows = evenly(search.sample_rows, count)
    total = np.zeros((len(problem.folds), len(rows), task.n_outputs))
    alone: list[list[np.ndarray]] = [[] for _ in candidates]
    for k in range(len(problem.folds)):
        inputs = {
            encoding: problem.inputs[encoding][rows + k * problem.n]
            for encoding in {one.recipe.encoding for one in candidates}
        }
        for candidate, share, mine in zip(candidates, shares, alone, strict=True):
            assert candidate.pool is not None
            mine.append(candidate.pool.predict(candidate, k, inputs[candidate.recipe.encoding], search.limits.threads))
            total[k] += share * mine[-1]
    held_out = np.array([fold.valid[rows] > 0 for fold in problem.folds])
    seen = np.array([fold.train[rows] > 0 for fold in problem.folds]) & ~held_out
    folds = FoldPredictions(
        task, total, held_out, seen, problem.y[rows], problem.valid_weight[rows], problem.loss_weight[rows],
        problem.loss_scale, averaged,
    )  # fmt: skip
    return folds, np.array(alone)


def _evidence(search: Search, metric: Metric, effort: Effort, group: np.ndarray | None) -> Evidence:
    """Out-of-fold predictions of all candidates, on the rows kept for honest estimates."""
    problem, places = search.problem, _sampled_places(search, effort)
    rows = search.sample_rows[places]
    numbers = [candidate.number for candidate in search.candidates if candidate.sampled]
    sampled = Sampled(search.samples, numbers, places)
    in_memory = math.prod(sampled.shape) <= CELLS_IN_MEMORY
    return Evidence(
        problem.task, metric, sampled[:] if in_memory else sampled, problem.y[rows], problem.valid_weight[rows],
        problem.loss_weight[rows], problem.loss_scale,
        None if group is None else np.unique(group[rows], return_inverse=True)[1],
    )  # fmt: skip


def _sampled_places(search: Search, effort: Effort) -> np.ndarray:
    return evenly(np.arange(len(search.sample_rows)), effort.sampled)


def _honest(search: Search, evidence: Evidence, pick: Pick, ending: Ending, best: Candidate | None) -> HonestScore:
    """The honest score of a pick: of an ensemble, or of the `best` candidate alone."""
    rows = search.sample_rows[_sampled_places(search, ending.effort)]
    gain = averaging_gain(pick.folds, evidence.metric, pick.temperature, search.limits.seed)
    clock, timed = search.clock, ending.bootstraps is None
    deadline = clock.now() + ending.seconds

    def enough() -> bool:
        return ending.hurry() or (timed and clock.now() >= deadline)

    parts, raw = len(pick.chosen) if pick.compact else None, None if best is None else best.score
    return correct(
        evidence, pick.prediction[rows], ModelSelection(best is None, parts, raw, gain, pick.temperature),
        bootstraps=ending.bootstraps or BOOTSTRAPS, seed=search.limits.seed, enough=enough,
    )  # fmt: skip


def _fitting(
    search: Search, problem: Problem, chosen: Sequence[Candidate], shares: np.ndarray
) -> tuple[list[Candidate], np.ndarray]:
    """The parts with the largest shares that can be trained again in the time left; at least one."""
    left = search.clock.time_left()
    kept: list[int] = []
    for k in np.argsort(-shares, kind="stable").tolist():
        left -= search.costs.rate * candidate_cost(problem, chosen[k].recipe) * chosen[k].target
        if kept and left < 0:
            break
        kept.append(k)
    return [chosen[k] for k in kept], shares[kept] / shares[kept].sum()


def _train_again(search: Search, problem: Problem, chosen: Sequence[Candidate]) -> list[Candidate]:
    """The chosen recipes on all rows, to the end: for splitters whose folds leave out much of the data."""
    candidates = [Candidate(len(search.candidates) + k, candidate.recipe) for k, candidate in enumerate(chosen)]
    trainer = LocalTrainer(problem, None, search.limits.seed, search.limits.threads)
    for batch in trainer.train([Order.of(problem, one, [one.target]) for one in candidates], Control()):
        batch.hand_over(problem, search.samples)
    return candidates


def _parameter_counts(search: Search) -> dict[int, int]:
    counts: dict[int, int] = {}
    for encoding, matrix in search.problem.inputs.items():
        mine = [candidate for candidate in search.candidates if candidate.recipe.encoding == encoding]
        if mine:
            layout = Layout([one.recipe.member for one in mine], matrix.shape[1], search.problem.task.n_outputs)
            counts |= dict(zip([one.number for one in mine], layout.counts.tolist(), strict=True))
    return counts


def _prediction(candidate: Candidate) -> np.ndarray:
    assert candidate.prediction is not None
    return candidate.prediction


def _nothing(search: Search) -> UserError:
    if search.ended == INTERRUPTED:
        return NothingTrained(
            "the search was interrupted before any network had been trained for an epoch; give it more time"
        )
    trained = [candidate for candidate in search.candidates if candidate.epochs]
    if trained and not any(np.isfinite(candidate.loss) for candidate in trained):
        return UserError("every network diverged: its losses became infinite; lower learning_rate, or set clip=1")
    return UserError(
        "no network could be trained in the time given: give a longer budget, fewer folds or smaller networks"
    )


# ---- the model ----


def make_model(
    problem: Problem,
    candidates: Sequence[Candidate],
    weights: Sequence[float],
    recipe_of: dict[int, int],
    temperature: float,
) -> Model:
    """Collect the weights of the chosen candidates from their pools."""
    parts = tuple(
        Part(recipe_of[one.number], str(one.recipe), one.recipe.encoding, bare(one.recipe.member), float(weight))
        for one, weight in zip(candidates, weights, strict=True)
    )
    folds = tuple(
        FoldTransforms(encoder, fold.target) for encoder, fold in zip(problem.encoders, problem.folds, strict=True)
    )
    networks = {}
    for encoding in problem.inputs:
        mine = [candidate for candidate in candidates if candidate.recipe.encoding == encoding]
        if mine:
            networks[encoding] = empty_networks(
                problem.task, problem.inputs[encoding].shape[1], [bare(one.recipe.member) for one in mine], len(folds)
            )
            _copy_weights(networks[encoding], mine, len(folds))
    return Model(problem.task, problem.schema, folds, parts, networks, temperature)


def _copy_weights(population: Population, candidates: Sequence[Candidate], folds: int) -> None:
    for place, candidate in enumerate(candidates):
        assert candidate.pool is not None
        for k in range(folds):
            index = place * folds + k
            layers = population.layout.views(index, population.state.parameters)
            member_weights = candidate.pool.weights(candidate, k)
            columns: Any = candidate.recipe.member.features
            for number, (layer, (matrix, bias)) in enumerate(zip(layers, member_weights, strict=True)):
                layer[:-1] = matrix if number or columns is None else matrix[list(columns)]
                layer[-1] = bias

"""Train these candidates up to these epochs, and give back their scores, predictions and networks.

This is the one call through which a search trains. It needs nothing but its arguments: a problem, a metric and the
`Work` can be pickled and sent to another process, and the same bits come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shoal.members import Member
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import weighted_mean
from shoal.population import Population
from shoal.search.problem import Problem

ASSESSED_CELLS = 1 << 24  # rows times outputs times candidates that are assessed at a time


@dataclass(frozen=True, eq=False)
class Work:
    """Candidates with one encoding of the data, and how far to train them. Candidates are known by their place here.

    until     (n_candidates, n_folds) epochs that each network is to have done; 0: leave the candidate alone
    networks  as an earlier call gave them back: member c * n_folds + k is candidate c on fold k; None: new ones
    """

    encoding: str
    members: tuple[Member, ...]
    until: np.ndarray
    seed: int
    networks: Population | None = None


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Control:
    """How training may be ended from outside; by default it is not."""

    stop: Callable[[], bool] = _never  # asked several times a second while networks train
    late: Callable[[], bool] = _never  # asked between assessments: leave out the others?


@dataclass(frozen=True, eq=False)
class Assessment:
    """How a candidate did on the rows that its folds did not train on."""

    fold_epochs: np.ndarray  # (n_folds,) epochs done
    fold_scores: np.ndarray  # (n_folds,)
    fold_losses: np.ndarray
    score: float = -np.inf  # mean over folds
    loss: float = np.inf  # over all out-of-fold rows
    prediction: np.ndarray | None = None  # (n, n_outputs) out-of-fold; None: it diverged
    train_curve: np.ndarray = field(default_factory=lambda: np.empty(0))  # (epochs,) losses, mean over folds
    valid_curve: np.ndarray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, eq=False)
class Trained:
    """The networks after training, and an assessment of each candidate that was trained as far as asked."""

    networks: Population
    assessments: dict[int, Assessment]


def train(
    problem: Problem, metric: Metric | None, work: Work, threads: int | None, control: Control | None = None
) -> Trained:
    """Train the candidates of `work`, and assess those that have done all epochs asked for (or have diverged).

    Without a metric nobody is assessed.
    """
    control, folds = control or Control(), len(problem.folds)
    networks = work.networks or new_networks(problem, work.encoding, work.members)
    before = epochs_done(networks, folds)
    networks.fit(
        problem.inputs[work.encoding], problem.targets, until=np.maximum(work.until, before).ravel(),
        rows=problem.rows(len(work.members)), threads=threads, seed=work.seed, stop_when=control.stop,
    )  # fmt: skip
    diverged = np.array(networks.status).reshape(work.until.shape) == "diverged"
    ended = (work.until > 0).any(axis=1) & ((epochs_done(networks, folds) >= work.until) | diverged).all(axis=1)
    assessments: dict[int, Assessment] = {}
    places = [] if metric is None else np.flatnonzero(ended).tolist()
    step = max(1, ASSESSED_CELLS // (problem.n * problem.task.n_outputs))  # predictions take memory, and time
    for start in range(0, len(places), step):
        if start and control.late():
            break
        some = places[start : start + step]
        assert metric is not None
        assessments |= dict(zip(some, assess(problem, metric, work.encoding, networks, some, threads), strict=True))
    return Trained(networks, assessments)


def new_networks(problem: Problem, encoding: str, members: Sequence[Member]) -> Population:
    """One network for each candidate and fold, not trained yet; folds vary fastest."""
    width, task = problem.inputs[encoding].shape[1], problem.task
    return Population([member for member in members for _ in problem.folds], width, task.n_outputs, task.loss)


def epochs_done(networks: Population, folds: int) -> np.ndarray:
    """(n_candidates, n_folds) epochs that each network has done."""
    return networks.epochs.reshape(-1, folds)


def assess(
    problem: Problem, metric: Metric, encoding: str, networks: Population, places: Sequence[int], threads: int | None
) -> list[Assessment]:
    """Predict the rows that each fold left out, and score them: the same bits whoever is assessed in the same call."""
    task, folds = problem.task, len(problem.folds)
    total = np.zeros((len(places), problem.n, task.n_outputs), dtype=np.float32)
    scores = np.empty((len(places), folds))
    losses = np.empty_like(scores)
    for k, fold in enumerate(problem.folds):
        rows, inputs = problem.valid_inputs(encoding, k)
        raw = networks.predict(inputs, np.array(places) * folds + k, threads=threads)
        prediction = fold.target.back(task, raw)
        y, weight = problem.y[rows], fold.valid[rows]
        scores[:, k] = metric.score(task, prediction, y, weight)
        losses[:, k] = weighted_mean(task.losses(prediction, y, problem.loss_scale), fold.loss_weight[rows])
        total[:, rows] += (prediction * (weight / problem.valid_weight[rows])[:, None]).astype(np.float32)
    return [_assessment(problem, networks, place, total[u], scores[u], losses[u]) for u, place in enumerate(places)]


def _assessment(
    problem: Problem, networks: Population, place: int, prediction: np.ndarray, scores: np.ndarray, losses: np.ndarray
) -> Assessment:
    folds = len(problem.folds)
    done = epochs_done(networks, folds)[place]
    if not np.isfinite(prediction).all() or not np.isfinite(losses).all():
        return Assessment(done, np.full(folds, -np.inf), np.full(folds, np.inf))
    weight = problem.loss_weight
    scored = weight > 0  # zeros would change nothing but the order of the sum, and so its last bits
    row_losses = problem.task.losses(prediction[scored], problem.y[scored], problem.loss_scale)
    mine, epochs = slice(place * folds, (place + 1) * folds), int(done.min())
    curves = (networks.history.loss[mine, :epochs], networks.history.valid_loss[mine, :epochs])
    loss = float(weighted_mean(row_losses, weight[scored]))
    return Assessment(done, scores, losses, float(scores.mean()), loss, prediction, *(c.mean(axis=0) for c in curves))

"""Train these candidates up to these epochs, and give back their scores, predictions and networks.

This is the one call through which a search trains. It needs nothing but its arguments: a problem, a metric and the
`Workload` can be pickled and sent to another process, and the same bits come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shoal.callbacks import StopWhen
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import weighted_mean
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.search.problem.problem import Matrices

ASSESSED_CELLS = 1 << 24  # rows times outputs times candidates that are assessed at a time


@dataclass(frozen=True, eq=False)
class Workload:
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
    prediction: np.ndarray | None = None  # (n, n_outputs) out-of-fold; None: it diverged, or there is only the sample
    train_curve: np.ndarray = field(default_factory=lambda: np.empty(0))  # (epochs,) losses, mean over folds
    valid_curve: np.ndarray = field(default_factory=lambda: np.empty(0))
    ended: bool = False  # every fold has done all epochs of the recipe, or its patience was at an end
    sample: np.ndarray | None = None  # the prediction on the rows kept for honest estimates, where it is all there is

    @property
    def diverged(self) -> bool:
        return not np.isfinite(self.loss)


@dataclass(frozen=True, eq=False)
class Trained:
    """The networks after training, and an assessment of each candidate that was trained as far as asked."""

    networks: Population
    assessments: dict[int, Assessment]


def train(
    problem: Matrices, metric: Metric | None, work: Workload, threads: int | None, control: Control | None = None
) -> Trained:
    """Train the candidates of `work`, and assess those that have done all epochs asked for (or never will).

    Without a metric nobody is assessed.
    """
    control, count = control or Control(), len(problem.folds)
    networks = work.networks or new_networks(problem, work.encoding, work.members)
    before = epochs_done(networks, count)
    networks.fit(
        problem.inputs[work.encoding], problem.targets, until=np.maximum(work.until, before).ravel(),
        rows=problem.rows(len(work.members)), threads=threads, seed=work.seed,
        callbacks=[StopWhen(control.stop)],
    )  # fmt: skip
    over = np.isin(networks.status, ("stopped early", "diverged")).reshape(work.until.shape)
    ended = (work.until > 0).any(axis=1) & ((epochs_done(networks, count) >= work.until) | over).all(axis=1)
    places = [] if metric is None else np.flatnonzero(ended).tolist()
    assessments: dict[int, Assessment] = {}
    step = max(1, ASSESSED_CELLS // (problem.n * problem.task.n_outputs))  # predictions take memory, and time
    for start in range(0, len(places), step):
        if start and control.late():
            break
        some = places[start : start + step]
        assert metric is not None
        assessments |= dict(zip(some, assess(problem, metric, work.encoding, networks, some, threads), strict=True))
    return Trained(networks, assessments)


def new_networks(problem: Matrices, encoding: str, members: Sequence[Member], drawn: bool = True) -> Population:
    """One network for each candidate and fold, not trained yet; folds vary fastest. Not `drawn`: without weights."""
    width, task = problem.inputs[encoding].shape[1], problem.task
    make = Population if drawn else Population.blank
    return make([member for member in members for _ in problem.folds], width, task.n_outputs, task.loss)


def epochs_done(networks: Population, folds: int) -> np.ndarray:
    """(n_candidates, n_folds) epochs that each network has done."""
    return networks.epochs.reshape(-1, folds)


def assess(
    problem: Matrices, metric: Metric, encoding: str, networks: Population, places: Sequence[int], threads: int | None
) -> list[Assessment]:
    """Predict the rows that each fold left out, and score them: the same bits whoever is assessed in the same call."""
    task, folds = problem.task, len(problem.folds)
    members = np.array(places, dtype=np.int64)[:, None] * folds + np.arange(folds)  # (candidates, folds)
    total = np.zeros((len(members), problem.n, task.n_outputs), dtype=np.float32)
    scores, losses = np.empty(members.shape), np.empty(members.shape)
    for k, fold in enumerate(problem.folds):
        rows, inputs = problem.valid_inputs(encoding, k)
        prediction = fold.target.back(task, networks.predict(inputs, members[:, k], threads=threads))
        y, weight = problem.y[rows], fold.valid[rows]
        scores[:, k] = metric.score(task, prediction, y, weight)
        losses[:, k] = weighted_mean(task.losses(prediction, y, problem.loss_scale), fold.loss_weight[rows])
        total[:, rows] += (prediction * (weight / problem.valid_weight[rows])[:, None]).astype(np.float32)
    ended = np.isin(networks.status, ("finished", "stopped early"))[members].all(axis=1).tolist()
    return [_assessment(problem, networks, *each) for each in zip(members, scores, losses, total, ended, strict=True)]


def _assessment(
    problem: Matrices,
    networks: Population,
    members: np.ndarray,
    scores: np.ndarray,
    losses: np.ndarray,
    prediction: np.ndarray,
    ended: bool,
) -> Assessment:
    """Of one candidate: its members, and their scores and losses, fold by fold."""
    done = networks.epochs[members]
    if not np.isfinite(prediction).all() or not np.isfinite(losses).all():
        return Assessment(done, np.full(len(members), -np.inf), np.full(len(members), np.inf))
    weight = problem.loss_weight
    scored = weight > 0  # zeros would change nothing but the order of the sum, and so its last bits
    row_losses = problem.task.losses(prediction[scored], problem.y[scored], problem.loss_scale)
    loss = float(weighted_mean(row_losses, weight[scored]))
    history = networks.history
    train, valid = (curve[members, : done.min()].mean(axis=0) for curve in (history.loss, history.valid_loss))
    return Assessment(done, scores, losses, float(scores.mean()), loss, prediction, train, valid, ended)

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
    folds     numbers of the folds, where these are not all; then n_folds is how many they are
    """

    encoding: str
    members: tuple[Member, ...]
    until: np.ndarray
    seed: int
    networks: Population | None = None
    folds: tuple[int, ...] | None = None


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
class FoldResults:
    """How candidates did on the rows that one fold held out. Those of all folds together make `Assessment`s."""

    epochs: np.ndarray  # (c,) done
    ended: np.ndarray  # (c,) whether there is nothing left to train
    scores: np.ndarray  # (c,)
    losses: np.ndarray  # (c,)
    predictions: np.ndarray  # (c, rows, n_outputs) float32, times the fold's share in the prediction of each row
    train_curves: np.ndarray  # (c, epochs) losses
    valid_curves: np.ndarray


@dataclass(frozen=True, eq=False)
class Trained:
    """The networks after training, and an assessment of each candidate that was trained as far as asked.

    Where only some folds were trained there are no assessments, but `results` of these folds for `assessed` candidates.
    """

    networks: Population
    assessments: dict[int, Assessment]
    assessed: tuple[int, ...] = ()
    results: tuple[FoldResults, ...] = ()


def train(
    problem: Matrices, metric: Metric | None, work: Workload, threads: int | None, control: Control | None = None
) -> Trained:
    """Train the candidates of `work`, and assess those that have done all epochs asked for (or never will).

    Without a metric nobody is assessed.
    """
    control, count = control or Control(), work.until.shape[1]
    networks = work.networks or new_networks(problem, work.encoding, work.members, count)
    before = epochs_done(networks, count)
    networks.fit(
        problem.inputs[work.encoding], problem.targets, until=np.maximum(work.until, before).ravel(),
        rows=problem.rows(len(work.members), work.folds), threads=threads, seed=work.seed,
        callbacks=[StopWhen(control.stop)],
    )  # fmt: skip
    over = np.isin(networks.status, ("stopped early", "diverged")).reshape(work.until.shape)
    ended = (work.until > 0).any(axis=1) & ((epochs_done(networks, count) >= work.until) | over).all(axis=1)
    places = [] if metric is None else np.flatnonzero(ended).tolist()
    if work.folds is not None:
        assert metric is not None
        results = assess_folds(problem, metric, work.encoding, networks, places, threads, work.folds)
        return Trained(networks, {}, tuple(places), tuple(results))
    assessments: dict[int, Assessment] = {}
    step = max(1, ASSESSED_CELLS // (problem.n * problem.task.n_outputs))  # predictions take memory, and time
    for start in range(0, len(places), step):
        if start and control.late():
            break
        some = places[start : start + step]
        assert metric is not None
        assessments |= dict(zip(some, assess(problem, metric, work.encoding, networks, some, threads), strict=True))
    return Trained(networks, assessments)


def new_networks(
    problem: Matrices, encoding: str, members: Sequence[Member], folds: int | None = None, drawn: bool = True
) -> Population:
    """One network for each candidate and fold, not trained yet; folds vary fastest. Not `drawn`: without weights."""
    width, task = problem.inputs[encoding].shape[1], problem.task
    each = len(problem.folds) if folds is None else folds
    make = Population if drawn else Population.blank
    return make([member for member in members for _ in range(each)], width, task.n_outputs, task.loss)


def epochs_done(networks: Population, folds: int) -> np.ndarray:
    """(n_candidates, n_folds) epochs that each network has done."""
    return networks.epochs.reshape(-1, folds)


def assess(
    problem: Matrices, metric: Metric, encoding: str, networks: Population, places: Sequence[int], threads: int | None
) -> list[Assessment]:
    """Predict the rows that each fold left out, and score them: the same bits whoever is assessed in the same call."""
    folds = range(len(problem.folds))
    return combine(problem, assess_folds(problem, metric, encoding, networks, places, threads, folds))


def assess_folds(
    problem: Matrices,
    metric: Metric,
    encoding: str,
    networks: Population,
    places: Sequence[int],
    threads: int | None,
    folds: Sequence[int],
) -> list[FoldResults]:
    """The results of candidates on some folds; `networks` has one for each candidate and each of these folds."""
    task, count = problem.task, len(folds)
    found = []
    for j, k in enumerate(folds):
        fold, mine = problem.folds[k], np.array(places, dtype=np.int64) * count + j
        rows, inputs = problem.valid_inputs(encoding, k)
        prediction = fold.target.back(task, networks.predict(inputs, mine, threads=threads))
        y, weight = problem.y[rows], fold.valid[rows]
        epochs, ended = networks.epochs[mine], np.isin(networks.status, ("finished", "stopped early"))[mine]
        longest = int(epochs.max(initial=0))
        found.append(FoldResults(
            epochs, ended, metric.score(task, prediction, y, weight),
            weighted_mean(task.losses(prediction, y, problem.loss_scale), fold.loss_weight[rows]),
            (prediction * (weight / problem.valid_weight[rows])[:, None]).astype(np.float32),
            networks.history.loss[mine, :longest], networks.history.valid_loss[mine, :longest],
        ))  # fmt: skip
    return found


def combine(problem: Matrices, results: Sequence[FoldResults]) -> list[Assessment]:
    """Assessments of candidates from their results on each fold, in order."""
    count = len(results[0].scores)
    total = np.zeros((count, problem.n, problem.task.n_outputs), dtype=np.float32)
    for k, result in enumerate(results):
        total[:, problem.splits[k].valid - k * problem.n] += result.predictions
    return [_assessment(problem, results, c, total[c]) for c in range(count)]


def _assessment(problem: Matrices, results: Sequence[FoldResults], c: int, prediction: np.ndarray) -> Assessment:
    """Of candidate `c` among those of the results."""
    done = np.array([result.epochs[c] for result in results])
    scores, losses = np.array([result.scores[c] for result in results]), np.array([one.losses[c] for one in results])
    if not np.isfinite(prediction).all() or not np.isfinite(losses).all():
        return Assessment(done, np.full(len(results), -np.inf), np.full(len(results), np.inf))
    weight = problem.loss_weight
    scored = weight > 0  # zeros would change nothing but the order of the sum, and so its last bits
    row_losses = problem.task.losses(prediction[scored], problem.y[scored], problem.loss_scale)
    epochs = int(done.min())
    curves = (
        np.array([result.train_curves[c, :epochs] for result in results]),
        np.array([result.valid_curves[c, :epochs] for result in results]),
    )
    loss = float(weighted_mean(row_losses, weight[scored]))
    train, valid = (curve.mean(axis=0) for curve in curves)
    ended = all(bool(result.ended[c]) for result in results)
    return Assessment(done, scores, losses, float(scores.mean()), loss, prediction, train, valid, ended)

"""Nodes that train alone and average their weights, as local SGD of `shoal.parallel` does: all as one population.

A network of each node, or of each fold of each node, is a member; the engine trains them all in one call. Averages are
products of a vector with the matrix of all weights. Several jobs, say of other seeds or numbers of nodes, are trained
together: their members are neighbours.

What differs from a plain population is the learning rate of a step. With a schedule it follows the steps of the node
that has most of them; and averaging also averages Adam's count of updates, which is no whole number any more if nodes
have different numbers of batches. The engine counts in whole numbers. So where it has to, an epoch is cut into calls of
a few batches, each with a learning rate that makes up for the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from torch import nn
from torch.utils.data import TensorDataset

from shoal.console.interrupts import interruptible
from shoal.errors import UserError
from shoal.machine import thread_count
from shoal.parallel.data.loader import RandomKey, epoch_order, key
from shoal.parallel.data.ownership import owners
from shoal.parallel.job import Job
from shoal.planner.simulate.chains import LinearChain, chain_of, data_of, member_of
from shoal.population.engines import get_engine
from shoal.population.engines.native import draw
from shoal.population.engines.program import ACTIVE, Assignment, Data, Resources, Training
from shoal.population.engines.weights import stacked
from shoal.population.members import SCHEDULES
from shoal.population.population import Population
from shoal.validate import whole

BETA1, BETA2 = 0.9, 0.999  # of Adam
CLOSE = 1e-6  # learning rates that differ by less than this share are taken for equal


@dataclass(eq=False)
class Averaged:
    """The average of all nodes of each job, after the epochs done so far."""

    networks: Population  # one member for each job: evaluate, predict, weights
    losses: np.ndarray  # (jobs, epochs): the mean training loss of each epoch, NaN where there was none
    diverged: list[int | None] = field(default_factory=list)  # the epoch in which a job diverged; then it has ended


def train_averaged(
    model: nn.Module | Sequence[nn.Module],
    train: TensorDataset,
    jobs: Job | Sequence[Job],
    *,
    folds: int | None = None,
    after_epoch: Callable[[int, Averaged], None] | None = None,
    threads: int | None = None,
) -> Averaged:
    """What `shoal.parallel.fit` computes with local SGD, up to rounding, for networks that the engine knows.

    model        with the weights to start from, which are not changed; or one of the same shape for each job
    jobs         what to do, on `job.workers` nodes; those of one call may differ in seed, workers, `average_every`
                 and in how nodes get their rows, start and stop
    folds        each node trains so many networks, each without a part of the node's rows, and takes their mean
    after_epoch  called with the number of the epoch, from 0, and the averages

    Only for a network and jobs that the engine can train; see `can_be_fast`. A job that diverges, where `fit` would
    raise `Diverged`, ends by itself, and so does one of which no node needs another epoch (`until_error`).
    """
    jobs = [jobs] if isinstance(jobs, Job) else list(jobs)
    models = [model] * len(jobs) if isinstance(model, nn.Module) else list(model)
    data = data_of(models[0], train, str(jobs[0].loss))
    teams = _make_teams(train, jobs, 1 if folds is None else whole("folds", folds, 2))
    run = _Run(chain_of(models[0]), data, teams, thread_count(threads))
    run.start(models)
    for epoch in range(jobs[0].epochs):
        if not run.epoch(epoch):
            break
        if after_epoch is not None:
            after_epoch(epoch, run.result)
    return run.result


# ---- nodes ----


class Piece(NamedTuple):
    """Consecutive batches of an epoch with one learning rate; `correction` is what it was multiplied with."""

    first: int
    end: int
    rate: float
    correction: float


@dataclass(eq=False)
class NodeTeam:
    """The nodes of one job. Its members are all nodes with their first fold left out, then with their second, ..."""

    job: Job
    place: int  # among the jobs
    members: slice  # in the population
    owner: np.ndarray  # of each row of the data: its node
    fold: np.ndarray | None  # of each row of the data: its fold within the node
    counts: np.ndarray  # rows of each member
    weight: np.ndarray  # of each member in the average; float64, with the sum 1
    updates: float = 0.0  # Adam's count, averaged over nodes
    ended: bool = False

    def __post_init__(self) -> None:
        self.active = np.ones(len(self.counts), bool)  # members that have not reached `until_error`
        starts = np.cumsum(self.counts) - self.counts
        self.position = np.arange(self.counts.sum()) - np.repeat(starts, self.counts)  # of a row within its member
        self.batches = -(-self.counts // self.job.batch_size)

    def rows(self, epoch: int) -> np.ndarray:
        """The rows of all members in the order of an epoch, one member after another."""
        order = epoch_order(len(self.owner), self.job.seed, epoch, self.job.shuffle).numpy()
        mine = order[np.argsort(self.owner[order], kind="stable")]
        if self.fold is None:
            return mine
        folds = self.fold[mine]
        return np.concatenate([mine[folds != k] for k in range(folds.max() + 1)])

    @property
    def scheduled(self) -> bool:
        """Whether the engine's own schedule is the right one: all members take the same steps."""
        return self.job.schedule == "cosine" and bool(np.ptp(self.batches) == 0 and self.active.all())

    def pieces(self, epoch: int) -> list[Piece]:
        """An epoch in as few pieces as learning rates allow."""
        job, count = self.job, int(self.batches[self.active].max())
        steps = np.arange(count)
        rates = np.full(count, job.learning_rate)
        if job.schedule == "cosine" and not self.scheduled:
            per_epoch = int(self.batches.max())
            share = np.minimum((epoch * per_epoch + steps) / (job.epochs * per_epoch), 1.0)
            rates = rates * 0.5 * (1 + np.cos(np.pi * share))
        corrections = np.ones(count)
        if job.optimizer != "sgd" and job.average_every == "epoch":
            corrections = _corrections(self.updates + 1 + steps, round(self.updates) + 1 + steps)
        values = rates * corrections
        found, first = [], 0
        for k in range(1, count + 1):
            if k == count or abs(values[k] - values[first]) > CLOSE * values[first]:
                found.append(Piece(first, k, float(values[first]), float(corrections[first])))
                first = k
        return found

    def part(self, rows: np.ndarray, piece: Piece) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a piece, and how many each member has."""
        size = self.job.batch_size
        begin, end = piece.first * size, piece.end * size
        if begin == 0 and end >= self.counts.max() and self.active.all():
            return rows, self.counts
        chosen = (self.position >= begin) & (self.position < end) & np.repeat(self.active, self.counts)
        return rows[chosen], np.where(self.active, np.clip(self.counts - begin, 0, end - begin), 0)

    def judge(self, losses: np.ndarray) -> float:
        """The mean loss of an epoch, from the sum of each member; members with a small loss have had enough."""
        mean = float(losses.sum() / self.counts[self.active].sum())
        if self.job.until_error is not None:
            self.active &= ~(losses / self.counts <= self.job.until_error)
        return mean


def _corrections(true: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """What turns Adam's step after `counted` updates into that after `true` updates, apart from its epsilon."""
    means = (1 - BETA1**counted) / (1 - BETA1**true)
    return means * np.sqrt((1 - BETA2**true) / (1 - BETA2**counted))


def _make_teams(train: TensorDataset, jobs: Sequence[Job], folds: int) -> list[NodeTeam]:
    teams, start = [], 0
    rows = len(train)
    for place, job in enumerate(jobs):
        owner = owners(train.tensors[1], rows, job.workers, job).numpy()
        owner = owner.astype(np.uint16) if job.workers < 1 << 16 else owner  # sorted faster
        each = np.bincount(owner, minlength=job.workers)
        fold, counts = None, each
        if folds > 1:
            if each.min() < folds:
                raise UserError(f"each node needs at least {folds} rows, one for each fold; one has {each.min()}")
            fold = _deal(owner, each, folds, job)
            counts = np.concatenate([each - np.bincount(owner[fold == k], minlength=job.workers) for k in range(folds)])
        weight = np.tile(each / (rows * folds), folds)
        teams.append(NodeTeam(job, place, slice(start, start + len(counts)), owner, fold, counts, weight))
        start += len(counts)
    return teams


def _deal(owner: np.ndarray, each: np.ndarray, folds: int, job: Job) -> np.ndarray:
    """The fold of each row: the rows of a node, in an order of their own, cut into nearly equal parts."""
    order = epoch_order(len(owner), job.seed, RandomKey.FOLDS, job.shuffle).numpy()
    mine = order[np.argsort(owner[order], kind="stable")]
    position = np.arange(len(mine)) - np.repeat(np.cumsum(each) - each, each)
    small, larger = each[owner[mine]] // folds, each[owner[mine]] % folds
    fold = np.empty(len(mine), np.int64)
    fold[mine] = np.where(position < larger * (small + 1), position // (small + 1), (position - larger) // small)
    return fold


# ---- training ----


class _Run:
    """The population of all nodes under way, and the averages."""

    def __init__(self, chain: LinearChain, data: Data, teams: Sequence[NodeTeam], threads: int) -> None:
        self.chain, self.data, self.teams = chain, data, teams
        self.engine, self.resources = get_engine("auto"), Resources(threads)
        job = teams[0].job
        member, ends = member_of(chain, job), (chain.widths[0], chain.widths[-1])
        nodes = Population.blank([member] * teams[-1].members.stop, *ends, str(job.loss))
        self.program, self.state = nodes.program, nodes.state
        self.stack = stacked(self.program, self.state)
        networks = Population.blank([member] * len(teams), *ends, str(job.loss))
        losses = np.full((len(teams), job.epochs), np.nan)
        self.result = Averaged(networks, losses, [None] * len(teams))
        self.averages = stacked(networks.program, networks.state)

    def start(self, models: Sequence[nn.Module]) -> None:
        """All nodes begin with the weights of the model, or all but the first draw their own."""
        if any(team.job.start == "own" for team in self.teams):
            seeds = [key(team.job.seed, RandomKey.FIRST_WEIGHTS, k % team.job.workers) for team in self.teams
                     for k in range(len(team.counts))]  # fmt: skip
            self.program.records["seed"] = seeds
            draw(self.program, self.state, self.resources.threads)
        for team, model in zip(self.teams, models, strict=True):
            self.result.networks.set_weights(team.place, self.chain.layers(model))
            same = slice(team.members.start, team.members.stop, team.job.workers if team.job.start == "own" else 1)
            self.stack.parameters[same] = self.averages.parameters[team.place]

    def epoch(self, epoch: int) -> bool:
        """Train an epoch, and average; False if nobody needs it."""
        teams = [team for team in self.teams if not team.ended]
        rows = [team.rows(epoch) for team in teams]
        pieces = [team.pieces(epoch) for team in teams]
        losses = np.zeros(len(self.program))
        for k in range(max(map(len, pieces), default=0)):
            under_way = [entry for entry in zip(teams, rows, pieces, strict=True) if k < len(entry[2])]
            self._train([(team, *team.part(own, its[k]), its[k]) for team, own, its in under_way], losses)
        for team in teams:
            with np.errstate(over="ignore", invalid="ignore"):  # weights that are not finite: the team has diverged
                self._average(team)
                self.result.losses[team.place, epoch] = team.judge(losses[team.members])
            if np.any(self.state.status[team.members] != ACTIVE):
                self.result.diverged[team.place] = epoch
            team.ended = self.result.diverged[team.place] is not None or not team.active.any()
        return bool(teams)

    def _train(self, parts: Sequence[tuple[NodeTeam, np.ndarray, np.ndarray, Piece]], losses: np.ndarray) -> None:
        """Train the rows of one piece of each team; adds the sum of losses over rows, of each member."""
        records = self.program.records.copy()
        counts = np.zeros(len(records), np.int64)
        for team, _, own, piece in parts:
            counts[team.members] = own
            records["learning_rate"][team.members] = piece.rate
            records["schedule"][team.members] = SCHEDULES.index("cosine" if team.scheduled else "constant")
            if team.job.optimizer == "adamw":  # its decay follows the rate without the correction
                records["weight_decay"][team.members] = team.job.weight_decay / piece.correction
        which = np.flatnonzero((counts > 0) & (self.state.status == ACTIVE))
        rows = _assignment([rows for _, rows, _, _ in parts], counts, parts[0][0].job.epochs)
        self.state.epochs[:] = 0
        with interruptible() as interrupt:
            training = Training(
                replace(self.program, records=records), self.state, which, self.resources, self.data, rows,
                np.ones(len(which), np.int64), lambda done: bool(interrupt.requested),
            )  # fmt: skip
            self.engine.train(training)
        if interrupt.requested:
            raise KeyboardInterrupt
        losses[which] += training.log.loss[:, 0] * counts[which]

    def _average(self, team: NodeTeam) -> None:
        weight = team.weight.astype(np.float32)
        average = weight @ self.stack.parameters[team.members]
        self.averages.parameters[team.place] = average
        if team.job.average_every == "end":
            return
        self.stack.parameters[team.members] = average
        moments = self.stack.moments[team.members]
        moments[:] = (weight @ moments.reshape(len(weight), -1)).reshape(moments.shape[1:])
        team.updates += float(team.weight @ np.where(team.active, team.batches, 0))
        self.state.steps[team.members] = round(team.updates)


def _assignment(rows: Sequence[np.ndarray], counts: np.ndarray, epochs: int) -> Assignment:
    """Each member trains on its rows in their order; a schedule runs over so many epochs."""
    count = len(counts)
    nothing = np.empty(0, np.int64)
    return Assignment(
        train=np.concatenate(rows), train_start=np.concatenate([[0], np.cumsum(counts)]),
        weight=np.empty(0, np.float32), valid=nothing, valid_start=np.zeros(count + 1, np.int64),
        split=np.arange(count), shuffle=False, order=np.zeros(count, np.uint64), horizon=np.full(count, epochs),
    )  # fmt: skip

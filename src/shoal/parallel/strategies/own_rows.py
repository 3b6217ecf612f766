"""Shared code of strategies whose workers train alone, on their own rows, and average their weights now and then."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError, WrongType
from shoal.options import Options, option
from shoal.parallel.cost import Estimate, Phase, TrainingRound, Variant, compute, memory_of
from shoal.parallel.data.loader import Loader, key, rows_in
from shoal.parallel.data.ownership import (
    BY_CLASS,
    batch_sizes,
    batches,
    check_shares,
    concentration,
    owners,
    smallest_part,
)
from shoal.parallel.exact.tree_sum import shares
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import Learner
from shoal.parallel.strategies.base import Strategy
from shoal.parallel.strategies.updater import Items, WholeModelUpdater, fewest_rows, given
from shoal.validate import number, one_of, shown, whole

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel

SPLITS = ("random", "order", "class:ALPHA")
STARTS = ("same", "own")
LARGEST = 1e9  # of numbers that are only compared with each other


def number_or_word(text: str) -> int | str:
    """What was typed on the command line: a number, if it is one."""
    return int(text) if text.isascii() and text.isdecimal() else text


def _average_every(name: str, value: Any) -> int | str:
    return value if value in ("epoch", "end") else whole(name, value, 1, otherwise=' or "epoch" or "end"')


def check_split(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(BY_CLASS):
        return one_of(name, value, SPLITS)
    try:
        alpha = concentration(value)
    except ValueError:
        alpha = None
    if alpha is None or not 0 < alpha < LARGEST:
        raise UserError(f"the number in {name} must be positive and below 1e9, as in class:0.5; got {shown(value)}")
    return value


def positive_numbers(name: str, value: Any) -> tuple[float, ...]:
    """Positive numbers; also as a text, "3,1"."""
    wrong = f"{name} must be numbers, one for each worker, as in 3,1; got {shown(value)}"
    if isinstance(value, str):
        try:
            value = [float(part) for part in value.split(",")]
        except ValueError:
            raise UserError(wrong) from None
    if not isinstance(value, Sequence) or not value:
        raise WrongType(wrong)
    return tuple(number(f"each number of {name}", part, above=0, below=LARGEST) for part in value)


@dataclass(frozen=True)
class OwnRowsOptions(Options):
    average_every: int | str = option(
        "epoch", "local_sgd: steps, epoch or end; gossip: steps or epoch.", check=_average_every, parse=number_or_word
    )
    split: str = option(
        "random",
        "local_sgd, gossip: rows of a worker at random, in the order of the data, or by class:ALPHA: each class is "
        "shared out by a draw from the Dirichlet distribution.",
        check=check_split, metavar="random|order|class:ALPHA",
    )  # fmt: skip
    shares: tuple[float, ...] | None = option(
        None, "local_sgd, gossip: rows of each worker, in proportion, as in 3,1. (default: equal)",
        check=positive_numbers,
        parse=str,
    )  # fmt: skip
    start: str = option(
        "same", "local_sgd, gossip: workers begin with the same weights, or each with its own.", one_of=STARTS,
    )  # fmt: skip
    until_error: float | None = option(
        None, "local_sgd, gossip: a worker stops when the mean loss of its rows in an epoch is at most this.", least=0,
    )  # fmt: skip


ROW_OPTIONS = ("split", "shares", "start", "until_error")  # only strategies that own rows have a use for these


class OwnRows(Strategy):
    """Each worker trains on rows of its own: `shoal.parallel.data.ownership` says which."""

    owns_rows = True
    vectors = 0  # flat copies of the weights that a worker holds

    def check(self, job: Job) -> None:
        if job.shares is not None and concentration(job.split) is not None:
            raise UserError(f"shares and split={job.split!r} both say how many rows a worker has. Omit one of them")

    def check_model(self, job: Job, model: nn.Module) -> None:
        check_shares(job.shares, job.workers)

    def fewest_rows(self, job: Job) -> int:
        return job.workers

    def needs_targets(self, job: Job) -> bool:
        return concentration(job.split) is not None

    def keeps_rows(self, job: Job) -> bool:
        """Whether a worker has the same rows in every epoch; if not, those of a round are cut anew."""
        return True

    def stays_apart(self, average_every: int | str) -> bool:
        """Whether workers have different weights after a round; then their mean is evaluated and delivered."""
        return True

    def smallest_part(self, job: Job, rows: int, least: int, targets: torch.Tensor | None = None) -> int:
        return smallest_part(targets, rows, job, least, self.keeps_rows(job))

    # ---- what it costs ----

    def mixing_cost(self, costs: CostModel, nodes: int) -> tuple[Phase, float]:
        """What follows the steps of a round, and the bytes that a node sends in it."""
        raise NotImplementedError

    def memory(self, costs: CostModel, variant: Variant, nodes: int) -> float:
        return memory_of(costs, nodes, vectors=self.vectors)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """One step of each node."""
        return self._steps_cost(costs, 1, nodes)

    def _steps_cost(self, costs: CostModel, steps: int, nodes: int, mixes: bool = True) -> TrainingRound:
        """Steps of each node by itself."""
        done = compute(f"{steps} steps", steps * costs.vector(costs.job.batch_size, nodes, steps))
        if not mixes or nodes == 1:
            return TrainingRound((done,))
        mixing, sent = self.mixing_cost(costs, nodes)
        return TrainingRound((done, mixing), sent)

    def estimate(self, costs: CostModel, variant: Variant, nodes: int) -> Estimate:
        """Steps of each node by itself; the slowest one has the most rows."""
        every, networks, batch = variant.options["average_every"], costs.node_folds, costs.job.batch_size
        mine = costs.without_fold(costs.most_rows(nodes))
        steps, rest_rows = -(-mine // batch), mine % batch
        each = steps if isinstance(every, str) else int(every)
        mixes = every != "end"

        def make(count: int) -> TrainingRound:
            return self._steps_cost(costs, networks * count, nodes, mixes)

        more = costs.unexplained(variant) * mixes
        whole, rest = divmod(steps, each)
        typical = make(each).changed(more)
        last = make(rest).changed(more) if rest else TrainingRound(())
        saved = 0.0
        if rest_rows:  # the last step of a network has fewer rows; a part of a round becomes shorter as the whole did
            count = rest or each
            full, short = (costs.vector(size, nodes, networks * count) for size in (batch, rest_rows))
            saved = (full - short) * make(count).kept(more)
        scattered = costs.scattering(nodes)
        at_end = costs.facts.averaged if self.stays_apart(every) else 0.0
        seconds, communicating = typical.times(whole)
        return Estimate(
            seconds + last.seconds - networks * saved + scattered,
            communicating + last.communicating + scattered,
            (whole + (rest > 0)) * typical.sent, self.memory(costs, variant, nodes), typical,
            finish=costs.messages(nodes).all_reduce(at_end, nodes), sent_at_end=2 * (nodes - 1) / nodes * at_end,
        )  # fmt: skip


class OwnRowsUpdater(WholeModelUpdater):
    """A round is some steps, or an epoch, of each worker, and then `_mix`. `batch_size` is that of each worker.

    Where workers keep their rows, those of an epoch are in the epoch's order. With rounds of some steps, a worker that
    has fewer rows than others has none left in the last rounds of an epoch.
    """

    def __init__(self, job: Job, group: Group, model: nn.Module, train: Loader) -> None:
        strategy = job.method
        assert isinstance(strategy, OwnRows)
        self.keeps_rows, self.apart = strategy.keeps_rows(job), strategy.stays_apart(job.average_every)
        targets = None
        if strategy.needs_targets(job):
            targets = group.first_object(train.targets() if group.rank == 0 else None)
        least = fewest_rows(model)
        self.owner = owners(targets, len(train), group.size, job, least)
        self.counts = torch.bincount(self.owner, minlength=group.size).tolist()
        self.steps = _steps_of_rounds(self.counts, job, least)
        super().__init__(job, group, model, train)
        self.vector = self.learner.new_vector(self.learner.width)
        self.progress = [0.0, 0]  # the sum of the loss in this epoch, and its rows
        self.stopped = False  # by until_error

    # ---- rows ----

    def round_rows(self) -> int:
        every = self.job.average_every
        return self.rows if isinstance(every, str) else every * self.job.batch_size * self.group.size

    def steps_in(self, rows: int) -> int:
        """Those of the worker that takes most."""
        if self.keeps_rows:
            return self.steps[rows]
        return -(-rows // (self.job.batch_size * self.group.size))

    def rounds(self, order: torch.Tensor, position: int) -> list[torch.Tensor]:
        every = self.job.average_every
        if isinstance(every, str) or not self.keeps_rows:
            return super().rounds(order, position)
        own = [batches(order[self.owner[order] == k], self.job.batch_size, self.least) for k in range(self.group.size)]
        found = []
        for first in range(0, max(map(len, own)), every):
            rows = torch.cat([part for parts in own for part in parts[first : first + every]])
            if position <= 0:
                found.append(rows)
            position -= len(rows)
        return found

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        if self.stopped:
            return []
        if self.keeps_rows:
            mine = rows[self.owner[rows] == self.group.rank]
        else:
            start, end = shares(len(rows), self.group.size)[self.group.rank]
            mine = rows[start:end]
        return batches(mine, self.job.batch_size, self.least)

    # ---- training ----

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        total, seen = 0.0, 0
        for k, item in enumerate(items):
            inputs, target = given(item)
            seed = key(self.job.seed, step + k, 2 + self.group.rank)
            self.learner.gradient(inputs, target, 1.0, seed, self.vector)
            count = rows_in(target)
            loss = self.learner.apply(self.vector, step + k)
            self.report_loss(loss, step + k)
            total += loss * count
            seen += count
        self.progress = [self.progress[0] + total, self.progress[1] + seen]
        self._mix(self.share() if self.keeps_rows else seen / rows)
        return total, seen

    def share(self) -> float:
        """The weight of this worker in an average: its part of all rows."""
        return self.counts[self.group.rank] / self.rows

    def _mix(self, share: float) -> None:
        """After the steps of a round."""
        raise NotImplementedError

    def enough(self) -> bool:
        loss, seen = self.progress
        self.progress = [0.0, 0]
        if self.job.until_error is not None and seen:
            self.stopped = loss / seen <= self.job.until_error
        return self.stopped

    # ---- weights ----

    def _average(self, share: float) -> None:
        """The mean of all workers' weights and optimiser moments."""

        def average(vector: torch.Tensor) -> torch.Tensor:
            vector *= share
            self.group.all_reduce(vector)
            return vector

        self._replace(average)

    def _replace(self, mixed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace weights and optimiser moments by what `mixed` makes of them, in one vector."""
        moments = self._moments()
        parts = [self.learner.weights(), *[moment.reshape(-1).to(self.vector.dtype) for moment in moments]]
        pieces = mixed(torch.cat(parts)).split([len(part) for part in parts])
        self.learner.set_weights(pieces[0])
        for moment, piece in zip(moments, pieces[1:], strict=True):
            moment.copy_(piece.view_as(moment))

    def _moments(self) -> list[torch.Tensor]:
        """Optimiser moments of all parameters. A worker without rows has none yet; a step of size zero creates them."""
        if not self.learner.optimizer.state:
            before = self.learner.weights()
            self.learner.apply(torch.zeros_like(self.vector), 0)
            self.learner.set_weights(before)
        states = [self.learner.optimizer.state[p] for p in self.learner.parameters if p in self.learner.optimizer.state]
        return [value for state in states for _, value in sorted(state.items()) if isinstance(value, torch.Tensor)]

    def evaluated(self) -> nn.Module:
        if not self.apart:
            return self.model
        average = self.learner.weights() * self.share()
        self.group.all_reduce(average)
        other = copy.deepcopy(self.model)
        Learner(other, self.job, 1).set_weights(average)
        return other

    def finish(self) -> None:
        if self.apart:
            self._average(self.share())

    # ---- checkpoints ----

    def state(self) -> dict[str, Any]:
        state = self.learner.state()
        if self.apart:
            state = {"workers": self.group.gather_objects(state)}
        if not self.job.method.can_lose_workers(self.job):
            state["progress"] = self.group.gather_objects([*self.progress, self.stopped])
        return state

    def load(self, state: dict[str, Any]) -> None:
        found = len(state.get("workers") or state.get("progress") or range(self.group.size))
        if found != self.group.size:
            what = "that have not been averaged yet" if "workers" in state else "with rows of their own"
            raise UserError(
                f"the checkpoint holds {found} workers {what}; resume with workers={found}, not {self.group.size}"
            )
        self.learner.load(state["workers"][self.group.rank] if "workers" in state else state)
        if "progress" in state:
            *self.progress, self.stopped = state["progress"][self.group.rank]


def _steps_of_rounds(counts: list[int], job: Job, least: int) -> dict[int, int]:
    """Steps of the worker that takes most, by the number of rows in a round; also for a whole epoch."""
    every, size = job.average_every, job.batch_size
    if isinstance(every, str):
        return {sum(counts): -(-max(counts) // size)}
    sizes = [batch_sizes(count, size, least) for count in counts]
    longest = max(map(len, sizes))
    found = {sum(counts): longest}
    for first in range(0, longest, every):
        found[sum(sum(own[first : first + every]) for own in sizes)] = min(every, longest - first)
    return found

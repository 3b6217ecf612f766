"""Virtual nodes: workers of one group in one process, one at a time, under a virtual clock.

A node is a thread that runs the ordinary training loop with the ordinary strategy. It runs until it has to wait for
another node; then the next one runs. So what nodes compute is what real workers compute, and the order in which
messages arrive follows from the virtual clock alone, never from the machine.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from shoal.console.background import BackgroundThread, wait_for
from shoal.parallel.events import Notify, silent
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.groups import InProcess, Lost

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job
    from shoal.parallel.worker import Result


@dataclass(frozen=True)
class Timing:
    """Virtual seconds of what nodes do. By default nothing takes time: messages arrive in the order of sending."""

    step: Callable[[int], float] = lambda rank: 0.0  # that a node computes before it sends to another node
    message: Callable[[int], float] = lambda count: 0.0  # that so many bytes are under way


@dataclass(order=True)
class Message:
    """A message under way. Those that arrive at the same time keep the order in which they were sent."""

    time: float
    number: int
    source: int = field(compare=False)
    to: int = field(compare=False)
    vector: torch.Tensor = field(compare=False)


class World:
    """What the nodes of a group share: who runs, who waits for what, messages under way, a clock for each node."""

    def __init__(self, size: int, timing: Timing | None = None) -> None:
        self.size, self.timing = size, timing or Timing()
        self.clocks = [0.0] * size
        self._turns = [threading.Semaphore(0) for _ in range(size)]
        self._ready: deque[int] = deque(range(size))
        self._waiting: dict[int, int | None] = {}  # nodes that wait for a message, and from whom; None: from anyone
        self._inbox: list[deque[Message]] = [deque() for _ in range(size)]
        self._under_way: list[Message] = []
        self._numbers = itertools.count()
        self._slots: dict[int, Any] = {}
        self._met: Any = None
        self.failure: BaseException | None = None

    # ---- turns: exactly one node runs at a time ----

    def begin(self, rank: int) -> None:
        """A node waits for its first turn."""
        self._turns[rank].acquire()
        self._check()

    def start(self) -> None:
        """The first node may run."""
        self._turns[self._ready.popleft()].release()

    def end(self) -> None:
        """A node is done: the next one runs, if any is left."""
        following = self._following()
        if following is not None:
            self._turns[following].release()

    def fail(self, error: BaseException) -> None:
        """A node has failed: all others end as well."""
        if self.failure is None:
            self.failure = error
        for turn in self._turns:
            turn.release()

    def _check(self) -> None:
        if self.failure is not None:
            raise Lost("another node has failed")

    def _pause(self, rank: int) -> None:
        """Let others run until this node is ready again."""
        following = self._following()
        if following is None:
            raise RuntimeError("all nodes wait for each other")
        if following != rank:
            self._turns[following].release()
            self._turns[rank].acquire()
        self._check()

    def _following(self) -> int | None:
        """The next node that can run; messages arrive, in the order of their time, until there is one."""
        while not self._ready:
            if not self._under_way:
                return None
            message = heapq.heappop(self._under_way)
            self._inbox[message.to].append(message)
            wanted = self._waiting.get(message.to, self.size)
            if wanted is None or wanted == message.source:
                del self._waiting[message.to]
                self._ready.append(message.to)
        return self._ready.popleft()

    # ---- what groups are made of ----

    def meet(self, rank: int, value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
        """What `combine` makes of the values of all nodes, once all are here."""
        self._slots[rank] = value
        if len(self._slots) < self.size:
            self._pause(rank)
            return self._met
        self.clocks = [max(self.clocks)] * self.size
        self._met = combine([self._slots[k] for k in range(self.size)])
        self._slots = {}
        self._ready.extend(k for k in range(self.size) if k != rank)
        return self._met

    def send(self, rank: int, vector: torch.Tensor, to: int) -> None:
        self.clocks[rank] += self.timing.step(rank)
        arrival = self.clocks[rank] + self.timing.message(vector.nbytes)
        heapq.heappush(self._under_way, Message(arrival, next(self._numbers), rank, to, vector.clone()))

    def receive(self, rank: int, source: int | None) -> Message:
        found = self._take(rank, source)
        if found is None:
            self._waiting[rank] = source
            self._pause(rank)
            found = self._take(rank, source)
        assert found is not None, "a node goes on when its message is there"
        self.clocks[rank] = max(self.clocks[rank], found.time)
        return found

    def _take(self, rank: int, source: int | None) -> Message | None:
        for message in self._inbox[rank]:
            if source is None or message.source == source:
                self._inbox[rank].remove(message)
                return message
        return None


class Virtual(InProcess):
    """One node's view of the world: the contract of a group, as strategies use it. Sums are those of threads."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def meet(self, value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
        return self.world.meet(self.rank, value, combine)

    def all_gather(self, chunk: torch.Tensor) -> torch.Tensor:
        return super().all_gather(chunk).clone()  # what was combined is one tensor for all nodes

    def send(self, vector: torch.Tensor, to: int) -> None:
        self.world.send(self.rank, vector, to)

    def receive(self, vector: torch.Tensor, source: int | None = None) -> int:
        message = self.world.receive(self.rank, source)
        vector.copy_(message.vector)
        return message.source


def run_nodes(
    job: Job,
    model: nn.Module,
    train: Dataset[Any],
    valid: Dataset[Any] | None,
    notify: Notify = silent,
    timing: Timing | None = None,
) -> tuple[Result, World]:
    """Train on virtual nodes, one for each of the job's ranks. Returns what real workers would, and their world."""
    from shoal.parallel.worker import Worker

    job = replace(job, backend="threads", checkpoint=None, exact=bool(job.exact))
    world = World(job.ranks, timing)
    results: dict[int, Result] = {}

    def work(rank: int, own: nn.Module) -> None:
        try:
            world.begin(rank)
            results[rank] = Worker(job, Virtual(world, rank), own, train, valid, notify).run()
            world.end()
        except BaseException as error:
            world.fail(error)

    models = [model, *(copy.deepcopy(model) for _ in range(job.ranks - 1))]
    with torch_as_it_was():
        threads = [BackgroundThread(partial(work, *pair), f"shoal-node-{pair[0]}") for pair in enumerate(models)]
        world.start()
        wait_for(threads, interrupted=partial(world.fail, KeyboardInterrupt()))
    if world.failure is not None:
        raise world.failure
    return results[0], world

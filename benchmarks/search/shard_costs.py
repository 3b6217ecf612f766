"""What a shard costs the process of the search, measured piece by piece with the code that a real search runs."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.search.simulate import Costs
from shoal.encoders.encoder import arrays_under
from shoal.executors import worker
from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import SerialWorkers
from shoal.executors.interface import Call, Done, RemoteJob, RemoteTask, Reply, WorkerInfo
from shoal.files import tensors
from shoal.population.members import Member
from shoal.runs.journal import Journal
from shoal.search.budget.costs import largest_round
from shoal.search.estimators import ShoalClassifier
from shoal.search.problem.problem import default_epochs
from shoal.search.remote.journaled import Journaled
from shoal.search.remote.on_workers import OnWorkers, work
from shoal.search.remote.payloads import Setting
from shoal.search.remote.shards import state_bytes
from shoal.search.rounds.candidates import Candidate, Order, candidate_cost
from shoal.search.scoring.evidence import Samples
from shoal.search.space import Recipe, default_space

FEATURES, FOLDS = 20, 5
FEW, MANY = 1, 8  # recipes of the two shards from which fixed costs and those of each recipe are told apart
TIMES = 5
FLIGHTS = (10, 1_000)
TASKS = 100
GIGABIT = 125e6  # bytes per second
T = TypeVar("T")


def measure(rows: int, seed: int = 0) -> tuple[Costs, int]:
    """Costs of a search of default recipes on a table of so many rows; and how many recipes a round of it has."""
    setting = _setting(rows)
    recipes = _recipes(setting, rows, seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = OnWorkers(setting, SerialWorkers())
        journaled = Journaled(trainer, setting, Journal(Path(folder)), {}, lambda: 0.0)
        few, many = (_Shards(trainer, journaled, recipes[:count]) for count in (FEW, MANY))
        for _ in range(TIMES):  # in turn: a busy moment hits both
            few.run()
            many.run()
        trainer.close()
        journaled.close_journal()
    fixed, watch = dispatching()
    each = {name: max(many.best[name] - few.best[name], 0.0) / (MANY - FEW) for name in many.best}
    alone = {name: max(few.best[name] - FEW * each[name], 0.0) for name in few.best}
    default = [Recipe(replace(one.member, epochs=default_epochs(rows)), one.encoding) for one in recipes]
    cost = float(np.mean([candidate_cost(setting.matrices, one) * (one.member.epochs or 1) for one in default]))
    state = state_bytes(setting.matrices, "plain", [Candidate(k, recipe) for k, recipe in enumerate(default)])
    costs = Costs(
        recipe=cost * many.seconds / many.cost, submit=alone["submit"] + fixed,
        collect=alone["collect"] + alone["note"] + alone["queue"], disk=alone["disk"],
        note=each["submit"] + each["collect"] + each["note"] + each["queue"], disk_each=each["disk"], watch=watch,
        sent=int(each["sent"]), received=int(each["received"]), received_end=int(each["received_end"]),
        state=int(state.mean()), shard=int(alone["sent"] + alone["received"]), job=len(trainer.dispatcher.job.content),
        link=GIGABIT,
    )  # fmt: skip
    return costs, largest_round(setting.matrices)  # type: ignore[arg-type]


def _setting(rows: int) -> Setting:
    """A table of two classes, encoded and dealt into folds as a search does it."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, FEATURES)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + generator.standard_normal(rows) > 0).astype(int)
    first = ShoalClassifier(Member(hidden=(2,), epochs=1), cv=FOLDS, seeds=1, model="best", n_jobs=1).fit(X, y)
    search = first.result_.search
    return Setting(search.problem, search.metric, search.sample_rows, 0)


def _recipes(setting: Setting, rows: int, seed: int) -> list[Recipe]:
    """Drawn from the default space, of two epochs: what is measured is one epoch, and one more from there."""
    space = default_space(rows, True, ["plain"], default_epochs(rows))
    drawn = space.sample(MANY, np.random.default_rng(seed))
    return [Recipe(replace(recipe.member, epochs=2), recipe.encoding) for recipe in drawn]


class _Shards:
    """A shard of these recipes, for one epoch and then for another: packed, done, unpacked, noted, written down."""

    def __init__(self, trainer: OnWorkers, journaled: Journaled, recipes: Sequence[Recipe]) -> None:
        self.trainer, self.journaled, self.recipes = trainer, journaled, recipes
        self.best: dict[str, float] = {}  # the least seconds or bytes of each piece
        self.seconds = self.cost = 0.0  # of training

    def run(self) -> None:
        setting = self.trainer.setting
        samples = Samples(setting.sample_rows, setting.matrices.task.n_outputs)
        candidates = [Candidate(k, recipe) for k, recipe in enumerate(self.recipes)]
        for until in (1, 2):
            orders = [Order.of(setting.matrices, one, [until] * FOLDS) for one in candidates]
            self._once(orders, samples, ends=until == 2)

    def _once(self, shard: list[Order], samples: Samples, ends: bool) -> None:
        trainer, journaled = self.trainer, self.journaled
        payload = self._time("submit", lambda: trainer._payload(shard))
        begun = time.process_time()  # the kernel has threads of its own
        content = work(trainer.setting, payload, 1)
        seconds = time.process_time() - begun
        cost = sum(order.cost for order in shard)
        if not self.cost or seconds / cost < self.seconds / self.cost:
            self.seconds, self.cost = seconds, cost
        done = Done(RemoteTask("one", payload, cost, about=shard), content, seconds)
        batch = self._time("collect", lambda: trainer._batch(done))
        self._time("note", lambda: batch.hand_over(trainer.matrices, samples))
        self._time("queue", lambda: journaled._write_soon(batch))
        self._time("disk", lambda: journaled._settle(0), time.perf_counter)
        networks = arrays_under("networks.", tensors.unpack(content)[0])
        if ends:
            self._least("received_end", len(content))
        else:  # `Costs.state` has the bytes of its networks
            self._least("sent", len(payload))
            self._least("received", len(content) - sum(array.nbytes for array in networks.values()))

    def _time(self, name: str, what: Callable[[], T], clock: Callable[[], float] = time.thread_time) -> T:
        """By the time that this thread computes, whoever else is busy on the machine."""
        begun = clock()
        found = what()
        self._least(name, clock() - begun)
        return found

    def _least(self, name: str, value: float) -> None:
        self.best[name] = min(value, self.best.get(name, np.inf))


# ---- giving out tasks ----


def dispatching() -> tuple[float, float]:
    """Seconds of the loop that gives out tasks: for each task, and for each task and each other one in flight."""
    few, many = (min(_seconds_per_task(flights) for _ in range(2)) for flights in FLIGHTS)
    watch = max(many - few, 0.0) / (FLIGHTS[1] - FLIGHTS[0])
    return max(few - watch * FLIGHTS[0], 0.0), watch


def _seconds_per_task(flights: int) -> float:
    workers = _Instant(flights)
    content = b"nothing"
    job = RemoteJob.of(content, "builtins:bytes", "builtins:bytes")
    with Dispatcher(workers, job) as dispatcher:
        tasks = [RemoteTask(str(k), b"", 1.0) for k in range(flights + TASKS)]
        times = []
        for _ in dispatcher.run(tasks, lambda: False, lambda task: []):
            times.append(time.thread_time() - workers.spent)
            if len(times) > TASKS:
                break
        return (times[TASKS] - times[0]) / TASKS


class _Instant(SerialWorkers):
    """Workers of which one ends a task whenever the search asks how many there are; what that takes is not counted."""

    name = "instant"

    def __init__(self, count: int) -> None:
        self.count, self.spent = count, 0.0
        self._running: deque[tuple[Future[Reply], Call]] = deque()
        self._hello: dict[str, Any] = worker.hello()

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        return [WorkerInfo.of(self._hello)]

    def slots(self) -> int:
        begun = time.thread_time()
        if len(self._running) >= self.count - 1:
            future, call = self._running.popleft()
            reply = worker.run(replace(call, work="benchmarks.search.shard_costs:nothing"))
            self.spent += time.thread_time() - begun
            future.set_result(reply)
        return self.count

    def submit(self, call: Call) -> Future[Reply]:
        future: Future[Reply] = Future()
        self._running.append((future, call))
        return future


def nothing(job: Any, payload: bytes, threads: int) -> bytes:
    """The task of a worker that does nothing."""
    return b""

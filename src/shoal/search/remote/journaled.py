"""A trainer that remembers: what was trained once, in this attempt or an earlier one, is not trained again.

The journal holds a file of assessments for each finished shard, and one of networks. What a candidate's part in them
depends on is hashed into its key: the data and how rows were dealt out, the metric, the recipe, the epochs, the
versions. How candidates were put together into shards, by whom and where they were trained, is not in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shoal import _native
from shoal.errors import UserError
from shoal.executors.find import find_workers
from shoal.executors.interface import Workers
from shoal.files import atomic
from shoal.machine import instruction_set, using_instruction_set
from shoal.metrics.metric import Metric
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.runs.journal import Journal, JournalEntry
from shoal.runs.versions import versions_for_bits
from shoal.search.budget.clock import ELAPSED, Clock
from shoal.search.budget.costs import SAMPLE_CELLS, choose_sample
from shoal.search.options import SearchOptions
from shoal.search.problem.problem import Problem
from shoal.search.remote import payloads
from shoal.search.remote.on_workers import OnWorkers
from shoal.search.remote.payloads import Setting
from shoal.search.rounds.candidates import SHARD_SECONDS, Batch, Candidate, LocalTrainer, Order, Trainer
from shoal.search.rounds.training import Assessment, Control

SHARD, NETWORKS = "shard", "networks"  # kinds of files
PENDING = 2  # shards that wait to be written while the next ones are trained


class Journaled(Trainer):
    """Looks into the journal first, and has another trainer do what is missing."""

    def __init__(
        self, inner: Trainer, setting: Setting, journal: Journal, versions: dict[str, str], elapsed: Callable[[], float]
    ) -> None:
        self.inner, self.setting, self.journal, self.elapsed = inner, setting, journal, elapsed
        self.status, self.workplace = inner.status, inner.workplace
        self._setting_key = _hash([payloads.setting_digest(setting), versions])
        self._writer = ThreadPoolExecutor(1, "shoal-journal")  # the disk is waited for while training goes on
        self._pending: list[Future[None]] = []
        self._homes: dict[int, Path] = {}  # the file that holds a candidate's networks
        self._files: set[Path] = set()  # with networks; those of an earlier rung may be nobody's home any more
        self.recalled = 0  # assessments that were found

    def slots(self) -> int:
        return self.inner.slots()

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def train(self, orders: Sequence[Order], control: Control, anew: bool = False) -> Generator[Batch, None, None]:
        self._settle(0)
        missing = list(orders)
        if not anew:
            missing = yield from self._recall(orders)
        if not missing:
            return
        for batch in self.inner.train(missing, control, anew):
            if batch.assessments:
                self._write_soon(batch)
            yield batch
        self._settle(0)

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """Remove files of networks that nobody needs any more."""
        self._settle(0)
        alive = {candidate.number for candidate in candidates}
        self._homes = {number: path for number, path in self._homes.items() if number in alive}
        for path in self._files - set(self._homes.values()):
            self._files.discard(path)
            self.journal.remove(path)
        self.inner.keep(candidates)

    def close_journal(self) -> None:
        """Wait until everything is written."""
        self._writer.shutdown(wait=True)

    # ---- finding ----

    def _recall(self, orders: Sequence[Order]) -> Generator[Batch, None, list[Order]]:
        """What is in the journal; gives back what is not."""
        missing: list[Order] = []
        places: dict[Path, list[tuple[Order, int]]] = {}
        for order in orders:
            found = self.journal.find(SHARD, self._key(order))
            if found is None:
                missing.append(order)
            else:
                places.setdefault(found[0], []).append((order, found[1]))
        for path, pairs in places.items():
            entry = self.journal.read(path)
            assessments = None if entry is None else self._assessments(entry)
            if entry is None or assessments is None:
                missing += [order for order, _ in pairs]
                continue
            too_little = {order for order, place in pairs if order.whole and assessments[place].sample is not None}
            missing += too_little
            usable = [pair for pair in pairs if pair[0] not in too_little]
            yield from self._batches(usable, assessments, entry.about["seconds"])
        return sorted(missing, key=lambda order: order.candidate.number)

    def _assessments(self, entry: JournalEntry) -> list[Assessment] | None:
        try:
            rows = self.setting.sample_rows
            return payloads.load_assessments(self.setting.matrices, rows, entry.arrays, len(entry.keys))
        except UserError as error:
            self.journal.warn(f"a file of the journal does not fit this search ({error}); it is computed again")
            return None

    def _batches(
        self, pairs: Sequence[tuple[Order, int]], assessments: Sequence[Assessment], seconds: Sequence[float]
    ) -> Iterator[Batch]:
        """What a file has, as a batch of those whose networks are there too, and one of the others."""
        networks = self._networks([order for order, _ in pairs])
        with_them = [pair for pair in pairs if pair[0].candidate.number in networks]
        without = [pair for pair in pairs if pair[0].candidate.number not in networks]
        for some in (with_them, without):
            if some:
                population = None
                if some is with_them:
                    sources = [networks[order.candidate.number] for order, _ in some]
                    population = Population.gather([one for each in sources for one in each])
                self.recalled += len(some)
                if self.status is not None:
                    self.status.found += len(some)
                yield Batch(
                    [order for order, _ in some], population,
                    {k: assessments[place] for k, (_, place) in enumerate(some)},
                    float(sum(seconds[place] for _, place in some)), found=True,
                )  # fmt: skip

    def _networks(self, orders: Sequence[Order]) -> dict[int, list[tuple[Population, int]]]:
        """Where the networks of candidates are, by number; of those that are in the journal."""
        places: dict[Path, list[tuple[Order, int]]] = {}
        for order in orders:
            found = self.journal.find(NETWORKS, self._key(order))
            if found is not None:
                places.setdefault(found[0], []).append((order, found[1]))
        folds, located = len(self.setting.matrices.folds), {}
        for path, pairs in places.items():
            networks = self._load_networks(path)
            self._files.add(path)
            for order, place in pairs if networks is not None else []:
                assert networks is not None
                number = order.candidate.number
                located[number] = [(networks, place * folds + k) for k in range(folds)]
                self._homes[number] = path
        return located

    def _load_networks(self, path: Path) -> Population | None:
        entry = self.journal.read(path)
        if entry is None:
            return None
        try:
            members = [Member.from_dict(member) for member in entry.about["members"]]
            return payloads.load_networks(self.setting.matrices, entry.about["encoding"], members, entry.arrays)
        except (UserError, KeyError, TypeError) as error:
            self.journal.warn(f"{path} does not fit this search ({error}); its work is computed again")
            return None

    # ---- writing ----

    def _write_soon(self, batch: Batch) -> None:
        """In another thread, and from copies: networks may be trained further meanwhile."""
        unique = {self._key(batch.orders[place]): place for place in batch.assessments}  # recipes may be there twice
        keys, places = list(unique), list(unique.values())
        orders = [batch.orders[place] for place in places]
        matrices = self.setting.matrices
        small = matrices.n * matrices.task.n_outputs <= SAMPLE_CELLS
        whole = [small or order.whole for order in orders]
        found = [batch.assessments[place] for place in places]
        arrays = payloads.pack_assessments(matrices, found, whole, self.setting.sample_rows)
        costs = np.array([order.cost for order in orders])
        seconds = batch.seconds * costs / max(float(costs.sum()), 1e-300)
        networks = None
        if batch.networks is not None:
            folds = len(matrices.folds)
            members = (np.array(places)[:, None] * folds + np.arange(folds)).ravel()
            networks = batch.networks.select(members)
        elapsed = self.elapsed()

        def write() -> None:
            if networks is not None:  # first: an assessment that is there has its networks, unless they were removed
                self._write_networks(batch.encoding, orders, keys, networks)
            self.journal.write(SHARD, keys, arrays, {"seconds": seconds.tolist()})
            self.journal.note(ELAPSED, elapsed)

        self._settle(PENDING - 1)
        self._pending.append(self._writer.submit(write))

    def _write_networks(
        self, encoding: str, orders: Sequence[Order], keys: Sequence[str], networks: Population
    ) -> None:
        moments = not all(order.final for order in orders)
        members = [order.candidate.recipe.member.as_dict() for order in orders]
        arrays = payloads.pack_networks(networks, moments)
        path = self.journal.write(NETWORKS, keys, arrays, {"encoding": encoding, "members": members})
        self._files.add(path)
        self._homes |= {order.candidate.number: path for order in orders}

    def _settle(self, pending: int) -> None:
        """Wait until so many files at most are still to be written; raises what went wrong with one."""
        while len(self._pending) > pending:
            self._pending.pop(0).result()

    def _key(self, order: Order) -> str:
        recipe = order.candidate.recipe
        return _hash([self._setting_key, recipe.encoding, recipe.member.as_dict(), list(order.until)])


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def results_in(journal: Journal) -> int:
    """Assessments that a journal holds."""
    return journal.count(SHARD)


# ---- which trainer a search has ----

DATA = "data.bin"  # what all shards share, beside the journal, as long as this process lives
ISA = "instruction set"  # event of the journal


@contextmanager
def open_trainer(
    problem: Problem,
    metric: Metric,
    options: SearchOptions,
    journal: Journal | None,
    clock: Clock,
    workers: Workers | None = None,
) -> Iterator[Trainer]:
    """A trainer that ends what it has started, the `workers` too. All bits inside are those of one instruction set."""
    setting = Setting(problem, metric, choose_sample(problem, options.seed), options.seed)
    with ExitStack() as stack:
        stack.enter_context(using_instruction_set(_noted(journal)))
        trainer = _trainer(setting, options, journal, clock, workers)
        stack.callback(trainer.close)
        if isinstance(trainer, OnWorkers):
            stack.enter_context(using_instruction_set(trainer.dispatcher.instruction_set))
        if journal is not None:
            if _noted(journal) is None:
                journal.note(ISA, instruction_set())
            known = versions_for_bits() | {ISA: instruction_set()}
            trainer = Journaled(trainer, setting, journal, known, clock.elapsed)
            stack.callback(trainer.close_journal)
        yield trainer


@contextmanager
def workers_beside(executor: Any) -> Iterator[Workers | None]:
    """Workers that begin to start while the caller does something else; None: the search trains in this process."""
    workers = None if executor is None else find_workers(executor)
    if workers is None:
        yield None
        return
    try:
        workers.prepare()
        yield workers
    except BaseException:
        workers.close()
        raise


def _trainer(
    setting: Setting, options: SearchOptions, journal: Journal | None, clock: Clock, workers: Workers | None
) -> Trainer:
    if workers is None:
        seconds = None if journal is None else SHARD_SECONDS
        return LocalTrainer(setting.matrices, setting.metric, setting.seed, options.threads, seconds, clock.now)
    return OnWorkers(setting, workers, None if journal is None else atomic.beside(journal.folder / DATA))


def _noted(journal: Journal | None) -> str | None:
    """The instruction set of earlier attempts, if this machine has it."""
    events: list[tuple[str, Any]] = [] if journal is None else journal.events()
    noted = next((value for name, value in events if name == ISA), None)
    return noted if noted in _native.instruction_sets() else None

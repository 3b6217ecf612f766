"""Where a search trains: in this process or on workers, with a journal or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from shoal import _native
from shoal.executors.find import find_workers
from shoal.executors.interface import Workers
from shoal.machine import instruction_set, using_instruction_set
from shoal.metrics.metric import Metric
from shoal.runs.journal import Journal
from shoal.runs.versions import LIBRARIES, versions
from shoal.search.journaled import Journaled
from shoal.search.on_workers import OnWorkers
from shoal.search.options import SearchOptions
from shoal.search.payloads import Setting
from shoal.search.problem import Problem
from shoal.search.schedule import choose_sample
from shoal.search.timing import Clock
from shoal.search.trainers import SHARD_SECONDS, InProcess, Trainer

DATA = "data.bin"  # what all shards share, beside the journal
ISA = "instruction set"  # event of the journal


@contextmanager
def training_place(
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
            found = versions()
            known = {name: found[name] for name in (*LIBRARIES, "machine")} | {ISA: instruction_set()}
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
        return InProcess(setting.matrices, setting.metric, setting.seed, options.threads, seconds, clock.now)
    return OnWorkers(setting, workers, None if journal is None else journal.folder / DATA)


def _noted(journal: Journal | None) -> str | None:
    """The instruction set of earlier attempts, if this machine has it."""
    events: list[tuple[str, Any]] = [] if journal is None else journal.events()
    noted = next((value for name, value in events if name == ISA), None)
    return noted if noted in _native.instruction_sets() else None

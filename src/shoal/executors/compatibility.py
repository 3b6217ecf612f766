"""Settings that all present workers can share: instruction set, threads for each task, memory for each task."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal import machine
from shoal.errors import UserError
from shoal.executors import worker
from shoal.executors.interface import INSTALL_REMEDY, WorkerInfo, Workers


@dataclass(frozen=True)
class TaskSettings:
    """What holds for every task."""

    instruction_set: str
    threads: int
    threads_on: dict[str, int] = field(default_factory=dict)  # hosts with another number of threads
    memory: int = 0  # bytes for each task; 0: unknown


def choose_instruction_set(infos: Sequence[WorkerInfo]) -> str:
    """SHOAL_ISA, else the fastest that all workers and this process have."""
    if os.environ.get("SHOAL_ISA"):
        return machine.instruction_set()
    mine = worker.hello()["instruction_sets"]
    common = [name for name in mine if all(name in info.instruction_sets for info in infos)]
    if not common:
        sets = sorted({", ".join(info.instruction_sets) for info in infos})
        raise UserError(f"the workers have no instruction set in common with this machine: {'; '.join(sets)}")
    return str(common[0])


def accept(
    infos: Sequence[WorkerInfo], workers: Workers, wanted: str | None, note: Callable[[str], None]
) -> list[WorkerInfo]:
    """Those that can give the same bits; the others get no tasks. UserError where that cannot be arranged."""
    accepted, reasons = [], []
    for info in infos:
        reason = worker.mismatch(info.versions, info.instruction_sets, worker.versions(), wanted)
        if not reason:
            accepted.append(info)
            continue
        text = f"{who(info)} cannot take part: {reason}; {INSTALL_REMEDY}"
        if not workers.refuse(info):
            raise UserError(f"{workers.name}: {text}")
        reasons.append(text)
    for text in reasons[:3]:
        note(text)
    if len(reasons) > 3:
        note(f"{len(reasons) - 3} more workers cannot take part")
    if infos and not accepted:
        raise UserError(f"{workers.name}: no worker can take part: {reasons[0]}")
    return accepted


def who(info: WorkerInfo | None) -> str:
    if info is None:
        return "a worker"
    return f"worker {info.name or info.pid} on {info.host}"


def share(infos: Sequence[WorkerInfo], instruction_set: str) -> TaskSettings:
    """Cores and memory of each host, shared out among the tasks that run there at the same time."""
    tasks: dict[str, int] = defaultdict(int)
    cores: dict[str, int] = defaultdict(int)
    memory: dict[str, int] = {}
    for info in infos:
        tasks[info.host] += max(1, info.slots)
        cores[info.host] = max(cores[info.host], info.cores)
        if info.memory > 0:
            memory[info.host] = min(memory.get(info.host, info.memory), info.memory)
    each = min((memory[host] // tasks[host] for host in memory), default=0)
    if not tasks:
        return TaskSettings(instruction_set, machine.thread_count(), {}, each)
    on = {host: max(1, cores[host] // tasks[host]) for host in tasks}
    usual = Counter(on.values()).most_common(1)[0][0]
    return TaskSettings(instruction_set, usual, {host: count for host, count in on.items() if count != usual}, each)

"""A search in small, as a process of its own: python executor_driver.py CLUSTER FOLDER [wait]. Prints what it got.

With "wait" its tasks wait until FOLDER/go is there. Ctrl-C ends it as it ends a search: at once, with what there is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shoal.console.interrupts import interruptible
from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers
from support.executors import Bench, cut, gained, task_of, tasks_of


def main(cluster: str, folder: Path, waits: bool) -> None:
    bench = Bench(folder)
    tasks = tasks_of(8)
    if waits:
        tasks = [task_of(f"task{i}", {f"part{i}": "wait"}) for i in range(8)]
    with interruptible() as interrupt, Dispatcher(find_workers(cluster), bench.job) as dispatcher:
        results = list(dispatcher.run(tasks, lambda: bool(interrupt.requested), cut))
        found, expected = gained(results), bench.expected(tasks)
        same = "the same" if found.items() <= expected.items() else "different"
        again = dispatcher.status.repeated
        print(f"{len(found)} of {len(expected)} parts, {same}, {again} again; {dispatcher.settings.threads} threads")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), "wait" in sys.argv[3:])

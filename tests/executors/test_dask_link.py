"""Two hosts with a link between them that is cut, for a while or for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.dask_cluster import Cluster
from support.executors import gained, run, task_of, tasks_of
from support.network import Link, may_make_links
from support.waiting import wait_until

from shoal.executors.dask import connection as dask_connection
from shoal.executors.dask.workers import DaskWorkers
from shoal.executors.dispatch import Dispatcher


@pytest.fixture
def link() -> Iterator[Link]:
    if not may_make_links():
        pytest.skip("network namespaces need the rights of root, and the command ip")
    with closing(Link()) as link:
        link.open()
        yield link


def test_a_link_that_is_cut_costs_at_most_the_task_behind_it(link, tmp_path, bench, monkeypatch):
    """One worker is on the other host. The search goes on when the link does, and without it where it does not."""
    with closing(Cluster(tmp_path, host=link.here)) as cluster:
        cluster.add(prefix=link.prefix, host=link.there)
        with Dispatcher(DaskWorkers(cluster.name), bench.job) as dispatcher:
            assert [info.name.partition("://")[2].partition(":")[0] for info in dispatcher.workers.present()] == [
                link.there
            ]
            [far] = dispatcher.workers._connection.workers.values()
            cut = []

            def cut_for_a_while() -> bool:
                if bench.traces("waits") and not cut:
                    cut.append(True)
                    link.cut()
                    bench.go()  # it is done while nobody can be told
                    wait_until(lambda: far.quiet > 3)
                    link.mend()
                return False

            tasks = [task_of("long", {"long": "wait"}, cost=99), *tasks_of(6)]
            assert gained(run(dispatcher, tasks, cut_for_a_while)) == bench.expected(tasks)
            assert (cut, dispatcher.status.lost, dispatcher.status.repeated) == ([True], 0, 0)

            monkeypatch.setattr(dask_connection, "SILENT_SECONDS", 4.0)
            bench.stay()
            [near] = cluster.add()

            def cut_for_good() -> bool:
                if len(bench.traces("waits")) == 3 and len(cut) == 1:
                    cut.append(True)
                    link.cut()
                    bench.go()
                return False

            wait_until(lambda: dispatcher.workers.slots() == 2)
            tasks = [task_of(f"long{i}", {f"long{i}": "wait"}) for i in range(2)]
            assert gained(run(dispatcher, tasks, cut_for_good)) == bench.expected(tasks)
            assert len(cut) == 2
            assert dispatcher.status.lost >= 1
            assert {name for process, name in bench.traces("tasks") if process == near} == {"long0", "long1"}

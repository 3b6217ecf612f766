"""`shoal search --cluster`: what it says beforehand and afterwards, and what listens while it runs."""

import json
import socket
import time

import psutil
import pytest
from support.commands import command
from support.waiting import wait_until

from shoal.executors.local import LocalWorkers
from shoal.search.budget.model import Forecast
from shoal.search.remote.journaled import workers_beside
from shoal.search.remote.workplace import Workplace, look

IRIS = "sepal,species\n" + "".join(f"{k % 3 + k / 1000},{'abc'[k % 3]}\n" for k in range(60))
LOOPBACK = {"127.0.0.1", "::1"}


@pytest.fixture
def table(tmp_path):
    (tmp_path / "iris.csv").write_text(IRIS)
    return tmp_path


def listening_while(words, folder):
    """Addresses on which a command and the processes that it started listened, seen until it ended."""
    seen = set()
    with open(folder / "said", "wb") as said:
        process = psutil.Popen(words, cwd=folder, stdout=said, stderr=said)

        def ended():
            """Looking takes a while: not more often than needed."""
            time.sleep(0.2)
            for one in [process, *process.children(recursive=True)]:
                try:
                    found = one.net_connections("tcp")
                except psutil.Error:  # it has ended
                    continue
                seen.update((one.pid == process.pid, *link.laddr) for link in found if link.status == "LISTEN")
            return process.poll() is not None

        wait_until(ended, timeout=400)
    assert process.returncode == 0, (folder / "said").read_text()
    return seen


def test_a_search_on_worker_processes_listens_nowhere_and_says_where_it_was_trained(table):
    words = ("search", "iris.csv", "--target", "species", "--recipes", 4, "--seeds", 1, "--epochs", 5)
    assert listening_while(command(*words, "--cluster", "local:2", "--out", "out"), table) == set()
    said = (table / "said").read_text()
    assert "  workers: local:2: 2 workers on 1 host, 2 shards at a time, " in said
    assert "  time there: about " in said
    found = json.loads((table / "out" / "settings.json").read_text())["result"]["trained_on"]
    assert (found["workers"], found["slots"], found["lost"]) == ("local:2", 2, 0)
    assert found["shards"] >= 2
    assert min(found["bytes_sent"], found["bytes_received"]) > 1000
    assert "local:2: 2 shards at a time" in (table / "out" / "report.html").read_text()
    assert "local:2" not in (table / "out" / "model" / "model.json").read_text()
    assert not (table / "out" / "journal").exists(), "nor rows of the table"


def test_workers_of_shoal_train_listen_on_loopback_only(tmp_path):
    """The monitor and the store of the command, and gloo in the workers."""
    words = ("train", "--data", "iris", "--workers", 2, "--backend", "processes", "--epochs", 20)
    seen = listening_while(command(*words), tmp_path)
    assert {address for _, address, _ in seen} <= LOOPBACK
    assert len({port for mine, _, port in seen if mine}) == 2
    assert any(not mine for mine, _, _ in seen)


def test_a_dry_run_says_who_the_workers_are_and_trains_nothing(table, call):
    words = ("search", "iris.csv", "--target", "species", "--recipes", 50, "--dry-run", "--cluster")
    said = call(table, *words, "local:1").stdout
    assert "in this process; memory" in said
    assert "  workers: local:1: 1 worker on 1 host, 1 shard at a time, " in said
    assert "s, if their cores are as fast as those here" in said or "min, if their cores" in said
    assert {file.name for file in table.iterdir()} == {"iris.csv"}


def test_no_scheduler_is_said_before_the_data_are_looked_for(tmp_path, call):
    pytest.importorskip("distributed")
    with socket.socket() as taken:  # nobody listens there, and nobody else can get the port meanwhile
        taken.bind(("127.0.0.1", 0))
        address = f"dask://127.0.0.1:{taken.getsockname()[1]}"
        words = ("search", "no-such-file.csv", "--target", "y", "--cluster")
        assert f"{address}: no Dask scheduler answers there" in call(tmp_path, *words, address, code=2).stderr
    assert "did you mean 'local:2'?" in call(tmp_path, *words, "lokal:2", code=2).stderr
    assert "start it as mpiexec -n 5 python" in call(tmp_path, *words, "mpi", code=2).stderr


def test_the_time_there_is_shorter_by_what_workers_take_over():
    plan = Forecast(10, 3, "", 5, 30, seconds=100.0, memory=0, training=80.0)
    assert plan.seconds_there(1.0) == 100.0
    assert plan.seconds_there(4.0) == 40.0
    place = Workplace("x", workers=4, hosts=2, slots=8, threads=16)
    assert place.times_faster(2) == 8.0
    assert "8 shards at a time, 2 threads each" in place.describe()


def test_looking_at_workers_counts_them():
    found = look(None)
    assert (found.workers, found.hosts, found.slots) == (1, 1, 1)


def test_processes_that_began_to_start_end_when_the_data_cannot_be_encoded():
    workers = LocalWorkers("local:1")
    before = {child.pid for child in psutil.Process().children()}
    started = []

    def encode():
        children = [child for child in psutil.Process().children() if child.pid not in before]
        started.extend(child for child in children if any("popen_loky" in word for word in child.cmdline()))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), workers_beside(workers):
        encode()
    assert len(started) == 1
    wait_until(lambda: not started[0].is_running())


def test_processes_are_started_once_and_then_used():
    """By `prepare` or by `start`."""
    workers = LocalWorkers("local:1")
    workers.prepare()
    first = workers._seats[0].hear(time.monotonic() + 60).pid
    assert look(workers).workers == 1
    assert workers.present()[0].pid == first

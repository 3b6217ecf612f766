"""Workers that are killed, stopped or fail; heartbeats; resumed runs, which end with the undisturbed weights."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import torch
from support.parallel_cases import BATCH, SETTINGS, data, far, flat, network
from support.parallel_trap import Trap
from support.processes import children_of
from support.waiting import wait_until
from support.watching import Seen

from shoal import parallel
from shoal.parallel import checkpoint
from shoal.parallel.launch.heartbeat import MOST_CHARACTERS_OF_HELLO, PEER_LOST, Heartbeat, HeartbeatMonitor

EXACT = {**SETTINGS, "strategy": "allreduce", "exact": True}


@pytest.fixture(scope="module")
def undisturbed():
    return parallel.fit(network("random"), data(), backend="threads", workers=1, **EXACT).model


# ---- losses ----


@pytest.mark.parametrize(
    ("backend", "action", "fewer"),
    [
        ("processes", "SIGKILL", False),
        ("processes", "SIGSTOP", True),
        ("mpi", "SIGKILL", False),
        ("mpi", "SIGSTOP", False),
    ],
)
def test_a_lost_worker_is_noticed_and_the_run_ends_with_the_same_weights(backend, action, fewer, undisturbed, tmp_path):
    seen = Seen()
    result = parallel.fit(
        network("random"), Trap(tmp_path / "sprung", action), backend=backend, workers=2, allow_fewer=fewer,
        checkpoint=str(tmp_path / "run"), checkpoint_every=2, callbacks=[seen], **EXACT,
    )  # fmt: skip
    assert (tmp_path / "sprung").exists(), "the trap did not spring: the test tests nothing"
    assert torch.equal(flat(result.model), flat(undisturbed))
    assert "restarting from the last checkpoint" in seen.text
    assert f"with {1 if fewer else 2} worker" in seen.text
    assert result.metrics["workers"] == (1 if fewer else 2)


def test_losses_without_end_are_given_up(tmp_path):
    class Deadly(Trap):
        def spring(self) -> None:
            os._exit(3)

    with pytest.raises(parallel.WorkerLost, match=r"worker \d ended with exit code 3. Shoal restarted .* 0 times"):
        parallel.fit(network(), Deadly(tmp_path / "x", ""), backend="processes", workers=2, restarts=0, **EXACT)


@pytest.mark.parametrize("backend", ["processes", "mpi"])
def test_an_error_in_one_worker_ends_all_with_that_error_once(backend, tmp_path, capfd):
    with pytest.raises(parallel.WorkerError) as caught:
        parallel.fit(network(), Trap(tmp_path / "x", "error"), backend=backend, workers=2, **EXACT)
    assert str(caught.value).count("ZeroDivisionError: row 17 is cursed") == 2  # the summary, and its traceback's end
    assert "worker 1 of 2 failed" in str(caught.value)
    screen = capfd.readouterr()
    assert "Traceback" not in screen.err + screen.out


def test_no_worker_is_left_behind_after_ctrl_c(tmp_path):
    script = tmp_path / "long.py"
    script.write_text(
        "from shoal import parallel\nfrom support.parallel_cases import data, network\n"
        "class Going:\n    def step_ended(self, event):\n        print('going', flush=True)\n"
        "parallel.fit(network(), data(), strategy='allreduce', exact=True, workers=2, epochs=100000,\n"
        "             callbacks=[Going()])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == b"going"
    children = children_of(process.pid)
    assert len(children) == 2
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    wait_until(lambda: not any(psutil.pid_exists(child) for child in children))


# ---- heartbeats ----


def test_the_monitor_notices_silence_and_broken_connections_and_refuses_strangers():
    monitor = HeartbeatMonitor(patience=1.5)
    ended: list[str] = []
    heartbeat = Heartbeat(monitor.address, 5, ended.append)
    try:
        quiet = socket.create_connection(("127.0.0.1", int(monitor.address.split(":")[1])))
        quiet.sendall((json.dumps({"token": monitor.token, "rank": 3, "pid": 1, "host": "elsewhere"}) + "\n").encode())
        stranger = socket.create_connection(("127.0.0.1", int(monitor.address.split(":")[1])))
        stranger.sendall((json.dumps({"token": "guess", "rank": 4, "pid": 1, "host": "elsewhere"}) + "\n").encode())
        heartbeat.send("progress", share=0.5)
        events = [monitor.events.get(timeout=10) for _ in range(4)]
        kinds = {(event.kind, event.rank) for event in events}
        assert kinds == {("connected", 3), ("connected", 5), ("progress", 5), ("lost", 3)}
        assert "silent" in next(event for event in events if event.kind == "lost").content["reason"]
        monitor.stop()
        assert wait_until(lambda: ended) == [""]
        assert stranger.recv(10) == b""
    finally:
        monitor.close()
        heartbeat.close()
        quiet.close()
        stranger.close()


def test_a_silent_worker_that_computes_is_not_lost_until_it_stops():
    """Where many programs share the processors, it may be seconds before it can send anything."""
    monitor = HeartbeatMonitor(patience=1.0)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        quiet = socket.create_connection(("127.0.0.1", int(monitor.address.split(":")[1])))
        hello = {"token": monitor.token, "rank": 0, "pid": busy.pid, "host": socket.gethostname()}
        quiet.sendall((json.dumps(hello) + "\n").encode())
        assert monitor.events.get(timeout=10).kind == "connected"
        with pytest.raises(queue.Empty):
            monitor.events.get(timeout=5)
        busy.send_signal(signal.SIGSTOP)
        assert monitor.events.get(timeout=10).kind == "lost"
    finally:
        busy.kill()
        busy.wait()
        monitor.close()
        quiet.close()


def test_a_stranger_who_never_ends_the_first_line_is_cut_off():
    monitor = HeartbeatMonitor()
    with socket.create_connection(("127.0.0.1", int(monitor.address.split(":")[1])), timeout=60) as stranger:
        stranger.sendall(b"x" * (MOST_CHARACTERS_OF_HELLO + 1))
        with contextlib.suppress(ConnectionResetError):  # it had sent more than was read
            assert stranger.recv(10) == b""
    monitor.close()


def test_a_worker_that_starts_after_its_launcher_was_killed_ends_without_a_word(tmp_path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{bound.getsockname()[1]}:token"
        own = {**os.environ, "SHOAL_MONITOR": address, "SHOAL_RANK": "0"}
        program = [sys.executable, "-m", "shoal.parallel.launch.rank", str(tmp_path)]
        done = subprocess.run(program, env=own, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (PEER_LOST, "", "")


def test_a_closed_monitor_leaves_no_thread_behind():
    before = set(threading.enumerate())
    monitor = HeartbeatMonitor()
    heartbeat = Heartbeat(monitor.address, 0, lambda reason: None)
    assert monitor.events.get(timeout=10).kind == "connected"
    monitor.close()
    heartbeat.close()
    wait_until(lambda: not set(threading.enumerate()) - before)


def test_a_worker_that_is_cut_off_is_lost_and_ends_itself():
    """A proxy drops all messages, like an unplugged cable: connections stay open, nothing arrives."""
    monitor, ended = HeartbeatMonitor(patience=3.0), []
    _, port, token = monitor.address.split(":")
    server = socket.create_server(("127.0.0.1", 0))
    cut, passed = threading.Event(), []
    ends: list[socket.socket] = []

    def forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(4096):
                if not cut.is_set():
                    target.sendall(content)
                    passed.append(content)

    def proxy() -> None:
        worker, _ = server.accept()
        onward = socket.create_connection(("127.0.0.1", int(port)))
        ends.extend([worker, onward])
        for pair in ((worker, onward), (onward, worker)):
            threading.Thread(target=forward, args=pair, daemon=True).start()

    threading.Thread(target=proxy, daemon=True).start()
    heartbeat = Heartbeat(f"127.0.0.1:{server.getsockname()[1]}:{token}", 1, ended.append)
    try:
        assert monitor.events.get(timeout=10).kind == "connected"
        wait_until(lambda: len(passed) >= 8)  # signs of life of both
        assert monitor.events.empty()
        cut.set()
        event = monitor.events.get(timeout=60)
        assert (event.kind, event.rank) == ("lost", 1)
        assert wait_until(lambda: ended) == ["no heartbeat for 7 s"]
    finally:
        monitor.close()
        heartbeat.close()
        server.close()
        for end in ends:
            end.close()


# ---- checkpoints ----


def test_a_run_can_be_resumed_anywhere_with_any_number_of_workers(tmp_path, undisturbed):
    """Interrupted in the middle of several epochs, and resumed with other workers: no row is lost or repeated."""

    class Stop(Exception):
        pass

    class StopAfter:
        def __init__(self, rounds):
            self.left = rounds

        def progress(self, event):
            self.left -= 1
            if self.left < 0:
                raise Stop

    model = network("random")
    for workers in (1, 3, 2, 8):
        with pytest.raises(Stop):
            parallel.fit(
                network("random"), data(), backend="threads", workers=workers, checkpoint=str(tmp_path),
                checkpoint_every=1, callbacks=[StopAfter(3)], **EXACT,
            )  # fmt: skip
    content = torch.load(tmp_path / checkpoint.NAME, weights_only=True)
    assert content["position"] % BATCH == 0
    assert content["epoch"] >= 2
    result = parallel.fit(model, data(), backend="threads", workers=2, checkpoint=str(tmp_path), **EXACT)
    assert torch.equal(flat(result.model), flat(undisturbed))
    assert [record["epoch"] for record in result.history] == list(range(EXACT["epochs"]))


@pytest.mark.parametrize("strategy", ["serial", "local_sgd", "parameter_server"])
def test_every_strategy_resumes_from_an_epoch(strategy, tmp_path):
    job = {**SETTINGS, "strategy": strategy, "backend": "threads", "workers": 1 if strategy == "serial" else 2}
    whole = parallel.fit(network("random"), data(), **job)
    parallel.fit(network("random"), data(), checkpoint=str(tmp_path), **{**job, "epochs": 2})
    resumed = parallel.fit(network("random"), data(), checkpoint=str(tmp_path), **job)
    assert far(resumed.model, whole.model) < 1e-7
    assert len(resumed.history) == job["epochs"]


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path):
    job = {**SETTINGS, "strategy": "serial", "checkpoint": str(tmp_path)}
    parallel.fit(network(), data(), **job)
    with pytest.raises(ValueError, match=r"that differs: learning_rate was 0.01 and is 0.5"):
        parallel.fit(network(), data(), **{**job, "learning_rate": 0.5})
    with pytest.raises(ValueError, match=r"that differs: rows was 131 and is 100; the data have changed since"):
        parallel.fit(network(), data(100), **job)
    file = tmp_path / checkpoint.NAME
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"is damaged .* Delete it"):
        parallel.fit(network(), data(), **job)


def test_a_run_that_goes_on_does_so_as_it_began(tmp_path):
    job = {**SETTINGS, "backend": "threads", "checkpoint": str(tmp_path)}
    parallel.fit(network(), data(), strategy="allreduce", workers=2, exact=True, **{**job, "epochs": 2})
    seen = Seen()
    result = parallel.fit(network(), data(), strategy="auto", callbacks=[seen], **job)
    assert result.metrics["strategy"] == "allreduce"
    assert result.metrics["exact"]
    assert seen.text == "resuming from the checkpoint after 10 steps (epoch 3)"  # nothing was measured
    assert len(result.history) == job["epochs"]


def test_a_place_that_cannot_be_written_to_is_told_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"is a file; a checkpoint needs a folder"):
        parallel.fit(network(), data(), strategy="serial", checkpoint=str(tmp_path / "file"), **SETTINGS)
    with pytest.raises(ValueError, match=r"a checkpoint cannot be written to"):
        parallel.fit(network(), data(), strategy="serial", checkpoint=str(tmp_path / "file" / "under"), **SETTINGS)


def test_a_checkpoint_is_whole_at_every_moment(tmp_path, monkeypatch):
    """If writing fails, the checkpoint from before is still there."""
    fields = {"fingerprint": {}, "unchanged": [], "file": ("", ""), "epoch": 0, "position": 0}
    checkpoint.save(tmp_path, {**fields, "what": 1})

    def half(content, file):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match=r"the checkpoint cannot be written to .*: no space left"):
        checkpoint.save(tmp_path, {**fields, "what": 2})
    monkeypatch.undo()
    content = checkpoint.load(tmp_path, {}, epochs=1)
    assert content is not None
    assert content["what"] == 1
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.NAME]


# ---- started by others ----

SCRIPT = """
import sys, torch
from support.parallel_cases import data, network
from support.parallel_trap import Trap
from pathlib import Path
from shoal import parallel
class Notes:
    def note(self, text):
        print(text, flush=True)
rows = Trap(Path(sys.argv[2]), sys.argv[3], 240) if len(sys.argv) > 3 else data()
result = parallel.fit(network("random"), rows, strategy="allreduce", exact=True, epochs=4, batch_size=32, shards=8,
                      learning_rate=0.01, checkpoint=sys.argv[1] + ".run", checkpoint_every=2,
                      callbacks=[Notes()])
import os
if os.environ.get("RANK", os.environ.get("PMI_RANK")) == "0":
    torch.save(result.model.state_dict(), sys.argv[1])
"""


def started(tmp_path: Path, prefix: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*prefix, str(tmp_path / "script.py"), str(tmp_path / "out.pt"), *arguments],
        capture_output=True, text=True, env=env, timeout=150, cwd=tmp_path,
    )  # fmt: skip


def torchrun(restarts: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "--max-restarts", str(restarts)]  # fmt: skip


def test_torchrun_restarts_go_on_from_the_checkpoint(tmp_path, undisturbed):
    done = started(tmp_path, torchrun(2), str(tmp_path / "sprung"), "SIGKILL")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "sprung").exists()
    assert re.search(r"resuming from the checkpoint after [1-9]\d* steps", done.stdout), done.stdout
    assert torch.equal(flat(torch.load(tmp_path / "out.pt", weights_only=True)), flat(undisturbed))


def test_a_stopped_rank_under_mpiexec_ends_the_run_which_then_goes_on(tmp_path, undisturbed):
    from shoal.parallel.launch.launcher import mpi_launcher

    prefix, trap = [mpi_launcher(), "-n", "2", sys.executable], (str(tmp_path / "sprung"), "SIGSTOP")
    done = started(tmp_path, prefix, *trap)
    assert done.returncode != 0
    said = r"error: worker \d (has been silent|is gone).*; the same command resumes from the last checkpoint in "
    assert re.search(said, done.stderr), done.stderr[-2000:]
    done = started(tmp_path, prefix, *trap)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"resuming from the checkpoint after [1-9]\d* steps", done.stdout), done.stdout
    assert torch.equal(flat(torch.load(tmp_path / "out.pt", weights_only=True)), flat(undisturbed))


def test_an_error_under_torchrun_is_shown_once(tmp_path):
    done = started(tmp_path, torchrun(0), str(tmp_path / "x"), "error")
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: row 17 is cursed") == 2  # its traceback, and the line that sums up
    assert "worker 1 of 2 failed" in done.stderr


def test_the_first_rank_waits_for_those_who_are_a_little_later(monkeypatch):
    from shoal.parallel.launch.external import ExternalRank

    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    member, broken = ExternalRank("torchrun"), []
    member.monitor = HeartbeatMonitor()
    member.heartbeat = Heartbeat(member.monitor.address, 0)
    late = Heartbeat(member.monitor.address, 1, broken.append)
    leaving = threading.Thread(target=member.finish)
    leaving.start()
    wait_until(lambda: 0 in member.monitor.ended)
    assert leaving.is_alive(), "it waits for the other"
    late.done()
    leaving.join()  # the monitor closes the connection before `late` does
    wait_until(lambda: not any(thread.name == "shoal-heartbeat-listen" for thread in threading.enumerate()))
    assert broken == [], "it takes the end of a monitor that has heard of its own end for a loss"
    late.close()
    assert member.monitor.ended == {0, 1}

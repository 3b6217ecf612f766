"""Locks of folders: who may write into one, what a dead process has left, and disks and machines without locks."""

from __future__ import annotations

import errno
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from shoal.runs import lock
from shoal.runs.folder import RunFolder, refuse_taken
from shoal.runs.kinds import SEARCH

# A process that takes a folder, says so, and gives it back at the end of its input; `{first}` is done before that.
HOLD = """
import errno, fcntl, sys
from pathlib import Path
from shoal.runs import lock
from shoal.runs.folder import RunFolder, refuse_taken
from shoal.runs.kinds import SEARCH
{first}
try:
    held = lock.take(Path(sys.argv[1]))
except lock.InUse as error:
    print(error)
    sys.exit()
print("taken", flush=True)
sys.stdin.readline()
try:
    held.check()
    print("ours", flush=True)
except lock.LostFolder as error:
    print(error, flush=True)
held.release()
"""
NO_LOCKS = """
def refused(*_):
    raise OSError(errno.{name}, "no locks here")
fcntl.flock = refused
"""
QUICK = "lock.BEAT, lock.PATIENCE = 0.05, {patience}\n"
ELSEWHERE = "lock.machine = lambda: 'another'\nlock.platform.node = lambda: 'elsewhere'\n"


def started(folder: Path, first: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD.format(first=first), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def holder(folder: Path, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that has taken a folder; killed at the end if it still runs."""
    with started(folder, first) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "taken\n"
            yield process
        finally:
            process.kill()


def no_locks(name: str) -> Callable[..., None]:
    """What the system answers on a disk without locks."""

    def refused(*_: Any) -> None:
        raise OSError(getattr(errno, name), "no locks here")

    return refused


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_folder_belongs_to_one_process_until_that_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(lock.InUse) as refused:
            lock.take(tmp_path)
        owner = lock.owner_of(tmp_path)
        assert owner is not None
        assert owner.pid == process.pid
        assert f"is in use by process {process.pid} on {platform.node()}, since {owner.since}" in str(refused.value)
        process.kill()
        process.wait()
        assert names(tmp_path) == {"run.lock", "lease-1.json"}, "it could not clean up"
    mine = lock.take(tmp_path)
    mine.check()
    with pytest.raises(lock.InUse, match=f"process {os.getpid()} on"):  # not twice in one process
        lock.take(tmp_path)
    mine.release()
    assert names(tmp_path) == set()


RACE = """
import errno, fcntl, os, sys
from pathlib import Path
from shoal.runs import lock
from shoal.runs.folder import RunFolder, refuse_taken
from shoal.runs.kinds import SEARCH
{first}
go, said, end = os.pipe(), os.pipe(), os.pipe()
for _ in range(20):
    if os.fork() == 0:
        os.close(go[1]), os.close(end[1])
        os.read(go[0], 1)  # all begin when the parent closes its side
        try:
            held = lock.take(Path(sys.argv[1]))
            os.write(said[1], b"taken\\n")
            os.read(end[0], 1)
            held.check()
            held.release()
        except lock.InUse as error:
            os.write(said[1], f"{{error}}\\n".encode())
        os._exit(0)
os.close(go[1]), os.close(said[1])
answers = os.fdopen(said[0])
print(*(answers.readline() for _ in range(20)), sep="", end="")
os.close(end[1])
print(*(os.wait()[1] for _ in range(20)))
"""


@pytest.mark.parametrize("first", ["", NO_LOCKS.format(name="ENOLCK")], ids=["locks", "no locks"])
def test_of_twenty_at_once_exactly_one_gets_the_folder(tmp_path: Path, first: str) -> None:
    command = [sys.executable, "-c", RACE.format(first=first), str(tmp_path)]
    *said, codes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said.count("taken") == 1
    assert sum("is in use by" in line for line in said) == 19, said
    assert codes.split() == ["0"] * 20
    assert names(tmp_path) == set()


@pytest.mark.parametrize("name", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_on_a_disk_without_locks_a_lease_decides(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", no_locks(name))
    first = NO_LOCKS.format(name=name)
    with holder(tmp_path, first) as process:
        with pytest.raises(lock.InUse, match=f"process {process.pid} on"):
            lock.take(tmp_path)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie, as under a parent that looks away
        mine = lock.take(tmp_path)  # at once: it is known here that the process is dead
    assert "lease-2.json" in names(tmp_path)
    assert "lease-1.json" not in names(tmp_path)
    mine.release()
    assert names(tmp_path) == set()


@pytest.mark.parametrize("first", ["", NO_LOCKS.format(name="ENOLCK")], ids=["locks", "no locks"])
def test_the_dead_of_another_machine_block_nobody_and_the_living_do(
    tmp_path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks need not hold between machines, so signs of life are waited for, by our own clock."""
    monkeypatch.setattr(lock, "PATIENCE", 60.0)
    with holder(tmp_path, first + ELSEWHERE + QUICK.format(patience=3)) as process:
        said: list[str] = []
        if first:
            with pytest.raises(lock.InUse, match=f"in use by process {process.pid} on elsewhere, since"):
                lock.take(tmp_path, said.append)
            assert f"belongs to process {process.pid} on elsewhere; waiting up to 60 s" in said[0]
        process.kill()
        process.wait()
        monkeypatch.setattr(lock, "PATIENCE", 0.3)
        mine = lock.take(tmp_path, said.append)
        assert "waiting up to 0.3 s" in said[-1]
        mine.release()


def test_who_was_stopped_and_lost_the_folder_notices_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    with holder(tmp_path, NO_LOCKS.format(name="ENOLCK") + ELSEWHERE + QUICK.format(patience=0.3)) as process:
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr("fcntl.flock", no_locks("ENOLCK"))
        mine = lock.take(tmp_path)
        before = (tmp_path / "lease-2.json").read_bytes()
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n")
        assert f"{tmp_path} was taken over by process {os.getpid()} on {platform.node()}" in out
        assert names(tmp_path) >= {"lease-2.json"}
        assert "lease-1.json" not in names(tmp_path), "it was made anew"
        mine.check()
        assert json.loads(before)["token"] == mine.owner.token
        mine.release()


def test_in_a_container_of_the_same_machine_the_kernels_lock_decides_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process numbers mean nothing here. One that was stopped has the lock, one that was killed has not."""
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    first = "lock.process_numbers = lambda: 'a container'\n"
    with holder(tmp_path, first) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(lock.InUse):
            lock.take(tmp_path)
        monkeypatch.setattr(lock, "PATIENCE", 1000.0)
        process.kill()
        process.wait()
        lock.take(tmp_path).release()


def test_a_lease_is_renewed_and_its_owner_may_be_stopped_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the process is seen to be there, also on a disk without locks."""
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    monkeypatch.setattr("fcntl.flock", no_locks("ENOLCK"))
    with holder(tmp_path, NO_LOCKS.format(name="ENOLCK") + QUICK.format(patience=0.1)) as process:
        lease = tmp_path / "lease-1.json"
        wait_until(lambda: json.loads(lease.read_text() or '{"beat": 0}')["beat"] > 2)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(lock.InUse):
            lock.take(tmp_path)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n")
        assert out == "ours\n"
    assert names(tmp_path) == set()


def test_a_process_of_the_same_number_is_not_the_owner(tmp_path: Path) -> None:
    mine = lock.take(tmp_path)
    owner = lock.owner_of(tmp_path)
    assert owner is not None
    assert owner.lives()
    mine.release()
    dead = {**owner.__dict__, "started": owner.started - 1000}
    (tmp_path / "lease-7.json").write_text(json.dumps(dead))
    lock.take(tmp_path).release()
    assert names(tmp_path) == set()


@pytest.mark.parametrize("content", ['{"tenant": "Mrs. Smith"}', "[1]", "diary", '{"host": "a", "pid": 1}'])
@pytest.mark.parametrize("name", ["lease-7.json", "run.lock"])
def test_a_file_of_the_users_with_the_name_of_a_lock_is_refused_and_stays(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} is not the lock of a run: move it"):
        lock.take(tmp_path)
    for out in (tmp_path, tmp_path / "."):
        with pytest.raises(ValueError, match="is not empty"):
            refuse_taken(out)
        with pytest.raises(ValueError, match="is not empty"), RunFolder(SEARCH, out, "a", {}):
            pass
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {name: content}


def test_what_a_process_left_that_was_killed_while_it_took_the_folder_is_a_lock(tmp_path: Path) -> None:
    (tmp_path / "run.lock").touch()
    refuse_taken(tmp_path)
    lock.take(tmp_path).release()
    assert names(tmp_path) == set()

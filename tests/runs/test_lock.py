"""Locks of folders: who may write into one, what a dead process has left, and disks and machines without locks."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
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
import sys
from pathlib import Path
from shoal.runs import lock
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
QUICK = "lock.BEAT_SECONDS, lock.PATIENCE_SECONDS = 0.05, {patience}\n"
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
        assert names(tmp_path) == {"lease-1.json"}, "it could not clean up"
    mine = lock.take(tmp_path)
    mine.check()
    with pytest.raises(lock.InUse, match=f"process {os.getpid()} on"):  # not twice in one process
        lock.take(tmp_path)
    mine.release()
    assert names(tmp_path) == set()


RACE = """
import os, sys
from pathlib import Path
from shoal.runs import lock
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
            os.write(said[1], f"{error}\\n".encode())
        os._exit(0)
os.close(go[1]), os.close(said[1])
answers = os.fdopen(said[0])
print(*(answers.readline() for _ in range(20)), sep="", end="")
os.close(end[1])
print(*(os.wait()[1] for _ in range(20)))
"""


def test_of_twenty_at_once_exactly_one_gets_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    *said, codes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said.count("taken") == 1
    assert sum("is in use by" in line for line in said) == 19, said
    assert codes.split() == ["0"] * 20
    assert names(tmp_path) == set()


def test_the_lease_of_a_dead_process_is_taken_at_once(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie, as under a parent that looks away
        mine = lock.take(tmp_path)  # at once: it is known here that the process is dead
    assert names(tmp_path) == {"lease-2.json"}
    mine.release()
    assert names(tmp_path) == set()


@pytest.mark.parametrize("where", [ELSEWHERE, "lock.process_numbers = lambda: 'a container'\n"])
def test_the_dead_of_another_machine_block_nobody_and_the_living_do(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process numbers of another machine or container mean nothing here: signs of life are waited for, by our clock."""
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 60.0)
    with holder(tmp_path, where + QUICK.format(patience=3)) as process:
        owner = lock.owner_of(tmp_path)
        assert owner is not None
        said: list[str] = []
        with pytest.raises(lock.InUse, match=f"in use by process {process.pid} on {owner.host}, since"):
            lock.take(tmp_path, said.append)
        assert f"belongs to process {process.pid} on {owner.host}; waiting up to 60 s" in said[0]
        assert lock.living([tmp_path])[tmp_path].pid == process.pid
        process.kill()
        process.wait()
        monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.3)
        monkeypatch.setattr(lock, "LISTING_SECONDS", 0.3)
        assert lock.living([tmp_path]) == {}
        mine = lock.take(tmp_path, said.append)
        assert "waiting up to 0.3 s" in said[-1]
        mine.release()


def test_a_lease_that_was_exchanged_since_we_looked_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gave the folder back and a third one took it, under the same number, while we were looking."""
    lock.take(tmp_path).release()
    (tmp_path / "lease-1.json").write_text(json.dumps({**lock._ourselves().__dict__, "started": 0.0}))
    is_gone = lock._is_gone

    def exchanged(lease: Path, say: Any) -> bool:
        gone = is_gone(lease, say)
        lease.write_text(json.dumps(lock._ourselves().__dict__))
        return gone

    monkeypatch.setattr(lock, "_is_gone", exchanged)
    with pytest.raises(lock.InUse):
        lock.take(tmp_path)
    assert names(tmp_path) == {"lease-1.json"}


def test_who_was_stopped_and_lost_the_folder_notices_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.3)
    with holder(tmp_path, ELSEWHERE + QUICK.format(patience=0.3)) as process:
        process.send_signal(signal.SIGSTOP)
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


def test_a_lease_is_renewed_and_its_owner_may_be_stopped_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the process is seen to be there."""
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.1)
    with holder(tmp_path, QUICK.format(patience=0.1)) as process:
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
def test_a_file_of_the_users_with_the_name_of_a_lease_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    name = "lease-7.json"
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} is not the lease of a run. Move it"):
        lock.take(tmp_path)
    for out in (tmp_path, tmp_path / "."):
        with pytest.raises(ValueError, match="is not empty"):
            refuse_taken(out)
        with pytest.raises(ValueError, match="is not empty"), RunFolder(SEARCH, out, "a", {}):
            pass
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {name: content}


def test_what_a_process_left_that_was_killed_while_it_took_the_folder_is_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.3)
    (tmp_path / "lease-1.json").touch()
    refuse_taken(tmp_path)
    lock.take(tmp_path).release()
    assert names(tmp_path) == set()

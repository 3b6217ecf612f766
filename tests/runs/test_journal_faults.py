"""The journal on disks that cannot be written to, and after kill -9: nothing that was finished is lost."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.disks import small_disk
from support.journal import arrays_of, flip, keys_of, same

from shoal.errors import CannotWrite
from shoal.runs.journal import EVENTS, Journal, read_events

TESTS = Path(__file__).parents[1]
ARRAYS = {"weights": np.arange(600, dtype=np.float32).reshape(2, 300), "flag": np.array(True)}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def reopened(journal: Journal) -> Journal:
    return Journal(journal.folder, journal.warn)


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def journal(tmp_path: Path, warned: list[str]) -> Journal:
    return Journal(tmp_path / "journal", warned.append)


def fill(disk: Path) -> None:
    with suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path, warned: list[str]) -> None:
    with small_disk(tmp_path / "disk") as disk:
        journal = Journal(disk / "journal", warned.append)
        large = {"x": np.ones(50_000)}  # 400 kB
        kept = [journal.write("shard", [key], large) for key in ("aa", "bb")]
        with pytest.raises(CannotWrite) as caught:
            journal.write("shard", ["cc"], large)
        assert str(caught.value) == (
            f"the journal cannot be written to {journal.folder}: No space left on device; 400 kB are needed; make room "
            f"in {journal.folder}, and run the same command again"
        )
        assert names(journal.folder) == {path.name for path in kept}, "nothing half written is left"
        assert (journal.files, journal.find("shard", "cc")) == (2, None)
        for later in (journal, reopened(journal)):
            assert all((entry := later.read(path)) and same(entry.arrays, large) for path in kept)
        kept[0].unlink()
        assert journal.write("shard", ["cc"], large).exists(), "there is room again"
        assert not warned


def test_events_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        journal = Journal(disk / "journal")
        journal.note("a", "x" * 3000)
        fill(disk)
        with pytest.raises(CannotWrite, match=r"No space left.*; 5.0 kB are needed"):
            journal.note("b", "y" * 5000)
        assert [name for name, _ in journal.events()] == ["a"]
        assert (journal.folder / EVENTS).read_bytes().endswith(b"\n")
        (disk / "filler").unlink()
        journal.note("c", 1)
        assert [name for name, _ in reopened(journal).events()] == ["a", "c"]


def test_a_disk_that_becomes_read_only(tmp_path: Path, warned: list[str]) -> None:
    with small_disk(tmp_path / "disk") as disk:
        journal = Journal(disk / "journal", warned.append)
        path = journal.write("shard", ["aa"], ARRAYS)
        damaged = journal.write("shard", ["bb"], ARRAYS)
        journal.note("a", 1)
        flip(damaged, 4000)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        said = "Read-only file system.*; make .*journal writable, and run the same command again"
        with pytest.raises(CannotWrite, match=said):
            journal.write("shard", ["cc"], ARRAYS)
        with pytest.raises(CannotWrite, match=said):
            journal.note("b", 1)
        with pytest.raises(CannotWrite, match=said):
            journal.remove(path)
        assert journal.read(damaged) is None
        assert "could not be moved to damaged/ (Read-only file system)" in warned[0]
        assert journal.read(path) is not None
        assert journal.events() == [("a", 1)]


def test_a_limit_of_file_sizes(journal: Journal) -> None:
    """Like a quota, without the rights to set one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CannotWrite, match=r"File too large; 400 kB are needed.*ulimit -f"):
            journal.write("shard", ["aa"], {"x": np.ones(50_000)})
        with pytest.raises(CannotWrite, match="File too large"):
            journal.note("a", "x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.note("b", 1)
    assert names(journal.folder) == {EVENTS}
    assert reopened(journal).events() == [("b", 1)]


def test_a_folder_that_was_removed(journal: Journal) -> None:
    journal.note("a", 1)
    path = journal.write("shard", ["aa"], ARRAYS)
    shutil.rmtree(journal.folder)
    with pytest.raises(CannotWrite, match=r"No such file or directory.*create the folder"):
        journal.write("shard", ["bb"], ARRAYS)
    with pytest.raises(CannotWrite, match="No such file or directory"):
        journal.note("b", 1)
    journal.remove(path)
    assert journal.find("shard", "aa") is None


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "journal").touch()
    with pytest.raises(CannotWrite, match=r"the journal cannot be written to .*File exists"):
        Journal(tmp_path / "journal")


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO])
def test_errors_that_show_when_a_file_is_forced_to_the_disk(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CannotWrite, match=os.strerror(number)):
        journal.write("shard", ["aa"], ARRAYS)
    with pytest.raises(CannotWrite, match=os.strerror(number)):
        journal.note("a", 1)
    monkeypatch.undo()
    assert names(journal.folder) == {EVENTS}
    assert reopened(journal).events() == []


# kill -9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_whatever_was_reported_as_written_survives_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "support.journal", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=environment) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for _ in range(25):
            reported = {"work": -1, "event": -1}
            nursery.stdin.write("go\n")
            child = int(nursery.stdout.readline().removeprefix("started "))
            lines = [nursery.stdout.readline() for _ in range(random.randrange(8))]
            time.sleep(random.uniform(0, 0.005))
            os.kill(child, signal.SIGKILL)
            while (line := nursery.stdout.readline()) != "ended\n":
                lines.append(line)
            for line in lines:
                what, number = line.split()
                reported[what] = int(number)
            check_all(folder, reported)
        nursery.stdin.close()
    assert len(read_events(folder)) > 25, "the processes got far enough to be disturbed"


def check_all(folder: Path, reported: dict[str, int]) -> None:
    warned: list[str] = []
    journal = Journal(folder, warned.append)
    events = [value for _, value in journal.events()]
    assert events == list(range(len(events)))
    assert len(events) > reported["event"]
    assert reported["work"] <= len(events)
    for number in range(len(events) + 1):
        found = [journal.find("shard", key) for key in keys_of(number)]
        if number < len(events) or number <= reported["work"]:
            assert None not in found
        if found[0] is not None:
            entry = journal.read(found[0][0])
            assert entry is not None
            assert entry.about == {"number": number}
            assert same(entry.arrays, arrays_of(number))
    assert not warned
    assert not [name for name in names(folder) if name.startswith(".")]

"""Locks of folders: who may write into one, and what a killed process has left."""

from __future__ import annotations

import errno
import fcntl
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.runs import lock
from shoal.runs.folder import RunFolder

HOLD = """
import sys
from pathlib import Path
from shoal.runs import lock
locks = [lock.take(Path(folder)) for folder in sys.argv[1:]]
print(all(locks), flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(*folders: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has locked the folders, until the end of its input."""
    command = [sys.executable, "-c", HOLD, *map(str, folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process


def test_a_folder_belongs_to_one_process_until_that_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert lock.take(tmp_path) is None
        assert lock.take_abandoned(tmp_path) is None
        assert not lock.is_free(tmp_path)
        process.kill()
        process.wait()
        left = list(tmp_path.iterdir())
        assert left, "it could not clean up"
    mine = lock.take_abandoned(tmp_path)
    assert mine is not None
    assert lock.take(tmp_path) is None, "not twice in one process"
    mine.release()
    assert not list(tmp_path.iterdir())
    assert lock.is_free(tmp_path)
    assert lock.take_abandoned(tmp_path) is None, "nobody has begun anything here"


def test_the_lock_of_another_machine_always_counts(tmp_path: Path) -> None:
    (tmp_path / "running-another.lock").touch()
    assert lock.take(tmp_path) is None
    assert not lock.is_free(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["running-another.lock"]


def test_on_a_disk_without_locks_nothing_counts_as_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refused)
    mine = lock.take(tmp_path)
    assert mine is not None
    assert lock.take(tmp_path) is None
    assert not lock.is_free(tmp_path)
    mine.release()
    assert lock.is_free(tmp_path)


def test_only_what_killed_runs_of_that_name_have_left_is_removed(tmp_path: Path) -> None:
    names = {
        "dead": ".run.1234567.part", "alive": ".run.1234567-2.part", "elsewhere": ".run.1234567-3.part",
        "without": ".run.1234567-4.part", "other": ".run-1.1234567.part", "visible": "run.1234567.part",
    }  # fmt: skip
    places = {kind: tmp_path / name for kind, name in names.items()}
    for place in places.values():
        place.mkdir()
        (place / "weights").write_text("x")
    (places["elsewhere"] / "running-another.lock").touch()
    for kind in ("dead", "other", "visible"):
        (places[kind] / f"running-{platform.node()}.lock").touch()
    with (
        holder(places["alive"]) as process,
        RunFolder(tmp_path / "run", "data") as first,
        RunFolder(tmp_path / "run", "data") as second,
    ):
        assert not places["dead"].exists()
        assert first.path != second.path
        assert second.finish() == tmp_path / "run"
        process.kill()
    assert list((tmp_path / "run").iterdir()) == []
    kept = {names[kind] for kind in names if kind != "dead"}
    assert {path.name for path in tmp_path.iterdir()} == {"run", *kept}
    assert all((tmp_path / name / "weights").exists() for name in kept)

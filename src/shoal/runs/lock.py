"""Whose folder is it? A process that writes into one locks a file in it; the system frees it when the process ends.

So what a killed process has left can be told from what another one is writing. Each machine has a lock of its own name:
whether locks hold between machines depends on the disk they share, so one of another machine always counts.
"""

from __future__ import annotations

import platform
import warnings
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout


class FolderLock:
    """Ours as long as this process lives, or until `release`."""

    def __init__(self, lock: BaseFileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        """The file goes while it is still ours, so that nobody takes the folder for one that was left behind."""
        file = Path(self._lock.lock_file)
        try:
            file.unlink(missing_ok=True)
            self._lock.release()
        except PermissionError:  # Windows deletes no file that is open
            self._lock.release()
            file.unlink(missing_ok=True)


def take(folder: Path) -> FolderLock | None:
    """Make a folder ours. None: another process has it."""
    file = _file(folder)
    try:
        lock = _acquired(file)
    except Timeout:
        return None
    taken = FolderLock(lock)
    if any(other != file for other in _files(folder)):
        taken.release()
        return None
    return taken


def is_free(folder: Path) -> bool:
    """Whether no process writes into a folder."""
    lock = take(folder) if _files(folder) else None
    if lock is not None:
        lock.release()
    return not _files(folder)


def take_abandoned(folder: Path) -> FolderLock | None:
    """Make a folder ours that a process on this machine has begun to write into before it was killed, if it is one."""
    return take(folder) if _file(folder).exists() else None


def _acquired(file: Path) -> BaseFileLock:
    """On a disk without locks, the file alone says that the folder is taken. Newer filelocks do that by themselves."""
    lock: BaseFileLock = FileLock(file, timeout=0, thread_local=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user can do nothing about it
            lock.acquire()
    except NotImplementedError:
        lock = SoftFileLock(file, timeout=0, thread_local=False)
        lock.acquire()
    return lock


def _file(folder: Path) -> Path:
    return folder / f"running-{platform.node()}.lock"


def _files(folder: Path) -> list[Path]:
    return list(folder.glob("running-*.lock"))

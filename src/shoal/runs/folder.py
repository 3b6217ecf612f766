"""The folder of a run. It appears under its name when everything in it has been written, and never replaces another."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from pathlib import Path
from types import TracebackType

from shoal import atomic
from shoal.errors import UserError
from shoal.runs.lock import FolderLock, take, take_abandoned

SETTINGS, MODEL, REPORT = "settings.json", "model", "report.html"
RUNS = "shoal-runs"  # folder of runs that were given no name


class RunFolder:
    """`with RunFolder(out, stem) as folder:` write into `folder.path`, then `folder.finish()`.

    Until then it has another, hidden name, and whatever ends the work removes it. What nothing can remove (after
    `kill -9`) does not look like a run, and the next run of that name removes it: nobody has locked it any more.
    """

    def __init__(self, out: Path | None, stem: str) -> None:
        self.out, self.stem = out, stem
        self.parent = Path(RUNS) if out is None else out.parent
        self.made_parent = False
        self.finished = False

    def __enter__(self) -> RunFolder:
        """Make the folder now: a place that cannot be written to is found before the search, not after it."""
        if self.out is not None:
            refuse_taken(self.out)
        name = self.stem if self.out is None else self.out.name
        try:
            self.made_parent = not self.parent.exists()
            self.parent.mkdir(parents=True, exist_ok=True)
            _sweep(self.parent, name)
            self.path, self._lock = _new_folder(self.parent / f".{name}.{os.getpid()}")
        except OSError as error:
            raise UserError(
                f"the results cannot be written to {self.parent} ({error.strerror}); give another folder with --out"
            ) from None
        return self

    def finish(self) -> Path:
        """Give the folder its name, at once; if somebody took that name meanwhile, the next free one."""
        target = self.out if self.out is not None else numbered(self.parent / self.stem)
        self._lock.release()
        while True:
            try:
                atomic.rename(self.path, target)
                break
            except OSError:
                if not target.exists():
                    raise
                target = numbered(self.parent / (self.stem if self.out is None else self.out.name))
        self.finished = True
        return target

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.finished:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()
        if self.made_parent and self.parent.is_dir() and not any(self.parent.iterdir()):
            self.parent.rmdir()


def _new_folder(start: Path) -> tuple[Path, FolderLock]:
    """`start.part`, or with a number where that is there: somebody else's, on another machine with the same disk."""
    for number in itertools.count(1):
        path = start.with_name(f"{start.name}{f'-{number}' * (number > 1)}.part")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        lock = take(path)
        if lock is not None:
            return path, lock
    raise AssertionError("numbers have no end")


def _sweep(parent: Path, name: str) -> None:
    """Remove what runs of this name have left that were killed and could not clean up."""
    pattern = re.compile(rf"\.{re.escape(name)}\.\d+(-\d+)?\.part")
    for path in parent.iterdir():
        lock = take_abandoned(path) if pattern.fullmatch(path.name) else None
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            lock.release()


def numbered(path: Path) -> Path:
    """The first of path-1, path-2, ... that is not there."""
    number = 1
    while (found := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return found


def refuse_taken(out: Path) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if (out / SETTINGS).exists():
        raise UserError(f"--out must be a new folder; {out} holds a finished run: give another name")
    if out.exists():
        what = "is not empty" if out.is_dir() else "is a file"
        raise UserError(f"--out must be a new folder; {out} {what}: give another name")

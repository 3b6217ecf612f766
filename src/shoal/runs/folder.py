"""The folder of a run: a new one, or that of a run that ended early and can be resumed.

It appears at once, under its own name, with a run.json that says what is computed there. Results are written at the
end, each whole; until then it holds what resuming needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from shoal.console import terminal
from shoal.errors import UserError
from shoal.files import atomic
from shoal.files.plain_files import PRIVATE, Removal, refuse_special, remove
from shoal.runs.changes import differences
from shoal.runs.journal import EVENTS, Journal, is_own_file
from shoal.runs.kinds import (
    FOLDERS,
    FORMAT,
    JOURNAL,
    OWN_FILES,
    PROGRESS,
    RUN,
    SETTINGS,
    TRAIN,
    VERSION,
    Kind,
    Run,
    check_of,
    is_progress,
    read_about,
    read_run,
)
from shoal.runs.lock import FolderLock, InUse, LostFolder, is_lease, take
from shoal.runs.versions import versions

RUNS = "shoal-runs"  # folder of runs that were given no name
PROGRESS_EVERY = 2.0  # seconds

Say = Callable[[str], None]


class RunFolder:
    """`with RunFolder(SEARCH, out, stem, fingerprint) as folder:` write into `folder.path`; it is ours until the end.

    `resumes`: it holds the beginning of this very run. `found`: this very run, which is finished; then nothing
    is ours, and nothing is to be done. If nothing comes of a run that begins, what we made goes again.

    out          the folder, or None: shoal-runs/<stem>-<n>
    fingerprint  all that decides the result, ready for JSON
    fresh        start over, even where a run could be resumed
    again        compute a finished run once more: in a folder of its own, never in the place of the first
    file         the data, as the user knows them
    say          is told what is found
    """

    path: Path
    begun: str  # when the run was begun, perhaps by another process

    def __init__(
        self, kind: Kind, out: Path | None, stem: str, fingerprint: Mapping[str, Any], *, fresh: bool = False,
        again: bool = False, file: str = "", say: Say = terminal.say,
    ) -> None:  # fmt: skip
        self.kind, self.out, self.stem, self.fingerprint = kind, out, stem, json.loads(json.dumps(fingerprint))
        self.fresh, self.again, self.file, self.say = fresh, again, file, say
        self.resumes, self.found = False, None  # type: bool, Run | None
        self._lock: FolderLock | None = None
        self._writing = threading.RLock()  # held while anything is written here
        self._over = False  # threads that still work have no business here any more
        self._made: list[Path] = []
        self._next_progress = 0.0
        self._discarded = False

    def __enter__(self) -> RunFolder:
        try:
            self._given(self.out) if self.out is not None else self._numbered()
            if self._lock is not None:
                self._begin()
        except OSError as error:
            self._leave()
            place = self.out or Path(RUNS)
            why = error.strerror or str(error)
            raise UserError(f"{place} cannot be written to ({why}); give another folder with --out") from None
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        with self._writing:
            self._over = True
        if isinstance(error, LostFolder):  # it is another's, with all that is in it
            self._made = []
        elif self._discarded or not self.has_work:
            remove_files(self.path, self.kind.files)
        else:
            self._made = []
        self._leave()
        if isinstance(error, Exception) and not isinstance(error, LostFolder):
            if self.kind.has_work(self.path):  # as seen now: nothing else says what is kept
                error.add_note(f"What was finished is kept in {self.path}; run the same command again to continue.")
            elif isinstance(error, OSError) and self.kind is not TRAIN:  # its work is in the folder of checkpoints
                error.add_note("Nothing was finished before that.")

    # ---- while a run works ----

    def check(self) -> None:
        """Before anything is written: refuse to continue if another process has taken the folder meanwhile."""
        if self._lock is None or self._over:
            raise LostFolder(f"{self.path} was given back, and nothing more is written to it")
        self._lock.check()

    def journal(self, warn: Say) -> Journal:
        """The finished work of this run. Nothing is written to it once the folder is another's."""
        journal = Journal(self.path / JOURNAL, warn, check=self.check, lock=self._writing)
        if not any(name == RUN for name, _ in journal.events()):
            journal.note(RUN, read_about(self.path))
        return journal

    def progress(self, share: float, **facts: Any) -> None:
        """Say how far the run is, for `shoal runs`; now and then, however often this is called."""
        if time.monotonic() < self._next_progress:
            return
        self._next_progress = time.monotonic() + PROGRESS_EVERY
        content = {"share": share, **facts, "at": now()}
        with self._writing:
            self.check()
            with contextlib.suppress(OSError):  # on a full disk, the work itself says so
                atomic.write_text(self.path / PROGRESS, json.dumps(content) + "\n")

    @property
    def has_work(self) -> bool:
        """Whether anything stays when the run is ended now."""
        return self.resumes or self.kind.has_work(self.path)

    def finish(self) -> None:
        """The results are written. Files needed only for resuming are removed."""
        self.check()
        if self.kind.is_finished(self.path):
            remove_files(self.path, self.kind.resuming)

    def discard(self) -> None:
        """Keep nothing of this run."""
        self._discarded = True

    # ---- which folder ----

    def _given(self, out: Path) -> None:
        """The folder that the user has named."""
        earlier = read_run(out)
        if earlier is None:
            refuse_taken(out)
        self._take(out)
        earlier = read_run(out)  # another process may have finished it while we were looking
        if earlier is None:
            refuse_taken(out)
            return
        if earlier.kind is not self.kind:
            what = f"a run of shoal {earlier.kind.name}"
            raise UserError(f"--out must be a new folder; {out} holds {what}: give another name")
        if self.fresh and not (earlier.finished and self.kind.keeps_finished):
            remove_files(out, self.kind.files)
            return
        if earlier.finished and self.again:
            raise UserError(f"--out must be a new folder; {out} holds a finished run: give another name")
        changes = self._changes(earlier)
        if changes:
            what = "a finished run" if earlier.finished else "the beginning of a run"
            raise UserError(
                f"{out} holds {what} that differs: {'; '.join(changes)}. Give another --out"
                + ("" if self.kind is TRAIN else ", or --fresh to start over")
            )
        self._use(earlier)

    def _numbered(self) -> None:
        """The latest run of this name with the same fingerprint that no living process has; else a new folder."""
        runs = [] if self.fresh else list(_runs_of(self.stem, self.kind))
        for run in runs:
            if run.fingerprint != self.fingerprint or (run.finished and self.again):
                continue
            if run.finished:
                self.found = run
                return
            with contextlib.suppress(InUse):
                self._take(run.path)
                current = read_run(run.path)
                if current is not None:
                    self._use(current)
                    return
                self._leave()
        self._note_other(runs)
        while self._lock is None:
            path = numbered(Path(RUNS) / self.stem)
            with contextlib.suppress(FileExistsError, InUse):
                self._take(path, new=True)

    def _note_other(self, runs: list[Run]) -> None:
        """If there is a run of this file that could be resumed with other settings, say with which."""
        for run in runs:
            if not run.finished and run.about.get("file") == self.file and (changes := self._changes(run)):
                self.say(f"note: {run.path} is another run of this file, not finished: {'; '.join(changes)}")
                return

    def _changes(self, earlier: Run) -> list[str]:
        return differences(earlier.fingerprint, self.fingerprint, str(earlier.about.get("file", "")), self.file)

    def _use(self, earlier: Run) -> None:
        """Resume a run, or find that there is nothing to do."""
        if earlier.finished:
            self.found = earlier
            self._made = []
            self._leave()
        else:
            self.resumes, self.begun = True, earlier.begun

    def _take(self, path: Path, new: bool = False) -> None:
        """Make a folder ours. FileExistsError: another process has made it first."""
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=PRIVATE, exist_ok=not new)
        self._made = made
        self._lock = take(path, self.say)
        self.path = path

    def _begin(self) -> None:
        """Say what is computed here, before anything else is written."""
        for name in self.kind.files:
            refuse_special(self.path / name)
        for file in self.path.iterdir():
            if atomic.is_left_over(file):  # a killed process was writing it
                remove(file)
        if self.resumes and read_about(self.path):
            return
        if not self.resumes:
            self.begun = now()
        content = {
            "format": FORMAT, "version": VERSION, "kind": self.kind.name, "begun": self.begun,
            "shoal": versions()["shoal"], "host": platform.node(), "command": sys.argv, "file": self.file,
            "fingerprint": self.fingerprint,
        }  # fmt: skip
        content["sha256"] = check_of(content)
        atomic.write_text(self.path / RUN, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def _leave(self) -> None:
        """Give the folder back, and remove those that we made and that are empty."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._made = []


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def remove_files(path: Path, names: tuple[str, ...], act: bool = True) -> Removal:
    """Remove what a run has written, and nothing else; without `act` only find out what that would be.

    Last goes run.json, which says whose files these are: whatever ends the removal, the next start continues.
    """
    found = Removal()
    for name in sorted(names, key=RUN.__eq__):
        if os.path.lexists(path / name):
            remove(path / name, ours=partial(_is_of_a_run, path / name), act=act, into=found)
    return found


def _is_of_a_run(top: Path, path: Path) -> bool:
    if path == top:
        return path.is_dir() == (path.name in FOLDERS) and (path.name != PROGRESS or is_progress(path))
    if atomic.is_left_over(path):
        return True
    if top.name == JOURNAL:
        return is_own_file(top, path)
    known = OWN_FILES.get(top.name)
    return known is None or known.fullmatch(path.relative_to(top).as_posix()) is not None


def _runs_of(stem: str, kind: Kind) -> Iterator[Run]:
    """The numbered runs of this name, the latest first."""
    found = [path for path in Path(RUNS).iterdir() if path.is_dir()] if Path(RUNS).is_dir() else []
    numbers = {path: path.name.removeprefix(f"{stem}-") for path in found if path.name.startswith(f"{stem}-")}
    paths = [path for path, number in numbers.items() if number.isdecimal()]
    for path in sorted(paths, key=lambda path: int(numbers[path]), reverse=True):
        run = read_run(path)
        if run is not None and run.kind is kind:
            yield run


def numbered(path: Path) -> Path:
    """The first of path-1, path-2, ... that is not there."""
    number = 1
    while (found := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return found


def refuse_finished(out: Path) -> None:
    """Before anything is loaded: refuse a folder that holds other things than a run that can be resumed."""
    run = read_run(out)
    if run is None:
        refuse_taken(out)
    elif run.finished:
        raise UserError(f"--out must be a new folder; {out} holds a finished run: give another name")


def refuse_taken(out: Path) -> None:
    """Refuse a folder that holds anything but leases, and what was killed while it began."""
    if out.is_dir() and all(is_lease(file) or atomic.is_left_over(file) for file in out.iterdir()):
        return
    if (out / SETTINGS).exists():
        raise UserError(f"--out must be a new folder; {out} holds a finished run: give another name")
    if (out / JOURNAL).is_dir():
        raise UserError(
            f"{out} holds a run, but {RUN} and its copy in {JOURNAL}/{EVENTS} cannot be read: give another name with "
            "--out, or remove that folder"
        )
    if out.exists():
        what = "is not empty" if out.is_dir() else "is a file"
        raise UserError(f"--out must be a new folder; {out} {what}: give another name")

"""What the folder of a run says of it while somebody watches: whether it is going on, and what there is to show."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from shoal.runs.kinds import REPORT, read_run
from shoal.runs.lock import BEAT_SECONDS, Owner, owner_of

RUNNING, FINISHED, ENDED, GONE = "running", "finished", "ended", "gone"
LOOK_SECONDS = 0.5  # between two looks at the folder
QUIET_SECONDS = 5 * BEAT_SECONDS  # without a sign of life from another machine


@dataclass(frozen=True)
class RunStatus:
    """`ended`: before it was finished, and nobody continues it. `owner`: who works in it, in words."""

    state: str
    owner: str = ""
    report: str = ""  # which one there is; empty: none


class RunState:
    """Looks at a run folder, not more often than every half second. Waits for nobody."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_over = False  # the process that serves the page has worked in the folder, and does not any more
        self._seen: tuple[Owner | None, float] = None, time.monotonic()
        self._looked, self._latest = 0.0, RunStatus(GONE)

    def look(self, at_once: bool = False) -> RunStatus:
        if at_once or time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked, self._latest = time.monotonic(), self._find_out()
        return self._latest

    def _find_out(self) -> RunStatus:
        try:
            owner = owner_of(self.folder)
            if owner is not None and not self.is_over and self._lives(owner):
                return RunStatus(RUNNING, f"process {owner.pid} on {owner.host}")
            run = read_run(self.folder)
        except OSError:
            run = None
        if run is None:
            return RunStatus(GONE)
        return RunStatus(FINISHED if run.finished else ENDED, "", self._report())

    def _lives(self, owner: Owner) -> bool:
        """Where another machine owns the folder: as long as its lease changes while we look."""
        lives = owner.lives()
        before, since = self._seen
        if owner != before:
            self._seen = owner, time.monotonic()
            return lives is not False
        return time.monotonic() - since < QUIET_SECONDS if lives is None else lives

    def _report(self) -> str:
        """Names a version of the report, so that a page knows a new one."""
        try:
            found = (self.folder / REPORT).stat()
        except OSError:
            return ""
        return hashlib.sha256(f"{found.st_mtime_ns} {found.st_size}".encode()).hexdigest()[:12]

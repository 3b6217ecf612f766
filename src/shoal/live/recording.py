"""What happens in a run, as it happens: a line of JSON for each event, in one file of the run folder.

The live page, a page that is opened again, a replay and `shoal watch` all read this file. It is only added to. A lost
line costs a dot on a page, so nothing here forces the disk, and a disk that refuses ends the recording, not the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.files.json_values import plain
from shoal.files.plain_files import open_file
from shoal.runs.kinds import LIVE, STOP

MOST_BYTES = 32 * 2**20  # of a recording; what comes later is not recorded
KEPT_BYTES = 2**16  # of these, for how the run ends
TAIL_BYTES = 2**16  # that are searched for the time of the last event
SHORTEST_SECONDS = 1.0  # between two events of progress
EVENTS_OF_PROGRESS = 2_000  # in each doubling of the time, or nearly so
LONGEST_SECONDS = 1e9  # that a run may have taken; a damaged line may say more
STOP_SECONDS = 0.3  # between two looks whether a page asks to stop


class Recording:
    """Writes events. `off` says why it has ended early."""

    def __init__(self, folder: Path, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.say, self.now = folder, say, now
        self.off = ""
        self._file: Any = None
        self._size, self._next_progress, self._next_look = 0, 0.0, 0.0
        self._start = now()
        try:
            self._open(folder / LIVE)
        except OSError as error:
            self._end(error.strerror or str(error))
        forget_stop(folder)  # that of an earlier attempt

    def _open(self, path: Path) -> None:
        """Time continues where an earlier attempt has ended."""
        ending = last_bytes(path) if os.path.lexists(path) else b""  # refuses what is no file
        self._start -= last_time(ending)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        self._file = open(handle, "ab", buffering=0)  # noqa: SIM115, ours until `close`
        self._size = os.fstat(handle).st_size
        if ending and not ending.endswith(b"\n"):  # a killed process was writing a line
            self._file.write(b"\n")

    def seconds(self) -> float:
        return self.now() - self._start

    def write(self, event: str, last: bool = False, **content: Any) -> None:
        """Add an event; `last`: there is room for it, whatever was recorded before."""
        if self.off:
            return
        line = json.dumps({"e": event, "t": round(self.seconds(), 2), **plain(content)}, separators=(",", ":"))
        text = line.encode("utf-8", "backslashreplace") + b"\n"
        if self._size + len(text) > MOST_BYTES - (0 if last else KEPT_BYTES):
            return
        try:
            self._file.write(text)
        except OSError as error:
            self._end(error.strerror or str(error))
        self._size += len(text)

    def is_due(self) -> bool:
        """Whether progress is worth an event now: once a second, and less often the longer the run takes."""
        now = self.seconds()
        if self.off or now < self._next_progress:
            return False
        self._next_progress = now + max(SHORTEST_SECONDS, now / EVENTS_OF_PROGRESS)
        return True

    def stop_requested(self) -> bool:
        """Whether a page asks this run to stop and keep the best."""
        if self.now() < self._next_look:
            return False
        self._next_look = self.now() + STOP_SECONDS
        return is_file(self.folder / STOP)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self.off = None, "closed"
        forget_stop(self.folder)

    def _end(self, why: str) -> None:
        self.off = why
        self.say(f"{self.folder / LIVE} cannot be written ({why}), so the live page shows no more of this run")


def last_bytes(path: Path) -> bytes:
    """The end of a recording."""
    with open(open_file(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        return file.read()


def last_time(ending: bytes) -> float:
    """The time of the last event that has one: a line may be damaged."""
    for line in reversed(ending.splitlines()):
        try:
            seconds = float(json.loads(line)["t"])
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            continue
        if 0 <= seconds <= LONGEST_SECONDS:
            return seconds
    return 0.0


def read_lines(path: Path, start: int, most: int = 2**16) -> tuple[bytes, int]:
    """Whole lines of a recording from a place on, about so many bytes; and the place after them. Nothing yet: empty."""
    try:
        with open(open_file(path), "rb") as file:
            file.seek(start)
            content = file.read(most)
            if b"\n" not in content:  # one long line; what is longer than a recording is none
                content += file.readline(MOST_BYTES)
    except FileNotFoundError:
        return b"", start
    whole = content[: content.rfind(b"\n") + 1]
    return whole, start + len(whole)


def is_file(path: Path) -> bool:
    """A link is none."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def request_stop(folder: Path) -> None:
    """Ask the process that works in a run folder to stop and keep the best. Only a new file says so: anything else
    with its name may be somebody's, or lead to it."""
    try:
        with open(folder / STOP, "xb") as file:
            file.write(b"a page asks this run to stop and keep the best\n")
    except FileExistsError:
        if not is_file(folder / STOP):
            raise


def forget_stop(folder: Path) -> None:
    if is_file(folder / STOP):
        with contextlib.suppress(OSError):
            (folder / STOP).unlink()

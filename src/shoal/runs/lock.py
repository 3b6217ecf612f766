"""Ownership of run folders: one process writes into a folder, and a second one gets the name of the first.

The owner has a lease, a small file `lease-N.json` with host, pid and since when, which it renews every few seconds. On
the same machine the process number says whether the owner lives. From elsewhere its owner is gone when the lease has
not changed for a while, by the clock of whoever looks. Leases have numbers. The next one is made in a way that fails if
it is there: of many processes that want it, one gets it. No lock of the system is needed, which not every disk has.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import psutil

from shoal.errors import UserError
from shoal.files.plain_files import kind_of, open_file, read_bytes

LEASE = re.compile(r"lease-(\d+)\.json")
BEAT_SECONDS = 2.0  # between two signs of life
PATIENCE_SECONDS = 15.0  # without one, until the owner counts as gone
LISTING_SECONDS = 3 * BEAT_SECONDS  # that a list of runs waits for signs of life
POLL_SECONDS = 0.1
LONGEST_POLL_SECONDS = 1.0  # that count as waiting: the process that looks may have been stopped, too
START_TOLERANCE_SECONDS = 2.0  # the system computes when a process began from a clock that is adjusted
MAX_LEASE_BYTES = 65_536
MAX_PID = 2**31 - 1  # psutil takes no larger process number
MAX_TRIES = 5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Owner:
    """Who has a folder."""

    host: str
    pid: int
    since: str
    machine: str  # this start of this machine
    processes: str  # where process numbers mean the same
    started: float
    token: str
    beat: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    def lives(self) -> bool | None:
        """Whether the process is there; None where that cannot be known from here."""
        if (self.machine, self.processes) != (machine(), process_numbers()):
            return None
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < START_TOLERANCE_SECONDS
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True


class InUse(UserError):
    """Another process has the folder."""


class LostFolder(UserError):
    """The folder was ours, and another process has taken it."""


class FolderLock:
    """Ours until `release`, or until this process ends. One that was stopped for long must `check` before it writes."""

    def __init__(self, folder: Path, lease: Path, owner: Owner) -> None:
        self.folder, self.owner, self._lease = folder, owner, lease
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="shoal-lease", daemon=True)
        self._beating.start()

    def check(self) -> None:
        """Refuse to continue where another process has taken the folder. Asks each time: a pause is not noticed."""
        if not self._is_ours():
            raise LostFolder(
                f"{self.folder} was taken over by {_name_of(owner_of(self.folder))} because this process gave no sign "
                f"of life for {PATIENCE_SECONDS:g} s. This process writes nothing more; the other one continues"
            )

    def release(self) -> None:
        """A lease that was lost is another's, and stays."""
        self._ended.set()
        self._beating.join()
        if self._is_ours():
            self._lease.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        found = read_owner(self._lease)
        return found is not None and found.token == self.owner.token

    def _beat(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            with contextlib.suppress(OSError):  # a disk that is away for a moment; the next beat tries again
                if not _renew(self._lease, self.owner, beat):
                    return


def take(folder: Path, say: Say | None = None) -> FolderLock:
    """Make a folder ours. `InUse`: another process has it. `say` is told if it takes time to find out."""
    for attempt in range(MAX_TRIES):
        taken = _take_lease(folder, say)
        if taken is not None:
            return taken
        time.sleep(secrets.randbelow(50) / 1000 * (attempt + 1))
    raise InUse(_in_use(folder))


def owner_of(folder: Path) -> Owner | None:
    """Who the newest lease of a folder names; it need not be alive."""
    leases = _leases(folder)
    return read_owner(leases[-1]) if leases else None


def living(folders: Iterable[Path]) -> dict[Path, Owner]:
    """Which of some folders are in use, and by whom, without disturbing anybody. Signs of life from other machines are
    waited for, a few beats for all together."""
    owners = {folder: owner for folder in folders if (owner := owner_of(folder)) is not None}
    lives = {folder: owner.lives() for folder, owner in owners.items()}
    renewed = _renewed([folder for folder, known in lives.items() if known is None], LISTING_SECONDS)
    return {folder: owner for folder, owner in owners.items() if lives[folder] or folder in renewed}


def is_lease(path: Path) -> bool:
    """Whether Shoal wrote it: a lease that names its owner, or an empty one of a process that was killed at once.
    A file of the user's that has such a name is none."""
    if LEASE.fullmatch(path.name) is None:
        return False
    try:
        status = os.lstat(path)
        return stat.S_ISREG(status.st_mode) and (status.st_size == 0 or read_owner(path) is not None)
    except OSError:
        return False


def _refuse_foreign(path: Path) -> None:
    """Never write to or remove a file that another process gave the name of ours."""
    if os.path.lexists(path) and not is_lease(path) and os.path.lexists(path):  # it may go meanwhile
        status = os.lstat(path)
        what = "" if stat.S_ISREG(status.st_mode) else f"{kind_of(status)}, "
        raise UserError(f"{path} is {what}not the lease of a run. Move it, or give another --out")


def read_owner(lease: Path) -> Owner | None:
    """None: there is no lease any more, or it says nothing that can be used."""
    content = _content(lease)
    try:
        found = Owner(**json.loads(content or b""))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (found.host, found.since, found.machine, found.processes, found.token)
    usable = all(isinstance(text, str) for text in texts) and type(found.pid) is int and 0 < found.pid <= MAX_PID
    return found if usable and type(found.started) is float and type(found.beat) is int else None


# ---- leases ----


def _take_lease(folder: Path, say: Say | None) -> FolderLock | None:
    """None: others tried at the same moment, try again."""
    for path in _leases(folder):
        _refuse_foreign(path)
    seen = _contents(folder)
    newest = max(seen, key=_number, default=None)
    if newest is not None and not _is_gone(newest, say):
        raise InUse(_in_use(folder))
    mine = folder / f"lease-{1 if newest is None else _number(newest) + 1}.json"
    owner = _ourselves()
    try:
        handle = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(_text(owner))
    except OSError:  # the disk is full: an empty lease would keep the next one waiting
        mine.unlink(missing_ok=True)
        raise
    others = {path: content for path, content in _contents(folder).items() if path != mine}
    if not others.items() <= seen.items():  # somebody has made or renewed one since we looked
        mine.unlink(missing_ok=True)
        return None
    for path in others:
        path.unlink(missing_ok=True)
    return FolderLock(folder, mine, owner)


def _is_gone(lease: Path, say: Say | None) -> bool:
    """Whether the owner of a lease has ended."""
    owner = read_owner(lease)
    lives = None if owner is None else owner.lives()
    if lives is not None or not lease.exists():
        return not lives
    if say is not None:
        who = "another process" if owner is None else f"process {owner.pid} on {owner.host}"
        say(f"{lease.parent} belongs to {who}; waiting up to {PATIENCE_SECONDS:g} s to see whether it still runs")
    return not _renewed([lease.parent], PATIENCE_SECONDS)


def _renewed(folders: Iterable[Path], seconds: float) -> set[Path]:
    """Folders whose lease is renewed while we look, by our clock alone."""
    before = {folder: _contents(folder) for folder in folders}
    found, quiet, last = set(), 0.0, time.monotonic()
    while before and quiet < seconds:
        time.sleep(POLL_SECONDS)
        now = time.monotonic()
        quiet, last = quiet + min(now - last, LONGEST_POLL_SECONDS), now
        for folder in list(before):
            contents = _contents(folder)
            if not contents.items() <= before[folder].items():
                found.add(folder)
            if not contents or folder in found:  # given back, or renewed
                del before[folder]
    return found


def _renew(lease: Path, owner: Owner, beat: int) -> bool:
    """Change our lease where it is, and never make it anew. False: it is not ours any more."""
    try:
        os.close(open_file(lease))
        with open(lease, "r+", encoding="utf-8") as file:
            if owner.token not in file.read():
                return False
            file.seek(0)
            file.write(_text(owner, beat))
    except FileNotFoundError:
        return False
    return True


def _text(owner: Owner, beat: int = 0) -> str:
    return json.dumps(asdict(owner) | {"beat": beat}) + "\n"


def _contents(folder: Path) -> dict[Path, bytes | None]:
    """What the leases of a folder hold."""
    return {path: _content(path) for path in _leases(folder)}


def _content(path: Path) -> bytes | None:
    """None: there is no such file. `NotAFile`: a FIFO, say, which nobody must wait for."""
    try:
        return read_bytes(path, MAX_LEASE_BYTES)
    except FileNotFoundError:
        return None


def _leases(folder: Path) -> list[Path]:
    """In the order of their numbers."""
    return sorted((path for path in folder.glob("lease-*.json") if LEASE.fullmatch(path.name)), key=_number)


def _number(lease: Path) -> int:
    found = LEASE.fullmatch(lease.name)
    assert found is not None
    return int(found[1])


def _in_use(folder: Path) -> str:
    return f"{folder} is in use by {_name_of(owner_of(folder))}. Wait until it has ended, or give another --out"


def _name_of(owner: Owner | None) -> str:
    return "another process" if owner is None else str(owner)


# ---- this process ----


def _ourselves() -> Owner:
    return Owner(
        platform.node(), os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S"), machine(), process_numbers(),
        psutil.Process().create_time(), secrets.token_hex(8),
    )  # fmt: skip


@cache
def machine() -> str:
    """A name that no other machine has, nor this one after it was started again; the host's where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


@cache
def process_numbers() -> str:
    """Containers may have process numbers of their own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""

"""Whose folder is it? One process writes into a folder, and a second one is told which.

Two things say so: a kernel lock on `run.lock`, which the system frees when its owner ends, however it ends; and a
lease, a small file `lease-N.json` with host, pid and since when, which its owner renews every few seconds. The kernel
lock decides on one machine. Where the disk has none, or where another machine is named (locks need not hold between
machines), the lease decides: its owner is gone when it has not changed for a while, by the clock of whoever looks.
Leases have numbers. The next one is made in a way that fails if it is there: of many that want it, one gets it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import secrets
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import psutil
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from shoal.errors import UserError
from shoal.files.plain_files import kind_of, open_file, read_bytes

LOCK = "run.lock"
LEASE = re.compile(r"lease-(\d+)\.json")
BEAT = 2.0  # seconds between two signs of life
PATIENCE = 15.0  # seconds without one until the owner counts as gone
LARGEST_LEASE, LARGEST_PID = 65_536, 2**31 - 1  # bytes; psutil takes no larger process number
POLL, LONGEST_STEP = 0.1, 1.0  # seconds; one who looks may have been stopped, too
TRIES = 5
FEW_BEATS = 3
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
SAME_START = 2.0  # seconds; the system computes when a process began from a clock that is adjusted

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
            same = abs(process.create_time() - self.started) < SAME_START
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

    def __init__(self, folder: Path, lease: Path, owner: Owner, kernel: BaseFileLock | None) -> None:
        self.folder, self.owner, self._lease, self._kernel = folder, owner, lease, kernel
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="shoal-lease", daemon=True)
        self._beating.start()

    def check(self) -> None:
        """Refuse to continue where another process has taken the folder. Asks each time: a pause is not noticed."""
        found = read_owner(self._lease)
        if found is None or found.token != self.owner.token:
            now = owner_of(self.folder)
            by = "another process" if now is None else str(now)
            raise LostFolder(
                f"{self.folder} was taken over by {by}, for this process gave no sign of life for {PATIENCE:g} s; it "
                "writes nothing more, and the other one goes on"
            )

    def release(self) -> None:
        """The files go while they are still ours. A lease that was lost is another's, and stays."""
        self._ended.set()
        self._beating.join()
        found = read_owner(self._lease)
        if found is not None and found.token == self.owner.token:
            if self._kernel is None:  # a file that no lock could be had on
                (self.folder / LOCK).unlink(missing_ok=True)
            self._lease.unlink(missing_ok=True)
        _release(self._kernel)

    def _beat(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT):
            beat += 1
            with contextlib.suppress(OSError):  # a disk that is away for a moment; the next beat tries again
                if not _renew(self._lease, self.owner, beat):
                    return


def take(folder: Path, say: Say | None = None) -> FolderLock:
    """Make a folder ours. `InUse`: another process has it. `say` is told if it takes time to find out."""
    for attempt in range(TRIES):
        supported, kernel = _kernel_lock(folder / LOCK)
        try:
            taken = _take_lease(folder, supported, kernel, say)
        except BaseException:
            _release(kernel)
            raise
        if taken is not None:
            return taken
        _release(kernel)
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
    found = {folder: owner for folder, owner in owners.items() if owner.lives()}
    unsure = {folder: owner for folder, owner in owners.items() if owner.lives() is None}
    end = time.monotonic() + FEW_BEATS * BEAT
    while len(unsure) and time.monotonic() < end:
        time.sleep(POLL)
        changed = {folder: now for folder in unsure if (now := owner_of(folder)) != unsure[folder]}
        found |= {folder: now for folder, now in changed.items() if now is not None}
        unsure = {folder: owner for folder, owner in unsure.items() if folder not in changed}
    return found


def is_lock_file(path: Path) -> bool:
    """Whether Shoal wrote it: an empty run.lock, or a lease that names its owner. One that was killed at once is empty.
    A file of the user's that has such a name is none."""
    if path.name != LOCK and LEASE.fullmatch(path.name) is None:
        return False
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return False
        return status.st_size == 0 or (path.name != LOCK and read_owner(path) is not None)
    except OSError:
        return False


def _refuse_foreign(path: Path) -> None:
    """Never write to or remove a file that somebody else gave the name of ours."""
    if os.path.lexists(path) and not is_lock_file(path) and os.path.lexists(path):  # it may go meanwhile
        status = os.lstat(path)
        what = "" if stat.S_ISREG(status.st_mode) else f"{kind_of(status)}, "
        raise UserError(f"{path} is {what}not the lock of a run: move it, or give another --out")


def read_owner(lease: Path) -> Owner | None:
    """None: there is no lease any more, or it says nothing that can be used."""
    content = _content(lease)
    try:
        found = Owner(**json.loads(content or b""))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (found.host, found.since, found.machine, found.processes, found.token)
    usable = all(isinstance(text, str) for text in texts) and type(found.pid) is int and 0 < found.pid <= LARGEST_PID
    return found if usable and type(found.started) is float and type(found.beat) is int else None


# ---- leases ----


def _take_lease(folder: Path, supported: bool, kernel: BaseFileLock | None, say: Say | None) -> FolderLock | None:
    """None: others tried at the same moment, try again. Where locks are supported but not ours, only a dead owner's
    children can have it."""
    seen = _leases(folder)
    for path in seen:
        _refuse_foreign(path)
    held = supported and kernel is None
    if held and not (seen and _is_dead(seen[-1])):
        raise InUse(_in_use(folder))
    if seen and not _is_gone(seen[-1], kernel is not None, say):
        raise InUse(_in_use(folder))
    number = 1 + (_number(seen[-1]) if seen else 0)
    mine, owner = folder / f"lease-{number}.json", _ourselves()
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
    if set(_leases(folder)) - {mine, *seen}:  # somebody has made one since we looked
        mine.unlink(missing_ok=True)
        return None
    for path in seen:
        path.unlink(missing_ok=True)
    return FolderLock(folder, mine, owner, kernel)


def _is_gone(lease: Path, locked: bool, say: Say | None) -> bool:
    """Whether the owner of a lease has ended. `locked`: we have the kernel's lock."""
    owner = read_owner(lease)
    lives = None if owner is None else owner.lives()
    if lives is not None or not lease.exists():
        return not lives
    if locked and owner is not None and owner.machine == machine():
        return True
    if say is not None:
        who = "another process" if owner is None else f"process {owner.pid} on {owner.host}"
        say(f"{lease.parent} belongs to {who}; waiting up to {PATIENCE:g} s to see whether that still runs")
    return not _gives_sign(lease)


def _is_dead(lease: Path) -> bool:
    owner = read_owner(lease)
    return owner is not None and owner.lives() is False


def _gives_sign(lease: Path) -> bool:
    """Whether a lease is renewed while we look, by our clock alone."""
    before, quiet, last = _content(lease), 0.0, time.monotonic()
    while quiet < PATIENCE:
        time.sleep(POLL)
        content, now = _content(lease), time.monotonic()
        if content is None:  # it was given back
            return False
        if content != before:
            return True
        quiet += min(now - last, LONGEST_STEP)
        last = now
    return False


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


def _content(path: Path) -> bytes | None:
    """None: there is no such file. `NotAFile`: a FIFO, say, which nobody must wait for."""
    try:
        return read_bytes(path, LARGEST_LEASE)
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
    owner = owner_of(folder)
    by = "another process" if owner is None else str(owner)
    return f"{folder} is in use by {by}; wait until it has ended, or give another --out"


# ---- the kernel's lock ----


def _kernel_lock(file: Path) -> tuple[bool, BaseFileLock | None]:
    """Whether the disk has locks, and that of the file if it was free.

    filelock falls back to the mere existence of a file where there are none, which a dead process would hold forever.
    It may empty the file that it opens, and we remove it, so that must be ours, and no link to somebody's.
    """
    _refuse_foreign(file)
    try:
        lock: BaseFileLock = FileLock(file, timeout=0, thread_local=False, fallback_to_soft=False)
    except TypeError:  # an older filelock
        lock = FileLock(file, timeout=0, thread_local=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the fallback
            lock.acquire()
    except Timeout:
        return True, None
    except NotImplementedError:
        return False, None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False, None
    if isinstance(lock, SoftFileLock):
        lock.release()
        return False, None
    return True, lock


def _release(lock: BaseFileLock | None) -> None:
    if lock is None:
        return
    file = Path(lock.lock_file)
    try:
        file.unlink(missing_ok=True)
        lock.release()
    except PermissionError:  # Windows deletes no file that is open
        lock.release()
        file.unlink(missing_ok=True)


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

"""Finished work in a folder: what was written whole is found again after any crash. It knows nothing of searches.

A file of the journal is a sealed file of `shoal.files.tensors`, labelled with kind and keys. Its name is the kind and
a hash of the keys, so a file under another's name is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import CannotWrite
from shoal.files import atomic, tensors
from shoal.files.plain_files import PRIVATE, read_bytes, refuse_special, remove
from shoal.machine import size_text

FORMAT, VERSION, ENDING = "shoal-journal", "1", ".safetensors"
EVENTS, DAMAGED = "events.jsonl", "damaged"
KIND = re.compile(r"[a-z][a-z0-9_]*")
DAMAGED_FILE = re.compile(r"events(-\d+)?\.jsonl|[a-z][a-z0-9_]*-[0-9a-f]{32}(-\d+)?\.safetensors")
KEY = re.compile(r"[0-9a-f]+")
AGAIN = "its work is computed again"


class Damaged(Exception):
    """A file that cannot be used; the text is the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Head:
    """What a file holds, and for which keys. Its name follows from that."""

    kind: str
    keys: tuple[str, ...]

    @property
    def file_name(self) -> str:
        return f"{self.kind}-{hashlib.sha256(','.join((self.kind, *self.keys)).encode()).hexdigest()[:32]}{ENDING}"

    @property
    def labels(self) -> dict[str, str]:
        return {"format": FORMAT, "version": VERSION, "kind": self.kind, "keys": ",".join(self.keys)}

    @staticmethod
    def of(path: Path, labels: Mapping[str, str]) -> Head:
        """As the labels of a file have it; `Damaged` where that is no file of a journal, or another's."""
        if labels.get("format") != FORMAT:
            raise Damaged("is not a journal file")
        if labels.get("version") != VERSION:
            raise Damaged(f"has version {labels.get('version', '')[:20]}, and this Shoal reads version {VERSION}")
        head = Head(labels.get("kind", ""), tuple(labels.get("keys", "").split(",")))
        if head.file_name != path.name:
            raise Damaged("has a name that does not match its content")
        return head


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """A file of the journal, checked. The arrays cannot be written to and share one piece of memory."""

    keys: tuple[str, ...]
    arrays: dict[str, np.ndarray]
    about: Any


class Journal:
    """Finished work in a folder, written by one process, in any of its threads.

    Every *.safetensors file in the folder is the journal's. `whose` are the events, where the folder serves for several
    things: what one of them notes, the others do not see. Files are known by their keys, and are everybody's. `check`
    is called before anything is written, and raises if the folder is no longer ours. `lock` is held meanwhile: whoever
    gives the folder back takes it first.
    """

    def __init__(
        self,
        folder: Path,
        warn: Callable[[str], None] | None = None,
        whose: str = "",
        check: Callable[[], None] = lambda: None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        check()
        self.folder, self.warn, self._prefix = folder, warn or _warn, f"{whose}: " if whose else ""
        self._check = check
        self._lock: AbstractContextManager[Any] = threading.RLock() if lock is None else lock
        self._heads: dict[Path, Head] = {}
        self._places: dict[tuple[str, str], list[tuple[Path, int]]] = {}  # the latest file with a part is the last
        self._events_end, self._last_check = 0, ""
        with writing(folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            atomic.sync_folder(folder.parent)
            self._sweep()
        for path in sorted(folder.glob(f"*{ENDING}")):
            self._take_up(path)
        self._open_events()

    @property
    def files(self) -> int:
        """Files that are there and not damaged."""
        return len(self._heads)

    def write(
        self,
        kind: str,
        keys: Sequence[str],
        arrays: Mapping[str, np.ndarray],
        about: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write what belongs to some keys: each says what one part depends on, as a hexadecimal hash. On the disk when
        this returns. `about` is JSON, in which Python's NaN and Infinity are allowed."""
        if not KIND.fullmatch(kind):
            raise ValueError(f"a kind is a word of lower-case letters, got {kind!r}")
        wrong = [key for key in keys if not KEY.fullmatch(key)]
        if wrong or not keys or len(set(keys)) != len(keys):
            raise ValueError(f"keys must be different hexadecimal hashes, at least one; got {wrong[:1] or list(keys)}")
        head = Head(kind, tuple(keys))
        path = self.folder / head.file_name
        with self._lock:
            self._check()
            with writing(self.folder, sum(array.nbytes for array in arrays.values())):
                tensors.write_sealed(path, arrays, about, head.labels)
            self._forget(path)
            self._add(path, head)
        return path

    def count(self, kind: str) -> int:
        """Parts of a kind that are there."""
        with self._lock:
            return sum(found == kind for found, _ in self._places)

    def find(self, kind: str, key: str) -> tuple[Path, int] | None:
        """The file with this part, and the key's place among the file's keys."""
        with self._lock:
            return self._places.get((kind, key), [None])[-1]

    def read(self, path: Path) -> JournalEntry | None:
        """What a file holds, every byte of it checked. None: it was damaged, and is moved to `damaged`."""
        try:
            labels, arrays, about = _undamaged(tensors.read_sealed, path)
            return JournalEntry(Head.of(path, labels).keys, arrays, about)
        except FileNotFoundError:
            self._forget(path)
            self.warn(f"{path} has disappeared; {AGAIN}")
        except OSError as error:
            self._set_aside(path, f"cannot be read ({error.strerror or error})")
        except Damaged as error:
            self._set_aside(path, str(error))
        return None

    def remove(self, path: Path) -> None:
        """Remove a file that is not needed any more."""
        with self._lock:
            self._check()
            self._forget(path)
            with writing(self.folder):
                path.unlink(missing_ok=True)

    def note(self, name: str, value: Any) -> None:
        """Add an event. It is on the disk when this returns."""
        with self._lock:
            self._check()
            check, line = _event_line(self._last_check, self._prefix + name, value)
            with writing(self.folder, len(line)):
                _append(self.folder / EVENTS, self._events_end, line)
            self._last_check = check
            self._events_end += len(line)

    def events(self) -> list[tuple[str, Any]]:
        """All events that are whole, in order."""
        found, prefix = read_events(self.folder), self._prefix
        return [(name.removeprefix(prefix), value) for name, value in found if name.startswith(prefix)]

    def _sweep(self) -> None:
        """Remove what a crash has left half written."""
        for path in self.folder.iterdir():
            if atomic.is_left_over(path):
                remove(path)

    def _take_up(self, path: Path) -> None:
        try:
            head = Head.of(path, _undamaged(tensors.read_labels, path))
        except OSError as error:
            self._set_aside(path, f"cannot be read ({error.strerror or error})")
        except Damaged as error:
            self._set_aside(path, str(error))
        else:
            self._add(path, head)

    def _add(self, path: Path, head: Head) -> None:
        self._heads[path] = head
        for place, key in enumerate(head.keys):
            self._places.setdefault((head.kind, key), []).append((path, place))

    def _forget(self, path: Path) -> None:
        """A file that is not used any more. Keys that another file has as well are found there from now on."""
        with self._lock:
            head = self._heads.pop(path, None)
            for part in [(head.kind, key) for key in head.keys] if head is not None else []:
                others = [found for found in self._places.pop(part) if found[0] != path]
                if others:
                    self._places[part] = others

    def _set_aside(self, path: Path, what: str) -> None:
        self._forget(path)
        try:
            os.rename(path, _free_name(self.folder / DAMAGED, path.name))
            done = f"it was moved to {DAMAGED}/"
        except OSError as error:
            done = f"it could not be moved to {DAMAGED}/ ({error.strerror})"
        self.warn(f"{path} {what}; {done}, and {AGAIN}")

    def _open_events(self) -> None:
        """Cut the list of events after the last one that is whole, so that more can be added."""
        path = self.folder / EVENTS
        refuse_special(path)
        content = _content(path)
        found, self._events_end, self._last_check = _whole_events(content)
        rest = content[self._events_end :]
        if not rest:
            return
        with writing(self.folder):
            if b"\n" in rest:
                shutil.copyfile(path, _free_name(self.folder / DAMAGED, EVENTS))
                self.warn(
                    f"{path} is damaged after event {len(found)}; a copy is in {DAMAGED}/, and what came "
                    "after that event is decided again"
                )
            atomic.write_bytes(path, content[: self._events_end])


def read_events(folder: Path) -> list[tuple[str, Any]]:
    """The events of a journal that are whole, in order. Changes nothing: for whoever looks at another process's run."""
    return _whole_events(_content(folder / EVENTS))[0]


def is_own_file(folder: Path, path: Path) -> bool:
    """Whether what is in the folder of a journal, or in `damaged` there, was written by one.

    The header of a file, or the checksum of an event, says so. A damaged file cannot say it any more:
    its name must be one that a journal gives, and the journal must have an event.
    """
    if path == folder / DAMAGED:
        return path.is_dir()
    if path.is_dir() or path.is_symlink():
        return False
    try:
        if path.parent == folder / DAMAGED:
            return DAMAGED_FILE.fullmatch(path.name) is not None and bool(read_events(folder))
        if path == folder / EVENTS:
            return path.stat().st_size == 0 or bool(read_events(folder))  # empty: the disk was full
        Head.of(path, _undamaged(tensors.read_labels, path))
    except (Damaged, OSError, ValueError):
        return False
    return True


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return b""


def _event_line(last_check: str, name: str, value: Any) -> tuple[str, bytes]:
    """A line and its checksum, which covers the one before it: no line can be left out or take another's place."""
    rest = f"{tensors.as_json([name, value])[1:]}\n".encode()
    check = _event_check(last_check, rest)
    return check, f'["{check}", '.encode() + rest


def _event_check(last_check: str, rest: bytes) -> str:
    return hashlib.sha256(last_check.encode() + rest).hexdigest()[:32]


def _whole_events(content: bytes) -> tuple[list[tuple[str, Any]], int, str]:
    """Events up to the first that is cut or damaged, where they end, and the last one's checksum."""
    events: list[tuple[str, Any]] = []
    end, check = 0, ""
    begin = len('["", ') + 32
    for line in content.splitlines(keepends=True):
        expected = _event_check(check, line[begin:])
        if line[:begin] != f'["{expected}", '.encode():
            break
        _, name, value = json.loads(line)
        events.append((name, value))
        end, check = end + len(line), expected
    return events, end, check


def _append(path: Path, end: int, line: bytes) -> None:
    """Add a line to a file that ends at `end`; if that fails, the file ends there again."""
    new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if os.fstat(handle).st_size != end:
            raise CannotWrite(f"{path} was changed by another process; end that one, and run the same command again")
        try:
            tensors.write_all(handle, line)
            os.fsync(handle)
        except BaseException:
            with suppress(OSError):  # the next start cuts it off
                os.ftruncate(handle, end)
            raise
    finally:
        os.close(handle)
    if new:
        atomic.sync_folder(path.parent)


def _undamaged(read: Callable[[Path], Any], path: Path) -> Any:
    try:
        return read(path)
    except tensors.NotTensors as error:
        raise Damaged(f"is damaged ({error})") from None


def _free_name(folder: Path, name: str) -> Path:
    """A path in a folder, with a number where the name is taken."""
    folder.mkdir(exist_ok=True)
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path


@contextmanager
def writing(folder: Path, size: int = 0, what: str = "the journal") -> Iterator[None]:
    """Errors in writing to a folder as one sentence. `size`: bytes that are to be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CannotWrite) and error.errno is None:  # it is not the disk's
            raise
        needed = f"; {size_text(size)} are needed" if size else ""
        remedy = atomic.remedy_for(error, folder) or "solve that"
        raise CannotWrite(
            f"{what} cannot be written to {folder}: {error.strerror or error}{needed}; {remedy}, and run the same "
            "command again"
        ) from error

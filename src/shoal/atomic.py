"""Files and folders that appear whole or not at all, and are on the disk before anything else relies on them.

Both are written under a hidden name beside their own, forced to the disk, and renamed; then the rename itself is forced
to the disk. Whatever ends the work before that leaves what was there before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_numbers = itertools.count(1)  # two threads may write the same file


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A name to write a file to, which becomes `target` at the end; it has the same ending.

    A link stays one, to the new file. What is no file, such as /dev/stdout, is written to directly.
    """
    if target.exists() and not target.is_file():
        yield target
        return
    target = Path(os.path.realpath(target))
    partial = _beside(target, target.suffix)
    try:
        yield partial
        _sync(partial)
        os.replace(partial, target)
        sync_folder(target.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """An empty folder to write into, which becomes `target` at the end, in place of an older one."""
    partial, old = _beside(target, ""), _beside(target, ".old")
    partial.mkdir()
    try:
        yield partial
        sync_tree(partial)
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(partial, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise
        sync_folder(target.parent)
    finally:
        for folder in (partial, old):
            shutil.rmtree(folder, ignore_errors=True)


def write_bytes(target: Path, content: bytes) -> None:
    with new_file(target) as partial:
        partial.write_bytes(content)


def write_text(target: Path, text: str) -> None:
    """As UTF-8, with the ends of lines that the text has."""
    write_bytes(target, text.encode("utf-8"))


def rename(source: Path, target: Path) -> None:
    """Give a folder that is complete its name. Unlike `new_folder` this fails where `target` is there and not empty."""
    sync_tree(source)
    os.rename(source, target)
    sync_folder(target.parent)


def sync_tree(folder: Path) -> None:
    """Force all files and folders below to the disk."""
    for place, _, files in os.walk(folder):
        for name in files:
            _sync(Path(place) / name)
        sync_folder(Path(place))


def _beside(target: Path, ending: str) -> Path:
    stem = target.name.removesuffix(ending)
    return target.with_name(f".{stem}.{os.getpid()}-{next(_numbers)}.part{ending}")


def _sync(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Names in a folder are its content. Windows has no such call, and some network disks refuse it."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)

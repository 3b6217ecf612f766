"""Files and folders that appear whole or not at all, and are on the disk before anything else relies on them.

Both are written under a hidden name beside their own, forced to the disk, and renamed; then the rename itself is forced
to the disk. Whatever ends the work before that leaves what was there before. An error names the file or folder that was
asked for, never the hidden one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import CannotWrite, NotAFile, UserError
from shoal.files.plain_files import read_bytes

LEFT_OVER = re.compile(r"\..+\.shoal-\d+-\d+\.part(\..*)?")  # what is half written is named like this
MARKER = ".shoal-unfinished"  # in a folder that is half written
MARKER_TEXT = "Shoal is writing this folder, and renames it when it is complete.\n"
REMEDIES = {
    errno.ENOSPC: "make room in {folder}",
    errno.EDQUOT: "make room in {folder}",
    errno.EROFS: "make {folder} writable",
    errno.EACCES: "make {folder} writable",
    errno.EPERM: "make {folder} writable",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EIO: "check the disk of {folder}",
    errno.ENOENT: "create the folder {folder}",
    errno.ENAMETOOLONG: "give a shorter name",
}
OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}  # writing fails without a file's name
ROOM = 2**20  # bytes that a disk has which is not full
_numbers = itertools.count(1)  # two threads may write the same file


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A name to write a file to, which becomes `target` at the end; it has the same ending.

    A link stays one, to the new file. What is no file, such as /dev/stdout, is written to directly.
    """
    if target.exists() and not target.is_file():
        yield target
        return
    asked, target = target, Path(os.path.realpath(target))
    partial = beside(target)
    with _named(asked, target, partial):
        try:
            yield partial
            _sync(partial)
            os.replace(partial, target)
            sync_folder(target.parent)
        except Exception:
            _ask_system(partial)
            raise
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _ask_system(partial: Path) -> None:
    """Some libraries raise errors of their own where nothing can be written: raise that of the system."""
    with open(partial, "ab") as file:
        file.write(bytes(ROOM))


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `target` at the end, in place of an older one. Replaces no link."""
    if target.is_symlink():
        raise NotAFile(f"{target} is a symbolic link, which is not replaced by a folder: give the folder itself")
    partial, old = beside(target, ""), beside(target, ".old")
    with _named(target, target, partial):
        yield from _replaced(target, partial, old)


def _replaced(target: Path, partial: Path, old: Path) -> Iterator[Path]:
    partial.mkdir()
    try:
        (partial / MARKER).write_text(MARKER_TEXT, encoding="utf-8")
        yield partial
        (partial / MARKER).unlink()
        sync_tree(partial)
        if target.exists():
            shutil.copymode(target, partial)
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


@contextmanager
def _named(asked: Path, target: Path, partial: Path) -> Iterator[None]:
    """Errors of writing become a sentence on the file or folder that was asked for; all others stay as they are."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        place = error.filename if isinstance(error.filename, (str, bytes, os.PathLike)) else ""
        hidden = os.fsdecode(place).startswith(str(partial)) or os.fsdecode(place) == str(target.parent)
        if not hidden and (error.filename is not None or error.errno not in OF_THE_DISK):
            raise
        raise cannot_write(asked, error) from error


def cannot_write(target: Path, error: OSError) -> CannotWrite:
    """What is to be said where a file or folder cannot be written: its name, why, and the remedy."""
    remedy = remedy_for(error, Path(os.path.dirname(os.path.abspath(target))))
    why = "its folder is a file" if error.errno in (errno.EEXIST, errno.ENOTDIR) else error.strerror or str(error)
    remedy = f"{remedy}, or choose another folder" if remedy else "choose another folder"
    return CannotWrite.of(f"{target} cannot be written: {why}; {remedy}", error)


def remedy_for(error: OSError, folder: Path) -> str:
    """What lets a folder be written to; empty where nothing is known."""
    return REMEDIES.get(error.errno or 0, "").format(folder=folder)


def check_target(target: Path) -> None:
    """Make the folder of a file, and find out before any work whether the file can be written."""
    if target.is_dir():
        raise UserError(f"{target} is a folder: give the name of a file")
    if target.exists() and not target.is_file():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        trial = beside(Path(os.path.realpath(target)))
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise cannot_write(target, error) from error


def is_left_over(path: Path) -> bool:
    """Whether this was half written by a process that was killed: a file with such a name, or a folder with the marker
    in it. A link never is."""
    if not LEFT_OVER.fullmatch(path.name):
        return False
    try:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            return not (path / MARKER).is_symlink() and read_bytes(path / MARKER) == MARKER_TEXT.encode()
    except OSError:
        return False
    return stat.S_ISREG(mode)


def write_bytes(target: Path, content: bytes) -> None:
    with new_file(target) as partial:
        partial.write_bytes(content)


def write_text(target: Path, text: str) -> None:
    """As UTF-8, with the ends of lines that the text has.

    Python has half a surrogate pair for a byte of a path that is not UTF-8. It is written as \\udcXX: in JSON that is
    its escape, so that the path is read as it was.
    """
    write_bytes(target, text.encode("utf-8", "backslashreplace"))


def sync_tree(folder: Path) -> None:
    """Force all files and folders below to the disk."""
    for place, _, files in os.walk(folder):
        for name in files:
            _sync(Path(place) / name)
        sync_folder(Path(place))


def beside(target: Path, ending: str | None = None) -> Path:
    """A hidden name that is known as left over when this process is killed: what has it is removed by the next one."""
    ending = target.suffix if ending is None else ending
    stem = target.name.removesuffix(ending)
    return target.with_name(f".{stem}.shoal-{os.getpid()}-{next(_numbers)}.part{ending}")


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

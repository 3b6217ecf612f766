"""Files in a folder that others may have written to: only regular files are read, and only regular ones removed.

Opening a FIFO waits for a writer, a device may do anything, and a sparse file may claim a terabyte. So everything is
looked at before it is opened, and again once it is open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.errors import NotAFile, UserError

PRIVATE = 0o700  # mode of a new folder that holds rows of the data: journals, models and pages do
LARGEST = 256 * 2**20  # bytes of a file of JSON
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}
ONLY_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
HAS_HANDLES = os.open in os.supports_dir_fd  # of folders; Windows has none


def open_file(path: str | os.PathLike[str]) -> int:
    """A handle to read a regular file. `NotAFile`: it is something else. Never waits; a link to a file is followed."""
    _refuse_others(path, os.stat(path))
    handle = os.open(path, ONLY_READ)
    try:
        _refuse_others(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_bytes(path: str | os.PathLike[str], most: int | None = LARGEST) -> bytes:
    """All of a regular file of at most so many bytes."""
    with open(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read() if most is None else b"" if size > most else file.read(most + 1)
    if most is not None and max(size, len(content)) > most:
        raise NotAFile(f"{path} has more than {most // 2**20} MiB, too much for what it should hold")
    return content


def read_text(path: str | os.PathLike[str]) -> str:
    return read_bytes(path).decode("utf-8")


def _refuse_others(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotAFile(f"{path} is {kind_of(status)}, not a file")


def refuse_special(path: Path) -> None:
    """Before a file or folder of ours is written: a link with its name leads to somebody's, and a FIFO waits."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{path} is {kind_of(status)}, not a file of Shoal's own: move it away")


def kind_of(status: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(status.st_mode), "something else")


# ---- removing ----


@dataclass
class Removal:
    """What goes, or went, in that order; and what stays, with the reason. A folder goes only with all that is in it."""

    gone: dict[Path, bool] = field(default_factory=dict)  # whether it is a folder
    stays: dict[Path, str] = field(default_factory=dict)
    size: int = 0  # bytes


def remove(
    path: Path, *, ours: Callable[[Path], bool] = lambda path: True, act: bool = True, into: Removal | None = None
) -> Removal:
    """Remove a file, or a folder with all files in it, where `ours` agrees; without `act` only find out what would go.

    Links are neither followed nor removed, nor is anything on another file system or that is no regular file. Folders
    are held open while they are emptied, so that none can be exchanged for a link meanwhile.
    """
    found = Removal() if into is None else into
    try:
        parent = _open_folder(path.parent, None, follow=True)
    except OSError as error:
        found.stays[path] = _why(error)
        return found
    try:
        _remove(path, parent, _mount(path.parent, parent), ours, act, found)
    finally:
        _close(parent)
    return found


def is_mount_point(folder: Path) -> bool:
    """Also of a folder that is mounted inside its own disk, where Linux says so."""
    handles = [_open_folder(place, None, follow=True) for place in (folder, folder / os.pardir)]
    try:
        return _mount(folder, handles[0]) != _mount(folder / os.pardir, handles[1])
    finally:
        for handle in handles:
            _close(handle)


def _remove(
    path: Path, parent: int | None, mount: tuple[int, str], ours: Callable[[Path], bool], act: bool, found: Removal
) -> bool:
    """Whether it goes."""
    place, at = _at(path, parent)
    try:
        status = os.stat(place, dir_fd=at, follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        reason = _reason_to_stay(path, status, mount[0], ours)
        if reason:
            found.stays[path] = reason
            return False
        if is_folder and not _empty(path, parent, mount, ours, act, found):
            return False
        if act:
            (os.rmdir if is_folder else os.unlink)(place, dir_fd=at)
    except FileNotFoundError:
        return True
    except OSError as error:
        found.stays[path] = _why(error)
        return False
    found.gone[path] = is_folder
    found.size += 0 if is_folder else status.st_size
    return True


def _empty(
    path: Path, parent: int | None, mount: tuple[int, str], ours: Callable[[Path], bool], act: bool, found: Removal
) -> bool:
    """Whether all that is in a folder goes."""
    folder = _open_folder(path, parent)
    try:
        if _mount(path, folder) != mount:
            found.stays[path] = "a mount point"
            return False
        names = sorted(os.listdir(path if folder is None else folder))
        here, at = (str(path), None) if folder is None else (".", folder)
        if names and not os.access(here, os.W_OK | os.X_OK, dir_fd=at):
            found.stays[path] = "it cannot be written to"
            return False
        going = [_remove(path / name, folder, mount, ours, act, found) for name in names]
        return all(going)
    finally:
        _close(folder)


def _reason_to_stay(path: Path, status: os.stat_result, device: int, ours: Callable[[Path], bool]) -> str:
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        return kind_of(status)
    if status.st_dev != device:
        return "on another file system"
    return "" if ours(path) else "not written by Shoal"


def _why(error: OSError) -> str:
    return f"it cannot be removed ({error.strerror})"


def _at(path: Path, parent: int | None) -> tuple[str, int | None]:
    return (str(path), None) if parent is None else (path.name, parent)


def _open_folder(path: Path, parent: int | None, follow: bool = False) -> int | None:
    """A handle, where the system has handles of folders. A link is an error, unless it is to be followed."""
    if not HAS_HANDLES:
        return None
    place, at = _at(path, parent)
    return os.open(place, ONLY_READ | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW), dir_fd=at)


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _mount(path: Path, handle: int | None) -> tuple[int, str]:
    """Which file system, and where Linux says so, which mount of it: a folder may be mounted inside its own disk."""
    if handle is None:
        return os.stat(path, follow_symlinks=False).st_dev, ""
    try:
        with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as lines:
            number = next((line for line in lines if line.startswith("mnt_id:")), "")
    except OSError:
        number = ""
    return os.fstat(handle).st_dev, number

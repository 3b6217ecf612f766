"""Freed memory, kept for the next training step instead of given back to the system.

Each step of a network frees its activations and asks for the same blocks again in the next one. The C library gives
large blocks back to the system at once, and the system has to clear every page of them anew: for a convolutional
network that is a tenth to a third of the time of a step, and it depends on what the process did before.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4  # the numbers of glibc's mallopt
HEAP = 64 << 20  # bytes of a heap of a thread: never given back, if it is also the padding
KEEP = {MMAP_MAX: 0, TRIM_THRESHOLD: (1 << 31) - 1, TOP_PAD: HEAP}
# Afterwards, as in a program that has freed a block of 32 MB: beyond these sizes memory goes back to the system.
USUAL = {MMAP_MAX: 65_536, MMAP_THRESHOLD: HEAP // 2, TRIM_THRESHOLD: HEAP, TOP_PAD: 128 << 10}

_LOCK = threading.Lock()
_users = 0


@contextmanager
def memory_kept() -> Iterator[None]:
    """Inside, freed memory stays with this process; at the end of the outermost one it goes back to the system.

    Nothing happens without glibc, or where the user has set its allocator by environment variables.
    """
    library = _glibc()
    if library is None:
        yield
        return
    _enter(library, 1)
    try:
        yield
    finally:
        _enter(library, -1)


def _enter(library: ctypes.CDLL, change: int) -> None:
    """Count who is inside; the first sets the allocator, and the last sets it back."""
    global _users
    with _LOCK:
        before, _users = _users, _users + change
        if before and _users:
            return
        for option, value in (KEEP if _users else USUAL).items():
            library.mallopt(option, value)
        if not _users:
            library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc" in tunables or any(name.startswith("MALLOC_") for name in os.environ):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim  # noqa: B018  (they exist)
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return library

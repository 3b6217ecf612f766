"""Freed memory, kept for the next training step instead of given back to the system.

Each step of a network frees its activations and asks for the same blocks again in the next one. The C library gives
large blocks back to the system at once, and the system has to clear every page of them anew. That takes longer the
larger the activations are, and how much goes back depends on what the process did before. `tools/kept_memory.py`
measures what it gains.

Threads other than the first have heaps of 64 MB: larger blocks of theirs still go back.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4  # the numbers of glibc's mallopt
HEAP = 64 << 20  # bytes of a heap of a thread: never given back, if it is also the padding
KEEP = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: HEAP}  # -1: never
# Afterwards, as in a program that has freed a block of 32 MB: beyond these sizes memory goes back to the system.
# glibc does not tell what was set before; at the start of a program these sizes are smaller and grow by themselves.
USUAL = {MMAP_MAX: 65_536, MMAP_THRESHOLD: HEAP // 2, TRIM_THRESHOLD: HEAP, TOP_PAD: 128 << 10}

_LOCK = threading.Lock()
_users = 0


@contextmanager
def memory_kept() -> Iterator[None]:
    """Inside, freed memory stays with this process; at the end of the outermost one it goes back to the system.

    Nothing happens without glibc, or where the user has set its allocator by environment variables: MALLOC_PERTURB_=0,
    which changes nothing itself, turns this off.
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


def _forked() -> None:
    """In a process that was forked, nobody is inside, and nobody holds the lock."""
    global _LOCK, _users
    _LOCK, _users = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


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

"""Freed memory stays with the process while it trains, and goes back to the system afterwards."""

from __future__ import annotations

import ctypes
import threading

import psutil
import pytest

from shoal import allocator
from shoal.allocator import memory_kept

resource = pytest.importorskip("resource")
BLOCK = 48 << 20  # bytes; larger than any block that the C library keeps by itself
PAGES = BLOCK // resource.getpagesize()

pytestmark = pytest.mark.skipif(allocator._glibc() is None, reason="needs glibc's allocator, not set by the user")


def faults_of_steps(steps: int = 6) -> int:
    """Pages that the system had to give, as steps took a block, wrote to it and freed it; without the first step."""
    for step in range(steps + 1):
        if step == 1:
            begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        b"x" * BLOCK
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun


def in_use() -> int:
    return psutil.Process().memory_info().rss


def test_a_block_that_is_freed_is_used_again_inside_only():
    with memory_kept():
        assert faults_of_steps() < PAGES // 2
    assert faults_of_steps() > 5 * PAGES


def test_what_was_kept_goes_back_at_the_end_of_the_outermost():
    with memory_kept():
        before = in_use()
        with memory_kept():
            b"x" * BLOCK
        assert in_use() > before + BLOCK // 2
        assert faults_of_steps() < PAGES // 2
    assert in_use() < before + BLOCK // 4


def test_threads_may_leave_in_any_order():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with memory_kept():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with memory_kept():
        thread.start()
        assert entered.wait(10)
    assert faults_of_steps() < PAGES // 2  # the other thread is still inside
    leave.set()
    thread.join(10)
    assert faults_of_steps() > 5 * PAGES


def test_an_error_inside_sets_it_back():
    with pytest.raises(RuntimeError, match="inside"), memory_kept():
        raise RuntimeError("inside")
    assert faults_of_steps() > 5 * PAGES


@pytest.mark.parametrize(("name", "value"), [
    ("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2"),
])  # fmt: skip
def test_what_the_user_has_set_stays(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with memory_kept():
        assert faults_of_steps() > 5 * PAGES


def test_without_glibc_nothing_happens(monkeypatch):
    def other_library(name: None) -> object:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", other_library)
    with memory_kept():
        assert faults_of_steps() > 5 * PAGES

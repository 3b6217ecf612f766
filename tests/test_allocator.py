"""Freed memory stays with the process while it trains, and goes back to the system afterwards.

Each case runs in a process of its own: what others have allocated before would change what is counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal import allocator

HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = [
    pytest.mark.skipif(allocator._glibc() is None or "LD_PRELOAD" in os.environ, reason="needs glibc's own allocator"),
    pytest.mark.skipif(HUGE.exists() and "[always]" in HUGE.read_text(), reason="pages are too large to be counted"),
]

START = """
import ctypes, os, resource, threading
from pathlib import Path
from shoal.allocator import memory_kept

BLOCK = 48 << 20  # bytes; larger than any block that the C library keeps by itself
PAGES = BLOCK // resource.getpagesize()


def step():
    b"x" * BLOCK


def pages(steps=6):
    "That the system had to give, as steps took a block, wrote to it and freed it; without the first step."
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def kept():
    return pages() < PAGES // 2


def given_back():
    return pages() > 5 * PAGES


def in_use():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


assert given_back()
"""
CASES = {
    "a block that is freed is used again inside only": """
with memory_kept():
    assert kept()
assert given_back()
""",
    "what was kept goes back at the end of the outermost": """
before = in_use()
with memory_kept():
    with memory_kept():
        step()
    assert in_use() > before + BLOCK // 2
    assert kept()
assert in_use() < before + BLOCK // 4
""",
    "threads may leave in any order": """
entered, leave = threading.Event(), threading.Event()


def other():
    with memory_kept():
        entered.set()
        leave.wait(10)


thread = threading.Thread(target=other)
with memory_kept():
    thread.start()
    assert entered.wait(10)
assert kept()  # the other thread is still inside
leave.set()
thread.join(10)
assert given_back()
""",
    "many threads come and go at random": """
import random, time


def come_and_go(chance):
    for _ in range(20):
        time.sleep(chance.uniform(0, 0.002))
        with memory_kept():
            time.sleep(chance.uniform(0, 0.002))
            if chance.random() < 0.5:
                with memory_kept():
                    b"x" * chance.randrange(1 << 22)


for seed in range(3):
    threads = [threading.Thread(target=come_and_go, args=(random.Random(k),)) for k in range(8 * seed, 8 * seed + 8)]
    with memory_kept():
        for thread in threads:
            thread.start()
        assert kept()
    for thread in threads:
        thread.join()
    assert given_back()
""",
    "an error inside sets it back": """
try:
    with memory_kept():
        raise RuntimeError
except RuntimeError:
    assert given_back()
""",
    "a process that is forked inside begins anew": """
with memory_kept():
    child = os.fork()
    if child == 0:
        with memory_kept():
            inside = kept()
        os._exit(0 if inside and given_back() else 1)
    assert os.waitpid(child, 0)[1] == 0
""",
    "without glibc nothing happens": """
ctypes.CDLL = lambda name: object()
with memory_kept():
    assert given_back()
""",
}


def run(code: str, **settings: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + code], env={**os.environ, **settings}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CASES)
def test_freed_memory(name):
    run(CASES[name])


@pytest.mark.parametrize(("name", "value"), [
    ("MALLOC_PERTURB_", "0"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2"),
])  # fmt: skip
def test_what_the_user_has_set_stays(name, value):
    run("with memory_kept():\n    assert given_back()\n", **{name: value})

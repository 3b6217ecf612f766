"""What the machine and this process have: memory, age, instruction set."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from shoal import machine
from shoal.errors import UserError

TELL = "from shoal.machine import peak_memory; print(peak_memory())"
MEGABYTE = 1_000_000


def test_the_peak_of_memory_is_that_of_the_process_not_of_its_parent() -> None:
    """Linux hands ru_maxrss down from the process that starts another."""
    large = np.ones(400 * MEGABYTE, np.uint8)
    mine = machine.peak_memory()
    child = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    del large
    assert mine > 400 * MEGABYTE
    assert 5 * MEGABYTE < int(child.stdout) < 250 * MEGABYTE
    assert machine.peak_memory() > 400 * MEGABYTE, "a peak stays"


def test_part_of_the_free_memory_may_be_used() -> None:
    import psutil

    assert 0 < machine.available_memory() < psutil.virtual_memory().total


def test_an_instruction_set_that_is_not_here_is_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    import shoal

    monkeypatch.setenv("SHOAL_ISA", "avx9")
    with pytest.raises(UserError, match=r"SHOAL_ISA must be one of .*baseline.* got 'avx9'"):
        machine.instruction_set()
    population = shoal.Population([shoal.Member(hidden=2)], 2, 2)
    with pytest.raises(UserError, match="SHOAL_ISA must be one of"):
        population.fit(np.zeros((4, 2)), [0, 1, 0, 1], epochs=1)

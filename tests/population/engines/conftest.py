from __future__ import annotations

import pytest

from shoal import _native

ENGINES = [*(f"native-{isa}" for isa in _native.instruction_sets()), "grouped"]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every engine; the native one on each instruction set that this machine has."""
    name, _, instruction_set = request.param.partition("-")
    if instruction_set:
        monkeypatch.setenv("SHOAL_ISA", instruction_set)
    return name

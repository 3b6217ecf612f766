from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of torch on two busy cores wait for each other a hundred times longer than they compute."""
    monkeypatch.setenv("SHOAL_THREADS", "1")

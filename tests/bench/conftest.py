from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs tests has other things to do."""
    monkeypatch.setenv("SHOAL_THREADS", "1")

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Visit, Window, visits

from benchmarks.engine.landscape.page import write_landscape_page


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of torch on two busy cores wait for each other a hundred times longer than they compute."""
    monkeypatch.setenv("SHOAL_THREADS", "1")


@pytest.fixture
def visit_landscape(window: Window, tmp_path: Path) -> Iterator[Visit]:
    """Opens the page of a landscape."""
    yield from visits(window, tmp_path / "landscape.html", lambda data, path: write_landscape_page(path, data))

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Visit, Window, visits

from shoal.report import (
    write_finetune_page,
    write_plan_page,
    write_search_page,
    write_why_page,
)


@pytest.fixture
def visit(window: Window, tmp_path: Path) -> Iterator[Visit]:
    """Opens the report of a search."""
    yield from visits(window, tmp_path / "report.html", write_search_page)


@pytest.fixture
def visit_run(window: Window, tmp_path: Path) -> Iterator[Visit]:
    """Opens the page of a fine-tuning run."""
    yield from visits(window, tmp_path / "finetune.html", write_finetune_page)


@pytest.fixture
def visit_plan(window: Window, tmp_path: Path) -> Iterator[Visit]:
    """Opens the page of a plan."""
    yield from visits(window, tmp_path / "plan.html", lambda data, path: write_plan_page(path, data))


@pytest.fixture
def visit_why(window: Window, tmp_path: Path) -> Iterator[Visit]:
    """Opens the page that explains rows."""
    yield from visits(window, tmp_path / "why.html", write_why_page)

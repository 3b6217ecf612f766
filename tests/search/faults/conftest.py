from __future__ import annotations

from pathlib import Path

import pytest
from support.faults import RECIPES, ROWS, scene

from benchmarks.harness.searches import write_table


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("faults") / "table.csv", ROWS)


@pytest.fixture(scope="session")
def right(table: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a search that nobody disturbed."""
    with scene(table, tmp_path_factory.mktemp("undisturbed"), RECIPES) as undisturbed:
        undisturbed.finish()
        return undisturbed.story.weights()

"""Imports point one way, and heavy libraries load when first needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import shoal

PACKAGE = Path(shoal.__file__).parent

# Each level may import from its own and lower levels only, at module level or inside functions.
LEVELS = [
    {"cli", "search_cli", "search_session", "export_cli", "train_cli", "finetune_cli", "__main__"},
    {"report", "planner", "bench"},
    {"finetune"},
    {"search", "cluster", "parallel"},
    {"__init__"},
    {"population", "storage"},
    {"memory", "progress", "history", "extract", "torch"},
    {"engines"},
    {"rows", "layout", "machine", "datasets"},
    {"members", "_native", "early"},
]
LEVEL_OF = {name: depth for depth, names in enumerate(LEVELS) for name in names}
# `machine.describe` is asked by the command line what the package has; `engines` use the paper's module; an estimator
# writes its report.
ALLOWED = {
    ("machine", "__init__"), ("machine", "engines"), ("engines", "torch"), ("engines", "extract"), ("search", "report"),
}  # fmt: skip


def unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_units(path: Path) -> set[str]:
    units = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    ignored = {id(inner) for block in checking for inner in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "shoal":
                known = len(parts) > 1 and parts[1] in LEVEL_OF
                units.add(parts[1] if known else "__init__")
    return units


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    here = unit(path)
    assert here in LEVEL_OF, f"{here} has no level yet: give it one"
    for other in imported_units(path) - {here}:
        assert (
            LEVEL_OF[other] > LEVEL_OF[here]
            or (here, other) in ALLOWED
            or (LEVEL_OF[other] == LEVEL_OF[here] and here != "engines")
        ), f"{here} must not import {other}"


def test_the_direction_test_can_fail(tmp_path):
    bad = tmp_path / "members.py"
    bad.write_text("def f():\n    from shoal.population import Population\n")
    assert imported_units(bad) == {"population"}
    assert LEVEL_OF["population"] < LEVEL_OF["members"]


HEAVY = {"torch", "pandas", "polars", "pyarrow", "plotly", "jax", "matplotlib", "sklearn", "scipy", "rich", "typer"}
TRAINING = """
import numpy as np, shoal
population = shoal.Population([shoal.Member(hidden=3)], 2, 2)
population.fit(np.zeros((4, 2)), [0, 1, 0, 1], epochs=1)
"""
TABLES_WITHOUT_TEXT = """
import numpy as np
from shoal.search.table import Table
from shoal.search.schema import Schema
from shoal.search.encode import Encoder
import shoal.search.files
table = Table.of({'a': [1.0, 2.0, None], 'b': ['x', 'y', 'x'], 'c': ['2020-01-01', None, '2021-01-01']})
encoder = Encoder.fit(Schema.of(table), table, np.ones(3))
Encoder.from_state(*encoder.state()).transform(table)
"""


@pytest.mark.parametrize("code", [TRAINING, TABLES_WITHOUT_TEXT], ids=["training", "tables without text"])
def test_no_heavy_library_is_loaded(code):
    code += f"\nimport sys\nprint(sorted({HEAVY} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"

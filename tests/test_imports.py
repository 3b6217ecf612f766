"""Imports point one way, between packages and between modules, and heavy libraries load when first needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import shoal

PACKAGE = Path(shoal.__file__).parent

# Each layer may import from its own package and from lower layers only, at module level or inside functions.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"live"},
    {"trackers"},
    {"planner"},
    {"finetune"},
    {"parallel"},
    {"plots", "tools"},
    {"search"},
    {"report"},
    {"explain"},
    {"models"},
    {"conformal"},
    {"encoders"},
    {"tables"},
    {"metrics"},
    {"executors"},
    {"runs"},
    {"__init__"},
    {"torch"},
    {"population.population"},
    {"population.storage", "population.fitting"},
    {"population.memory", "population.extract"},
    {"population.engines"},
    {"torch.scatter", "population.layout", "population.rows", "population.history", "datasets", "console.progress"},
    {"population.members", "population.turns", "machine", "version", "options", "files", "console"},
    {"validate", "callbacks", "files.plain_files"},
    {"population.activations", "population", "allocator", "errors", "console.terminal", "_native"},
]
LAYER_OF = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def layer_of(module: str) -> tuple[str, int]:
    """The layer that a module is in: that of its longest name in LAYERS."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in LAYER_OF:
            return name, LAYER_OF[name]
    raise KeyError(f"{module} has no layer yet: give it one")


# The package's top level offers `save`, `load` and the estimators of `search`, and loads them at first use.
ALLOWED = {("__init__", "search")}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports anywhere, except imports for type checkers only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    ignored = {id(inner) for block in checking for inner in ast.walk(block)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {_longest(name) for name in names if name.split(".")[0] == "shoal"}


def _longest(name: str) -> str:
    """The module of a dotted name: its longest prefix that is a module."""
    parts = name.split(".")[1:]
    for count in range(len(parts), 0, -1):
        if ".".join(parts[:count]) in MODULES or parts[:count] == ["_native"]:
            return ".".join(parts[:count])
    return "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_packages_import_from_lower_layers_only(module):
    here, depth = layer_of(module)
    for other in imported(MODULES[module]):
        there, below = layer_of(other)
        if there != here and (here, there.split(".")[0]) not in ALLOWED:
            assert below > depth, f"{module} must not import {other}"


def test_no_module_imports_itself_through_others():
    graph = {module: imported(path) - {module} for module, path in MODULES.items()}
    for module, others in graph.items():
        graph[module] = {other for other in others if (module.split(".")[0], other.split(".")[0]) not in ALLOWED}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_tests_of_directions_can_fail(tmp_path):
    bad = tmp_path / "members.py"
    lines = [
        "def f():",
        "    from shoal.population.population import Population",
        "    from shoal.search.rounds import loop",
    ]
    bad.write_text("\n".join(lines))
    assert imported(bad) == {"population.population", "search.rounds.loop"}
    assert layer_of("population.population")[1] < layer_of("population.members")[1]


TESTS = Path(__file__).parent


@pytest.mark.parametrize("module", MODULES)
def test_the_package_imports_neither_benchmarks_nor_tests(module):
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not {name.split(".")[0] for name in names} & {"benchmarks", "support", "tests"}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_imports_a_test(path):
    """What tests share is in `support`, and their fixtures are in conftest.py files, where pytest finds them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "tests are no package"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = {part for name in names for part in name.split(".")}
    assert not {part for part in parts if part == "conftest" or part.startswith("test_")}


def test_folders_of_tests_are_packages_of_the_source():
    folders = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.glob("*/test_*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"benchmarks"}
    assert folders == folders & packages


HEAVY = {"torch", "pandas", "polars", "pyarrow", "plotly", "jax", "matplotlib", "sklearn", "scipy", "rich", "typer"}
TRAINING = """
import numpy as np, shoal
population = shoal.Population([shoal.Member(hidden=3)], 2, 2)
population.fit(np.zeros((4, 2)), [0, 1, 0, 1], epochs=1)
"""
TABLES_WITHOUT_TEXT = """
import numpy as np
from shoal.encoders.encoder import Encoder
from shoal.tables.schema import Schema
from shoal.tables.table import Table
import shoal.tables.files
table = Table.of({'a': [1.0, 2.0, None], 'b': ['x', 'y', 'x'], 'c': ['2020-01-01', None, '2021-01-01']})
encoder = Encoder.fit(Schema.of(table), table, np.ones(3))
Encoder.from_state(encoder.schema, *encoder.state()).transform(table)
"""


@pytest.mark.parametrize("code", [TRAINING, TABLES_WITHOUT_TEXT], ids=["training", "tables without text"])
def test_no_heavy_library_is_loaded(code):
    code += f"\nimport sys\nprint(sorted({HEAVY} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"

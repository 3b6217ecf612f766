"""The names that `import shoal` offers."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import shoal
from shoal import parallel, planner


def test_modules_are_attributes_of_the_package():
    code = "import shoal; print(shoal.planner.plan.__name__, shoal.parallel.fit.__name__, shoal.torch.Heads.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "plan fit Heads\n", done.stderr


def test_a_star_import_brings_no_modules():
    names: dict[str, object] = {"torch": "the user's own", "rows": "the user's own"}
    exec("from shoal import *", names)
    assert names["torch"] == names["rows"] == "the user's own"
    assert not [name for name in shoal.__all__ if isinstance(getattr(shoal, name), ModuleType)]


@pytest.mark.parametrize("package", [shoal, parallel, planner])
def test_every_public_name_can_be_loaded(package):
    for name in package.__all__:
        assert getattr(package, name) is not None

"""What packaging and workflows declare can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_parses_and_says_whether_it_ever_ran(path):
    yaml = pytest.importorskip("yaml")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Never run so far")
    assert all(job["steps"] and job["runs-on"] for job in yaml.safe_load(text)["jobs"].values())


def test_from_python_3_12_on_one_wheel_serves_all():
    assert 'wheel.py-api = "cp312"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    cmake = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    assert "STABLE_ABI" in cmake
    assert "${SKBUILD_SABI_COMPONENT}" in cmake

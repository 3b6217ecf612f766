"""A launcher removes its own temporary folder, and those of launchers that were killed; nothing else."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from shoal.parallel.launch.launcher import MARKER, TEMPORARY, own_folder

GONE = 2**22 + 7  # no process has such a number


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_only_folders_with_the_marker_of_a_process_that_is_gone_are_removed(temporary: Path) -> None:
    with own_folder() as mine:
        marker = (mine / MARKER).read_text()
        assert mine.stat().st_mode & 0o777 == 0o700
        names = {"killed": f"{TEMPORARY}{GONE}-a", "somebodys": f"{TEMPORARY}{GONE}-b",
                 "container": f"{TEMPORARY}{GONE}-c", "works": f"{TEMPORARY}{os.getpid()}-d"}  # fmt: skip
        for name in names.values():
            (temporary / name).mkdir()
            (temporary / name / "precious").write_text("mine")
        for name, text in {"killed": marker, "container": f"{marker}elsewhere", "works": marker}.items():
            (temporary / names[name] / MARKER).write_text(text)
        (temporary / "outside").mkdir()
        (temporary / "outside" / MARKER).write_text(marker)
        (temporary / f"{TEMPORARY}{GONE}-link").symlink_to(temporary / "outside")
        with own_folder():
            left = {path.name for path in temporary.iterdir()}
    assert names["killed"] not in left
    assert left >= {names["somebodys"], names["container"], names["works"], f"{TEMPORARY}{GONE}-link", mine.name}
    assert (temporary / "outside" / MARKER).exists()
    assert not mine.exists()

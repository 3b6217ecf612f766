"""Whatever has happened to the files of a run, the commands that use them end, with a result or with one sentence."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import damage
from support.in_process import command

OK, WRONG = 0, 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search, and rows to predict."""
    place = tmp_path_factory.mktemp("finished")
    random = np.random.default_rng(0)
    size, colour = random.normal(size=60).round(3), random.choice(["red", "blue"], 60)
    rows = [f"{a},{b},{a + (b == 'red'):.3f}" for a, b in zip(size, colour, strict=True)]
    (place / "data.csv").write_text("\n".join(["size,colour,y", *rows]) + "\n")
    (place / "new.csv").write_text("size,colour\n1.5,red\n")
    options = ("--recipes", 1, "--seeds", 1, "--epochs", 2, "--folds", 2, "--explain-seconds", 0)
    done = command(place, "search", "data.csv", "--target", "y", *options, "--out", "run")
    assert done.code == OK, done.err
    return place


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_files_end_in_a_result_or_in_one_sentence(finished: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(finished, place, dirs_exist_ok=True)
        files = sorted(path for path in (place / "run").rglob("*") if path.is_file())
        damage(data.draw(st.sampled_from(files)), data)
        for arguments in (
            ("predict", "run", "new.csv"),
            ("explain", "run", "new.csv", "--explain-seconds", 0.01),
            ("search", "--repeat", "run", "--dry-run"),
            ("runs",),
        ):
            done = command(place, *arguments)
            assert done.code in (OK, WRONG), done.err
            wrong = [line for line in done.err.splitlines() if line.startswith("error: ")]
            assert len(wrong) == (done.code == WRONG)

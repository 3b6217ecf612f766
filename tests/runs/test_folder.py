"""The folder of a run: whole, under a free name, or not at all."""

import os
from pathlib import Path

import pytest

from shoal.runs import folder as run_folder


def test_a_run_folder_appears_whole_under_the_next_free_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        with run_folder.RunFolder(None, "data") as folder:
            (folder.path / "file").write_text("x")
            assert not Path(f"shoal-runs/data-{number}").exists()
            assert folder.finish() == Path(f"shoal-runs/data-{number}")
    assert sorted(os.listdir("shoal-runs")) == ["data-1", "data-2"]


def test_a_name_taken_during_the_search_is_left_alone(tmp_path):
    with run_folder.RunFolder(tmp_path / "run", "data") as folder:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "settings.json").write_text("somebody else's")
        assert folder.finish() == tmp_path / "run-1"
    assert (tmp_path / "run" / "settings.json").read_text() == "somebody else's"


def test_a_run_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError), run_folder.RunFolder(None, "data"):
        raise RuntimeError
    assert os.listdir() == []

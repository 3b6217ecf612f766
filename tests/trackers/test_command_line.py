"""`--log`: the trackers get the files of the run folder, and wrong names are refused before anything is read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from shoal.cli import app


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,y\n" + "\n".join(f"{k},{k % 7},{2 * k + k % 3}" for k in range(60)))
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_search_is_logged_with_its_files(table, tmp_path):
    log = tmp_path / "log.jsonl"
    quick = ["--recipes", 2, "--seeds", 1, "--folds", 2, "--epochs", 5, "--explain-seconds", 0, "--threads", 1]
    done = call("search", table, "--target", "y", *quick, "--out", tmp_path / "run", "--log", f"jsonl:{log}")
    assert done.exit_code == 0, done.output
    found = lines(log)
    assert (found[0]["event"], found[-1]["event"]) == ("started", "ended")
    files = [line["path"] for line in found if line["event"] == "file"]
    assert files == [
        str(tmp_path / "run" / name) for name in ("report.html", "leaderboard.csv", "settings.json", "model")
    ]


def test_a_training_is_logged_with_its_files(table, tmp_path):
    pytest.importorskip("torch")
    log = tmp_path / "log.jsonl"
    quick = ["--epochs", 2, "--workers", 1, "--strategy", "serial"]
    done = call("train", table, "--target", "y", *quick, "--out", tmp_path / "run", "--log", f"jsonl:{log}")
    assert done.exit_code == 0, done.output
    found = lines(log)
    assert [line["step"] for line in found if line["event"] == "step"] == [1, 2]
    assert str(tmp_path / "run" / "model") in [line["path"] for line in found if line["event"] == "file"]
    assert found[-1]["status"] == "finished"


def test_a_wrong_name_is_refused_at_once(table):
    done = call("search", table, "--target", "y", "--log", "mlfow:x")
    assert done.exit_code != 0
    assert not list(table.parent.glob("shoal-runs/*"))

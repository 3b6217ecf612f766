"""`shoal runs` and `shoal runs clean`, as users call them, on folders as runs leave them."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shoal.runs.folder import RunFolder
from shoal.runs.kinds import FINETUNE, SEARCH

ELSEWHERE = """
import sys
from pathlib import Path
from shoal.runs import lock
lock.machine = lambda: "another"
lock.platform.node = lambda: "elsewhere"
lock.BEAT_SECONDS = 0.05
lock.take(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


def begin(recipes, kind=SEARCH, stem="iris"):
    return RunFolder(kind, None, stem, {"data": "a", "recipes": recipes}, file="/iris.csv")


def work(folder, share):
    folder.journal(print).write("shard", ["ab"], {"x": np.zeros(25_000)})
    folder.progress(share, recipes=7, metric="accuracy", best=0.91)


def end(folder, ended=""):
    score = {"metric": "accuracy", "corrected": 0.9533}
    settings = {"format": "shoal-run", "version": 1, "result": {"ended": ended, "score": score}}
    (folder.path / "settings.json").write_text(json.dumps(settings))
    folder.finish()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder with one run of each kind and state; the search in iris-4 still runs, in this process."""
    monkeypatch.chdir(tmp_path)
    with begin(1) as folder:
        work(folder, 0.5)
        end(folder)
    with begin(2) as folder:
        work(folder, 0.25)
        end(folder, "interrupted")
    with begin(3) as folder:
        work(folder, 0.43)
    with begin(0, FINETUNE, "texts-tiny") as folder:
        (folder.path / "metrics.jsonl").write_text(
            '{"step": 0, "eval_loss": 6.2}\n{"step": 30, "eval_loss": 3.5}\n{"st'
        )
        settings = {"format": "shoal-finetune", "version": 1, "fingerprint": {}, "run": {"steps_planned": 120}}
        (folder.path / "settings.json").write_text(json.dumps(settings))
        (folder.path / "checkpoints" / "checkpoint-30").mkdir(parents=True)
        (folder.path / "checkpoints" / "checkpoint-30" / "weights").write_bytes(bytes(7000))
    with begin(4) as folder:
        work(folder, 0.0712)
        yield tmp_path


def test_runs_are_listed_with_their_state_score_and_size(runs, call):
    said = call(runs, "runs").stdout
    lines = {line.split()[0]: line for line in said.splitlines()[1:]}
    day, me = r"20\d\d-\d\d-\d\d \d\d:\d\d", f"process {os.getpid()} on {platform.node()}"
    expected = {
        "iris-1": rf"search +finished +accuracy 0\.9533 +{day} +\d+ B",
        "iris-2": rf"search +interrupted at 25% +accuracy 0\.9533 +{day} +20\d kB",
        "iris-3": rf"search +interrupted at 43% +accuracy 0\.91 so far +{day} +20\d kB",
        "iris-4": rf"search +running at 7%: {me} +accuracy 0\.91 so far +{day} .*",
        "texts-tiny-1": rf"finetune +interrupted at 25% +test loss 3\.5 +{day} +[\d.]+ kB",
    }
    assert lines.keys() == {str(Path("shoal-runs") / name) for name in expected}
    for name, words in expected.items():
        line = lines[str(Path("shoal-runs") / name)]
        assert re.fullmatch(rf"\S+ +{words}", line), line
    listed = {Path(run["path"]).name: run for run in json.loads(call(runs, "runs", "--json").stdout)}
    assert listed["iris-4"]["owner"]["pid"] == os.getpid()
    assert {name: run["state"] for name, run in listed.items()} == {
        "iris-1": "finished", "iris-2": "interrupted", "iris-3": "interrupted", "iris-4": "running",
        "texts-tiny-1": "interrupted",
    }  # fmt: skip
    one = call(runs, "runs", "shoal-runs/iris-3", "shoal-runs/iris-1").stdout
    assert [line.split()[0] for line in one.splitlines()[1:]] == ["shoal-runs/iris-1", "shoal-runs/iris-3"]


def test_no_runs_and_no_folder_are_said(tmp_path, call):
    assert call(tmp_path, "runs").stdout == "no runs in shoal-runs\n"
    assert call(tmp_path, "runs", ".").stdout == "no runs in .\n"
    assert json.loads(call(tmp_path, "runs", "--json").stdout) == []
    assert "there is no folder nowhere; give a run" in call(tmp_path, "runs", "nowhere", code=2).stderr


def files():
    return {str(path.relative_to("shoal-runs")) for path in Path("shoal-runs").rglob("*") if path.is_file()}


def test_clean_removes_what_only_going_on_needs_and_never_of_a_running_one(runs, call):
    before = files()
    shown = call(runs, "runs", "clean", "--dry-run").stdout
    assert files() == before
    said = call(runs, "runs", "clean", "--yes").stdout
    assert said == shown.replace("would be freed", "freed")
    assert re.search(r"20\d kB of shoal-runs/iris-2, interrupted at 25%:\n  delete shoal-runs/iris-2/journal/\n", said)
    assert "2 runs could be resumed; --unfinished also deletes them" in said
    gone = {path for path in before if path.startswith(("iris-2/journal", "iris-2/progress"))}
    assert gone
    assert before - files() == gone
    assert "iris-2/settings.json" in files()
    freed = int(re.search(r"(\d+) kB would be freed", shown)[1])
    assert 200 <= freed <= 202
    said = call(runs, "runs", "clean", "--unfinished", "--yes").stdout
    assert "shoal-runs/iris-3, interrupted at 43%:\n  delete shoal-runs/iris-3/\n" in said
    assert {path.split("/")[0] for path in files()} == {"iris-1", "iris-2", "iris-4"}
    assert not Path("shoal-runs/texts-tiny-1").exists()
    assert any(path.startswith("iris-4/journal") for path in files())
    Path("shoal-runs/iris-1/notes.txt").write_text("my own")
    assert call(runs, "runs", "clean", "--unfinished").stdout == "there is nothing to delete\n"


def test_after_clean_the_same_command_begins_in_the_folder_that_has_results(runs, call):
    call(runs, "runs", "clean", "--yes")
    with begin(2) as folder:
        assert (folder.path.name, folder.resumes) == ("iris-2", True)
        assert folder.journal(print).files == 0


def test_a_run_of_another_machine_is_seen_by_its_signs_of_life(runs, call, monkeypatch):
    monkeypatch.setattr("shoal.runs.lock.LISTING_SECONDS", 20.0)
    command = [sys.executable, "-c", ELSEWHERE, "shoal-runs/iris-3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "taken\n"
        assert f"running at 43%: process {process.pid} on elsewhere" in call(runs, "runs").stdout
        call(runs, "runs", "clean", "--unfinished", "--yes")
        assert Path("shoal-runs/iris-3/run.json").exists()
        process.kill()
        process.wait()
    monkeypatch.setattr("shoal.runs.lock.LISTING_SECONDS", 0.1)
    monkeypatch.setattr("shoal.runs.lock.PATIENCE_SECONDS", 0.3)
    assert re.search(r"iris-3 +search +interrupted at 43%  ", call(runs, "runs").stdout)
    said = call(runs, "runs", "clean", "--unfinished", "--yes", "shoal-runs/iris-3").stdout
    assert f"belongs to process {process.pid} on elsewhere; waiting up to 0.3 s" in said
    assert not Path("shoal-runs/iris-3").exists()

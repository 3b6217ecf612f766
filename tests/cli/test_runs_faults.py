"""Folders that others have had their hands in: `shoal runs clean` removes what runs wrote and nothing else, and
`shoal runs` lists what it can."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import damage
from support.in_process import Terminal, command, working_in

from shoal.files import atomic
from shoal.runs import lock
from shoal.runs.folder import RunFolder
from shoal.runs.kinds import FINETUNE, SEARCH

RUNS = ("done-1", "paused-1", "begun-1", "texts-1")
ALTERED = '{"format": "shoal-run-folder", "version": 1, "kind": "search", "fingerprint": {}}'  # without its checksum
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def _begin(stem: str, kind: Any = SEARCH) -> RunFolder:
    return RunFolder(kind, None, stem, {"data": "a"}, file="/a.csv", say=lambda text: None)


def _work(folder: RunFolder) -> None:
    folder.journal(print).write("shard", ["ab"], {"x": np.zeros(100)})
    folder.journal(print).note("rung", 1)
    folder.progress(0.4, metric="accuracy", best=0.9)


def _results(folder: RunFolder, ended: str) -> None:
    result = {"ended": ended, "score": {"metric": "accuracy", "corrected": 0.95}}
    (folder.path / "settings.json").write_text(json.dumps({"format": "shoal-run", "version": 1, "result": result}))
    (folder.path / "model").mkdir()
    (folder.path / "model" / "model.json").write_text("{}")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each state, none of which works now."""
    place = tmp_path_factory.mktemp("template")
    with working_in(place):
        with _begin("done") as folder:
            _work(folder)
            _results(folder, "")  # killed before it removed its journal
        with _begin("paused") as folder:
            _work(folder)
            _results(folder, "interrupted")
        with _begin("begun") as folder:
            _work(folder)
        with _begin("texts", FINETUNE) as folder:
            (folder.path / "metrics.jsonl").write_text('{"step": 30, "eval_loss": 3.5}\n')
            about = {"format": "shoal-finetune", "version": 1, "fingerprint": {}, "run": {"steps_planned": 120}}
            (folder.path / "settings.json").write_text(json.dumps(about))
            (folder.path / "checkpoints" / "checkpoint-30").mkdir(parents=True)
            (folder.path / "checkpoints" / "checkpoint-30" / "weights").write_bytes(bytes(70))
    killed = asdict(lock._ourselves()) | {"pid": 2**22 + 7}
    for run in RUNS:
        (place / "shoal-runs" / run / "lease-3.json").write_text(json.dumps(killed))
    return place


def _tree(folder: Path) -> dict[str, Any]:
    """What is where, without following links. The files of locks come and go."""
    found: dict[str, Any] = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            mode, size = path.lstat().st_mode, path.lstat().st_size
            content: Any = os.readlink(path) if path.is_symlink() else None
            if stat.S_ISREG(mode):
                content = path.read_bytes() if size < 2**20 else size
            if not name.startswith("lease-"):
                found[str(path.relative_to(folder))] = (stat.S_IFMT(mode), content)
    return found


# ---- clean ----

PLACES = (
    "",
    "done-1",
    "paused-1",
    "begun-1",
    "done-1/journal",
    "begun-1/journal",
    "begun-1/model",
    "texts-1/checkpoints",
)
NAMES = ("notes.txt", "journal", ".iris.1234567.part", ".model.12-1.part", ".model.shoal-12-1.part", "x.part", "model",
         ".a.shoal-7-7.part.json", "progress.json", "damaged", "events-2.jsonl", "texts-2")  # fmt: skip
THINGS = ("file", "folder", "link to a folder", "link to a file", "link to a run", "fifo", "marked folder",
          "link to a marked folder", "loop")  # fmt: skip


def _put(thing: str, path: Path, outside: Path) -> str:
    """Put something where a user, or a process that was killed, may have put it. Returns whose it is."""
    if not path.parent.is_dir() or path.parent.is_symlink() or os.path.lexists(path):
        return ""
    if thing == "file":
        path.write_text("mine")
    elif thing in ("folder", "marked folder"):
        path.mkdir()
        (path / "precious.txt").write_text("mine")
        if thing == "marked folder":
            (path / atomic.MARKER).write_text(atomic.MARKER_TEXT)
    elif thing == "fifo":
        os.mkfifo(path)
    else:
        goals = {"link to a folder": "folder", "link to a file": "folder/precious.txt", "link to a run": "run",
                 "link to a marked folder": ".m.shoal-1-1.part", "loop": ""}  # fmt: skip
        path.symlink_to(outside / goals[thing] if goals[thing] else path)
    return thing


@pytest.fixture
def outside(tmp_path: Path, template: Path) -> Path:
    """Files of the user, somewhere else."""
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "folder" / "precious.txt").write_text("mine")
    shutil.copytree(template / "shoal-runs" / "begun-1", tmp_path / "outside" / "run")
    marked = tmp_path / "outside" / ".m.shoal-1-1.part"
    marked.mkdir()
    (marked / atomic.MARKER).write_text(atomic.MARKER_TEXT)
    (marked / "precious.txt").write_text("mine")
    return tmp_path / "outside"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.runs.lock.PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr("shoal.runs.lock.POLL_SECONDS", 0.01)
    monkeypatch.setattr("shoal.runs.lock.LISTING_SECONDS", 0.01)


def _announced(said: str) -> set[str]:
    return {line.split("delete ")[1].rstrip("/") for line in said.splitlines() if line.startswith("  delete ")}


def _removed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """The topmost paths that are gone."""
    gone = before.keys() - after.keys()
    return {path for path in gone if os.path.dirname(path) not in gone}


@quick
@given(
    st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES), st.sampled_from(THINGS)), max_size=12),
    st.sampled_from([(), ("--unfinished",)]),
)
def test_clean_removes_exactly_what_dry_run_lists_and_only_what_runs_wrote(template, outside, put, options):
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(template / "shoal-runs", place / "shoal-runs")
        wrote = set(_tree(place))
        added = {}
        for where, what, thing in put:
            path = place / "shoal-runs" / where / what
            added[str(path.relative_to(place))] = _put(thing, path, outside)
        before, theirs = _tree(place), _tree(outside)
        shown = command(place, "runs", "clean", "--dry-run", *options)
        assert (shown.code, _tree(place)) == (0, before), shown.err
        assert command(place, "runs", "clean", *options).code in (0, 2), "nobody can be asked"
        assert _tree(place) == before
        done = command(place, "runs", "clean", "--yes", *options)
        after = _tree(place)
        assert done.code == 0, done.err
        assert _removed(before, after) == _announced(shown.out)
        assert after.items() <= before.items(), "what stays is as it was"
        assert _tree(outside) == theirs
        for path in before.keys() - after.keys():
            inside = [thing for top, thing in added.items() if thing and (path == top or path.startswith(f"{top}/"))]
            own = path in wrote or set(inside) <= {"marked folder"} or _named_like_ours(path, inside)
            assert own, f"{path} was removed, put there as {inside}"


def _named_like_ours(path: str, things: list[str]) -> bool:
    """A file with a name that only a run gives, in the folder of a run, or in its journal."""
    name = os.path.basename(path)
    ours = name in ("progress.json", ".a.shoal-7-7.part.json", ".model.shoal-12-1.part")
    return things == ["file"] and (ours or ("/journal/" in path and name in ("events-2.jsonl", "damaged")))


def test_the_case_that_lost_somebodys_files(template, outside, tmp_path):
    shutil.copytree(template / "shoal-runs", tmp_path / "shoal-runs")
    (tmp_path / "shoal-runs" / ".iris.1234567.part").symlink_to(outside / "folder")
    (tmp_path / "shoal-runs" / ".thesis.1.part").mkdir()
    (tmp_path / "shoal-runs" / ".thesis.1.part" / "thesis.tex").write_text("three years")
    shutil.rmtree(tmp_path / "shoal-runs" / "paused-1" / "journal")
    (tmp_path / "shoal-runs" / "paused-1" / "journal").symlink_to(outside / "folder")
    said = command(tmp_path, "runs", "clean", "--unfinished", "--yes").out
    assert (outside / "folder" / "precious.txt").read_text() == "mine"
    assert (tmp_path / "shoal-runs" / ".thesis.1.part" / "thesis.tex").read_text() == "three years"
    assert "shoal-runs/paused-1/journal is kept: a symbolic link" in said
    assert (tmp_path / "shoal-runs" / "paused-1" / "journal").is_symlink()
    assert not (tmp_path / "shoal-runs" / "begun-1").exists()


@pytest.mark.parametrize(
    ("answer", "goes"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_it_asks_before_it_removes(template, tmp_path, answer, goes):
    shutil.copytree(template / "shoal-runs", tmp_path / "shoal-runs")
    said = command(tmp_path, "runs", "clean", stdin=Terminal(answer))
    assert ")? [y/N]" in said.out
    assert (tmp_path / "shoal-runs" / "done-1" / "journal").exists() is not goes
    assert (said.code == 0) is goes
    said = command(tmp_path, "runs", "clean", "--unfinished")
    assert said.code == 2
    assert "no terminal to ask on. Give --yes, or --dry-run" in said.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
def test_what_is_mounted_there_stays(template, outside, tmp_path):
    """In a namespace of its own, so that nothing stays mounted."""
    shutil.copytree(template / "shoal-runs", tmp_path / "shoal-runs")
    mounted = tmp_path / "shoal-runs" / "done-1" / "journal" / "damaged"
    mounted.mkdir()
    mount = f"mount --bind {outside}/folder {mounted} && mount --bind {outside}/run {tmp_path}/shoal-runs/begun-1"
    clean = "python -m shoal runs clean --unfinished --yes"
    script = f"{mount} && cd {tmp_path} && {clean.replace('python', sys.executable)}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert f"{mounted.relative_to(tmp_path)} is kept: a mount point" in done.stdout
    assert "shoal-runs/begun-1 is kept: a mount point" in done.stdout
    assert (outside / "folder" / "precious.txt").read_text() == "mine"
    assert (outside / "run" / "run.json").exists()


# ---- list ----


@quick
@given(st.data())
def test_a_malformed_folder_takes_one_line_and_the_rest_is_listed(template, data):
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(template / "shoal-runs", place / "shoal-runs")
        run = data.draw(st.sampled_from(RUNS))
        files = sorted(path for path in (place / "shoal-runs" / run).rglob("*") if path.is_file())
        for file in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2, unique=True)):
            damage(file, data)
        said = command(place, "runs")
        assert said.code == 0, said.err
        assert not said.err
        lines = [line for line in said.out.splitlines() if f"shoal-runs/{run}" in line]
        assert len(lines) <= 1
        for other in set(RUNS) - {run}:
            assert f"shoal-runs/{other} " in said.out
        found = command(place, "runs", "--json")
        assert {Path(one["path"]).name for one in json.loads(found.out)} >= set(RUNS) - {run}
        before = _tree(place)
        assert command(place, "runs", "clean", "--dry-run", "--unfinished").code == 0
        assert _tree(place) == before


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("run.json", "{", "is truncated or is no JSON"),
        ("run.json", "[]", "must hold an object; got list"),
        ("run.json", '{"format": "shoal-run-folder", "version": 1, "kind": []}', "does not describe a run"),
        ("run.json", ALTERED, "was altered"),
        ("settings.json", "", "is truncated or is no JSON"),
        ("settings.json", None, "settings.json cannot be read (is a FIFO, not a file)"),
        ("run.json", None, "run.json cannot be read (is a FIFO, not a file)"),
        ("lease-9.json", None, "its lease cannot be read"),
    ],
)
def test_what_is_wrong_is_said(template, tmp_path, file, content, words):
    shutil.copytree(template / "shoal-runs", tmp_path / "shoal-runs")
    path = tmp_path / "shoal-runs" / "paused-1" / file
    (path.parent / "journal" / "events.jsonl").unlink()  # it has a copy of run.json
    path.unlink(missing_ok=True)
    os.mkfifo(path) if content is None else path.write_text(content)
    said = command(tmp_path, "runs").out
    named = file if words.startswith(("is", "must", "does", "was")) else ""
    assert f"shoal-runs/paused-1 is malformed: {named}" in said
    assert words in said


MINE = {
    "progress.json": '{"mine": 1}',
    "journal/events.jsonl": "diary\n",
    "journal/events-2.jsonl": "diary\n",
    "journal/weights.safetensors": "mine",
    "journal/damaged/events.jsonl": "diary\n",
    "journal/damaged/mine.safetensors": "mine",
}


@pytest.mark.parametrize("also", [(), ("run.json",)], ids=["settings", "settings and run.json"])
def test_clean_removes_no_file_of_the_users_beside_copies_of_a_run(template, tmp_path, also):
    mine = tmp_path / "mine"
    (mine / "journal" / "damaged").mkdir(parents=True)
    for name in ("settings.json", *also):
        shutil.copy(template / "shoal-runs" / "done-1" / name, mine)
    for name, content in MINE.items():
        (mine / name).write_text(content)
    before = _tree(mine)
    for more in ((), ("--unfinished",)):
        command(tmp_path, "runs", "clean", ".", "--yes", *more)
        assert _tree(mine) == before


def test_clean_removes_what_a_journal_has_set_aside(template, tmp_path):
    shutil.copytree(template / "shoal-runs", tmp_path / "shoal-runs")
    run = tmp_path / "shoal-runs" / "done-1"
    for file in (run / "journal").iterdir():
        file.write_bytes(b"x\n" + file.read_bytes()[5:])
    with RunFolder(SEARCH, tmp_path / "other", "", {}) as folder:
        folder.journal(print)  # one whose events are whole
        shutil.copytree(run / "journal", folder.path / "journal" / "damaged")
        (folder.path / "settings.json").write_text((run / "settings.json").read_text())
    assert len(list((folder.path / "journal" / "damaged").iterdir())) == 2
    command(tmp_path, "runs", "clean", "other", "--yes")
    assert {file.name for file in folder.path.iterdir()} == {"run.json", "settings.json"}


def test_a_lease_that_says_nonsense_is_nobodys(template, tmp_path):
    shutil.copytree(template / "shoal-runs", tmp_path / "shoal-runs")
    lease = tmp_path / "shoal-runs" / "begun-1" / "lease-3.json"
    whole = json.loads(lease.read_text())
    for wrong in ({"pid": "x"}, {"pid": -1}, {"pid": 10**30}, {"pid": [1]}, {"host": None}, {"started": "long ago"}):
        lease.write_text(json.dumps({**whole, **wrong}))
        said = command(tmp_path, "runs")
        assert said.code == 0, said.err
        assert "shoal-runs/begun-1  " in said.out
        assert "running" not in said.out


def test_a_model_whose_settings_were_lost_is_not_removed_as_an_unfinished_run(template, tmp_path):
    shutil.copytree(template / "shoal-runs" / "done-1", tmp_path / "shoal-runs" / "done-1")
    run = tmp_path / "shoal-runs" / "done-1"
    shutil.rmtree(run / "journal")
    (run / "settings.json").unlink()
    assert "done-1 is malformed: settings.json is missing, beside a model" in command(tmp_path, "runs").out
    command(tmp_path, "runs", "clean", "--unfinished", "--yes")
    assert (run / "model" / "model.json").exists()

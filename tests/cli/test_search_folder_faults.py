"""A run folder that was damaged, or whose disk was full: the same command ends with the same bytes, or says why not.

What a message says is kept is there.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.disks import small_disk

from shoal.cli.search_run import Watching
from shoal.errors import UserError
from shoal.runs import lock

IRIS = "sepal,species\n" + "".join(f"{k % 3 + k / 1000},{'abc'[k % 3]}\n" for k in range(60))
SEARCH = ("search", "iris.csv", "--target", "species", "--recipes", 9, "--seeds", 2, "--epochs", 9, "--folds", 3)
WEIGHTS = Path("model/weights.safetensors")
KEPT = "What was finished is kept in {}; run the same command again to continue."
NOTHING = "Nothing was finished before that."


def empty(content: bytes) -> bytes:
    return b""


def cut(content: bytes) -> bytes:
    return content[: random.randrange(len(content))]


def flip(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(changed)


def garbage(content: bytes) -> bytes:
    return random.randbytes(len(content))


DAMAGE = (empty, cut, flip, garbage, None)  # None: the file is gone


def damage(file: Path, kind: Callable[[bytes], bytes] | None) -> None:
    file.unlink() if kind is None else file.write_bytes(kind(file.read_bytes()))


class EndedAfter:
    """In the place of a power failure: an error after so many rungs."""

    def __init__(self, rungs: int) -> None:
        self.left = rungs

    def __call__(self, _: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise UserError("the power has failed")


@pytest.fixture
def interrupted(tmp_path, call, monkeypatch) -> tuple[Path, bytes]:
    """A folder with an unfinished search in `begun`, and the weights of a search that nobody disturbed."""
    monkeypatch.setattr(lock, "PATIENCE_SECONDS", 0.1)
    (tmp_path / "iris.csv").write_text(IRIS)
    call(tmp_path, *SEARCH, "--out", "right")
    with monkeypatch.context() as patched:
        patched.setattr(Watching, "step_ended", EndedAfter(2), raising=False)
        said = call(tmp_path, *SEARCH, "--out", "begun", code=2).stderr
    assert said.rstrip().endswith("the power has failed. " + KEPT.format("begun"))
    return tmp_path, (tmp_path / "right" / WEIGHTS).read_bytes()


def test_any_single_file_may_be_damaged_or_gone(interrupted, call):
    """Also run.json, of which the journal has a copy."""
    folder, right = interrupted
    files = sorted(file.relative_to(folder / "begun") for file in (folder / "begun").rglob("*") if file.is_file())
    assert {Path("run.json"), Path("journal/events.jsonl")} < set(files)
    journal = [file for file in files if file.suffix == ".safetensors"]
    assert journal
    cases = [(file, random.choice(DAMAGE)) for file in files if file not in journal[1:]]
    cases += [(Path("run.json"), kind) for kind in DAMAGE]
    for file, kind in cases:
        shutil.rmtree(folder / "out", ignore_errors=True)
        shutil.copytree(folder / "begun", folder / "out")
        damage(folder / "out" / file, kind)
        said = call(folder, *SEARCH, "--out", "out")
        assert (folder / "out" / WEIGHTS).read_bytes() == right, (file, kind)
        assert "resuming out, begun " in said.stdout, (file, kind)


def test_a_search_without_its_run_json_is_found_without_a_name_too(interrupted, call):
    folder, right = interrupted
    shutil.copytree(folder / "begun", folder / "shoal-runs" / "iris-1")
    (folder / "shoal-runs/iris-1/run.json").unlink()
    assert "resuming" in call(folder, *SEARCH).stdout
    assert (folder / "shoal-runs/iris-1" / WEIGHTS).read_bytes() == right
    assert (folder / "shoal-runs/iris-1/run.json").exists(), "it is written again"


def test_a_run_that_is_known_by_nothing_any_more_is_refused_in_words(interrupted, call):
    folder, _ = interrupted
    for name in ("run.json", "journal/events.jsonl"):
        damage(folder / "begun" / name, random.choice([empty, garbage, None]))
    before = sorted((folder / "begun").rglob("*"))
    said = call(folder, *SEARCH, "--out", "begun", code=2).stderr
    assert "begun holds a run, but run.json and its copy in journal/events.jsonl cannot be read" in said
    assert sorted((folder / "begun").rglob("*")) == before


@pytest.mark.parametrize("more", [(), ("--fresh",)])
def test_a_file_of_the_users_where_the_model_will_be_is_refused_before_any_work(interrupted, call, monkeypatch, more):
    folder, right = interrupted
    mine = folder / "begun" / "model" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    before = sorted((folder / "begun").rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(Watching, "step_ended", EndedAfter(0), raising=False)  # it gets nowhere near that
        said = call(folder, *SEARCH, "--out", "begun", *more, code=2).stderr
    assert "begun/model holds other files than a model: notes.txt; move that away, or give " in said
    assert sorted((folder / "begun").rglob("*")) == before
    mine.unlink()
    call(folder, *SEARCH, "--out", "begun", *more)
    assert (folder / "begun" / WEIGHTS).read_bytes() == right


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_not_utf_8(tmp_path, call, monkeypatch):
    """Of the table, of the folder it is in, and of the run: ended, resumed, predicted with, listed, repeated."""
    name = os.fsdecode(b"caf\xe9")
    place = tmp_path / name
    place.mkdir()
    (place / f"{name}.csv").write_text(IRIS)
    search = ("search", f"{name}.csv", *SEARCH[2:], "--out", f"{name}/out")
    with monkeypatch.context() as patched:
        patched.setattr(Watching, "step_ended", EndedAfter(1), raising=False)
        call(place, *search, code=2)
    assert "resuming" in call(place, *search).stdout
    out = place / name / "out"
    (out / "report.html").read_text(encoding="utf-8")
    for file in ("run.json", "settings.json"):
        content = json.loads((out / file).read_text(encoding="utf-8"))
        assert content.get("file", content.get("data", {}).get("path")) == str(place / f"{name}.csv")
    call(place, "predict", out, f"{name}.csv", "--out", f"{name}.out.csv")
    assert json.loads(call(place, "runs", out, "--json").stdout)[0]["path"] == str(out)
    call(place, "search", "--repeat", out / "settings.json", "--check")


def test_a_disk_that_is_full_at_any_moment_loses_nothing_and_is_told_as_it_is(tmp_path, call):
    (tmp_path / "iris.csv").write_text(IRIS)
    call(tmp_path, *SEARCH, "--out", "right")
    right = (tmp_path / "right" / WEIGHTS).read_bytes()
    sizes = [4, 8, 12, *random.sample(range(16, 1000, 4), 6)]
    seen = set()
    for size in sorted(sizes):
        with small_disk(tmp_path / f"disk{size}", f"size={size}k") as small:
            out = small / "out"
            said = full_or_done(call, tmp_path, out)
            if said is None:
                assert (out / WEIGHTS).read_bytes() == right
                continue
            seen.add(told(said, out))
            subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
            call(tmp_path, *SEARCH, "--out", out)
            assert (out / WEIGHTS).read_bytes() == right, size
    assert {"nothing", "kept"} & seen


def full_or_done(call, folder: Path, out: Path) -> str | None:
    """What is said where there is no room; None: there was."""
    try:
        call(folder, *SEARCH, "--out", out)
    except AssertionError as failed:
        return str(failed)
    return None


def told(said: str, out: Path) -> str:
    """What the message says is kept; that must be so."""
    assert "No space left on device" in said
    assert "this is a bug" not in said
    if KEPT.format(out) in said:
        assert list((out / "journal").glob("*.safetensors"))
        return "kept"
    assert not out.exists()
    assert " kept" not in said
    assert NOTHING in said or f"{out} cannot be written to" in said
    return "nothing"

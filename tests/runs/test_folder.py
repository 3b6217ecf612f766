"""The folder of a run: what the same command finds, what another is told, what stays when nothing came of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import stat
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.files import atomic
from shoal.runs import lock
from shoal.runs.folder import RunFolder
from shoal.runs.journal import Journal
from shoal.runs.kinds import FINETUNE, SEARCH, TRAIN, read_run

MARKS: dict[str, Any] = {"data": "a" * 64, "recipes": 500, "folds": None, "drop": [], "shoal": "0.1.0"}


def opened(out: Path | None = None, marks: dict[str, Any] = MARKS, **named: Any) -> RunFolder:
    return RunFolder(SEARCH, out, "data", marks, **{"file": "/there/data.csv", **named})


def work(folder: RunFolder) -> None:
    """Something that was finished and is worth to go on with."""
    folder.journal(print).write("shard", ["ab"], {"x": np.zeros(3)})


def end(folder: RunFolder, ended: str = "") -> None:
    (folder.path / "model").mkdir(exist_ok=True)
    settings = {"format": "shoal-run", "version": 1, "result": {"ended": ended}}
    (folder.path / "settings.json").write_text(json.dumps(settings))
    folder.finish()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_folder_appears_at_once_under_its_name_and_says_what_is_computed_there() -> None:
    with opened() as folder:
        assert folder.path == Path("shoal-runs/data-1")
        assert not folder.resumes
        about = json.loads((folder.path / "run.json").read_text())
        assert (about["kind"], about["fingerprint"], about["file"]) == ("search", MARKS, "/there/data.csv")
        assert about.keys() >= {"format", "version", "begun", "command", "host", "shoal"}
        work(folder)
        folder.progress(0.43, recipes=7)
        folder.progress(0.44, recipes=8)
        assert json.loads((folder.path / "progress.json").read_text())["share"] == 0.43, "now and then is enough"
        end(folder)
    assert sorted(os.listdir("shoal-runs/data-1")) == ["model", "run.json", "settings.json"]


@pytest.mark.parametrize("out", [None, Path("mine")])
def test_the_same_run_goes_on_and_when_it_is_finished_it_is_found(out: Path | None) -> None:
    with opened(out) as folder:
        work(folder)
    place, begun = folder.path, folder.begun
    (place / ".report.html.shoal-12-1.part.html").touch()  # a killed process was writing these
    (place / ".model.shoal-12-2.part").mkdir()
    (place / ".model.shoal-12-2.part" / atomic.MARKER).write_text(atomic.MARKER_TEXT)
    (place / ".model.shoal-12-2.part" / "weights").touch()
    with opened(out) as folder:
        assert (folder.path, folder.resumes, folder.begun) == (place, True, begun)
        assert not [name for name in os.listdir(place) if name.startswith(".")]
        end(folder, "interrupted")
    assert (place / "journal").is_dir(), "it can go on to the full search"
    with opened(out) as folder:
        assert (folder.path, folder.resumes, folder.found) == (place, True, None)
        end(folder, "budget")
    assert not (place / "journal").exists()
    with opened(out) as folder:
        assert folder.found is not None
        assert (folder.found.path, folder.found.begun) == (place, begun)
    assert sorted(os.listdir(place)) == ["model", "run.json", "settings.json"]


def test_a_run_that_was_killed_while_it_began_is_no_obstacle() -> None:
    """It had not said yet what it was."""
    out = Path("out")
    out.mkdir()
    (out / ".run.json.shoal-12-1.part").write_text("{")
    with opened(out) as folder:
        assert (folder.path, folder.resumes) == (out, False)
        assert not (out / ".run.json.shoal-12-1.part").exists()
        work(folder)
    with opened(out) as folder:
        assert folder.resumes


def test_without_a_name_the_latest_that_no_living_process_holds_goes_on() -> None:
    with opened() as first, opened() as second, opened(fresh=True) as third:
        assert [run.path.name for run in (first, second, third)] == ["data-1", "data-2", "data-3"]
        for run in (first, second, third):
            work(run)
    with opened() as one, opened() as other:
        assert [run.path.name for run in (one, other)] == ["data-3", "data-2"]
        with opened(fresh=True) as fourth:
            assert (fourth.path.name, fourth.resumes) == ("data-4", False)
    assert not Path("shoal-runs/data-4").exists(), "nothing came of it"


def test_a_repetition_is_done_again_and_never_replaces() -> None:
    with opened(Path("mine")) as folder:
        end(folder)
    with (
        pytest.raises(ValueError, match="mine holds a finished run: give another name"),
        opened(Path("mine"), again=True),
    ):
        pass
    with opened() as folder:
        end(folder)
    with opened(again=True) as folder:
        assert folder.path == Path("shoal-runs/data-2")


def test_another_run_in_the_named_folder_is_refused_with_what_changed() -> None:
    changes = {
        "differs: data.csv has changed since (another checksum)": {"data": "b"},
        "recipes was 500 and is 600": {"recipes": 600},
        "folds was not given and is 3": {"folds": 3},
        "drop was not given and is a, b": {"drop": ["a", "b"]},
        "shoal was 0.1.0 and is 0.2.0": {"shoal": "0.2.0"},
        "it repeats another run, or none": {"repeat": "c"},
    }
    with opened(Path("mine")) as folder:
        work(folder)
    for words, changed in changes.items():
        with pytest.raises(ValueError, match="the beginning of a run that differs: ") as refused:
            opened(Path("mine"), {**MARKS, **changed}).__enter__()
        assert words in str(refused.value)
        assert "Give another --out, or --fresh to start over" in str(refused.value)
    with pytest.raises(ValueError, match=r"the data were /there/data\.csv and are /other\.csv"):
        opened(Path("mine"), {**MARKS, "data": "b"}, file="/other.csv").__enter__()
    with opened(Path("mine")) as folder:
        assert folder.resumes
        with pytest.raises(lock.InUse, match=f"mine is in use by process {os.getpid()} on"):
            opened(Path("mine")).__enter__()
        end(folder)
    with pytest.raises(ValueError, match="holds a finished run that differs: recipes was 500 and is 600"):
        opened(Path("mine"), {**MARKS, "recipes": 600}).__enter__()
    with pytest.raises(ValueError, match="holds a run of shoal search"):
        RunFolder(FINETUNE, Path("mine"), "data", MARKS).__enter__()


def test_without_a_name_another_run_of_the_file_is_noted_in_a_line() -> None:
    with opened() as folder:
        work(folder)
    said: list[str] = []
    with opened(marks={**MARKS, "recipes": 600}, say=said.append) as folder:
        assert folder.path == Path("shoal-runs/data-2")
    place = Path("shoal-runs/data-1")
    assert said == [f"note: {place} is another run of this file, not finished: recipes was 500 and is 600"]
    with opened(marks={**MARKS, "recipes": 600}, say=said.append, file="/elsewhere/data.csv"):
        assert len(said) == 1, "another file of the same name"


def test_fresh_removes_what_the_run_wrote_and_nothing_else() -> None:
    with opened(Path("mine")) as folder:
        work(folder)
        end(folder, "interrupted")
    (Path("mine") / "notes.txt").write_text("my own")
    with opened(Path("mine"), {**MARKS, "recipes": 2}, fresh=True) as folder:
        assert not folder.resumes
        assert set(os.listdir("mine")) == {"notes.txt", "run.json", "lease-1.json"}
    assert os.listdir("mine") == ["notes.txt"], "nothing came of it"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_if_nothing_comes_of_a_run_what_it_made_goes_again(error: type[BaseException]) -> None:
    for out in (None, Path("a/b/run")):
        with contextlib.suppress(error), opened(out) as folder:
            folder.journal(print)
            folder.progress(0.0)
            assert (folder.path / "progress.json").exists()
            raise error
    assert os.listdir() == []
    Path("mine").mkdir()
    with opened(Path("mine")):
        pass
    assert os.listdir() == ["mine"], "it was there before"
    assert os.listdir("mine") == []


@pytest.mark.parametrize("files", range(6))
@pytest.mark.parametrize("fresh", [True, False])
def test_a_removal_that_is_ended_at_any_file_is_no_obstacle(
    files: int, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, unlink = [files], os.unlink

    def ended(*given: Any, **named: Any) -> None:
        if "lease" not in str(given[0]):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        unlink(*given, **named)

    with opened(Path("mine")) as folder:
        work(folder)
        folder.progress(0.5)
    with contextlib.suppress(KeyboardInterrupt), monkeypatch.context() as patched:
        patched.setattr("shoal.files.plain_files.os.unlink", ended)
        with opened(Path("mine"), fresh=True):
            pass
    for lease in Path("mine").glob("lease-*.json"):  # its process lives on, which it would not
        lease.unlink()
    with opened(Path("mine"), fresh=fresh) as folder:
        work(folder)
        end(folder)
    assert not (Path("mine") / "journal").exists()


def test_folders_of_other_things_are_refused() -> None:
    Path("file").touch()
    Path("full").mkdir()
    Path("full/notes.txt").touch()
    for name, words in {
        "file": "file is a file",
        "full": "full is not empty",
        "file/run": "cannot be written to",
    }.items():
        for fresh in (False, True):
            with pytest.raises(ValueError, match=words):
                opened(Path(name), fresh=fresh).__enter__()
    assert sorted(os.listdir()) == ["file", "full"]
    assert os.listdir("full") == ["notes.txt"]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", [*SEARCH.files, "journal/events.jsonl"])
@pytest.mark.parametrize("thing", ["link", "link to a folder", "dangling link", "fifo"])
def test_a_resumed_run_writes_through_no_link_and_waits_for_no_fifo(name: str, thing: str, fresh: bool) -> None:
    with opened(Path("out")) as folder:
        work(folder)
        folder.journal(print).note("rung", 1)
    Path("mine").mkdir()
    for file in ("mine.txt", "mine/events.jsonl", "mine/shard-0.safetensors"):
        Path(file).write_text("mine")
    place = Path("out", name)
    if os.path.lexists(place):
        place.rename("before")
    if thing == "fifo":
        os.mkfifo(place)
    else:
        target = {"link": "mine.txt", "link to a folder": "mine", "dangling link": "nothing"}[thing]
        place.symlink_to(Path(target).absolute())

    def resume() -> None:
        with opened(Path("out"), fresh=fresh) as folder:
            work(folder)

    with pytest.raises(ValueError, match=f"{name} is a (symbolic link|FIFO), not a file of Shoal's"):
        resume()
    assert all(path.read_text() == "mine" for path in (Path("mine.txt"), *Path("mine").iterdir()))
    assert sorted(os.listdir("mine")) == ["events.jsonl", "shard-0.safetensors"]
    assert not Path("nothing").exists()
    assert place.is_symlink() or place.is_fifo()


def test_threads_that_still_work_leave_nothing_in_a_folder_that_was_given_back() -> None:
    """After Ctrl-C a command does not wait for ever; what they left would keep the same command from beginning."""

    def work_on(folder: RunFolder, journal: Journal, ended: list[BaseException]) -> None:
        try:
            while True:
                folder._next_progress = 0.0
                folder.progress(0.1)
                journal.note("rung", 1)
        except BaseException as error:
            ended.append(error)

    for _ in range(20):
        ended: list[BaseException] = []
        with opened(Path("out")) as folder:  # in which nothing was finished
            journal = folder.journal(print)
            threads = [threading.Thread(target=work_on, args=(folder, journal, ended)) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(random.random() / 20)
        for thread in threads:
            thread.join()
        assert [type(error) for error in ended] == [lock.LostFolder] * 3
        assert not Path("out").exists()


def test_who_has_lost_the_folder_writes_and_removes_nothing() -> None:
    with contextlib.suppress(lock.LostFolder), opened() as folder:
        journal = folder.journal(print)
        lease = folder.path / "lease-1.json"
        other = {**json.loads(lease.read_text()), "host": "elsewhere", "pid": 7, "token": "other"}
        lease.unlink()
        (folder.path / "lease-2.json").write_text(json.dumps(other))
        before = sorted(os.listdir(folder.path))
        for write in (lambda: folder.progress(0.5), lambda: journal.note("x", 1), folder.finish):
            with pytest.raises(lock.LostFolder, match="was taken over by process 7 on elsewhere"):
                write()
        journal.write("shard", ["ab"], {"x": np.zeros(3)})
    assert sorted(os.listdir(folder.path)) == sorted(before)
    assert os.listdir(folder.path / "journal") == ["events.jsonl"]


def test_settings_alone_are_no_run() -> None:
    """They may be a user's copy, beside files of the same names."""
    with opened(Path("run")) as folder:
        work(folder)
        end(folder)
    Path("mine").mkdir()
    shutil.copy("run/settings.json", "mine/settings.json")
    assert read_run(Path("run")) is not None
    assert read_run(Path("mine")) is None
    about = json.loads(Path("run/run.json").read_text())
    for wrong in ({**about, "begun": "today"}, {name: value for name, value in about.items() if name != "sha256"}):
        Path("mine/run.json").write_text(json.dumps(wrong))
        assert read_run(Path("mine")) is None


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("out", [None, Path("a/mine")])
def test_a_new_folder_is_for_its_owner_only_and_an_old_one_keeps_its_mode(out: Path | None, umask: int) -> None:
    """It holds rows of the data."""
    before = os.umask(umask)
    try:
        with opened(out) as folder:
            work(folder)
        Path("shared").mkdir(mode=0o750)
        Path("shared").chmod(0o751)
        with opened(Path("shared")) as shared:
            work(shared)
        with RunFolder(TRAIN, Path("trained"), "data", MARKS) as trained:
            (trained.path / "settings.json").write_text("{}")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder.path, shared.path, Path("trained"))}
    assert modes == {folder.path: 0o700, shared.path: 0o751, Path("trained"): 0o700}

"""A mistake of the user's ends in one sentence; a bug of ours says that it is one, and keeps its traceback."""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shoal import errors
from shoal.cli import BUG, WRONG

INFO = import_module("shoal.cli.info")  # beside the command of that name

TABLE = "a,b,y\n" + "".join(f"{k},{k % 3},{'no' if k < 10 else 'yes'}\n" for k in range(20))
NETWORK = "import torch\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(2, 2), Broken())\n\n\n"
NETWORK += "class Broken(torch.nn.Module):\n    seen = 0\n\n    def forward(self, x):\n        Broken.seen += 1\n"
NETWORK += "        if Broken.seen > 2:\n            raise ValueError('broken on purpose')\n        return x\n"
MISTAKES = {
    "no such command": ("serch", "No such command 'serch'"),
    "no such option": ("search table.csv --targt y", "No such option: --targt"),
    "no number": ("search table.csv --target y --seeds few", "Invalid value for '--seeds'"),
    "nothing to search": ("search", "give the file to search"),
    "no such file": ("search none.csv --target y", "there is no file none.csv"),
    "a folder": ("search . --target y", "is a folder"),
    "empty": ("search empty.csv --target y", "is empty"),
    "no such column": ("search table.csv --target z", "there is no column 'z'"),
    "no such task": ("search table.csv --target y --task guess", "--task must be one of"),
    "no such strategy": (
        "search table.csv --target y --recipes 2 --strategy best",
        "--strategy must be one of halving, random, optuna; got 'best'",
    ),
    "a strategy that needs lists": ("search table.csv --target y --recipes 2 --strategy grid", "got 'grid'"),
    "no such score": ("search table.csv --target y --recipes 2 --scoring best", "scoring must be one of"),
    "too many folds": ("search table.csv --target y --recipes 2 --folds 99", "99 folds are too many"),
    "a taken folder": ("search table.csv --target y --recipes 2 --out taken", "--out must be a new folder"),
    "no such run": ("predict none table.csv", "there is no folder none"),
    "no model": ("predict taken table.csv", "has no model.json"),
    "no settings": ("search --repeat taken", "--repeat takes the settings.json"),
    "no such export": ("export taken --to paper", "a model is exported to"),
    "no such network": ("train --data digits --net mlp", "mlp"),
    "no such loss": ("train table.csv --target y --loss best", "loss must be"),
    "no such folder of texts": ("finetune none.csv --columns a", "there is no file none.csv"),
    "no model to write with": ("generate none words", "there is no folder none"),
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "empty.csv").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    return tmp_path


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_of_the_user_is_one_sentence(files: Path, call: Callable[..., Any], case: str) -> None:
    words, message = MISTAKES[case]
    said = call(files, *words.split(), code=WRONG).stderr.strip()
    assert message in said
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1
    assert "bug" not in said


@pytest.mark.parametrize("kind", ["ValueError", "TypeError", "ModuleNotFoundError", "KeyError"])
def test_a_bug_is_not_taken_for_a_mistake_of_the_user(
    tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    broken = {
        "ValueError": partial(int, "seven"), "TypeError": partial(len, 7), "KeyError": partial({}.pop, "seven"),
        "ModuleNotFoundError": partial(__import__, "seven_of_nine"),
    }  # fmt: skip
    monkeypatch.setattr(INFO, "describe", broken[kind])
    said = call(tmp_path, "info", code=BUG).stderr.strip()
    assert len(said.splitlines()) == 1
    assert f"this is a bug in Shoal, not a mistake of yours: {kind}" in said
    assert "please report it" in said
    [file] = tmp_path.glob("shoal-traceback-*.txt")
    assert f"the traceback is in {file}" in said
    written = file.read_text()
    assert "Traceback (most recent call last)" in written
    assert "'info'" in written, "the command"
    monkeypatch.setenv("SHOAL_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in call(tmp_path, "info", code=BUG).stderr


def test_an_error_in_the_users_own_network_is_shown_as_his(files: Path, call: Callable[..., Any]) -> None:
    (files / "mine.py").write_text(NETWORK)
    words = "train table.csv --target y --net mine.py:make --strategy serial --epochs 1"
    said = call(files, *words.split(), code=WRONG).stderr
    assert "this is a bug in Shoal" not in said
    assert re.search(r"^error: .*ValueError: broken on purpose", said.strip().splitlines()[-1])
    assert "in forward" in said, "the trace is what he needs to see"


def test_a_full_disk_and_lack_of_memory_are_sentences(
    tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, words in (
        (OSError(28, "No space left on device", "run/model"), "No space left on device: 'run/model'"),
        (MemoryError("the table needs 70 GB"), "the table needs 70 GB"),
        (MemoryError(), "MemoryError"),
    ):

        def fails(error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(INFO, "describe", fails)
        assert words in call(tmp_path, "info", code=WRONG).stderr


# Python's own types mean a bug, or are caught where they are raised; what users may see is one of `shoal.errors`.
PLAIN = {"ValueError", "TypeError", "FileNotFoundError", "IsADirectoryError", "ModuleNotFoundError"}
INTERNAL = {
    "executors/interface.py", "executors/replies.py", "executors/worker.py",
    "files/json_values.py", "files/tensors.py", "options.py", "parallel/launch/heartbeat.py",
    "runs/journal.py", "tables/csv_columns.py",
}  # fmt: skip


def test_what_users_may_see_is_raised_as_an_error_of_users() -> None:
    package = Path(errors.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            raised = node.exc if isinstance(node, ast.Raise) else None
            name = raised.func if isinstance(raised, ast.Call) else raised
            if isinstance(name, ast.Name) and name.id in PLAIN:
                found.add(path.relative_to(package).as_posix())
    assert found == INTERNAL


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.WrongType, TypeError), (errors.MissingFile, FileNotFoundError), (errors.CannotWrite, OSError),
        (errors.MissingPackage, ModuleNotFoundError), (errors.NothingTrained, ValueError),
    ],
)  # fmt: skip
def test_what_callers_catch_today_stays_caught(kind: type[Exception], also: type[Exception]) -> None:
    error = kind("give another")
    assert isinstance(error, errors.UserError)
    assert isinstance(error, ValueError)
    assert isinstance(error, also)
    assert str(error) == "give another"


TRAINS = """
import numpy as np
from shoal import Member, Population, cli
from shoal.console.background import BackgroundThread

X = np.random.default_rng(0).normal(size=(20_000, 20))
population = Population([Member(hidden=32)] * 8, 20, 1, "mse")
begun = []
thread = BackgroundThread(lambda: population.fit(X, X[:, 0], epochs=10_000, callbacks=[Seen()]))
"""


@pytest.mark.parametrize("end", ["_fail('the disk is full', 2)", "_explain(ValueError('odd'))"])
def test_an_error_while_a_thread_trains_ends_with_its_code(end):
    """Python would abort, if it shut down under the kernel."""
    ready = "class Seen:\n    def progress(self, event):\n        begun.append(1)\n"
    wait = "import time\nwhile not begun:\n    time.sleep(0.01)\n"
    program = [sys.executable, "-c", f"{ready}{TRAINS}{wait}cli.{end}"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == (2 if "_fail" in end else 70), done.stderr
    assert done.stderr.startswith("error: ")


def test_ctrl_c_while_a_thread_trains_ends_with_its_code_at_any_moment():
    """An interrupted wait must not take a thread that trains for one that has ended."""
    ready = "class Seen:\n    def progress(self, event):\n        begun.append(1)\n"
    rest = """
import os, signal, sys, threading
from shoal.cli import _leave
threading.Timer(float(sys.argv[1]), lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    thread.result(lambda: None)
except KeyboardInterrupt:
    assert thread.is_alive()
    _leave(130)
"""
    for _ in range(3):
        moment = str(random.uniform(0.0, 0.5))
        program = [sys.executable, "-c", ready + TRAINS + rest, moment]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (130, ""), f"after {moment} s: {done.returncode} {done.stderr}"

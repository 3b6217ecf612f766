"""Real commands on files whose names, columns and classes are hostile: what comes out is plain text, and commands that
are printed are safe to paste."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.in_process import Said, Terminal, command

import shoal
from shoal import Member, ShoalClassifier
from shoal.models.predictions import safe_cell

PIECES = ("\x1b[2J", "\x1b]0;owned\x07", "\x9b1m", "[bold]", "[/]", "[link=x]", ":end:", "\u202e", "\nerror: forged",
          "\r", "\x08\x08", "\u2028", "\x7f", "$(touch X)", "`touch X`", "'; touch X; '", "&& touch X", "a", "Größe",
          " ", "[torch]")  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
KNOWN = re.compile(r"\x1b\[(\d+(;\d+)*)?m|\x1b\[\?25[lh]|\x1b\[\d?[AKG]|\r")  # colours, the cursor and lines of a bar
quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def check(said: Said, codes: tuple[int, ...] = (0,)) -> None:
    assert said.code in codes, said.err
    for text in (said.out, said.err):
        assert all(sign.isprintable() or sign == "\n" for sign in KNOWN.sub("", text)), repr(text)
        assert not re.search(r"^error: forged", text, re.M)


def check_commands(text: str, files: list[str]) -> None:
    """Every `shoal ...` that is printed, as a shell reads it: the names are words, and nothing else is run."""
    found = re.findall(r"shoal (?:predict|explain|search --repeat|generate) .*", text)
    for line in found:
        script = f'set -f; for word in {line.removeprefix("shoal ")}; do printf "%s\\0" "$word"; done'
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(["bash", "-c", script], capture_output=True, cwd=empty, check=True)
            assert not list(Path(empty).iterdir()), f"pasted, this runs something: {line}"
        assert any(name in done.stdout.decode().split("\0") for name in files), line


def write(path: Path, rows: list[list[str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def file_name(text: str) -> str:
    return text.replace("/", "|").replace("\x00", "") + ".csv"


@quick
@given(
    HOSTILE, st.lists(HOSTILE, min_size=2, max_size=2, unique=True), HOSTILE, st.sampled_from([io.StringIO, Terminal])
)
@example("$(touch X)", [":end:", "[bold]"], "\x1b[2J\nerror: forged", Terminal)
def test_names_of_files_columns_and_classes(name, classes, column, stream):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / file_name(name)
        rows = [[f"{k % 7}", classes[k % 2], classes[k % 3 > 0], ""] for k in range(40)]
        write(file, [["x", column, f"{column}2", "e"], *rows])
        data = ("search", file.name, "--target", "2")
        check(command(Path(folder), *data, "--drop", "e", "--dry-run", stream=stream), (0, 2))
        check(command(Path(folder), *data, "--dry-run", stream=stream), (0, 2))
        check(command(Path(folder), "search", file.name, "--target", name, "--dry-run", stream=stream), (0, 2))
        check(command(Path(folder), "runs", name, stream=stream), (2,))
        check(command(Path(folder), name, "x", stream=stream), (2,))
        check(command(Path(folder), "predict", name, file.name, stream=stream), (2,))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of hostile columns and classes."""
    folder = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(0)
    X = {"a\x1b[2J:end:": random.normal(size=60), "[bold]\u202e": random.choice(["x\x1b[1m", "=y"], 60)}
    y = np.where(X["a\x1b[2J:end:"] > 0, "yes\x1b]0;t\x07", "[no]\nerror: forged")
    quick = {"space": [Member(hidden=2, epochs=1)], "seeds": 1, "cv": 2, "n_jobs": 1}
    shoal.save(ShoalClassifier(**quick).fit(X, y), folder / "model")
    shoal.save(ShoalClassifier(**quick).fit(X, np.where(np.arange(60) % 10, "=y", "-1")), folder / "formulas")
    write(folder / "new.csv", [[*X, "\x9bextra"], ["1e9", "\x1b[31mnew", "1"], ["0.5", "=y", "2"]])
    return folder


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_answers_and_notes(model, stream):
    said = command(model, "predict", "model", "new.csv", "--proba", "--strange", stream=stream)
    assert said.code == 0
    check(Said(0, said.out if stream is Terminal else "", said.err))
    assert "\\x9bextra" in said.err
    if stream is io.StringIO:
        answers = list(csv.reader(io.StringIO(said.out)))
        assert answers[1][0] in ("yes\x1b]0;t\x07", "[no]\nerror: forged"), "data for programs are exact"
    check(command(model, "explain", "model", "new.csv", "--explain-seconds", 0.01, stream=stream))


def test_commands_that_are_printed_are_safe_to_paste(tmp_path, monkeypatch):
    for name in ("$(touch X); [bold]:end:", "a\x1b[2J'\n`touch X`"):
        file = tmp_path / file_name(name)
        rows = [[f"{k % 7}", "ab"[k % 2]] for k in range(40)]
        write(file, [["x", "y"], *rows])
        quick = ("--recipes", 1, "--seeds", 1, "--epochs", 1, "--folds", 2, "--explain-seconds", 0)
        done = command(tmp_path, "search", file.name, "--target", "y", *quick)
        check(done)
        assert "predict with: shoal predict" in done.out
        runs = [str(path.relative_to(tmp_path)) for path in (tmp_path / "shoal-runs").iterdir()]
        check_commands(done.out, [*runs, *(f"{run}/settings.json" for run in runs)])
        again = command(tmp_path, "search", file.name, "--target", "y", *quick)
        assert "already finished" in again.out
        check_commands(again.out, [*runs, *(f"{run}/settings.json" for run in runs)])
        check(command(tmp_path, "runs"))
        json.loads(command(tmp_path, "runs", "--json").out)
        assert not (tmp_path / "X").exists()


def test_help_shows_brackets_and_colons_as_they_are():
    said = command(Path(), "plan", "--help").out
    assert "local_sgd:epoch or :end," in " ".join(said.split())
    check(command(Path(), "info"))


def test_what_to_install_is_shown_in_full(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys.modules["shoal.cli.info"], "available_engines", lambda: {"grouped": "no: pip install 'shoal-ml[torch]'"}
    )
    assert "pip install 'shoal-ml[torch]'" in command(tmp_path, "info").out
    assert shlex.split("pip install 'shoal-ml[torch]'")[-1] == "shoal-ml[torch]"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=8) | st.from_regex(r"[=+\-@\t\r\n][^\n]{0,6}", fullmatch=True) | st.floats() | st.integers())
def test_no_cell_begins_like_a_formula_and_numbers_stay(cell):
    safe = safe_cell(cell)
    assert not isinstance(cell, str) or safe in (cell, f"'{cell}")
    if not isinstance(cell, str):
        assert safe is cell
    elif safe and safe[0] in "=+-@\t\r\n":
        float(safe)


def test_predict_writes_safe_cells_when_asked(model):
    for options, expected in (((), "=y"), (("--safe-cells",), "'=y")):
        done = command(model, "predict", "formulas", "new.csv", *options, "--out", "answers.csv")
        assert done.code == 0, done.err
        answers = [row[0] for row in csv.reader((model / "answers.csv").read_text().splitlines())]
        assert set(answers[1:]) <= {expected, "-1"}
        assert expected in answers

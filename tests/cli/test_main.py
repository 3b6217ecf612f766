"""The command line, run as users run it."""

import importlib.metadata
import os
import subprocess
import sys

import pytest


def shoal(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "shoal", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"COLUMNS": "200"} | environment,
    )


def test_help_names_the_commands():
    result = shoal("--help")
    assert result.returncode == 0
    named = {words[0] for line in result.stdout.splitlines() if len(words := line.split()) > 2}
    assert {"search", "predict", "export", "train", "finetune", "generate", "info"} <= named


def test_version_is_that_of_the_package():
    assert shoal("--version").stdout.strip() == importlib.metadata.version("shoal-ml")


def test_info_tells_version_engines_instruction_set_and_threads():
    result = shoal("info", SHOAL_ISA="baseline", SHOAL_THREADS="3")
    assert result.returncode == 0, result.stderr
    lines = {line.split("  ")[0].strip(): line for line in result.stdout.splitlines()}
    assert lines["shoal"].split()[-1] == importlib.metadata.version("shoal-ml")
    assert "baseline, set by SHOAL_ISA" in lines["instruction set"]
    assert lines["threads"].split()[-1] == "3"
    for engine in ("native", "grouped"):
        assert engine in lines["engines"]


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (("info",), {"SHOAL_ISA": "avx9"}, "SHOAL_ISA must be one of"),
        (("info",), {"SHOAL_THREADS": "none"}, "threads must be"),
    ],
)
def test_mistakes_end_in_one_sentence_and_exit_code_2(arguments, environment, words, monkeypatch, capsys):
    """In this process; that a process ends so is tested with a command that does not wait for torch."""
    from shoal.cli import main

    monkeypatch.setattr(sys, "argv", ["shoal", *arguments])
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_a_mistyped_command_is_an_error():
    result = shoal("inof")
    assert result.returncode == 2
    assert "inof" in result.stderr
    assert "Traceback" not in result.stderr

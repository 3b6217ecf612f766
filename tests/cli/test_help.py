"""The help of a command lists all its options under headings."""

from __future__ import annotations

import re

import pytest
import typer

from shoal.cli import app

COMMANDS = typer.main.get_command(app).commands
GROUPED = [name for name, command in COMMANDS.items() if getattr(command.callback, "headings", None)]


@pytest.mark.parametrize("name", GROUPED)
def test_every_option_is_under_one_heading(name):
    command = COMMANDS[name]
    listed = [option for options in command.callback.headings.values() for option in options.split()]
    assert len(listed) == len(set(listed))
    assert set(listed) == {p.name for p in command.params if p.param_type_name == "option" and p.name != "help"}


def test_headings_come_in_their_order(call, tmp_path):
    said = call(tmp_path, "search", "--help").stdout
    places = [
        said.index(f"\n{heading}:") for heading in ("Arguments", "Data", "Search", "Output", "Execution", "Other")
    ]
    assert places == sorted(places)


def _every_command(command, path=()):
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from _every_command(inner, (*path, name))


@pytest.mark.parametrize("path", list(_every_command(typer.main.get_command(app))), ids=" ".join)
def test_every_help_is_in_plain_words_and_ends_with_examples(path, call, tmp_path):
    said = call(tmp_path, *path, "--help").stdout
    assert "<bool>" not in said
    assert "list[" not in said
    assert not re.search(r"[\w,]\.\.\.$", said, re.MULTILINE), "a summary is too long for a line of 80"
    examples = said.split("Examples:\n")[-1].strip().splitlines()
    assert "Examples:\n" in said
    assert all("shoal " in line for line in examples)

"""Tables as texts: what is skipped, and the texts of the demonstration."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from support.finetune import write

from shoal.finetune import texts

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


def test_blank_cells_and_repeated_rows_are_left_out_with_a_note(tmp_path):
    path = write(tmp_path / "a.csv", ("q", "n", "a"), ("one", "1", "  x = 1\n"), ("one", "2", "  x = 1\n"),
                 ("", "3", " "), ("two", "4", ""), ("none", "5", "NA"))  # fmt: skip
    found = texts.read(path, ["q,a"])
    assert found.rows == [("one", "  x = 1\n"), ("two", ""), ("none", "NA")], "blanks and words like none are kept"
    assert found.read == 5
    assert found.notes == [
        "1 row skipped: all cells are empty",
        "1 row skipped: duplicate text",
        "1 row with an empty cell: the text skips that part",
    ]
    assert texts.prompt(["q", "hint", "a"], ["one", ""]) == "q:\none\n\na:\n", "as a text with that cell empty looks"
    assert [texts.join(found.columns, row) for row in found.rows[:2]] == ["q:\none\n\na:\n  x = 1\n", "q:\ntwo"]
    assert texts.read(path).columns == ("q", "n", "a")
    assert texts.read(path, ["-1"]).columns == ("a",)


def test_the_phrase_for_the_demo_has_the_form_of_its_texts_and_survives_a_shell():
    from shoal.cli.generate import DEMO_PHRASE, GENERATE_EXAMPLES

    table = Path(texts.__file__).parent / "problems.csv"
    with open(table, encoding="utf-8", newline="") as file:
        statements = [row["statement"] for row in csv.DictReader(file)]
    form = re.compile(r"Write a (function|generator|class) `\w+` .*\.")
    assert all(form.fullmatch(statement.split("\n")[0]) for statement in statements)
    assert form.fullmatch(DEMO_PHRASE)
    assert DEMO_PHRASE not in statements
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "finetuning.md").read_text(encoding="utf-8")
    for text in (guide.replace("$ ", ""), GENERATE_EXAMPLES):
        (command,) = re.findall(r"^ *shoal generate shoal-runs/problems-tiny-1 .*$", text, re.MULTILINE)
        assert f"'{DEMO_PHRASE}'" in command, "between single quotes: in double ones a shell runs what is in backticks"

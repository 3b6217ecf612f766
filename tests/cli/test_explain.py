"""`shoal search` ends with what matters, and `shoal explain` says why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Call = Callable[..., Any]
SEARCH = ("search", "houses.csv", "--target", "price", "--recipes", 2, "--seeds", 1, "--epochs", 20, "--folds", 2)


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    size, age = random.uniform(40, 200, 90).round(1), random.integers(0, 99, 90)
    colour = random.choice(["red", "blue"], 90)
    price = (size * 3 - age + random.normal(size=90)).round(1)
    lines = [f"{a},{b},{c},{d}" for a, b, c, d in zip(size, age, colour, price, strict=True)]
    (tmp_path / "houses.csv").write_text("size,age,colour,price\n" + "\n".join(lines) + "\n")
    (tmp_path / "new.csv").write_text("size,age,colour\n50,3,red\n180,,blue\n")
    return tmp_path


def test_from_the_search_to_the_page(houses: Path, call: Call) -> None:
    said = call(houses, *SEARCH, "--out", "run").stdout
    assert "What matters for price: how much r2 falls when a column is shuffled" in said
    assert said.index("  size ") < said.index("  age ")
    assert "shoal explain run new.csv --out why.html" in said
    page = (houses / "run/report.html").read_text()
    assert page.index('id="score"') < page.index('id="matters"') < page.index('id="searched"')
    assert "<strong>size</strong> matters most for predicting price." in page
    again = call(houses, *SEARCH, "--out", "run").stdout  # found finished
    assert "What matters for price" in again
    done = call(houses, "explain", "run", "new.csv", "--out", "why.html")
    assert done.stdout.splitlines()[0].startswith("row 1: ")
    assert "size -" in done.stdout
    assert "wrote why.html" in done.stdout
    why = (houses / "why.html").read_text()
    assert "Rows of <span>new.csv</span>" in why
    assert "<em>size</em> = 50 lowers it by" in why
    file = houses / "run/model/explanation.json"
    changed = json.loads(file.read_text())
    changed["explanation"]["seconds"] = 99.0
    file.write_text(json.dumps(changed))
    assert "the same: every byte" in call(houses, "search", "--repeat", "run", "--check").stdout


def test_mistakes_of_users_are_sentences(houses: Path, call: Call) -> None:
    call(houses, *SEARCH, "--explain-seconds", 0.05, "--out", "run")
    assert json.loads((houses / "run/settings.json").read_text())["search"]["explain_seconds"] == 0.05

    def told(*arguments: object) -> str:
        return str(call(houses, *arguments, code=2).stderr)

    (houses / "less.csv").write_text("size,colour\n50,red\n")
    assert "'age' is missing" in told("explain", "run", "less.csv")
    assert "new.csv is the file with the new rows" in told("explain", "run", "new.csv", "--out", "new.csv")
    assert "--explain-seconds must be a number of seconds of at least 0" in told(
        "explain", "run", "new.csv", "--explain-seconds", -1
    )
    assert "--explain-seconds must be" in told(*SEARCH, "--explain-seconds", -1)
    assert "there is no folder" in told("explain", "nowhere", "new.csv")
    (houses / "run/model/explanation.json").unlink()
    old = told("explain", "run", "new.csv")
    assert "explanation.json is missing" in old
    assert "--background FILE" in old
    call(houses, "explain", "run", "new.csv", "--background", "houses.csv", "--explain-seconds", 0)
    assert (houses / "why.html").is_file()
    shutil.copy(houses / "houses.csv", houses / "many.csv")
    with (houses / "many.csv").open("a") as file:
        file.write("50,3,red,1\n" * 60)
    many = call(houses, "explain", "run", "many.csv", "--background", "houses.csv", "--explain-seconds", 0).stdout
    assert "explaining the first 100 of 150 rows" in many
    assert "and 90 more rows" in many

"""The column to predict: classes or numbers, and rows without it."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UserError
from shoal.tables.files import read_table, strings_of
from shoal.tables.table import Table
from shoal.tables.target import find_target


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([0, 1] * 30, "classification"),
        ([0, 1] * 10, "classification"),
        ([1, 2, 3] * 40, "classification"),
        ([1, 2, 3] * 7, "regression"),  # three values in 21 rows may be anything
        ([0.5, 1.5] * 50, "regression"),
        (list(range(30)) * 30, "regression"),
        (["good", "bad"] * 20, "classification"),
        ([True, False] * 10, "classification"),
        (["$1,200", "$950"] * 20, "classification"),
        ([f"${k},{k}00" for k in range(100, 140)], "regression"),
    ],
)
def test_the_task_is_guessed_from_the_target(cells, kind):
    table = Table.of({"x": list(range(len(cells))), "y": cells})
    assert find_target(table, "y").kind == kind


def test_rows_without_a_target_are_left_out_and_said_so():
    table = Table.of({"x": list(range(40)), "y": ["a", "b", None, "a"] * 10})
    question = find_target(table, "y")
    assert len(question.y) == len(question.X) == 30
    assert "10 rows skipped: their target is missing" in question.notes
    assert 2.0 not in question.X["x"]


def test_whole_numbers_as_classes_are_written_without_a_point():
    table = Table.of({"x": list(range(20)), "y": [1.0, 2.0] * 10})
    assert find_target(table, "y").y.dtype == np.int64


def test_free_text_is_no_target():
    table = Table.of({"x": list(range(40)), "y": [f"remark {k}" for k in range(40)]})
    with pytest.raises(ValueError, match="40 different strings in 40 rows"):
        find_target(table, "y")


def test_columns_that_a_user_says_the_kind_of_are_named_or_numbered_as_the_target_is():
    table = Table(["a", "b", "y"], [np.arange(60.0) % 4, np.arange(60.0) % 5, np.arange(60.0)])
    assert [column.kind for column in find_target(table, "y", kinds={"1": "category"}).schema.columns] == [
        "number", "category",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="there is no column 'c': the columns are a, b, y"):
        find_target(table, "y", kinds={"c": "category"})
    with pytest.raises(ValueError, match="'y' is the target"):
        find_target(table, "y", kinds={"-1": "category"})


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["1.50", "1.5", "2.0"], ["1.5", "1.50", "2"]), (["1.0", "2", "3.0"], [1, 2, 3]),
        (["01", "1", "2"], ["01", "1", "2"]), (["0.5", "1", "1.0"], ["0.5", "1", "1.0"]),
    ],
)  # fmt: skip
def test_classes_that_are_asked_for_are_their_strings(tmp_path, cells, classes):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{j / 7},{cells[j % 3]}\n" for j in range(60)))
    table, _ = read_table(path, strings=strings_of({}, "y"))
    assert np.unique(find_target(table, "y", "classification").y).tolist() == classes


def spoil(cells, row, kind):
    """Cells of a column with one at `row` (from 0) that does not fit, and the kind that is asked for."""
    words = {"signs": "0,5", "percent": "7", "number": "seven", "date": "someday"}
    cells = [{"signs": "1.25", "percent": "5%", "number": "3", "date": "2024-02-01"}[kind] for _ in cells]
    cells[row] = words[kind]
    return cells, {"a": kind} if kind in ("number", "date") else None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=12, max_size=30), st.data(), st.sampled_from(["x", "y"]))
def test_messages_name_the_rows_of_the_file_where_rows_without_a_target_are_skipped(known, data, where):
    known += [True, True]
    row = data.draw(st.sampled_from([j for j, there in enumerate(known) if there]))
    kind = data.draw(st.sampled_from(["signs", "percent"] + ["number", "date"] * (where == "x")))
    cells, kinds = spoil(known, row, kind)
    x = cells if where == "x" else [f"w{j % 3}" for j in range(len(known))]
    y = cells if where == "y" else [str(j / 4) for j in range(len(known))]
    table = Table.of({"a": x, "y": [cell if there else None for cell, there in zip(y, known, strict=True)]})
    with pytest.raises(UserError) as refused:
        assert find_target(table, "y", kinds=kinds).schema is None
    named = re.search(r"row (\d+) \(the first row of data is 1\)", str(refused.value))
    assert int(named[1]) == row + 1

"""Cells of new rows mean what they meant in training, or a sentence says that they do not."""

import io
import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.tables import model_of

from shoal.errors import UserError
from shoal.models.predictions import read_new_rows
from shoal.tables import parse
from shoal.tables.dialect import decode
from shoal.tables.files import read_table
from shoal.tables.inputs import new_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import find_target

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

number = st.decimals(min_value=-99_999, max_value=99_999, places=2, allow_nan=False).map(float)
spelled = st.sampled_from(["01001", "1", "2", "2.0", "1.50", "1e5", "+1", "a", "True", "", "123456789012345678"])


@settings(max_examples=60, deadline=None)
@given(st.lists(spelled, min_size=1, max_size=4), st.lists(spelled, min_size=1, max_size=4))
@example(["01001", "a"], ["01001", "01001"])
@example(["1.50", "True"], ["True"])
@example(["123456789012345678", ""], ["123456789012345678", ""])  # pandas makes floats of them
def test_codes_of_which_pandas_makes_numbers_are_announced(tmp_path_factory, known, new):
    path = tmp_path_factory.getbasetemp() / "codes.csv"
    path.write_text("c,x\n" + "".join(f"{cell},{j / 2}\n" for j, cell in enumerate([*known, "z"] * 4)))
    model = model_of(*read_table(path))
    path.write_text("c,x\n" + "".join(f"{cell},0.5\n" for cell in new))
    expected = model.schema_.check(read_new_rows(path, model))["c"].tolist()
    frame = pd.read_csv(path)
    assume(Table.of(frame)["c"].dtype != object or frame["c"].dtype == object)  # whole numbers of many digits
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        got = model.schema_.check(new_table(model, frame))["c"].tolist()
    there = {cell for cell in expected if cell in known}  # cells that training did not have are unseen either way
    if any(one != other for one, other in zip(expected, got, strict=True) if one in there):
        assert any("spellings that numbers lose, such as 01 or 1.50" in str(warning.message) for warning in said)


def test_a_column_without_any_value_loses_no_spelling():
    schema = Schema.of(Table.of({"c": ["01", "1", "2"] * 9}))
    assert schema.conversion(Table.of({"c": [np.nan, np.nan]})) is None


def columns_of_libraries():
    return {
        "ids": pd.Series([2**60 + 1, None, 2**60 + 2] * 9, dtype="Int64"),
        "arrow ids": pd.Series([2**60 + 1, None, 2**60 + 2] * 9, dtype="int64[pyarrow]"),
        "grade": pd.Series([1, 2, 3] * 9).astype("category"),
        "flag": pd.Series([True, False, True] * 9).astype("category"),
        "day": pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"] * 9)).astype("category"),
    }  # fmt: skip


@pytest.mark.parametrize("name", columns_of_libraries())
def test_a_column_is_the_same_alone_and_in_the_frame_of_any_library(tmp_path, name):
    frame = pd.DataFrame({name: columns_of_libraries()[name], "x": np.arange(27) / 2})
    arrow = pa.Table.from_pandas(frame)
    tables = [frame, {one: frame[one] for one in frame}, arrow, {one: arrow[one] for one in arrow.column_names}]
    if "ids" in name:  # Parquet and polars have no categories but strings
        pq.write_table(arrow, tmp_path / "t.parquet")
        tables += [dict(zip(frame, pl.from_arrow(arrow), strict=True)), read_table(tmp_path / "t.parquet")[0]]
    tables = list(map(Table.of, tables))
    first, *rest = [(Schema.of(table).columns, Schema.of(table).check(table)[name].tolist()) for table in tables]
    assert first[0][0].kind == "category"
    assert all(other == first for other in rest)


def test_days_as_categories_are_spelled_as_in_files():
    frame = pd.DataFrame({"c": pd.to_datetime(["2024-01-01", "2024-02-01"] * 9), "x": np.arange(18) / 2})
    schema = Schema.of(Table.of(frame), kinds={"c": "category"})
    text = Table.of(pd.read_csv(io.StringIO(frame.to_csv(index=False)), dtype={"c": str}))
    assert (
        schema.check(text)["c"].tolist()
        == schema.check(Table.of(frame))["c"].tolist()
        == ["2024-01-01", "2024-02-01"] * 9
    )


@pytest.mark.parametrize("cell", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_a_moment_beyond_the_calendar_is_no_date(cell):
    assert parse.moment(cell, "iso") is None
    assert parse.date_style([cell, "2024-01-01"]) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(number, min_size=1, max_size=5), st.sampled_from(".,"), st.booleans(), st.booleans())
@example([2.33], ",", False, True)
@example([-710097.76], ".", True, True)
def test_a_new_file_of_one_column_is_not_cut_at_its_commas(tmp_path_factory, values, decimal, grouped, header):
    path = tmp_path_factory.getbasetemp() / "one.csv"

    def cell(value):
        text = f"{value:,.2f}" if grouped else f"{value:.2f}"
        return text.translate(str.maketrans(",.", ".,")) if decimal == "," else text

    path.write_text("".join(["x;y\n"] * header) + "".join(f"{cell(j * 1000.25)};{j % 2}\n" for j in range(30)))
    table, summary = read_table(path, header=header)
    model = model_of(table.select([0]), summary)
    path.write_text("".join(["x\n"] * header) + "".join(f"{cell(value)}\n" for value in values))
    read = model.schema_.check(read_new_rows(path, model)).columns[0]
    assert read.tolist() == values
    if header:
        path.write_text(f"other|x\n7|{cell(values[0])}\n")
        read = model.schema_.check(read_new_rows(path, model))["x"]
        assert read.tolist() == values[:1], "another separator is still found"


def test_a_column_that_new_rows_have_twice_is_refused(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("x,z\n" + "".join(f"{j / 2},{j / 3}\n" for j in range(30)))
    model = model_of(*read_table(path))
    path.write_text("x,z,x\n99,2,1\n")
    with pytest.raises(UserError, match="has several columns 'x', unlike the training data: keep the one to use"):
        read_new_rows(path, model)
    path.write_text("x,x,z\n" + "".join(f"{j / 2},{j / 3},{j / 5}\n" for j in range(30)))
    model = model_of(*read_table(path))
    assert read_new_rows(path, model).names == ["x", "x (2)", "z"], "as in training"
    path.write_text("A title\nx,x,z\n1,2,3\n")
    read_new_rows(path, model)
    assert "line 1 is ignored: it has 1 cell, all others 3" in capsys.readouterr().err, "what was guessed is said"


def test_points_that_may_separate_thousands_are_announced():
    schema = Schema.of(Table.of({"x": ["€1,715", "€2,954", "€832"] * 9, "n": ["1.5", "2.25", "3.125"] * 9}))
    new = Table.of({"x": ["€1.227", "€789"], "n": ["3.125", "4.125"]})
    assert (
        schema.conversion(new) == "'€1.227' is read as 1.227 in the column 'x': the training data have decimal points"
    )
    assert schema.conversion(Table.of({"x": ["€1.22", "€789"], "n": ["3.125", "4.125"]})) is None
    assert schema.conversion(Table.of({"x": ["€1,227", "€789"], "n": ["3.125", "4.125"]})) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 99), min_size=2, max_size=9), st.data())
def test_numbers_with_and_without_percent_signs_are_not_mixed(values, data):
    shares = [f"{value}%" for value in values]
    schema = Schema.of(Table.of({"x": shares}), kinds={"x": "number"})
    place = data.draw(st.integers(0, len(values) - 1))
    mixed = [cell if j != place else "0.57" for j, cell in enumerate(shares)]
    for kinds in ({"x": "number"}, None):
        with pytest.raises(UserError, match=f"with and without a percent sign; row {place + 1} .* has '0.57'"):
            Schema.of(Table.of({"x": mixed}), kinds=kinds)
    with pytest.raises(UserError, match="with and without a percent sign"):
        find_target(Table.of({"x": mixed, "z": values}), "x", "regression")
    for new in (mixed, [0.57, np.nan], ["0.57", None]):
        said = schema.conversion(Table.of({"x": new}))
        assert said == "'0.57' is read as 0.57% in the column 'x': the training data have percent signs"
    assert schema.conversion(Table.of({"x": [*shares, "0", "-"]})) is None
    assert schema.conversion(Table.of({"x": [np.nan, 0.0]})) is None
    money = Schema.of(Table.of({"x": [f"${value}" for value in values]}), kinds={"x": "number"})
    with pytest.raises(UserError, match="the training data had no percent signs"):
        money.check(Table.of({"x": shares}))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=4, max_size=12).filter(lambda new: len(new) < 4 * sum(new) < 4 * len(new)))
def test_two_encodings_in_one_file_are_refused(new):
    """Two files, put together: neither encoding reads both. The same in one encoding is a file."""
    lines = [f"Zürich,{j}\n".encode("utf-8" if one else "cp1252") for j, one in enumerate(new)]
    with pytest.raises(UserError, match=f"line {new.index(False) + 2} has a byte that is not"):
        decode(b"a,b\n" + b"".join(lines), "t.csv")
    assert decode("".join(f"Zürich, Genève {j}\n" for j in range(9)).encode("cp1252"), "t.csv")[1] == "cp1252"

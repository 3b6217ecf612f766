"""Tables of every origin, and what their columns are taken for."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import columns

import shoal
from shoal.encoders.states import describe, restore
from shoal.tables.inputs import new_table, training_table
from shoal.tables.missing import is_missing, missing_cells
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import find_target


def kinds(table, **options):
    return {column.name: column.kind for column in Schema.of(table, **options).columns}


# ---- Table ----


@pytest.mark.parametrize("origin", ["pandas", "polars", "arrow", "pandas-arrow", "rows"])
def test_a_table_is_the_same_from_every_origin(origin):
    given = columns()
    expected = Table.of(given)
    if origin == "rows":
        X = [list(row) for row in zip(*given.values(), strict=True)]
        table = Table.of(X, names=list(given))
    else:
        if origin.startswith("pandas"):
            X = pytest.importorskip("pandas").DataFrame(given)
        else:
            X = pytest.importorskip("polars").DataFrame(given)
        if origin.endswith("arrow"):
            pytest.importorskip("pyarrow")
            X = X.to_arrow() if origin == "arrow" else X.convert_dtypes(dtype_backend="pyarrow")
        table = Table.of(X)
    assert table.names == expected.names
    for name, one, two in zip(table.names, table.columns, expected.columns, strict=True):
        assert one.dtype == two.dtype, name
        missing = np.array([cell != cell for cell in one])
        assert np.array_equal(missing, np.array([cell != cell for cell in two])), name
        assert (one[~missing] == two[~missing]).all(), name
    assert [column.dtype.kind for column in expected.columns] == ["f", "f", "b", "O", "O", "M", "O"]


DAY = datetime.datetime(2020, 1, 1)
ARROW_TYPES = {  # how a cell is made of a number, and what the type is made with
    "date32": (lambda k: (DAY + datetime.timedelta(days=k)).date(), ()),
    "date64": (lambda k: (DAY + datetime.timedelta(days=k)).date(), ()),
    "timestamp": (lambda k: DAY + datetime.timedelta(seconds=k), ("us", "Europe/Berlin")),
    "time64": (lambda k: datetime.time(k % 24, 30), ("us",)),
    "duration": (lambda k: datetime.timedelta(seconds=k), ("ns",)),
    "bool_": (lambda k: k % 2 == 0, ()),
    "int64": (lambda k: 2**53 + k, ()),
    "decimal128": (lambda k: Decimal(k) / 4, (6, 2)),
    "large_string": (lambda k: f"w{k}", ()),
}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ARROW_TYPES)), st.lists(st.integers(0, 99), min_size=1, max_size=6), st.booleans())
def test_pandas_with_arrow_types_is_read_as_arrow(kind, picked, gaps):
    pa = pytest.importorskip("pyarrow")
    make, more = ARROW_TYPES[kind]
    column = pa.array([*map(make, picked), *([None] if gaps else [])], type=getattr(pa, kind)(*more))
    expected = Table.of(pa.table({"a": column}))
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.Series(pd.arrays.ArrowExtensionArray(column))})
    found = Table.of(frame)
    assert (found["a"].dtype, found.declared) == (expected["a"].dtype, expected.declared)
    np.testing.assert_array_equal(found["a"], expected["a"])


def test_pandas_types():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "Int": pd.array([1, None, 3], dtype="Int64"),
            "boolean": pd.array([True, None, False], dtype="boolean"),
            "whole": pd.array([True, True, False], dtype="boolean"),
            "string": pd.array(["a", None, "b"], dtype="string"),
            "category": pd.Categorical([10, None, 9], ordered=True),
            "zone": pd.to_datetime(["2020-01-01 01:00", None, "2020-07-01 00:00"]).tz_localize("Europe/Berlin"),
            "span": pd.to_timedelta([1, None, 90], unit="s"),
            "mixed": np.array([1, "a", np.nan], dtype=object),
            "numbers": np.array([1, 2.5, None], dtype=object),
            "flags": np.array([True, None, False], dtype=object),
            "period": pd.period_range("2000-01", periods=3, freq="M"),
        }
    )
    table = Table.of(frame)
    cells = {name: column.tolist() for name, column in zip(table.names, table.columns, strict=True)}
    assert str(cells["Int"]) == "[1.0, nan, 3.0]"
    assert cells["boolean"] == cells["flags"] == ["true", None, "false"]
    assert cells["whole"] == [True, True, False]
    assert cells["string"] == ["a", None, "b"]
    assert cells["category"] == ["10", None, "9"]
    assert table.declared == {"category"}
    assert cells["zone"] == [datetime.datetime(2020, 1, 1), None, datetime.datetime(2020, 6, 30, 22)]
    assert str(cells["span"]) == "[1.0, nan, 90.0]"
    assert cells["mixed"] == ["1", "a", None]
    assert str(cells["numbers"]) == "[1.0, 2.5, nan]"
    assert cells["period"][1] == datetime.datetime(2000, 2, 1)


def test_polars_types():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "int": [1, None],
            "bool": [True, None],
            "categorical": pl.Series(["q", None], dtype=pl.Categorical),
            "enum": pl.Series(["q", None], dtype=pl.Enum(["q", "r"])),
            "date": [datetime.date(2020, 1, 1), None],
            "span": [datetime.timedelta(seconds=4), None],
            "time": [datetime.time(1, 2), None],
            "nothing": [None, None],
            "decimal": pl.Series(["1.5", None]).cast(pl.Decimal(10, 2)),
        }
    )
    for table in (Table.of(frame), Table.of(frame.lazy())):
        cells = {name: column.tolist() for name, column in zip(table.names, table.columns, strict=True)}
        assert str(cells["int"]) == "[1.0, nan]"
        assert cells["bool"] == ["true", None]
        assert cells["categorical"] == cells["enum"] == ["q", None]
        assert cells["date"] == [datetime.datetime(2020, 1, 1), None]
        assert [str(cells[name]) for name in ("span", "time", "decimal")] == [
            "[4.0, nan]",
            "[3720.0, nan]",
            "[1.5, nan]",
        ]
        assert table.declared == {"categorical", "enum"}


def test_arrays_stay_one_block():
    X = np.random.default_rng(0).normal(size=(50, 3))
    table = Table.of(X)
    assert table.block is X
    assert table.names == ["x0", "x1", "x2"]
    assert Table.of(X.astype(np.float32)).block.dtype == np.float64
    assert np.array_equal(table.take(np.array([4, 2])).block, X[[4, 2]])
    assert table.select([2, 0]).names == ["x2", "x0"]
    assert Table.of(np.array([[1, 2.5], [None, 3]], dtype=object)).block.dtype == np.float64
    assert Table.of(np.array([["a", "1"]])).columns[0].tolist() == ["a"]
    assert str(Table.of(np.ma.masked_array([[1, 2]], mask=[[True, False]])).block.tolist()) == "[[nan, 2.0]]"


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        ([1.0, 2.0], ValueError, "Expected 2D array"),
        ([[1.0], [2.0, 3.0]], ValueError, "equally long; got lengths 1, 2"),
        (np.array([[1j]]), ValueError, "Complex data not supported"),
        (np.array([[1.0, 0.0], [np.inf, 0.0], [-np.inf, 0.0]]), ValueError, "column 'x0' has 2 infinite values"),
        ({"price": [1.0, np.inf], "name": ["a", "b"]}, ValueError, "'price' has 1 infinite value "),
        (np.array([[{"a": 1}]], dtype=object), TypeError, "argument must be a string, a number.* a dict in row 1"),
        ({"a": [[1, 2], [3, 4]]}, TypeError, "has a list in row 1"),
        ({"a": [1.0], "b": [1.0, 2.0]}, ValueError, "equally many rows; got 'a' 1, 'b' 2"),
        (np.empty((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required"),
        (np.empty((0, 3)), ValueError, r"0 sample\(s\)"),
        ({"a": [10**400, 0.5]}, ValueError, "below 1e308; column 'a'"),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(X, error, words):
    with pytest.raises(error, match=words):
        Table.of(X)


def test_equal_names_are_made_different_as_in_files():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame([[1, "x", 2]], columns=["a", "a", "a (2)"]).astype({"a": "category"})
    with pytest.warns(UserWarning, match=r"the name 'a' occurs more than once: one is now 'a \(3\)'"):
        table = Table.of(frame)
    assert table.names == ["a", "a (3)", "a (2)"]
    assert table.declared == {"a", "a (3)"}
    with pytest.warns(UserWarning, match="'b' occurs more than once"):
        assert Table.of(pd.DataFrame([[1.0, 2.0]], columns=["b", "b"])).names == ["b", "b (2)"]


def test_infinities_may_be_named_as_missing():
    X = {"a": [1.0, np.inf, -np.inf], "b": ["x", "inf", "y"]}
    table = Table.of(X, missing=["Infinity", "-inf"])
    assert np.isnan(table["a"]).tolist() == [False, True, True]
    assert table["b"].tolist() == ["x", "inf", "y"]
    with pytest.raises(ValueError, match=r"'a' has 1 infinite value .*--missing inf --missing=-inf, in Python"):
        Table.of(X, missing=["inf"])


def test_a_dict_of_single_values_is_one_row():
    table = Table.of({"size": 1, "colour": "red", "gone": None})
    assert len(table) == 1
    assert [column[0] for column in table.columns[:2]] == [1.0, "red"]
    with pytest.raises(ValueError, match="single value for 'b' beside columns: give it as a list too"):
        Table.of({"a": [1, 2], "b": 3})


def test_sparse_matrices_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="toarray"):
        Table.of(sparse.eye(3).tocsr())


def test_equal_cells_have_equal_codes():
    table = Table.of({"a": [0.0, -0.0, None, np.nan, 1.0], "b": ["x", "x", None, None, "y"]})
    for codes in (table.code(0), table.code(1)):
        assert len({code.tobytes() for code in codes}) == 3  # minus zero is zero, also in its bytes
        assert codes[0] == codes[1] != codes[4]
        assert codes[2] == codes[3] != codes[0]


# ---- Schema ----

N = 60
KINDS = {
    "number": [0.5 * i % 7 for i in range(N)],
    "few whole numbers": [i % 3 for i in range(N)],
    "strings of numbers": [f" {i % 7}.50" if i else "n/a" for i in range(N)],
    "leading zeros": [f"{i % 9:05d}" for i in range(N)],
    "money": [f"${i * 1000:,}.50" for i in range(N)],
    "percent": [f"{i % 50}%" for i in range(N)],
    "losses": [f"({i}.5)" if i % 2 else f"{i}.5" for i in range(N)],
    "decimal comma": [f"{i},{i % 10}" for i in range(N)],
    "category": [f"kind {i % 5}" for i in range(N)],
    "underscores": [f"{i % 5}_{i % 3}" for i in range(N)],
    "ranges": [f"{10 * (i % 5)}-{10 * (i % 5) + 9}" for i in range(N)],
    "yes": ["yes" if i % 2 else "no" for i in range(N)],
    "boolean": ["True" if i % 2 else "FALSE" for i in range(N)],
    "value or nothing": ["x" if i % 2 else None for i in range(N)],
    "iso": [f"2020-01-{1 + i % 28:02d}" for i in range(N)],
    "iso time": [f"2020-01-{1 + i % 28:02d}T10:{i:02d}:00Z" for i in range(N)],
    "day first": [f"{1 + i % 28}/{1 + i % 12}/2020" for i in range(N)],
    "dots": [f"{1 + i % 28}.{1 + i % 12}.99 10:00" for i in range(N)],
    "month name": [f"{1 + i % 28} Mar 2020" for i in range(N)],
    "text": [f"the {i} quick brown foxes jump over {i * 7} dogs" for i in range(N)],
    "person": [f"Name{i} Surname{i * 3}" for i in range(N)],
    "code": [f"u{i:04d}x" for i in range(N)],
    "numbering": list(range(7, 7 + N))[::-1],
    "part of a numbering": [i + i // 3 for i in range(N)],
    "user_id": [i * 1001 for i in range(N)],
    "sparse whole numbers": [i * 1001 for i in range(N)],
    "constant": ["kg"] * N,
    "constant number": [3.0] * N,
    "empty": [None] * N,
    "blank": [" "] * N,
}
EXPECTED = {
    **dict.fromkeys(["number", "few whole numbers", "strings of numbers", "money", "percent"], "number"),
    **dict.fromkeys(["losses", "decimal comma", "sparse whole numbers"], "number"),
    **dict.fromkeys(["category", "leading zeros", "underscores", "ranges", "yes", "value or nothing"], "category"),
    "boolean": "boolean",
    **dict.fromkeys(["iso", "iso time", "day first", "dots", "month name"], "date"),
    **dict.fromkeys(["text", "person"], "text"),
    **dict.fromkeys(["code", "numbering", "part of a numbering", "user_id"], "identifier"),
    **dict.fromkeys(["constant", "constant number"], "constant"),
    **dict.fromkeys(["empty", "blank"], "empty"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_columns(name):
    assert kinds(Table.of({name: KINDS[name], "other": [0.5 * i for i in range(N)]}))[name] == EXPECTED[name]


def test_values_are_read_as_they_were_meant():
    table = Table.of(
        {name: KINDS[name] for name in ("money", "percent", "losses", "decimal comma", "strings of numbers")}
    )
    read = Schema.of(table).check(table)
    first = {name: read[name][:3].tolist() for name in read.names}
    assert first["money"] == [0.5, 1000.5, 2000.5]
    assert first["percent"] == [0, 1, 2]
    assert first["losses"] == [0.5, -1.5, 2.5]
    assert first["decimal comma"] == [0.0, 1.1, 2.2]
    assert str(first["strings of numbers"]) == "[nan, 1.5, 2.5]"
    days = Table.of({"a": KINDS["day first"], "b": KINDS["iso time"]})
    read = Schema.of(days).check(days)
    assert str(read["a"][13]) == "2020-02-14T00:00:00.000000"
    assert str(read["b"][13]) == "2020-01-14T10:13:00.000000"


def test_a_date_that_can_be_read_in_two_ways_is_noted():
    table = Table.of({"when": [f"{1 + i % 12}/{1 + i % 9}/2020" for i in range(N)]})
    (column,) = Schema.of(table).columns
    assert column.style == "%m/%d/%Y"
    assert "day could also come first" in column.note


def test_many_values_are_a_category_unless_nearly_all_differ():
    rng = np.random.default_rng(0)
    table = Table.of({"city": [f"c{i}" for i in rng.integers(0, 300, 1000)], "size": rng.normal(size=1000)})
    (column, _) = Schema.of(table).columns
    assert column.kind == "category"
    assert "different values" in column.note


def test_declared_categories_stay_categories():
    pd = pytest.importorskip("pandas")
    codes = [i % 4 for i in range(N)]
    assert kinds(Table.of(pd.DataFrame({"code": pd.Categorical(codes), "n": codes}))) == {
        "code": "category",
        "n": "number",
    }


def test_plain_arrays_stay_numbers_whatever_they_look_like():
    X = np.column_stack([np.arange(N), np.ones(N), np.full(N, np.nan)])
    assert set(kinds(Table.of(X), plain=True).values()) == {"number"}
    assert list(kinds(Table.of(np.column_stack([X, np.sin(X[:, 0])]))).values()) == [
        "identifier", "constant", "empty", "number",
    ]  # fmt: skip


def test_wishes_overrule():
    table = Table.of({"zip": [f"{i % 9:05d}" for i in range(N)], "id": list(range(N)), "word": ["a", "b"] * (N // 2)})
    wished = kinds(table, kinds={"zip": "category", "id": "number", "word": "drop"})
    assert (wished["zip"], wished["id"]) == ("category", "number")
    assert wished["word"] not in ("category", "text")
    with pytest.raises(ValueError, match="no column 'zap'; did you mean 'zip'"):
        Schema.of(table, kinds={"zap": "number"})
    with pytest.raises(ValueError, match="'word' cannot be a number"):
        Schema.of(table, kinds={"word": "number"})
    with pytest.raises(ValueError, match="got 'colour' for 'zip'"):
        Schema.of(table, kinds={"zip": "colour"})


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"word": "date"}, "'word' cannot be a date, as asked; row 1 .the first row of data is 1. has 'a'.* category"),
        ({"word": "boolean"}, "'word' cannot be a boolean, as asked; row 1 "),
        ({"size": "boolean"}, r"'size' cannot be a boolean, as asked; row 2 .* has '1.5'.*number or cat"),
        ({"size": "date"}, "'size' cannot be a date, as asked; row 1 .*number or category"),
        ({"when": "number"}, "'when' cannot be a number, as asked; row 1 "),
        (
            {"size": "numbr"},
            "number, category, boolean, date, text or drop; got 'numbr' for 'size'; did you mean 'number'",
        ),
        ({"size": 3}, r"a word, or an object such as MyEncoder\(\); got 3 for 'size'"),
        ({"size": dict}, "an object such as MyEncoder"),
        ({3: "number"}, "there is no column 3"),
        (["size"], r"kinds must be a dict .*; got \['size'\]"),
    ],
)
def test_kinds_that_do_not_fit_are_refused_in_one_sentence(wish, words):
    days = [datetime.date(2020, 1, 1 + i % 9) for i in range(N)]
    table = Table.of({"word": ["a", "b"] * (N // 2), "size": [1.5 * (i % 4) for i in range(N)], "when": days})
    with pytest.raises(ValueError, match=words):
        Schema.of(table, kinds=wish)


def test_kinds_are_read_as_asked():
    table = Table.of(
        {"price": ["$1,200", "$30", None] * 9, "day": ["31/12/2020", "1/1/2021", "n/a"] * 9, "x": [0.5] * 27}
    )
    schema = Schema.of(table, kinds={"price": "number", "day": "date", "x": "drop"})
    read = schema.check(table)
    assert read["price"][:2].tolist() == [1200.0, 30.0]
    assert [str(day)[:10] for day in read["day"][:3]] == ["2020-12-31", "2021-01-01", "NaT"]
    assert [(column.name, column.kind) for column in schema.dropped] == [("x", "dropped")]
    assert "x: dropped, as asked" in schema.describe()
    again = restore(Schema, "schema", json.loads(json.dumps(describe(schema, "schema", {}))), {})
    assert again.columns == schema.columns


def test_a_schema_is_worked_out_once_per_table_and_wish():
    table = Table.of({"zip": [f"{i % 9:05d}" for i in range(N)], "y": [0.5 * i for i in range(N)]})
    labelled = find_target(table, "y", kinds={"zip": "category"})
    assert labelled.schema is Schema.of(labelled.X, kinds={"zip": "category"})
    assert labelled.schema is not Schema.of(labelled.X)
    assert Schema.of(labelled.X) is Schema.of(labelled.X, plain=False, kinds={})
    assert [column.kind for column in labelled.schema.columns] == ["category"]
    with pytest.raises(ValueError, match="'y' is the target: --task says what it is"):
        find_target(table, "y", kinds={"y": "number"})


def test_one_table_read_by_two_schemas():
    table = Table.of({"zip": [f"{i % 9:05d}" for i in range(N)]})
    assert Schema.of(table, kinds={"zip": "number"}).check(table)["zip"].dtype == np.float64
    assert Schema.of(table).check(table)["zip"].tolist() == table["zip"].tolist()


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(ValueError, match="'unit' is dropped, always 'kg'"):
        Schema.of(Table.of({"unit": ["kg"] * 9}))


def test_new_data_are_found_by_name_and_read_as_the_training_data():
    table = Table.of(
        {"size": [1.0, 2.0, 3.5], "level": ["1", "2.5", "high"], "open": [True, False, True], "unit": ["kg"] * 3}
    )
    schema = restore(Schema, "schema", json.loads(json.dumps(describe(Schema.of(table), "schema", {}))), {})
    new = Table.of({"open": ["true", "FALSE"], "level": [1, 2.5], "size": ["4", ""], "extra": [1, 2]})
    checked = schema.check(new)
    assert checked.names == ["size", "level", "open"]
    assert str(checked["size"].tolist()) == "[4.0, nan]"
    assert checked["level"].tolist() == schema.check(table)["level"][:2].tolist()
    assert checked["open"].tolist() == [1.0, 0.0]
    assert schema.check(checked) is checked
    assert schema.unknown(new) == ["extra"]
    assert schema.unknown(new, ["extra"]) == []
    with pytest.raises(ValueError, match="'size' is missing; did you mean 'sise'"):
        schema.check(Table.of({"sise": [1.0], "level": ["1"], "open": [True]}))
    with pytest.raises(ValueError, match="'size' and 'open' are missing; the table has others: 'a' and 'b'"):
        schema.check(Table.of({"a": [1.0], "level": ["1"], "b": [True]}))


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        ("size", ["1", "2", "big"], "'size' must hold a number.* row 3 .* has 'big'"),
        ("size", [datetime.date(2020, 1, 1)] * 3, "'size' must hold a number"),
        ("size", ["1", "inf", "2"], "'size' has 1 infinite value"),
        ("open", [0, 1, 2], "'open' must hold a boolean.* row 3 .* has '2'"),
        ("open", ["true", "perhaps", "no"], "has 'perhaps'"),
        ("when", ["2020-01-01", "soon", None], "'when' must hold a date.* row 2 .* has 'soon'"),
        ("when", [1.0, 2.0, 3.0], "'when' must hold a date"),
    ],
)
def test_cells_of_another_kind_are_named(column, cells, words):
    training = {"size": [1.0, 2.0, 2.5], "open": [True, False, True], "when": ["2020-01-01", "2020-01-02", None]}
    schema = Schema.of(Table.of(training))
    with pytest.raises(ValueError, match=words):
        schema.check(Table.of({**training, column: cells}))


# ---- Missing cells ----


def test_missing_cells_of_any_library():
    pd = pytest.importorskip("pandas")
    gone = [
        None,
        float("nan"),
        np.float32("nan"),
        np.datetime64("NaT"),
        np.timedelta64("NaT"),
        pd.NA,
        pd.NaT,
        np.ma.masked,
    ]
    there = [0, 0.0, "", "nan", False, np.datetime64(0, "s"), float("inf")]
    assert [is_missing(cell) for cell in gone] == [True] * len(gone)
    assert [is_missing(cell) for cell in there] == [False] * len(there)


def test_missing_cells_of_a_column():
    table = Table.of({"a": [1.0, None], "b": [" ", "x"], "c": [datetime.date(2020, 1, 1), None], "d": [True, False]})
    assert [missing_cells(column).tolist() for column in table.columns] == [
        [False, True], [True, False], [False, True], [False, False],
    ]  # fmt: skip


# ---- What users give as X ----


@pytest.mark.parametrize("listed", [False, True])
def test_arrays_of_objects_hold_what_frames_hold(listed):
    pd = pytest.importorskip("pandas")
    days = [pd.Timestamp("2024-01-01") + pd.Timedelta(days=j) for j in range(3)]
    given = {
        "number": [pd.NA, 1.0, 2.5], "date": [*days[:2], pd.NaT], "moment": [np.datetime64(day) for day in days],
        "seconds": [pd.Timedelta(hours=1), pd.Timedelta(0), pd.NaT], "decimal": [Decimal("0.5"), None, Decimal(2)],
        "code": [Decimal(2**60), Decimal(2**60 + 1), pd.NA],
    }  # fmt: skip
    kinds = {"date": "M", "moment": "M", "code": "O"}
    for name, cells in given.items():
        X = np.empty((3, 2), dtype=object)
        X[:, 0], X[:, 1] = [0.5, 1.5, 2.5], cells
        X = X.tolist() if listed else X
        estimator = shoal.ShoalRegressor()
        table, plain = training_table(estimator, X)
        assert table.columns[1].dtype.kind == kinds.get(name, "f")
        assert plain is (table.columns[1].dtype.kind != "M")
        np.testing.assert_array_equal(table.columns[1], Table.of({"x": cells})["x"])
        estimator.schema_ = Schema.of(table, kinds={"x1": "category"} if name == "code" else None)
        np.testing.assert_array_equal(new_table(estimator, X).columns[1], table.columns[1])


@pytest.mark.parametrize(
    ("X", "plain"),
    [
        ([{"size": 1.5, "colour": "red"}, {"colour": "blue", "size": 2.5}], False),
        ({"size": [1.5, 2.5], "colour": ["red", "blue"]}, False),
        ([[1.5, "red"], [2.5, "blue"]], False),
        ([[1.5, 0.0], [2.5, 1.0]], True),
    ],
    ids=["list of dicts", "dict of columns", "rows with words", "rows of numbers"],
)
def test_training_and_prediction_take_the_same_forms(X, plain):
    estimator = shoal.ShoalRegressor()
    table, numbers = training_table(estimator, X)
    assert numbers is plain
    assert estimator.n_features_in_ == 2
    assert hasattr(estimator, "feature_names_in_") == (table.names == ["size", "colour"])
    assert table.columns[0].tolist() == [1.5, 2.5]
    estimator.schema_ = Schema.of(table, plain=plain)
    new = new_table(estimator, X)
    assert (new.names, new.columns[1].tolist()) == (table.names, table.columns[1].tolist())

"""Cells mean what the file says: spellings, codes, decimal signs, headers and missing cells, from every origin."""

import csv
import json
import re
import warnings
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shoal
from shoal.encoders.states import describe, restore
from shoal.errors import UserError
from shoal.models.predictions import read_new_rows
from shoal.models.saving import describe_model
from shoal.tables.files import read_table, strings_of
from shoal.tables.inputs import new_table
from shoal.tables.missing import MISSING_WORDS, is_marker, is_missing_word
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.spelling import EXACT, category_style, one_spelling, spellings
from shoal.tables.table import Table
from shoal.tables.target import find_target

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

digits = st.text("0123456789", min_size=1, max_size=22)
code = st.one_of(
    digits,
    digits.map(lambda cell: f"0{cell}"),
    st.sampled_from(["1", "1.0", "-1.0", "1.00", "+1", "1e5", "True", "true", "None", "-", "Na", "a b", "é", "0,5"]),
)
value = st.decimals(min_value=-99_999, max_value=99_999, places=3, allow_nan=False).map(float)
QUICK = {"space": {"hidden": [(3,)]}, "strategy": "grid", "epochs": 1, "cv": 2, "seeds": 1, "n_jobs": 1,
         "model": "best", "explain_seconds": 0}  # fmt: skip


def grouped(number, decimal):
    """A number as bookkeepers write it: 1,234.5 or 1.234,5."""
    text = f"{number:,.3f}"
    return text.translate(str.maketrans(",.", ".,")) if decimal == "," else text


def by_hand(path, names, columns, separator):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))


def the_same(one, other):
    return [cell if cell == cell else None for cell in one] == [cell if cell == cell else None for cell in other]


# ---- what is written is what is read ----


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(code, value), min_size=6, max_size=20), st.sampled_from(["pandas", "index", "polars", "hand"]),
    st.booleans(),
)  # fmt: skip
@example([("01001", 0.5), ("1001", 1.5), ("12345678901234567890", -2.0)] * 3, "pandas", True)
def test_random_tables_are_read_back_unchanged(tmp_path_factory, rows, writer, numbered):
    path = tmp_path_factory.getbasetemp() / "t.csv"
    codes, values = (list(cells) for cells in zip(*rows, strict=True))
    names = ["0", "1", "2", "target"] if numbered else ["code", "value", "more", "target"]
    columns = [codes, values, [2 * cell for cell in values], [f"c{j % 2}" for j in range(len(rows))]]
    if writer == "hand":
        by_hand(path, names, columns, ",")
    elif writer == "polars":
        pl.DataFrame(dict(zip(names, columns, strict=True))).write_csv(path)
    else:
        pd.DataFrame(dict(zip(names, columns, strict=True))).to_csv(path, index=writer == "index")
    table, found = read_table(path, named=["target"], strings=strings_of({names[0]: "category"}))
    assert found.header
    assert table.names[-4:] == names
    assert table[names[0]].tolist() == codes, "a category is its string, to the last character"
    assert table[names[1]].tolist() == values
    plain, _ = read_table(path)
    assert plain.names[-4:] == names, "also where nobody says what the target is called"
    if plain[names[0]].dtype == np.float64:
        expected = [np.nan if is_marker(cell) else float(cell) for cell in codes]
        assert np.array_equal(plain[names[0]], expected, equal_nan=True)
        assert not any(cell.lstrip("+-").startswith("0") and cell.isdigit() and len(cell) > 1 for cell in codes)
        assert all(not cell.isdigit() or int(cell) == int(float(cell)) for cell in codes), "no digit is lost"
    else:
        assert plain[names[0]].tolist() == codes


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(value, value, st.integers(0, 9_999)), min_size=4, max_size=20), st.sampled_from([".", ","]))
@example([(0.995, 1234.0, 3)] * 4, ",")
@example([(0.995, 1234.0, 3)] * 4, ".")
def test_numbers_of_both_conventions_are_the_numbers_that_were_written(tmp_path_factory, rows, decimal):
    path = tmp_path_factory.getbasetemp() / "t.csv"
    first, second, whole = (np.array(cells) for cells in zip(*[(0.5, 0.25, 0), *rows], strict=True))
    plain = [str(cell).replace(".", decimal) for cell in first.tolist()]
    large = [grouped(cell, decimal) for cell in second.tolist()]
    thousands = [grouped(1_000 + cell, decimal)[:-4] for cell in whole]  # 1,234 or 1.234, which alone may be either
    by_hand(path, ["a", "b", "n", "t"], [plain, large, whole.tolist(), thousands], ";")
    table, _ = read_table(path)
    schema = Schema.of(table, kinds=dict.fromkeys(table.names, "number"))
    assert schema.decimal == decimal
    read = schema.check(table)
    assert read["a"].tolist() == first.tolist()
    np.testing.assert_allclose(read["b"], second, rtol=1e-12)
    assert read["n"].tolist() == whole.tolist()
    assert read["t"].tolist() == (1_000 + whole).tolist(), "one convention for all columns"
    frame = Schema.of(Table.of(pd.DataFrame({"a": plain, "b": large})), kinds={"a": "number", "b": "number"})
    assert frame.decimal == decimal, "strings in frames follow the same rule"


def test_a_group_of_thousands_never_begins_with_zero(tmp_path):
    rows = "".join(f'"0,{995 - i}","1,{234 + i}",{i}\n' for i in range(30))
    path = tmp_path / "t.csv"
    path.write_text("a,b,n\n" + rows)
    table, _ = read_table(path)
    schema = Schema.of(table)
    read = schema.check(table)
    assert (schema.decimal, read["a"][0], read["b"][0]) == (",", 0.995, 1.234), "all columns decide together"
    path.write_text("a,n\n" + "".join(f'"1,{234 + i}",{i}\n' for i in range(30)))
    table, _ = read_table(path)
    (column, _) = Schema.of(table).columns
    assert Schema.of(table).check(table)["a"][0] == 1234.0
    assert column.note == "'1,234' is read as 1234", "where nothing tells, it is said"
    path.write_text("a,n\n" + "".join(f"{1 + i % 3}.{234 + i},{i}\n" for i in range(30)))
    assert read_table(path)[0]["a"][0] == 1.234


def test_two_decimal_signs_in_one_column_are_refused_and_in_two_columns_said():
    both = {"a": ["1.5", "2.5", "0,995", None] * 9, "n": [0.5, 1.5] * 18}
    with pytest.raises(
        ValueError, match=r"column 'a' has numbers with .*; row 3 \(the first .* has '0,995'.* kind category"
    ):
        Schema.of(Table.of(both))
    with pytest.raises(ValueError, match="column 'a' has numbers with decimal points and with decimal commas"):
        find_target(Table.of(both), "a")
    assert Schema.of(Table.of(both), kinds={"a": "category"}).columns[0].kind == "category"
    columns = {
        "a": [f"{k},5" for k in range(36)],
        "b": [f"{k}.25" for k in range(36)],
        "c": [f"1,{200 + k}" for k in range(36)],
    }
    with pytest.warns(UserWarning, match="column 'a': with decimal commas, unlike other columns"):
        model = shoal.ShoalRegressor(**QUICK).fit(columns, np.arange(36.0))
    read = model.schema_.check(Table.of(columns))
    assert [read[name][1] for name in "abc"] == [1.5, 1.25, 1201.0]


# ---- new data with another convention ----


@pytest.mark.parametrize("trained", [".", ","])
@pytest.mark.parametrize("given_", [".", ","])
def test_another_decimal_sign_in_new_data_is_converted_and_said(trained, given_):
    numbers = np.arange(60) * 37.251
    training = Table.of(
        {"a": [grouped(n, trained) for n in numbers], "b": [str(n).replace(".", trained) for n in numbers]}
    )
    schema = Schema.of(training)
    assert np.allclose(schema.check(training)["a"], numbers.round(3))
    assert schema.conversion(training) is None
    schema = restore(Schema, "schema", json.loads(json.dumps(describe(schema, "schema", {}))), {})
    new = Table.of({"a": ["1.234" if given_ == "," else "1,234", "2"], "b": ["0.5".replace(".", given_), "7"]})
    assert schema.check(new)["a"].tolist() == [1234.0, 2.0]
    assert schema.check(new)["b"].tolist() == [0.5, 7.0]
    said = schema.conversion(new)
    assert (said is None) == (trained == given_)
    if said is not None:
        assert f"decimal {'commas' if given_ == ',' else 'points'}, unlike those of the training data" in said
    silent = Table.of({"a": ["1,234"], "b": ["1"]})
    assert schema.check(silent)["a"].tolist() == [1234.0 if trained == "." else 1.234], "as in training"
    with pytest.raises(
        ValueError, match=r"column 'b'.*row 2 \(the first row of data is 1\) has '0[.,]25'.* in one way"
    ):
        schema.check(Table.of({"a": [f"0{trained}5"] * 2, "b": [f"0{trained}5", f"0{',.'[trained == ',']}25"]}))


def test_python_warns_of_a_conversion():
    x = np.random.default_rng(0).normal(size=60).round(3)
    model = shoal.ShoalRegressor(**QUICK).fit(pd.DataFrame({"x": x}), x)
    with pytest.warns(UserWarning, match="numbers are read with decimal commas, .* in the column 'x'"):
        got = model.predict(pd.DataFrame({"x": ["0,995", "-0,5"]}))
    assert got.tolist() == model.predict(pd.DataFrame({"x": [0.995, -0.5]})).tolist()


odd = st.sampled_from(
    ["1", "01", "1.0", "1.5", "0,5", "1,234", "1.234", "NA", "None", "-", "x", "True", "1e5", "1" * 20, "$1,200", "a b"]
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(odd, min_size=3, max_size=3), min_size=3, max_size=8))
@example([["None", "1.234", "1,5"], ["1.5", "0,5", "x"], ["1.0", "1.234", "x"]])  # a decimal sign unlike the others
def test_files_are_read_as_frames_of_strings_and_rows_alone_as_among_others(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "t.csv"

    def of_file(rows, **how):
        by_hand(path, ["a", "b", "c"], zip(*rows, strict=True), ";")
        return read_table(path, sep=";", header=True, **how)[0]

    def of_frame(rows):
        return Table.of(pd.DataFrame(rows, columns=["a", "b", "c"]))

    try:
        schema = Schema.of(of_file(rows))
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            Schema.of(of_frame(rows))
        return
    assert describe(Schema.of(of_frame(rows)), "", {}) == describe(schema, "", {})
    whole = schema.check(of_file(rows))
    for j, row in enumerate(rows):
        new = of_file(
            [row],
            decimal=schema.decimal,
            strings=lambda names: [j for j, n in enumerate(names) if n in schema.as_written],
        )
        for one in (new, of_frame([row])):
            if schema.conversion(one) is None:
                read = schema.check(one)
                assert all(the_same([whole[name][j]], [read[name][0]]) for name in whole.names)


# ---- spellings ----


@given(st.lists(code, min_size=1, max_size=8))
def test_no_two_values_become_one_unless_a_typed_column_has_only_one_of_them(values):
    """Every pair of different cells stays different, except 1.0 and 1 or True and true that are never both there."""
    style = category_style(values)
    kept = [value if style == EXACT else one_spelling(value) for value in values]
    assert len(set(kept)) == len(set(values))
    for value, one in zip(values, kept, strict=True):
        assert value in spellings(one, style)
        assert all(style == EXACT or one_spelling(cell) == one for cell in spellings(one, style))


def nullable(columns):
    """pandas alone makes floats of whole numbers beside a missing one, and loses digits."""
    return pd.DataFrame({name: pd.array(cells) for name, cells in columns.items()})


@pytest.mark.parametrize("make", [nullable, pl.DataFrame, Table.of, lambda columns: columns])
def test_eighteen_digits_are_as_good_as_letters(make):
    """Ids that differ in the last digit only, as strings and as whole numbers."""
    ids = np.arange(6) + 123456789012345671
    which = np.random.default_rng(0).integers(6, size=60)
    whole = [Decimal(int(i)) for i in ids[which]]
    for cells in ([str(i) for i in ids[which]], ids[which].tolist(), [None, *ids[which][1:].tolist()], whole):
        table = Table.of(make({"acct": cells, "x": np.arange(60.0) % 7}))
        read = Schema.of(table, kinds={"acct": "category"}).check(table)
        assert set(read["acct"]) - {None} == {str(i) for i in ids}
        (column, _) = Schema.of(table).columns
        assert column.kind == "category"
        assert "has more digits than a number can hold" in column.note


@pytest.mark.parametrize("first", [2**53, -(2**53) - 1, 2**63 - 1, 2**64 - 1])  # numpy has types up to 2**63, 2**64
def test_the_first_whole_numbers_that_float64_confuses_stay_different(tmp_path, first):
    ids = [first + j % 2 for j in range(20)]
    for columns in ({"acct": ids}, {"acct": ids, "x": [j / 4 for j in range(20)]}):
        pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
        rows = Table.of([list(row) for row in zip(*columns.values(), strict=True)], list(columns))
        for table in (read_table(tmp_path / "t.csv")[0], Table.of(columns), rows):
            assert table["acct"].tolist() == [str(cell) for cell in ids]


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame, pd.DataFrame, dict])
def test_decimals_keep_their_digits(tmp_path, make):
    whole, many = [Decimal(2**60 + 1), None, Decimal(2**60 + 2)], [Decimal("12345678901234567.10"), Decimal("0.2")]
    assert Table.of(make({"a": whole}))["a"].tolist() == [str(2**60 + 1), None, str(2**60 + 2)]
    assert Table.of(make({"a": [Decimal("0.10"), Decimal("5.00")]}))["a"].tolist() == [0.1, 5.0]
    many += [many[0] + Decimal("0.01")]
    assert Table.of(make({"a": many}))["a"].tolist() == ["12345678901234567.1", "0.2", "12345678901234567.11"]
    if make is pa.table:
        pq.write_table(make({"a": whole}), tmp_path / "a.parquet")
        assert read_table(tmp_path / "a.parquet")[0]["a"].tolist() == [str(2**60 + 1), None, str(2**60 + 2)]


def test_arrays_of_numbers_lose_neither_a_digit_nor_a_column():
    """As in frames, few different codes are categories; but no column of an array is dropped."""
    X = np.column_stack([2**53 + 1 + np.arange(40) % 4, 2**60 + np.arange(40)])
    for given_ in (X, X.tolist(), X.astype(object), np.ma.masked_array(X)):
        model = shoal.ShoalRegressor(**QUICK).fit(given_, np.arange(40.0))
        assert [column.kind for column in model.schema_.columns] == ["category", "number"]
        assert set(new_table(model, given_).columns[0]) == {str(2**53 + 1 + k) for k in range(4)}


def test_both_spellings_of_a_value_stay_apart_where_a_column_has_both():
    both, one = Table.of({"c": ["1", "1.0", "True", "true"] * 9}), Table.of({"c": ["1.0", "2.0", "True", "x"] * 9})
    kinds = {"c": "category"}
    assert set(Schema.of(both, kinds=kinds).check(both)["c"]) == {"1", "1.0", "True", "true"}
    schema = Schema.of(one, kinds=kinds)
    assert set(schema.check(one)["c"]) == {"1", "2", "true", "x"}
    assert schema.check(Table.of({"c": [1.0, 2, True, "1.00"]}))["c"].tolist() == ["1", "2", "true", "1.00"]


# ---- headers ----


@pytest.mark.parametrize(
    ("text", "named", "header"),
    [
        ("0,1,target\n0.5,1.5,0\n2.5,3.5,1\n", [], True),
        ("0,1,target\n0.5,1.5,a\n2.5,3.5,b\n1.5,3.5,b\n1.5,3.5,a\n", [], True),
        (",0,1\n0,5.5,6.5\n1,7.5,8.5\n", [], True),
        ("0,1,2\n7,8,9\n8,9,1\n", [], True),
        ("0,1,2,3,4\n0,1,2,3,4\n4,3,2,1,0\n", [], True),
        ("0,1,2\n1,0,2\n0,2,1\n2,1,3\n", [], False),
        ("0,1\n1,0\n0,0\n", [], False),
        ("0,1\n0.1,0.99\n0.2,0.95\n", [], False),
        ("0,1,setosa\n1,2,setosa\n3,4,virginica\n", [], False),
        ("geneA,0,1,2\ngeneB,3,0,7\ngeneC,0,5,0\n", [], False),
        ("1990,1991,target\n5,6,7\n8,9,7\n", ["target"], True),
        ("1990,1991,target\n5,6,7\n8,9,7\n", ["-1"], True),
        (",1990,1991,target\n0,5,6,7\n1,8,9,7\n", ["-1"], True),
        ("1990,1991,target\n" + "5,6,a\n8,9,b\n" * 3, ["-1"], True),
        ("1990,1991,target\n5,6,a\n8,9,b\n", ["-1"], False),  # "target" may be a rare class
        ("5,5,target\n5,6,7\n8,9,7\n", [], False),  # names differ
        ("2,6,7\n8,9,7\n", ["2"], False),  # a number is a place
        ("2021,2022,2023\n8,9,7\n", ["2023"], True),  # unless there is no such place
        ("2021,2022,2023\n8,9,7\n", ["2024"], False),
        ("0.5,1.5\n8,9\n", ["1.5"], True),
        ("target,x\nx,target\n", ["target"], True),
    ],
)
def test_numbers_as_names_and_named_targets_are_headers(tmp_path, text, named, header):
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv", named=named)[1].header is header


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=4, unique=True), st.integers(2, 9), st.booleans(), st.data())
@example([2019, 2020], 2, False, None)
def test_whole_numbers_name_columns_beside_a_name_that_is_certain(tmp_path_factory, names, rows, words, data):
    path = tmp_path_factory.getbasetemp() / "y.csv"
    frame = pd.DataFrame({name: [3000 + 7 * k + j for k in range(3 * rows)] for j, name in enumerate(names)})
    place = 0 if data is None else data.draw(st.integers(0, len(names)))
    cells = [f"c{k // 3}" for k in range(3 * rows)] if words else [k / 4 for k in range(3 * rows)]
    frame.insert(place, "price", cells)
    frame.to_csv(path, index=False)
    table, summary = read_table(path, named=["-1"])
    assert (summary.header, table.names, len(table)) == (True, [str(name) for name in frame.columns], len(frame))


# ---- missing cells ----


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*sorted(MISSING_WORDS), "None", "none", "-", "missing", "Na", "x", "y"]), min_size=2))
def test_missing_words_are_the_same_in_files_and_frames(tmp_path_factory, cells):
    path = tmp_path_factory.getbasetemp() / "t.csv"
    cells = [*cells, "x", "y"]
    by_hand(path, ["c", "n"], [cells, range(len(cells))], ",")
    expected = [None if is_missing_word(cell) else cell for cell in cells]
    for table in (read_table(path)[0], Table.of(pd.DataFrame({"c": cells}))):
        assert Schema.of(table, kinds={"c": "category"}).check(table)["c"].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([999.0, 99.0, 0.5, -1.0, np.nan]), min_size=3), st.sampled_from(["999", "999.0", "-1"]))
def test_a_number_that_means_missing_is_found_however_it_is_written(tmp_path_factory, cells, mark):
    folder = tmp_path_factory.mktemp("cells")
    cells = [0.25, 3.0, *cells]
    frame = pd.DataFrame({"x": cells, "word": [str(cell) for cell in cells], "n": np.arange(len(cells))})
    frame.loc[0, "word"] = "0999"  # a code
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    expected = [np.isnan(cell) or cell == float(mark) for cell in cells]
    for name in ("t.csv", "t.parquet"):
        table = read_table(folder / name, missing=[mark], strings=strings_of({"word": "category"}))[0]
        assert np.isnan(table["x"]).tolist() == expected
        assert [cell is None or is_missing_word(cell) for cell in table["word"]] == expected


def test_none_is_a_class_among_words_and_missing_among_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "x,y,z\n" + "".join(f"{i},{['None', 'Mild', 'Bad'][i % 3]},{['None', '-', '5'][i % 3]}\n" for i in range(60))
    )
    table, _ = read_table(path)
    assert set(find_target(table, "y").y) == {"None", "Mild", "Bad"}
    assert np.isnan(table["z"]).sum() == 40
    path.write_text(
        "x,y\n"
        + "".join(
            f"{i};{['None', '0,5', '1,5'][i % 3]}\n".replace(";", ',"', 1).replace("\n", '"\n') for i in range(60)
        )
    )
    assert sorted(set(find_target(read_table(path)[0], "y").y)) == [0.5, 1.5]


def test_spellings_that_a_typed_frame_has_lost_are_announced(tmp_path):
    """1.50 and 1.5 are two categories in the file; a column of floats cannot tell them apart."""
    cells = ["1.5", "1.50", "2.0", "2"] * 15
    y = np.arange(60.0) % 4
    model = shoal.ShoalRegressor(kinds={"k": "category"}, **QUICK).fit(pd.DataFrame({"k": cells, "x": y}), y)
    strings, typed = pd.DataFrame({"k": cells[:4], "x": y[:4]}), pd.DataFrame({"k": [1.5, 1.5, 2, 2], "x": y[:4]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(strings)
    with pytest.warns(UserWarning, match="'k' holds numbers here"):
        model.predict(typed)


def test_masked_cells_are_missing():
    X = np.ma.masked_array(np.full((40, 2), 1e6), mask=np.zeros((40, 2), dtype=bool))
    X[:, 0], X[:, 1] = np.arange(40), np.arange(40) % 7
    X[::3, 0] = np.ma.masked
    y = np.arange(40.0)
    model = shoal.ShoalRegressor(**QUICK).fit(X, y)
    plain = shoal.ShoalRegressor(**QUICK).fit(np.ma.filled(X.astype(float), np.nan), y)
    assert state(model) == state(plain)
    assert model.predict(X).tolist() == plain.predict(np.ma.filled(X.astype(float), np.nan)).tolist()
    assert np.isnan(new_table(model, X.astype(int)).columns[0][0])
    with pytest.raises(ValueError, match="missing in 1 of 40 rows"):
        shoal.ShoalRegressor(**QUICK).fit(X, np.ma.masked_array(y, mask=y == 3))


# ---- file, frame and array ----


def state(model):
    """The bytes of a model, apart from the names of its columns."""
    described, arrays = describe_model(model.model_)
    return json.dumps(described, sort_keys=True, default=repr), {name: a.tobytes() for name, a in arrays.items()}


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(code, value, st.one_of(st.none(), st.integers(0, 3)), st.booleans()), min_size=24, max_size=30),
    st.booleans(),
)  # fmt: skip
@example([(f"0100{j % 3}", j / 8, (None, 1, 2)[j % 3], j % 2 == 0) for j in range(24)], True)
@example([(f"12345678901234567{j % 3}", j / 8, j % 2, True) for j in range(24)], False)
def test_file_frame_and_array_give_the_same_model(tmp_path_factory, rows, said):
    path = tmp_path_factory.getbasetemp() / "t.csv"
    rows = [("07", 0.25, None, True), ("7", 0.75, 1, False), ("x", 0.5, 2, True), *rows]
    rows = [(*row, date(2024, 1, 1) + timedelta(days=7 * j)) for j, row in enumerate(rows)]
    columns = {f"x{j}": list(cells) for j, cells in enumerate(zip(*rows, strict=True))}
    y = np.arange(len(rows)) * 0.5
    kinds = {"x0": "category", "x2": "category"} if said else {"x2": "number"}
    frame = pd.DataFrame(columns)  # x2 is float64 with NaN: the file has "1.0"
    frame.to_csv(path, index=False)
    written = path.read_text()
    inputs = [
        read_table(path, strings=strings_of(kinds))[0], frame, pl.DataFrame(columns, strict=False), columns,
        np.array(rows, dtype=object), Table.of(frame.astype("string[python]")),
    ]  # fmt: skip
    pl.DataFrame(columns, strict=False).write_csv(path)
    inputs.append(read_table(path, strings=strings_of(kinds))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one recipe makes for poor scores
        first, *others = [state(shoal.ShoalRegressor(**QUICK, kinds=kinds).fit(X, y)) for X in inputs]
    for other in others:
        assert other == first, written


# ---- new cells in columns that had plain numbers ----


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("3,125", "it may be 3125 or 3.125"), ("50%", "had no percent signs"), ("yes", "has 'yes'"), ("T", "has 'T'"),
    ],
)  # fmt: skip
def test_a_cell_that_may_mean_another_number_than_in_training_is_refused(cell, words):
    schema = Schema.of(Table.of({"x": [1.5, 2.25, 3.0], "z": [0.1, 0.2, 0.3]}))
    with pytest.raises(UserError, match=words):
        schema.check(Table.of({"x": [cell, "2"], "z": ["4", "5"]}))


def test_points_between_thousands_are_announced_where_training_had_decimal_commas():
    schema = Schema.of(Table.of({"x": ["1,5", "0,25", "3,75"]}))
    new = Table.of({"x": ["3.125", "7"]})
    assert schema.check(new)["x"].tolist() == [3125.0, 7.0]
    assert schema.conversion(new) == "'3.125' is read as 3125 in the column 'x': the training data have decimal commas"


def test_blanks_and_minus_signs_of_spreadsheets_are_read():
    cells = ["1\u00a0061,70", "\u2212\u202f2,5", "12\u2009345,00", "0,25"]
    schema = Schema.of(Table.of({"x": cells}))
    assert schema.check(Table.of({"x": cells}))["x"].tolist() == [1061.7, -2.5, 12345.0, 0.25]
    swiss = Table.of({"x": ["4\u2019390.25", "1'000.5", "0.25"]})
    assert Schema.of(swiss, kinds={"x": "number"}).check(swiss)["x"].tolist() == [4390.25, 1000.5, 0.25]


# ---- the character that quotes ----


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["B, C", '5" B', "C", "'tis", "it's", "''", "a\nb", 'say "hi"']), min_size=2))
@example(["'A'", "A", '5" B', "C"])
def test_quotes_of_one_kind_are_a_part_of_a_name_in_a_file_with_the_others(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("quotes") / "table.csv"
    cells = [*cells, "'A'", "A"]
    pd.DataFrame({"part": cells, "x": np.arange(len(cells)) / 8}).to_csv(path, index=False)
    table, found = read_table(path, header=True)
    assert found.quote == '"'
    assert table["part"].tolist() == cells


def test_new_rows_are_quoted_as_the_training_file(tmp_path):
    path = tmp_path / "table.csv"
    for cells, quote in ((["'A'", "A", '"B, C"'], '"'), (["'A'", "'B, C'", "'A'"], "'")):
        path.write_text("part,x,y\n" + "".join(f"{cell},{j},{j % 3}.5\n" for j, cell in enumerate(cells * 8)))
        table, found = read_table(path)
        assert found.quote == quote
        model = shoal.ShoalRegressor(**QUICK).fit(table.select([0, 1]), table["y"])
        model.reading_ = Reading((), ("part", "x", "y"), True, ",", found.quote)
        path.write_text("part,x\n'A',0.5\n")
        assert read_new_rows(path, model)["part"].tolist() == ["'A'" if quote == '"' else "A"]
    path.write_text('part,x\n"A",0.5\n"B, C",1\n')  # of another program
    assert read_new_rows(path, model)["part"].tolist() == ["A", "B, C"]
    with pytest.raises(ValueError, match=r"reading.quote must be .* got '#'"):
        Reading(quote="#")

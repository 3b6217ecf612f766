"""The decimal sign of a table: one for all its columns, the same for a file, Parquet and frames of any library."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tables import model_of

from shoal.models.predictions import read_new_rows
from shoal.tables.files import read_table
from shoal.tables.inputs import new_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import find_target

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytest.importorskip("pyarrow")

ROWS = 12
WORDS = {
    "comma": [f"0,{k}5" for k in range(ROWS)],
    "point": [f"${k}.25" for k in range(ROWS)],
    "either": [f"{k + 1},234" for k in range(ROWS)],
    "words": [f"w{k % 3}" for k in range(ROWS)],
    "whole": [str(k) for k in range(ROWS)],
}
NUMBERS = {
    "fractions": [k / 4 + 0.25 for k in range(ROWS)],
    "three decimals": [k + 1.234 for k in range(ROWS)],
    "whole floats": [float(k) for k in range(ROWS)],
    "some missing": [None if k % 3 else k + 0.5 for k in range(ROWS)],
    "counts": list(range(5, 5 + ROWS)),
}
kinds_of_columns = st.lists(st.sampled_from([*WORDS, *NUMBERS]), min_size=2, max_size=5)


def read(table):
    schema = Schema.of(table)
    return schema.decimal, [(c.kind, c.style) for c in schema.columns], schema.check(table)


@settings(max_examples=60, deadline=None)
@given(kinds_of_columns)
@example(["comma", "fractions", "either"])
@example(["comma", "whole floats", "either"])
@example(["comma", "comma", "fractions", "either"])
def test_numbers_count_in_frames_as_they_do_in_files(tmp_path_factory, chosen):
    cells = {f"c{j}": (WORDS | NUMBERS)[kind] for j, kind in enumerate(chosen)}
    folder, frame = tmp_path_factory.getbasetemp(), pl.DataFrame(cells)
    frame.write_csv(folder / "d.csv", separator=";")
    frame.write_parquet(folder / "d.parquet")
    decimal, styles, expected = read(read_table(folder / "d.csv", header=True, sep=";")[0])
    if decimal == "," and "three decimals" in chosen:
        return  # "1.234" in a file with decimal commas is a thousand, and the number in a frame is not
    for table in (Table.of(frame), Table.of(frame.to_pandas()), read_table(folder / "d.parquet")[0]):
        again, same, found = read(table)
        assert (again, same) == (decimal, styles)
        for name in found.names:
            np.testing.assert_array_equal(found[name], expected[name])


def test_the_target_of_a_parquet_file_is_read_as_that_of_a_text_file(tmp_path):
    frame = pl.DataFrame({"a": WORDS["comma"], "y": WORDS["either"]})
    frame.write_csv(tmp_path / "t.csv", separator=";")
    frame.write_parquet(tmp_path / "t.parquet")
    answers = [find_target(read_table(tmp_path / name)[0], "y").y.tolist() for name in ("t.csv", "t.parquet")]
    assert answers[0] == answers[1] == [k + 1.234 for k in range(ROWS)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 99), min_size=1, max_size=5))
def test_columns_that_were_unlike_the_others_tell_nothing_about_new_rows(tmp_path_factory, thousands):
    folder = tmp_path_factory.getbasetemp()
    columns = {"a": WORDS["comma"], "b": NUMBERS["fractions"], "d": NUMBERS["some missing"], "e": WORDS["either"]}
    pl.DataFrame(columns).write_csv(folder / "u.csv", separator=";")
    model = model_of(*read_table(folder / "u.csv"))
    assert model.schema_.decimal == "."
    count = len(thousands)
    new = pl.DataFrame({"a": ["0,5"] * count, "b": [1] * count, "d": [2] * count,
                        "e": [f"{k},000" for k in thousands]})  # fmt: skip
    new.write_csv(folder / "n.csv", separator=";")
    new.write_parquet(folder / "n.parquet")
    expected = [1000.0 * k for k in thousands]
    for table in (*(read_new_rows(folder / name, model) for name in ("n.csv", "n.parquet")), new_table(model, new)):
        assert model.schema_.check(table)["e"].tolist() == expected


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 99), min_size=1, max_size=5))
def test_numbers_of_new_rows_count_in_frames_as_they_do_in_files(tmp_path_factory, thousands):
    folder = tmp_path_factory.getbasetemp()
    pl.DataFrame(dict.fromkeys("abde", NUMBERS["fractions"])).write_csv(folder / "p.csv", separator=";")
    model = model_of(*read_table(folder / "p.csv"))
    count = len(thousands)
    new = pl.DataFrame({"a": ["0,5"] * count, "b": [1.5] * count, "d": [2.25] * count,
                        "e": [f"{k},000" for k in thousands]})  # fmt: skip
    new.write_csv(folder / "q.csv", separator=";")
    new.write_parquet(folder / "q.parquet")
    for name in ("q.csv", "q.parquet"):
        assert model.schema_.check(read_new_rows(folder / name, model))["e"].tolist() == [1000.0 * k for k in thousands]
    with pytest.warns(UserWarning, match="decimal commas.* in the column 'a'"):
        assert model.schema_.check(new_table(model, new))["e"].tolist() == [1000.0 * k for k in thousands]

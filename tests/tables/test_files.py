"""Files as people have them: what is guessed of them, and one plain sentence where they cannot be read."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal import datasets
from shoal.tables.files import find_column, read_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table


def written(tmp_path, content, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def shared(name):
    try:
        return datasets.find(name)
    except FileNotFoundError:
        pytest.skip(f"{name} is nowhere to be found")


def cells(table):
    return [column.tolist() for column in table.columns]


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", " "])
@pytest.mark.parametrize("header", [True, False])
def test_separator_and_header_are_guessed(tmp_path, separator, header):
    rows = [["size", "colour", "price"]] * header + [["1.5", "red", "3"], ["2", "blue", "4"], ["2.5", "red", "5"]]
    path = written(tmp_path, "\n".join(separator.join(row) for row in rows) + "\n")
    table, understood = read_table(path)
    assert (understood.separator, understood.header) == (separator, header)
    assert table.names == (["size", "colour", "price"] if header else ["column 1", "column 2", "column 3"])
    assert cells(table) == [[1.5, 2.0, 2.5], ["red", "blue", "red"], [3.0, 4.0, 5.0]]
    assert (understood.rows, understood.columns) == (3, 3)


@pytest.mark.parametrize(
    ("text", "names", "first"),
    [
        ("a;b\n1,5;x\n2,25;y\n", ["a", "b"], ["1,5", "2,25"]),  # a decimal comma is no separator
        ("name,text\n1,\"one, two\nthree\"\n2,\"say \"\"hi\"\"\"\n", ["name", "text"], [1.0, 2.0]),
        ("'40-49','a, b','x'\n'50-59','c','x'\n'40-49','c','y'\n", ["column 1", "column 2", "column 3"], None),
        ("1,5;2,5;x\n3,5;4,5;y\n5,5;4,5;y\n", ["column 1", "column 2", "column 3"], ["1,5", "3,5", "5,5"]),
        ("code,id\n1_000,1\n2_000,2\n", ["code", "id"], ["1_000", "2_000"]),  # Python alone reads a number here
        ("a, b\n1, x\n2, y\n", ["a", "b"], [1.0, 2.0]),
        ("  a   b\n  1   2\n  3   4\n", ["a", "b"], [1.0, 3.0]),
        ("a\n1\n\n2\n", ["a"], [1.0, 2.0]),
        ("red\nblue\nred\nblue\n", ["column 1"], ["red", "blue", "red", "blue"]),
        ("a,b\r\n1,2\r\n3,4\r\n", ["a", "b"], [1.0, 3.0]),
        ("a,b\r1,2\r3,4\r", ["a", "b"], [1.0, 3.0]),
        ("a,b,\n1,2,\n3,4,\n", ["a", "b"], [1.0, 3.0]),  # lines that end in a separator
        ("a,b\n1,x\x0cy\n3,4\n", ["a", "b"], [1.0, 3.0]),  # a form feed is part of a cell
        ("title only\n1,2,3\n4,5,6\n", ["column 1", "column 2", "column 3"], [1.0, 4.0]),
        ('"size" "price"\n"1" 1 2\n"2" 3 4\n', ["row name", "size", "price"], [1.0, 2.0]),  # as R writes it
        ("country,1990,1991\nChad,1,2\nMali,3,4\nPeru,3,4\n", None, None),
    ],
)  # fmt: skip
def test_kinds_of_text_files(tmp_path, text, names, first):
    table, understood = read_table(written(tmp_path, text))
    if names is None:  # numbers as names cannot be told from data; the user can say
        table, understood = read_table(written(tmp_path, text), header=True)
        names, first = ["country", "1990", "1991"], ["Chad", "Mali", "Peru"]
    assert table.names == names
    if first is not None:
        assert table.columns[0].tolist() == first
    assert all(isinstance(line, str) for line in understood.describe())


def test_quotes_keep_cells_together(tmp_path):
    table, understood = read_table(written(tmp_path, "'40-49','a, b','x'\n'50-59','c','x'\n'40-49','c','y'\n"))
    assert understood.quote == "'"
    assert table.columns[1].tolist() == ["a, b", "c", "c"]
    table, understood = read_table(written(tmp_path, "word,n\n'tis,1\ndon't,2\n"))
    assert understood.quote == '"'
    assert table.columns[0].tolist() == ["'tis", "don't"]
    table, _ = read_table(written(tmp_path, 'text,n\n"one, two\nthree",1\n"say ""hi""",2\n'))
    assert table.columns[0].tolist() == ["one, two\nthree", 'say "hi"']


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
@pytest.mark.parametrize("zipped", [False, True])
def test_encodings_and_gzip(tmp_path, encoding, zipped):
    content = "größe,farbe\n1,grün\n2,weiß\n".encode(encoding)
    table, understood = read_table(written(tmp_path, gzip.compress(content) if zipped else content))
    assert table.names == ["größe", "farbe"]
    assert table.columns[1].tolist() == ["grün", "weiß"]
    assert understood.compressed == zipped
    assert content.decode(understood.encoding).lstrip("\ufeff").startswith("größe,farbe\n1,grün")


def test_markers_of_missing_values(tmp_path):
    markers = ["", "NA", "N/A", "nan", "NaN", "null", "NULL", "?", " "]
    text = "n,s\n1,x\n" + "".join(f"{marker},{marker}\n" for marker in markers if marker.strip()) + ",\n2,y\n"
    table, understood = read_table(written(tmp_path, text))
    assert table.columns[0].dtype == np.float64
    assert np.isnan(table.columns[0][1:-1]).all()
    assert set(table.columns[1][1:-1]) == {None}
    assert understood.missing == 2 * (len(table) - 2)
    assert any("missing" in line for line in understood.describe())
    table, _ = read_table(written(tmp_path, "n,s\n1,x\n-999,gone\n2,y\n"), missing=["-999", "gone"])
    assert str(cells(table)) == "[[1.0, nan, 2.0], ['x', None, 'y']]"


def test_everything_can_be_said_instead_of_guessed(tmp_path):
    path = written(tmp_path, "a;b\n'x;y';2\n")
    table, understood = read_table(path, sep=";", header=False, quote="'")
    assert cells(table) == [["a", "x;y"], ["b", "2"]]
    assert understood.header is False
    assert read_table(path, sep="semicolon", quote="'")[0].names == ["a", "b"]
    assert read_table(written(tmp_path, "a\tb\n1\t2\n"), sep="\\t")[0].names == ["a", "b"]
    with pytest.raises(ValueError, match="sep must be one character"):
        read_table(path, sep="::")


def test_equal_names_are_made_different(tmp_path):
    table, understood = read_table(written(tmp_path, "a,a,,a (2)\n1,2,3,4\n5,6,7,8\n"))
    assert table.names == ["a", "a (3)", "Unnamed: 2", "a (2)"]
    assert any("more than once" in note for note in understood.notes)


def test_infinities_may_be_named_as_missing(tmp_path):
    path = written(tmp_path, "a,b\n1,inf\n2,Infinity\n3,-inf\n4,5\n")
    with pytest.raises(ValueError, match="column 'b' has 1 infinite value"):
        read_table(path, missing=["inf"])
    table, understood = read_table(path, missing=["inf", "-inf"])
    assert str(cells(table)[1]) == "[nan, nan, nan, 5.0]"
    assert understood.missing == 3
    pd = pytest.importorskip("pandas")
    pd.DataFrame({"a": [1.0, np.inf]}).to_parquet(tmp_path / "t.parquet")
    table, understood = read_table(tmp_path / "t.parquet", missing=["inf"])
    assert str(cells(table)) == "[[1.0, nan]]"
    assert understood.missing == 1


def test_an_empty_cell_in_quotes_is_a_row_of_a_file_of_one_column(tmp_path):
    for rows in (1, 2000):  # more than are looked at first
        table, _ = read_table(written(tmp_path, 'x\n1.0\n\n""\n' + "3.0\n" * rows), header=True)
        assert np.isnan(table["x"]).tolist() == [False, True] + [False] * rows
    table, _ = read_table(written(tmp_path, "word\na\n\n" + "b\n" * 2000 + '""\n'))
    assert len(table) == 2002
    assert table["word"][-1] is None
    assert len(read_table(written(tmp_path, 'a,b\n1,2\n""\n3,4\n'))[0]) == 2


def test_a_separator_at_the_end_of_rows_alone_shifts_no_column(tmp_path):
    for rows in (3, 2000):  # more than are looked at first
        body = [f"0.1,{j},x," for j in range(rows)]
        table, understood = read_table(written(tmp_path, "\n".join(["a,y,b", *body])))
        assert table.names == ["a", "y", "b"]
        assert table["y"].tolist() == list(range(rows))
        assert any("last column is ignored" in note for note in understood.notes)
        table, _ = read_table(written(tmp_path, "\n".join(["a,y,b", *body, "0.1,7,x,late"])))
        assert table.names == ["row name", "a", "y", "b"]
        assert table["b"][-1] == "late"


def test_long_cells(tmp_path):
    table, _ = read_table(written(tmp_path, "text,y\n" + "word " * 50_000 + ",1\nshort,2\n"))
    assert len(table.columns[0][0]) > 200_000


def test_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.parquet"
    pd.DataFrame({"n": [1.0, None], "s": ["x", None], "when": pd.to_datetime(["2020-01-01", None])}).to_parquet(path)
    table, understood = read_table(path)
    assert table.names == ["n", "s", "when"]
    assert [column.dtype.kind for column in table.columns] == ["f", "O", "M"]
    assert understood.form == "parquet"
    assert understood.describe()[0] == "2 rows, 3 columns"


def test_parquet_without_a_library(tmp_path):
    path = written(tmp_path, b"PAR1 and much more PAR1", "table.parquet")
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pyarrow', 'pyarrow.parquet', 'polars', 'pandas']))\n"
        "from shoal.tables.files import read_table\n"
        "try:\n    read_table(sys.argv[1])\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install pyarrow" in result.stdout


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "is empty"),
        ("blank.csv", b"\n \n", "is empty"),
        ("header.csv", b"size,colour\n", "a header line and no rows"),
        ("ragged.csv", b"a,b\n1,2\n3,4\n\n5,6,7\n", "line 5 of .* has 3"),
        ("short.csv", b"1,2\n" + b"1,2,3\n" * 20, "line 2 of .* has 3"),
        ("open.csv", b'a,b\n1,x\n2,"y\n3,z\n4,w\n', "line 3 of .* is not closed"),
        ("stray.csv", b'a,b\n1,x\n2,"y\n3,z\n4,"w"\n5,x\n', "line 3 of .* is not closed"),
        ("mixed.csv", "a,b\n1,ö\n2,ü\n3,".encode() + b"\xff\n", "UTF-8 text, but line 4 has a byte that is not"),
        ("marked.csv", b"\xef\xbb\xbfa,b\n1,\xff\n", "UTF-8 text, but line 2 has a byte that is not"),
        ("junk.csv", bytes(range(256)) * 40, "not a text file"),
        ("image.csv", b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG image, not a table"),
        ("book.xlsx", b"PK\x03\x04" + bytes(100), "spreadsheet.* as CSV"),
        ("cut.csv.gz", gzip.compress(b"a,b\n1,2\n" * 1000, mtime=0)[:-30], "cut off gzip"),
        ("bad.csv.gz", b"\x1f\x8b" + bytes(range(100)), "damaged"),
        ("false.parquet", b"a,b\n1,2\n", "not a Parquet file"),
        ("cut.parquet", b"PAR1" + bytes(100), "cut off"),
        ("broken.parquet", b"PAR1" + bytes(range(100)) + b"PAR1", "damaged Parquet file"),
        ("infinite.csv", b"a,b\n1,inf\n2,3\n", "column 'b' has 1 infinite value"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_files_end_in_one_sentence(tmp_path, name, content, words):
    if "parquet" in name:
        pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=words) as caught:
        read_table(written(tmp_path, content, name))
    assert "\n" not in str(caught.value)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.text('ab \n",;', min_size=1, max_size=6)), min_size=2, max_size=9),
    place=st.integers(0, 8),
)
def test_cells_with_ends_of_lines_are_whole_and_open_quotes_are_refused(tmp_path, rows, place):
    """Any cell in quotes is read as it is; one whose last quote is missing never swallows the rows below."""
    lines = [f'{number},"{cell.replace(chr(34), chr(34) * 2)}"\n' for number, cell in rows]
    table, _ = read_table(written(tmp_path, "number,cell\n" + "".join(lines)), sep=",", header=True)
    assert len(table) == len(rows)
    place %= len(rows) - 1
    rows = [(number, "x") if j != place else (number, cell.replace('"', "")) for j, (number, cell) in enumerate(rows)]
    lines = [f'{number},"{cell}"\n' for number, cell in rows]
    lines[place] = lines[place][:-2] + "\n"
    with pytest.raises(ValueError, match="is not closed where the cell ends"):
        read_table(written(tmp_path, "number,cell\n" + "".join(lines)), sep=",", header=True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("cells", ["1,5;w", "1.5;2"])
def test_the_line_with_which_excel_names_the_separator_is_no_row(tmp_path, encoding, end, cells):
    text = "sep=;\na;b\n" + f"{cells}\n" * 30
    table, found = read_table(written(tmp_path, text.replace("\n", end).encode(encoding)))
    assert (table.names, len(table), found.separator) == (["a", "b"], 30, ";")


@pytest.mark.parametrize("title", ["# made on Monday", "# made on Monday, by me"])
@pytest.mark.parametrize("header", [None, True])
def test_a_title_is_left_out_whether_or_not_the_header_is_known(tmp_path, title, header):
    """A model knows that its file had a header, and must read that very file again."""
    path = written(tmp_path, f"{title}\nx,c,y\n" + "1,a,2\n2,b,3\n" * 20)
    table, found = read_table(path, header=header, named=["y"])
    assert table.names == ["x", "c", "y"]
    assert len(table) == 40
    assert "line 1 is ignored" in found.notes[0]


@pytest.mark.parametrize("rows", [60, 200])
def test_the_index_of_a_frame_is_no_input(tmp_path, rows):
    """Also that of a sample of its rows, whose numbers have gaps, in CSV and in Parquet."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": np.linspace(0, 1, 5000), "y": np.linspace(1, 0, 5000)}).sample(rows, random_state=0)
    frame.to_csv(tmp_path / "t.csv")
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        schema = Schema.of(read_table(tmp_path / name)[0])
        assert [column.name for column in schema.used] == ["x", "y"], name


def test_a_date_that_means_missing_is_found_in_every_file(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"day": ["1900-01-01", "2024-01-02", "2024-05-06"] * 10, "x": np.arange(30) / 7})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.assign(day=pd.to_datetime(frame.day)).to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        table, found = read_table(tmp_path / name, missing=["1900-01-01"])
        assert found.missing == 10, name
        assert np.isnat(Schema.of(table).check(table)["day"][::3]).all(), name


def test_no_file_and_folders(tmp_path):
    written(tmp_path, "a\n1\n", "prices.csv")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'prices\.csv'"):
        read_table(tmp_path / "price.csv")
    with pytest.raises(FileNotFoundError, match="no folder"):
        read_table(tmp_path / "nowhere" / "price.csv")
    with pytest.raises(OSError, match="is a folder"):
        read_table(tmp_path)


def test_columns_are_found_by_name_then_by_number():
    table = Table.of({"size": [1.0], "0": [2.0], "price": [3.0]})
    assert [find_column(table, target) for target in ("price", "-1", -1, "0", 1, "size")] == [2, 2, 2, 1, 1, 0]
    with pytest.raises(ValueError, match="no column 'prize'; did you mean 'price'"):
        find_column(table, "prize")
    with pytest.raises(ValueError, match="the columns are size, 0, price"):
        find_column(table, "qqqqqqq")
    with pytest.raises(ValueError, match="from -3 to 2"):
        find_column(table, 3)


@pytest.mark.parametrize(
    ("name", "shape", "missing", "kinds"),
    [
        ("german.csv", (1000, 21), 0, {"number": 8, "category": 13}),
        ("pima-indians-diabetes.csv", (768, 9), 0, {"number": 9}),
        ("horse-colic.csv", (300, 28), 1605, {"number": 25, "category": 3}),
        ("breast-cancer.csv", (286, 10), 9, {"number": 1, "category": 9}),
        ("winequality-red.csv", (1599, 12), 0, {"number": 12}),
        ("housing.csv", (506, 14), 0, {"number": 14}),
    ],
)
def test_shared_tables(name, shape, missing, kinds):
    table, understood = read_table(shared(f"tabular/{name}"))
    assert (len(table), len(table.names)) == shape
    assert (understood.header, understood.missing) == (False, missing)
    found = [column.kind for column in Schema.of(table).columns]
    assert {kind: found.count(kind) for kind in found} == kinds


def test_movie_reviews():
    table, understood = read_table(shared("text/movie-reviews.csv.gz"))
    assert (table.names, len(table), understood.header) == (["review", "sentiment"], 2000, True)
    assert [column.kind for column in Schema.of(table).columns] == ["text", "category"]


@pytest.mark.parametrize(
    "name", ["iris.csv", "wine_data.csv", "breast_cancer.csv", "linnerud_exercise.csv", "digits.csv.gz"]
)
def test_files_of_scikit_learn(name):
    import sklearn.datasets

    path = Path(sklearn.datasets.__file__).parent / "data" / name
    table, understood = read_table(path)
    rows = {"iris.csv": 150, "wine_data.csv": 178, "breast_cancer.csv": 569, "linnerud_exercise.csv": 20}
    assert len(table) == rows.get(name, 1797)
    assert all(column.dtype == np.float64 for column in table.columns)
    assert any("line 1 is ignored" in note for note in understood.notes) == (
        name in ("wine_data.csv", "breast_cancer.csv")
    )

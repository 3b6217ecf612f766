"""Files to tables: CSV and similar text files, gzipped or not, and Parquet. What the user does not say is guessed."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import MissingFile, MissingPackage, NotAFile, UserError
from shoal.tables import parse
from shoal.tables.csv_columns import UnexpectedRows, all_numbers, as_written, begins_with_zero, read_columns, typed
from shoal.tables.dialect import (
    decode,
    guess_header,
    guess_quote,
    guess_separator,
    has_name,
    open_quote,
    separator_line,
)
from shoal.tables.frames import refuse_infinite
from shoal.tables.kinds import KEPT_AS_WRITTEN
from shoal.tables.missing import is_missing, missing_cells
from shoal.tables.reading import Reading
from shoal.tables.table import Table, unique_names, without_infinities
from shoal.validate import nearest

SEPARATOR_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", " ": "blanks"}
MAGIC = {b"\x1f\x8b": "gzip", b"PAR1": "parquet", b"PK\x03\x04": "zip", b"%PDF": "PDF", b"\x89PNG": "PNG image"}
SAMPLE = 1_000_000  # characters that guesses look at
HEAD = 1_200  # rows from which it is told what the first line is and what each column holds


@dataclass
class FileSummary:
    """How a file was read, and how much was in it. `describe` says it in words."""

    path: str
    form: str  # "text" or "parquet"
    rows: int = 0
    columns: int = 0
    separator: str | None = None
    quote: str | None = None
    header: bool | None = None
    encoding: str | None = None
    compressed: bool = False
    missing: int = 0  # cells
    notes: list[str] = field(default_factory=list)

    def describe(self) -> list[str]:
        lines = [f"{self.rows:,} row{'s' * (self.rows != 1)}, {self.columns:,} column{'s' * (self.columns != 1)}"]
        if self.form == "text":
            separator = SEPARATOR_NAMES.get(self.separator or "", repr(self.separator))
            header = "names in the first line" if self.header else "no header line"
            extra = ", gzipped" if self.compressed else ""
            lines.append(f"separated by {separator}, quoted with {self.quote}, {header}, {self.encoding}{extra}")
        if self.missing:
            lines.append(f"{self.missing:,} missing cells ({self.missing / (self.rows * self.columns):.1%})")
        return lines + self.notes

    def ambiguous(self, table: Table) -> tuple[str, ...]:
        """Names that several columns of the file had."""
        return tuple(name for name in table.names if any(f"the name {name!r} occurs more" in n for n in self.notes))


def read_table(
    path: str | Path,
    *,
    sep: str | None = None,
    header: bool | None = None,
    missing: Sequence[str] = (),
    quote: str | None = None,
    named: Sequence[str] = (),
    strings: Callable[[list[str]], Iterable[int]] | None = None,
    decimal: str = "",
) -> tuple[Table, FileSummary]:
    """A file as a table of numbers and strings, and how it was read. None means: guess.

    named    names that the user gave of columns: a first line with one of them is a header
    strings  of the names of all columns, the positions of those whose cells are kept as they are written
    decimal  the decimal sign to expect, "." or ","
    """
    path = Path(path)
    content = _content(path)
    if _is_parquet(content, path):
        return _read_parquet(path, missing, strings)
    markers = frozenset(marker.strip() for marker in missing)
    content, text, summary = _begin(content, path, sep, quote)
    plain = content if summary.encoding in ("utf-8", "utf-8-sig", "cp1252", "latin-1") else text.encode()
    careful = "_" in text or begins_with_zero(plain)
    quick = _read_columns(content, careful, summary, header, markers, named, strings, decimal)
    if quick is not None:
        del text
        names, columns, summary = quick
    else:  # rows of different lengths, or nearly so: what is wrong with them is said where all are at hand
        names, rows = _read_rows(text, header, summary, named)
        cells = list(zip(*rows, strict=True))

        def read(kept: set[int]) -> list[np.ndarray]:
            return [as_written(c, markers) if j in kept else typed(c, markers) for j, c in enumerate(cells)]

        columns = _with_commas(read, _positions(strings, names), decimal)
    names, columns = _drop_nameless(names, columns, summary)
    kept = _positions(strings, names)
    table = Table(_unique(names, summary), columns)
    table.decimal = table.shown_decimal([table.names[j] for j in kept])
    table = without_infinities(table, missing)
    summary.rows, summary.columns = len(table), len(table.names)
    summary.missing = sum(int(missing_cells(column).sum()) for column in table.columns)
    return _finite(table), summary


def _positions(strings: Callable[[list[str]], Iterable[int]] | None, names: list[str]) -> set[int]:
    return set() if strings is None else set(strings(unique_names(names)[0]))


def _with_commas(read: Callable[[set[int]], list[np.ndarray]], kept: set[int], decimal: str) -> list[np.ndarray]:
    """The columns of a file, all as written where some show a decimal comma: then "1.234" is more than a thousand."""
    if decimal != ",":
        columns = read(kept)
        words = (column for j, column in enumerate(columns) if column.dtype == object and j not in kept)
        if not any(parse.decimal_of([column]) == "," for column in words):
            return columns
    return read(set(range(1 << 20)))


def strings_of(kinds: Mapping[str, str], classes: str | None = None) -> Callable[[list[str]], Iterable[int]]:
    """For `read_table`: the columns, named or numbered, that the user says are categories or texts.

    `classes`: a target that the user says holds classes.
    """
    kinds = kinds if classes is None else {**kinds, classes: KEPT_AS_WRITTEN[0]}

    def positions(names: list[str]) -> Iterable[int]:
        return [find_name(names, column) for column, kind in kinds.items() if kind in KEPT_AS_WRITTEN]

    return positions


def read_texts(
    path: str | Path, *, sep: str | None = None, header: bool = True
) -> tuple[list[str], list[list[str]], FileSummary]:
    """A file as names and rows of cells, each as it was written: for texts, in which blanks and "none" have a meaning.

    What Parquet knows as missing is an empty cell.
    """
    path = Path(path)
    content = _content(path)
    if _is_parquet(content, path):
        table, summary = _read_parquet(path)
        columns = [["" if is_missing(cell) else str(cell) for cell in column] for column in table.columns]
        return table.names, [list(row) for row in zip(*columns, strict=True)], summary
    _, text, summary = _begin(content, path, sep, None)
    names, rows = _read_rows(text, header, summary)
    summary.rows, summary.columns = len(rows), len(names)
    return _unique(names, summary), rows, summary


def find_column(table: Table, target: str | int) -> int:
    """The position of a column given by name or, if no column has that name, by number: 0 is the first, -1 the last.

    >>> table = Table.of({"size": [1.0], "price": [2.0]})
    >>> find_column(table, "price"), find_column(table, "-1"), find_column(table, 0)
    (1, 1, 0)
    """
    return find_name(table.names, target)


def find_name(names: Sequence[str], target: str | int) -> int:
    """The same among names alone."""
    name = str(target)
    if name in names:
        return list(names).index(name)
    try:
        position = int(name)
    except ValueError:
        known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = nearest(name, names) or f": the columns are {known}"
        raise UserError(f"there is no column {name!r}{hint}") from None
    count = len(names)
    if not -count <= position < count:
        raise UserError(f"a column's number must be from {-count} to {count - 1} (-1 is the last); got {position}")
    return position % count


def _content(path: Path) -> bytes:
    if path.is_dir():
        raise NotAFile(f"{path} is a folder: give a file in it")
    if not path.exists():
        folder = path.parent
        others = [other.name for other in folder.iterdir()] if folder.is_dir() else []
        hint = nearest(path.name, others) or ("" if folder.is_dir() else f": there is no folder {folder} either")
        raise MissingFile(f"there is no file {path}{hint}")
    content = path.read_bytes()
    if not content:
        raise UserError(f"{path} is empty: give a file with a table in it")
    form = next((form for magic, form in MAGIC.items() if content.startswith(magic)), None)
    if form == "zip":
        raise UserError(f"{path} is a zip archive or a spreadsheet: unpack it, or save the sheet as CSV")
    if form in ("PDF", "PNG image"):
        raise UserError(f"{path} is a {form}, not a table: give a CSV, TSV or Parquet file")
    return content


def _is_parquet(content: bytes, path: Path) -> bool:
    if content[:4] != b"PAR1" and path.suffix.lower() not in (".parquet", ".pq"):
        return False
    if not (content.startswith(b"PAR1") and content.endswith(b"PAR1") and len(content) > 12):
        raise UserError(f"{path} is not a Parquet file, or is cut off: write it again, or give a CSV file")
    return True


def _unzip(content: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        raise UserError(f"{path} is a damaged or cut off gzip file: fetch it again") from None


def _read_parquet(
    path: Path, missing: Sequence[str] = (), strings: Callable[[list[str]], Iterable[int]] | None = None
) -> tuple[Table, FileSummary]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = Table.of(_parquet(path), missing=missing)
    table = Reading(tuple(missing)).without_marks(table)
    table.decimal = table.shown_decimal([table.names[j] for j in _positions(strings, table.names)])
    summary = FileSummary(str(path), "parquet", len(table), len(table.names))
    summary.notes += [str(warning.message) for warning in caught if "more than once" in str(warning.message)]
    summary.missing = sum(int(missing_cells(column).sum()) for column in table.columns)
    return table, summary


def _parquet(path: Path) -> Any:
    """The file as a frame of the first library that is installed; `Table.of` takes each of them."""
    for library in ("pyarrow.parquet", "polars", "pandas"):
        try:
            module = __import__(library, fromlist=["read_table"])
        except ModuleNotFoundError:
            continue
        read = module.read_table if library == "pyarrow.parquet" else module.read_parquet
        try:
            return read(str(path))
        except Exception as error:  # each library has its own errors; the user needs one sentence
            raise UserError(f"{path} is a damaged Parquet file ({type(error).__name__}): write it again") from None
    raise MissingPackage("reading Parquet needs one more library: pip install pyarrow")


def _begin(content: bytes, path: Path, sep: str | None, quote: str | None) -> tuple[bytes, str, FileSummary]:
    """The bytes and the text of a file, and its encoding, quote character and separator."""
    summary = FileSummary(str(path), "text")
    if content[:2] == b"\x1f\x8b":
        content, summary.compressed = _unzip(content, path), True
    text, summary.encoding = decode(content, str(path))
    if not text.strip():
        raise UserError(f"{path} is empty: give a file with a table in it")
    if (named := separator_line(text)) is not None:
        text, sep = text[len(named) :], sep or named[-1]
        content = text.encode(summary.encoding)
    sample = text[:SAMPLE]
    if quote == "'" and quote not in text:
        quote = '"'  # ' quotes nothing in this file
    summary.quote = quote or guess_quote(sample, _separator(sep) if sep else None)
    summary.separator = _separator(sep) if sep else guess_separator(sample, summary.quote)
    with _long_fields():
        if (line := open_quote(text, summary.separator, summary.quote)) is not None:
            raise UserError(
                f"line {line} of {path} has a cell with a {summary.quote} that is not closed where the cell ends: it "
                "would swallow the lines below; close it, or write it twice in a cell in quotes"
            )
    return content, text, summary


def _read_columns(
    content: bytes,
    careful: bool,
    summary: FileSummary,
    header: bool | None,
    markers: frozenset[str],
    named: Sequence[str] = (),
    strings: Callable[[list[str]], Iterable[int]] | None = None,
    decimal: str = "",
) -> tuple[list[str], list[np.ndarray], FileSummary] | None:
    """Names and columns of a file whose rows are all alike, read block by block; None if they are not."""
    summary = replace(summary, notes=list(summary.notes))

    def lines() -> Iterator[str]:
        return io.TextIOWrapper(io.BytesIO(content), encoding=summary.encoding, newline="")

    try:
        with _long_fields():
            reader = _reader(lines(), summary)
            head, numbers = _real_rows(itertools.islice(reader, HEAD), reader)
            if len(set(map(len, head[1:]))) != 1:
                return None
            names, body = _header(head, numbers, header, summary, named)
            skip = numbers[len(numbers) - len(body) - 1] if len(body) < len(numbers) else 0
            if set(map(len, body)) != {len(names)}:
                return None
            kept = _positions(strings, names)
            if not (markers or careful or kept or decimal == "," or summary.separator in (None, " ")):
                try:
                    columns = all_numbers(lines(), summary.separator or ",", summary.quote, skip, len(names))
                    return names, columns, summary
                except ValueError:
                    pass

            def rest() -> Iterator[list[str]]:
                again = _reader(lines(), summary)
                for _ in itertools.islice(again, HEAD):
                    pass
                return filter(_row_test(len(names)), again)

            def read(kept: set[int]) -> list[np.ndarray]:
                return read_columns(body, rest, markers, careful, kept)

            return names, _with_commas(read, kept, decimal), summary
    except (csv.Error, UnexpectedRows):
        return None


def _read_rows(
    text: str, header: bool | None, summary: FileSummary, named: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Names and rows of a text file."""
    rows, lines = _rows(text, summary)
    names, rows = _header(rows, lines, header, summary, named)
    _refuse_ragged(rows, lines[len(lines) - len(rows) :], len(names), summary.path)
    if not rows:
        raise UserError(f"{summary.path} has a header line and no rows: give a file with data")
    return names, rows


def _separator(sep: str) -> str:
    named = {name: character for character, name in SEPARATOR_NAMES.items()}
    sep = {"\\t": "\t", "blank": " ", "space": " ", "pipe": "|"}.get(sep, named.get(sep, sep))
    if len(sep) != 1:
        raise UserError(f"sep must be one character or one of {', '.join(named)}; got {sep!r}")
    return sep


def _rows(text: str, summary: FileSummary) -> tuple[list[list[str]], list[int]]:
    """Rows of cells without blank ones, and the last line of each in the file."""
    with _long_fields():
        # str.splitlines would also cut at a form feed in a cell
        reader = _reader(io.StringIO(text, newline=""), summary)
        try:
            return _real_rows(reader, reader)
        except csv.Error as error:
            raise UserError(f"{summary.path} is not a table: line {reader.line_num}: {error}") from None


def _reader(lines: Iterator[str], summary: FileSummary) -> Any:
    if summary.separator == " ":
        lines = (line.replace("\t", " ").strip() for line in lines)
    return csv.reader(lines, delimiter=summary.separator or ",", quotechar=summary.quote, skipinitialspace=True)


def _real_rows(rows: Iterator[list[str]], reader: Any) -> tuple[list[list[str]], list[int]]:
    """Rows without blank ones, and the last line of each."""
    every = [(row, reader.line_num) for row in rows]
    is_row = _row_test(max((len(row) for row, _ in every), default=0))
    found = [(row, number) for row, number in every if is_row(row)]
    return [row for row, _ in found], [number for _, number in found]


def _row_test(width: int) -> Callable[[list[str]], bool]:
    """What tells rows from blank lines. In a file of one column, an empty cell in quotes is a row."""
    return bool if width == 1 else lambda row: len(row) > 1 or (bool(row) and bool(row[0].strip()))


@contextmanager
def _long_fields() -> Iterator[None]:
    """The csv module refuses cells of more than 131,072 characters, which a text may have."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _header(
    rows: list[list[str]], lines: list[int], header: bool | None, summary: FileSummary, named: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the rows of data. A first line of its own, such as a title or sizes, is left out."""
    width = len(rows[1]) if len(rows) > 1 else len(rows[0])
    others = {len(row) for row in rows[1:]}
    first = [cell.strip() for cell in rows[0]]
    if others == {len(first) + 1} and not any(row[-1].strip() for row in rows[1:]):
        summary.notes.append("the last column is ignored: it has no name, and all its cells are empty")
        rows, others, width = [rows[0], *(row[:-1] for row in rows[1:])], {len(first)}, len(first)
    short = len(others) == 1 and len(first) < width
    titled = short and (len(first) < width - 1 or (not has_name(first, named) and has_name(rows[1], named)))
    if short and not titled and header is not False and guess_header([["", *first], *rows[1:]], named):
        summary.header = True
        summary.notes.append("the first column has no name: it is taken for the names of rows")
        return ["row name", *first], rows[1:]
    if titled:
        cells = f"{len(first)} cell{'s' * (len(first) != 1)}"
        summary.notes.append(f"line {lines[0]} is ignored: it has {cells}, all others {width}")
        rows, first = rows[1:], [cell.strip() for cell in rows[1]]
    summary.header = guess_header(rows, named) if header is None else bool(header)
    if summary.header:
        return first, rows[1:]
    return [f"column {j + 1}" for j in range(len(first))], rows


def _refuse_ragged(rows: list[list[str]], lines: list[int], width: int, path: str) -> None:
    if set(map(len, rows)) <= {width}:
        return
    bad = next(j for j, row in enumerate(rows) if len(row) != width)
    raise UserError(
        f"every line must have {width} cells, as the first; line {lines[bad]} of {path} has {len(rows[bad])}: "
        "correct it, or say the separator or quote character if they were guessed wrong"
    )


def _drop_nameless(
    names: list[str], columns: list[np.ndarray], summary: FileSummary
) -> tuple[list[str], list[np.ndarray]]:
    """Lines that end in a separator make a last column without name and cells."""
    if len(names) > 1 and missing_cells(columns[-1]).all() and (not names[-1] or not summary.header):
        summary.notes.append("the last column is ignored: all its cells are empty")
        return names[:-1], columns[:-1]
    return names, columns


def _unique(names: list[str], summary: FileSummary) -> list[str]:
    given, notes = unique_names(names)
    summary.notes += notes
    return given


def _finite(table: Table) -> Table:
    for name, column in zip(table.names, table.columns, strict=True):
        if column.dtype == np.float64:
            refuse_infinite(column, name)
    return table

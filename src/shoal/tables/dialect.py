"""Guesses about text files: encoding, quote character, separator, header line."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence

from shoal.errors import UserError
from shoal.tables import parse
from shoal.tables.missing import is_marker

SEPARATORS = (",", "\t", ";", "|", " ")
LINES = 200  # that guesses look at
MANY_NUMBERED = 5  # so many first cells are 0, 1, 2, ... only where they are names
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
MANY_OF_A_CLASS = 3  # rows
JUNK_SHARE = 0.002  # control characters in a text


def decode(content: bytes, path: str) -> tuple[str, str]:
    """The text of a file and its encoding: by its mark, else UTF-8, else UTF-16, else Windows' or Latin-1.

    >>> decode("size;größe".encode("cp1252"), "sizes.csv")
    ('size;größe', 'cp1252')
    """
    marked = next((name for mark, name in MARKS if content.startswith(mark)), None)
    candidates = [marked] if marked else ["utf-8", *_utf16(content), "cp1252", "latin-1"]
    for encoding in candidates:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError as error:
            if encoding == "utf-8-sig" or (encoding == "utf-8" and _partly_utf8(content)):
                line, wrong = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
                raise UserError(
                    f"{path} is UTF-8 text, but line {line} has a byte that is not ({wrong:#x}): "
                    "correct it, or save the file as UTF-8"
                ) from None
            continue
        head = text[:100_000]
        if len(CONTROL.findall(head)) > JUNK_SHARE * len(head):
            continue
        return text, encoding
    raise UserError(f"{path} is not a text file: give a CSV, TSV or Parquet file")


def _partly_utf8(content: bytes) -> bool:
    """Whether a fifth of the letters beyond ASCII are UTF-8: by chance, hardly any of another encoding are."""
    letters = [letter for letter in content.decode("utf-8", "replace") if letter > "\x7f"]
    return letters.count("\ufffd") < 0.8 * len(letters)


def guess_quote(text: str, separator: str | None = None) -> str:
    """The quote character: ' only where no cell is in ", every cell that begins with ' ends with it, and cells need it.

    They do if one of them has a separator or a doubled ' in it, or if all words are in '. Else ' is a part of a name.

    >>> guess_quote("a,b\\n'x, y',1\\nz,2"), guess_quote("a,b\\n'x',1\\nx,2")
    ("'", '"')
    """
    lines = _first_lines(text)
    if "'" not in text or _is_double(lines):
        return '"'
    cells = _cells(lines, separator or guess_separator(text, "'"))
    begun = [cell for _, cell in cells if cell.startswith("'")]
    inside = [cell[1:-1] for cell in begun if len(cell) > 1 and cell.endswith("'")]
    if not begun or len(inside) < len(begun) or any("'" in cell.replace("''", "") for cell in inside):
        return '"'
    needed = any("''" in cell or re.search(r"[,;\t|]", cell) for cell in inside)
    words = (cell for line, cell in cells if line > 0 and not is_marker(cell) and not _is_number(cell))
    return "'" if needed or all(cell.startswith("'") for cell in words) else '"'


def guess_separator(text: str, quote: str) -> str:
    """The separator that gives all of the first lines the same number of cells, at least two."""
    lines = _first_lines(text)
    best, best_score = ",", (0.0, 0.0, 0)
    for separator in SEPARATORS:
        score = _score(lines, separator, quote)
        if score > best_score:
            best, best_score = separator, score
    return best


def open_quote(text: str, separator: str, quote: str) -> int | None:
    """The line in which a cell begins that swallows lines since its quote is not closed where the cell ends; or None.

    >>> open_quote('a,b\\n1,"x\\n2,y\\n', ",", '"'), open_quote('a,b\\n1,"x\\ny"\\n', ",", '"')
    (2, None)
    """
    if quote not in text or not any(line.count(quote) % 2 for line in io.StringIO(text, newline="")):
        return None  # no cell goes on in the next line
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(iter(lines), delimiter=separator, quotechar=quote, skipinitialspace=True)
    blanks = re.compile(rf"{quote}[ \t]+(?=[{re.escape(separator)}\r\n]|\Z)")
    first = 0
    for _ in reader:
        if reader.line_num > first + 1:
            cells = blanks.sub(quote, "".join(lines[first : reader.line_num]))
            strict = io.StringIO(cells, newline="")
            try:
                for _ in csv.reader(strict, delimiter=separator, quotechar=quote, skipinitialspace=True, strict=True):
                    pass
            except csv.Error:
                return first + 1
        first = reader.line_num
    return None


def guess_header(rows: list[list[str]], named: Sequence[str] = ()) -> bool:
    """Whether the first row names the columns: each column votes by whether its first cell is unlike the others.

    `named`: names that the user gave of columns. A row with one of them is a header, unless it is the number of a
    column; so is one that numbers the columns.
    """
    if has_name(rows[0], named):
        return True
    if len(rows) < 2:
        return not any(parse.number(cell, "plain") is not None for cell in rows[0])
    if _numbers_columns(rows):
        return True
    votes = [_vote(rows[0][j].strip(), [row[j] for row in rows[1:1000] if j < len(row)]) for j in range(len(rows[0]))]
    if sum(votes) != 0:
        return sum(votes) > 0
    names = [cell.strip() for cell in rows[0]]
    return len(set(names)) == len(names) and all(re.match(r"^[^\W\d][\w .()/-]{0,39}$", name) for name in names)


def has_name(row: Sequence[str], named: Sequence[str]) -> bool:
    """Whether a row holds a name that the user gave of a column. One that may be the number of a column is none."""
    cells = {cell.strip() for cell in row}
    return any(name.strip() in cells and not _is_place(name, len(row)) for name in named)


def separator_line(text: str) -> str | None:
    """The first line where it names the separator, as Excel writes it, without its end.

    >>> separator_line("sep=;\\na;b\\n1;2"), separator_line("a;b\\n1;2")
    ('sep=;', None)
    """
    found = re.match(r"sep=[^\w\s\"']|sep=\t", text, re.IGNORECASE)
    return found[0] if found and text[found.end() : found.end() + 1] in ("\r", "\n") else None


def _numbers_columns(rows: list[list[str]]) -> bool:
    """Whether the first row holds 0, 1, 2 and so on, as pandas names columns, perhaps beside names of other columns.

    Other whole numbers, such as years, are names only beside one that certainly is.

    >>> _numbers_columns([["0", "1", "target"], ["5", "6", "7"]]), _numbers_columns([["0", "1"], ["1", "0"]])
    (True, False)
    >>> _numbers_columns([["2019", "2020", "y"], ["5", "6", "7"]]), _numbers_columns([["2019", "2020"], ["5", "6"]])
    (True, False)
    """
    first = [cell.strip() for cell in rows[0]]
    places = [j for j, cell in enumerate(first) if cell.isdecimal()]
    if not places or len({first[j] for j in places}) < len(places):
        return False
    columns = [[row[j].strip() for row in rows[1:1000] if j < len(row)] for j in range(len(first))]
    names = [j for j in range(len(first)) if j not in places]
    if any(_is_number(first[j]) or (first[j] and first[j] in columns[j]) for j in names):
        return False  # a name is neither a number nor a value of its column
    if [first[j] for j in places] != [str(k) for k in range(len(places))]:
        return any(_is_certain_name(first[j], columns[j]) for j in names)
    if 0 in names and first[0] == "" and _all_numbers(columns[0]):
        return True  # the index of a frame
    if len(places) >= MANY_NUMBERED or any(_vote(first[j], columns[j]) > 0 for j in names):
        return True
    return len(places) > 2 and any(not _is_between(first[j], columns[j]) for j in places)


def _is_certain_name(first: str, others: list[str]) -> bool:
    """Whether a cell that its column does not have again is above numbers, or above classes that all occur often."""
    rest = [cell for cell in others if not is_marker(cell)]
    if not rest or is_marker(first):
        return False
    return parse.number_style(rest) is not None or min(Counter(rest).values()) >= MANY_OF_A_CLASS


def _is_between(first: str, others: list[str]) -> bool:
    """Whether a whole number is one of a column of whole numbers, by its size."""
    whole = [int(cell) for cell in others if cell.isdecimal()]
    return len(whole) == len(others) and min(whole) <= int(first) <= max(whole)


def _vote(first: str, others: list[str]) -> int:
    """1 for a name, -1 for data, 0 for no opinion."""
    if _all_numbers(others):
        return 0 if is_marker(first) else -1 if _is_number(first) else 1
    rest = [cell.strip() for cell in others if not is_marker(cell)]
    if not rest or is_marker(first):
        return 0
    if parse.number_style(rest):
        return -1 if _is_number(first) else 1
    if first in rest:
        return -1
    if _is_number(first):
        return 0
    repeated = len(set(rest)) <= len(rest) / 2
    lengthy = sum(map(len, rest)) / len(rest) > 4 * max(len(first), 5)
    return 1 if repeated or lengthy or (parse.date_style(rest[:50]) and not parse.date_style([first])) else 0


def _all_numbers(cells: list[str]) -> bool:
    """Whether all are plain numbers and none is missing: a quick test for most columns of long tables."""
    try:
        return bool(cells) and all(value == value for value in map(float, cells)) and "_" not in "".join(cells)
    except ValueError:
        return False


def _is_number(cell: str) -> bool:
    return any(parse.number(cell, style) is not None for style in parse.NUMBER_STYLES)


def _is_place(name: str, count: int) -> bool:
    """Whether a column may be meant by its number: 0 is the first, -1 the last."""
    try:
        return -count <= int(name) < count
    except ValueError:
        return False


def _first_lines(text: str) -> list[str]:
    """The first lines; the last of them may be cut off, so it is left out where there are many."""
    lines = list(itertools.islice(io.StringIO(text, newline=""), LINES))
    return lines[:-1] if len(lines) > 10 else lines


def _utf16(content: bytes) -> list[str]:
    """UTF-16 without a mark has a zero in every other byte of plain letters."""
    head = content[:1000]
    if head[1::2].count(0) > len(head) / 4:
        return ["utf-16-le"]
    return ["utf-16-be"] if head[0::2].count(0) > len(head) / 4 else []


def _is_double(lines: list[str]) -> bool:
    """Whether there are cells in ", perhaps with doubled ones or ends of lines inside."""
    return re.search(r'(?:^|[,;\t| ])[ \t]*"(?:[^"]|"")*"\s*(?:[,;\t|]|$)', "".join(lines), re.MULTILINE) is not None


def _cells(lines: list[str], separator: str) -> list[tuple[int, str]]:
    """The number of its line and the text of every cell, with the ' that are around it."""
    ends = re.escape(separator)
    pattern = re.compile(rf"[ \t]*('(?:[^']|'')*'(?=[ \t]*(?:[{ends}\r\n]|$))|[^{ends}\r\n]*)[ \t]*({ends}|\r?\n|\r|$)")
    found, line = [], 0
    for cell, end in pattern.findall("".join(lines)):
        found.append((line, cell.strip()))
        line += end not in (separator, "")
    return found


def _score(lines: list[str], separator: str, quote: str) -> tuple[float, float, int]:
    """(share of lines with the usual number of cells, share of cells that need no more cutting, preference)."""
    if separator == " ":
        lines = [line.replace("\t", " ").strip() for line in lines]
    try:
        rows = list(csv.reader(lines, delimiter=separator, quotechar=quote, skipinitialspace=True))
    except csv.Error:
        return (0.0, 0.0, 0)
    rows = [row for row in rows if row and any(cell.strip() for cell in row)]
    width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    if width < 2:
        return (0.0, 0.0, 0)
    cells = [cell for row in rows[1:] or rows for cell in row]
    clean = sum(not re.search(r"[,;\t|]", cell) or _is_number(cell) for cell in cells) / len(cells)
    if separator == " " and (count < len(rows) - 1 or not any(map(_is_number, rows[-1]))):
        return (0.0, 0.0, 0)  # sentences have blanks, too
    return (round(count / len(rows), 2), round(clean, 2), -SEPARATORS.index(separator))

"""Strings to numbers, dates and booleans, with the standard library alone.

A table has one decimal sign, found from all its columns (`decimal_of`) and kept in the schema: "1,234" is more than a
thousand in a table with "12,345.6", and between one and two in a table with "0,5". Where nothing tells, it is more than
a thousand. A group of thousands never begins with 0. A column has one style, found from all its different values.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from shoal.errors import UserError
from shoal.tables.missing import is_marker

NUMBER_STYLES = ("plain", "signs", "comma")
DECIMALS = (".", ",")
_MONEY = r"^[-+]?\s*[$€£¥]?\s*[-+]?([1-9]\d{0,2}(?:([SEPARATORS])\d{3})(?:\2\d{3})*|\d+)?(POINT\d*)?\s*[%$€£¥]?$"
SIGNS = re.compile(_MONEY.replace("SEPARATORS", ",' ").replace("POINT", r"\."))
WHOLE = re.compile(r"[-+]?\d+(\.0+)?", re.ASCII)
COMMA = re.compile(_MONEY.replace("SEPARATORS", ".' ").replace("POINT", ","))
BOOLEANS = {"true": 1.0, "false": 0.0, "t": 1.0, "f": 0.0, "yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0}
TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
DAYS = (
    *("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m.%d.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y-%m-%d", "%Y.%m.%d"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y"),
    *("%b %d %Y", "%B %d %Y", "%a, %d %b %Y", "%a %b %d %Y"),
)
DATE_STYLES = ("iso", *(day + time for day in DAYS for time in TIMES), "%Y-%m", "%Y/%m", "%b %Y", "%B %Y", "%m/%Y")
OTHER_ORDER = {"%m/%d": "%d/%m", "%m.%d": "%d.%m", "%m-%d": "%d-%m"}
LONGEST_DATE = 40
BLANKS_AND_MINUS = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ") | {
    0x2212: "-",
    0x2019: "'",  # between thousands in Switzerland
}  # as spreadsheets write them


def number(text: str, style: str) -> float | None:
    """The number in a cell, or None if there is none in this style.

    >>> [number("$1,234.50", "signs"), number("12,5", "comma"), number("12%", "signs"), number("1_000", "plain")]
    [1234.5, 12.5, 12.0, None]
    """
    text = text.translate(BLANKS_AND_MINUS).strip()
    bare = text.replace(",", ".", 1) if style == "comma" and "." not in text else text
    try:
        if "_" in text:
            return None
        if style != "comma" or "." not in text:
            return float(bare)
    except ValueError:
        pass
    if style == "plain":
        return None
    if text.startswith("(") and text.endswith(")"):  # how bookkeepers write a loss
        text = "-" + text[1:-1]
    pattern, thousands, point = (SIGNS, ",", ".") if style == "signs" else (COMMA, ".", ",")
    if not pattern.match(text) or not any(c.isdigit() for c in text):
        return None
    text = re.sub(r"[\s$€£¥%']", "", text).replace(thousands, "").replace(point, ".")
    try:
        return float(text)
    except ValueError:
        return None


def boolean(text: str) -> float | None:
    return BOOLEANS.get(text.strip().lower())


def moment(text: str, style: str) -> datetime.datetime | None:
    """The date and time in a cell, in universal time if it names a zone; None if there is none in this style.

    >>> moment("2024-02-29T12:00:00+02:00", "iso"), moment("31/12/2023", "%d/%m/%Y"), moment("31/12/2023", "%m/%d/%Y")
    (datetime.datetime(2024, 2, 29, 10, 0), datetime.datetime(2023, 12, 31, 0, 0), None)
    """
    text = text.strip()
    try:
        if style == "iso":
            if len(text) < 10 or text[4:5] != "-":  # also "2024W01" and "20240101" would pass, which are codes
                return None
            found = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        else:
            found = datetime.datetime.strptime(text, style)
        return found.astimezone(datetime.timezone.utc).replace(tzinfo=None) if found.tzinfo is not None else found
    except (ValueError, OverflowError):  # in universal time, it may be beyond the calendar
        return None


def moments(text: str) -> set[datetime.datetime]:
    """All dates that a cell may mean.

    >>> sorted(found.isoformat() for found in moments("01.02.1900")), moments("999")
    (['1900-01-02T00:00:00', '1900-02-01T00:00:00'], set())
    """
    found = (moment(text, style) for style in DATE_STYLES)
    return {one for one in found if one is not None}


def number_style(values: Sequence[str], decimal: str = ".") -> str | None:
    """The style in which every value is a number or a marker of a missing one; the first that fits.

    >>> number_style(["1,234"], "."), number_style(["1,234"], ","), number_style(["0,995"], ".")
    ('signs', 'comma', 'comma')
    """
    styles = ("comma", "plain", "signs") if decimal == "," else NUMBER_STYLES
    style = _first_style(values, styles, number)
    whole = style == "comma" and not any("," in value or "." in value for value in values)
    return "plain" if whole and _first_style(values, ("plain",), number) else style


def read_in_two_ways(values: Iterable[str | None]) -> str | None:
    """A value whose commas may be decimal ones or between thousands, where nothing in its column tells which.

    >>> read_in_two_ways(["12", "1,234"]), read_in_two_ways(["0,5", "1,234"]), read_in_two_ways(["1 234"])
    ('1,234', None, None)
    """
    known = [value for value in values if value is not None and not is_marker(value)]
    pairs = [(number(value, "signs"), number(value, "comma")) for value in known]
    if any(None in pair for pair in pairs):
        return None
    return next((value for value, (one, other) in zip(known, pairs, strict=True) if one != other), None)


def refuse_two_signs(name: str, cells: Sequence[str | None], decimal: str, row_numbers: Iterable[int]) -> None:
    """Refuse a column of numbers of which some have a decimal point and others a decimal comma."""
    numbers = {cell for cell in cells if cell is not None and not is_marker(cell)}
    if not numbers or any(number(cell, "signs") is None and number(cell, "comma") is None for cell in numbers):
        return
    style, sign, wrong = ("comma", "comma", "point") if decimal == "," else ("signs", "point", "comma")
    unfit = {cell for cell in numbers if number(cell, style) is None}
    row, cell = next((row, cell) for row, cell in zip(row_numbers, cells, strict=True) if cell in unfit)
    raise UserError(
        f"column {name!r} has numbers with decimal points and with decimal commas; row {row} (the first row of "
        f"data is 1) has {cell!r}, with a decimal {wrong} where others have a decimal {sign}: write all numbers in one "
        "way, or ask for the kind category if they are no numbers"
    )


def are_percents(name: str, cells: Iterable[str | None], row_numbers: Iterable[int]) -> bool:
    """Whether numbers have percent signs. A column is refused if only some of them have one: 0.5 is not 0.5%.

    >>> are_percents("a", ["5%", "0", None], [1, 2, 3]), are_percents("a", ["5", "$7"], [1, 2])
    (True, False)
    """
    cells = list(cells)
    if not any(cell is not None and "%" in cell for cell in cells):
        return False
    for row, cell in zip(row_numbers, cells, strict=True):
        if cell is not None and is_bare(cell):
            raise UserError(
                f"column {name!r} has numbers with and without a percent sign; row {row} (the first row of data is "
                f"1) has {cell!r}, without one: write all numbers in one way"
            )
    return True


def is_bare(cell: str) -> bool:
    """Whether a cell among percents is a number without the sign; a zero needs none."""
    return not ("%" in cell or is_marker(cell) or 0 in (number(cell, "signs"), number(cell, "comma")))


def decimal_of(columns: Iterable[Iterable[str | None]], points: int = 0) -> str:
    """The decimal sign of most columns that show one, "" where none does; "." where as many show either.

    A column shows it by a number that the other sign does not explain: "0,5" or "1.234,5", "2.5" or "1,234.5". "2.0"
    shows nothing: columns of numbers spell 2 so. `points`: other columns with decimal points.

    >>> decimal_of([["1,234"], ["0,5", "12,25"]]), decimal_of([["1,234"]]), decimal_of([["1.5"], ["0,5"]])
    (',', '', '.')
    """
    shown = Counter({".": points})
    shown.update(map(_shown_decimal, columns))
    return "" if not shown["."] + shown[","] else "," if shown[","] > shown["."] else "."


def _shown_decimal(column: Iterable[str | None]) -> str:
    real = (value for value in column if value is not None and not is_marker(value))
    known: Iterable[str] = list(itertools.islice(real, 20))
    fits = dict.fromkeys(("signs", "comma"), bool(known))
    whole = True
    while any(fits.values()) and known:
        for value in known:
            whole = whole and WHOLE.fullmatch(value.strip()) is not None
            for style, fitted in fits.items():
                fits[style] = fitted and number(value, style) is not None
            if not any(fits.values()):
                return ""
        known = set(real)
    return "" if fits["signs"] == fits["comma"] or whole else "." if fits["signs"] else ","


def date_style(values: Sequence[str]) -> str | None:
    """The style in which every value is a date or a marker of a missing one."""
    return _first_style([value for value in values if not is_marker(value)], _date_styles_for(values), moment)


def is_boolean(values: Sequence[str]) -> bool:
    """Whether the values are true and false. "yes" and "no" are categories: a "perhaps" may follow in new data."""
    return {value.strip().lower() for value in values if not is_marker(value)} == {"true", "false"}


def ambiguous(values: Sequence[str], style: str) -> bool:
    """Whether all values are also dates with day and month exchanged."""
    other = next((style.replace(one, two, 1) for one, two in OTHER_ORDER.items() if one in style), None)
    return other is not None and _first_style(values, (other,), moment) is not None


def _date_styles_for(values: Sequence[str]) -> tuple[str, ...]:
    """The styles that fit the first values. Only these are tried on all of them, since strptime is slow."""
    sample = [value for value in values[:200] if not is_marker(value)][:20]
    if not sample or not all(len(v) <= LONGEST_DATE and sum(c.isdigit() for c in v) >= 4 for v in sample):
        return ()
    return tuple(style for style in DATE_STYLES if all(moment(value, style) is not None for value in sample))


def _first_style(
    values: Sequence[str], styles: Sequence[str], parse: Callable[[str, str], object | None]
) -> str | None:
    real = [value for value in values if not is_marker(value)]
    if not real:
        return None
    return next((style for style in styles if all(parse(value, style) is not None for value in real)), None)

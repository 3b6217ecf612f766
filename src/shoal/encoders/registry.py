"""The table of encoders: what a column of each kind is encoded by.

A new encoder is one file beside this one and one line here; a new kind of column is also a line in
`shoal.tables.kinds.KINDS`, which says how its cells are read.
"""

from __future__ import annotations

from shoal.encoders.categories import CategoryEncoder
from shoal.encoders.column import ColumnEncoder
from shoal.encoders.dates import DateEncoder
from shoal.encoders.numbers import NumberEncoder
from shoal.encoders.texts import TextEncoder

ENCODERS: dict[str, type[ColumnEncoder]] = {
    "number": NumberEncoder,
    "boolean": NumberEncoder,
    "category": CategoryEncoder,
    "date": DateEncoder,
    "text": TextEncoder,
}

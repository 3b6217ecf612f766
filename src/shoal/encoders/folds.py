"""A table to the inputs of the networks of every fold: what folds share is done once.

Reading the cells, numbering the values of categories, finding missing cells and cutting texts into words do not depend
on the fold. Scaling does, and so does the input that a value of a category has; these are tables that are looked up.
The bits are those of `Encoder.transform` of each fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.encoders.categories import CategoryEncoder
from shoal.encoders.encoder import Encoder, check_own_inputs
from shoal.encoders.numbers import NumberEncoder
from shoal.tables.missing import missing_cells
from shoal.tables.table import Table

UNSEEN = "\0unseen"  # stands for any string that no fold has seen


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table in which every value of a category has a number, the same for all folds."""

    table: Table  # as the schema reads it
    codes: np.ndarray  # (n, categories) int64

    def __len__(self) -> int:
        return len(self.table)

    def take(self, rows: np.ndarray | slice) -> ReadTable:
        return ReadTable(self.table.take(rows), self.codes[rows])

    @cached_property
    def missing(self) -> dict[str, np.ndarray]:
        """Which cells of a column of numbers are missing; filled in as folds ask."""
        return {}

    def missing_in(self, name: str) -> np.ndarray:
        if name not in self.missing:
            self.missing[name] = missing_cells(self.table[name])
        return self.missing[name]


class FoldEncoders:
    """The encoders of all folds of a model, for one table at a time.

    >>> table = Table.of({"size": [1.0, 2.0, 4.0], "colour": ["red", "blue", "red"]})
    >>> from shoal.tables.schema import Schema
    >>> encoders = Encoder.fit_many(Schema.of(table), table, [np.array([1.0, 1.0, 0.0]), np.ones(3)])
    >>> folds = FoldEncoders(encoders)
    >>> out = np.zeros((3, encoders[1].width("plain")), dtype=np.float32)
    >>> folds.write(1, folds.read(table), {"plain": out})
    >>> bool((out == encoders[1].transform(table)["plain"]).all())
    True
    """

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        self.encoders = list(encoders)
        self.schema = self.encoders[0].schema
        names = [name for name, part in self.encoders[0].columns.items() if isinstance(part, CategoryEncoder)]
        self._categories = names
        self._numbers: list[dict[str | None, int]] = []  # of the values of each category
        start = 0
        for name in names:
            values = {value for encoder in self.encoders for value in _values(encoder, name)}
            known = [*sorted(value for value in values if value is not None), UNSEEN, None]
            self._numbers.append({value: start + j for j, value in enumerate(known)})
            start += len(known)
        self._lookup = [self._places(encoder, start) for encoder in self.encoders]

    def _places(self, encoder: Encoder, total: int) -> _Lookup:
        """Which input of a fold each value has, and what is written there."""
        place, value = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.float32)
        used, other, at = [], [], 0
        for name, part in encoder.columns.items():
            if isinstance(part, CategoryEncoder) and part.width:
                j = self._categories.index(name)
                codes = np.array(list(self._numbers[j].values()))
                block = np.zeros((len(codes), part.width), dtype=np.float32)
                part.write_values(np.arange(len(codes)), list(self._numbers[j]), block)
                first = np.argmax(block != 0, axis=1)  # the first input gets a zero where a value has none
                place[codes], value[codes] = at + first, block[np.arange(len(codes)), first]
                used.append(j)
            elif part.width:
                other.append((name, at))
            at += part.width
        return _Lookup(place, value, np.array(used, dtype=np.int64), other)

    def read(self, table: Table) -> ReadTable:
        """The cells as the schema reads them, with a number for each value of a category."""
        table = self.schema.check(table)
        codes = np.empty((len(table), len(self._categories)), dtype=np.int64)
        for j, (name, number) in enumerate(zip(self._categories, self._numbers, strict=True)):
            of_value, values = table.cells(name).factor()
            codes[:, j] = np.array([number.get(value, number[UNSEEN]) for value in values])[of_value]
        return ReadTable(table, codes)

    def write(self, fold: int, rows: ReadTable, out: dict[str, np.ndarray]) -> None:
        """Fill matrices (n, at least width) of zeros, one for each encoding; more columns stay zero."""
        self.encoders[fold].write(rows.table, out, lambda inputs: self._write_inputs(fold, rows, inputs))

    def _write_inputs(self, fold: int, rows: ReadTable, out: np.ndarray) -> None:
        lookup, columns = self._lookup[fold], self.encoders[fold].columns
        if len(lookup.used):
            codes = rows.codes if len(lookup.used) == rows.codes.shape[1] else rows.codes[:, lookup.used]
            out[np.arange(len(rows))[:, None], lookup.place[codes]] = lookup.value[codes]
        for name, at in lookup.other:
            part = columns[name]
            if isinstance(part, NumberEncoder):
                out[:, at] = rows.missing_in(name)
                continue
            block = out[:, at : at + part.width]
            part.write_inputs(rows.table.cells(name), block)
            check_own_inputs(self.schema, name, part, block)


@dataclass(frozen=True, eq=False)
class _Lookup:
    """The inputs of one fold: of values of categories by number, and the first one of each other column."""

    place: np.ndarray  # (values,) among the inputs of the fold
    value: np.ndarray  # (values,) float32
    used: np.ndarray  # categories that have inputs in this fold
    other: list[tuple[str, int]]


def _values(encoder: Encoder, name: str) -> set[str | None]:
    part = encoder.columns[name]
    assert isinstance(part, CategoryEncoder)
    return set(part.values)

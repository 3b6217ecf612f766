"""A table to the inputs of networks: one dense float32 matrix for each encoding of the numbers.

Fitted on the training rows of one fold, given as weights. The result depends on the different rows and their total
weights alone: a row of weight two counts as the row twice, a row of weight zero leaves no trace, and the order of rows
does not matter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal.encoders.categories import CategoryEncoder
from shoal.encoders.column import ColumnEncoder
from shoal.encoders.dates import DateEncoder
from shoal.encoders.numbers import NumberEncoder
from shoal.encoders.scaling import NumberScaling, sorted_order
from shoal.encoders.states import describe, restore
from shoal.encoders.texts import TextEncoder
from shoal.encoders.thresholds import find_thresholds
from shoal.errors import UserError, WrongType
from shoal.tables.kinds import Column
from shoal.tables.schema import Schema
from shoal.tables.table import Table

ENCODERS: dict[str, type[ColumnEncoder]] = {
    "number": NumberEncoder,
    "boolean": NumberEncoder,
    "category": CategoryEncoder,
    "date": DateEncoder,
    "text": TextEncoder,
}


ENCODINGS = ("plain", "piecewise", "quantile", "steps")
MOST_NUMBERS = 85  # of a table; where there are more, the plain encoding is the only one


@dataclass(frozen=True, eq=False)
class Encoder:
    """A fitted encoding. Columns of the result: the numbers of all columns, scaled, then the inputs of all columns.

    >>> table = Table.of({"size": [1.0, 2.0, None, 4.0], "colour": ["red", "blue", "red", "green"]})
    >>> encoder = Encoder.fit(Schema.of(table), table, np.ones(4))
    >>> encoder.feature_names
    ['size', 'size is missing', 'colour = blue', 'colour = green', 'colour = red']
    >>> encoder.transform(table)["plain"].shape
    (4, 5)
    """

    schema: Schema
    scaling: NumberScaling
    columns: dict[str, ColumnEncoder]  # in the order of their results

    @staticmethod
    def fit(schema: Schema, table: Table, weight: np.ndarray) -> Encoder:
        return Encoder.fit_many(schema, table, [weight])[0]

    @staticmethod
    def fit_many(
        schema: Schema, table: Table, weights: Sequence[np.ndarray], targets: Sequence[np.ndarray] | None = None
    ) -> list[Encoder]:
        """One encoder per fold. What does not depend on the fold, such as cutting texts into words, is done once.

        `targets` (n, outputs) of each fold, numbers of one unit or 0 and 1, are needed for the encoding "steps".
        """
        table = schema.check(table)
        made = [_fit(schema, table, _checked_weight(weight, len(table))) for weight in weights]
        if targets is not None and 0 < len(made[0].number_names) <= MOST_NUMBERS:
            folds = zip(made, weights, targets, strict=True)
            made = [encoder._with_steps(table, weight, target) for encoder, weight, target in folds]
        table.forget("order")
        return made

    def transform(self, table: Table, encodings: Sequence[str] = ENCODINGS) -> dict[str, np.ndarray]:
        """Matrices (n, width) float32, C-ordered, of those encodings that there are."""
        made = {
            encoding: np.zeros((len(table), self.width(encoding)), dtype=np.float32)
            for encoding in encodings
            if self.has(encoding)
        }
        self.write(table, made)
        return made

    def has(self, encoding: str) -> bool:
        """Whether there is such an encoding: all but the plain one need numbers, and steps need thresholds."""
        return encoding == "plain" or bool(
            len(self.scaling.step_column if encoding == "steps" else self.scaling.centre)
        )

    def width(self, encoding: str) -> int:
        """Columns of one encoding."""
        return self.scaling.width(encoding) + self.inputs

    def write(self, table: Table, out: Mapping[str, np.ndarray]) -> None:
        """Fill matrices (n, at least width) of zeros, one for each encoding; more columns stay zero."""
        table = self.schema.check(table)
        numbers = numbers_of(self.columns, table)
        first: np.ndarray | None = None  # inputs are the same in every encoding
        for encoding in sorted(out, key=ENCODINGS.index):
            matrix, at = out[encoding], self.scaling.width(encoding)
            if encoding == "steps" and "quantile" in out:  # which was written before
                d = numbers.shape[1]
                matrix[:, :d] = out["quantile"][:, :d]
                self.scaling.write_steps(numbers, matrix[:, d:at])
            else:
                self.scaling.write(encoding, numbers, matrix[:, :at])
            inputs = matrix[:, at : at + self.inputs]
            if first is None:
                self._write_inputs(table, inputs)
                first = inputs
            else:
                inputs[:] = first

    def numbers(self, table: Table) -> np.ndarray:
        """(n, number of names) float64: the numbers of all columns, scaled as in "plain"."""
        return self.scaling.plain(numbers_of(self.columns, self.schema.check(table))).astype(np.float64)

    @property
    def number_names(self) -> list[str]:
        """Names of the numbers that are scaled, in order."""
        return [name for column, part in self.columns.items() for name in part.number_names(column)]

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of "plain"."""
        inputs = [name for column, part in self.columns.items() for name in part.input_names(column)]
        return self.number_names + inputs

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The encoders of columns as JSON, and all arrays."""
        self.schema.refuse_own_encoders("saved", "its file holds no code")
        arrays: dict[str, np.ndarray] = {}
        described = describe(self.columns, "columns", arrays)
        describe(self.scaling, "scaling", arrays)
        return described, arrays

    @staticmethod
    def from_state(schema: Schema, described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Encoder:
        """An encoder that gives the same bits as the one whose `state` this is."""
        columns = {
            column.name: restore(ENCODERS[column.kind], f"columns.{k}", described[column.name], arrays)
            for k, column in enumerate(_in_order(schema))
        }
        return Encoder(schema, restore(NumberScaling, "scaling", {}, arrays), columns)

    @cached_property
    def inputs(self) -> int:
        """Columns that are the same in every encoding."""
        return sum(part.width for part in self.columns.values())

    def _with_steps(self, table: Table, weight: np.ndarray, target: np.ndarray) -> Encoder:
        """The same with the encoding "steps", where the target has thresholds."""
        numbers, inputs = numbers_of(self.columns, table), np.zeros((len(table), self.inputs), dtype=np.float32)
        self._write_inputs(table, inputs)
        place, above = find_thresholds(np.concatenate([numbers, inputs], axis=1), target, weight, numbers.shape[1])
        return replace(self, scaling=self.scaling.with_steps(numbers, weight, place, above))

    def _write_inputs(self, table: Table, matrix: np.ndarray) -> None:
        at = 0
        for name, part in self.columns.items():
            if part.width:
                block = matrix[:, at : at + part.width]
                part.write_inputs(table.cells(name), block)
                if name in self.schema.own_encoders and not np.isfinite(block).all():
                    raise UserError(f"inputs must be finite; {type(part).__name__} of column {name!r} gave others")
                at += part.width


def _in_order(schema: Schema) -> list[Column]:
    """The columns in the order of their results: numbers and dates, categories, texts; each as in the table."""
    return sorted(schema.used, key=lambda column: _prototype(column).order)


def _prototype(column: Column) -> Any:
    return ENCODERS[column.kind] if column.encoder is None else column.encoder


def _fit(schema: Schema, table: Table, weight: np.ndarray) -> Encoder:
    columns = {column.name: _fit_column(column, table, weight) for column in _in_order(schema)}
    numbers = numbers_of(columns, table)
    order = _shared_order(table, numbers) if _shared(columns) else None
    return Encoder(schema, NumberScaling.fit(numbers, weight, order), columns)


def _fit_column(column: Column, table: Table, weight: np.ndarray) -> ColumnEncoder:
    cells = table.cells(column.name)
    if column.encoder is None:
        return ENCODERS[column.kind].fit(cells, weight)
    fitted = copy.deepcopy(column.encoder).fit(cells, weight)
    if not isinstance(fitted, ColumnEncoder):
        raise WrongType(f"fit of {type(column.encoder).__name__} must return a ColumnEncoder; got {fitted!r}")
    return fitted


def _shared(columns: Mapping[str, ColumnEncoder]) -> bool:
    """Whether the numbers are the same in every fold."""
    return all(part.shared_numbers for part in columns.values())


def _shared_order(table: Table, numbers: np.ndarray) -> Callable[[int], np.ndarray]:
    """The sorted order of each column, worked out once for all folds."""
    known: dict[int, np.ndarray] = table.remember("order", dict)

    def order(j: int) -> np.ndarray:
        if j not in known:
            known[j] = sorted_order(np.ascontiguousarray(numbers[:, j]))
        return known[j]

    return order


def numbers_of(columns: Mapping[str, ColumnEncoder], table: Table) -> np.ndarray:
    """(n, d) float64 with NaN: the numbers of all columns; one matrix for all folds, where it is the same."""
    if table.block is not None and all(isinstance(part, NumberEncoder) for part in columns.values()):
        return table.block
    if not _shared(columns):
        return _number_matrix(columns, table)
    return table.remember("numbers", lambda: _number_matrix(columns, table))


def _number_matrix(columns: Mapping[str, ColumnEncoder], table: Table) -> np.ndarray:
    blocks: list[np.ndarray] = [np.empty((len(table), 0))]
    for name, part in columns.items():
        count = len(part.number_names(name))
        if count:
            block = part.numbers(table.cells(name))
            if block.shape != (len(table), count):
                raise UserError(
                    f"numbers of {type(part).__name__} must have the shape ({len(table)}, {count}), a column for each "
                    f"of its number_names; column {name!r} gave {block.shape}"
                )
            blocks.append(block)
    matrix = np.empty((len(table), sum(block.shape[1] for block in blocks)), order="F")
    return np.concatenate(blocks, axis=1, out=matrix)  # columns are what it is read by


def _checked_weight(weight: np.ndarray, rows: int) -> np.ndarray:
    weight = np.asarray(weight, dtype=np.float64)
    if weight.shape != (rows,):
        raise UserError(f"weight must have one number per row, shape ({rows},); got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any() or not (weight > 0).any():
        raise UserError("weights must be finite, not negative and not all zero: give at least one row a weight above 0")
    return weight


def arrays_under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those whose names begin so, under the rest of their names."""
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}

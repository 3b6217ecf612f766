"""A table to the inputs of networks: one dense float32 matrix per encoding of the numbers.

Fitted on the training rows of one fold, given as weights. The result depends on the different rows and their total
weights alone: a row of weight two counts as the row twice, a row of weight zero leaves no trace, and the order of rows
does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.encoders.dates import DateParts
from shoal.encoders.numbers import Numbers, sorted_order
from shoal.tables.schema import Schema
from shoal.tables.table import Table

MOST_VALUES = 50  # one-hot columns of one category
MOST_COUNTED = 10_000  # values whose frequency is kept
RARE = 3.0  # values of less weight than this, or than RARE_SHARE of all weight, are pooled
RARE_SHARE = 0.01
ENCODINGS = ("plain", "piecewise")


@dataclass(frozen=True)
class Categories:
    """One-hot columns of one category column.

    `values` have a column each; None is the missing value. With `pooled`, the rest shares one more column: values that
    were rare, and values never seen, which are rare by definition. Two values without a pool are one column of -1 and
    1, where an unseen value is 0. `frequent` (value -> log(1 + weight)) is there if values were cut off at the limit.
    """

    values: tuple[str | None, ...]
    pooled: bool
    frequent: dict[str, float] | None

    @staticmethod
    def fit(codes: np.ndarray, values: Sequence[str | None], weight: np.ndarray) -> Categories:
        mass = np.bincount(codes, weights=weight, minlength=len(values))
        seen = [j for j in range(len(values)) if mass[j] > 0]
        order = sorted(seen, key=lambda j: -mass[j])  # equal ones in the order of values, which is the alphabet's
        least = min(RARE, RARE_SHARE * float(mass.sum()))
        common = [j for j in order if mass[j] >= least or values[j] is None]
        kept = common[:MOST_VALUES] if len(order) > 2 else order
        counted = [j for j in order if values[j] is not None][:MOST_COUNTED] if len(common) > MOST_VALUES else None
        frequent = {str(values[j]): float(np.log1p(mass[j])) for j in counted} if counted else None
        return Categories(tuple(values[j] for j in sorted(kept)), len(kept) < len(order), frequent)

    @property
    def width(self) -> int:
        return 1 if self._signed else len(self.values) + self.pooled

    @property
    def _signed(self) -> bool:
        return len(self.values) == 2 and not self.pooled

    def names(self, column: str) -> list[str]:
        labels = ["missing" if value is None else value for value in self.values]
        if self._signed:
            return [f"{column} = {labels[1]}, not {labels[0]}"]
        return [f"{column} = {label}" for label in labels] + [f"{column} = other"] * self.pooled

    def write(self, codes: np.ndarray, values: Sequence[str | None], out: np.ndarray) -> None:
        """Fill out (n, width), which holds zeros."""
        position = {value: j for j, value in enumerate(self.values)}
        elsewhere = len(self.values) if self.pooled else -1
        places = np.array([position.get(value, -1 if value is None else elsewhere) for value in values], dtype=np.int64)
        place = places[codes]
        if self._signed:
            out[:, 0] = np.array([-1.0, 1.0, 0.0], dtype=np.float32)[place]
            return
        known = np.flatnonzero(place >= 0)
        out[known, place[known]] = 1.0

    def frequency(self, codes: np.ndarray, values: Sequence[str | None]) -> np.ndarray:
        assert self.frequent is not None
        found = [np.nan if value is None else self.frequent.get(value, 0.0) for value in values]
        return np.array(found, dtype=np.float64)[codes]


@dataclass(frozen=True, eq=False)
class Encoder:
    """A fitted encoding. Columns of the result: numbers, dates, frequencies; missing indicators; categories; texts.

    >>> table = Table.of({"size": [1.0, 2.0, None, 4.0], "colour": ["red", "blue", "red", "green"]})
    >>> encoder = Encoder.fit(Schema.of(table), table, np.ones(4))
    >>> encoder.feature_names
    ['size', 'size is missing', 'colour = blue', 'colour = green', 'colour = red']
    >>> encoder.transform(table)["plain"].shape
    (4, 5)
    """

    schema: Schema
    numbers: Numbers
    dates: dict[str, DateParts]
    missing: tuple[str, ...]  # columns of numbers or dates with an indicator
    categories: dict[str, Categories]
    texts: dict[str, Any]  # of shoal.encoders.texts.Texts, which is imported where there are texts only

    @staticmethod
    def fit(schema: Schema, table: Table, weight: np.ndarray) -> Encoder:
        return Encoder.fit_many(schema, table, [weight])[0]

    @staticmethod
    def fit_many(schema: Schema, table: Table, weights: Sequence[np.ndarray]) -> list[Encoder]:
        """One encoder per fold. What does not depend on the fold, such as cutting texts into words, is done once."""
        table = schema.check(table)
        made = [_fit(schema, table, _checked_weight(weight, len(table))) for weight in weights]
        table.forget("order")
        return made

    def transform(self, table: Table, encodings: Sequence[str] = ENCODINGS) -> dict[str, np.ndarray]:
        """Matrices (n, width) float32, C-ordered: "plain" and, where the table has numbers, "piecewise"."""
        made = {
            encoding: np.zeros((len(table), self.width(encoding)), dtype=np.float32)
            for encoding in encodings
            if encoding == "plain" or (encoding == "piecewise" and len(self.numbers.centre))
        }
        self.write(table, made)
        return made

    def width(self, encoding: str) -> int:
        """Columns of one encoding."""
        parts = [*self.categories.values(), *self.texts.values()]
        return self.numbers.width(encoding) + len(self.missing) + sum(part.width for part in parts)

    def write(self, table: Table, out: Mapping[str, np.ndarray]) -> None:
        """Fill one matrix (n, width) of zeros for each encoding."""
        table = self.schema.check(table)
        values = self._values(table)
        rest = len(self.missing) + sum(part.width for part in [*self.categories.values(), *self.texts.values()])
        first: np.ndarray | None = None  # all but the numbers is the same in every encoding
        for encoding, matrix in out.items():
            at = self.numbers.width(encoding)
            self.numbers.write(encoding, values, matrix[:, :at])
            if first is None:
                first = matrix[:, at : at + rest]
                self._write_rest(table, first)
            else:
                matrix[:, at : at + rest] = first

    @property
    def number_names(self) -> list[str]:
        """Names of the columns that go through `numbers`, in order."""
        names = []
        for column in self.schema.used:
            if column.kind in ("number", "boolean"):
                names.append(column.name)
            elif column.kind == "date":
                names += self.dates[column.name].names(column.name)
        return names + [f"{name}: frequency" for name, part in self.categories.items() if part.frequent is not None]

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of "plain"."""
        names = self.number_names + [f"{name} is missing" for name in self.missing]
        for name, part in self.categories.items():
            names += part.names(name)
        for name, text in self.texts.items():
            names += text.names(name)
        return names

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything as JSON and arrays; `from_state` makes an encoder of it that gives the same bits."""
        arrays = {f"numbers.{key}": array for key, array in self.numbers.state().items()}
        texts = {}
        for position, (name, text) in enumerate(self.texts.items()):
            texts[name], parts = text.state()
            arrays.update({f"text.{position}.{key}": array for key, array in parts.items()})
        categories = {
            name: {"values": list(part.values), "pooled": part.pooled, "frequent": part.frequent}
            for name, part in self.categories.items()
        }
        described = {
            "schema": self.schema.as_dict(),
            "dates": {name: part.as_dict() for name, part in self.dates.items()},
            "missing": list(self.missing),
            "categories": categories,
            "texts": texts,
        }
        return described, arrays

    @staticmethod
    def from_state(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Encoder:
        categories = {
            name: Categories(tuple(part["values"]), part["pooled"], part["frequent"])
            for name, part in described["categories"].items()
        }
        return Encoder(
            Schema.from_dict(described["schema"]),
            Numbers.from_state(_under("numbers.", arrays)),
            {name: DateParts.from_dict(part) for name, part in described["dates"].items()},
            tuple(described["missing"]),
            categories,
            _texts_from_state(described["texts"], arrays),
        )

    def _values(self, table: Table) -> np.ndarray:
        """(n, d) float64 with NaN: what goes through `numbers`."""
        return _number_values(self.schema, table, self.dates, self.categories)

    def _write_rest(self, table: Table, matrix: np.ndarray) -> None:
        at = 0
        for name in self.missing:
            matrix[:, at] = _is_missing(table[name])
            at += 1
        for name, category in self.categories.items():
            category.write(*table.factor(table.names.index(name)), matrix[:, at : at + category.width])
            at += category.width
        for name, text in self.texts.items():
            matrix[:, at : at + text.width] = text.transform(table, table.names.index(name))
            at += text.width


def _fit(schema: Schema, table: Table, weight: np.ndarray) -> Encoder:
    kinds = {column.name: column.kind for column in schema.used}
    position = {name: j for j, name in enumerate(table.names)}
    dates = {name: DateParts.fit(table[name], weight) for name, kind in kinds.items() if kind == "date"}
    categories = {
        name: Categories.fit(*table.factor(position[name]), weight)
        for name, kind in kinds.items()
        if kind == "category"
    }
    columns = [name for name, kind in kinds.items() if kind in ("number", "boolean", "date")]
    missing = [name for name in columns if _sometimes_missing(table[name], weight)]
    values = _number_values(schema, table, dates, categories)
    order = None if _differs(dates, categories) else _shared_order(table, values)
    texts = {name: _fit_text(table, position[name], weight) for name, kind in kinds.items() if kind == "text"}
    return Encoder(schema, Numbers.fit(values, weight, order), dates, tuple(missing), categories, texts)


def _differs(dates: Mapping[str, DateParts], categories: Mapping[str, Categories]) -> bool:
    """Whether columns of numbers depend on the fold: parts of dates and frequencies are fitted."""
    return bool(dates) or any(part.frequent is not None for part in categories.values())


def _shared_order(table: Table, values: np.ndarray) -> Callable[[int], np.ndarray]:
    """The sorted order of each column, worked out once for all folds."""
    known: dict[int, np.ndarray] = table.remember("order", dict)

    def order(j: int) -> np.ndarray:
        if j not in known:
            known[j] = sorted_order(np.ascontiguousarray(values[:, j]))
        return known[j]

    return order


def _number_values(
    schema: Schema, table: Table, dates: Mapping[str, DateParts], categories: Mapping[str, Categories]
) -> np.ndarray:
    """(n, d) float64 with NaN: what goes through `numbers`; one matrix for all folds, where it is the same."""
    if table.block is not None and not categories:
        return table.block
    if _differs(dates, categories):
        return _number_matrix(schema, table, dates, categories)
    return table.remember("numbers", lambda: _number_matrix(schema, table, dates, categories))


def _number_matrix(
    schema: Schema, table: Table, dates: Mapping[str, DateParts], categories: Mapping[str, Categories]
) -> np.ndarray:
    blocks: list[np.ndarray] = [np.empty((len(table), 0))]
    for column in schema.used:
        if column.kind in ("number", "boolean"):
            blocks.append(table[column.name][:, None])
        elif column.kind == "date":
            blocks.append(dates[column.name].values(table[column.name]))
    for name, part in categories.items():
        if part.frequent is not None:
            blocks.append(part.frequency(*table.factor(table.names.index(name)))[:, None])
    matrix = np.empty((len(table), sum(block.shape[1] for block in blocks)), order="F")
    return np.concatenate(blocks, axis=1, out=matrix)  # columns are what it is read by


def _is_missing(column: np.ndarray) -> np.ndarray:
    return np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)


def _sometimes_missing(column: np.ndarray, weight: np.ndarray) -> bool:
    """Missing in some of the rows that count, and not in all of them, where it would tell nothing."""
    missing = _is_missing(column)
    return bool(missing.any() and (missing & (weight > 0)).any() and (~missing & (weight > 0)).any())


def _checked_weight(weight: np.ndarray, rows: int) -> np.ndarray:
    weight = np.asarray(weight, dtype=np.float64)
    if weight.shape != (rows,):
        raise ValueError(f"weight must have one number per row, shape ({rows},); got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any() or not (weight > 0).any():
        raise ValueError(
            "weights must be finite, not negative and not all zero: give at least one row a weight above 0"
        )
    return weight


def _under(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _fit_text(table: Table, position: int, weight: np.ndarray) -> Any:
    from shoal.encoders.texts import Texts

    return Texts.fit(table, position, weight)


def _texts_from_state(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    if not described:
        return {}
    from shoal.encoders.texts import Texts

    return {
        name: Texts.from_state(state, _under(f"text.{position}.", arrays))
        for position, (name, state) in enumerate(described.items())
    }

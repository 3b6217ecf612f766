"""The target of a table: the column to predict, as classes or as numbers, and the rows and columns to learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION
from shoal.tables import parse
from shoal.tables.files import find_column
from shoal.tables.frames import cell_text, unmasked
from shoal.tables.missing import is_marker, is_missing, missing_cells
from shoal.tables.schema import Schema
from shoal.tables.spelling import example_of_codes, is_code, one_spelling, would_merge
from shoal.tables.table import Table
from shoal.validate import one_of

TASKS = (CLASSIFICATION, REGRESSION)
FEW_VALUES = 20  # whole numbers with more different values than this are quantities
FEW_SHARE = 0.05  # of the rows: so many different values may be classes
ALWAYS_FEW = 2  # so many are classes, however few rows there are
TEXT_SHARE = 0.5  # strings of which more than so many differ are no classes
FEWEST_ROWS = 2  # with a known target
UNCERTAIN_ROWS = 50
CLASSES_SHOWN = 8
LARGEST_TARGET = 1e37  # predictions are kept in single precision, which ends at 3e38
SMALLEST_TARGET = 1e-30


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """The rows with a known target: columns to learn from, the target, and what it is."""

    target: str  # its name
    kind: str  # classification or regression
    why: str  # how the kind was found
    X: Table
    y: np.ndarray  # (n,) int64 or str for classes, float64 for numbers
    notes: list[str] = field(default_factory=list)
    kinds: Mapping[str, Any] | None = None  # what the user says of columns

    @property
    def schema(self) -> Schema:
        """What the columns are. `Schema.of(X, kinds=kinds)` gives this same object: it is worked out once."""
        return Schema.of(self.X, kinds=self.kinds)

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in np.unique(self.y)] if self.kind == CLASSIFICATION else []

    def describe(self) -> str:
        """The target in words."""
        if self.kind == REGRESSION:
            low, middle, high = (f"{value:.6g}" for value in np.quantile(self.y, [0, 0.5, 1]))
            return f"{self.target}, numbers from {low} to {high}, half of them above {middle}"
        names, counts = np.unique(self.y, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:CLASSES_SHOWN]
        shown = [f"{names[k]} ({counts[k] / len(self.y):.0%})" for k in order]
        more = ["..."] if len(names) > CLASSES_SHOWN else []
        return f"{self.target}, {len(names)} classes: {', '.join(shown + more)}"


def find_target(
    table: Table,
    target: str,
    task: str | None = None,
    drop: Sequence[str] = (),
    ambiguous: Sequence[str] = (),
    kinds: Mapping[str, Any] | None = None,
    fewest: int = FEWEST_ROWS,
) -> LabelledTable:
    """The target, and whether it holds classes or numbers.

    `ambiguous`: names that several columns of the file have. `kinds`: see `Schema.of`; of columns beside
    the target, which are named or numbered as the target is. `fewest`: rows with a target that must be there.
    """
    if task is not None:
        one_of("--task", task, TASKS)
    position = find_column(table, target)
    if target in ambiguous:
        places = [j for j, name in enumerate(table.names) if name == target or name.startswith(f"{target} (")]
        numbers = " or ".join(f"--target {j}" for j in places)
        raise UserError(f"the target {target!r} is the name of {len(places)} columns; give its number: {numbers}")
    name, column = table.names[position], table.columns[position]
    left = _without(table, position, drop)
    kinds = {table.names[find_column(table, column)]: kind for column, kind in kinds.items()} if kinds else None
    if kinds and name in kinds:
        raise UserError(f"a kind is for a column to learn from; {name!r} is the target: --task says what it is")
    known = _known(column, table.decimal)
    _check_count(name, known, fewest)
    column, notes = column[known], []
    if not known.all():
        gone = int((~known).sum())
        notes.append(f"{gone:,} row{'s' * (gone != 1)} skipped: their target is missing")
    kind, why, y = _understand(name, column, task, table.decimal, table.row_numbers[known])
    odd = parse.read_in_two_ways(column) if column.dtype == object and kind == REGRESSION else None
    if odd is not None:
        notes.append(f"the target {name!r}: {odd!r} is read as {y[list(column).index(odd)]:g}")
    if len(y) < UNCERTAIN_ROWS:
        notes.append(f"only {len(y)} rows: the score will be very uncertain")
    return LabelledTable(name, kind, why, left.take(np.flatnonzero(known)), y, notes, kinds)


def _without(table: Table, target: int, drop: Sequence[str]) -> Table:
    gone = {find_column(table, name) for name in drop}
    if target in gone:
        raise UserError(f"--drop must not name the target; {table.names[target]!r} is both")
    kept = [j for j in range(len(table.names)) if j != target and j not in gone]
    if not kept:
        raise UserError(
            f"at least one column beside the target {table.names[target]!r} is needed; there is none: is the "
            "separator right? (--sep says it)"
        )
    return table.select(kept)


def _known(column: np.ndarray, decimal: str) -> np.ndarray:
    """Where the target is known. Among numbers in strings, "-" and "None" are missing; among words they are classes."""
    known = ~missing_cells(column)
    if column.dtype != object or parse.number_style(list(set(column[known])), decimal) is None:
        return known
    return np.array([cell is not None and not is_marker(cell) for cell in column])


def _check_count(name: str, known: np.ndarray, fewest: int) -> None:
    if not known.any():
        raise UserError(f"the target {name!r} has no values: all {len(known):,} are missing; choose another --target")
    if known.sum() < fewest:
        raise UserError(
            f"at least {fewest} rows with a target are needed, to train and to score on; got {int(known.sum())}: give "
            "a table with more rows"
        )


def _understand(
    name: str, column: np.ndarray, task: str | None, decimal: str, row_numbers: np.ndarray
) -> tuple[str, str, np.ndarray]:
    """Kind, why, and the values in the form of that kind."""
    if column.dtype.kind == "M":
        raise UserError(f"the target {name!r} holds dates, which cannot be predicted; choose another --target")
    numbers = _numbers(name, column, decimal, row_numbers, codes=task == REGRESSION)
    kind, why = (task, "as asked") if task is not None else _guess(name, column, numbers)
    if kind == REGRESSION:
        if numbers is None:
            example = str(next(iter(column)))[:30]
            raise UserError(
                f"--task regression needs a target of numbers; {name!r} has {example!r}: use --task classification"
            )
        if (numbers == numbers[0]).all():
            raise UserError(f"the target {name!r} is always {numbers[0]:g}: there is nothing to predict")
        refuse_extreme(numbers, f"target {name!r}")
        return kind, why, numbers
    classes = _labels(column)
    if len(np.unique(classes)) < 2:
        raise UserError(f"at least 2 classes are needed; the target {name!r} is always {str(classes[0])!r}")
    return kind, why, classes


def _numbers(name: str, column: np.ndarray, decimal: str, row_numbers: np.ndarray, codes: bool) -> np.ndarray | None:
    """As numbers, also from strings such as "$1,200"; None if they are not. `codes`: strings such as "01001", too."""
    if column.dtype == bool:
        return column.astype(np.float64)
    if column.dtype != object:
        return np.asarray(column, dtype=np.float64)
    values = sorted(set(column))
    style = parse.number_style(values, decimal or parse.decimal_of([values]))
    if style is None:
        parse.refuse_two_signs(name, column.tolist(), decimal, row_numbers)
        return None
    if not codes and example_of_codes(values) is not None:
        return None
    parse.are_percents(name, column, row_numbers)
    number = {value: parse.number(value, style) for value in values}
    return np.array([number[cell] for cell in column], dtype=np.float64)


def _guess(name: str, column: np.ndarray, numbers: np.ndarray | None) -> tuple[str, str]:
    if column.dtype == bool:
        return CLASSIFICATION, "true and false"
    if numbers is None:
        different = len(set(column))
        if different > max(FEW_VALUES, TEXT_SHARE * len(column)):
            raise UserError(
                f"the target {name!r} has {different:,} different strings in {len(column):,} rows: no classes; "
                "choose another --target, or say --task classification"
            )
        return CLASSIFICATION, "the values are words"
    different = len(np.unique(numbers))
    few = different <= FEW_VALUES and different <= max(FEW_SHARE * len(numbers), ALWAYS_FEW)
    if few and (numbers == np.floor(numbers)).all():
        return CLASSIFICATION, f"only {different} different whole numbers"
    return REGRESSION, f"{different:,} different numbers"


def _labels(column: np.ndarray) -> np.ndarray:
    """Classes as whole numbers where all are, else as they are written: "1.50" and "1.5" are two."""
    if column.dtype.kind == "f" and (column == np.floor(column)).all() and np.abs(column).max() < 1 << 53:
        return column.astype(np.int64)
    texts = [cell.strip() if isinstance(cell, str) else str(cell_text(cell)) for cell in column.tolist()]
    numbers = {text: parse.number(text, "plain") for text in set(texts)}
    if None in numbers.values() or any(map(is_code, numbers)):
        return np.array(texts)
    if all(value is not None and value.is_integer() for value in numbers.values()):
        return np.array([numbers[text] for text in texts]).astype(np.int64)
    return np.array(texts if would_merge(numbers) else list(map(one_spelling, texts)))


def target_array(y: Any, n: int, name: str) -> np.ndarray:
    """The target as an array with n rows, none of them missing; a single column is one-dimensional."""
    from sklearn.utils.validation import column_or_1d

    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    array = np.asarray(unmasked(y))
    if array.ndim == 0 or len(array) != n:
        raise UserError(f"X and y must have as many rows: inconsistent numbers of samples, {n} and {np.size(array)}")
    _refuse_missing(array, name)
    if array.dtype == object and array.ndim == 1 and all(isinstance(cell, (bool, np.bool_)) for cell in array):
        array = array.astype(bool)
    return column_or_1d(array, warn=True) if array.ndim == 2 and array.shape[1] == 1 else array


def target_name(y: Any, known: str | None) -> str:
    """The name of a target in errors: that of its column, the one known from the command line, or y."""
    name = plain_name(y, known)
    return f"target {name!r}" if name else "target y"


def plain_name(y: Any, known: str | None) -> str | None:
    name = getattr(y, "name", None)
    return name if isinstance(name, str) else known


def _refuse_missing(y: np.ndarray, name: str) -> None:
    cells = y.ravel()  # a blank string may be a class
    missing = _rows(np.array([is_missing(c) for c in cells]) if y.dtype == object else missing_cells(cells), y)
    if missing:
        raise UserError(
            f"Input y contains NaN: the {name} is missing in {missing:,} of {len(y):,} rows; remove those rows, or "
            "fill in the values"
        )
    infinite = _rows(np.isinf(y), y) if y.dtype.kind == "f" else 0
    if infinite:
        raise UserError(
            f"Input y contains infinity: the {name} is infinite in {infinite:,} of {len(y):,} rows; remove those rows, "
            "or give finite values"
        )


def _rows(bad: np.ndarray, y: np.ndarray) -> int:
    return int(np.asarray(bad).reshape(len(y), -1).any(axis=1).sum()) if len(y) else 0


def refuse_extreme(values: np.ndarray, name: str) -> None:
    """Refuse numbers whose squares overflow or vanish: they would have neither a loss nor a score."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest > LARGEST_TARGET:
        raise UserError(
            f"numbers to predict must not be larger than {LARGEST_TARGET:g}, or their squares overflow; the {name} "
            f"goes up to {largest:g}: divide it by a constant, or predict its logarithm"
        )
    if 0 < largest < SMALLEST_TARGET:
        raise UserError(
            f"numbers to predict must not all be smaller than {SMALLEST_TARGET:g}, or their squares vanish; the {name} "
            f"goes up to {largest:g}: multiply it by a constant, or predict its logarithm"
        )

"""The rows that each member trains on, their weights, and the rows that it is scored on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from shoal.errors import UserError, WrongType
from shoal.population.members import Member
from shoal.validate import number, shown, whole


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on, and rows to be scored on.

    Parameters
    ----------
    train : array of int of shape (n_train,), or bool mask
        Row numbers.
    valid : array of int of shape (n_valid,), or bool mask
        Row numbers; may be empty.
    weight : array of shape (n_train,), optional
        How much the training rows count; by default all the same.

    Examples
    --------
    >>> Split(train=[0, 1, 2], valid=[3, 4])
    Split(train=3 rows, valid=2 rows)
    """

    train: np.ndarray
    valid: np.ndarray = ()  # type: ignore[assignment]  # becomes an array
    weight: np.ndarray | None = None

    def __post_init__(self) -> None:
        train, valid = _indices("train", self.train), _indices("valid", self.valid)
        if not len(train):
            raise UserError("a split needs at least one training row; `train` is empty")
        weight = self.weight
        if weight is not None:
            weight = np.ascontiguousarray(weight, dtype=np.float32)
            if weight.shape != train.shape:
                raise UserError(f"one weight per training row is needed: {weight.shape=}, {train.shape=}")
            if not np.all(np.isfinite(weight)) or np.any(weight < 0):
                raise UserError("row weights must be finite and not negative")
            if np.any((weight > 0) & (weight < 1e-30)):
                raise UserError("row weights must be zero or at least 1e-30; scale them, only their ratios matter")
            used = weight > 0
            if not used.any():
                raise UserError("at least one row weight must be above zero")
            if not used.all():  # drop rows of weight zero
                train, weight = train[used], weight[used]
            if np.all(weight == 1):
                weight = None
        object.__setattr__(self, "train", train)
        object.__setattr__(self, "valid", valid)
        object.__setattr__(self, "weight", weight)

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weight is not None else ""
        return f"Split(train={len(self.train)} rows{weighted}, valid={len(self.valid)} rows)"


@dataclass(frozen=True, eq=False)
class Rows:
    """Splits, and which of them each member uses. Members share splits: ten thousand members need ten index lists."""

    splits: tuple[Split, ...]
    member: np.ndarray  # (n_members,), index into splits

    def __post_init__(self) -> None:
        splits = tuple(self.splits)
        member = np.ascontiguousarray(self.member, dtype=np.int64)
        if not splits:
            raise UserError("at least one split is needed")
        if member.ndim != 1 or np.any(member < 0) or np.any(member >= len(splits)):
            raise UserError(f"`member` must hold indices from 0 to {len(splits) - 1}, one per member")
        object.__setattr__(self, "splits", splits)
        object.__setattr__(self, "member", member)

    def __repr__(self) -> str:
        return f"Rows({len(self.member)} members over {len(self.splits)} splits: {self.splits[0]!r}, ...)"

    def select(self, members: np.ndarray) -> Rows:
        """The `Rows` of some of the members."""
        return Rows(self.splits, self.member[members])

    def check(self, n_members: int, n_rows: int) -> None:
        """Raise unless there is a split for each member and every index is a row of the data."""
        if len(self.member) != n_members:
            raise UserError(f"rows are given for {len(self.member)} members, but the population has {n_members}")
        for k, split in enumerate(self.splits):
            for name, index in (("train", split.train), ("valid", split.valid)):
                if len(index) and (index.min() < 0 or index.max() >= n_rows):
                    wrong = index[(index < 0) | (index >= n_rows)][0]
                    raise UserError(f"split {k} names {name} row {wrong}, but the data has rows 0 to {n_rows - 1}")


def as_rows(rows: Rows | Split | Sequence[Split] | float | None, n_members: int, n_rows: int) -> Rows:
    """None: every member trains on all rows. One split: all members share it. A list: one split per member.

    A share, such as 0.2: that share of the rows is held out, as by `holdout`.
    """
    if rows is None:
        rows = Split(np.arange(n_rows))
    if isinstance(rows, Real) and not isinstance(rows, (Integral, np.bool_)):
        rows = holdout(n_rows, float(rows))
    if isinstance(rows, Split):
        rows = Rows((rows,), np.zeros(n_members, dtype=np.int64))
    elif not isinstance(rows, Rows):
        splits: tuple[Any, ...] = tuple(rows) if isinstance(rows, Iterable) else (rows,)
        if not all(isinstance(split, Split) for split in splits):
            raise WrongType(
                "rows must be None, a share to hold out (0.2), a Split, a list with one Split per member, or a Rows; "
                f"got {shown(rows)}: make one with shoal.rows.holdout, kfold or Split"
            )
        rows = Rows(splits, np.arange(len(splits)))
    rows.check(n_members, n_rows)
    return rows


def cross(members: Sequence[Member], splits: Sequence[Split]) -> tuple[list[Member], Rows]:
    """Every member on every split: the population of a cross-validated search.

    Parameters
    ----------
    members : list of Member
        The recipes.
    splits : list of Split
        As from `kfold`.

    Returns
    -------
    members : list of Member
        Each member once for each split. Splits vary fastest.
    rows : Rows
        For `Population.fit(..., rows=rows)`.

    Examples
    --------
    >>> members, rows = cross([Member(), Member(seed=1)], kfold(10, 5))
    >>> len(members), rows.member.tolist()
    (10, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    """
    crossed = [member for member in members for _ in splits]
    return crossed, Rows(tuple(splits), np.tile(np.arange(len(splits)), len(members)))


def holdout(n_rows: Any, fraction: float = 0.2, seed: int = 0) -> Split:
    """A random share of the rows held out for scoring.

    Parameters
    ----------
    n_rows : int, array or frame
        The number of rows, or the table itself.
    fraction : float, default 0.2
        The share.
    seed : int, default 0
        Of the draw.

    Returns
    -------
    Split

    Examples
    --------
    >>> holdout(10, 0.3)
    Split(train=7 rows, valid=3 rows)
    """
    n_rows = _row_count(n_rows)
    fraction = number("fraction", fraction, above=0, below=1)
    if n_rows < 2:
        raise UserError(f"a hold-out needs at least 2 rows; got {n_rows}")
    order = np.random.default_rng(seed).permutation(n_rows)
    kept = min(max(round(n_rows * fraction), 1), n_rows - 1)
    return Split(np.sort(order[kept:]), np.sort(order[:kept]))


def kfold(n_rows: Any, folds: int = 5, seed: int = 0) -> list[Split]:
    """K-fold cross-validation: each row is held out in exactly one split.

    Parameters
    ----------
    n_rows : int, array or frame
        The number of rows, or the table itself.
    folds : int, default 5
        How many splits.
    seed : int, default 0
        Of the draw.

    Returns
    -------
    list of Split

    Examples
    --------
    >>> kfold(10, 5)[0]
    Split(train=8 rows, valid=2 rows)
    """
    n_rows, folds = _row_count(n_rows), whole("folds", folds)
    if not 2 <= folds <= n_rows:
        raise UserError(f"folds must be from 2 to the number of rows, {n_rows}; got {folds}")
    order = np.random.default_rng(seed).permutation(n_rows)
    parts = np.array_split(order, folds)
    return [Split(np.sort(np.concatenate(parts[:k] + parts[k + 1 :])), np.sort(parts[k])) for k in range(folds)]


def bootstrap(n_rows: Any, count: int, seed: int = 0) -> list[Split]:
    """Bootstrap samples: rows drawn with replacement, as weights; the rows not drawn are held out for scoring."""
    n_rows, count = _row_count(n_rows), whole("count", count)
    generator = np.random.default_rng(seed)
    splits = []
    for _ in range(count):
        times = np.bincount(generator.integers(n_rows, size=n_rows), minlength=n_rows)
        splits.append(Split(np.flatnonzero(times), np.flatnonzero(times == 0), times[times > 0]))
    return splits


def shards(n_rows: Any, count: int, seed: int = 0) -> list[Split]:
    """The rows divided at random into `count` disjoint parts, one per split, with nothing held out."""
    n_rows, count = _row_count(n_rows), whole("count", count)
    if not 1 <= count <= n_rows:
        raise UserError(f"count must be from 1 to the number of rows, {n_rows}; got {count}")
    order = np.random.default_rng(seed).permutation(n_rows)
    return [Split(np.sort(part)) for part in np.array_split(order, count)]


def from_splitter(splitter: Any, X: Any, y: Any = None, groups: Any = None) -> list[Split]:
    """The folds of any scikit-learn splitter, or of any iterable of (train, valid) index pairs."""
    pairs: Iterable[Any] = splitter.split(X, y, groups) if hasattr(splitter, "split") else splitter
    return [Split(train, valid) for train, valid in pairs]


def _row_count(given: Any) -> int:
    """The number of rows, given as a number or as an array, a frame, a list of rows or a dict of columns."""
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, Mapping) and given:
        given = next(iter(given.values()))
    if getattr(given, "shape", ()):
        return int(given.shape[0])
    if hasattr(given, "__len__") and not isinstance(given, str) and np.shape(given) != ():
        return len(given)
    raise WrongType(f"the number of rows must be a whole number, or the table itself; got {shown(given)}")


def _indices(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == bool:
        array = np.flatnonzero(array)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise WrongType(f"{name} must be a list of row numbers or a mask; got shape {array.shape}, {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)

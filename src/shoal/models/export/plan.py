"""A model as the plain arrays that other runtimes need: preprocessing, networks and the way back to predictions.

Exports to PyTorch and ONNX are written from this one description, so that both do the same. All folds of the
model run side by side: the first axis of every array is the fold. Folds may encode a table into different columns;
here they share one layout of inputs, and the rows of their first weights are moved to fit it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.encoders.categories import UNSEEN, CategoryEncoder
from shoal.encoders.encoder import Encoder
from shoal.encoders.numbers import NumberEncoder
from shoal.encoders.scaling import SMALLEST_SCALE, NumberScaling
from shoal.errors import UserError
from shoal.metrics.tasks import Task
from shoal.models.model import Model
from shoal.models.networks import TorchNetwork
from shoal.population.population import Population
from shoal.tables.missing import MISSING_WORDS, named_numbers
from shoal.tables.spelling import one_spelling, spellings

NUMERIC = ("number", "boolean")
STEEPEST = 1e308  # slope of a piece without length: any number above it is beyond its end


@dataclass(frozen=True, eq=False)
class Category:
    """A column of strings. Number len(values) is for unseen strings, len(values) + 1 for the missing value.

    Cells are spelled as in files: `numbered` has every spelling of a value, and `missing` every cell that means none.

    `frequent` are the strings with a known frequency; `logs` (folds, len(frequent) + 2) is what the frequency column
    holds for each, numbered in the same way. A column without frequencies has no `frequent`.
    """

    name: str
    values: tuple[str, ...]
    frequent: tuple[str, ...]
    logs: np.ndarray
    style: str = ""  # see shoal.tables.spelling
    missing: tuple[str, ...] = ("",)

    @property
    def width(self) -> int:
        return len(self.values) + 2

    @property
    def known(self) -> tuple[str, ...]:
        """All strings that have a number where there are no strings: their places here, then unseen, then missing."""
        return tuple(sorted({*self.values, *self.frequent}))

    def numbered(self, known: Sequence[str]) -> dict[str, int]:
        """The number of every cell that is one of the known values, or missing; any other cell has len(known)."""
        numbers = {cell: j for j, value in enumerate(known) for cell in spellings(value, self.style)}
        return numbers | dict.fromkeys(self.missing, len(known) + 1)


@dataclass(frozen=True, eq=False)
class Scaling:
    """The plain encoding: (x - centre) * inverse, bent; both (folds, 1, columns)."""

    centre: np.ndarray
    inverse: np.ndarray


@dataclass(frozen=True, eq=False)
class Pieces:
    """The piecewise encoding: clip((x[column] - low) * inverse, 0, 1) - offset; (folds, 1, pieces), `column` (pieces,).

    Steps are pieces without length. Quantiles are weighted sums of pieces, so networks that see them take pieces
    here, with first weights that do the sum. A fold that has fewer pieces of a column than another gets pieces that
    are always zero.
    """

    column: np.ndarray
    low: np.ndarray
    inverse: np.ndarray
    offset: np.ndarray


@dataclass(frozen=True, eq=False)
class PartNetworks:
    """The networks of one part. Layers are pairs of (folds, fan_in, fan_out) and (folds, 1, fan_out), float32."""

    encoding: str
    activation: str
    weight: float
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]


@dataclass(frozen=True, eq=False)
class ExportPlan:
    """What an exporter writes.

    Inputs are `numbers` (n, d) float64 with NaN and `categories` (n, c) strings; the inputs of a
    network are, in order, its encoding of the numbers (frequencies of categories last), the missing indicators, and
    0/1 columns of each category.
    """

    task: Task
    temperature: float
    folds: int
    numbers: tuple[str, ...]
    categories: tuple[Category, ...]
    scaling: Scaling
    pieces: Pieces
    missing: np.ndarray  # (m,) positions among the numbers that have an indicator
    networks: tuple[PartNetworks, ...]
    target: dict[str, np.ndarray]  # centre, scale, low, high: (folds, 1, n_outputs) float64

    @property
    def counted(self) -> tuple[Category, ...]:
        """Categories with a frequency column."""
        return tuple(category for category in self.categories if category.frequent)

    @property
    def encodings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(network.encoding for network in self.networks))


def make_plan(model: Model, marks: Sequence[str] = ()) -> ExportPlan:
    """The plan of a model whose columns are numbers, booleans and categories; others are refused by name.

    `marks`: cells that mean "not known" in the training file, beside the usual ones.
    """
    if any(isinstance(networks, TorchNetwork) for networks in model.networks.values()):
        raise UserError(
            "this model is a network of PyTorch, which Shoal does not export: shoal.load(...).model_.networks['plain']"
            ".module is the network, for torch.export"
        )
    refuse_columns(model, ("text",), "texts are cut into words by a rule that ONNX and PyTorch have no operator for")
    refuse_columns(model, ("date",), "dates are prepared by Shoal alone")
    model.schema.refuse_own_encoders("exported", "their code is not part of the file")
    encoders = [fold.encoder for fold in model.folds]
    numbers = tuple(column.name for column in model.schema.used if column.kind in NUMERIC)
    named = frozenset(mark.strip() for mark in marks)
    numbered = {cell for number in named_numbers(named) for cell in spellings(one_spelling(repr(number)), "")}
    absent = tuple(sorted(MISSING_WORDS | named | numbered))
    styles = {column.name: column.style for column in model.schema.used}
    categories = tuple(_category(name, encoders, styles[name], absent) for name in category_encoders(encoders[0]))
    counted = [category.name for category in categories if category.frequent]
    columns = [_number_places(encoder, len(numbers), counted) for encoder in encoders]
    width = len(numbers) + len(counted)
    pieces, bins, steps = _pieces(encoders, columns, width)
    missing = sorted({numbers.index(name) for encoder in encoders for name in _with_indicator(encoder)})

    def spread(encoding: str, k: int, matrix: np.ndarray) -> np.ndarray:
        positions = [missing.index(numbers.index(name)) for name in _with_indicator(encoders[k])]
        at = encoders[k].scaling.width(encoding)
        if encoding == "plain":
            blocks = [_moved(matrix, columns[k], width)]
        else:
            first = _weights_of_pieces(encoders[k].scaling, encoding, matrix[:at])
            blocks = [_moved(first, [*bins[k], *steps[k]], len(pieces.column))]
        blocks.append(_moved(matrix[at:], positions, len(missing)))
        at += len(positions)
        for category in categories:
            part = category_encoders(encoders[k])[category.name]
            blocks.append(_one_hot(category, part) @ matrix[at : at + part.width])
            at += part.width
        return np.concatenate(blocks)

    return ExportPlan(
        model.task, model.temperature, len(encoders), numbers, categories, _scaling(encoders, columns, width), pieces,
        np.array(missing, dtype=np.int64), _networks(model, spread), _target(model),
    )  # fmt: skip


def refuse_columns(model: Model, kinds: tuple[str, ...], reason: str) -> None:
    found = [f"{column.name!r} ({column.kind})" for column in model.schema.used if column.kind in kinds]
    if found:
        named = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise UserError(
            f"this model cannot be exported because of its column{'s' if len(found) > 1 else ''} {named}: {reason}; "
            "use `shoal predict`, which reads every column"
        )


def category_encoders(encoder: Encoder) -> dict[str, CategoryEncoder]:
    """The encoders of the columns that are categories, by column."""
    return {name: part for name, part in encoder.columns.items() if isinstance(part, CategoryEncoder)}


def _with_indicator(encoder: Encoder) -> list[str]:
    """Columns of numbers with an input that says where they are missing."""
    return [name for name, part in encoder.columns.items() if isinstance(part, NumberEncoder) and part.missing]


def _category(name: str, encoders: list[Encoder], style: str, missing: tuple[str, ...]) -> Category:
    parts = [category_encoders(encoder)[name] for encoder in encoders]
    values = sorted({value for part in parts for value in part.values if value is not None})
    frequent = sorted({value for part in parts for value in part.frequent or ()})
    logs = np.zeros((len(parts), len(frequent) + 2))
    for k, part in enumerate(parts):
        if part.frequent is not None:
            logs[k] = part.frequencies([*frequent, UNSEEN, None])
    return Category(name, tuple(values), tuple(frequent), logs, style, missing)


def _one_hot(category: Category, part: CategoryEncoder) -> np.ndarray:
    """(category.width, columns of this fold): what the fold's encoder makes of each value."""
    table = np.zeros((category.width, part.width), dtype=np.float32)
    part.write_values(np.arange(category.width), [*category.values, UNSEEN, None], table)
    return table


def _number_places(encoder: Encoder, numbers: int, counted: list[str]) -> list[int]:
    """Where each column of this fold's numbers stands in the common layout: not every fold has every frequency."""
    mine = [name for name, part in category_encoders(encoder).items() if part.frequent is not None]
    return [*range(numbers), *(numbers + counted.index(name) for name in mine)]


def _scaling(encoders: list[Encoder], columns: list[list[int]], width: int) -> Scaling:
    centre, inverse = np.zeros((2, len(encoders), 1, width))
    for k, encoder in enumerate(encoders):
        scale = encoder.scaling.scale
        centre[k, 0, columns[k]] = encoder.scaling.centre
        inverse[k, 0, columns[k]] = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > SMALLEST_SCALE)
    return Scaling(centre, inverse)


def _pieces(
    encoders: list[Encoder], columns: list[list[int]], width: int
) -> tuple[Pieces, list[list[int]], list[list[int]]]:
    """The pieces in a layout with room for every fold, and the places of each fold's bins and steps in it."""
    scalings = [encoder.scaling for encoder in encoders]
    of_bins = [
        np.array(mine, np.int64)[scaling.columns("piecewise")] for mine, scaling in zip(columns, scalings, strict=True)
    ]
    of_steps = [np.array(mine, np.int64)[scaling.step_column] for mine, scaling in zip(columns, scalings, strict=True)]
    most_bins = np.max([np.bincount(owner, minlength=width) for owner in of_bins], axis=0).clip(min=1)
    most_steps = np.max([np.bincount(owner, minlength=width) for owner in of_steps], axis=0)
    start = np.concatenate([[0], np.cumsum(most_bins + most_steps)]).astype(np.int64)
    low, inverse, offset = np.zeros((3, len(encoders), 1, int(start[-1])))
    bins = [(start[owner] + _number_within(owner)).tolist() for owner in of_bins]
    steps = [(start[owner] + most_bins[owner] + _number_within(owner)).tolist() for owner in of_steps]
    for k, scaling in enumerate(scalings):
        low[k, 0, bins[k]], inverse[k, 0, bins[k]], offset[k, 0, bins[k]] = scaling.bins
        low[k, 0, steps[k]], offset[k, 0, steps[k]] = scaling.step_above, scaling.step_offset
        inverse[k, 0, steps[k]] = STEEPEST
    return Pieces(np.repeat(np.arange(width), most_bins + most_steps), low, inverse, offset), bins, steps


def _number_within(owner: np.ndarray) -> np.ndarray:
    """How many entries before each one have the same owner; owners ascend, each column's pieces side by side.

    >>> _number_within(np.array([2, 2, 5, 2])).tolist()
    [0, 1, 0, 2]
    """
    return np.array([int((owner[:k] == mine).sum()) for k, mine in enumerate(owner)], dtype=np.int64)


def _weights_of_pieces(scaling: NumberScaling, encoding: str, matrix: np.ndarray) -> np.ndarray:
    """First weights of numbers in an encoding as weights of this fold's bins, then of its steps."""
    none = np.zeros((len(scaling.step_column), matrix.shape[1]), dtype=matrix.dtype)
    if encoding == "piecewise":
        return np.concatenate([matrix, none])
    d = len(scaling.centre)
    of_bins = scaling.heights[:, None] * matrix[scaling.columns("piecewise")]
    return np.concatenate([of_bins, matrix[d:] if encoding == "steps" else none]).astype(matrix.dtype)


def _moved(matrix: np.ndarray, places: list[int], width: int) -> np.ndarray:
    moved = np.zeros((width, matrix.shape[1]), dtype=np.float32)
    moved[places] = matrix[: len(places)]
    return moved


def _networks(model: Model, spread: Callable[[str, int, np.ndarray], np.ndarray]) -> tuple[PartNetworks, ...]:
    folds = range(len(model.folds))
    networks = []
    seen = dict.fromkeys(model.networks, 0)
    for part in model.parts:
        population = model.networks[part.encoding]
        if not isinstance(population, Population):
            continue
        first = seen[part.encoding] * len(folds)
        seen[part.encoding] += 1
        of_fold = [population.weights(first + k) for k in folds]
        for k in folds:
            of_fold[k][0] = (spread(part.encoding, k, of_fold[k][0][0]), of_fold[k][0][1])
        layers = tuple(
            (np.stack([of_fold[k][layer][0] for k in folds]), np.stack([of_fold[k][layer][1] for k in folds])[:, None])
            for layer in range(len(of_fold[0]))
        )
        seen_as = "plain" if part.encoding == "plain" else "piecewise"
        networks.append(PartNetworks(seen_as, part.member.activation, part.weight, layers))
    return tuple(networks)


def _target(model: Model) -> dict[str, np.ndarray]:
    names = ("centre", "scale", "low", "high")
    return {
        name: np.stack([np.asarray(getattr(fold.target, name), dtype=np.float64) for fold in model.folds])[:, None]
        for name in names
    }

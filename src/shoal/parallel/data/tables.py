"""Training on a user's own table: read as `shoal search` reads it, with an encoding fitted on the training rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.models.networks import TorchNetwork
from shoal.parallel.data.datasets import LoadedData
from shoal.parallel.networks import layer_sizes
from shoal.parallel.options import TableOptions
from shoal.search.problem.dependence import TOGETHER, repeated_rows
from shoal.search.results.explaining import background_rows
from shoal.tables.files import read_table, strings_of
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import LabelledTable, find_target
from shoal.validate import number

FEWEST = 2  # rows to train on
FEWEST_ROWS = 20  # of a table: a score of a fifth of fewer says nothing


@dataclass(frozen=True, eq=False)
class Prepared:
    """The encoding of inputs and target, fitted on the training rows."""

    kind: str
    target: str
    classes: list[Any]  # of classification
    encoder: Encoder
    scaling: TargetScaling
    reading: Reading
    background: Table  # some of the training rows, to explain others with

    @property
    def task(self) -> Task:
        return Task(self.kind, len(self.classes) or 1)

    def inputs(self, table: Table) -> torch.Tensor:
        return torch.from_numpy(self.encoder.transform(table, ("plain",))["plain"])


def load_table(
    file: Path, options: TableOptions, valid: float = 1 / 6, rows: int | None = None, seed: int = 0
) -> tuple[LoadedData, Prepared, list[str]]:
    """The table as tensors for training, validation and test; its encoding; and how it was read, line by line."""
    number("the share kept for validation", valid, above=0, below=1, what="a share")
    assert options.target is not None
    kinds = options.kind_of_columns() or None
    table, found = read_table(
        file, sep=options.sep, header=options.header, missing=options.missing, named=options.named(),
        strings=strings_of(kinds or {}, options.target if options.task == CLASSIFICATION else None),
    )  # fmt: skip
    ambiguous = found.ambiguous(table)
    question = find_target(table, options.target, options.task, options.drop, ambiguous, kinds, FEWEST_ROWS)
    classes = np.unique(question.y) if question.kind == CLASSIFICATION else np.array([])
    task = Task(question.kind, len(classes) or 1)
    y = np.searchsorted(classes, question.y) if len(classes) else question.y.reshape(-1, 1)
    sets_of_copies, warned = _copies(question, task, y)
    parts = _split(question, sets_of_copies, (options.test, valid), rows, seed)
    learned = question.X.take(parts[0])
    schema = Schema.of(learned, kinds=kinds)
    encoder = Encoder.fit(schema, learned, np.ones(len(learned)))
    scaling = TargetScaling.fit(task, y[parts[0]], np.ones(len(learned)))
    reading = Reading(options.missing, tuple(table.names), found.header, found.separator, found.quote)
    background = background_rows(learned, np.ones(len(learned)), seed)
    prepared = Prepared(question.kind, question.target, classes.tolist(), encoder, scaling, reading, background)
    sets = [
        TensorDataset(prepared.inputs(question.X.take(part)), torch.from_numpy(scaling.forward(task, y[part])))
        for part in parts
    ]
    words = [*found.describe(), *question.notes, *warned, f"columns: {schema.describe()[0]}",
             f"target: {question.describe()}", f"task: {question.kind} ({question.why})"]  # fmt: skip
    return LoadedData(sets[0], sets[1], sets[2], sets[0].tensors[0].shape[1], task.n_outputs), prepared, words


def _copies(question: LabelledTable, task: Task, y: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The set of copies that each row belongs to, (n,), and what to say about them."""
    found = repeated_rows(question.schema.check(question.X), task, y)
    if found is None:
        return np.arange(len(y)), []
    return found[0], [f"{found[1].found}; {TOGETHER} (but in folds of --strategy kfold)"]


def _split(
    question: LabelledTable, copies: np.ndarray, shares: tuple[float, float], rows: int | None, seed: int
) -> list[np.ndarray]:
    """Row numbers for training, validation and test; stratified by class where each has enough rows.

    Rows of one set of `copies` stay together, and each set counts once in `shares`, of test and of validation.
    """
    test, valid = shares

    def held_back(among: np.ndarray, share: float) -> list[np.ndarray]:
        place, first = _in_order(copies[among])
        left = len(first) - math.ceil(share * len(first))
        if left < FEWEST:
            raise UserError(
                f"of {len(question.y):,} rows, {test:g} for the test and {valid:g} of the rest for validation leave "
                f"fewer than {FEWEST} to train on: give a smaller --test or --valid"
            )
        labels = question.y[among[first]] if question.kind == CLASSIFICATION else None
        if labels is not None:
            counts = np.unique(labels, return_counts=True)[1]
            if counts.min() < 2 or min(round(share * len(first)), left) < len(counts):
                labels = None
        return [among[_members(place, part)] for part in hold_back(len(first), len(first) - left, seed, labels)]

    learning, tested = held_back(np.arange(len(question.y)), test)
    if rows is not None:
        if not 2 <= rows <= len(learning):
            raise UserError(f"--rows must be from 2 to the {len(learning):,} that are not for the test; got {rows}")
        learning = learning[:rows]
    trained, validated = held_back(learning, valid)
    return [trained, validated, tested]


def _in_order(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys as numbers from 0, in the order in which they first appear; and where that is."""
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place], np.sort(first)


def _members(place: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Rows whose place is one of `sets`, one set after the other.

    >>> _members(np.array([0, 1, 0, 2]), np.array([2, 0])).tolist()
    [3, 0, 2]
    """
    rank = np.full(int(place.max()) + 1, -1)
    rank[sets] = np.arange(len(sets))
    mine = np.flatnonzero(rank[place] >= 0)
    return mine[np.argsort(rank[place[mine]], kind="stable")]


def hold_back(count: int, held: int, seed: int, labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of rows in a random order: those to learn from, and `held` others; each class in proportion if given.

    Not by scikit-learn, which takes more than a second to import.

    >>> kept, held = hold_back(8, 4, seed=0, labels=np.array([0, 1] * 4))
    >>> sorted((held % 2).tolist())
    [0, 0, 1, 1]
    """
    generator = np.random.default_rng(seed)
    order, start = generator.permutation(count), generator.integers(count)
    by_class = order if labels is None else order[np.argsort(labels[order], kind="stable")]
    places = (np.arange(1, count + 1) * held + start) // count
    chosen = np.zeros(count, dtype=bool)
    chosen[by_class] = np.diff(places, prepend=0) > 0  # evenly over all classes, one after the other
    return order[~chosen[order]], order[chosen[order]]


def check_sizes(net: str, data: LoadedData, what: str) -> None:
    """Check the sizes of an mlp against the data; the error names the right ones."""
    sizes = [] if ".py" in net else layer_sizes(net)
    right = [data.features, *sizes[1:-1], data.classes]
    if sizes and sizes != right:
        raise UserError(
            f"--net {net} has {sizes[0]} inputs and {sizes[-1]} outputs; the table has {data.features} inputs once "
            f"encoded and needs {data.classes} outputs ({what}): use --net mlp:{'-'.join(map(str, right))}"
        )


def score(prepared: Prepared, model: nn.Module, test: TensorDataset) -> tuple[dict[str, float], str]:
    """Scores on the test rows, as numbers and as a sentence."""
    inputs, target = test.tensors
    network = TorchNetwork({"net": "the network"}, inputs.shape[1], prepared.task.n_outputs, {}, model)
    output = torch.from_numpy(network.predict(inputs.numpy())[0])
    if prepared.kind == CLASSIFICATION:
        right = float((output.argmax(1) == target).float().mean())
        return {"test_accuracy": right}, f"test: {right:.2%} right"
    spread = float(((target - target.mean(0)) ** 2).sum())
    r2 = 1 - float(((output - target) ** 2).sum()) / spread if spread else float("nan")
    error = float((output - target).abs().mean()) * float(prepared.scaling.scale[0])
    return {"test_r2": r2, "test_absolute_error": error}, f"test: R2 {r2:.4f}, mean absolute error {error:.4g}"


def default_loss(kind: str, loss: str | None) -> str:
    """The loss that fits the kind of target, unless another one is asked for that fits, too."""
    if kind == REGRESSION and loss not in (None, "mse"):
        raise UserError(
            f"--loss {loss} is for classes, and the target holds numbers; use mse, or --task classification"
        )
    return loss or ("mse" if kind == REGRESSION else "cross_entropy")

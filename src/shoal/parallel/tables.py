"""Training on a user's own table: read as `shoal search` reads it, with an encoding fitted on the training rows.

The encoding is saved beside the weights, so that new rows can be predicted:

    from shoal.parallel.tables import load
    load("my-run").predict("new.csv")  # a file, a data frame, a dict of columns or an array
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from shoal import atomic
from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.parallel.datasets import Data
from shoal.parallel.networks import make_model
from shoal.parallel.options import TableOptions
from shoal.search.predictions import read_new_rows
from shoal.tables.files import read_table, strings_of
from shoal.tables.inputs import new_table
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import LabelledTable, find_target
from shoal.validate import number

STATE, ARRAYS, WEIGHTS = "table.json", "table.safetensors", "model.safetensors"
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

    @property
    def task(self) -> Task:
        return Task(self.kind, len(self.classes) or 1)

    def inputs(self, table: Table) -> torch.Tensor:
        return torch.from_numpy(self.encoder.transform(table, ("plain",))["plain"])

    def answers(self, output: torch.Tensor) -> np.ndarray:
        """Predictions from a network's outputs: classes, or numbers in the units of the target."""
        raw = output.detach().cpu().numpy()
        if self.kind == CLASSIFICATION:
            return np.asarray(self.classes)[raw.argmax(axis=1)]
        return (raw * self.scaling.scale + self.scaling.centre)[:, 0]

    def save(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        described, arrays = self.encoder.state()
        scaling = {name: getattr(self.scaling, name).tolist() for name in ("centre", "scale", "low", "high")}
        state = {"kind": self.kind, "target": self.target, "classes": self.classes,
                 "reading": self.reading.as_dict(), "encoder": described, "scaling": scaling}  # fmt: skip
        atomic.write_text(folder / STATE, json.dumps(state, indent=1) + "\n")
        with atomic.new_file(folder / ARRAYS) as partial:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, partial)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network with the encoding of its table."""

    model: nn.Module
    prepared: Prepared

    def predict(self, rows: Any) -> np.ndarray:
        """Predict a file, a data frame, a dict of columns or an array; columns as in `shoal.tables.inputs`."""
        inputs = self.prepared.inputs(self._table(rows))
        with torch.no_grad():
            return self.prepared.answers(_by_rows(self.model(inputs), len(inputs)))

    def _table(self, rows: Any) -> Table:
        if isinstance(rows, (str, os.PathLike)):
            rows = read_new_rows(Path(rows), self, None)
        return new_table(self, rows)

    # ---- what `read_new_rows` and `new_table` ask of a fitted estimator ----

    @property
    def schema_(self) -> Schema:
        return self.prepared.encoder.schema

    @property
    def feature_names_in_(self) -> list[str]:
        return [column.name for column in self.schema_.columns]

    @property
    def n_features_in_(self) -> int:
        return len(self.schema_.columns)

    @property
    def target_name_(self) -> str:
        return self.prepared.target

    @property
    def reading_(self) -> Reading:
        return self.prepared.reading


def _fill(model: nn.Module, weights: dict[str, torch.Tensor], net: str, made: str) -> None:
    """Load the weights of a run into a network, which must have the same layers."""
    mine = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    kept = {name: tuple(value.shape) for name, value in weights.items()}
    if mine != kept:
        name = next(name for name in (*kept, *mine) if mine.get(name) != kept.get(name))
        raise UserError(
            f"the network is not that of the run, {net}: {name!r} is {kept.get(name, 'missing')} in the run and "
            f"{mine.get(name, 'missing')} in the network; give {made}"
        )
    model.load_state_dict(weights)


def load(folder: str | os.PathLike[str], model: nn.Module | None = None) -> Trained:
    """Load what `shoal train FILE --target ... --out FOLDER` has saved. A network from your own file must be given."""
    from safetensors.numpy import load_file
    from safetensors.torch import load_file as load_weights

    place = Path(folder)
    if not (place / STATE).is_file():
        raise UserError(f"{place} has no {STATE}: give the --out folder of a 'shoal train FILE --target COLUMN'")
    state = json.loads((place / STATE).read_text(encoding="utf-8"))
    net = json.loads((place / "settings.json").read_text(encoding="utf-8"))["network"]
    scaling = TargetScaling(**{name: np.array(values) for name, values in state["scaling"].items()})
    encoder = Encoder.from_state(state["encoder"], load_file(place / ARRAYS))
    reading = Reading.of(state["reading"])
    prepared = Prepared(state["kind"], state["target"], state["classes"], encoder, scaling, reading)
    function = net["net"].rpartition(":")[2] if ".py" in net["net"] else "make_network"
    made = f"{function}({len(encoder.feature_names)}, {prepared.task.n_outputs}), of inputs and outputs"
    if model is None and ".py" in net["net"]:
        raise UserError(
            f"this run trained {net['net']}: give what that function makes, as load({str(place)!r}, model), where the "
            f"model is {made}"
        )
    model = model if model is not None else make_model(**net)
    _fill(model, load_weights(place / WEIGHTS), net["net"], made)
    return Trained(model.eval(), prepared)


def load_table(
    file: Path, options: TableOptions, valid: float = 1 / 6, rows: int | None = None, seed: int = 0
) -> tuple[Data, Prepared, list[str]]:
    """The table as tensors for training, validation and test; its encoding; and how it was read, line by line."""
    number("the share kept for validation", valid, above=0, below=1, what="a share")
    assert options.target is not None
    kinds = options.kind_of_columns() or None
    table, found = read_table(
        file, sep=options.sep, header=options.header, missing=options.missing, named=options.named(),
        strings=strings_of(kinds or {}),
    )  # fmt: skip
    ambiguous = found.ambiguous(table)
    question = find_target(table, options.target, options.task, options.drop, ambiguous, kinds, FEWEST_ROWS)
    parts = _split(question, valid, options.test, rows, seed)
    learned = question.X.take(parts[0])
    schema = Schema.of(learned, kinds=kinds)
    encoder = Encoder.fit(schema, learned, np.ones(len(learned)))
    classes = np.unique(question.y) if question.kind == CLASSIFICATION else np.array([])
    task = Task(question.kind, len(classes) or 1)
    y = np.searchsorted(classes, question.y) if len(classes) else question.y.reshape(-1, 1)
    scaling = TargetScaling.fit(task, y[parts[0]], np.ones(len(learned)))
    reading = Reading(options.missing, tuple(table.names), found.header, found.separator, found.quote)
    prepared = Prepared(question.kind, question.target, classes.tolist(), encoder, scaling, reading)
    sets = [
        TensorDataset(prepared.inputs(question.X.take(part)), torch.from_numpy(scaling.forward(task, y[part])))
        for part in parts
    ]
    words = [*found.describe(), *question.notes, f"columns: {schema.describe()[0]}", f"target: {question.describe()}",
             f"task: {question.kind} ({question.why})"]  # fmt: skip
    return Data(sets[0], sets[1], sets[2], sets[0].tensors[0].shape[1], task.n_outputs), prepared, words


def _split(question: LabelledTable, valid: float, test: float, rows: int | None, seed: int) -> list[np.ndarray]:
    """Row numbers for training, validation and test; stratified by class where each has enough rows."""

    def held_back(among: np.ndarray, share: float) -> list[np.ndarray]:
        left = len(among) - math.ceil(share * len(among))
        if left < FEWEST:
            raise UserError(
                f"of {len(question.y):,} rows, {test:g} for the test and {valid:g} of the rest for validation leave "
                f"fewer than {FEWEST} to train on: give a smaller --test or --valid"
            )
        labels = question.y[among] if question.kind == CLASSIFICATION else None
        if labels is not None:
            counts = np.unique(labels, return_counts=True)[1]
            if counts.min() < 2 or min(round(share * len(among)), left) < len(counts):
                labels = None
        return [among[part] for part in hold_back(len(among), len(among) - left, seed, labels)]

    learning, tested = held_back(np.arange(len(question.y)), test)
    if rows is not None:
        if not 2 <= rows <= len(learning):
            raise UserError(f"--rows must be from 2 to the {len(learning):,} that are not for the test; got {rows}")
        learning = learning[:rows]
    trained, validated = held_back(learning, valid)
    return [trained, validated, tested]


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


def check_sizes(net: str, data: Data, what: str) -> None:
    """Check the sizes of an mlp against the data; the error names the right ones."""
    sizes: Sequence[str] = net.partition(":")[2].split("-")
    right = [str(data.features), *sizes[1:-1], str(data.classes)]
    if net.startswith("mlp:") and len(sizes) > 1 and all(map(str.isdigit, sizes)) and list(sizes) != right:
        raise UserError(
            f"--net {net} has {sizes[0]} inputs and {sizes[-1]} outputs; the table has {data.features} inputs once "
            f"encoded and needs {data.classes} outputs ({what}): use --net mlp:{'-'.join(right)}"
        )


def score(prepared: Prepared, model: nn.Module, test: TensorDataset) -> tuple[dict[str, float], str]:
    """Scores on the test rows, as numbers and as a sentence."""
    inputs, target = test.tensors
    with torch.no_grad():
        output = _by_rows(model(inputs), len(inputs))
    if prepared.kind == CLASSIFICATION:
        right = float((output.argmax(1) == target).float().mean())
        return {"test_accuracy": right}, f"test: {right:.2%} right"
    spread = float(((target - target.mean(0)) ** 2).sum())
    r2 = 1 - float(((output - target) ** 2).sum()) / spread if spread else float("nan")
    error = float((output - target).abs().mean()) * float(prepared.scaling.scale[0])
    return {"test_r2": r2, "test_absolute_error": error}, f"test: R2 {r2:.4f}, mean absolute error {error:.4g}"


def _by_rows(output: torch.Tensor, rows: int) -> torch.Tensor:
    """As (rows, outputs), also where a network returns a vector of one number for each row."""
    return output.reshape(rows, -1)


def default_loss(kind: str, loss: str | None) -> str:
    """The loss that fits the kind of target, unless another one is asked for that fits, too."""
    if kind == REGRESSION and loss not in (None, "mse"):
        raise UserError(
            f"--loss {loss} is for classes, and the target holds numbers; use mse, or --task classification"
        )
    return loss or ("mse" if kind == REGRESSION else "cross_entropy")

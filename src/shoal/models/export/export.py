"""Fitted models for other programs: a .pt2 file for PyTorch or an .onnx file, checked against Shoal's own prediction.

The file is written under another name first and takes its place only after the check: a wrong export does not stay.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.activations import TABLE
from shoal.members import nearest
from shoal.metrics.tasks import REGRESSION
from shoal.models.export.blueprint import NUMERIC, Blueprint, draw, refuse_columns
from shoal.models.model import Model
from shoal.tables.table import Table

SUFFIXES = {"torch": ".pt2", "onnx": ".onnx"}
PACKAGES = {"torch": ("torch",), "onnx": ("onnx", "onnxruntime")}
TOLERANCE = 1e-4  # of a probability, or of the spread of the target
MOST_JUMPS = 0.01  # share of rows of a network with jumps that may differ by more
MOST_ROWS = 10_000  # that are compared
MADE_UP_ROWS = 1_000


@dataclass(frozen=True)
class Comparison:
    """The exported file beside Shoal's own prediction of the same rows."""

    rows: int
    made_up: bool  # rows drawn from what the encoders know of the columns, for want of data
    largest: float  # difference, in the units of the prediction
    relative: float  # the same over the spread of the target; probabilities are taken as they are
    beyond: int  # rows that differ by more than TOLERANCE

    def describe(self) -> str:
        kind = "made-up rows" if self.made_up else "rows"
        text = (
            f"checked on {self.rows:,} {kind}: the largest difference to Shoal's own prediction is {self.largest:.2g}"
        )
        if self.beyond:
            text += f" (in {self.beyond} of the rows, where an activation jumps and rounding decides the side)"
        return text


def export_model(estimator: Any, to: str, path: str | os.PathLike[str], data: Any = None) -> Comparison:
    """Write a fitted estimator for "torch" or "onnx" to `path`, and compare both on `data`, or else on made-up rows.

    Tables of numbers and booleans can be exported; to ONNX also categories, as strings. A difference above 1e-4, of a
    probability or of the spread of the target, is an error.
    """
    model: Model = estimator.model_
    writer = _writer(to)
    place = _checked_place(Path(path), to)
    if to == "torch":
        refuse_columns(model, ("category",), "PyTorch has no strings (ONNX has: --to onnx)")
    blueprint = draw(model)
    table = made_up_rows(model) if data is None else Table.of(data).take(slice(MOST_ROWS))
    temporary = place.with_name(f".{place.stem}.{os.getpid()}{SUFFIXES[to]}")
    _make_folder(place)
    try:
        writer.write(blueprint, metadata(estimator, blueprint), temporary)
        compared = _compare(model, blueprint, writer, temporary, table, data is None)
        os.replace(temporary, place)
    except OSError as error:
        raise _unwritable(place, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return compared


def default_place(folder: Path, to: str) -> Path:
    """Beside the model folder, under its name."""
    folder = folder if folder.name not in ("", "..") else folder.resolve()
    return folder.with_name(folder.name + SUFFIXES[check_kind(to)])


def check_kind(to: str) -> str:
    if to not in SUFFIXES:
        raise ValueError(f"a model is exported to {' or '.join(SUFFIXES)}; got {to!r}{nearest(to, tuple(SUFFIXES))}")
    return to


def _writer(to: str) -> Any:
    """The module that writes and runs such files, with all that it needs."""
    for package in PACKAGES[check_kind(to)]:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise ModuleNotFoundError(
                f"exporting to {to} needs the package {package}, which is not installed: "
                f"run `pip install {' '.join(PACKAGES[to])}`",
                name=package,
            ) from None
    return importlib.import_module(f"shoal.models.export.{to}")


def _checked_place(path: Path, to: str) -> Path:
    """The suffix is asked for so that a slip never writes over somebody's data."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file that ends in {SUFFIXES[to]}")
    if path.suffix != SUFFIXES[to]:
        raise ValueError(f"the file of an export to {to} must end in {SUFFIXES[to]}; got {path}")
    return path


def _make_folder(place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(place, error) from error


def _unwritable(place: Path, error: OSError) -> ValueError:
    return ValueError(f"{place} cannot be written: {error.strerror or error}; give the name of another file")


def metadata(estimator: Any, blueprint: Blueprint) -> dict[str, Any]:
    """What a program that uses the file must know: columns in their order, spelling of categories, classes."""
    from shoal.version import __version__

    classes = getattr(estimator, "classes_", None)
    described: dict[str, Any] = {
        "shoal_version": __version__,
        "task": blueprint.task.kind,
        "numbers": list(blueprint.numbers),
        "networks": len(blueprint.networks) * blueprint.folds,
    }
    if blueprint.categories:
        described["categories"] = {category.name: list(category.values) for category in blueprint.categories}
        described["missing_category"] = ""
    if classes is not None:
        described["classes"] = classes.tolist()
    return described


# ---- the check ----


def _compare(model: Model, blueprint: Blueprint, writer: Any, path: Path, table: Table, made_up: bool) -> Comparison:
    expected = model.predict(table)
    inputs = runtime_inputs(model, blueprint, table)
    got = writer.run(path, inputs)
    if got.shape != expected.shape:
        raise ValueError(f"the export gives the shape {got.shape} where Shoal gives {expected.shape}; nothing was kept")
    difference = np.abs(got - expected)
    spread = blueprint.target["scale"].max(axis=0) if blueprint.task.kind == REGRESSION else 1.0
    relative = difference / spread
    beyond = int((~(relative <= TOLERANCE)).any(axis=1).sum())  # NaN is beyond as well
    jumps = any(TABLE[network.activation].jumps_at and len(network.layers) > 1 for network in blueprint.networks)
    if beyond > (MOST_JUMPS * len(table) if jumps else 0):
        raise ValueError(
            f"the export must agree with Shoal's own prediction to {TOLERANCE:g}; it differs by {relative.max():.2g} "
            f"in {beyond} of {len(table)} rows: nothing was kept, please report this"
        )
    return Comparison(len(table), made_up, float(difference.max()), float(relative.max()), beyond)


def runtime_inputs(model: Model, blueprint: Blueprint, table: Table) -> dict[str, np.ndarray]:
    """A table as the arrays that an exported file takes: numbers (n, d) and, if there are any, categories (n, c)."""
    table = model.schema.check(table)
    numbers = [table[name] for name in blueprint.numbers]
    inputs = {"numbers": np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0))}
    if blueprint.categories:
        strings = [table[category.name] for category in blueprint.categories]
        cells = np.stack(strings, axis=1)
        inputs["categories"] = np.where(cells == None, "", cells)  # noqa: E711, which compares cell by cell
    return inputs


def made_up_rows(model: Model, count: int = MADE_UP_ROWS) -> Table:
    """Rows that visit what encoders know: inside and at the edges of bins, far outside, missing, unseen strings."""
    generator = np.random.default_rng(0)
    encoders = [fold.encoder for fold in model.folds]
    names = [column.name for column in model.schema.used if column.kind in NUMERIC]
    columns = []
    for column in model.schema.used:
        if column.kind == "number":
            edges = np.concatenate([encoder.numbers.edges[names.index(column.name)] for encoder in encoders])
            cells: np.ndarray = _made_up_numbers(edges, count, generator)
        elif column.kind == "boolean":
            cells = generator.choice([0.0, 1.0, np.nan], size=count, p=[0.45, 0.45, 0.1])
        else:
            known = sorted({v for e in encoders for v in e.categories[column.name].values if v is not None})
            frequent = sorted({v for e in encoders for v in e.categories[column.name].frequent or ()})[:MADE_UP_ROWS]
            options = np.array([*known, *frequent, "a value never seen", None], dtype=object)
            cells = options[generator.integers(len(options), size=count)]
        columns.append(cells)
    return Table([column.name for column in model.schema.used], columns)


def _made_up_numbers(edges: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    one, other = generator.choice(edges, size=(2, count))
    share = generator.choice([0.0, 0.5, 1.0, np.nan], size=count, p=[0.2, 0.4, 0.3, 0.1])
    share = np.where(share == 0.5, generator.random(count), share)
    cells = one + share * (other - one)
    far = generator.random(count) < 0.05
    reach = np.ptp(edges) + np.abs(edges).max() + 1.0
    return np.where(far & ~np.isnan(cells), reach * generator.normal(scale=100.0, size=count), cells)

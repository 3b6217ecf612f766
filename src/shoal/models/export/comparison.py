"""Compares an exported file with Shoal's own prediction of the same rows: the check that every export must pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.encoders.scaling import LARGEST_NUMBER, NumberScaling
from shoal.errors import UserError
from shoal.metrics.tasks import REGRESSION
from shoal.models.export.plan import NUMERIC, Category, ExportPlan
from shoal.models.export.registry import Exporter
from shoal.models.model import Model
from shoal.population.activations import TABLE
from shoal.tables.frames import cell_text
from shoal.tables.table import Table

TOLERANCE = 1e-4  # of a probability, or of the spread of the target
MOST_JUMPS = 0.01  # share of rows of a network with jumps that may differ by more
MOST_ROWS = 10_000  # that are compared
MADE_UP_ROWS = 1_000


@dataclass(frozen=True)
class ExportComparison:
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


def compare(
    model: Model, plan: ExportPlan, exporter: Exporter, path: Path, table: Table, made_up: bool
) -> ExportComparison:
    """Predict the rows with Shoal and with the exported file; an error if they differ too much."""
    expected = model.predict(_without_marks(plan, table))
    inputs = runtime_inputs(model, plan, table)
    got = exporter.run(path, inputs)
    if got.shape != expected.shape:
        raise UserError(f"the export gives the shape {got.shape} where Shoal gives {expected.shape}; nothing was kept")
    difference = np.abs(got - expected)
    spread = plan.target["scale"].max(axis=0) if plan.task.kind == REGRESSION else 1.0
    relative = difference / spread
    beyond = int((~(relative <= TOLERANCE)).any(axis=1).sum())  # NaN is beyond as well
    jumps = any(TABLE[network.activation].jumps_at and len(network.layers) > 1 for network in plan.networks)
    if beyond > (MOST_JUMPS * len(table) if jumps else 0):
        raise UserError(
            f"the export must agree with Shoal's own prediction to {TOLERANCE:g}; it differs by {relative.max():.2g} "
            f"in {beyond} of {len(table)} rows: nothing was kept, please report this"
        )
    return ExportComparison(len(table), made_up, float(difference.max()), float(relative.max()), beyond)


def runtime_inputs(model: Model, plan: ExportPlan, table: Table) -> dict[str, np.ndarray]:
    """A table as the arrays that an exported file takes: numbers (n, d) and, if there are any, categories (n, c).

    Categories are the cells as the table has them, apart from blanks around: the exported file alone must understand
    every spelling.
    """
    read = model.schema.check(table)
    numbers = [read[name] for name in plan.numbers]
    inputs = {"numbers": np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0))}
    if plan.categories:
        inputs["categories"] = np.stack([_raw_cells(table[category.name]) for category in plan.categories], axis=1)
    return inputs


def _without_marks(plan: ExportPlan, table: Table) -> Table:
    """The table as Shoal reads it from a file, where cells that mean a missing category are missing."""
    gone = {category.name: frozenset(category.missing) for category in plan.categories}
    columns = list(table.columns)
    for j, name in enumerate(table.names):
        if name in gone and columns[j].dtype == object:
            columns[j] = np.array(
                [None if c is None or c.strip() in gone[name] else c for c in columns[j]], dtype=object
            )
    return table.with_columns(columns)


def _raw_cells(column: np.ndarray) -> np.ndarray:
    """Strings as they are, "" for missing; other cells in the spelling of files."""
    cells = np.empty(len(column), dtype=object)
    cells[:] = [(cell_text(cell) or "").strip() for cell in column.tolist()]
    return cells


def made_up_rows(model: Model, plan: ExportPlan, count: int = MADE_UP_ROWS) -> Table:
    """Rows for the check: numbers inside bins, at their edges and far outside, missing cells, unseen strings.

    Categories come in every spelling that files may have, and nearly so.
    """
    categories = {category.name: category for category in plan.categories}
    generator = np.random.default_rng(0)
    encoders = [fold.encoder for fold in model.folds]
    names = [column.name for column in model.schema.used if column.kind in NUMERIC]
    columns = []
    for column in model.schema.used:
        if column.kind == "number":
            edges = np.concatenate([_edges(encoder.scaling, names.index(column.name)) for encoder in encoders])
            cells: np.ndarray = _made_up_numbers(edges, count, generator)
        elif column.kind == "boolean":
            cells = generator.choice([0.0, 1.0, np.nan], size=count, p=[0.45, 0.45, 0.1])
        else:
            cells = _made_up_cells(categories[column.name], count, generator)
        columns.append(cells)
    return Table([column.name for column in model.schema.used], columns)


def _edges(scaling: NumberScaling, number: int) -> np.ndarray:
    """Where the encodings of a number bend or step."""
    found = np.concatenate([scaling.edges[number], scaling.step_above[scaling.step_column == number]])
    return np.clip(found, -LARGEST_NUMBER, LARGEST_NUMBER)


def _made_up_cells(category: Category, count: int, generator: np.random.Generator) -> np.ndarray:
    """Half of the cells are values that the model knows, the others missing, unseen, or spelled nearly like a value."""
    known = [*category.numbered(category.known)]
    values = [*category.values, *category.frequent]
    shapes = ("0{}", "+{}", "{}0", "{}.0", "{}.00", "{} .0", "-{}")
    odd = [shape.format(value) for shape in shapes for value in values] + [value.upper() for value in values]
    others = ["a value never seen", "None", "-", "TRUE", "1e5", *odd]
    pool = (np.array(known, dtype=object), np.array([None, *others], dtype=object))
    drawn = [cells[generator.integers(len(cells), size=count)] for cells in pool]
    return np.where(generator.random(count) < 0.5, *drawn)


def _made_up_numbers(edges: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    one, other = generator.choice(edges, size=(2, count))
    share = generator.choice([0.0, 0.5, 1.0, np.nan], size=count, p=[0.2, 0.4, 0.3, 0.1])
    share = np.where(share == 0.5, generator.random(count), share)
    cells = one + share * (other - one)
    far = generator.random(count) < 0.05
    reach = np.ptp(edges) + np.abs(edges).max() + 1.0
    return np.where(far & ~np.isnan(cells), reach * generator.normal(scale=100.0, size=count), cells)

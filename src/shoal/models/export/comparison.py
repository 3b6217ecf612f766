"""An exported file beside Shoal's own prediction of the same rows: the check that every export must pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.activations import TABLE
from shoal.errors import UserError
from shoal.metrics.tasks import REGRESSION
from shoal.models.export.plan import NUMERIC, ExportPlan, category_encoders
from shoal.models.export.registry import Exporter
from shoal.models.model import Model
from shoal.tables.table import Table

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


def compare(model: Model, plan: ExportPlan, exporter: Exporter, path: Path, table: Table, made_up: bool) -> Comparison:
    """Predict the rows with Shoal and with the exported file; an error if they differ too much."""
    expected = model.predict(table)
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
    return Comparison(len(table), made_up, float(difference.max()), float(relative.max()), beyond)


def runtime_inputs(model: Model, plan: ExportPlan, table: Table) -> dict[str, np.ndarray]:
    """A table as the arrays that an exported file takes: numbers (n, d) and, if there are any, categories (n, c)."""
    table = model.schema.check(table)
    numbers = [table[name] for name in plan.numbers]
    inputs = {"numbers": np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0))}
    if plan.categories:
        strings = [table[category.name] for category in plan.categories]
        cells = np.stack(strings, axis=1)
        inputs["categories"] = np.where(cells == None, "", cells)  # noqa: E711, which compares cell by cell
    return inputs


def made_up_rows(model: Model, count: int = MADE_UP_ROWS) -> Table:
    """Rows for the check: numbers inside bins, at their edges and far outside, missing cells, unseen strings."""
    generator = np.random.default_rng(0)
    encoders = [fold.encoder for fold in model.folds]
    names = [column.name for column in model.schema.used if column.kind in NUMERIC]
    columns = []
    for column in model.schema.used:
        if column.kind == "number":
            edges = np.concatenate([encoder.scaling.edges[names.index(column.name)] for encoder in encoders])
            cells: np.ndarray = _made_up_numbers(edges, count, generator)
        elif column.kind == "boolean":
            cells = generator.choice([0.0, 1.0, np.nan], size=count, p=[0.45, 0.45, 0.1])
        else:
            parts = [category_encoders(encoder)[column.name] for encoder in encoders]
            known = sorted({value for part in parts for value in part.values if value is not None})
            frequent = sorted({value for part in parts for value in part.frequent or ()})[:MADE_UP_ROWS]
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

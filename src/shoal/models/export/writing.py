"""Fitted models as files of other programs, checked against Shoal's own prediction.

The file is written under another name first and takes its place only after the check: a wrong export does not stay.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.files import atomic
from shoal.models.compact import compact_model
from shoal.models.export.comparison import MOST_ROWS, ExportComparison, compare, made_up_rows
from shoal.models.export.plan import ExportPlan, make_plan, refuse_columns
from shoal.models.export.registry import Exporter, find_exporter, require_packages
from shoal.models.model import Model
from shoal.tables.reading import Reading
from shoal.tables.table import Table


def export_model(
    estimator: Any, to: str | Exporter, path: str | os.PathLike[str], data: Any = None, compact: bool = False
) -> ExportComparison:
    """Write a fitted estimator to `path`, and compare both on the rows of `data`, or else on made-up rows.

    With `compact`, the fewest networks whose out-of-fold loss is within one standard error of the model's.
    `to` is a name of `EXPORTERS` or a custom `Exporter`. Columns of numbers, booleans and categories can be
    exported; PyTorch has no strings, and takes their numbers. A difference above 1e-4, of a probability or of the
    spread of the target, is an error.
    """
    model: Model = compact_model(estimator.model_) if compact else estimator.model_
    exporter = find_exporter(to)
    place = _checked_place(Path(path), exporter)
    require_packages(exporter)
    for kind, reason in exporter.refused.items():
        refuse_columns(model, (kind,), reason)
    reading: Reading | None = getattr(estimator, "reading_", None)
    plan = make_plan(model, () if reading is None else reading.missing)
    table = made_up_rows(model, plan) if data is None else Table.of(data).take(slice(MOST_ROWS))
    _make_folder(place)
    try:
        with atomic.new_file(place) as partial:
            exporter.write(plan, metadata(estimator, plan), partial)
            return compare(model, plan, exporter, partial, table, data is None)
    except OSError as error:
        raise _unwritable(place, error) from error


def default_place(folder: Path, to: str | Exporter) -> Path:
    """Beside the model folder, under its name."""
    folder = folder if folder.name not in ("", "..") else folder.resolve()
    return folder.with_name(folder.name + find_exporter(to).suffix)


def _checked_place(path: Path, exporter: Exporter) -> Path:
    """The place, if its name has the suffix of the exporter: a slip must not write over somebody's data."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file that ends in {exporter.suffix}")
    if path.suffix != exporter.suffix:
        raise UserError(f"the file of an export to {exporter.name} must end in {exporter.suffix}; got {path}")
    return path


def _make_folder(place: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(place, error) from error


def _unwritable(place: Path, error: OSError) -> UserError:
    return UserError(f"{place} cannot be written: {error.strerror or error}; give the name of another file")


def metadata(estimator: Any, plan: ExportPlan) -> dict[str, Any]:
    """What a program that uses the file must know: columns in their order, spelling of categories, classes."""
    from shoal.version import __version__

    classes = getattr(estimator, "classes_", None)
    described: dict[str, Any] = {
        "shoal_version": __version__,
        "task": plan.task.kind,
        "numbers": list(plan.numbers),
        "networks": len(plan.networks) * plan.folds,
    }
    if plan.categories:
        described["categories"] = {category.name: list(category.values) for category in plan.categories}
        described["missing_cells"] = list(plan.categories[0].missing)
        described["category_codes"] = {category.name: category.numbered(category.known) for category in plan.categories}
        described["unseen_codes"] = {category.name: len(category.known) for category in plan.categories}
    if classes is not None:
        described["classes"] = classes.tolist()
    return described

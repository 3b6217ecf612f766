"""Answers for new rows, from a file to a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from shoal.console.terminal import data_stream, say, visible
from shoal.errors import UserError
from shoal.files import atomic
from shoal.tables.files import FileSummary, read_table
from shoal.tables.inputs import ignored
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.table import Table

BETWEEN = " | "  # names in one cell
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # how formulas begin
ROWS_NAMED = 3  # strange ones, on the screen


def read_new_rows(
    path: Path, estimator: Any, sep: str | None = None, header: bool | None = None, missing: Sequence[str] = ()
) -> Table:
    """The columns that a model knows. The file is read as the training data were, unless told otherwise."""
    schema: Schema = estimator.schema_
    reading: Reading = getattr(estimator, "reading_", None) or Reading()
    header = reading.header if header is None else header
    marks = [*reading.missing, *missing]

    def names_of(found: list[str]) -> list[str]:
        known = [column.name for column in schema.columns]
        return found if header is not False else _names_by_place(len(found), known, reading.columns, path) or found

    def strings(found: list[str]) -> Iterable[int]:
        return [j for j, name in enumerate(names_of(found)) if name in schema.as_written]

    def read(sep: str | None) -> tuple[Table, FileSummary]:
        table, summary = read_table(
            path, sep=sep, header=header, missing=marks, quote=reading.quote, strings=strings, decimal=schema.decimal,
            named=[column.name for column in schema.used] if header else (),
        )  # fmt: skip
        table = Table.of(table, names_of(table.names)) if header is False else table
        schema.refuse_missing(table)
        return table, summary

    table, summary = _first_that_fits(read, [sep] if sep is not None else dict.fromkeys([reading.sep, None]))
    extra = schema.unknown(table, {*reading.columns, getattr(estimator, "target_name_", None)})
    _refuse_repeated(path, [column.name for column in schema.used], summary.ambiguous(table), extra)
    converted = schema.conversion(table)
    for said in (*summary.notes, ignored(extra) if extra else None, converted):
        if said is not None:
            say(f"note: {path}: {said}", error=True)
    known = {column.name for column in schema.columns}
    table = table.select([j for j, name in enumerate(table.names) if name in known])
    return schema.with_numbers(table) if converted else table  # it has been said


def _first_that_fits(
    read: Callable[[str | None], tuple[Table, FileSummary]], separators: Iterable[str | None]
) -> tuple[Table, FileSummary]:
    """The file with the separator of the training file; where that does not give the model's columns, with another."""
    *usual, last = separators
    for sep in usual:
        with suppress(UserError):
            return read(sep)
    return read(last)


def _refuse_repeated(path: Path, used: Sequence[str], repeated: Iterable[str], extra: Sequence[str]) -> None:
    """Refuse columns of one name, of which the training data had fewer."""
    for name in repeated:
        if name in used and any(other.startswith(f"{name} (") for other in extra):
            raise UserError(f"{path} has several columns {name!r}, unlike the training data: keep the one to use")


def _names_by_place(count: int, known: Sequence[str], all_names: Sequence[str], path: Path) -> list[str] | None:
    """Columns without names are known by their place: with the target and all others, or with the model's alone."""
    if all_names and count not in (len(known), len(all_names)):
        raise UserError(
            f"a file without names must have the {len(all_names)} columns of the training file, or the {len(known)} "
            f"that the model knows; {path} has {count}: give it the same columns, or names"
        )
    if count == len(known) != len(all_names):
        return list(known)
    return list(all_names) or None


def answer(
    estimator: Any, table: Table, proba: bool, coverage: float | None = None, strange: bool = False
) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """Names of the answers, and a row of them for each row.

    coverage  also intervals, or sets of classes, that hold the truth in this share of rows
    strange   also how strange each row is, and by which columns
    """
    classes = getattr(estimator, "classes_", None)
    if proba and classes is None:
        raise UserError("--proba needs a model that predicts classes; this one predicts numbers: remove --proba")
    loss = getattr(estimator, "loss_", "cross_entropy")
    if proba and loss != "cross_entropy":
        raise UserError(f"--proba needs a network trained with --loss cross_entropy; this one was trained with {loss}")
    columns = (
        _classes(estimator, table, proba, coverage) if classes is not None else _numbers(estimator, table, coverage)
    )
    if strange:
        found = estimator.strange(table)
        columns["strangeness p-value"] = [float(f"{p:.4g}") for p in found.p_values]
        columns["strange in"] = [BETWEEN.join(names) for names in found.columns]
    return list(columns), zip(*columns.values(), strict=True)


def _numbers(estimator: Any, table: Table, coverage: float | None) -> dict[str, Sequence[Any]]:
    values = estimator.predict(table)
    values = values.reshape(len(values), -1)
    ends = None if coverage is None else estimator.predict_interval(table, coverage).reshape(*values.shape, 2)
    columns: dict[str, Sequence[Any]] = {}
    for k in range(values.shape[1]):
        which = f" {k + 1}" if values.shape[1] > 1 else ""
        columns[f"prediction{which}"] = values[:, k].tolist()
        if ends is not None:
            columns |= {f"{name}{which}": ends[:, k, end].tolist() for end, name in enumerate(("low", "high"))}
    return columns


def _classes(estimator: Any, table: Table, proba: bool, coverage: float | None) -> dict[str, Sequence[Any]]:
    names = np.asarray(estimator.classes_)
    probability = estimator.predict_proba(table)
    columns: dict[str, Sequence[Any]] = {"prediction": names[probability.argmax(axis=1)].tolist()}
    if coverage is not None:
        inside = estimator.predict_set(table, coverage)
        columns["set"] = [BETWEEN.join(str(name) for name in names[row].tolist()) for row in inside]
    if proba:
        columns |= {f"probability of {name}": probability[:, k].tolist() for k, name in enumerate(names)}
    return columns


def note_strange(estimator: Any, table: Table, source: Path) -> None:
    """Say on the screen which rows are unlike the training data, if any are."""
    if estimator.model_.certainty is None:  # only a search knows it
        return
    found = estimator.strange(table)
    rows = np.flatnonzero(found.marked)
    if not len(rows):
        return
    worst = rows[np.argsort(found.p_values[rows], kind="stable")][:ROWS_NAMED]
    named = "; ".join(f"row {row + 1} ({', '.join(found.columns[row])})" for row in sorted(worst.tolist()))
    more = f" and {len(rows) - len(worst):,} more" if len(rows) > len(worst) else ""
    say(
        f"note: {source}: {len(rows):,} of {len(table):,} row{'s' if len(table) > 1 else ''} "
        f"{'are' if len(rows) > 1 else 'is'} unlike the training data ({found.share:.0%} of rows like it would be): "
        f"{named}{more}; the first row of data is row 1, and --strange writes it for each",
        error=True,
    )


def write_answers(
    head: Sequence[str], rows: Iterable[Sequence[Any]], out: Path | None, source: Path, safe_cells: bool = False
) -> None:
    """To the screen, or to a file that is there whole or not at all. `safe_cells`: see `safe_cell`."""
    if safe_cells:
        head, rows = list(map(safe_cell, head)), ([safe_cell(cell) for cell in row] for row in rows)
    if out is None:
        if sys.stdout.isatty():
            head, rows = list(map(visible, head)), ([_on_screen(cell) for cell in row] for row in rows)
        _write(data_stream(), head, rows)
        return
    check_out(out, source)
    try:
        with atomic.new_file(out) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            _write(file, head, rows)
    except OSError as error:
        raise UserError(f"Shoal cannot write the predictions to {out} ({error.strerror}); give another --out") from None


def check_out(out: Path, source: Path) -> None:
    """Refuse to write over a folder, or over the file that was read."""
    if out.exists() and (out.is_dir() or (source.exists() and out.samefile(source))):
        what = "a folder" if out.is_dir() else "the file with the new rows"
        raise UserError(f"--out must be a file for the predictions; {out} is {what}: give another name")


def safe_cell(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets a ' in front. Numbers stay.

    >>> [safe_cell(cell) for cell in ("=1+1", "@x", "-1.5", -1.5, "red", "-red")]
    ["'=1+1", "'@x", '-1.5', -1.5, 'red', "'-red"]
    """
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _on_screen(cell: Any) -> Any:
    return visible(cell) if isinstance(cell, str) else cell


def _write(file: Any, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)

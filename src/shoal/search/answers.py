"""Answers for new rows, from a file to a file."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.search.files import read_table
from shoal.search.schema import Schema
from shoal.search.table import Table


def read_new_rows(
    path: Path,
    estimator: Any,
    settings: dict[str, Any] | None,
    sep: str | None = None,
    header: bool | None = None,
    missing: Sequence[str] = (),
) -> Table:
    """The columns that a model knows. Files are read as the training data were, unless told otherwise.

    The target may be there; with the `settings` of the run, so may columns that were dropped.
    """
    schema: Schema = estimator.schema_
    data = {} if settings is None else settings["data"]
    header = data.get("header") if header is None else header
    table, _ = read_table(path, sep=sep, header=header, missing=[*data.get("missing", ()), *missing])
    known = [column.name for column in schema.columns]
    if header is False:
        table = _named(table, known, data.get("columns", ()))
    unused = {*data.get("columns", ()), getattr(estimator, "target_name_", None)} - set(
        known
    )  # the target, and columns left out on request
    kept = [j for j, name in enumerate(table.names) if name not in unused]
    table = table.select(kept)
    schema.check(table, strict=True)
    return table


def _named(table: Table, known: Sequence[str], all_names: Sequence[str]) -> Table:
    """Columns without names are known by their place: with the target and all others, or with the model's alone."""
    if len(table.names) == len(known) != len(all_names):
        return Table(known, table.columns)
    return table


def answer(estimator: Any, table: Table, proba: bool) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """Names of the answers, and a row of them for each row."""
    classes = getattr(estimator, "classes_", None)
    if proba and classes is None:
        raise ValueError("--proba needs a model that tells classes apart; this one predicts numbers: leave it out")
    if classes is None:
        values = estimator.predict(table)
        columns = values.reshape(len(values), -1).T
        head = ["prediction"] if len(columns) == 1 else [f"prediction {k + 1}" for k in range(len(columns))]
        return head, zip(*(column.tolist() for column in columns), strict=True)
    probability = estimator.predict_proba(table)
    label = np.asarray(classes)[probability.argmax(axis=1)].tolist()
    if not proba:
        return ["prediction"], ([name] for name in label)
    head = ["prediction", *(f"probability of {name}" for name in classes)]
    return head, ([name, *row] for name, row in zip(label, probability.tolist(), strict=True))


def write_answers(head: Sequence[str], rows: Iterable[Sequence[Any]], out: Path | None, source: Path) -> None:
    """To the screen, or to a file that is there whole or not at all."""
    if out is None:
        _write(sys.stdout, head, rows)
        return
    if out.exists() and (out.is_dir() or out.samefile(source)):
        what = "a folder" if out.is_dir() else "the file with the new rows"
        raise ValueError(f"--out must be a file for the answers; {out} is {what}: give another name")
    temporary = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            _write(file, head, rows)
        os.replace(temporary, out)
    except OSError as error:
        raise ValueError(f"the answers cannot be written to {out} ({error.strerror}); give another --out") from None
    finally:
        temporary.unlink(missing_ok=True)


def _write(file: Any, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)

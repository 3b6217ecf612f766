"""A file to search: the table that is read, its target, and the columns that say how rows belong together."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION
from shoal.runs.kinds import search_marks
from shoal.runs.versions import file_hash, value_hash, versions
from shoal.search.options import SearchOptions
from shoal.search.problem.data import TrainingData, training_data
from shoal.search.problem.roles import Roles
from shoal.tables.files import find_column, read_table, strings_of
from shoal.tables.kinds import DROP
from shoal.tables.options import RowOptions
from shoal.tables.reading import Reading
from shoal.tables.table import Table
from shoal.tables.target import LabelledTable, find_target

DEMO = "breast-cancer-wisconsin"
NO_INPUTS = {"groups": "names the groups", "weight": "holds the weights of the rows"}


@dataclass(frozen=True)
class Request:
    """What the user asked for: what to read, and how to search."""

    file: Path | None
    demo: bool
    reading: RowOptions
    search: SearchOptions


@dataclass(frozen=True, eq=False)
class Source:
    """A table that was read, what is understood of it, and where it is from."""

    request: Request
    name: str
    table: Table
    sha256: str
    reading: Reading
    columns: dict[str, str]  # those of --groups, --time and --weight, by option
    labelled: LabelledTable
    notes: tuple[str, ...]  # how it was read, and what is done with it

    @property
    def stem(self) -> str:
        """What folders of runs are named after."""
        return self.name.split(".")[0] or "run"

    @property
    def path(self) -> str | None:
        return None if self.request.file is None else str(self.request.file.resolve())

    def training_data(self) -> TrainingData:
        """What a search takes."""
        options, found = self.request.search, self.labelled
        given = {"sample_weight" if option == "weight" else option: name for option, name in self.columns.items()}
        roles = Roles.of(found.X, options.folds, **given)
        return training_data(
            found.X, found.y, found.kind, roles=roles, schema=found.schema, name=found.target,
            group_repeats=options.group_repeats,
        )  # fmt: skip

    def described_data(self) -> dict[str, Any]:
        """As settings.json has it."""
        return {
            "file": self.name, "path": self.path, "sha256": self.sha256, "demo": self.request.demo,
            **self.request.reading.as_dict(), "sep": self.reading.sep, "header": self.reading.header,
            "target": self.labelled.target, "columns": self.table.names, **self.columns,
        }  # fmt: skip

    def described_search(self) -> dict[str, Any]:
        return self.request.search.as_dict() | {"task": self.labelled.kind}

    def fingerprint(self, repeated: dict[str, Any] | None = None) -> dict[str, Any]:
        """All that decides the result, and nothing about who computes it. `repeated`: the settings of that run."""
        deciding = self.request.reading.fingerprint().keys() | self.request.search.fingerprint().keys()
        described = self.described_data() | self.described_search()
        marks = search_marks(self.sha256, {k: v for k, v in described.items() if k in deciding}, versions())
        return marks if repeated is None else marks | {"repeat": value_hash([repeated["search"], repeated["log"]])}


def read_source(request: Request, settled: bool = False) -> Source:
    """Read the table that a request names. `settled`: the name of the target is exact, as it is in settings.json."""
    if request.demo:
        request = replace(request, reading=replace(request.reading, target="diagnosis"))
        table, sha256, described = _demo()
        reading = Reading(request.reading.missing, tuple(table.names))
        return _understood(request, DEMO, table, sha256, reading, described, ())
    options = request.reading
    assert request.file is not None
    classes = options.target if request.search.task == CLASSIFICATION else None
    table, found = read_table(
        request.file, sep=options.sep, header=options.header, missing=options.missing, named=options.named(),
        strings=strings_of(options.kind_of_columns(), classes),
    )  # fmt: skip
    reading = Reading(options.missing, tuple(table.names), found.header, found.separator, found.quote)
    ambiguous = () if settled else found.ambiguous(table)
    sha256 = file_hash(request.file)
    return _understood(request, request.file.name, table, sha256, reading, found.describe(), ambiguous)


def _demo() -> tuple[Table, str, list[str]]:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    columns = [*found.data.T, found.target_names[found.target].astype(object)]
    table = Table([*map(str, found.feature_names), "diagnosis"], columns)
    digest = hashlib.sha256(np.ascontiguousarray(found.data).tobytes() + found.target.tobytes()).hexdigest()
    words = (
        f"{len(table)} rows, {len(table.names)} columns, from scikit-learn: breast tumours in Wisconsin, measured "
        "under a microscope; are they malignant or benign?"
    )
    return table, digest, [words]


def _understood(
    request: Request,
    name: str,
    table: Table,
    sha256: str,
    reading: Reading,
    described: list[str],
    ambiguous: tuple[str, ...],
) -> Source:
    """The target, and the columns that are no inputs."""
    options, target = request.reading, request.reading.target
    assert target is not None
    given = {option: getattr(options, option) for option in ("groups", "time", "weight")}
    places = {option: find_column(table, column) for option, column in given.items() if column is not None}
    _refuse_twice(table, {"target": find_column(table, target), **places})
    columns = {option: table.names[place] for option, place in places.items()}
    drop = [column for column in options.drop if find_column(table, column) not in places.values()]
    no_inputs = [columns[option] for option in NO_INPUTS if option in columns]
    no_inputs += [column for column in options.drop if column not in drop]
    kinds = options.kind_of_columns() | dict.fromkeys(no_inputs, DROP)
    labelled = find_target(table, target, request.search.task, drop, ambiguous, kinds or None)
    notes = [f"column {columns[option]!r} {why}, so it is no input" for option, why in NO_INPUTS.items()
             if option in columns]  # fmt: skip
    if "time" in columns:
        notes.append(
            f"column {columns['time']!r} gives the order: networks are scored on later rows than they train on. "
            "Intervals and sets come from the errors on those, and are not guaranteed to hold for still later rows"
        )
    said = (*described, *labelled.notes, *notes)
    return Source(request, name, table, sha256, reading, columns, labelled, said)


def _refuse_twice(table: Table, places: dict[str, int]) -> None:
    seen: dict[int, str] = {}
    for option, place in places.items():
        if place in seen:
            raise UserError(
                f"--{option} must not name the column of --{seen[place]}; {table.names[place]!r} is both: choose "
                "another one"
            )
        seen[place] = option

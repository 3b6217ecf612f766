"""The options of training on a table of the user's own (see `shoal.options`). Those of the training are in `job.py`."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.options import option
from shoal.tables.options import DataOptions
from shoal.tables.target import TASKS


@dataclass(frozen=True)
class TableOptions(DataOptions):
    """How the table is read, and what is held back of it."""

    test: float = option(
        0.2, "Share of the rows held back for the score at the end. (default: {default})", above=0, below=1,
        what="a share",
    )  # fmt: skip
    task: str | None = option(None, "classification or regression. (default: guessed)", one_of=TASKS)

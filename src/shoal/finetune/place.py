"""The folder of a run, see `shoal.runs.folder`. Its settings are written at the beginning, its model at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.runs.folder import RunFolder
from shoal.runs.kinds import (
    CHECKPOINTS,
    EVENTS,
    FINETUNE,
    FINETUNE_FORMAT,
    METRICS,
    MODEL,
    REPORT,
    SAMPLES,
    SETTINGS,
    SETTINGS_VERSION,
    START,
    read_json,
)

__all__ = ["CHECKPOINTS", "EVENTS", "METRICS", "MODEL", "REPORT", "SAMPLES", "START"]

FORMAT, VERSION = FINETUNE_FORMAT, SETTINGS_VERSION


def stem(file: str, model: str) -> str:
    """
    >>> stem("problems.csv.gz", "org/some model")
    'problems-some-model'
    """
    name = Path(model).name
    return f"{file.split('.')[0]}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'model'}"


@contextmanager
def opened(
    out: Path | None, name: str, fingerprint: dict[str, Any], fresh: bool = False, file: str = ""
) -> Iterator[tuple[Path, bool]]:
    """A folder that is ours while we work in it, and whether it holds the beginning of this very run."""
    with RunFolder(FINETUNE, out, name, fingerprint, fresh=fresh, again=True, file=file) as folder:
        yield folder.path, folder.resumes


def read(path: Path) -> dict[str, Any] | None:
    """What a folder says of its run; None if it is not the folder of one."""
    content = read_json(path / SETTINGS)
    known = (
        content.get("format") == FORMAT
        and content.get("version") == VERSION
        and isinstance(content.get("fingerprint"), dict)
    )
    return content if known else None

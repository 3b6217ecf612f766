"""The kinds of runs, and what the files of each say: what it is, whether it is finished, how far it is.

A folder of an older version has no run.json; its settings.json says the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.runs.journal import read_events

RUN, SETTINGS, MODEL, REPORT = "run.json", "settings.json", "model", "report.html"
JOURNAL, PROGRESS, BOARD = "journal", "progress.json", "leaderboard.csv"
METRICS, SAMPLES, EVENTS, CHECKPOINTS = "metrics.jsonl", "samples.json", "events", "checkpoints"
START = "start"  # the tiny model as it was made
FORMAT, VERSION = "shoal-run-folder", 1  # of run.json
SEARCH_FORMAT, FINETUNE_FORMAT, SETTINGS_VERSION = "shoal-run", "shoal-finetune", 1  # of settings.json
INTERRUPTED = "interrupted"
# In the settings of a search, but nothing that decides its model.
NO_OPTIONS = {"file", "path", "sha256", "demo", "columns", "repeats", "effort", "explain_seconds"}


@dataclass(frozen=True, eq=False)
class Kind:
    """What runs of one kind write, and what their files mean."""

    name: str
    files: tuple[str, ...]  # and folders
    resuming: tuple[str, ...]  # of these, what only a run that goes on needs
    keeps_finished: bool  # whether a finished run stays where it is, also with --fresh
    is_finished: Callable[[Path], bool]
    has_work: Callable[[Path], bool]  # whether there is anything to go on with, or to look at
    old_marks: Callable[[dict[str, Any]], Any]  # the fingerprint of a run of an older version, from its settings


@dataclass(frozen=True, eq=False)
class Run:
    """What a folder says of its run."""

    path: Path
    kind: Kind
    fingerprint: dict[str, Any]
    begun: str
    finished: bool
    about: dict[str, Any] = field(default_factory=dict)  # all of run.json


def read_run(path: Path) -> Run | None:
    """The run of a folder; None if it holds none. The journal has a copy of run.json."""
    about = read_about(path) or _noted_about(path)
    if about.get("format") == FORMAT and about.get("version") == VERSION and about.get("kind") in KINDS:
        kind, marks, begun = KINDS[about["kind"]], about.get("fingerprint"), str(about.get("begun", ""))
    else:
        about, settings = {}, read_json(path / SETTINGS)
        found = OLD_FORMATS.get(settings.get("format", ""))
        if found is None or settings.get("version") != SETTINGS_VERSION:
            return None
        kind, marks, begun = found, found.old_marks(settings), str(settings.get("created", ""))
    return Run(path, kind, marks, begun, kind.is_finished(path), about) if isinstance(marks, dict) else None


def read_about(path: Path) -> dict[str, Any]:
    """What run.json says; empty where it is missing or damaged."""
    about = read_json(path / RUN)
    return about if about.get("sha256", check_of(about)) == check_of(about) else {}


def check_of(about: Mapping[str, Any]) -> str:
    """The checksum of a run.json, which stands in it."""
    rest = {name: value for name, value in about.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _noted_about(path: Path) -> dict[str, Any]:
    """What the journal says that run.json was; empty where it does not."""
    try:
        noted = [value for name, value in read_events(path / JOURNAL) if name == RUN]
    except (OSError, ValueError):
        return {}
    return noted[0] if noted and isinstance(noted[0], dict) else {}


def read_json(path: Path) -> dict[str, Any]:
    """An object; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


# ---- searches ----


def _search_is_finished(path: Path) -> bool:
    """The settings are written last. Those of a search that was ended by Ctrl-C do not count: it can go on."""
    result = read_json(path / SETTINGS).get("result")
    return isinstance(result, dict) and result.get("ended") != INTERRUPTED


def _search_has_work(path: Path) -> bool:
    """Also where the disk does not let us see it: nothing is removed then."""
    try:
        names = os.listdir(path / JOURNAL)
    except FileNotFoundError:
        names = []
    except OSError:
        return True
    return (path / SETTINGS).exists() or any(
        name.endswith(".safetensors") and not name.startswith(".") for name in names
    )


def _search_marks(settings: dict[str, Any]) -> dict[str, Any] | None:
    try:
        data, search, versions = settings["data"], settings["search"], settings["versions"]
        return search_marks(data["sha256"], {**data, **search}, versions)
    except (KeyError, TypeError):
        return None


def search_marks(sha256: str, options: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """The fingerprint of a search: the data, what the bits depend on, and options as they are in its settings.json."""
    said = {name: value for name, value in options.items() if name not in NO_OPTIONS and (name, value) != ("kinds", [])}
    return {"data": sha256, **said, **{name: value for name, value in versions.items() if name != "python"}}


# ---- fine-tuning ----


def _finetune_is_finished(path: Path) -> bool:
    return (path / MODEL).is_dir()


def _finetune_has_work(path: Path) -> bool:
    return (path / METRICS).exists()


def _finetune_marks(settings: dict[str, Any]) -> Any:
    return settings.get("fingerprint")


KINDS = {
    kind.name: kind
    for kind in (
        Kind("search", (RUN, PROGRESS, JOURNAL, SETTINGS, REPORT, BOARD, MODEL), (JOURNAL, PROGRESS),
             False, _search_is_finished, _search_has_work, _search_marks),
        Kind("finetune", (RUN, PROGRESS, SETTINGS, METRICS, SAMPLES, REPORT, START, CHECKPOINTS, EVENTS),
             (CHECKPOINTS, PROGRESS), True, _finetune_is_finished, _finetune_has_work, _finetune_marks),
    )
}  # fmt: skip
SEARCH, FINETUNE = KINDS["search"], KINDS["finetune"]
OLD_FORMATS = {SEARCH_FORMAT: SEARCH, FINETUNE_FORMAT: FINETUNE}

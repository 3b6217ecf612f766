"""The kinds of runs, and what the files of each say: what it is, whether it is finished, how far it is.

A folder is a run by its run.json, or the copy of that in its journal: settings.json alone may be a user's copy.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.files.plain_files import read_text
from shoal.runs.journal import read_events
from shoal.runs.versions import value_hash

RUN, SETTINGS, MODEL, REPORT = "run.json", "settings.json", "model", "report.html"
JOURNAL, PROGRESS, BOARD = "journal", "progress.json", "leaderboard.csv"
EVENTS_FILE = "events.jsonl"  # of the journal
METRICS, SAMPLES, EVENTS, CHECKPOINTS = "metrics.jsonl", "samples.json", "events", "checkpoints"
START = "start"  # the tiny model as it was made
LIVE, STOP = "live.jsonl", "stop-request"  # what a page shows of a run; that a page asks it to stop
HISTORY, STATE_DICT = "history.json", "model.safetensors"  # of a training
FORMAT, VERSION = "shoal-run-folder", 1  # of run.json
SEARCH_FORMAT, FINETUNE_FORMAT, SETTINGS_VERSION = "shoal-run", "shoal-finetune", 1  # of settings.json
INTERRUPTED = "interrupted"
# What a run writes into its folders. Anything else there is not Shoal's, and stays when a run is removed.
# Files of the journal are known by what is in them.
FOLDERS = {JOURNAL, MODEL, CHECKPOINTS, EVENTS, START}
OWN_FILES = {
    MODEL: re.compile(r"(model|explanation)\.json|weights\.safetensors"),
    CHECKPOINTS: re.compile(r"checkpoint-\d+(/.+)?"),
    EVENTS: re.compile(r"events\.out\.[^/]+"),
    START: re.compile(r"((generation_)?config|tokenizer(_config)?|complete)\.json|model\.safetensors"),
}
# In the settings of a search, but nothing that decides its model.
NO_OPTIONS = {"file", "path", "sha256", "demo", "columns", "repeats", "effort", "explain_seconds"}


@dataclass(frozen=True, eq=False)
class Kind:
    """What runs of one kind write, and what their files mean."""

    name: str
    files: tuple[str, ...]  # and folders
    resuming: tuple[str, ...]  # of these, what only resuming needs
    keeps_finished: bool  # whether a finished run stays where it is, also with --fresh
    is_finished: Callable[[Path], bool]
    has_work: Callable[[Path], bool]  # whether there is anything to resume, or to look at


@dataclass(frozen=True, eq=False)
class Run:
    """What a folder says of its run."""

    path: Path
    kind: Kind
    fingerprint: dict[str, Any]
    begun: str
    finished: bool
    about: dict[str, Any] = field(default_factory=dict)  # all of run.json


class Malformed(UserError):
    """A file of a run that is there and cannot be used; the text is the end of a sentence that begins with its name."""


def read_run(path: Path) -> Run | None:
    """The run of a folder; None if it holds none. The journal has a copy of run.json."""
    about = read_about(path) or _noted_about(path)
    marks = about.get("fingerprint")
    if not _is_about_a_run(about) or not isinstance(marks, dict):
        return None
    kind = KINDS[about["kind"]]
    return Run(path, kind, marks, str(about.get("begun", "")), kind.is_finished(path), about)


def is_progress(path: Path) -> bool:
    """Whether a run wrote this progress.json."""
    return read_json(path).keys() >= {"share", "at"}


def read_about(path: Path) -> dict[str, Any]:
    """What run.json says; empty where it is missing or damaged."""
    about = read_json(path / RUN)
    return about if about.get("sha256") == check_of(about) else {}


def check_of(about: Mapping[str, Any]) -> str:
    """The checksum of a run.json, which stands in it."""
    return value_hash({name: value for name, value in about.items() if name != "sha256"})


def _noted_about(path: Path) -> dict[str, Any]:
    """What the journal says that run.json was; empty where it does not."""
    try:
        noted = [value for name, value in read_events(path / JOURNAL) if name == RUN]
    except (OSError, ValueError):
        return {}
    return noted[0] if noted and isinstance(noted[0], dict) else {}


def problem_of(path: Path) -> str:
    """What is wrong with the run in a folder; empty if nothing is, or if there is no sign of a run."""
    try:
        if not os.path.lexists(path / RUN):
            return f"{RUN} is missing" if os.path.lexists(path / JOURNAL / EVENTS_FILE) and not read_run(path) else ""
        about = _noted_about(path) or read_object(path / RUN)  # a search resumes with the journal's copy as well
        if not _is_about_a_run(about) or not isinstance(about.get("fingerprint"), dict):
            raise Malformed(f"{RUN} does not describe a run that this Shoal knows")
        if read_run(path) is None:
            raise Malformed(f"{RUN} was altered (its checksum is another)")
        if os.path.lexists(path / SETTINGS):
            read_object(path / SETTINGS)
        elif os.path.lexists(path / MODEL) and not os.path.lexists(path / JOURNAL) and about["kind"] == "search":
            raise Malformed(f"{SETTINGS} is missing, beside a model")  # nothing to resume, and nothing to remove
    except Malformed as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return ""


def _is_about_a_run(about: Mapping[str, Any]) -> bool:
    known = about.get("format") == FORMAT and about.get("version") == VERSION
    return known and isinstance(about.get("kind"), str) and about["kind"] in KINDS


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        content = json.loads(read_text(path))
    except OSError as error:
        raise Malformed(f"{path.name} cannot be read ({_without_path(error, path)})") from None
    except (ValueError, RecursionError):
        raise Malformed(f"{path.name} is truncated or is no JSON") from None
    if not isinstance(content, dict):
        raise Malformed(f"{path.name} must hold an object; got {type(content).__name__}")
    return content


def _without_path(error: OSError, path: Path) -> str:
    return error.strerror or str(error).removeprefix(f"{path} ")


def read_json(path: Path) -> dict[str, Any]:
    """An object; empty where there is none that can be read."""
    try:
        return read_object(path)
    except Malformed:
        return {}


# ---- searches ----


def _search_is_finished(path: Path) -> bool:
    """The settings are written last. Those of a search that was ended by Ctrl-C do not count: it can be resumed."""
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


def search_marks(sha256: str, options: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """The fingerprint of a search: the data, what the bits depend on, and options as they are in its settings.json."""
    said = {name: value for name, value in options.items() if name not in NO_OPTIONS and (name, value) != ("kinds", [])}
    return {"data": sha256, **said, **{name: value for name, value in versions.items() if name != "python"}}


# ---- fine-tuning ----


def _finetune_is_finished(path: Path) -> bool:
    return (path / MODEL).is_dir()


def _finetune_has_work(path: Path) -> bool:
    return (path / METRICS).exists()


# ---- training ----


def _training_is_finished(path: Path) -> bool:
    """The settings are written last."""
    return (path / SETTINGS).is_file()


KINDS = {
    kind.name: kind
    for kind in (
        Kind("search", (RUN, PROGRESS, LIVE, STOP, JOURNAL, SETTINGS, REPORT, BOARD, MODEL), (JOURNAL, PROGRESS, STOP),
             False, _search_is_finished, _search_has_work),
        Kind("finetune", (RUN, PROGRESS, LIVE, STOP, SETTINGS, METRICS, SAMPLES, REPORT, START, CHECKPOINTS, EVENTS),
             (CHECKPOINTS, PROGRESS, STOP), True, _finetune_is_finished, _finetune_has_work),
        Kind("train", (RUN, PROGRESS, LIVE, STOP, HISTORY, STATE_DICT, MODEL, SETTINGS), (PROGRESS, STOP), True,
             _training_is_finished, _training_is_finished),
    )
}  # fmt: skip
SEARCH, FINETUNE, TRAIN = KINDS["search"], KINDS["finetune"], KINDS["train"]

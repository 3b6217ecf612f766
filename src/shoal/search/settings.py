"""The settings.json of a search: all from which it can be repeated; and the model beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal import atomic
from shoal.errors import MissingFile, NotAFile, UserError
from shoal.models.saving import DESCRIPTION, EXPLANATION, TIMINGS, model_folder, read_json
from shoal.models.saving import VERSION as MODEL_VERSION
from shoal.plain_files import read_text
from shoal.runs.kinds import MODEL, SEARCH_FORMAT, SETTINGS, SETTINGS_VERSION
from shoal.search.options import SearchOptions
from shoal.tables.options import RowOptions

FORMAT, VERSION = SEARCH_FORMAT, SETTINGS_VERSION
KEYS = {  # that all runs have
    "data": ("path", "sha256", "demo", *RowOptions.names_in_files()),
    "search": ("repeats", *SearchOptions.names_in_files()),
    "result": ("score",),
}


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Settings in readable lines; the log, which is long, on one line per round."""
    log = settings.pop("log")
    text = json.dumps({"format": FORMAT, "version": VERSION} | settings, indent=1, ensure_ascii=False)
    rounds = ",\n".join("  " + json.dumps(entry, separators=(",", ":")) for entry in log)
    atomic.write_text(folder / SETTINGS, f'{text[:-2]},\n "log": [\n{rounds}\n ]\n}}\n')
    settings["log"] = log


def settings_file(path: Path) -> Path:
    """That of the folder of a run, or the file itself."""
    return path / SETTINGS if path.is_dir() else path


def read_settings(path: Path) -> dict[str, Any]:
    """From settings.json or the folder of a run."""
    file = settings_file(path)
    if not file.is_file():
        raise MissingFile(f"there is no file {file}; --repeat takes the {SETTINGS} of an earlier run")
    try:
        settings = json.loads(read_text(file))
    except NotAFile as error:
        raise UserError(f"{error}; --repeat takes the {SETTINGS} of a run") from None
    except (ValueError, UnicodeDecodeError, RecursionError):
        raise UserError(f"{file} is truncated or is no JSON; --repeat takes the {SETTINGS} of a run") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise UserError(f"{file} does not hold the settings of a run; --repeat takes the {SETTINGS} of one")
    if settings.get("version") != VERSION:
        raise UserError(f"{file} has format version {settings.get('version')}; this Shoal reads version {VERSION}")
    missing = _missing_field(settings)
    if missing:
        raise UserError(f"{file} was altered: {missing} is missing; repeat from an unchanged copy")
    return settings


def _missing_field(settings: dict[str, Any]) -> str:
    """The first part or field that all runs have and these settings have not; empty where there is none."""
    for part, names in KEYS.items():
        if not isinstance(settings.get(part), dict):
            return part
        for name in names:
            if name not in settings[part]:
                return f"{part}.{name}"
    if not isinstance(settings.get("log"), list):
        return "log"
    for k, entry in enumerate(settings["log"]):
        for name in ("recipes", "rungs"):
            if not isinstance(entry, dict) or name not in entry:
                return f"log.{k}.{name}"
    return ""


def find_model(path: Path) -> tuple[Path, dict[str, Any] | None]:
    """The folder of a model, given that or the folder of its run; and the run's settings, where they are beside it."""
    model = model_folder(path)
    beside = model.resolve().parent / SETTINGS
    settings = read_settings(beside) if model.name == MODEL and beside.is_file() else None
    return model, settings


def comparable_model(settings: Path) -> Path:
    """The model of the run with these settings, if it can be compared byte by byte."""
    model = (settings if settings.is_dir() else settings.parent) / MODEL
    file = model / DESCRIPTION
    if not file.is_file():
        raise MissingFile(f"--check needs the model of the earlier run, and there is no file {file}")
    described = read_json(file)
    version = described.get("version") if isinstance(described, dict) else None
    if version != MODEL_VERSION:
        raise UserError(
            f"--check needs a model of format version {MODEL_VERSION}, and {file} has {version}: repeat the run "
            "without --check, and compare with that"
        )
    return model


def first_difference(one: Path, other: Path) -> str | None:
    """The first file that is not the same in two folders of models, by name; what depends on the clock is left out."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()} - {TIMINGS, EXPLANATION}
    for name in sorted(names):
        contents = [(folder / name).read_bytes() if (folder / name).is_file() else None for folder in (one, other)]
        if contents[0] != contents[1]:
            return name
    return None

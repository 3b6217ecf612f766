"""The settings.json of a search: all from which it can be repeated; and the model beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.encoders.encoder import ENCODINGS
from shoal.errors import MissingFile, NotAFile, UserError
from shoal.files import atomic
from shoal.files.plain_files import read_text
from shoal.models.checks import LARGEST
from shoal.models.saving import DESCRIPTION, EXPLANATION, TIMINGS, read_json
from shoal.models.saving import VERSION as MODEL_VERSION
from shoal.population.members import Member
from shoal.runs.kinds import MODEL, SEARCH_FORMAT, SETTINGS, SETTINGS_VERSION
from shoal.search.budget.shares import Effort
from shoal.search.options import SearchOptions
from shoal.tables.options import RowOptions
from shoal.tables.target import FEWEST_ROWS, TASKS
from shoal.validate import instance, one_of, whole

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


# ---- before a run is repeated ----

REMEDY = "repeat from an unchanged copy"


def repeatable(settings: Mapping[str, Any], file: Path) -> tuple[RowOptions, SearchOptions]:
    """The options of an earlier run; settings, as `read_settings` gives them, that no run has written are refused."""
    try:
        data, search = settings["data"], settings["search"]
        instance("data.demo", data["demo"], bool)
        instance("data.sha256", data["sha256"], str)
        reading, options = RowOptions.part_of(data, "data."), SearchOptions.part_of(search, "search.")
        instance("data.target", reading.target, str)
        one_of("search.task", options.task, TASKS)
        if reading.sep is not None and len(reading.sep) != 1:
            raise UserError(f"data.sep must be one character or null; got {reading.sep!r}")
        if not data["demo"]:
            instance("data.path", data["path"], str)
        whole("search.repeats", search["repeats"], 1, LARGEST)
        _check_score("result.score", settings["result"]["score"])
        instance("versions", settings.get("versions", {}), dict)
        effort = instance("search.effort", search.get("effort", {}), dict)
        _check_effort("search.effort", effort)
        _check_log(settings["log"], effort.get("encodings", ENCODINGS))
    except ValueError as error:
        raise UserError(f"{file} was altered: {error}; {REMEDY}") from None
    return reading, options


def check_effort_fits(effort: Effort, rows: int, file: Path) -> None:
    """Refuse more rows or folds than the table has rows."""
    for name in ("rows", "folds", "ensemble_rows", "sampled"):
        value = getattr(effort, name)
        if value is not None and value > rows:
            raise UserError(
                f"{file} was altered: search.effort.{name} must not be more than the {rows} rows of the data; got "
                f"{value}; {REMEDY}"
            )


# ---- single fields ----


def _check_score(name: str, value: Any) -> None:
    if "bootstraps" not in instance(name, value, dict):
        raise UserError(f"{name}.bootstraps is missing")
    whole(f"{name}.bootstraps", value["bootstraps"], 1, LARGEST)


def _check_effort(name: str, effort: Any) -> None:
    least = {"folds": 2, "rows": FEWEST_ROWS, "candidates": 1, "ensemble_rows": 1, "sampled": 1}
    for part, value in instance(name, effort, dict).items():
        one_of(f"a field of {name}", part, ("encodings", *least))
        if part != "encodings":
            whole(f"{name}.{part}", value, least[part], LARGEST)
            continue
        for k, encoding in enumerate(instance(f"{name}.encodings", value, list)):
            one_of(f"{name}.encodings.{k}", encoding, ENCODINGS)
        if not value:
            raise UserError(f"{name}.encodings must not be empty; got []")


# ---- the log ----


def _check_log(log: Sequence[Any], encodings: Sequence[str]) -> None:
    if not log:
        raise UserError("log must not be empty; got []")
    for k, entry in enumerate(log):
        recipes = instance(f"log.{k}.recipes", entry["recipes"], list)
        for j, recipe in enumerate(recipes):
            _check_recipe(f"log.{k}.recipes.{j}", recipe, encodings)
        for j, rung in enumerate(instance(f"log.{k}.rungs", entry["rungs"], list)):
            _check_rung(f"log.{k}.rungs.{j}", rung, len(recipes))


def _check_recipe(name: str, recipe: Any, encodings: Sequence[str]) -> None:
    if len(instance(name, recipe, list)) != 2:
        raise UserError(f"{name} must be an encoding and a recipe; got {len(recipe)} values")
    one_of(f"{name}.0", recipe[0], encodings)
    try:
        Member.from_dict(instance(f"{name}.1", recipe[1], dict))
    except (TypeError, KeyError) as error:
        raise UserError(f"{name}.1 must be a recipe ({error})") from None


def _check_rung(name: str, rung: Any, count: int) -> None:
    instance(name, rung, dict)
    for part in ("trained", "epochs", "kept"):
        instance(f"{name}.{part}", rung.get(part), list)
    for part in ("trained", "kept"):
        for k, place in enumerate(rung[part]):
            whole(f"{name}.{part}.{k}", place, 0, count - 1)
    if len(rung["epochs"]) != len(rung["trained"]):
        raise UserError(f"{name}.epochs must be as many as {name}.trained; got {len(rung['epochs'])}")
    for k, epochs in enumerate(rung["epochs"]):
        for j, value in enumerate(instance(f"{name}.epochs.{k}", epochs, list)):
            whole(f"{name}.epochs.{k}.{j}", value, 0, LARGEST)

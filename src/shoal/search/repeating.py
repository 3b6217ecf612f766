"""The settings of an earlier run, checked before it is repeated: an altered one is refused by the name of its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.encoders.encoder import ENCODINGS
from shoal.errors import UserError
from shoal.members import Member
from shoal.models.checks import LARGEST
from shoal.search.options import SearchOptions
from shoal.search.timing import Effort, present_names
from shoal.tables.options import RowOptions
from shoal.tables.target import FEWEST_ROWS, TASKS
from shoal.validate import instance, one_of, whole

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
        effort = present_names(instance("search.effort", search.get("effort", {}), dict))
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

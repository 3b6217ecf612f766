"""The settings of an earlier run, checked before it is repeated: an altered one is refused by the name of its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.encoders.encoder import ENCODINGS
from shoal.errors import UserError
from shoal.members import Member
from shoal.models.checks import LARGEST
from shoal.search.timing import Effort, present_names
from shoal.tables.target import TASKS
from shoal.validate import Check, instance, number, one_of, strings, whole

FEWEST_ROWS = 20  # of a search
REMEDY = "repeat from an unchanged copy"


def check_repeatable(settings: Mapping[str, Any], file: Path) -> None:
    """Refuse settings, as `read_settings` gives them, that no run has written."""
    try:
        for part, checks in FIELDS.items():
            for name, check in checks.items():
                if name not in settings[part]:
                    raise UserError(f"{part}.{name} is missing")
                check(f"{part}.{name}", settings[part][name])
        if not settings["data"]["demo"]:
            instance("data.path", settings["data"]["path"], str)
        instance("versions", settings.get("versions", {}), dict)
        effort = present_names(instance("search.effort", settings["search"].get("effort", {}), dict))
        _check_effort("search.effort", effort)
        _check_log(settings["log"], effort.get("encodings", ENCODINGS))
    except ValueError as error:
        raise UserError(f"{file} was altered: {error}; {REMEDY}") from None


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


def _kind(kind: type) -> Check:
    return lambda name, value: instance(name, value, kind)


def _count(least: int) -> Check:
    return lambda name, value: whole(name, value, least, LARGEST)


def _or_null(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _character(name: str, value: Any) -> None:
    if len(instance(name, value, str)) != 1:
        raise UserError(f"{name} must be one character or null; got {value!r}")


def _score(name: str, value: Any) -> None:
    if "bootstraps" not in instance(name, value, dict):
        raise UserError(f"{name}.bootstraps is missing")
    whole(f"{name}.bootstraps", value["bootstraps"], 1, LARGEST)


def _seconds(name: str, value: Any) -> None:
    if number(name, value, 0.0) == 0.0:
        raise UserError(f"{name} must be above zero; got {value!r}")


FIELDS: dict[str, dict[str, Check]] = {
    "data": {
        "demo": _kind(bool), "sha256": _kind(str), "target": _kind(str), "sep": _or_null(_character),
        "header": _or_null(_kind(bool)), "missing": strings, "drop": strings,
    },
    "search": {
        "task": lambda name, value: one_of(name, value, TASKS), "budget": _or_null(_seconds),
        "recipes": _or_null(_count(1)), "strategy": _kind(str), "folds": _or_null(_count(2)),
        "scoring": _or_null(_kind(str)), "seeds": _count(1), "epochs": _or_null(_count(1)), "ensemble": _kind(bool),
        "seed": lambda name, value: whole(name, value, 0, (1 << 32) - 1), "repeats": _count(1),
    },
    "result": {"score": _score},
}  # fmt: skip


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

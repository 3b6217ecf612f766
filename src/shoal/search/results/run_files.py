"""The files of a search's run folder: model, leaderboard, report, and settings.json, from which it can be repeated.

settings.json holds a checksum of itself. A file that somebody has altered is refused, whatever was altered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.errors import MissingFile, NotAFile, UserError
from shoal.files import atomic
from shoal.files.plain_files import read_text
from shoal.models.saving import DESCRIPTION, EXPLANATION, read_json, save
from shoal.models.saving import VERSION as MODEL_VERSION
from shoal.report import write_search_page
from shoal.runs.kinds import BOARD, MODEL, REPORT, SEARCH_FORMAT, SETTINGS, SETTINGS_VERSION, check_of
from shoal.runs.versions import file_hash, versions
from shoal.search.estimators import fitted_estimator
from shoal.search.options import SearchOptions
from shoal.search.problem.source import Source
from shoal.search.results.report_data import Context, report_data
from shoal.search.results.result import SearchResult
from shoal.tables.options import RowOptions


def write_results(folder: Path, result: SearchResult, source: Source, context: Context) -> dict[str, Any]:
    """Write all files of a run; returns the data of the report."""
    data = report_data(result, context)
    save(fitted_estimator(result, source.reading), folder / MODEL)
    result.outcome.board.to_csv(folder / BOARD)
    write_search_page(data, folder / REPORT)
    search = {"seed": result.options.seed, "repeats": result.repeats, "effort": result.effort.as_dict()}
    score = result.outcome.honest.as_dict()
    write_settings(folder, {
        "created": data["created"],
        "versions": versions(),
        "data": source.described_data(),
        "search": source.described_search() | search,
        "result": {
            "ended": result.ended, "score": score, "phases": context.before | result.phases,
            "model_sha256": file_hash(folder / MODEL / DESCRIPTION),
            "trained_on": result.trained_on, "skipped": data["search"]["skipped"],
        },
        "log": result.log,
    })  # fmt: skip
    return data


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Settings in readable lines; the log, which is long, on one line per round."""
    whole: dict[str, Any] = {"format": SEARCH_FORMAT, "version": SETTINGS_VERSION} | dict(settings)
    sealed = {"sha256": check_of(whole)} | {name: value for name, value in whole.items() if name != "log"}
    text = json.dumps(sealed, indent=1, ensure_ascii=False)
    rounds = ",\n".join("  " + json.dumps(entry, separators=(",", ":")) for entry in whole["log"])
    atomic.write_text(folder / SETTINGS, f'{text[:-2]},\n "log": [\n{rounds}\n ]\n}}\n')


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
    if not isinstance(settings, dict) or settings.get("format") != SEARCH_FORMAT:
        raise UserError(f"{file} does not hold the settings of a run; --repeat takes the {SETTINGS} of one")
    if settings.get("version") != SETTINGS_VERSION:
        raise UserError(
            f"{file} has format version {settings.get('version')}; this Shoal reads version {SETTINGS_VERSION}"
        )
    if settings.get("sha256") != check_of(settings):
        raise UserError(f"{file} was altered: its checksum is wrong; repeat from an unchanged copy")
    return settings


def options_in(settings: Mapping[str, Any]) -> tuple[RowOptions, SearchOptions]:
    """How an earlier run read its table, and how it searched."""
    return RowOptions.part_of(settings["data"], "data."), SearchOptions.part_of(settings["search"], "search.")


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
    """The name of the first file that differs between two model folders. One that depends on the clock is skipped."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()} - {EXPLANATION}
    for name in sorted(names):
        contents = [(folder / name).read_bytes() if (folder / name).is_file() else None for folder in (one, other)]
        if contents[0] != contents[1]:
            return name
    return None

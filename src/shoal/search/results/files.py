"""The files of a search's run folder: model, leaderboard, report and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.models.saving import save
from shoal.report import write_search_page
from shoal.runs import kinds
from shoal.runs.versions import versions
from shoal.search.estimators import fitted_estimator
from shoal.search.problem.source import Source
from shoal.search.results.report_data import Context, report_data
from shoal.search.results.result import SearchResult
from shoal.search.results.settings import write_settings


def write_results(folder: Path, result: SearchResult, source: Source, context: Context) -> dict[str, Any]:
    """Write all of them; the data of the report."""
    data = report_data(result, context)
    save(fitted_estimator(result, source.reading), folder / kinds.MODEL)
    result.outcome.board.to_csv(folder / kinds.BOARD)
    write_search_page(data, folder / kinds.REPORT)
    search = {"seed": result.options.seed, "repeats": result.repeats, "effort": result.effort.as_dict()}
    score = result.outcome.honest.as_dict()
    write_settings(folder, {
        "created": data["created"],
        "versions": versions(),
        "data": source.described_data(),
        "search": source.described_search() | search,
        "result": {
            "ended": result.ended, "score": score, "phases": context.before | result.phases,
            "trained_on": result.trained_on, "skipped": data["search"]["skipped"],
        },
        "log": result.log,
    })  # fmt: skip
    return data

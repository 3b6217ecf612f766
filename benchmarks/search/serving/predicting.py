"""What predictions take: microseconds a row, milliseconds of one row, memory, and `shoal predict` from a cold start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import models
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHILD = Path(models.__file__)
MODELS = {"3 folds x 3": (3, 3), "5 folds x 20": (5, 20), "24 folds x 16": (24, 16)}  # folds, parts
TEXTS = "5 folds x 4, texts"
ROWS, TEXT_ROWS = 100_000, 2_000


@benchmark(quick={"rows": 2_000, "repeats": 1})
def predict(*, rows: int = ROWS, repeats: int = 3, before: Path | None = None) -> Result:
    """What predictions take: many rows, one row, memory, and `shoal predict` from a cold start.

    rows: Rows to predict.
    repeats: Times that everything is measured; the best counts.
    before: Sources of another version of Shoal, compiled, to be measured beside this one.
    """
    versions = {"now": None, **({"before": before} if before else {})}
    with progress_bar("predict", (len(MODELS) + 2) * len(versions)) as tick:
        found = {name: _measure_all(rows, repeats, sources, tick) for name, sources in versions.items()}
    data = {"now": found["now"], "before": found.get("before")}
    return Result(
        title=f"Prediction: {rows:,} rows, one row, a cold start", data=data, tables=[table(data)],
        targets=targets(rows, data["now"] or {}), notes=notes(repeats, before), draw=lambda: draw(data),
    )  # fmt: skip


def _measure_all(rows: int, repeats: int, sources: Path | None, tick: Tick) -> dict[str, Any]:
    """All figures of one version: that of this process, or the one whose sources are given."""
    cases = {name: (folds, parts, rows, False) for name, (folds, parts) in MODELS.items()}
    cases[TEXTS] = (5, 4, min(rows, TEXT_ROWS), True)
    found: dict[str, Any] = {}
    for name, (folds, parts, count, texts) in cases.items():
        tick(name)
        given = {"folds": folds, "parts": parts, "rows": count, "repeats": repeats, "texts": texts}
        found[name] = json.loads(_python(sources, str(CHILD), json.dumps(given))) | {"rows": count}
    tick("shoal predict")
    with tempfile.TemporaryDirectory() as folder:
        _python(sources, str(CHILD), json.dumps({"folder": folder}))
        seconds = []
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            _python(sources, "-m", "shoal", "predict", f"{folder}/model", f"{folder}/one.csv")
            seconds.append(time.perf_counter() - begun)
    return found | {"cold": min(seconds)}


def _python(sources: Path | None, *words: str) -> str:
    environment = dict(os.environ) | ({"PYTHONPATH": str(sources.resolve())} if sources else {})
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def table(data: dict[str, Any]) -> ResultTable:
    header = ["model", "rows", "microseconds a row", "one row, ms", "memory, MB"]
    before = data["before"]
    if before:
        header += ["before: a row", "one row", "times as fast", "one row"]
    rows = []
    for name, found in data["now"].items():
        if name == "cold":
            continue
        row = [name, f"{found['rows']:,}", *(_figure(found, what) for what in WHAT)]
        if before:
            old = before[name]
            row += [_figure(old, what) for what in WHAT[:2]]
            row += [f"{old[what] / found[what]:.1f}x" for what in WHAT[:2]]
        rows.append(row)
    cold = ["`shoal predict` of one row", "1", "", f"{1000 * data['now']['cold']:.0f}", ""]
    if before:
        cold += ["", f"{1000 * before['cold']:.0f}", "", f"{before['cold'] / data['now']['cold']:.1f}x"]
    return ResultTable("What predictions take", header, [*rows, cold])


WHAT = ("microseconds", "one_row_milliseconds", "memory_megabytes")


def _figure(found: dict[str, float], what: str) -> str:
    return significant(found[what]) if found[what] else "0"


def targets(rows: int, now: dict[str, Any]) -> list[Target]:
    complete = rows >= ROWS
    middle, large = now["5 folds x 20"], now["24 folds x 16"]
    seconds = middle["microseconds"] * rows / 1e6
    return [
        Target(f"{ROWS:,} rows, 100 networks", seconds, 3.0, at_least=False, unit=" s", complete=complete),
        Target("one row, 384 networks", large["one_row_milliseconds"], 5.0, at_least=False, unit=" ms"),
        Target("shoal predict, one row", now["cold"], 1.5, at_least=False, unit=" s"),
    ]


def notes(repeats: int, before: Path | None) -> list[str]:
    found = [
        "Tables of 6 numbers and 8 categories are generated; networks of 64, 128, 32x32 and 64x64 neurons in turn are "
        "not trained, which changes nothing but the answers. Texts have 60 words.",
        "Rows are given as columns of numbers and strings. One row is the median of 30 calls, all else the best of "
        f"{repeats}. Memory is what predicting adds to the peak of the process.",
    ]
    if before:
        found.append("`before` is an earlier version of Shoal, measured by the same code in a process of its own.")
    return found


def draw(data: dict[str, Any]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.4)
    names = [name for name in data["now"] if name != "cold"]
    versions = [version for version in ("before", "now") if data[version]]
    for place, version in enumerate(versions):
        values = [data[version][name]["microseconds"] for name in names]
        positions = [k + 0.4 * place for k in range(len(names))]
        axis.barh(positions, values, height=0.36, label=version, color=list(COLORS.values())[place])
    axis.set_yticks([k + 0.2 for k in range(len(names))], names)
    axis.set_xscale("log")
    axis.set_xlabel("microseconds a row")
    axis.legend()
    return figure

"""The experiments of a paper on nodes that share data and average weights, repeated with the planner.

"Simulation of parallelization of deep neural networks by dividing data": its tables 2 to 8, whether what it loses in
accuracy comes from less data or from different starts, and what simulating many nodes costs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shoal.bench.harness.machine import describe, require
from shoal.bench.harness.measure import progress_bar
from shoal.bench.harness.report import Result
from shoal.bench.planner.dlmp import check_packages
from shoal.validate import one_of

PARTS = ("text", "cnn", "start", "curve")


@dataclass(frozen=True)
class Settings:
    parts: Sequence[str] = PARTS
    nodes: Sequence[int] = (1, 2, 4, 6, 8)
    seeds: int = 8  # of the experiments on text
    folds: int = 10  # on each node, of the experiments on text
    features: int = 1000  # words that are counted
    text_rows: int = 2000  # the fifth for testing included
    text_batch: int = 8
    text_epochs: int = 300  # at most
    start_nodes: Sequence[int] = (2, 4, 8)
    cnn_rows: int = 640  # that are trained on
    cnn_test_rows: int = 2000
    cnn_epochs: int = 6
    cnn_folds: Sequence[int] = (5, 10)
    cnn_sizes: Sequence[int] = (24, 96, 384)  # rows of steps that are measured
    curve_nodes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    curve_rows: int = 10_000
    curve_epochs: int = 20
    curve_slow: int = 256  # nodes of the slow path, at most
    curve_slow_epochs: int = 2
    repeats: int = 3  # of the cost of a simulation
    link: str = "1gbit,0.1ms"
    backend: str = "processes"
    dlmp: Path | None = None  # a checkout of DLMP, and a Python that can run it
    dlmp_python: Path | None = None
    dlmp_nodes: Sequence[int] = (1, 2, 4, 8, 16)
    dlmp_rows: int = 256  # of each node


QUICK = Settings(
    nodes=(1, 2), seeds=2, folds=3, features=100, text_rows=200, text_epochs=5, start_nodes=(2,), cnn_rows=60,
    cnn_test_rows=100, cnn_epochs=1, cnn_folds=(2, 3), cnn_sizes=(2, 4), curve_nodes=(1, 2, 4), curve_rows=200,
    curve_epochs=1, curve_slow=4, curve_slow_epochs=1, repeats=1, backend="threads", dlmp_nodes=(1, 2), dlmp_rows=16,
)  # fmt: skip


def run(settings: Settings) -> Result:
    require("matplotlib", "torch")
    for part in settings.parts:
        one_of("--part", part, PARTS)
    check_packages(settings.dlmp, settings.dlmp_python)
    settings = replace(settings, nodes=tuple(sorted({1, *settings.nodes})))
    from shoal.bench.planner.nodes_plots import draw
    from shoal.bench.planner.nodes_report import notes, tables

    begun, machine = time.perf_counter(), describe()
    data = measure(settings)
    shown = {**asdict(settings), "dlmp": settings.dlmp is not None}
    del shown["dlmp_python"]
    return Result(
        name="nodes", title="Data split over nodes, weights averaged, folds on each node: a paper repeated",
        machine=machine, settings=shown, data=data, tables=tables(settings, data), targets=[],
        notes=notes(settings, data), draw=lambda: draw(data),
        seconds=time.perf_counter() - begun,
    )  # fmt: skip


def measure(settings: Settings) -> dict[str, Any]:
    """What each part has found."""
    from shoal.bench.planner.nodes_cnn import run_cnn
    from shoal.bench.planner.nodes_curve import run_curve
    from shoal.bench.planner.nodes_paper import PRINTED, SECONDS, against_one
    from shoal.bench.planner.nodes_start import run_start
    from shoal.bench.planner.nodes_text import load_texts, run_text

    data: dict[str, Any] = {"paper": {
        str(table): {"seconds": SECONDS[table], "printed_improvement": PRINTED[table],
                     "improvement": against_one(SECONDS[table])} for table in SECONDS
    }}  # fmt: skip
    texts = load_texts(settings.features, settings.text_rows) if {"text", "start"} & set(settings.parts) else None
    with progress_bar("nodes", _ticks(settings)) as tick:
        if "text" in settings.parts and texts is not None:
            data["text"] = run_text(settings, texts, tick)
        if "cnn" in settings.parts:
            data["cnn"] = run_cnn(settings, tick)
        if "start" in settings.parts and texts is not None:
            data["start"] = run_start(settings, texts, tick)
        if "curve" in settings.parts:
            data["curve"] = run_curve(settings, tick)
    return data


def _ticks(settings: Settings) -> int:
    """How many things are done one after the other."""
    nodes = len(settings.nodes)
    slow = sum(count <= settings.curve_slow for count in settings.curve_nodes)
    curve = 2 * (len(settings.curve_nodes) + slow) + (2 * len(settings.dlmp_nodes) if settings.dlmp else 0)
    steps = {"text": 2 * (nodes + 1), "cnn": nodes * (2 + len(settings.cnn_folds)), "start": 2, "curve": curve}
    return sum(steps[part] for part in set(settings.parts))

"""The experiments of a paper on nodes that share data and average weights, repeated with the planner.

"Simulation of parallelization of deep neural networks by dividing data": its tables 2 to 8, whether what it loses in
accuracy comes from less data or from different starts, and what simulating many nodes costs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.report import Result
from benchmarks.papers.node_simulator.study import QUICK, Study
from benchmarks.planner.dlmp import check_packages
from shoal.validate import one_of

PARTS = ("text", "cnn", "start", "curve")
FULL = Study()


@benchmark(
    needs=("torch",),
    quick={"nodes": (1, 2), "seeds": 2, "text_epochs": 5, "cnn_rows": 60, "cnn_epochs": 1, "study": QUICK},
)
def nodes(
    *,
    parts: tuple[str, ...] = PARTS,
    nodes: tuple[int, ...] = Study.nodes,
    seeds: int = Study.seeds,
    text_epochs: int = Study.text_epochs,
    cnn_rows: int = Study.cnn_rows,
    cnn_epochs: int = Study.cnn_epochs,
    link: str = Study.link,
    dlmp: Path | None = None,
    dlmp_python: Path | None = None,
    study: Study = FULL,
) -> Result:
    """A paper on nodes repeated with the planner: split data, averaged weights, folds on each node, own starts.

    parts: text, cnn, start, curve.
    nodes: Numbers of nodes.
    seeds: Seeds of each training on text.
    text_epochs: Epochs on text, at most.
    cnn_rows: Rows of MNIST to train on.
    cnn_epochs: Epochs on them.
    link: Between machines.
    dlmp: A checkout of DLMP, to run beside.
    dlmp_python: A Python that can run it.
    """
    from benchmarks.papers.node_simulator.plots import draw
    from benchmarks.papers.node_simulator.report import notes, tables

    for part in parts:
        one_of("--parts", part, PARTS)
    check_packages(dlmp, dlmp_python)
    study = replace(
        study, nodes=tuple(sorted({1, *nodes})), seeds=seeds, text_epochs=text_epochs, cnn_rows=cnn_rows,
        cnn_epochs=cnn_epochs, link=link, dlmp=dlmp, dlmp_python=dlmp_python,
    )  # fmt: skip
    data = measure(study, parts)
    return Result(
        title="Data split over nodes, weights averaged, folds on each node: a paper repeated", data=data,
        tables=tables(study, data), notes=notes(study, data), draw=lambda: draw(data), settings={"study": study},
    )  # fmt: skip


def measure(study: Study, parts: tuple[str, ...]) -> dict[str, Any]:
    """What each part has found."""
    from benchmarks.papers.node_simulator.cnn import run_cnn
    from benchmarks.papers.node_simulator.curve import run_curve
    from benchmarks.papers.node_simulator.printed import PRINTED, SECONDS, against_one
    from benchmarks.papers.node_simulator.start import run_start
    from benchmarks.papers.node_simulator.text import load_texts, run_text

    data: dict[str, Any] = {"paper": {
        str(table): {"seconds": SECONDS[table], "printed_improvement": PRINTED[table],
                     "improvement": against_one(SECONDS[table])} for table in SECONDS
    }}  # fmt: skip
    texts = load_texts(study.features, study.text_rows) if {"text", "start"} & set(parts) else None
    with progress_bar("nodes", _ticks(study, parts)) as tick:
        if "text" in parts and texts is not None:
            data["text"] = run_text(study, texts, tick)
        if "cnn" in parts:
            data["cnn"] = run_cnn(study, tick)
        if "start" in parts and texts is not None:
            data["start"] = run_start(study, texts, tick)
        if "curve" in parts:
            data["curve"] = run_curve(study, tick)
    return data


def _ticks(study: Study, parts: tuple[str, ...]) -> int:
    """How many things are done one after the other."""
    nodes = len(study.nodes)
    slow = sum(count <= study.curve_slow for count in study.curve_nodes)
    curve = 2 * (len(study.curve_nodes) + slow) + (2 * len(study.dlmp_nodes) if study.dlmp else 0)
    steps = {"text": 2 * (nodes + 1), "cnn": nodes * (2 + len(study.cnn_folds)), "start": 2, "curve": curve}
    return sum(steps[part] for part in set(parts))

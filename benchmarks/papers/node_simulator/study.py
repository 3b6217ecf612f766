"""Sizes of the experiments on nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Study:
    """How large the experiments are."""

    nodes: tuple[int, ...] = (1, 2, 4, 6, 8)
    seeds: int = 8  # of the experiments on text
    folds: int = 10  # on each node, of the experiments on text
    features: int = 1000  # words that are counted
    text_rows: int = 2000  # the fifth for testing included
    text_batch: int = 8
    text_epochs: int = 300  # at most
    start_nodes: tuple[int, ...] = (2, 4, 8)
    cnn_rows: int = 640  # that are trained on
    cnn_test_rows: int = 2000
    cnn_epochs: int = 6
    cnn_folds: tuple[int, ...] = (5, 10)
    cnn_sizes: tuple[int, ...] = (24, 96, 384)  # rows of steps that are measured
    curve_nodes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    curve_rows: int = 10_000
    curve_epochs: int = 20
    curve_slow: int = 256  # nodes of the slow path, at most
    curve_slow_epochs: int = 2
    repeats: int = 3  # of the cost of a simulation
    link: str = "1gbit,0.1ms"
    backend: str = "processes"
    dlmp: Path | None = None  # a checkout of DLMP, and a Python that can run it
    dlmp_python: Path | None = None
    dlmp_nodes: tuple[int, ...] = (1, 2, 4, 8, 16)
    dlmp_rows: int = 256  # of each node


QUICK = Study(
    nodes=(1, 2), seeds=2, folds=3, features=100, text_rows=200, text_epochs=5, start_nodes=(2,), cnn_rows=60,
    cnn_test_rows=100, cnn_epochs=1, cnn_folds=(2, 3), cnn_sizes=(2, 4), curve_nodes=(1, 2, 4), curve_rows=200,
    curve_epochs=1, curve_slow=4, curve_slow_epochs=1, repeats=1, backend="threads", dlmp_nodes=(1, 2), dlmp_rows=16,
)  # fmt: skip

"""A landscape that never ran, for the tests of its page: a hill whose top is at medium widths and rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.engine.landscape.landscape import findings
from benchmarks.engine.landscape.question import Question
from benchmarks.engine.landscape.training import BATCH, Grid, Scores

WIDTHS, RATES = (1, 2, 4, 8, 16, 32), (0.001, 0.01, 0.1, 1.0)
ACTIVATIONS = ("relu", "tanh", "sigmoid")


def landscape_data(
    widths: tuple[int, ...] = WIDTHS, activations: tuple[str, ...] = ACTIVATIONS, rates: tuple[float, ...] = RATES,
    seeds: int = 7, epochs: int = 5, name: str = "hills", rows: int = 200,
) -> dict[str, Any]:  # fmt: skip
    draws = np.random.default_rng(0)
    grid = Grid(widths, activations, rates, seeds)
    axes = [np.linspace(-1, 1, length) if length > 1 else np.zeros(1) for length in grid.shape[:3]]
    w, a, r = np.meshgrid(*axes, indexing="ij")
    height = 0.95 - 0.25 * (w - 0.4) ** 2 - 0.05 * a**2 - 0.3 * r**2
    grown = height[..., None, None] * (1 - 0.5 ** np.arange(1, epochs + 1))
    picking = draws.binomial(rows, np.broadcast_to(grown, (*grid.shape, epochs)))
    fresh = draws.binomial(rows, np.broadcast_to(grown[..., -1], grid.shape))
    y = np.arange(4 * rows) % 3
    question = Question(name, np.zeros((4 * rows, 5)), y, 3 * rows, np.zeros((rows, 5)), y[:rows], 3)
    data = findings(question, grid, Scores(picking, fresh, 0, 2, 100))
    return {
        **data, "title": name, "created": "2026-01-01", "version": "0.1", "command": "python -m benchmarks landscape",
        "machine": {"cpu": "Some CPU", "cores": 2}, "training_seconds": 12.0, "batch": BATCH,
    }  # fmt: skip

"""Rows to train on, to choose on and to judge by, for growing and for random networks."""

from __future__ import annotations

import numpy as np

from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION
from shoal.tools.prepared import ToolData

FEWEST_ROWS = 3


def deal(data: ToolData, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on (three of five), to choose on and to judge by (one of five each); each class in all of them."""
    if data.n < FEWEST_ROWS:
        raise UserError(
            f"at least {FEWEST_ROWS} different rows are needed, to train, to choose and to judge on different ones; "
            f"got n_samples={data.n}"
        )
    order = np.random.default_rng([seed, 5]).permutation(data.n)
    if data.task.kind == CLASSIFICATION:
        order = order[np.argsort(data.y[order], kind="stable")]
    part = np.arange(data.n) % 5
    return np.sort(order[part > 1]), np.sort(order[part == 1]), np.sort(order[part == 0])

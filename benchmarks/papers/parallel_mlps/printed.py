"""What the ParallelMLPs paper reports (Farias, Ludermir, Bastos-Filho, AI 2023, 4, 16-27), transcribed."""

from __future__ import annotations

from typing import NamedTuple

SAMPLES = (100, 1000, 10_000)
FEATURES = (5, 10, 50, 100)
BATCHES = (32, 128, 256)

# Table 1, CPU, seconds per epoch of 10,000 models. A row per number of features; columns: samples, then batch size.
_PARALLEL = {
    5: (0.525, 0.463, 0.472, 5.248, 4.709, 4.717, 52.737, 46.929, 47.133),
    10: (0.539, 0.466, 0.475, 5.338, 4.722, 4.742, 53.351, 47.089, 47.153),
    50: (0.658, 0.505, 0.501, 6.144, 4.943, 4.887, 62.664, 49.791, 48.850),
    100: (0.809, 0.547, 0.551, 7.373, 5.366, 5.100, 74.661, 53.090, 50.965),
}
_SEQUENTIAL = {
    5: (13.437, 6.097, 5.994, 112.054, 56.999, 48.852, 1097.599, 564.428, 483.278),
    10: (13.360, 6.115, 6.010, 111.840, 57.094, 49.015, 1097.503, 564.701, 484.910),
    50: (13.884, 6.571, 6.467, 116.303, 58.993, 49.546, 1134.955, 583.468, 491.269),
    100: (14.283, 6.671, 6.592, 120.297, 59.259, 50.371, 1179.405, 586.267, 493.744),
}

# MNIST, 10,000 models, batch 64, GPU, seconds per epoch (section 4).
MNIST_PARALLEL_GPU = 118.3
MNIST_SEQUENTIAL_GPU = 6348.3


class PaperCell(NamedTuple):
    """Seconds per epoch on the paper's CPU."""

    parallel: float
    sequential: float

    @property
    def ratio(self) -> float:
        """How many times faster the paper's parallel training is than its sequential one."""
        return self.sequential / self.parallel


def table1(samples: int, features: int, batch: int) -> PaperCell | None:
    """The paper's numbers for a cell of its Table 1; None for a cell that it does not have.

    >>> round(table1(10_000, 100, 32).ratio, 1)
    15.8
    """
    if samples not in SAMPLES or features not in FEATURES or batch not in BATCHES:
        return None
    column = SAMPLES.index(samples) * len(BATCHES) + BATCHES.index(batch)
    return PaperCell(_PARALLEL[features][column], _SEQUENTIAL[features][column])

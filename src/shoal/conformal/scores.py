"""How badly a class fits what a model says of a row. A score is higher where the class fits worse.

`lac` (Sadinle, Lei and Wasserman, 2019) looks at the class's own probability. `aps` (Romano, Sesia and Candès, 2020)
is the probability of all likelier classes and a random part of its own; `raps` (Angelopoulos et al., 2021) adds a price
for each class beyond the first two. `lac` gave the smallest sets (`python -m benchmarks coverage`) and needs no random
numbers: it is what models have. The others are there to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

PRICE = 0.1  # of raps, for each class beyond the first two


def lac(probability: np.ndarray, part: np.ndarray) -> np.ndarray:
    return 1.0 - probability


def aps(probability: np.ndarray, part: np.ndarray) -> np.ndarray:
    order = np.argsort(-probability, axis=-1, kind="stable")
    descending = np.take_along_axis(probability, order, axis=-1)
    before = np.cumsum(descending, axis=-1) - descending
    scores = np.empty_like(probability)
    np.put_along_axis(scores, order, before + part[..., None] * descending, axis=-1)
    return scores


def raps(probability: np.ndarray, part: np.ndarray) -> np.ndarray:
    rank = np.argsort(np.argsort(-probability, axis=-1, kind="stable"), axis=-1, kind="stable")
    return aps(probability, part) + PRICE * np.maximum(rank - 1, 0)


# Probabilities (..., n_classes) and random parts (...) from 0 to 1 to the scores of all classes.
SCORES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"lac": lac, "aps": aps, "raps": raps}

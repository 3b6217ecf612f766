"""The gradient noise scale: up to which batch size more rows in a step pay, and so more nodes.

The squared norm of a gradient over B rows is, on average, |G|^2 + S / B: that of the true gradient, and noise. From two
batch sizes follow both. Their ratio S / |G|^2 is the critical batch (McCandlish et al., 2018): below it, twice the
batch saves nearly half of the steps; above it, hardly any. Both parts are averaged over many steps before they are
divided, since their ratio is not.
"""

from __future__ import annotations

import copy
import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import Dataset

from shoal.parallel.data.loader import Loader, epoch_order
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.learner import Learner
from shoal.parallel.strategies.updater import fewest_rows

if TYPE_CHECKING:
    from shoal.parallel.job import Job

STEPS = 40  # at which the gradient is looked at
PARTS = 8  # small batches in a large one, where there are rows enough
REPEATS = 500  # of the bootstrap


@dataclass(frozen=True)
class Noise:
    """The critical batch, with a 95% interval over the steps looked at; infinite: the noise hides the gradient."""

    critical_batch: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        return {"critical_batch": self.critical_batch, "low": self.low,
                "high": self.high, "text": self.text}  # fmt: skip

    @property
    def text(self) -> str:
        if math.isinf(self.critical_batch):
            return "The noise of the gradient is larger than the gradient itself: no batch that was tried is too large."
        between = f", between {self.low:,.0f} and {self.high:,.0f}" if math.isfinite(self.high) else ""
        return (
            f"The critical batch is about {self.critical_batch:,.0f} rows{between}: larger batches, and the nodes that "
            "need them, save almost no steps."
        )


def noise_scale(job: Job, model: nn.Module, train: Dataset[Any], steps: int = STEPS) -> Noise | None:
    """Train a copy of the model for some steps, and look at its gradient at each with two batch sizes.

    None: there are too few rows for two.
    """
    loader = Loader(train, torch.device("cpu"), job.seed)
    least = fewest_rows(model)
    small = max(least, min(job.batch_size, len(loader) // PARTS))
    parts = min(PARTS, len(loader) // small)
    if parts < 2:
        return None
    with torch_as_it_was():
        learner = Learner(copy.deepcopy(model).cpu(), replace(job, workers=1, strategy="blas"), steps)
        found = []
        for step in range(steps):
            rows = epoch_order(len(loader), job.seed, step, True)[: small * parts]
            vectors = []
            for part in rows.split(small):
                vector = learner.new_vector(learner.width)
                learner.gradient(*loader.take(part), 1.0, step, vector)
                vectors.append(vector)
            mean = torch.stack(vectors).mean(0)
            norms = [float(vector[: learner.count].square().sum()) for vector in vectors]
            found.append((sum(norms) / len(norms), float(mean[: learner.count].square().sum())))
            learner.apply(vectors[0], step)
    return estimate(found, small, small * parts)


def estimate(norms: list[tuple[float, float]], small: int, large: int) -> Noise:
    """From squared norms of gradients over `small` and over `large` rows, one pair for each step.

    >>> estimate([(3.0, 1.2)] * 3, 10, 100).critical_batch  # 1 + 20/10, 1 + 20/100
    20.0
    """
    chance = random.Random(0)
    value = _ratio(norms, small, large)
    others = sorted(_ratio(chance.choices(norms, k=len(norms)), small, large) for _ in range(REPEATS))
    return Noise(value, others[int(0.025 * REPEATS)], others[int(0.975 * REPEATS)])


def _ratio(norms: list[tuple[float, float]], small: int, large: int) -> float:
    less, more = (sum(column) / len(norms) for column in zip(*norms, strict=True))
    gradient = (large * more - small * less) / (large - small)
    noise = (less - more) / (1 / small - 1 / large)
    if gradient <= 0:
        return math.inf
    return max(0.0, round(noise / gradient, 9))

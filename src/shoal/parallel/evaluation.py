"""Loss and accuracy of a model on rows, and the floating-point operations of a training step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal.parallel.data.loader import Loader, rows_in
from shoal.parallel.exact.randomness import own_generator
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import IGNORED, make_loss

if TYPE_CHECKING:
    from shoal.parallel.job import Job

ROWS_EVALUATED_AT_ONCE = 1024  # fixed, so that sums do not depend on the number of workers


def chunks_of(loader: Loader) -> tuple[torch.Tensor, ...]:
    """Row numbers, in the chunks in which rows are evaluated."""
    return torch.arange(len(loader)).split(ROWS_EVALUATED_AT_ONCE)


def measures(model: nn.Module, loss: Callable[[Any, Any], torch.Tensor], inputs: Any, target: Any) -> list[float]:
    """Sum of the loss, number of right answers, and number of rows that have a right answer."""
    output = model(inputs)
    total = float(loss(output, target)) * rows_in(target)
    if not isinstance(output, torch.Tensor):
        return [total, 0.0, 0.0]
    classes = isinstance(target, torch.Tensor) and not target.is_floating_point() and output.dim() == target.dim() + 1
    if classes and output.shape[1] > 1:
        return [total, float((output.argmax(1) == target).sum()), float((target != IGNORED).sum())]
    return [total, 0.0, 0.0]


def flops_per_row(model: nn.Module, loader: Loader, job: Job) -> float:
    """Floating-point operations of a step for one row, forward and backward, as torch counts them."""
    from shoal.parallel.exact.generators import FlopCounter

    rows = torch.arange(min(4, len(loader)))
    inputs, target = loader.take(rows)
    trial = copy.deepcopy(model).train()
    with FlopCounter() as counter, own_generator(torch.Generator()):
        make_loss(job.loss)(trial(inputs), target).backward()
    return counter.total / len(rows)

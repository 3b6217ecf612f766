"""When training has diverged: found by the loss of each step, which is there anyway, and by the weights now and then.

The rule: a loss or a weight that is not finite; or a loss above 1e8 times that of the first step (1e8 where it began
below 1), three steps in a row. A single batch with an outlier is not a divergence, and large targets begin with a
large loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from shoal.parallel import checkpoint
from shoal.parallel.job import Job

ABSURD = 1e8  # times the first loss
IN_A_ROW = 3  # steps with such a loss


class Diverged(ValueError):
    """Training has diverged: its weights are of no use any more."""


class Guard:
    """Looks at the loss of every step that one worker takes."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.first: float | None = None  # the loss that training began with
        self.epoch = 0
        self.absurd = 0  # steps in a row

    def go_on(self, history: list[dict[str, Any]]) -> None:
        """A run that is continued is compared with its beginning."""
        if history:
            self.first = history[0]["train_loss"]

    def see(self, loss: float, step: int) -> None:
        """The mean loss of a step's rows, from before the step was taken; steps count from zero."""
        if not math.isfinite(loss):
            raise self._error(step, f"the loss is {loss:g}")
        if self.first is None:
            self.first = loss
        self.absurd = self.absurd + 1 if loss > ABSURD * max(1.0, abs(self.first)) else 0
        if self.absurd == IN_A_ROW:
            raise self._error(step, f"the loss is {loss:.3g}")

    def check_weights(self, parameters: Iterable[torch.Tensor], step: int) -> None:
        """After a step, before anything is saved: `step` steps have been taken."""
        for parameter in parameters:
            value: Any = parameter.detach()
            part = value.to_local() if hasattr(value, "to_local") else value
            if parameter.requires_grad and not bool(torch.isfinite(part).all()):
                raise self._error(step - 1, "weights are not finite")

    def bad_rows(self, step: int) -> Diverged:
        """Where the rows of a step are to blame."""
        return self._error(step, "its rows hold NaN or infinity", "fill or drop these")

    def _error(self, step: int, what: str, remedy: str = "") -> Diverged:
        if self.first is None:
            remedy = remedy or "no step was taken before, so look for NaN or infinity in inputs, targets and weights"
        else:
            what += f" (the first was {self.first:.4g})" if "loss" in what else ""
            rate = "" if callable(self.job.optimizer) else f" than {self.job.learning_rate:g}"
            remedy = remedy or f"give a lower learning rate{rate}, or an optimizer that clips gradients"
        return Diverged(
            f"training diverged in step {step + 1} (epoch {self.epoch + 1}): {what}; {remedy}; "
            f"{checkpoint.kept(self.job.checkpoint)}"
        )


def all_finite(value: Any) -> bool:
    """Whether all numbers of a batch are, whatever it is made of."""
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, dict):
        return all(map(all_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(all_finite, value))

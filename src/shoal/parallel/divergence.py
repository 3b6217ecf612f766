"""Detects divergence by the loss of each step and by the weights at the end of each epoch.

A run has diverged if a loss or a weight is not finite, or if the loss is absurd: above 1e8 times the first one (above
1e8, if that was below 1), three steps in a row, in the last step of the run, or on the validation rows. One batch with
an outlier is no divergence, and large targets begin with a large loss. While the last loss is absurd, no checkpoint is
written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.parallel import checkpoint
from shoal.parallel.lazy import torch

if TYPE_CHECKING:
    from shoal.parallel.job import Job

LARGEST_LOSS = 1e8  # times the first loss
MOST_ABSURD_STEPS = 3  # in a row


class Diverged(UserError):
    """Training has diverged: its weights are useless."""


class Guard:
    """Checks the loss of every step of one worker."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.first: float | None = None  # the loss that training began with
        self.epoch = 0
        self.absurd = 0  # steps in a row
        self.last = 0.0  # the loss of the last of these

    def see(self, loss: float, step: int) -> None:
        """The mean loss of a step, computed before its update; steps count from zero."""
        if not math.isfinite(loss):
            raise self._error(step, f"the loss is {loss:g}", or_rows=True)
        if self.first is None:
            self.first = loss
        self.absurd, self.last = self.absurd + 1 if self._is_absurd(loss) else 0, loss
        if self.absurd == MOST_ABSURD_STEPS:
            raise self._error(step, f"the loss is {loss:.3g}")

    def _is_absurd(self, loss: float) -> bool:
        return loss > LARGEST_LOSS * max(1.0, abs(self.first or 0.0))

    def seen(self) -> tuple[float | None, float | None]:
        """The first loss, and the last one if it is absurd; workers exchange these at the end of an epoch."""
        return self.first, self.last if self.absurd else None

    def close_epoch(self, everyone: list[tuple[float | None, float | None]], step: int, is_last: bool) -> None:
        """Judge by what all workers have seen, so that all decide the same: a run must not end with an absurd loss."""
        self.first = next((first for first, _ in everyone if first is not None), None)
        doubtful = [last for _, last in everyone if last is not None]
        if is_last and doubtful:
            raise self._error(step - 1, f"the loss is {max(doubtful):.3g}")

    def check_valid(self, loss: float, rows: Iterable[Any], step: int) -> None:
        """Check the validation loss after `step` steps. `rows` are read only if it is not finite."""
        if not math.isfinite(loss) and not all(map(all_finite, rows)):
            raise Diverged(
                f"the validation loss is {loss:g} (epoch {self.epoch + 1}): validation rows hold NaN or infinity; "
                f"fill or drop these; {checkpoint.kept(self.job.checkpoint)}"
            )
        if not math.isfinite(loss) or self._is_absurd(loss):
            raise self._error(step - 1, f"the validation loss is {loss:.3g}")

    def check_weights(self, parameters: Iterable[torch.Tensor], step: int) -> None:
        """Check the weights after `step` steps, before they are saved."""
        for parameter in parameters:
            value: Any = parameter.detach()
            part = value.to_local() if hasattr(value, "to_local") else value
            if parameter.requires_grad and not bool(torch.isfinite(part).all()):
                raise self._error(step - 1, "weights are not finite", or_rows=True)

    def bad_rows(self, step: int) -> Diverged:
        """The error for a step whose rows hold NaN or infinity."""
        return self._error(step, "its rows hold NaN or infinity", "fill or drop these")

    def _error(self, step: int, what: str, remedy: str = "", or_rows: bool = False) -> Diverged:
        """or_rows: the cause may also be rows that this worker does not have."""
        if self.first is None:
            remedy = remedy or "no step was taken before, so look for NaN or infinity in inputs, targets and weights"
        else:
            what += f" (the first was {self.first:.4g})" if "loss" in what else ""
            rate = "" if callable(self.job.optimizer) else f" than {self.job.learning_rate:g}"
            rows = "; or fill or drop NaN and infinity in the rows, if there are any" if or_rows else ""
            remedy = remedy or f"give a lower learning rate{rate}, or an optimizer that clips gradients{rows}"
        return Diverged(
            f"training diverged in step {step + 1} (epoch {self.epoch + 1}): {what}; {remedy}; "
            f"{checkpoint.kept(self.job.checkpoint)}"
        )


def all_finite(value: Any) -> bool:
    """Whether all numbers of a batch are finite; a batch may be a tensor, or a list or dict of such."""
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, dict):
        return all(map(all_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(all_finite, value))

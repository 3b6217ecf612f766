"""When training has diverged: found by the loss of each step, which is there anyway, and by the weights now and then.

The rule: a loss or a weight that is not finite; or a loss above 1e8 times that of the first step (1e8 where it began
below 1), three steps in a row, or in the last step of the run; or such a validation loss. A single batch with an
outlier is not a divergence, and large targets begin with a large loss. While the last loss was absurd, no checkpoint is
written.
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
        self.last = 0.0  # the loss of the last of these

    def go_on(self, first: float | None, history: list[dict[str, Any]]) -> None:
        """A run that is continued is compared with its beginning; older checkpoints do not hold the first loss."""
        self.first = history[0]["train_loss"] if first is None and history else first

    def see(self, loss: float, step: int) -> None:
        """The mean loss of a step's rows, from before the step was taken; steps count from zero."""
        if not math.isfinite(loss):
            raise self._error(step, f"the loss is {loss:g}", or_rows=True)
        if self.first is None:
            self.first = loss
        self.absurd, self.last = self.absurd + 1 if self._is_absurd(loss) else 0, loss
        if self.absurd == IN_A_ROW:
            raise self._error(step, f"the loss is {loss:.3g}")

    def _is_absurd(self, loss: float) -> bool:
        return loss > ABSURD * max(1.0, abs(self.first or 0.0))

    def seen(self) -> tuple[float | None, float | None]:
        """The first loss, and the last one if it was absurd: what workers tell each other at the end of an epoch."""
        return self.first, self.last if self.absurd else None

    def close_epoch(self, everyone: list[tuple[float | None, float | None]], step: int, is_last: bool) -> None:
        """From what all workers have seen, so that all judge alike: a run must not end with an absurd loss."""
        self.first = next((first for first, _ in everyone if first is not None), None)
        doubtful = [last for _, last in everyone if last is not None]
        if is_last and doubtful:
            raise self._error(step - 1, f"the loss is {max(doubtful):.3g}")

    def check_valid(self, loss: float, rows: Iterable[Any], step: int) -> None:
        """The loss of the validation rows, after `step` steps. The rows are looked at only if it is not finite."""
        if not math.isfinite(loss) and not all(map(all_finite, rows)):
            raise Diverged(
                f"the validation loss is {loss:g} (epoch {self.epoch + 1}): validation rows hold NaN or infinity; "
                f"fill or drop these; {checkpoint.kept(self.job.checkpoint)}"
            )
        if not math.isfinite(loss) or self._is_absurd(loss):
            raise self._error(step - 1, f"the validation loss is {loss:.3g}")

    def check_weights(self, parameters: Iterable[torch.Tensor], step: int) -> None:
        """After a step, before anything is saved: `step` steps have been taken."""
        for parameter in parameters:
            value: Any = parameter.detach()
            part = value.to_local() if hasattr(value, "to_local") else value
            if parameter.requires_grad and not bool(torch.isfinite(part).all()):
                raise self._error(step - 1, "weights are not finite", or_rows=True)

    def bad_rows(self, step: int) -> Diverged:
        """Where the rows of a step are to blame."""
        return self._error(step, "its rows hold NaN or infinity", "fill or drop these")

    def _error(self, step: int, what: str, remedy: str = "", or_rows: bool = False) -> Diverged:
        """or_rows: rows that this worker does not have may be the cause as well."""
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
    """Whether all numbers of a batch are, whatever it is made of."""
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, dict):
        return all(map(all_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(all_finite, value))

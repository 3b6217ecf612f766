"""An optimiser whose weights and moments are flat vectors, so that every worker updates a part of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.parallel.exact.tree_sum import Node
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import share_of_rate
from shoal.parallel.sums.layout import FlatLayout

if TYPE_CHECKING:
    from shoal.parallel.job import Job

NewVector = Callable[[int], "torch.Tensor"]


def _function(job: Job) -> Callable[..., Any]:
    """Torch's step of an optimiser, with the settings that a torch.optim object has by itself."""
    from torch.optim.adam import adam
    from torch.optim.adamw import adamw
    from torch.optim.sgd import sgd

    common: dict[str, Any] = {"weight_decay": job.weight_decay, "foreach": False, "fused": True, "maximize": False}
    if job.optimizer == "sgd":
        return partial(sgd, momentum=job.momentum, dampening=0.0, nesterov=False, **common)
    function = adam if job.optimizer == "adam" else adamw
    return partial(function, beta1=0.9, beta2=0.999, eps=1e-8, amsgrad=False, **common)


def moment_names(job: Job) -> tuple[str, ...]:
    """Vectors that the optimiser keeps besides the weights, as torch calls them."""
    if job.optimizer == "sgd":
        return ("momentum_buffer",) if job.momentum else ()
    return ("exp_avg", "exp_avg_sq")


def can_be_flat(job: Job, model: nn.Module, parameters: list[nn.Parameter]) -> bool:
    """Whether torch's optimiser of that name computes each number by itself, and weights may move to one vector."""
    usual = {(part.device.type, part.dtype, part.layout) for part in parameters}
    if callable(job.optimizer) or len(usual) != 1:
        return False
    device, dtype, layout = usual.pop()
    storages = [value.untyped_storage().data_ptr() for value in (*model.parameters(), *model.buffers())]
    alone = len(set(storages)) == len(storages)  # else one is a view of another
    return device == "cpu" and dtype in (torch.float32, torch.float64) and layout == torch.strided and alone


class FlatOptimizer:
    """Takes the place of torch's optimiser, whose functions it calls for a part of the vectors."""

    def __init__(
        self, job: Job, layout: FlatLayout, named: dict[str, nn.Parameter], steps: int, new: NewVector
    ) -> None:
        """The weights move to a vector made by `new`, until `give_back`."""
        self.job, self.layout, self.named, self.steps = job, layout, named, steps
        self.weights = new(layout.count)
        self.moments = {name: new(layout.count) for name in moment_names(job)}
        self.taken = 0  # steps
        self.function = _function(job)
        self.own = [parameter.data for parameter in named.values()]
        for parameter, place in zip(named.values(), layout.views(self.weights), strict=True):
            parameter.data = place.copy_(parameter.data)

    def give_back(self) -> None:
        """The weights return to where they were."""
        for parameter, place in zip(self.named.values(), self.own, strict=True):
            parameter.data = place.copy_(parameter.data)

    def step(self, part: Node, gradient: torch.Tensor, step: int) -> None:
        """Update a part of the weights along its gradient; once all parts are done, `finish_step`."""
        start, end = part
        if start == end:
            return
        moments: list[list[torch.Tensor | None]] = [[vector[start:end]] for vector in self.moments.values()] or [[None]]
        rate = self.job.learning_rate * share_of_rate(self.job.schedule, step, self.steps)
        counts = [] if self.job.optimizer == "sgd" else [[], [torch.tensor(float(self.taken))]]
        self.function([self.weights[start:end]], [gradient], *moments, *counts, lr=rate)

    def finish_step(self) -> None:
        self.taken += 1

    def state(self) -> dict[str, dict[str, Any]]:
        """As torch's optimiser has it, for each parameter by name."""
        if not self.moments or not self.taken:
            return {name: {} for name in self.named}
        columns = {key: self.layout.views(vector) for key, vector in self.moments.items()}
        count = {} if self.job.optimizer == "sgd" else {"step": torch.tensor(float(self.taken))}
        return {name: {**count, **{key: views[k].clone() for key, views in columns.items()}}
                for k, name in enumerate(self.named)}  # fmt: skip

    def load(self, state: dict[str, dict[str, Any]]) -> None:
        for key, vector in self.moments.items():
            for name, place in zip(self.named, self.layout.views(vector), strict=True):
                if (saved := state[name].get(key)) is not None:
                    place.copy_(saved)
                    self.taken = int(state[name].get("step", 1))

"""Loss, optimiser and schedule of a run; a model with these, whose gradients and weights are flat vectors."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.parallel.exact.randomness import draws_random_numbers, keyed
from shoal.parallel.lazy import nn, torch

if TYPE_CHECKING:
    from shoal.parallel.job import Job

Loss = Callable[[Any, Any], "torch.Tensor"]
IGNORED = -100  # a target that torch's cross entropy ignores


def make_loss(loss: str | Loss) -> Loss:
    """A loss that is a mean over rows. For "mse" and "bce", classes become ones and zeros.

    A model may return something else in a later step than in the first: that is the model's error, not Shoal's.
    """
    if callable(loss):
        return loss

    def checked(output: Any, target: Any) -> torch.Tensor:
        need_tensor(output, loss)
        try:
            return LOSSES[loss](output, target)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise Misfit(
                f"the loss {loss!r} cannot be computed from what the model returned, {shape_text(output)}, and the "
                f"targets, {shape_text(target)}: {(str(error).splitlines() or [type(error).__name__])[0]}"
            ) from error

    return checked


class Misfit(UserError):
    """Outputs of a wrong kind or number."""


def need_tensor(output: Any, loss: str) -> None:
    if not isinstance(output, torch.Tensor):
        kind = f"a {type(output).__name__}" if output is not None else "None"
        raise Misfit(
            f"the model must return one tensor for the loss {loss!r}; it returns {kind} (a custom loss, in "
            "shoal.parallel.fit, may take anything)"
        )


def shape_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__


def _cross_entropy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Torch's, but 0 instead of NaN where all rows are ignored."""
    if not target.is_floating_point() and target.numel() and int(target.max()) == IGNORED:
        return output.sum() * 0.0
    return nn.functional.cross_entropy(output, target)


def _mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output, like_output(output, target))


def _bce(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(output, like_output(output, target))


LOSSES: dict[str, Loss] = {"cross_entropy": _cross_entropy, "mse": _mse, "bce": _bce}


def like_output(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Targets in the shape and precision of outputs; classes become ones and zeros."""
    if target.shape == output.shape:
        return target.to(output.dtype)
    if not target.is_floating_point() and target.dim() == output.dim() - 1 and output.shape[-1] > 1:
        return nn.functional.one_hot(target, output.shape[-1]).to(output.dtype)
    return target.reshape(output.shape).to(output.dtype)


def make_optimizer(job: Job, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if callable(job.optimizer):
        return job.optimizer(parameters)
    common: dict[str, Any] = {"lr": job.learning_rate, "weight_decay": job.weight_decay}
    if job.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=job.momentum, **common)
    return (torch.optim.Adam if job.optimizer == "adam" else torch.optim.AdamW)(parameters, **common)


def share_of_rate(schedule: str, step: int, steps: int) -> float:
    """Times the learning rate; computed from the step alone, so that checkpoints need not hold it.

    >>> share_of_rate("cosine", 5, 10), share_of_rate("constant", 5, 10)
    (0.5, 1.0)
    """
    return 1.0 if schedule == "constant" else 0.5 * (1 + math.cos(math.pi * min(step / max(1, steps), 1.0)))


class Schedule:
    """Sets the learning rate of each step."""

    def __init__(self, kind: str, optimizer: torch.optim.Optimizer, steps: int) -> None:
        self.kind, self.optimizer, self.steps = kind, optimizer, steps
        self.first = [group["lr"] for group in optimizer.param_groups]

    def set(self, step: int) -> None:
        if self.kind == "constant":
            return
        share = share_of_rate(self.kind, step, self.steps)
        for group, rate in zip(self.optimizer.param_groups, self.first, strict=True):
            group["lr"] = rate * share


class Learner:
    """Computes gradients as one vector, [all parameters | loss | averaged buffers], and takes steps along it."""

    def __init__(self, model: nn.Module, job: Job, steps: int, named: dict[str, nn.Parameter] | None = None) -> None:
        """`named`: the parameters that this worker's optimiser has; all that are trained, if not given."""
        self.model, self.job = model.train(), job
        self.named = trained_parameters(model) if named is None else named
        # The optimiser needs a parameter: a stage of a pipeline may have none.
        self.parameters = list(self.named.values()) or [nn.Parameter(torch.zeros(1))]
        self.most_precise = max(self.parameters, key=lambda parameter: torch.finfo(parameter.dtype).bits)
        self.buffers = _averaged(model)
        self.found: dict[int, tuple[nn.Module, list[nn.Parameter]]] = {}  # parameters of the model and its replicas
        self.count = sum(p.numel() for p in self.parameters)
        self.width = self.count + 1 + sum(b.numel() for b in self.buffers)
        self.loss = make_loss(job.loss)
        self.steps = steps
        self.random: bool | None = None  # not known before the first rows
        # Whether other threads of this process draw random numbers, too.
        self.threaded = threading.current_thread() is not threading.main_thread()

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Made when it is first used: torch loads for seconds before it makes one."""
        return make_optimizer(self.job, self.parameters)

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule(self.job.schedule, self.optimizer, self.steps)

    # ---- gradients ----

    def is_random(self, inputs: Any) -> bool:
        """Whether a forward pass draws random numbers; tried once."""
        if self.random is None:
            self.random = draws_random_numbers(self.model, inputs)
        return self.random

    def replica(self) -> nn.Module:
        """A model with the same weights and its own buffers, for another thread."""
        other = copy.deepcopy(self.model)
        for mine, its in zip(self.model.parameters(), other.parameters(), strict=True):
            its.data = mine.data
        return other

    def new_vector(self, width: int) -> torch.Tensor:
        """Zeros on the model's device, in the precision of its most precise parameter."""
        return torch.zeros(width, device=self.most_precise.device, dtype=self.most_precise.dtype)

    def scaled_loss(
        self, inputs: Any, target: Any, share: float, key: int, model: nn.Module | None = None
    ) -> torch.Tensor:
        """`share` times the loss, computed by `model` if given; its random numbers are those of the key."""
        with keyed(key, self.threaded) if self.is_random(inputs) else nullcontext():
            loss = self.loss((self.model if model is None else model)(inputs), target)
        return loss if share == 1 else loss * share

    def gradient(self, inputs: Any, target: Any, share: float, key: int, out: torch.Tensor) -> None:
        """Write `share` times the gradient, the loss and the buffers into `out`."""
        self.pack(self.gradients(inputs, target, share, key), out)

    def gradients(
        self, inputs: Any, target: Any, share: float, key: int, replica: nn.Module | None = None
    ) -> list[torch.Tensor]:
        """The same as a list of tensors that may be changed in place; computed by a replica, if given."""
        model = self.model if replica is None else replica
        if replica is not None:
            for mine, its in zip(self.model.buffers(), replica.buffers(), strict=True):
                its.copy_(mine)
        loss = self.scaled_loss(inputs, target, share, key, model)
        grads = torch.autograd.grad(loss, self._trained(model), allow_unused=True, materialize_grads=True)
        own: list[torch.Tensor] = []
        seen: set[int] = set()
        for grad in grads:  # two parameters may share one tensor, or have one with repeated elements
            again = grad.data_ptr() in seen or not grad.is_contiguous()
            seen.add(grad.data_ptr())
            own.append(grad.clone(memory_format=torch.contiguous_format) if again else grad)
        parts = [*own, loss.detach().reshape(1), *[buffer * share for buffer in _averaged(model)]]
        return [part.to(self.most_precise.dtype) for part in parts]  # the precision of the vector

    def _trained(self, model: nn.Module) -> list[nn.Parameter]:
        """Of the model or a replica; to look through its modules in every step takes long."""
        if id(model) not in self.found:
            self.found[id(model)] = model, list(trained_parameters(model).values())
        return self.found[id(model)][1]

    def pack(self, parts: list[torch.Tensor], out: torch.Tensor) -> None:
        """Concatenate into a vector."""
        for place, part in zip(_cut(out, parts), parts, strict=True):
            place.copy_(part)

    def apply(self, vector: torch.Tensor, step: int) -> float:
        """Take a step along a summed gradient; returns the loss."""
        loss = vector[self.count]
        for parameter, gradient in zip(self.parameters, _cut(vector, self.parameters), strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        for buffer, value in zip(self.buffers, _cut(vector[self.count + 1 :], self.buffers), strict=True):
            buffer.copy_(value)
        self.step(step)
        return float(loss)

    def step(self, step: int) -> None:
        """Take a step along the gradients of the parameters."""
        self.schedule.set(step)
        self.optimizer.step()

    # ---- weights ----

    def weights(self) -> torch.Tensor:
        """All parameters and averaged buffers, concatenated."""
        with torch.no_grad():
            return torch.cat([part.reshape(-1) for part in (*self.parameters, *self.buffers)])

    def set_weights(self, vector: torch.Tensor) -> None:
        parts = [*self.parameters, *self.buffers]
        with torch.no_grad():
            for part, value in zip(parts, _cut(vector, parts), strict=True):
                part.copy_(value)

    def state(self) -> dict[str, Any]:
        """Weights and the optimiser's state of each parameter, by name. Sharded tensors are gathered."""
        return {
            "model": {name: _whole(value) for name, value in self.model.state_dict().items()},
            "optimizer": {name: {key: _whole(value) for key, value in self.optimizer.state.get(parameter, {}).items()}
                          for name, parameter in self.named.items()},
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(_sharded_like(state["model"][name], value))
        for name, parameter in self.named.items():
            if saved := state["optimizer"].get(name):
                self.optimizer.state[parameter] = {key: _sharded_like(value, parameter) for key, value in saved.items()}


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _averaged(model: nn.Module) -> list[torch.Tensor]:
    """Buffers that are averaged over shards, such as running means; integers, such as counters, are not."""
    return [buffer for buffer in model.buffers() if buffer.is_floating_point()]


def _cut(vector: torch.Tensor, like: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Views of consecutive parts of a vector, with the shapes of other tensors."""
    start = 0
    for part in like:
        yield vector[start : start + part.numel()].view(part.shape)
        start += part.numel()


def _whole(value: Any) -> Any:
    """A copy on the CPU; a sharded tensor is gathered from all workers."""
    if not isinstance(value, torch.Tensor):
        return value
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().cpu().clone()


def _sharded_like(value: Any, other: Any) -> Any:
    """A copy on the device of another tensor, sharded as that is; step counters stay as they are."""
    if not isinstance(value, torch.Tensor) or value.shape != other.shape:
        return copy.deepcopy(value)
    if hasattr(other, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value.to(other.device), other.device_mesh, other.placements)
    return value.to(other.device).clone()

"""Strategies that split the model over workers: layers apart (pipeline), matrices apart (tensor), all apart (sharded).

PyTorch does the splitting. With a second dimension of the mesh, each part of the model exists several times, and rows
are split over those.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from shoal.parallel.feed import key, rows_in
from shoal.parallel.groups import Group
from shoal.parallel.job import Job
from shoal.parallel.learner import Schedule, load_optimizer, make_loss, make_optimizer, optimizer_state
from shoal.parallel.randomness import draws_random_numbers, keyed
from shoal.parallel.strategies import Items, Strategy, dealt, fewest_rows, given


def check_model(job: Job, model: nn.Module) -> None:
    """Whether a model can be split in this way over so many workers."""
    pieces = job.mesh_shape[1]
    if pieces == 1:
        return
    if "tensor" in job.strategy and not any(isinstance(module, nn.Linear) for module in model.modules()):
        raise ValueError("strategy 'tensor' splits nn.Linear layers, and the model has none; use 'allreduce'")
    if "pipeline" not in job.strategy:
        return
    if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
        raise ValueError(
            f"strategy 'pipeline' splits an nn.Sequential between its layers; the model is a {type(model).__name__}"
        )
    layers = [layer for layer in model._modules.values() if layer is not None]
    if len(layers) < pieces:
        raise ValueError(f"the model has {len(layers)} layers, too few for a pipeline of {pieces}")
    with_parameters = [id(layer) for layer in layers if any(True for _ in layer.parameters())]
    if len(set(with_parameters)) < len(with_parameters):
        raise ValueError("strategy 'pipeline' cannot split a model that uses one layer twice; use 'allreduce'")


class Spread(Strategy):
    """Common to all: an optimiser over whatever part of the parameters is here, rows split over the data dimension."""

    together = True

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        super().__init__(job, group, model.train(), rows)
        self.replicas, self.pieces = job.mesh_shape
        shape = (self.replicas, self.pieces)
        self.mesh: Any = None
        if group.size > 1:
            self.mesh = init_device_mesh(device.type, shape, mesh_dim_names=("data", "model"))
        self.replica, self.piece = group.rank // self.pieces, group.rank % self.pieces
        self.device = device
        self.loss, self.least = make_loss(job.loss), fewest_rows(model)
        self._split()
        self.named = {name: p for name, p in self._my_parameters() if p.requires_grad}
        nothing = nn.Parameter(torch.zeros(1, device=device))  # a stage may have no parameter, but optimisers want one
        self.optimizer = make_optimizer(job, list(self.named.values()) or [nothing])
        self.schedule = Schedule(job.schedule, self.optimizer, self.total_steps())

    def _split(self) -> None:
        raise NotImplementedError

    def _my_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        start, end = dealt(len(rows), self.replicas, self.least)[self.replica]
        return [rows[start:end] if end > start else rows[: self.least]]  # nobody stays away: rows that count nothing

    def _my_share(self, rows: int) -> int:
        start, end = dealt(rows, self.replicas, self.least)[self.replica]
        return end - start

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        inputs, target = given(items[0])
        mine = self._my_share(rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(inputs, target, mine, rows, step)
        self._sum_over_replicas()
        self.schedule.set(step)
        self.optimizer.step()
        self.see(loss * rows / max(mine, 1), step)
        return (loss * rows, mine) if self._tells() else (0.0, 0)

    def _tells(self) -> bool:
        """One of those that have computed the same loss."""
        return self.piece == 0

    def _backward(self, inputs: Any, target: Any, mine: int, rows: int, step: int) -> float:
        with keyed(key(self.job.seed, step, self.replica), False):
            loss = self.loss(self.model(inputs), target) * (mine / rows)
        loss.backward()
        return float(loss.detach())

    def _sum_over_replicas(self) -> None:
        if self.replicas == 1:
            return
        import torch.distributed as dist

        with self.group._talking():
            for parameter in self.named.values():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                grad: Any = parameter.grad
                dist.all_reduce(
                    grad.to_local() if hasattr(grad, "to_local") else grad, group=self.mesh["data"].get_group()
                )

    def state(self) -> dict[str, Any]:
        model = {name: _full(value) for name, value in self.model.state_dict().items()}
        return {"model": model, "optimizer": optimizer_state(self.optimizer, self.named)}

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                _copy_into(value, state["model"][name])
        load_optimizer(self.optimizer, self.named, state["optimizer"])


class Tensor(Spread):
    """Matrices of linear layers are split: columns of one, rows of the next, so that one sum serves both."""

    def _split(self) -> None:
        from torch.distributed.tensor.parallel import parallelize_module

        parallelize_module(self.model, self.mesh["model"], self._plan())

    def _plan(self) -> dict[str, Any]:
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        plan: dict[str, Any] = {}
        for first, second in _linear_pairs(self.model):
            between: Any = self.model.get_submodule(first).out_features
            if second is not None and between % self.pieces == 0:
                plan[first], plan[second] = ColwiseParallel(), RowwiseParallel()
                continue
            for name in filter(None, (first, second)):
                plan[name] = ColwiseParallel(output_layouts=Replicate())
        return plan


ELEMENTWISE = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Mish, nn.SiLU, nn.Identity)


def _linear_pairs(model: nn.Module) -> list[tuple[str, str | None]]:
    """Linear layers by name: two with nothing but elementwise functions between them in an nn.Sequential, or one."""
    pairs: list[tuple[str, str | None]] = []
    in_sequence: set[str] = set()
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Sequential):
            waiting: str | None = None
            for name, child in module._modules.items():
                full = f"{prefix}.{name}" if prefix else name
                if isinstance(child, nn.Linear):
                    in_sequence.add(full)
                    if waiting is None:
                        waiting = full
                    else:
                        pairs.append((waiting, full))
                        waiting = None
                elif waiting is not None and not isinstance(child, ELEMENTWISE):
                    pairs.append((waiting, None))
                    waiting = None
            if waiting is not None:
                pairs.append((waiting, None))
    alone = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return pairs + [(name, None) for name in alone if name and name not in in_sequence]


class Sharded(Spread):
    """FSDP2: parameters, gradients and optimiser state are spread over all workers and put together layer by layer."""

    def __init__(self, job: Job, group: Group, model: nn.Module, rows: int, device: torch.device) -> None:
        super().__init__(job, group, model, rows, device)
        self.replicas, self.replica = group.size, group.rank  # every worker has rows of its own

    def _split(self) -> None:
        from torch.distributed.fsdp import fully_shard

        mesh = self.mesh["model"]
        for module in self.model.modules():
            if module is not self.model and not list(module.children()) and any(True for _ in module.parameters()):
                fully_shard(module, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def _tells(self) -> bool:
        return True

    def _backward(self, inputs: Any, target: Any, mine: int, rows: int, step: int) -> float:
        with keyed(key(self.job.seed, step, self.replica), False):
            loss = self.loss(self.model(inputs), target) * (mine / rows)
        (loss * self.group.size).backward()  # it takes the mean over the workers; the sum is wanted
        return float(loss.detach())

    def _sum_over_replicas(self) -> None: ...


class Pipeline(Spread):
    """Layers of an nn.Sequential over workers, micro-batches through them one after the other (GPipe).

    The micro-batches, and the order in which their gradients are summed, depend on the batch alone: so do the bits.
    """

    together = False

    def _split(self) -> None:
        names, layers = (
            list(self.model._modules),
            [layer for layer in self.model._modules.values() if layer is not None],
        )
        start, end = balanced([sum(p.numel() for p in layer.parameters()) for layer in layers], self.pieces)[self.piece]
        self.first = start
        self.tick = Tick()
        self.mine, self.names = layers[start:end], names[start:end]
        self.stage = nn.Sequential(*[Keyed(layer, start + k, self.tick) for k, layer in enumerate(self.mine)])
        self.schedules: dict[tuple[int, ...], Any] = {}
        self.random: bool | None = None

    def _my_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(f"{own}.{name}", p) for own, layer in zip(self.names, self.mine, strict=True)
                for name, p in layer.named_parameters()]  # fmt: skip

    def _backward(self, inputs: Any, target: Any, mine: int, rows: int, step: int) -> float:
        if not mine:  # nothing for the whole row of workers
            return 0.0
        self.tick.start(key(self.job.seed, step, self.replica), self._is_random(inputs))
        self.scale = 1 / rows
        count = micro_batches(mine, self.job.shards, self.least)
        if self.pieces == 1:
            return self._alone(inputs, target, count)
        schedule = self._schedule(inputs, count)
        losses: list[torch.Tensor] = []
        if self.piece == 0:
            schedule.step(inputs)
        elif self.piece == self.pieces - 1:
            schedule.step(target=target, losses=losses)
        else:
            schedule.step()
        return float(sum(loss.detach() for loss in losses)) if losses else 0.0

    def _tells(self) -> bool:
        return self.piece == self.pieces - 1

    def _alone(self, inputs: Any, target: Any, count: int) -> float:
        """All stages here: the same micro-batches, forward, then backward, in the same order."""
        losses = [self._scaled(self.stage(x), y)
                  for x, y in zip(inputs.tensor_split(count), target.tensor_split(count), strict=True)]  # fmt: skip
        for loss in losses:
            loss.backward()
        return float(sum(loss.detach() for loss in losses))

    def _scaled(self, output: Any, target: Any) -> torch.Tensor:
        return self.loss(output, target) * (rows_in(target) * self.scale)

    def _schedule(self, inputs: torch.Tensor, count: int) -> Any:
        """Torch's schedule for batches of this shape; the last batch of an epoch has another one.

        It is told what goes in and out. Left to find out, it would send real rows through the layers, which counts as
        one more batch for those that remember or draw random numbers.
        """
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        shape = tuple(inputs.shape)
        if shape not in self.schedules:
            first, last = self._ends(inputs[: len(inputs) // count])
            stage = PipelineStage(
                self.stage, self.piece, self.pieces, self.device, first, last, group=self.mesh["model"].get_group()
            )
            self.schedules[shape] = ScheduleGPipe(stage, count, loss_fn=self._scaled, scale_grads=False)
        return self.schedules[shape]

    def _ends(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What enters and leaves this stage, by shape, for a micro-batch."""
        layers = [layer for layer in copy.deepcopy(self.model).eval()._modules.values() if layer is not None]
        with torch.no_grad():
            entering = nn.Sequential(*layers[: self.first])(rows)
            leaving = nn.Sequential(*layers[self.first : self.first + len(self.mine)])(entering)
        return entering.detach().requires_grad_(self.piece > 0), leaving.detach().requires_grad_()

    def _is_random(self, inputs: Any) -> bool:
        if self.random is None:
            self.random = draws_random_numbers(self.model, inputs)
        return self.random

    def state(self) -> dict[str, Any]:
        mine = {
            f"{own}.{name}": value.detach().cpu().clone()
            for own, layer in zip(self.names, self.mine, strict=True) for name, value in layer.state_dict().items()
        }  # fmt: skip
        whole: dict[str, Any] = {"model": {}, "optimizer": {}}
        for part in self.group.gather_objects((mine, optimizer_state(self.optimizer, self.named))):
            whole["model"] |= part[0]
            whole["optimizer"] |= part[1]
        return whole

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, self.named, state["optimizer"])

    def evaluated(self) -> nn.Module:
        """The whole model, on every worker."""
        self.model.load_state_dict(self.state()["model"])
        return self.model


class Tick:
    """Which step this is, for layers that draw random numbers."""

    key, random = 0, False

    def start(self, key: int, random: bool) -> None:
        self.key, self.random = key, random
        self.calls: dict[int, int] = {}


class Keyed(nn.Module):
    """A layer whose random numbers belong to (step, micro-batch, layer), whichever worker it is on."""

    def __init__(self, layer: nn.Module, number: int, tick: Tick) -> None:
        super().__init__()
        self.layer, self.number, self.tick = layer, number, tick

    def forward(self, inputs: Any) -> Any:
        if self.tick.random and self.training:
            call = self.tick.calls.get(self.number, 0)
            self.tick.calls[self.number] = call + 1
            torch.manual_seed(key(self.tick.key, call, self.number))
        return self.layer(inputs)


def micro_batches(rows: int, most: int, least: int = 1) -> int:
    """The largest number of equal micro-batches: equal, since the workers agree on their shape beforehand.

    >>> micro_batches(64, 8), micro_batches(30, 8), micro_batches(13, 8), micro_batches(3, 8, least=2)
    (8, 6, 1, 1)
    """
    return max(n for n in range(1, most + 1) if rows % n == 0 and (rows // n >= least or n == 1))


def balanced(sizes: list[int], parts: int) -> list[tuple[int, int]]:
    """Cut layers into parts, none of them empty, with the largest part as small as possible.

    >>> balanced([10, 0, 10, 0, 1], 2)
    [(0, 1), (1, 5)]
    """
    count = len(sizes)
    best: list[list[tuple[int, list[int]]]] = [[(sum(sizes[:end]), [0]) for end in range(count + 1)]]
    for part in range(1, parts):
        row: list[tuple[int, list[int]]] = []
        for end in range(count + 1):
            options = [
                (max(best[part - 1][cut][0], sum(sizes[cut:end])), [*best[part - 1][cut][1], cut])
                for cut in range(part, end)
            ]
            row.append(min(options) if options else (10**18, []))
        best.append(row)
    starts = best[parts - 1][count][1]
    return list(zip(starts, [*starts[1:], count], strict=True))


def _full(value: Any) -> torch.Tensor:
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().cpu().clone()


def _copy_into(value: Any, source: torch.Tensor) -> None:
    if hasattr(value, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        value.copy_(distribute_tensor(source.to(value.device), value.device_mesh, value.placements))
    else:
        value.copy_(source)

"""What updaters of a split model share: a mesh of workers, an optimiser for the local parameters, whole states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from shoal.parallel.learner import Schedule, load_optimizer, make_loss, make_optimizer, optimizer_state
from shoal.parallel.loader import key
from shoal.parallel.randomness import keyed
from shoal.parallel.updaters.base import Items, Updater, fewest_rows, given, split_rows

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job


class SplitModelUpdater(Updater):
    """The optimiser has the local parameters; rows are split over the mesh's data dimension."""

    evaluates_together = True

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
        self.named = {name: p for name, p in self._local_parameters() if p.requires_grad}
        nothing = nn.Parameter(torch.zeros(1, device=device))  # a stage may have no parameter, an optimiser needs one
        self.optimizer = make_optimizer(job, list(self.named.values()) or [nothing])
        self.schedule = Schedule(job.schedule, self.optimizer, self.total_steps())

    def _split(self) -> None:
        """Replace the model by this worker's part of it."""
        raise NotImplementedError

    def _local_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        start, end = split_rows(len(rows), self.replicas, self.least)[self.replica]
        # All must take part: a worker without rows computes others that count nothing.
        return [rows[start:end] if end > start else rows[: self.least]]

    def _my_share(self, rows: int) -> int:
        start, end = split_rows(rows, self.replicas, self.least)[self.replica]
        return end - start

    def round(self, items: Items, rows: int, step: int) -> tuple[float, int]:
        inputs, target = given(items[0])
        mine = self._my_share(rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(inputs, target, mine, rows, step)
        self._sum_over_replicas()
        self.schedule.set(step)
        self.optimizer.step()
        self.report_loss(loss * rows / max(mine, 1), step)
        return (loss * rows, mine) if self._reports() else (0.0, 0)

    def _reports(self) -> bool:
        """Whether this worker's loss goes into the record: one of those that have the same loss."""
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

        with self.group.communication():
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


def _full(value: Any) -> torch.Tensor:
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().cpu().clone()


def _copy_into(value: Any, source: torch.Tensor) -> None:
    if hasattr(value, "device_mesh"):
        from torch.distributed.tensor import distribute_tensor

        value.copy_(distribute_tensor(source.to(value.device), value.device_mesh, value.placements))
    else:
        value.copy_(source)

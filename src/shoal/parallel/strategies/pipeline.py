"""Pipeline parallelism: layers split over workers, which pass on micro-batches, by torch's GPipe schedule."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.parallel.cost import TrainingRound, Variant, compute, gradient_phases, link
from shoal.parallel.data.loader import Loader, Pair, key, rows_in
from shoal.parallel.events import Notify
from shoal.parallel.exact.randomness import draws_random_numbers
from shoal.parallel.lazy import nn, torch
from shoal.parallel.learner import trained_parameters
from shoal.parallel.strategies.split_model import MICRO_BATCHES, DataAndModel, SplitModel, SplitModelUpdater
from shoal.parallel.strategies.updater import Updater

if TYPE_CHECKING:
    from shoal.parallel.groups import Group
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


class PipelineUpdater(SplitModelUpdater):
    """Layers of an nn.Sequential over workers, micro-batches through them one after the other (GPipe).

    The micro-batches, and the order in which their gradients are summed, depend on the batch alone: so do the bits.
    """

    evaluates_together = False

    def _split(self, model: nn.Module) -> None:
        names, layers = list(model._modules), _layers(model)
        start, end = balanced([sum(p.numel() for p in layer.parameters()) for layer in layers], self.pieces)[self.piece]
        self.first = start
        self.step_key = StepKey()
        self.mine = dict(zip(names[start:end], layers[start:end], strict=True))
        self.stage = nn.Sequential(*[self.step_key.before(layer, k) for k, layer in enumerate(layers)][start:end])
        self.schedules: dict[tuple[int, ...], Any] = {}
        self.random: bool | None = None

    def own_parameters(self) -> dict[str, nn.Parameter]:
        return {f"{own}.{name}": p for own, layer in self.mine.items() for name, p in trained_parameters(layer).items()}

    def _backward(self, item: Pair, mine: int, rows: int, step: int) -> float:
        if mine:  # or all workers of this pipeline have none
            loss = self._scheduled(*item, mine, rows, step)
        self._sum_over_replicas()
        return loss if mine else 0.0

    def _scheduled(self, inputs: Any, target: Any, mine: int, rows: int, step: int) -> float:
        """Send the micro-batches through all stages; returns the loss, which only the last stage knows."""
        self.step_key.start(key(self.job.seed, step, self.replica), self._is_random(inputs))
        self.scale = 1 / rows
        count = micro_batches(mine, self.job.shard_count, self.least)
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

    def _reports(self) -> bool:
        return self.piece == self.pieces - 1

    def _alone(self, inputs: Any, target: Any, count: int) -> float:
        """All stages on one worker: the same micro-batches, all forward, then all backward."""
        losses = [self._scaled(self.stage(x), y)
                  for x, y in zip(inputs.tensor_split(count), target.tensor_split(count), strict=True)]  # fmt: skip
        for loss in losses:
            loss.backward()
        return float(sum(loss.detach() for loss in losses))

    def _scaled(self, output: Any, target: Any) -> torch.Tensor:
        return self.learner.loss(output, target) * (rows_in(target) * self.scale)

    def _schedule(self, inputs: torch.Tensor, count: int) -> Any:
        """Torch's schedule for batches of this shape; the last batch of an epoch has another one.

        Shapes are given to it. To find them out, it would send rows through the layers, which changes running means
        and random numbers.
        """
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        shape = tuple(inputs.shape)
        if shape not in self.schedules:
            first, last = self._boundary(inputs[: len(inputs) // count])
            stage = PipelineStage(
                self.stage, self.piece, self.pieces, self.device, first, last, group=self.mesh["model"].get_group()
            )
            self.schedules[shape] = ScheduleGPipe(stage, count, loss_fn=self._scaled, scale_grads=False)
        return self.schedules[shape]

    def _boundary(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Input and output of this stage for a micro-batch, for their shapes."""
        layers = _layers(copy.deepcopy(self.model).eval())
        with torch.no_grad():
            entering = nn.Sequential(*layers[: self.first])(rows)
            leaving = nn.Sequential(*layers[self.first : self.first + len(self.mine)])(entering)
        return entering.detach().requires_grad_(self.piece > 0), leaving.detach().requires_grad_()

    def _is_random(self, inputs: Any) -> bool:
        if self.random is None:
            self.random = draws_random_numbers(self.model, inputs)
        return self.random

    def state(self) -> dict[str, Any]:
        mine = self.learner.state()
        own = tuple(f"{name}." for name in self.mine)
        mine["model"] = {name: value for name, value in mine["model"].items() if name.startswith(own)}
        whole: dict[str, Any] = {"model": {}, "optimizer": {}}
        for part in self.group.gather_objects(mine):
            for name, values in part.items():
                whole[name] |= values
        return whole

    def evaluated(self) -> nn.Module:
        """The whole model, on every worker."""
        self.model.load_state_dict(self.state()["model"])
        return self.model


class Pipeline(SplitModel):
    """Its micro-batches depend on the batch alone, so it is exact."""

    name = "pipeline"
    plan_label = "pipeline"
    can_be_exact = True

    def exact_by_default(self, job: Job, notify: Notify) -> bool:
        return True

    def blas_threads(self, job: Job, share: int) -> int:
        return share if job.exact is False else 1

    def check_model(self, job: Job, model: nn.Module) -> None:
        super().check_model(job, model)
        pieces = job.mesh_shape[1]
        if pieces == 1:
            return
        if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
            raise UserError(
                f"strategy 'pipeline' splits an nn.Sequential between its layers; the model is a {type(model).__name__}"
            )
        layers = _layers(model)
        if len(layers) < pieces:
            raise UserError(f"the model has {len(layers)} layers, too few for a pipeline of {pieces}")

    def updater(self, job: Job, group: Group, model: nn.Module, train: Loader) -> Updater:
        """On one worker as well: the same micro-batches give the same bits."""
        return PipelineUpdater(job, group, model, train)

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """GPipe: m micro-batches, one after the other, through the slowest stage; the first one, and the last, also
        through all others: with p equal stages that is a bubble of (p - 1) / (m + p - 1)."""
        layers, stages = costs.facts.layers, nodes
        count = micro_batches(rows, costs.job.shards or MICRO_BATCHES, 1)
        cuts = balanced([layer.parameters for layer in layers], stages)
        total = sum(layer.flops for layer in layers) or 1.0
        parts = [sum(layer.flops for layer in layers[start:end]) / total for start, end in cuts]
        contention = costs.contention(rows / count, stages)
        beside = sum(parts) / max(parts) - 1 if max(parts) > 0 else 1.0  # stages that are busy beside the slowest
        busy = beside / max(1, stages - 1)
        seconds = costs.plain(rows / count, stages) / contention * (1 + (contention - 1) * busy)
        each = max(0.0, seconds - costs.apply(stages))
        moved = [4 * rows / count * layers[end - 1].outputs for _, end in cuts[:-1]]
        passed = 2 * max((costs.messages(stages).message(size) for size in moved), default=0.0)
        turn, others = each * max(parts), each * (sum(parts) - max(parts))
        return TrainingRound((*gradient_phases(count * turn, 0.0), compute("bubble", others),
                      link("activations", (count + stages - 1) * passed),
                      compute("update", costs.apply(stages) / stages)),
                     2 * count * max(moved, default=0.0))  # fmt: skip


class DataPipeline(DataAndModel, Pipeline):
    """Several pipelines, each with a part of the batch; not exact."""

    name = "data+pipeline"
    plan_label = "data x pipeline"
    can_be_exact = False

    def exact_by_default(self, job: Job, notify: Notify) -> bool:
        return False

    def blas_threads(self, job: Job, share: int) -> int:
        return share


class StepKey:
    """Seeds the layers that draw random numbers: by step, micro-batch and layer, not by the worker."""

    key, random = 0, False

    def start(self, key: int, random: bool) -> None:
        self.key, self.random = key, random
        self.calls: dict[int, int] = {}

    def before(self, layer: nn.Module, number: int) -> nn.Module:
        """The layer, seeded before each call."""
        seeded = nn.Sequential(layer)
        seeded.register_forward_pre_hook(lambda module, inputs: self._seed(number))
        return seeded

    def _seed(self, number: int) -> None:
        if self.random:
            call = self.calls.get(number, 0)
            self.calls[number] = call + 1
            torch.manual_seed(key(self.key, call, number))


def _layers(model: nn.Module) -> list[nn.Module]:
    return [layer for layer in model._modules.values() if layer is not None]


def micro_batches(rows: int, most: int, least: int = 1) -> int:
    """The largest number of micro-batches of equal size: all must have the shape that the schedule was given.

    >>> micro_batches(64, 8), micro_batches(30, 8), micro_batches(13, 8), micro_batches(3, 8, least=2)
    (8, 6, 1, 1)
    """
    return max(n for n in range(1, most + 1) if rows % n == 0 and (rows // n >= least or n == 1))


def balanced(sizes: list[int], parts: int) -> list[tuple[int, int]]:
    """Split layers into parts that are not empty, the largest of them as small as possible.

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

"""Tensor parallelism: the matrices of linear layers are split over workers, by torch's parallelize_module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.errors import UserError
from shoal.parallel.cost import TrainingRound, Variant, compute, gradient_phases, link
from shoal.parallel.lazy import nn
from shoal.parallel.strategies.split_model import DataAndModel, SplitModel, SplitModelUpdater

if TYPE_CHECKING:
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel


class TensorUpdater(SplitModelUpdater):
    """Linear layers are split in pairs: columns of the first, rows of the second, with one sum for both."""

    def _split(self, model: nn.Module) -> None:
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan: dict[str, Any] = {}
        for first, second in linear_pairs(model):
            between: Any = model.get_submodule(first).out_features
            if second is not None and between % self.pieces == 0:
                plan[first], plan[second] = ColwiseParallel(), RowwiseParallel()
                continue
            for name in filter(None, (first, second)):
                plan[name] = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(model, self.mesh["model"], plan)


class TensorParallel(SplitModel):
    """All workers compute on the same rows."""

    name = "tensor"
    plan_label = "tensor"
    updater_class = TensorUpdater

    def parts_of_batch(self, job: Job) -> int:
        return 1

    def check_model(self, job: Job, model: nn.Module) -> None:
        super().check_model(job, model)
        if job.mesh_shape[1] > 1 and not any(isinstance(module, nn.Linear) for module in model.modules()):
            raise UserError("strategy 'tensor' splits nn.Linear layers, and the model has none; use 'allreduce'")

    def round_cost(self, costs: CostModel, variant: Variant, rows: int, nodes: int) -> TrainingRound:
        """Matrices split; sums of activations for each pair of linear layers, forward and backward."""
        facts = costs.facts
        whole, update = costs.plain(rows, nodes), costs.apply(nodes) / nodes
        share = min(1.0, sum(pair.flops for pair in facts.pairs) / facts.flops) if facts.flops else 1.0
        split = max(0.0, whole - costs.plain(1e-9, nodes) - rows * costs.calibration.load)
        work = whole - split * share * (1 - 1 / nodes) - costs.apply(nodes) * (1 - 1 / nodes)
        moved = [4 * rows * count for pair in facts.pairs for count in pair.sums]
        summed = sum(costs.messages(nodes).all_reduce(count, nodes) for count in moved)
        sent = 2 * (nodes - 1) / nodes * sum(moved)
        return TrainingRound((*gradient_phases(max(work - update, 0.0), 0.0), link("sums of activations", summed),
                      compute("update", update)), sent)  # fmt: skip


class DataTensor(DataAndModel, TensorParallel):
    """Several split models, each with a part of the batch."""

    name = "data+tensor"
    plan_label = "data x tensor"


def linear_pairs(model: nn.Module) -> list[tuple[str, str | None]]:
    """Names of linear layers: pairs with only elementwise functions between them in an nn.Sequential, else single."""
    elementwise = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Mish, nn.SiLU, nn.Identity)
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
                elif waiting is not None and not isinstance(child, elementwise):
                    pairs.append((waiting, None))
                    waiting = None
            if waiting is not None:
                pairs.append((waiting, None))
    alone = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return pairs + [(name, None) for name in alone if name and name not in in_sequence]

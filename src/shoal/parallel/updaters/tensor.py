"""Tensor parallelism, by torch's parallelize_module."""

from __future__ import annotations

from typing import Any

from torch import nn

from shoal.parallel.updaters.split_model import SplitModelUpdater


class TensorUpdater(SplitModelUpdater):
    """Linear layers are split in pairs: columns of the first, rows of the second, with one sum for both."""

    def _split(self) -> None:
        from torch.distributed.tensor.parallel import parallelize_module

        parallelize_module(self.model, self.mesh["model"], self._plan())

    def _plan(self) -> dict[str, Any]:
        from torch.distributed.tensor import Replicate
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        plan: dict[str, Any] = {}
        for first, second in linear_pairs(self.model):
            between: Any = self.model.get_submodule(first).out_features
            if second is not None and between % self.pieces == 0:
                plan[first], plan[second] = ColwiseParallel(), RowwiseParallel()
                continue
            for name in filter(None, (first, second)):
                plan[name] = ColwiseParallel(output_layouts=Replicate())
        return plan


ELEMENTWISE = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Mish, nn.SiLU, nn.Identity)


def linear_pairs(model: nn.Module) -> list[tuple[str, str | None]]:
    """Names of linear layers: pairs with only elementwise functions between them in an nn.Sequential, else single."""
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

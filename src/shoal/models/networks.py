"""PyTorch networks in a model: an alternative to a population, in a model of one part and one fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import CompleteError, UserError
from shoal.population.members import Member
from shoal.population.population import Population

if TYPE_CHECKING:
    from torch import nn


@dataclass(eq=False)
class TorchNetwork:
    """A network of PyTorch. Its weights are arrays; its code is a name of Shoal's, or in a file of the user's."""

    net: dict[str, Any]  # arguments of `shoal.parallel.networks.make_model`; "net" may be "file.py:function"
    n_features: int
    n_outputs: int
    arrays: dict[str, np.ndarray]  # its weights, by name
    module: nn.Module | None = None  # None: only its weights are known

    @property
    def parameters(self) -> int:
        return sum(array.size for array in self.arrays.values())

    @property
    def is_code(self) -> bool:
        """Whether the user's own code makes it."""
        return ".py" in self.net["net"]

    @property
    def made_by(self) -> str:
        function = self.net["net"].rpartition(":")[2] if self.is_code else "make_network"
        return f"{function}({self.n_features}, {self.n_outputs})"

    def predict(self, inputs: np.ndarray, which: Any = None, *, threads: int | None = None) -> np.ndarray:
        """(1, n, n_outputs) raw outputs."""
        import torch

        if self.module is None:
            raise UserError(self.missing())
        with torch.no_grad():
            output = self.module(torch.from_numpy(inputs))
        if not isinstance(output, torch.Tensor) or output.numel() != len(inputs) * self.n_outputs:
            found = f"{tuple(output.shape)}" if isinstance(output, torch.Tensor) else type(output).__name__
            raise UserError(
                f"the network must return {self.n_outputs} outputs for each of {len(inputs):,} rows; it returns {found}"
            )
        bad = np.flatnonzero(~np.isfinite(output.reshape(len(inputs), -1).numpy()).all(axis=1))
        if len(bad):
            raise UserError(
                f"the network returns NaN or infinity for {len(bad):,} of {len(inputs):,} rows, the first is row "
                f"{bad[0] + 1}: there is no prediction for these"
            )
        return np.asarray(output.reshape(1, len(inputs), -1).numpy())

    def missing(self) -> str:
        return (
            f"this model is {self.net['net']}, and its folder holds the weights, not the code: give the network, as "
            f"network={self.made_by} in shoal.load, or --net {self.net['net']}"
        )

    def fill(self, module: Any) -> None:
        """Put the weights into a network with the same layers."""
        import torch

        if not isinstance(module, torch.nn.Module):
            raise CompleteError(f"network must be a torch.nn.Module; got {type(module).__name__}")
        mine = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        kept = {name: tuple(value.shape) for name, value in self.arrays.items()}
        if mine != kept:
            name = next(name for name in (*kept, *mine) if mine.get(name) != kept.get(name))
            raise CompleteError(
                f"the network is not that of the model, {self.net['net']}: {name!r} is {kept.get(name, 'missing')} in "
                f"the model and {mine.get(name, 'missing')} in the network; give {self.made_by}, of inputs and outputs"
            )
        module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in self.arrays.items()})
        self.module = module.cpu().eval()


def state_of(module: nn.Module) -> dict[str, np.ndarray]:
    """The weights of a network as arrays; numpy has no bfloat16."""
    import torch

    state = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    return {name: (value.float() if value.dtype is torch.bfloat16 else value).numpy() for name, value in state.items()}


def mlp_of(net: Mapping[str, Any], weights: Mapping[str, np.ndarray], loss: str) -> Population | None:
    """The network `mlp:...` as a population of one; None where it is another network."""
    if not net["net"].startswith("mlp:") or net["output"] != "identity":
        return None
    sizes = [int(size) for size in net["net"].partition(":")[2].split("-")]
    member = Member(hidden=tuple(sizes[1:-1]), activation=net["activation"], optimizer="sgd")
    population = Population.blank([member], sizes[0], sizes[-1], loss)
    arrays = list(weights.values())
    layers = [(weight.T, bias) for weight, bias in zip(arrays[::2], arrays[1::2], strict=True)]
    population.set_weights(0, layers)
    return population

"""Shared code of `Heads` and `Stack`: networks whose numbers stay when others are dropped; random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from shoal.errors import UserError, WrongType
from shoal.validate import shown


class Numbered(nn.Module):
    """Networks by number, each with its own parameters. Dropping one does not change the numbers of the others."""

    def __init__(self, networks: Sequence[nn.Module], seeds: Sequence[int]) -> None:
        super().__init__()
        self.networks = nn.ModuleDict({str(number): network for number, network in enumerate(networks)})
        self.draws = {number: torch.Generator().manual_seed(seed) for number, seed in enumerate(seeds)}
        self._made = len(networks)

    @property
    def active(self) -> list[int]:
        """The numbers of the networks that are left, in the order of the outputs."""
        return [int(number) for number in self.networks]

    def __len__(self) -> int:
        return len(self.networks)

    def network(self, number: int) -> nn.Module:
        """The network itself, not a copy."""
        (number,) = self._checked([number])
        return self.networks[str(number)]

    def drop(self, numbers: int | Iterable[int]) -> None:
        """Remove networks. The others and every optimiser continue as before.

        Removed parameters lose their gradients, and the optimisers of `torch.optim` skip parameters without one.
        """
        several = isinstance(numbers, Iterable) and getattr(numbers, "ndim", 1) > 0
        chosen = set(self._checked(numbers if several else [numbers]))  # type: ignore[list-item, arg-type]
        if len(chosen) == len(self):
            raise UserError(f"at least one network has to stay; got all {len(self)} of them")
        for number in chosen:
            for parameter in self.networks.pop(str(number)).parameters():
                parameter.grad = None
            del self.draws[number]

    def _checked(self, numbers: Iterable[int]) -> list[int]:
        if isinstance(numbers, (np.ndarray, Tensor)):
            numbers = numbers.tolist()
        found = list(numbers)
        for number in found:
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
                raise WrongType(f"networks are named by whole numbers; got {shown(number)}")
            if not 0 <= number < self._made:
                raise UserError(f"there is no network {number}: they are numbered from 0 to {self._made - 1}")
            if str(int(number)) not in self.networks:
                raise UserError(f"network {number} was dropped; left are {shown(self.active)}")
        return [int(number) for number in found]


def keep_factors(draws: torch.Generator, shape: Sequence[int], dropout: float, like: Tensor) -> Tensor:
    """What dropout multiplies with: the numbers that `nn.Dropout` draws on a CPU after `torch.manual_seed`."""
    kept = torch.empty(tuple(shape), dtype=like.dtype).bernoulli_(1 - dropout, generator=draws)
    return kept.div_(1 - dropout).to(like.device)

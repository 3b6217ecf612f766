"""A smaller model out of a model: some of its parts, on some of its folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import UserError
from shoal.population.population import Population

if TYPE_CHECKING:
    from shoal.models.model import Model


@dataclass(frozen=True)
class Compact:
    """The fewest networks whose out-of-fold loss is within one standard error of the whole model's.

    Losses are those by which recipes are compared: log-loss, or squared error over the variance of the target.
    """

    parts: tuple[int, ...]  # places among the parts of the model; they have equal shares
    folds: int  # the first ones
    temperature: float
    loss: float
    whole_loss: float
    error: float  # standard error of `whole_loss`
    whole_networks: int

    @property
    def networks(self) -> int:
        return len(self.parts) * self.folds

    def describe(self) -> str:
        """What it saves and what it costs."""
        if self.networks == self.whole_networks:
            few = "one network" if self.networks == 1 else f"{self.networks} networks"
            return f"compact: the model has {few}, and fewer would cost more than a standard error of its loss"
        share = (self.loss - self.whole_loss) / self.whole_loss if self.whole_loss else 0.0
        return (
            f"compact: {self.networks} of {self.whole_networks} networks; on rows not trained on the loss is "
            f"{self.loss:.4g}, and {self.whole_loss:.4g} of all of them ({share:+.1%}; standard error {self.error:.2g})"
        )


def compact_model(model: Model) -> Model:
    """The smaller model; only a search knows which one that is."""
    if model.compact is None:
        raise UserError(
            "this model has no compact form, which needs out-of-fold predictions: use a model from `shoal search`"
        )
    return model if model.compact.networks == model.compact.whole_networks else reduced(model, model.compact)


def reduced(model: Model, compact: Compact) -> Model:
    """Only the parts and folds that `compact` names, with equal shares."""
    kept = [model.parts[place] for place in compact.parts]
    networks: dict[str, Any] = {}
    for encoding in dict.fromkeys(part.encoding for part in kept):
        mine = [place for place, part in enumerate(model.parts) if part.encoding == encoding]
        wanted = [mine.index(place) for place in compact.parts if model.parts[place].encoding == encoding]
        population = model.networks[encoding]
        assert isinstance(population, Population)  # as every model of a search has
        networks[encoding] = population.select(_members(wanted, len(model.folds), compact.folds))
    parts = tuple(replace(part, weight=1.0 / len(kept)) for part in kept)
    itself = replace(
        compact, parts=tuple(range(len(kept))), whole_loss=compact.loss, whole_networks=compact.networks
    )  # it cannot be made smaller
    return replace(
        model, folds=model.folds[: compact.folds], parts=parts, networks=networks, temperature=compact.temperature,
        compact=itself, certainty=None,
    )  # fmt: skip


def _members(parts: Sequence[int], folds: int, kept: int) -> np.ndarray:
    """Members of these parts on the first `kept` of the folds."""
    return np.array([part * folds + k for part in parts for k in range(kept)], dtype=np.int64)

"""Strategies propose recipes; the search evaluates them.

A strategy says how far a recipe is trained before it is compared (its rungs), and proposes recipes in the light of
what is known so far. A new one is one class with one method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.members import alternatives, nearest
from shoal.search.space import Recipe, Space
from shoal.search.units import Unit

Rung = tuple[float, float]  # share of its epochs that a unit trains until, share of the units that go on after it

TO_THE_END: tuple[Rung, ...] = ((1.0, 1.0),)
HALVING: tuple[Rung, ...] = ((1 / 9, 1 / 3), (1 / 3, 1 / 3), (1.0, 1.0))


class Strategy(ABC):
    """Proposes recipes, up to so many at a time."""

    rungs: tuple[Rung, ...] = TO_THE_END

    @abstractmethod
    def propose(self, count: int, known: Sequence[Unit]) -> list[Recipe]:
        """Up to `count` new recipes; none: there is nothing left to try."""

    def learn(self, units: Sequence[Unit]) -> None:  # noqa: B027, most strategies look at `known` instead
        """Told the results of a round, in the order of the proposals."""


class Listed(Strategy):
    """Given recipes, in order: a grid, a list of members, or the recipes of an earlier run."""

    def __init__(self, recipes: Sequence[Recipe], rungs: tuple[Rung, ...] = TO_THE_END) -> None:
        self.rungs = rungs
        self.left = list(recipes)

    def propose(self, count: int, known: Sequence[Unit]) -> list[Recipe]:
        proposed, self.left = self.left[:count], self.left[count:]
        return proposed


class Random(Strategy):
    """Recipes drawn from the space."""

    def __init__(self, space: Space, seed: int, first: Sequence[Recipe] = ()) -> None:
        self.space, self.first = space, list(first)
        self.generator = np.random.default_rng(seed)

    def propose(self, count: int, known: Sequence[Unit]) -> list[Recipe]:
        start, self.first = self.first[:count], self.first[count:]
        return start + self.space.sample(count - len(start), self.generator)


class Halving(Random):
    """Successive halving: all start, the better third goes on from where it stands, then the better third of those.

    After the first round half of the proposals are children of the best recipes so far, half are drawn anew.
    """

    rungs = HALVING
    parents = 16

    def propose(self, count: int, known: Sequence[Unit]) -> list[Recipe]:
        best = sorted((unit for unit in known if unit.finished), key=lambda unit: unit.loss)[: self.parents]
        children: list[Recipe] = []
        if len(best) >= 4 and not self.first:
            for _ in range(count // 2):
                one, other = self._pick(best), self._pick(best)
                children.append(self.space.mutate(one, other, self.generator))
        return children + super().propose(count - len(children), known)

    def _pick(self, best: Sequence[Unit]) -> Recipe:
        """The better of two drawn at random."""
        return best[int(self.generator.integers(len(best), size=2).min())].recipe


class Optuna(Strategy):
    """Optuna's sampler proposes whole batches: ask for all of them, train them as one population, tell the results."""

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ModuleNotFoundError:
            raise ModuleNotFoundError("strategy 'optuna' needs Optuna: pip install optuna") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=False, constant_liar=False)
        self.study = optuna.create_study(sampler=sampler)
        self.space = space
        self.generator = np.random.default_rng(seed)
        self.asked: list[Any] = []

    def propose(self, count: int, known: Sequence[Unit]) -> list[Recipe]:
        trials = [self.study.ask() for _ in range(count)]
        self.asked += trials
        return [self.space.make(self._values(trial), int(self.generator.integers(1 << 31))) for trial in trials]

    def learn(self, units: Sequence[Unit]) -> None:
        from optuna.trial import TrialState

        for trial, unit in zip(self.asked, units, strict=False):
            if np.isfinite(unit.loss):
                self.study.tell(trial, unit.loss)
            else:
                self.study.tell(trial, state=TrialState.FAIL)
        self.asked = []

    def _values(self, trial: Any) -> dict[str, Any]:
        """Alternatives by their number; distributions through their quantiles, so that any of scipy's will do."""
        values: dict[str, Any] = {}
        for name, value in self.space.choices.items():
            if hasattr(value, "ppf"):
                drawn = float(value.ppf(trial.suggest_float(name, 1e-6, 1 - 1e-6)))
                values[name] = round(drawn) if name in ("hidden", "batch_size", "patience", "epochs") else drawn
                continue
            options: list[Any] = []
            for option in alternatives(name, value):
                if option not in options:
                    options.append(option)
            one = (
                options[0] if len(options) == 1 else options[trial.suggest_categorical(name, list(range(len(options))))]
            )
            values[name] = one
        return values


NAMES = ("halving", "random", "grid", "optuna")


def find_strategy(name: str, space: Space | list[Recipe], seed: int, first: Sequence[Recipe]) -> Strategy:
    """The strategy of that name over a space. A list of members is tried in order, by halving unless told otherwise."""
    if name not in NAMES:
        raise ValueError(f"strategy must be one of {', '.join(NAMES)}; got {name!r}{nearest(name, NAMES)}")
    if isinstance(space, list):
        if name == "optuna":
            raise ValueError("strategy 'optuna' needs a space to draw from, not a list of members; give a dict")
        return Listed(space, HALVING if name == "halving" else TO_THE_END)
    if name == "grid":
        return Listed(space.grid())
    if name == "optuna":
        return Optuna(space, seed)
    return (Halving if name == "halving" else Random)(space, seed, first)


def anchors(epochs: int, batch_size: int, views: Sequence[str]) -> list[Recipe]:
    """A few recipes that are rarely bad, so that even the shortest search has something to give."""
    from shoal.members import Member

    common: dict[str, Any] = {
        "optimizer": "adamw", "schedule": "cosine", "epochs": epochs, "batch_size": batch_size, "weight_decay": 0.1,
    }  # fmt: skip
    members = [
        Member(hidden=(), activation="identity", learning_rate=1e-2, **common),
        Member(hidden=(128,), activation="relu", learning_rate=3e-3, dropout=0.1, **common),
        Member(hidden=(64, 64), activation="mish", learning_rate=3e-3, dropout=0.2, **common),
    ]
    return [Recipe(member, view) for member in members for view in views]

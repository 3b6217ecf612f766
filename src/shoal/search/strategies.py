"""Strategies propose recipes; the search evaluates them.

A strategy says how far a recipe is trained before it is compared (its rungs), and proposes recipes in the light of
what is known so far. A new one is one class with one method.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.errors import MissingPackage, UserError
from shoal.population.members import alternatives
from shoal.search.space import Recipe, Space
from shoal.validate import nearest

if TYPE_CHECKING:
    from shoal.search.rounds.candidates import Candidate

TRUSTED_ROWS = 500  # at which half as many children are drawn as on very many rows
Rung = tuple[
    float, float
]  # share of its epochs that a candidate trains until, share of the candidates that go on after it

TO_THE_END: tuple[Rung, ...] = ((1.0, 1.0),)
HALVING: tuple[Rung, ...] = ((1 / 9, 1 / 3), (1 / 3, 1 / 3), (1.0, 1.0))
TRIES = 200  # draws of known recipes in a row, after which a space is taken for nearly exhausted
CHILD_TRIES = 10
LISTED_UP_TO = 20_000  # combinations


class Strategy(ABC):
    """Proposes recipes, up to so many at a time. `ShoalClassifier(strategy=MyStrategy())` takes one of your own.

    rungs       how far recipes are trained before they are compared, and which share of them goes on
    exhaustive  all proposals are tried, whatever number of recipes was asked for
    """

    rungs: tuple[Rung, ...] = TO_THE_END
    exhaustive = False

    def begin(self, space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> None:  # noqa: B027
        """Told once, before the first proposal: where recipes come from, recipes that are rarely bad, and the rows."""

    @abstractmethod
    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        """Up to `count` new recipes; none: there is nothing left to try."""

    def learn(self, candidates: Sequence[Candidate]) -> None:  # noqa: B027, most strategies look at `known` instead
        """Told the results of a round, in the order of the proposals."""


class Listed(Strategy):
    """Given recipes, in order: a grid, a list of members, or the recipes of an earlier run."""

    exhaustive = True

    def __init__(self, recipes: Sequence[Recipe], rungs: tuple[Rung, ...] = TO_THE_END) -> None:
        self.rungs = rungs
        self.left = list(recipes)

    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        proposed, self.left = self.left[:count], self.left[count:]
        return proposed


class Random(Strategy):
    """Recipes drawn from the space, none of them twice; where all have been drawn, nothing is left to try."""

    def __init__(self, space: Space, seed: int, first: Sequence[Recipe] = ()) -> None:
        self.space, self.first = space, list(first)
        self.generator = np.random.default_rng(seed)
        self.seen: set[Recipe] = set()
        self.rest: list[Recipe] | None = None  # those not drawn yet, once there are so few that drawing finds none

    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        proposed, self.first = self.first[:count], self.first[count:]
        self.seen.update(map(self._identity, proposed))
        while len(proposed) < count and (recipe := self._draw()) is not None:
            proposed.append(recipe)
        return proposed

    def _draw(self) -> Recipe | None:
        """A recipe that was not drawn before; None if there is none."""
        if self.rest is None:
            for _ in range(TRIES):
                (recipe,) = self.space.sample(1, self.generator)
                if self._is_new(recipe):
                    return recipe
            self.rest = self._list_rest()
        while self.rest:
            recipe = self.rest.pop(int(self.generator.integers(len(self.rest))))
            if "seed" not in self.space.choices:
                seed = int(self.generator.integers(1 << 31))
                recipe = Recipe(recipe.member.replace(seed=seed), recipe.encoding)
            if self._is_new(recipe):
                return recipe
        return None

    def _list_rest(self) -> list[Recipe]:
        """What is left of a space of lists; a space with a distribution is taken for exhausted by now."""
        choices = self.space.choices.items()
        size = 1
        for name, value in choices:
            size *= LISTED_UP_TO + 1 if hasattr(value, "rvs") else len(alternatives(name, value))
        return self.space.grid() if size <= LISTED_UP_TO else []

    def _is_new(self, recipe: Recipe) -> bool:
        """Whether nobody has drawn it before; from now on somebody has."""
        before = len(self.seen)
        self.seen.add(self._identity(recipe))
        return len(self.seen) > before

    def _identity(self, recipe: Recipe) -> Recipe:
        """The seed makes no other recipe, unless it was given to choose from."""
        return recipe if "seed" in self.space.choices else recipe.key


class Halving(Random):
    """Successive halving: all start, the better third goes on from where it stands, then the better third of those.

    After the first round up to half of the proposals are children of the best recipes so far, the rest is drawn anew.
    On few rows the best so far are mostly the luckiest, and their children inherit the luck: there are fewer of them.
    """

    rungs = HALVING
    parents = 16

    def __init__(self, space: Space, seed: int, first: Sequence[Recipe] = (), rows: int = 1 << 30) -> None:
        super().__init__(space, seed, first)
        self.children = 0.5 * rows / (rows + TRUSTED_ROWS)  # share of the proposals
        self.owed = 0.0  # parts of children left over from earlier proposals
        self.best: list[Candidate] = []  # of the candidates that were known at the last proposal
        self.looked = 0  # how many they were

    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        best = self._look(known)
        children: list[Recipe] = []
        if len(best) >= 4 and not self.first and self.rest is None:
            self.owed += self.children * count
            for _ in range(int(self.owed)):
                children += self._child(best)
            self.owed -= int(self.owed)
        return children + super().propose(count - len(children), known)

    def _look(self, known: Sequence[Candidate]) -> list[Candidate]:
        """The best so far. Those of earlier rounds change no more: only new ones are looked at."""
        finished = [candidate for candidate in known[self.looked :] if candidate.finished]
        self.best = sorted([*self.best, *finished], key=lambda candidate: candidate.loss)[: self.parents]
        self.looked = len(known)
        return self.best

    def _child(self, best: Sequence[Candidate]) -> list[Recipe]:
        """A new child of two of the best; none, where all that were tried are known already."""
        for _ in range(CHILD_TRIES):
            one, other = self._pick(best), self._pick(best)
            child = self.space.mutate(one, other, self.generator)
            if self._is_new(child):
                return [child]
        return []

    def _pick(self, best: Sequence[Candidate]) -> Recipe:
        """The better of two drawn at random."""
        return best[int(self.generator.integers(len(best), size=2).min())].recipe


class Optuna(Strategy):
    """Optuna's sampler proposes whole batches: ask for all of them, train them as one population, tell the results."""

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ModuleNotFoundError:
            raise MissingPackage("strategy 'optuna' needs Optuna: pip install optuna") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=False, constant_liar=False)
        self.study = optuna.create_study(sampler=sampler)
        self.space = space
        self.generator = np.random.default_rng(seed)
        self.asked: list[Any] = []

    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        trials = [self.study.ask() for _ in range(count)]
        self.asked += trials
        return [self.space.make(self._values(trial), int(self.generator.integers(1 << 31))) for trial in trials]

    def learn(self, candidates: Sequence[Candidate]) -> None:
        from optuna.trial import TrialState

        for trial, candidate in zip(self.asked, candidates, strict=False):
            if np.isfinite(candidate.loss):
                self.study.tell(trial, candidate.loss)
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


def _halving(space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> Strategy:
    return Listed(space, HALVING) if isinstance(space, list) else Halving(space, seed, first, rows)


def _random(space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> Strategy:
    return Listed(space) if isinstance(space, list) else Random(space, seed, first)


def _grid(space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> Strategy:
    return Listed(space if isinstance(space, list) else space.grid())


def _optuna(space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> Strategy:
    if isinstance(space, list):
        raise UserError("strategy 'optuna' needs a space to draw from, not a list of members; give a dict")
    return Optuna(space, seed)


Maker = Callable[[Space | list[Recipe], int, Sequence[Recipe], int], Strategy]


class Known(NamedTuple):
    """A strategy that has a name."""

    make: Maker
    help: str
    needs_lists: bool = False  # of values; it cannot draw from distributions, as those of the default space


STRATEGIES: dict[str, Known] = {
    "halving": Known(_halving, "the better third goes on from where it stands"),
    "random": Known(_random, "draws, all trained to the end"),
    "grid": Known(_grid, "every combination", needs_lists=True),
    "optuna": Known(_optuna, "Optuna's sampler"),
}


def strategies_of_default_space() -> tuple[str, ...]:
    """Names that work where the user gives no space, as on the command line."""
    return tuple(name for name, known in STRATEGIES.items() if not known.needs_lists)


def find_strategy(
    wanted: str | Strategy, space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int
) -> Strategy:
    """The strategy of that name, or a copy of the user's own, over a space. A list of members is tried in order."""
    if isinstance(wanted, str) and wanted in STRATEGIES:
        return STRATEGIES[wanted].make(space, seed, first, rows)
    if isinstance(wanted, Strategy):
        own = copy.deepcopy(wanted)  # what the user gave stays as it is, for the next fit
        own.begin(space, seed, first, rows)
        return own
    names = tuple(STRATEGIES)
    raise UserError(
        f"strategy must be one of {', '.join(names)}, or an object of a class of your own derived from "
        f"shoal.search.strategies.Strategy; got {wanted!r}{nearest(wanted, names)}"
    )

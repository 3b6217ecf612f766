"""Strategies propose recipes; the search evaluates them.

A strategy says how far a recipe is trained before it is compared (its rungs), and proposes recipes in the light of
what is known so far. A new one is one class with one method.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import MissingPackage, UserError
from shoal.population.members import alternatives
from shoal.search.space import Recipe, Space
from shoal.validate import nearest

if TYPE_CHECKING:
    from shoal.search.rounds.candidates import Candidate

TRUSTED_ROWS = 500  # at which half as many children are drawn as on very many rows
Rung = tuple[float, float]  # share of its epochs that a candidate trains until; of the candidates that continue then

TO_THE_END: tuple[Rung, ...] = ((1.0, 1.0),)
HALVING: tuple[Rung, ...] = ((1 / 9, 1 / 3), (1 / 3, 1 / 3), (1.0, 1.0))
TRIES = 200  # draws of known recipes in a row, after which a space is taken for nearly exhausted
CHILD_TRIES = 10
LARGE_ROUND = 24  # recipes: half as many that train twice as long are still a choice
SHARE_OF_LONGEST = 0.5  # of the best recipes
LISTED_UP_TO = 20_000  # combinations


class SearchStrategy(ABC):
    """Proposes recipes, up to so many at a time. `ShoalClassifier(strategy=MyStrategy())` takes a custom one.

    rungs        how far recipes are trained before they are compared, and which share of them continues
    exhaustive   all proposals are tried, whatever number of recipes was asked for
    needs_lists  it cannot draw from distributions, as those of the default space
    """

    rungs: tuple[Rung, ...] = TO_THE_END
    exhaustive = False
    needs_lists = False

    def begin(self, space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> None:  # noqa: B027
        """Called once, before the first proposal. `first`: recipes that are rarely bad; `rows`: of the largest fold."""

    @abstractmethod
    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        """Up to `count` new recipes; none: there is nothing left to try."""

    def learn(self, candidates: Sequence[Candidate]) -> None:  # noqa: B027, most strategies look at `known` instead
        """Called with the results of a round, in the order of the proposals."""


class InOrder(SearchStrategy):
    """Given recipes, in order: a grid, a list of members, or the recipes of an earlier run."""

    exhaustive = needs_lists = True

    def __init__(self, recipes: Sequence[Recipe] = (), rungs: tuple[Rung, ...] = TO_THE_END) -> None:
        self.left, self.rungs = list(recipes), rungs

    def begin(self, space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int) -> None:
        self.left = list(space) if isinstance(space, list) else space.grid()

    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        proposed, self.left = self.left[:count], self.left[count:]
        return proposed


class Random(SearchStrategy):
    """Recipes drawn from the space, none of them twice; where all have been drawn, nothing is left to try."""

    def begin(self, space: Any, seed: int, first: Sequence[Recipe] = (), rows: int = 0) -> None:
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
    """Successive halving: all start, the better third continues, then the better third of those.

    After the first round up to half of the proposals are children of the best recipes so far, the rest is drawn again.
    Where the best recipes are those that train longest, the next rounds may train twice as long.
    On few rows the best so far are mostly the luckiest, and their children inherit the luck: there are fewer of them.
    """

    rungs = HALVING
    parents = 16

    def begin(self, space: Any, seed: int, first: Sequence[Recipe] = (), rows: int = 1 << 30) -> None:
        super().begin(space, seed, first)
        self.children = 0.5 * rows / (rows + TRUSTED_ROWS)  # share of the proposals
        self.owed = 0.0  # parts of children left over from earlier proposals
        self.best: list[Candidate] = []  # of the candidates that were known at the last proposal
        self.looked = 0  # how many they were

    def propose(self, count: int, known: Sequence[Candidate]) -> list[Recipe]:
        new = len(known) - self.looked
        best = self._look(known)
        if new >= LARGE_ROUND and self._longest_pays(best):
            self.space = self.space.with_longer_training()
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

    def _longest_pays(self, best: Sequence[Candidate]) -> bool:
        """Whether most of the best recipes have the most epochs that the space has."""
        longest = self.space.longest_epochs
        if longest is None or len(best) < self.parents:
            return False
        return sum(one.target >= longest for one in best) > SHARE_OF_LONGEST * len(best)

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


class Optuna(SearchStrategy):
    """Optuna's sampler proposes whole batches: ask for all of them, train them as one population, tell the results."""

    def begin(self, space: Any, seed: int, first: Sequence[Recipe], rows: int) -> None:
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

        asked = self.asked[len(self.asked) - len(candidates) :]  # before them are those that there was no time for
        for trial, candidate in zip(asked, candidates, strict=True):
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
            found = alternatives(name, value)
            options = [option for k, option in enumerate(found) if option not in found[:k]]
            chosen = trial.suggest_categorical(name, list(range(len(options)))) if len(options) > 1 else 0
            values[name] = options[chosen]
        return values


STRATEGIES: dict[str, type[SearchStrategy]] = {
    "halving": Halving,
    "random": Random,
    "grid": InOrder,
    "optuna": Optuna,
}


def strategies_of_default_space() -> tuple[str, ...]:
    """Names that work where the user gives no space, as on the command line."""
    return tuple(name for name, kind in STRATEGIES.items() if not kind.needs_lists)


def find_strategy(
    wanted: str | SearchStrategy, space: Space | list[Recipe], seed: int, first: Sequence[Recipe], rows: int
) -> SearchStrategy:
    """The strategy of that name, or a copy of a custom one, over a space. A list of members is tried in order."""
    strategy: SearchStrategy
    if isinstance(wanted, SearchStrategy):
        strategy = copy.deepcopy(wanted)  # what the user gave stays as it is, for the next fit
    elif isinstance(wanted, str) and wanted in STRATEGIES:
        strategy = STRATEGIES[wanted]()
        if isinstance(space, list):
            if isinstance(strategy, Optuna):
                raise UserError("strategy 'optuna' needs a space to draw from, not a list of members; give a dict")
            strategy = InOrder(rungs=strategy.rungs)
    else:
        names = tuple(STRATEGIES)
        raise UserError(
            f"strategy must be one of {', '.join(names)}, or an object of a class derived from "
            f"shoal.search.strategies.SearchStrategy; got {wanted!r}{nearest(wanted, names)}"
        )
    strategy.begin(space, seed, first, rows)
    return strategy

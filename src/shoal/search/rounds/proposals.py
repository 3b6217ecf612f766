"""The next recipes of a search: rounds of a strategy, then more seeds of the best, as many as were asked for or fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.search.budget.costs import FEWEST_PER_ROUND, MOST_PER_ROUND, ROUNDS, SEEDS_SHARE, largest_round
from shoal.search.rounds.candidates import Candidate, with_new_seed
from shoal.search.space import Recipe
from shoal.search.strategies import TO_THE_END, Rung, SearchStrategy

if TYPE_CHECKING:
    from shoal.search.rounds.loop import Search

ONE_EPOCH: tuple[Rung, ...] = ((0.0, 1.0),)
TOO_LONG = 0  # among the numbers of recipes of a round: there was no time for it
MEASURING, SEARCHING, MORE_SEEDS, REPEATING = "measuring", "searching", "more seeds", "repeating"


@dataclass(frozen=True)
class Round:
    """Recipes to train side by side, and how far."""

    recipes: Sequence[Recipe]
    rungs: Sequence[Rung]
    stage: str
    must: bool = False  # the first rung is trained whatever the clock says


def rounds_of(search: Search, strategy: SearchStrategy) -> Iterator[Round]:
    more = not search.ended
    while more:
        before = len(search.candidates)
        for recipes in _proposals(search, strategy):
            _check_proposal(search, recipes)
            known, tried = _speed_known(search), len(search.candidates)
            rungs = strategy.rungs if known else (*ONE_EPOCH, *strategy.rungs)
            yield Round(recipes, rungs, SEARCHING, must=not known)
            strategy.learn(search.candidates[tried:])
        for recipes in _finalists(search):
            yield Round(recipes, TO_THE_END, MORE_SEEDS)
        more = len(search.candidates) > before and _time_for_more(search, strategy)
    if not search.ended:
        search.restore()


def _speed_known(search: Search) -> bool:
    """Whether it is known what training takes; where no clock counts, it need not be."""
    if search.clock.budget is None:
        return True
    return bool(search.decisions.once("known", lambda: search.costs.rate > 0))


def _proposals(search: Search, strategy: SearchStrategy) -> Iterator[list[Recipe]]:
    """The recipes of each round."""
    return _by_count(search, strategy) if search.clock.budget is None else _by_time(search, strategy)


def _check_proposal(search: Search, recipes: Sequence[Recipe]) -> None:
    """Strategies may be the user's own."""
    for recipe in recipes:
        if not isinstance(recipe, Recipe):
            raise UserError(f"a strategy must propose shoal.search.space.Recipe(member, encoding); got {recipe!r}")
        if recipe.encoding not in search.problem.inputs:
            names = ", ".join(search.problem.inputs)
            raise UserError(f"a recipe's encoding must be one of {names} for this table; got {recipe.encoding!r}")


def _by_count(search: Search, strategy: SearchStrategy) -> Iterator[list[Recipe]]:
    """So many recipes as were asked for; all that there are, where the strategy tries everything."""
    most, left = largest_round(search.problem), search.limits.recipes
    while left > 0 or strategy.exhaustive:
        recipes = strategy.propose(most if strategy.exhaustive else min(left, most), search.candidates)
        if not recipes:
            return
        yield recipes
        left -= len(recipes)


def _by_time(search: Search, strategy: SearchStrategy) -> Iterator[list[Recipe]]:
    """Rounds until the time is up, but for the share kept for more seeds."""
    rounds, kept = 0, _seconds_for_seeds(search)
    while True:
        earlier = search.decisions.earlier("round")
        left = search.clock.left() - kept
        if earlier is not None:
            recipes = [recipe for count in earlier if count for recipe in strategy.propose(count, search.candidates)]
            recipes = [] if TOO_LONG in earlier else recipes
        else:
            recipes, counts = _propose_for(search, strategy, left / max(1, ROUNDS - rounds))
            if rounds and search.costs.seconds(recipes, strategy.rungs) > 1.5 * left:
                recipes, counts = [], [*counts, TOO_LONG]  # the strategy has proposed them, and goes on from there
            search.decisions.note("round", counts)
        if not recipes:
            return
        yield recipes
        rounds += 1


def _seconds_for_seeds(search: Search) -> float:
    """To be kept for more seeds of the best."""
    share = SEEDS_SHARE if search.limits.seeds > 1 else 0.0
    return float(search.decisions.once("seeds", lambda: share * search.clock.left()))


def _time_for_more(search: Search, strategy: SearchStrategy) -> bool:
    """Whether seeds have left so much time that another round fits."""
    least = search.costs.worth_going_on(search.clock.budget, search.candidates, strategy.rungs)
    return bool(search.decisions.once("more", lambda: search.clock.left() > least))


def _propose_for(search: Search, strategy: SearchStrategy, seconds: float) -> tuple[list[Recipe], list[int]]:
    """Recipes that take about so long, at the speed measured last; a few, while it is not known.

    Also how many the strategy was asked for, each time.
    """
    recipes: list[Recipe] = []
    counts: list[int] = []
    most = min(MOST_PER_ROUND, largest_round(search.problem))
    while len(recipes) < most:
        counts.append(min(FEWEST_PER_ROUND, most - len(recipes)))
        more = strategy.propose(counts[-1], search.candidates)
        recipes += more
        if not more or not search.costs.rate or search.costs.seconds(recipes, strategy.rungs) >= seconds:
            break
    return recipes, counts


def _finalists(search: Search) -> Iterator[list[Recipe]]:
    """The best recipes again with other seeds: what is left of their lead is not luck."""
    best = search.best_candidates()
    while True:
        chosen = _without_enough_seeds(search, best)[: search.limits.finalists]
        if chosen and search.clock.budget is not None:
            chosen = chosen[: _affordable(search, chosen)]
        if not chosen:
            return
        seeds = _seeds_of(search, [candidate.recipe for candidate in chosen])
        yield [with_new_seed(candidate.recipe, seeds[candidate.key]) for candidate in chosen]
        best = best[: search.limits.finalists] if search.clock.budget is None else search.best_candidates()


def _affordable(search: Search, chosen: Sequence[Candidate]) -> int:
    """For how many of these there is time to train them once more."""
    earlier = search.decisions.earlier("finalists")
    if earlier is not None:
        return int(earlier)
    each = search.costs.seconds([candidate.recipe for candidate in chosen], TO_THE_END) / len(chosen)
    return int(search.decisions.note("finalists", max(0, int(min(search.clock.left() / each, len(chosen))))))


def _without_enough_seeds(search: Search, candidates: Sequence[Candidate]) -> list[Candidate]:
    few = candidates[: search.limits.finalists]
    seeds = _seeds_of(search, [candidate.recipe for candidate in few])
    found: dict[Recipe, Candidate] = {}
    for candidate in few:
        if sum(one.finished or bool(one.skip_reason) for one in seeds[candidate.key]) < search.limits.seeds:
            found.setdefault(candidate.key, candidate)
    return list(found.values())


def _seeds_of(search: Search, recipes: Iterable[Recipe]) -> dict[Recipe, list[Candidate]]:
    """All candidates of each of these recipes, by its key."""
    found: dict[Recipe, list[Candidate]] = {recipe.key: [] for recipe in recipes}
    for candidate in search.candidates:
        if candidate.key in found:
            found[candidate.key].append(candidate)
    return found


# ---- which candidates are best ----


def best_of(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """So many of those that did not diverge, the lowest loss first."""
    usable = [candidate for candidate in candidates if math.isfinite(candidate.loss)]
    return sorted(usable, key=lambda candidate: (candidate.loss, candidate.number))[:count]

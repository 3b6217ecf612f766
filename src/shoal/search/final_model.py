"""The model that a search delivers: the networks of the chosen candidates, taken out of their populations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.models.model import Bag, Model, Part, bare, empty_networks
from shoal.population import Population
from shoal.search.candidates import Unit
from shoal.search.problem import Problem


def make_model(
    problem: Problem, units: Sequence[Unit], weights: Sequence[float], recipe_of: dict[int, int], temperature: float
) -> Model:
    """Collect the weights of the chosen units from their broods."""
    parts = tuple(
        Part(recipe_of[u.number], str(u.recipe), u.recipe.view, bare(u.recipe.member), float(w))
        for u, w in zip(units, weights, strict=True)
    )
    bags = tuple(Bag(fold.encoder, fold.target) for fold in problem.folds)
    networks = {}
    for view in problem.views:
        mine = [unit for unit in units if unit.recipe.view == view]
        if mine:
            networks[view] = empty_networks(
                problem.task, problem.views[view].shape[1], [bare(u.recipe.member) for u in mine], len(bags)
            )
            _copy_weights(networks[view], mine, len(bags))
    return Model(problem.task, problem.schema, bags, parts, networks, temperature)


def _copy_weights(population: Population, units: Sequence[Unit], bags: int) -> None:
    for place, unit in enumerate(units):
        assert unit.brood is not None
        for k in range(bags):
            index = place * bags + k
            views = population.layout.views(index, population.state.parameters)
            member_weights = unit.brood.weights(unit, k)
            columns: Any = unit.recipe.member.features
            for layer, (view, (matrix, bias)) in enumerate(zip(views, member_weights, strict=True)):
                view[:-1] = matrix if layer or columns is None else matrix[list(columns)]
                view[-1] = bias

"""The model that a search delivers: the networks of the chosen candidates, taken out of their populations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.models.model import FoldTransforms, Model, Part, bare, empty_networks
from shoal.population import Population
from shoal.search.candidates import Candidate
from shoal.search.problem import Problem


def make_model(
    problem: Problem,
    candidates: Sequence[Candidate],
    weights: Sequence[float],
    recipe_of: dict[int, int],
    temperature: float,
) -> Model:
    """Collect the weights of the chosen candidates from their pools."""
    parts = tuple(
        Part(recipe_of[one.number], str(one.recipe), one.recipe.encoding, bare(one.recipe.member), float(weight))
        for one, weight in zip(candidates, weights, strict=True)
    )
    folds = tuple(
        FoldTransforms(encoder, fold.target) for encoder, fold in zip(problem.encoders, problem.folds, strict=True)
    )
    networks = {}
    for encoding in problem.inputs:
        mine = [candidate for candidate in candidates if candidate.recipe.encoding == encoding]
        if mine:
            networks[encoding] = empty_networks(
                problem.task, problem.inputs[encoding].shape[1], [bare(one.recipe.member) for one in mine], len(folds)
            )
            _copy_weights(networks[encoding], mine, len(folds))
    return Model(problem.task, problem.schema, folds, parts, networks, temperature)


def _copy_weights(population: Population, candidates: Sequence[Candidate], folds: int) -> None:
    for place, candidate in enumerate(candidates):
        assert candidate.pool is not None
        for k in range(folds):
            index = place * folds + k
            layers = population.layout.views(index, population.state.parameters)
            member_weights = candidate.pool.weights(candidate, k)
            columns: Any = candidate.recipe.member.features
            for number, (layer, (matrix, bias)) in enumerate(zip(layers, member_weights, strict=True)):
                layer[:-1] = matrix if number or columns is None else matrix[list(columns)]
                layer[-1] = bias

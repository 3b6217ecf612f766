"""A deep network that grows stage by stage: each stage is one population, and the best of it feeds the next.

A stage sees the columns of the table and what the stage before it made of them: its hidden layer, its outputs, or both.
Which of these, how many neurons and which activation: the candidates of a stage differ in it, and the best is taken.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.papers.parallel_mlps.dealing import deal
from shoal.errors import UserError
from shoal.metrics.tasks import REGRESSION, weighted_mean
from shoal.models.model import FoldTransforms, bare, single_model
from shoal.population.members import Member, grid
from shoal.population.population import Population
from shoal.population.rows import Split
from shoal.search.options import seed_of, threads_of
from shoal.tools.estimators import ToolClassifier, ToolEstimator, ToolRegressor
from shoal.tools.prepared import ToolData, check_recipes, check_task, epochs_of, kind_of, prepare, relative
from shoal.validate import whole, yes_or_no

FEEDS = ("columns", "columns and hidden", "columns and outputs", "columns, hidden and outputs")
PATIENCE = 10  # epochs
SEEDS = 4  # of each default candidate
LONGER = 3  # times the epochs of a search: patience ends most candidates before
DEFAULT = tuple(
    grid(
        hidden=[4, 8, 16, 32, 64], activation=["relu", "tanh"], learning_rate=[0.003, 0.01, 0.03],
        weight_decay=1e-4, repeats=SEEDS,
    )
)  # fmt: skip


def grow(X: Any, y: Any, *, task: str | None = None, sample_weight: Any = None, **options: Any) -> Any:
    """A fitted `GrownClassifier` or `GrownRegressor`, as y looks or as `task` says; `options` are its parameters.

    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> grown = grow(X, X[:, 0] * X[:, 1], members=[Member(hidden=8, learning_rate=0.01)], epochs=30)
    >>> [stage["hidden"] for stage in grown.history_][0]
    (8,)
    """
    kind = check_task(task) or kind_of(np.asarray(y))
    made = GrownRegressor(**options) if kind == REGRESSION else GrownClassifier(**options)
    return made.fit(X, y, sample_weight)


@dataclass(frozen=True, eq=False)
class Chain:
    """Networks one after the other. Each sees the columns, and the last hidden layer and outputs of the one before."""

    stages: tuple[Population, ...]  # of one member each

    @property
    def n_features(self) -> int:
        return self.stages[0].n_features

    @cached_property
    def bodies(self) -> tuple[Population, ...]:
        """All stages but the last, as `body_of` gives them."""
        return tuple(map(body_of, self.stages[:-1]))

    def predict(self, inputs: np.ndarray, which: Any = None, *, threads: int | None = None) -> np.ndarray:
        """(1, n, n_outputs) raw outputs."""
        seen = inputs
        for stage, body in zip(self.stages[:-1], self.bodies, strict=True):
            seen = next_inputs(inputs, seen, stage, body, threads)
        return self.stages[-1].predict(seen, threads=threads)

    def __getstate__(self) -> dict[str, Any]:
        return {"stages": self.stages}


def next_inputs(
    columns: np.ndarray, inputs: np.ndarray, stage: Population, body: Population, threads: int | None
) -> np.ndarray:
    """What the stage after this one sees: the columns, the hidden layer, the outputs."""
    made = [each.predict(inputs, threads=threads)[0] for each in (body, stage)]
    return np.concatenate([columns, *made], axis=1)


def body_of(stage: Population) -> Population:
    """A network with the identity for its last layer: it gives the last hidden layer."""
    layers = stage.weights(0)
    width = len(layers[-1][0])
    body = Population.blank(stage.members, stage.n_features, width, "mse")
    body.set_weights(0, [*layers[:-1], (np.eye(width), np.zeros(width))])
    return body


@dataclass(frozen=True, eq=False)
class Stage:
    """One trained network of the chain."""

    recipe: Member  # by which it was trained
    epochs: int  # after which it was best
    network: Population  # of one member

    @staticmethod
    def of(recipe: Member, epochs: int, trained: Population, i: int) -> Stage:
        network = Population.blank([bare(trained.members[i])], trained.n_features, trained.n_outputs, trained.loss)
        network.set_weights(0, trained.weights(i))
        return Stage(recipe, epochs, network)

    def next_inputs(self, columns: np.ndarray, inputs: np.ndarray, threads: int) -> np.ndarray:
        return next_inputs(columns, inputs, self.network, body_of(self.network), threads)


class _Grown(ToolEstimator):
    """What both estimators share. Constructors only store; `fit` checks.

    members       candidates of each stage, a list of `shoal.Member`; None: 4 to 64 neurons, two activations,
                  three learning rates. Later stages try each with every kind of feed
    max_stages    at most so many
    epochs        at most so many of each candidate; None: by the number of rows. A candidate without patience of its
                  own stops after 10 epochs without a better loss
    refit         train the chosen stages again, on all rows, for as many epochs as were best
    n_jobs        threads; None: all cores. The bits do not depend on it
    random_state  the same number gives the same bits
    kinds         what columns are, where that should not be guessed: {"zip": "category"}

    Of five parts of the rows, three train, one chooses the best candidate, and one, which no stage sees, says when to
    stop: when a stage lowers its loss there by less than the standard error of the difference.

    After fit: `history_` (a dict for each stage tried, the last of which may not be in the network), `n_stages_`,
    `n_networks_`, `schema_`, `model_`.
    """

    def __init__(
        self,
        *,
        members: Any = None,
        max_stages: int = 8,
        epochs: int | None = None,
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        kinds: Any = None,
    ) -> None:
        self.members = members
        self.max_stages = max_stages
        self.epochs = epochs
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.kinds = kinds

    def _fit(self, X: Any, y: Any, sample_weight: Any, kind: str) -> Any:
        most = whole("max_stages", self.max_stages, 1, 1000)
        refit = yes_or_no("refit", self.refit)
        data = prepare(self, X, y, sample_weight, kind=kind, kinds=self.kinds)
        growth = _Growth.of(self, data)
        stages, self.history_ = growth.run(most)
        self.n_networks_ = sum(record["candidates"] for record in self.history_)
        if refit:
            stages = growth.again(stages)
        self.n_stages_ = len(stages)
        chain, transforms = Chain(tuple(stage.network for stage in stages)), FoldTransforms(data.encoder, data.scaling)
        self._publish_model(data, single_model(data.task, data.schema, transforms, chain, "grown"))  # type: ignore[arg-type]
        return self


@dataclass(frozen=True, eq=False)
class _Growth:
    """The rows and candidates that all stages share."""

    data: ToolData
    columns: np.ndarray  # (n, width) inputs that every stage sees
    recipes: list[Member]
    epochs: int
    seed: int
    threads: int
    train: Split  # with the rows to choose on
    unseen: np.ndarray  # rows to stop on

    @staticmethod
    def of(grown: _Grown, data: ToolData) -> _Growth:
        seed = seed_of(grown.random_state)
        train, choose, unseen = deal(data, seed)
        epochs = epochs_of(grown.epochs, len(train)) * (LONGER if grown.epochs is None else 1)
        recipes = [_patient(recipe) for recipe in check_recipes(grown.members, DEFAULT)]
        columns = np.ascontiguousarray(data.inputs[:, : max(data.blank, 1)])
        split = Split(train, choose, relative(data.weight[train]))
        return _Growth(data, columns, recipes, epochs, seed, threads_of(grown.n_jobs), split, unseen)

    def run(self, most: int) -> tuple[list[Stage], list[dict[str, Any]]]:
        """Stages until one does not help, and a record of each that was tried."""
        stages: list[Stage] = []
        history: list[dict[str, Any]] = []
        inputs, before = self.columns, np.empty(0)
        while len(stages) < most:
            stage, record = self.stage(inputs, stages[-1] if stages else None, len(stages))
            losses = self._losses(stage.network.predict(inputs[self.unseen], threads=self.threads)[0])
            weight = self.data.weight[self.unseen]
            gain = before - losses if len(stages) else np.full(len(losses), np.inf)
            record |= {"loss": float(weighted_mean(losses, weight)), "kept": _helps(gain, weight)}
            history.append(record)
            if not record["kept"]:
                break
            stages.append(stage)
            before, inputs = losses, stage.next_inputs(self.columns, inputs, self.threads)
        return stages, history

    def stage(self, inputs: np.ndarray, last: Stage | None, number: int) -> tuple[Stage, dict[str, Any]]:
        """One population, and the best of it on the rows to choose on."""
        feeds = self._feeds(inputs.shape[1], last)
        members = [
            recipe.replace(features=features, seed=_seed(self.seed, number, k))
            for features in feeds.values()
            for k, recipe in enumerate(self.recipes)
        ]
        population = self._trained(members, inputs, self.epochs, self.train)
        history = population.history
        losses = np.nanmin(np.where(np.isnan(history.valid_loss), np.inf, history.valid_loss), axis=1)
        best = int(np.argmin(losses))
        if not math.isfinite(losses[best]):
            raise UserError("every network diverged; give members with smaller learning rates, or clip=1")
        recipe, feed = members[best], list(feeds)[best // len(self.recipes)]
        epochs = int(np.argmin(np.nan_to_num(history.valid_loss[best], nan=np.inf))) + 1
        return Stage.of(recipe, epochs, population, best), {
            "hidden": recipe.hidden, "activation": recipe.activation, "learning_rate": recipe.learning_rate,
            "feed": feed, "epochs": epochs, "candidates": len(members), "chosen_by": float(losses[best]),
        }  # fmt: skip

    def _trained(self, members: list[Member], inputs: np.ndarray, epochs: int, rows: Split) -> Population:
        return self.data.trained(members, inputs, epochs, rows=rows, threads=self.threads, seed=self.seed)

    def again(self, stages: Sequence[Stage]) -> list[Stage]:
        """The same stages from the same first weights, trained on all rows for as many epochs as were best."""
        made: list[Stage] = []
        inputs = self.columns
        for stage in stages:
            recipe = stage.recipe.replace(patience=0, epochs=stage.recipe.epochs or self.epochs)  # of its schedule
            population = self._trained([recipe], inputs, stage.epochs, self.data.all_rows)
            if "diverged" in population.status:
                warnings.warn(
                    "trained on all rows, a stage diverged: the stages keep their weights from before; give members "
                    "with smaller learning rates, or refit=False",
                    UserWarning,
                    stacklevel=4,
                )
                return list(stages)
            made.append(Stage.of(stage.recipe, stage.epochs, population, 0))
            inputs = made[-1].next_inputs(self.columns, inputs, self.threads)
        return made

    def _feeds(self, width: int, last: Stage | None) -> dict[str, tuple[int, ...] | None]:
        """The inputs that each kind of feed lets a network see."""
        if last is None:
            return {FEEDS[0]: None}
        own, first = self.columns.shape[1], width - self.data.task.n_outputs
        columns = tuple(range(own))
        hidden, outputs = tuple(range(own, first)), tuple(range(first, width))
        return {FEEDS[1]: columns + hidden, FEEDS[2]: columns + outputs, FEEDS[3]: None}

    def _losses(self, raw: np.ndarray) -> np.ndarray:
        data = self.data
        prediction = data.scaling.back(data.task, raw)
        return data.task.losses(prediction, data.y[self.unseen], data.scaling.scale)


def _helps(gain: np.ndarray, weight: np.ndarray) -> bool:
    """Whether a mean gain is above its own standard error.

    >>> _helps(np.array([1.0, 1.1, 0.9]), np.ones(3)), _helps(np.array([1.0, -0.9, 0.1]), np.ones(3))
    (True, False)
    """
    if np.isinf(gain).all():  # the first stage
        return True
    mean, share = float(weighted_mean(gain, weight)), weight / weight.sum()
    return mean > math.sqrt(float((share**2 * (gain - mean) ** 2).sum()))


def _patient(recipe: Member) -> Member:
    if not recipe.hidden:
        raise UserError("a stage needs a hidden layer, which the next one sees; hidden=() has none")
    return recipe if recipe.patience else recipe.replace(patience=PATIENCE)


def _seed(seed: int, stage: int, k: int) -> int:
    return int(np.random.default_rng([seed, stage, k]).integers(1 << 31))


class GrownClassifier(ToolClassifier, _Grown):
    """A network for classes, grown stage by stage; see `grow`."""


class GrownRegressor(ToolRegressor, _Grown):
    """A network for numbers, grown stage by stage; see `grow`."""

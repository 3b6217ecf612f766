"""The result of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.explain.results import Explanation
from shoal.models.compact import Compact
from shoal.models.model import Model
from shoal.search.budget.shares import Effort
from shoal.search.options import SearchOptions
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import Problem
from shoal.search.results.leaderboard import Leaderboard
from shoal.search.rounds.candidates import Candidate
from shoal.search.rounds.loop import Search
from shoal.search.scoring.calibrate import HeldOutPredictions
from shoal.search.scoring.honest import HonestScore
from shoal.tables.table import Table


@dataclass(frozen=True, eq=False)
class Earlier:
    """A run that is to be repeated: what it has trained, and how."""

    log: list[dict[str, Any]]
    repeats: int | None = None  # how often rows were dealt into folds
    bootstraps: int | None = None  # of its honest score
    effort: Effort = field(default_factory=Effort)


@dataclass(frozen=True, eq=False)
class Conclusion:
    """All that a search found out."""

    model: Model
    board: Leaderboard
    groups: list[list[Candidate]]  # candidates behind each row of the board
    place: int  # row of the best recipe that has weights: nearly always the first one
    best: Candidate  # its best seed
    chosen: list[Candidate]  # of the ensemble
    shares: np.ndarray  # their weights
    honest: HonestScore  # of the model
    out_of_fold: np.ndarray  # (n, n_outputs) of the model, for distinct rows
    ensemble_score: float  # of its out-of-fold predictions
    best_pooled: float  # the same for the best candidate alone
    held_out: HeldOutPredictions  # what the networks of each fold said of rows that it held out
    compact: Compact  # the fewest networks of the ensemble that are about as good
    refit: bool  # whether the model was trained again, on all rows

    @property
    def fold_scores(self) -> np.ndarray:
        """(rows of the board, n_folds) means over seeds."""
        return np.array([np.mean([one.fold_scores for one in candidates], axis=0) for candidates in self.groups])

    @property
    def params(self) -> list[dict[str, Any]]:
        """The recipe of each row of the board."""
        recipes = [candidates[0].recipe for candidates in self.groups]
        recipes[self.place] = self.best.recipe
        return [recipe.member.as_dict() | {"encoding": recipe.encoding} for recipe in recipes]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search has tried and found: `estimator.result_` after fit. Saved models and pickles do not hold it."""

    search: Search
    outcome: Conclusion
    options: SearchOptions
    data: TrainingData  # as given
    searched: TrainingData  # the rows that were searched on
    cv: str  # the folds, in words
    space: dict[str, str]  # values tried of each setting, in words
    phases: dict[str, float]  # seconds of each
    repeats: int  # how often rows were dealt into folds
    effort: Effort  # what was reduced to save time
    trained_on: dict[str, Any] = field(default_factory=dict)  # workers and link; empty: in this process
    explanation: Explanation | None = None  # which columns matter
    background: Table | None = None  # rows that single rows are compared with

    @property
    def candidates(self) -> list[Candidate]:
        """Everything that was tried, in order."""
        return self.search.candidates

    @property
    def skipped(self) -> list[Candidate]:
        """Those that nobody could train as far as they should have been; `skip_reason` of each says why."""
        return [candidate for candidate in self.candidates if candidate.skip_reason]

    @property
    def model(self) -> Model:
        return self.outcome.model

    @property
    def table(self) -> Table:
        """The columns as they were given."""
        return self.data.table if self.data.given is None else self.data.given

    @property
    def problem(self) -> Problem:
        """The data as matrices, with its folds."""
        return self.search.problem

    @property
    def ended(self) -> str:
        """Why the search ended early: "budget" or "interrupted"; nothing, if it did not."""
        return self.search.ended

    @property
    def log(self) -> list[dict[str, Any]]:
        """What was trained, from which the search can be repeated."""
        return self.search.log

    def as_earlier(self) -> Earlier:
        """What is needed to do the same again."""
        return Earlier(self.log, self.repeats, self.outcome.honest.bootstraps, self.effort)


def report_parts(outcome: Conclusion) -> list[dict[str, Any]]:
    """What the ensemble is made of, the largest share first; seeds of one recipe together."""
    shares: dict[int, dict[str, Any]] = {}
    for part in outcome.model.parts:
        entry = shares.setdefault(part.recipe, {"recipe": part.recipe, "label": part.label, "weight": 0.0})
        entry["weight"] += part.weight
    return sorted(shares.values(), key=lambda entry: -entry["weight"])

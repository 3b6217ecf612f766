"""The search as scikit-learn estimators."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from shoal.encoders.encoder import ENCODINGS
from shoal.metrics.find import find_metric
from shoal.metrics.metric import Metric
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.arguments import positive, seed_of, threads_of, whole, yes_or_no
from shoal.search.cv_results import cv_results
from shoal.search.fitting import Hooks, Run
from shoal.search.honest import BOOTSTRAPS, FEWEST_BOOTSTRAPS
from shoal.search.leaderboard import variance_shares
from shoal.search.loop import FINALISTS, Clock, Limits, Progress, Search, Watcher
from shoal.search.measuring import Data, draw_rows, measure_passes, refit_seconds, what_to_leave_out
from shoal.search.problem import (
    Problem,
    default_epochs,
    default_folds,
    default_repeats,
    group_of_rows,
    make_folds,
    make_problem,
)
from shoal.search.result import Outcome, conclude
from shoal.search.space import Recipe, Space, check_space, default_space, encodings_of
from shoal.search.strategies import HALVING, anchors, find_strategy
from shoal.search.timing import Effort, finish
from shoal.tables.inputs import has_names, has_strings, new_table
from shoal.tables.labels import plain_name, refuse_extreme, target_array, target_name
from shoal.tables.schema import Schema
from shoal.tables.table import Table, with_unique_names

Pair = tuple[np.ndarray, np.ndarray]  # rows to train and to score on


class _ShoalEstimator(BaseEstimator):
    """What both estimators share. Constructors only store; `fit` checks.

    space         None: a good default; or a dict of alternatives and scipy distributions, by names of Member's fields
                  (and "encoding"), as `shoal.grid` takes them; or a Member, or a list of them
    strategy      "halving" (survivors go on from where they stand), "random", "grid", "optuna"
    recipes       how many to try, where no budget says it
    budget        seconds for the whole fit; uses them, and ends on them
    cv            None (by the number of rows), a number of folds, any scikit-learn splitter, or pairs of row numbers
    scoring       what the leaderboard and the honest score show; None: accuracy or R2. Others are "balanced_accuracy",
                  "roc_auc" (the mean over classes, each against the rest), "f1" (of two classes that of the second one,
                  of more the mean), "f1_macro", "neg_log_loss", "neg_brier_score"; for numbers
                  "neg_mean_absolute_error", "neg_mean_squared_error"; any other name of scikit-learn, a scorer of
                  make_scorer, or a function of (estimator, X, y) that looks at predictions only
    seeds         of each of the best recipes, to tell luck from architecture
    epochs        of the longest default recipe, and of members without epochs of their own; None: by the number of rows
    ensemble      combine the best; False: the best recipe alone
    refit         train what was chosen on all rows again; "auto": only for folds like those of time series
    n_jobs        threads; None: all cores
    random_state  the same number gives the same bits, unless a budget ends the search
    verbose       show progress

    After fit: `leaderboard_`, `best_member_`, `best_score_`, `best_index_`, `cv_results_`, `honest_score_`, `luck_`,
    `ensemble_gain_`, `n_networks_`, `schema_`, `model_`.
    """

    def __init__(
        self,
        space: Any = None,
        *,
        strategy: str = "halving",
        recipes: int = 100,
        budget: float | None = None,
        cv: Any = None,
        scoring: Any = None,
        seeds: int = 3,
        epochs: int | None = None,
        ensemble: bool = True,
        refit: bool | str = "auto",
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.space = space
        self.strategy = strategy
        self.recipes = recipes
        self.budget = budget
        self.cv = cv
        self.scoring = scoring
        self.seeds = seeds
        self.epochs = epochs
        self.ensemble = ensemble
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # ---- fitting ----

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> Any:
        hooks: Hooks = getattr(self, "_hooks", Hooks())
        clock = hooks.clock or Clock(positive("budget", self.budget))
        begun = clock.elapsed()
        yes_or_no("ensemble", self.ensemble)
        table, plain = self._table(X)
        task, target = self._encode_target(y, len(table))
        weight = _check_sample_weight(sample_weight, np.empty((len(table), 0)), ensure_non_negative=True)
        self._check_rows(task, target, weight)
        seed = seed_of(self.random_state)
        schema = Schema.of(table, plain=plain)
        given, table = table, schema.check(table)
        metric = find_metric(self.scoring, task, getattr(self, "classes_", None))
        data = Data(task, schema, table, target, weight, groups)
        folds = default_folds(len(target), schema)
        repeats = hooks.repeats or default_repeats(len(target), clock.budget, schema)
        effort = self._begin(data, metric, clock, hooks, (folds, repeats), seed)
        if effort.rows is not None:
            data = data.take(draw_rows(target, task, effort.rows, seed))
        if effort.folds is not None:
            folds, repeats = effort.folds, 1
        rows = X if effort.rows is None else data.table
        pairs, cv_name = make_folds(self.cv, task, rows, data.target, groups, seed % (1 << 32), folds, repeats)
        metric.check(task, data.target, data.weight, [valid for _, valid in pairs])
        encodings = effort.encodings or (ENCODINGS if clock.budget is None else encodings_of(self.space))
        problem = self._problem(data, pairs, encodings)
        encoded = clock.elapsed()
        wants_refit = self._wants_refit(pairs)
        search, space = self._search(problem, metric, clock, seed, hooks, wants_refit)
        trained = clock.elapsed()
        everything = np.arange(len(data.target))
        refit = self._problem(data, [(everything, everything)], encodings) if wants_refit else None
        outcome, effort = self._conclude(search, hooks, effort, refit, group_of_rows(groups, problem))
        self._publish(search, outcome)
        phases = {
            "encoding": encoded - begun,
            "search": trained - encoded,
            "ensemble and honest score": clock.elapsed() - trained,
        }
        target_name = plain_name(y, getattr(self, "target_name_", None)) or "y"
        self._run = Run(search, outcome, cv_name, space, phases, seed, repeats, given, target_name, effort)
        return self

    def _problem(self, data: Data, pairs: list[Pair], encodings: tuple[str, ...]) -> Problem:
        given = (data.task, data.schema, data.table, data.target, pairs, data.weight, self._class_weight(data.target))
        return make_problem(*given, encodings)

    def _begin(
        self, data: Data, metric: Metric, clock: Clock, hooks: Hooks, usual: tuple[int, int], seed: int
    ) -> Effort:
        """What to go without, where the time is short; as an earlier run did, if that is repeated."""
        if hooks.effort is not None or hooks.repeat is not None or clock.budget is None:
            return hooks.effort or Effort()
        limits = self._limits(default_epochs(len(data.target)), seed)
        encodings = None if self.space is None else encodings_of(self.space)
        return what_to_leave_out(data, self.cv, usual, metric, limits, clock, hooks.report, hooks.say, encodings)

    def _limits(self, epochs: int, seed: int) -> Limits:
        return Limits(
            recipes=whole("recipes", self.recipes, 1) or 1, seeds=whole("seeds", self.seeds, 1) or 1,
            finalists=FINALISTS, default_epochs=epochs, threads=threads_of(self.n_jobs), seed=seed,
        )  # fmt: skip

    def _search(
        self, problem: Problem, metric: Metric, clock: Clock, seed: int, hooks: Hooks, refit: bool
    ) -> tuple[Search, dict[str, str]]:
        """Run the strategy, or an earlier run again; and the space in words."""
        epochs = whole("epochs", self.epochs, 1) or default_epochs(problem.n_rows)
        budget, before = clock.budget, clock.elapsed()
        again = 0.2 * budget if budget is not None and refit else 0.0
        if budget is not None:
            clock.reserve = min(0.25 * budget, 0.5 + 0.025 * budget) + again
        with self._watching(hooks, metric.name, budget) as watcher:
            search = Search(problem, metric, self._limits(epochs, seed), clock, watcher, hooks.keep_on_interrupt)

            def keep_back() -> None:
                passes = measure_passes(search, hooks.report)
                if passes is not None:
                    known, rows = len(search.best_candidates()), len(search.sample_rows)
                    last = min(again, refit_seconds(search, before)) if refit else 0.0
                    clock.reserve = last + passes.reserve(clock.budget or 0.0, hooks.report, known, rows)

            if budget is not None and hooks.repeat is None:
                search.keep_back = keep_back
            space, first = self._space(search, epochs, warm_up=budget is not None and hooks.repeat is None)
            if hooks.repeat is not None:
                search.repeat(hooks.repeat)
            else:
                search.run(find_strategy(self.strategy, space, seed, first, problem.n_rows))
        tried = [candidate.recipe for candidate in search.candidates]
        words = space.describe(tried) if isinstance(space, Space) else {"members": f"{len(space)} given"}
        return search, words

    def _conclude(
        self, search: Search, hooks: Hooks, effort: Effort, refit: Problem | None, group: np.ndarray | None
    ) -> tuple[Outcome, Effort]:
        """Ensemble and honest score, with as much effort as there is time for; and that effort."""
        clock, seconds, ended = search.clock, 0.0, search.clock.hurried
        bootstraps = None if ended and hooks.repeat is not None else hooks.bootstraps  # cut short, it repeats nothing
        plan = ended or (clock.budget is not None and hooks.repeat is None)
        passes = measure_passes(search, hooks.report) if plan else None
        if passes is not None:
            rows, sampled = int((search.problem.loss_weight > 0).sum()), len(search.sample_rows)
            last, seconds = finish(
                passes, clock.time_left(), hooks.report, len(search.best_candidates()), rows, sampled
            )
            effort = replace(effort, candidates=last.candidates, ensemble_rows=last.ensemble_rows, sampled=last.sampled)
        elif bootstraps is None:  # no clock may decide here: the same call gives the same bits
            bootstraps = int(np.clip(1_000_000 / len(search.sample_rows), FEWEST_BOOTSTRAPS, BOOTSTRAPS))
        # Several threads would sum in another order: bits would depend on their number.
        with threadpool_limits(1, "blas"):
            outcome = conclude(
                search, self.ensemble, seconds, refit, group, bootstraps, effort, lambda: clock.hurried and not ended
            )
        return outcome, effort

    def _space(self, search: Search, epochs: int, warm_up: bool) -> tuple[Space | list[Recipe], list[Recipe]]:
        """Where recipes come from, and those to be tried first."""
        problem = search.problem
        encodings = list(problem.inputs)
        if self.space is not None:
            return check_space(self.space, encodings), []
        batch_size = min(32, max(8, problem.n_rows // 8))
        if warm_up:
            search.warm_up(anchors(epochs, batch_size, encodings))
            epochs = search.fitting_epochs(epochs, HALVING)
        space = default_space(problem.n_rows, problem.task.kind == CLASSIFICATION, encodings, epochs)
        return space, anchors(epochs, batch_size, encodings)

    @contextmanager
    def _watching(self, hooks: Hooks, metric: str, budget: float | None) -> Iterator[Watcher | None]:
        """With `verbose`, progress on the screen."""
        if hooks.watcher is not None or not self.verbose:
            yield hooks.watcher
            return
        from shoal.search.screen import Screen

        with Screen(metric, budget) as screen:

            def watch(progress: Progress) -> bool:
                screen.watch(progress)
                screen.draw()
                return False

            yield watch

    def _wants_refit(self, pairs: list[Pair]) -> bool:
        """By default only where folds train on very different parts of the data, as those of time series do."""
        if self.refit in (True, False):
            return bool(self.refit)
        if self.refit != "auto":
            raise ValueError(f"refit must be True, False or 'auto'; got {self.refit!r}")
        sizes = [len(train) for train, _ in pairs]
        return min(sizes) < 0.5 * max(sizes)

    def _publish(self, search: Search, outcome: Outcome) -> None:
        self.model_ = outcome.model
        self._board = outcome.board
        self.best_member_ = outcome.best.recipe.member
        self.best_index_ = outcome.place
        self.best_score_ = outcome.board[outcome.place]["score"]
        self.honest_score_ = outcome.honest
        self.cv_results_ = cv_results(outcome)
        self.luck_ = variance_shares(outcome.groups)
        self.n_networks_ = len(search.candidates) * len(search.problem.folds)
        self.schema_ = outcome.model.schema
        self.ensemble_gain_ = outcome.ensemble_score - outcome.best_pooled

    @property
    def leaderboard_(self) -> Any:
        """A row for each recipe, the best first: a pandas DataFrame where pandas is installed."""
        board = self.__dict__.get("_board")
        if board is None:
            raise AttributeError(f"this {type(self).__name__} has no leaderboard_ yet: call fit first")
        try:
            from shoal.search.board_frame import board_frame
        except ModuleNotFoundError:
            return board
        return board_frame(board)

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write the report of the search as one HTML page that works offline, and say where it is."""
        from shoal.report import write_search_page
        from shoal.search.summary import Context, report_data

        check_is_fitted(self)
        run: Run | None = getattr(self, "_run", None)
        if run is None:
            raise ValueError(
                "report needs what happened in the search, which files and pickles of a model do not hold; call it "
                "after fit, before saving (`shoal search` writes report.html beside its model)"
            )
        context = Context(title or f"{len(run.table):,} rows", run.target, budget=self.budget)
        return write_search_page(report_data(self, run.table, context), Path(path))

    def __getstate__(self) -> dict[str, Any]:
        """Pickles hold what prediction and reading the results need, not every network that was ever trained."""
        state = dict(super().__getstate__())
        for name in ("_run", "_hooks"):
            state.pop(name, None)
        return state

    # ---- predicting ----

    def _raw(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.predict(new_table(self, X), threads=threads_of(self.n_jobs))

    def _table(self, X: Any) -> tuple[Table, bool]:
        """Of training data. Frames keep their columns' types; arrays are numbers, checked as scikit-learn does."""
        self.__dict__.pop("_reading", None)  # of the file of an earlier fit
        if isinstance(X, Table) or type(X) is dict:
            table = Table.of(X)
            self.n_features_in_ = len(table.names)
            self.feature_names_in_ = np.array(table.names, dtype=object)
            return table, False
        X = with_unique_names(X)
        if has_names(X) or has_strings(X):
            validate_data(self, X, reset=True, skip_check_array=True)
            table = Table.of(X)
            if len(table) == 0:
                raise ValueError("the table has no rows: found array with 0 sample(s); at least 1 is needed")
            return table, False
        array = validate_data(self, X, reset=True, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=2)
        return Table.of(array), True

    def _class_weight(self, target: np.ndarray) -> np.ndarray:
        return np.ones(len(target))

    def _encode_target(self, y: Any, n: int) -> tuple[Task, np.ndarray]:
        raise NotImplementedError

    def _target(self, y: Any, n: int) -> np.ndarray:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return target_array(y, n, self._target_name(y))

    def _target_name(self, y: Any) -> str:
        return target_name(y, getattr(self, "target_name_", None))

    def _check_rows(self, task: Task, target: np.ndarray, weight: np.ndarray) -> None:
        used = int((weight > 0).sum())
        if used < 2:
            raise ValueError(f"a search needs at least 2 rows with a weight above zero; got n_samples={used}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = False
        return tags


class ShoalClassifier(ClassifierMixin, _ShoalEstimator):
    """Search for networks that tell classes apart, and combine the best of them.

    >>> from sklearn.datasets import load_iris
    >>> model = ShoalClassifier(recipes=10, seeds=1).fit(*load_iris(return_X_y=True))
    >>> model.best_score_ > 0.9
    True

    `class_weight` ("balanced", or a dict) weighs rows by class
    in training and in losses.
    """

    __doc__ += _ShoalEstimator.__doc__.partition("\n")[2]  # type: ignore[union-attr]

    def __init__(
        self,
        space: Any = None,
        *,
        strategy: str = "halving",
        recipes: int = 100,
        budget: float | None = None,
        cv: Any = None,
        scoring: Any = None,
        seeds: int = 3,
        epochs: int | None = None,
        ensemble: bool = True,
        refit: bool | str = "auto",
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            space, strategy=strategy, recipes=recipes, budget=budget, cv=cv, scoring=scoring, seeds=seeds,
            epochs=epochs, ensemble=ensemble, refit=refit, n_jobs=n_jobs, random_state=random_state, verbose=verbose,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> ShoalClassifier:
        return self._fit(X, y, sample_weight, groups)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, n_classes); for several labels at once (n, n_labels), the probability of each."""
        return self._raw(X)

    def predict(self, X: Any) -> np.ndarray:
        probability = self._raw(X)
        if self.model_.task.kind == MULTILABEL:
            return (probability > 0.5).astype(int)
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    def _encode_target(self, y: Any, n: int) -> tuple[Task, np.ndarray]:
        y = self._target(y, n)
        check_classification_targets(y)
        if type_of_target(y) == "multilabel-indicator":
            self.classes_ = np.arange(y.shape[1])
            return Task(MULTILABEL, y.shape[1]), np.asarray(y, dtype=np.float32)
        if y.ndim != 1:
            raise ValueError(f"y has the shape {y.shape}: give one class per row, or a 0/1 column for each label")
        self.classes_, target = np.unique(y, return_inverse=True)
        return Task(CLASSIFICATION, len(self.classes_)), target.astype(np.int64)

    def _check_rows(self, task: Task, target: np.ndarray, weight: np.ndarray) -> None:
        super()._check_rows(task, target, weight)
        if task.kind == CLASSIFICATION and len(np.unique(target[weight > 0])) < 2:
            raise ValueError(
                f"a classifier needs at least 2 classes; the target has 1 class: {self.classes_[target[0]]!s}"
            )

    def _class_weight(self, target: np.ndarray) -> np.ndarray:
        from sklearn.utils.class_weight import compute_sample_weight

        if self.class_weight is None:
            return np.ones(len(target))
        if target.ndim == 1:
            return np.asarray(compute_sample_weight(self.class_weight, self.classes_[target]))
        return np.asarray(compute_sample_weight(self.class_weight, target))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class ShoalRegressor(RegressorMixin, _ShoalEstimator):
    """Search for networks that predict numbers, one or several at once, and combine the best of them."""

    __doc__ += "\n" + _ShoalEstimator.__doc__.partition("\n")[2]  # type: ignore[union-attr]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> ShoalRegressor:
        return self._fit(X, y, sample_weight, groups)

    def predict(self, X: Any) -> np.ndarray:
        values = self._raw(X)
        return values[:, 0] if self._one_column else values

    def _encode_target(self, y: Any, n: int) -> tuple[Task, np.ndarray]:
        name = self._target_name(y)
        y = self._target(y, n)
        self._one_column = y.ndim == 1
        values = np.asarray(y, dtype=np.float64).reshape(n, -1)
        refuse_extreme(values, name)
        return Task(REGRESSION, values.shape[1]), values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

"""The search as scikit-learn estimators."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from shoal.conformal.strangeness import SHARE, Strange
from shoal.errors import UserError, WrongType
from shoal.explain.results import Importances
from shoal.explain.rows import RowExplanations
from shoal.metrics.tasks import MULTILABEL, Task
from shoal.models.certainty import predict_interval, predict_set, strange
from shoal.plain_files import PRIVATE
from shoal.runs.journal import Journal
from shoal.runs.lock import take
from shoal.search.callbacks import Callbacks, Progress, Started
from shoal.search.cv_results import cv_results
from shoal.search.data import TrainingData, search_digest, with_dependence
from shoal.search.explained import background_of, explain_estimator, importance_of
from shoal.search.fit import fit_search
from shoal.search.leaderboard import variance_shares
from shoal.search.options import SearchOptions
from shoal.search.parameters import options_of_estimator, threads_of
from shoal.search.result import Earlier, SearchResult
from shoal.search.roles import Roles
from shoal.search.targets import classes_of, numbers_of, refuse_one_class
from shoal.search.timing import Clock
from shoal.tables.inputs import new_table, training_table
from shoal.tables.labels import plain_name, target_array, target_name
from shoal.tables.reading import Reading
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.validate import shown


class _ShoalEstimator(BaseEstimator):
    """What both estimators share. Constructors only store; `fit` checks.

    space         None: a good default; or a dict of alternatives and scipy distributions, by names of Member's fields
                  (and "encoding"), as `shoal.grid` takes them; or a Member, or a list of them
    strategy      "halving" (survivors go on from where they stand), "random", "grid", "optuna", or an object of yours
                  (a `shoal.search.strategies.Strategy`)
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
    compact       deliver the fewest networks whose out-of-fold loss is within one standard error of the ensemble's;
                  `result_.outcome.compact` has what that costs and saves
    refit         train what was chosen on all rows again; "auto": only for folds like those of time series
    group_repeats  keep rows with equal inputs in one fold where they are copies of each other
    n_jobs        threads; None: all cores
    random_state  the same number gives the same bits, unless a budget ends the search
    verbose       show progress
    kinds         what columns are, where that should not be guessed: {"zip": "category"}; "number", "category", "date",
                  "text", "drop", or an encoder of your own (a `shoal.encoders.column.ColumnEncoder`)
    callbacks     told of progress, rungs and the end; may end the search (a list of `shoal.search.callbacks.Callback`)
    executor      who trains: None, this process; "local:4", worker processes on this machine; "dask://host:8786";
                  "mpi"; or any concurrent.futures.Executor. The bits are the same
    explain_seconds  for finding out which columns matter; None: what is left of the budget, or little; 0: not at all
    journal       a folder: what was trained is written there as it is done, and the same fit goes on from it after a
                  crash; with other data or parameters nothing in it is used

    `fit` takes three more arguments about the rows, each an array or the name of a column of X. `sample_weight`: how
    much rows count. `groups`: rows of a group stay in one fold. `time`: folds are scored on later rows than they were
    trained on. Columns of weights and groups are no inputs, and new rows need not have them.

    After fit: `leaderboard_`, `best_member_`, `best_score_`, `best_index_`, `cv_results_`, `honest_score_`, `luck_`,
    `ensemble_gain_`, `n_networks_`, `schema_`, `model_`; `importance_`, by how much the score falls when a column is
    shuffled; `explanation_`, that and the effects of columns; `background_`, rows that `explain` compares with;
    `board_`, the leaderboard without pandas; `reading_`, how the file of the training data was read, if it was one;
    `notes_`, on rows that depend on each other; and `result_`, all that was tried (not in files and pickles).
    """

    def __init__(
        self,
        space: Any = None,
        *,
        strategy: Any = "halving",
        recipes: int = 100,
        budget: float | None = None,
        cv: Any = None,
        scoring: Any = None,
        seeds: int = 3,
        epochs: int | None = None,
        ensemble: bool = True,
        compact: bool = False,
        refit: bool | str = "auto",
        group_repeats: bool = True,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        kinds: Any = None,
        callbacks: Any = None,
        executor: Any = None,
        journal: Any = None,
        explain_seconds: float | None = None,
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
        self.compact = compact
        self.refit = refit
        self.group_repeats = group_repeats
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.kinds = kinds
        self.callbacks = callbacks
        self.executor = executor
        self.journal = journal
        self.explain_seconds = explain_seconds

    # ---- fitting ----

    def fit_table(self, table: Table, y: Any, target_name: str, **how: Any) -> Any:
        """Fit to a table of `shoal.tables`; `how`: see `fit_data`."""
        return self.fit_data(self.training_data(table, y, target_name), **how)

    def training_data(
        self, table: Table, y: Any, target_name: str, schema: Schema | None = None, **rows: Any
    ) -> TrainingData:
        """A table with its target, checked; `schema`: if it is known already; `rows`: what else `fit` takes."""
        self.target_name_ = target_name
        return self._data(table, y, rows, schema)

    def fit_data(
        self,
        data: TrainingData,
        *,
        reading: Reading | None = None,
        clock: Clock | None = None,
        earlier: Earlier | None = None,
        report: bool = False,
        journal: Journal | None = None,
    ) -> Any:
        """Fit to what `training_data` gave, as `shoal search` does.

        reading  how the file was read, for new rows
        clock    that began with the command; its budget counts
        earlier  a run to be done again, to the bit
        report   files will be written after it, within the budget
        journal  of the run, in place of the folder that the parameter names
        """
        if reading is not None:
            self.reading_ = reading
        return self._search(
            data, options_of_estimator(self), clock=clock, earlier=earlier, report=report, journal=journal
        )

    def repeat(self, X: Any, y: Any, earlier: SearchResult | Earlier, **rows: Any) -> Any:
        """Fit by doing an earlier search on the same data again, to the bit, without looking at the clock.

        rows  what else `fit` was given: sample_weight, groups, time
        """
        earlier = earlier.as_earlier() if isinstance(earlier, SearchResult) else earlier
        if not isinstance(earlier, Earlier):
            raise WrongType(f"repeat needs the result of a search, such as model.result_; got {shown(earlier)}")
        options = options_of_estimator(self)
        return self._search(self._data(X, y, rows), options, Clock(), earlier)

    def _fit(self, X: Any, y: Any, **rows: Any) -> Any:
        options = options_of_estimator(self)
        clock = Clock(options.budget)
        data = self._data(X, y, rows)
        callbacks = Callbacks(self.callbacks)
        for note in data.notes:
            if callbacks.hear("note"):
                callbacks.tell("note", note.for_python())
            else:
                warnings.warn(note.for_python(), stacklevel=3)
        return self._search(data, options, clock, stacklevel=4)

    def _search(
        self,
        data: TrainingData,
        options: SearchOptions,
        clock: Clock | None = None,
        earlier: Earlier | None = None,
        report: bool = False,
        journal: Journal | None = None,
        stacklevel: int = 3,
    ) -> Any:
        with self._watching(options) as callbacks, _journal(self.journal, journal, data, options) as opened:
            result = fit_search(
                data, options, callbacks, clock=clock, earlier=earlier, report=report, journal=opened,
                stacklevel=stacklevel,
            )  # fmt: skip
        self._publish(result)
        return self

    def _data(self, X: Any, y: Any, rows: Mapping[str, Any], schema: Schema | None = None) -> TrainingData:
        """What was given, checked; `rows`: sample_weight, groups and time."""
        self.__dict__.pop("reading_", None)  # of the file of an earlier fit
        table, plain = training_table(self, X)
        task, target = self._encode_target(y, len(table))
        roles = Roles.of(table, self.cv, **rows)
        weight = _check_sample_weight(roles.weight, np.empty((len(table), 0)), ensure_non_negative=True)
        self._check_rows(task, target, weight)
        if schema is None:
            schema = Schema.of(table, plain=plain, kinds=roles.kinds(self.kinds))
            for note in schema.unlike:
                warnings.warn(note, UserWarning, stacklevel=5)
        data = TrainingData(
            task, schema, schema.check(table), target, weight, roles.groups, getattr(self, "classes_", None),
            getattr(self, "class_weight", None), X, table,
            plain_name(y, getattr(self, "target_name_", None)) or "y", roles.time,
        )  # fmt: skip
        data = with_dependence(data, self.group_repeats) if roles.ours else data
        self.notes_ = [note.for_python() for note in data.notes]
        return data

    @contextmanager
    def _watching(self, options: SearchOptions) -> Iterator[Callbacks]:
        """The user's callbacks; with `verbose`, progress on the screen as well."""
        callbacks = Callbacks(self.callbacks)
        if not self.verbose:
            yield callbacks
            return
        from shoal.search.screen import SearchScreen

        with SearchScreen("score", options.budget) as screen:
            callbacks.callbacks.append(_Drawing(screen))
            yield callbacks

    def _publish(self, result: SearchResult) -> None:
        outcome = result.outcome
        self.result_ = result
        self.model_ = outcome.model
        self.board_ = outcome.board
        self.best_member_ = outcome.best.recipe.member
        self.best_index_ = outcome.place
        self.best_score_ = outcome.board[outcome.place]["score"]
        self.honest_score_ = outcome.honest
        self.cv_results_ = cv_results(outcome)
        self.luck_ = variance_shares(outcome.groups)
        self.n_networks_ = len(result.candidates) * len(result.problem.folds)
        self.schema_ = outcome.model.schema
        self.ensemble_gain_ = outcome.ensemble_score - outcome.best_pooled
        self.explanation_ = result.explanation
        self.background_ = result.background

    @property
    def leaderboard_(self) -> Any:
        """A row for each recipe, the best first: a pandas DataFrame where pandas is installed."""
        board = self.__dict__.get("board_")
        if board is None:
            raise AttributeError(f"this {type(self).__name__} has no leaderboard_ yet: call fit first")
        try:
            from shoal.search.leaderboard_frame import leaderboard_frame
        except ModuleNotFoundError:
            return board
        return leaderboard_frame(board)

    @property
    def importance_(self) -> Importances:
        """By how much the score falls when each column is shuffled, the largest first, with intervals."""
        return importance_of(self)

    def explain(
        self, X: Any, *, background: Any = None, seconds: float | None = None, exact: bool = False
    ) -> RowExplanations:
        """What each column adds to the prediction of each row (Shapley values, by sampling).

        background  rows to compare with; None: a sample of the training data
        seconds     at most, about; None: as many samples as are usual
        exact       from all sets of columns; for at most 8 columns
        """
        check_is_fitted(self)
        rows = background_of(self) if background is None else new_table(self, background)
        return explain_estimator(self, new_table(self, X), rows, seconds, exact, threads_of(self.n_jobs))

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write the report of the search as one HTML page that works offline, and say where it is."""
        from shoal.report import write_search_page
        from shoal.search.report_data import Context, report_data

        check_is_fitted(self)
        result: SearchResult | None = getattr(self, "result_", None)
        if result is None:
            raise UserError(
                "report needs what happened in the search, which files and pickles of a model do not hold; call it "
                "after fit, before saving (`shoal search` writes report.html beside its model)"
            )
        context = Context(title or f"{len(result.table):,} rows", result.target, self.notes_, self.budget)
        return write_search_page(report_data(self, result.table, context), Path(path))

    def __getstate__(self) -> dict[str, Any]:
        """Pickles hold what prediction and reading the results need, not every network that was ever trained."""
        state = dict(super().__getstate__())
        state.pop("result_", None)
        return state

    # ---- predicting ----

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """(n, 2): the lowest and the highest value to expect of each row; of several numbers (n, n_outputs, 2).

        The truth is inside for about `coverage` of all rows like those of the training data, in one number at a time.
        """
        check_is_fitted(self)
        found = predict_interval(self.model_, new_table(self, X), coverage, threads_of(self.n_jobs))
        return found[:, 0] if getattr(self, "one_column_", False) else found

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """(n, n_classes) of True and False: the classes of `classes_` that a row may have, one at least.

        The true class is among them for about `coverage` of all rows like those of the training data.
        """
        check_is_fitted(self)
        return predict_set(self.model_, new_table(self, X), coverage, threads_of(self.n_jobs))

    def strange(self, X: Any, share: float = SHARE) -> Strange:
        """How unlike the training data rows are: `p_values`, `marked`, and the `columns` that make marked rows so.

        Of rows from the same source, about `share` or fewer are marked.
        """
        check_is_fitted(self)
        return strange(self.model_, new_table(self, X), share)

    def _raw(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.predict(new_table(self, X), threads=threads_of(self.n_jobs))

    def _encode_target(self, y: Any, n: int) -> tuple[Task, np.ndarray]:
        raise NotImplementedError

    def _target(self, y: Any, n: int) -> np.ndarray:
        if y is None:
            raise UserError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return target_array(y, n, self._target_name(y))

    def _target_name(self, y: Any) -> str:
        return target_name(y, getattr(self, "target_name_", None))

    def _check_rows(self, task: Task, target: np.ndarray, weight: np.ndarray) -> None:
        used = int((weight > 0).sum())
        if used < 2:
            raise UserError(f"a search needs at least 2 rows with a weight above zero; got n_samples={used}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = False
        return tags


@contextmanager
def _journal(
    folder: Any, opened: Journal | None, data: TrainingData, options: SearchOptions
) -> Iterator[Journal | None]:
    """The journal in a folder, which is ours while we write into it; or the one that is open already."""
    if folder is None or opened is not None:
        yield opened
        return
    try:
        Path(folder).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        lock = take(Path(folder))
    except OSError as error:
        raise UserError(f"journal={str(folder)!r} cannot be used ({error.strerror}); give another folder") from None
    try:
        yield Journal(Path(folder), whose="" if options.budget is None else search_digest(data, options))
    finally:
        lock.release()


class _Drawing:
    """Shows progress where fit was called."""

    def __init__(self, screen: Any) -> None:
        self.screen = screen

    def started(self, started: Started) -> None:
        self.screen.metric = started.metric

    def progress(self, progress: Progress) -> None:
        self.screen.watch(progress)
        self.screen.draw()


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
        strategy: Any = "halving",
        recipes: int = 100,
        budget: float | None = None,
        cv: Any = None,
        scoring: Any = None,
        seeds: int = 3,
        epochs: int | None = None,
        ensemble: bool = True,
        compact: bool = False,
        refit: bool | str = "auto",
        group_repeats: bool = True,
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        kinds: Any = None,
        callbacks: Any = None,
        executor: Any = None,
        journal: Any = None,
        explain_seconds: float | None = None,
    ) -> None:
        super().__init__(
            space, strategy=strategy, recipes=recipes, budget=budget, cv=cv, scoring=scoring, seeds=seeds,
            epochs=epochs, ensemble=ensemble, compact=compact, refit=refit, group_repeats=group_repeats, n_jobs=n_jobs,
            random_state=random_state, verbose=verbose, kinds=kinds, callbacks=callbacks, executor=executor,
            journal=journal, explain_seconds=explain_seconds,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, time: Any = None) -> ShoalClassifier:
        return self._fit(X, y, sample_weight=sample_weight, groups=groups, time=time)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, n_classes); for several labels at once (n, n_labels), the probability of each."""
        return self._raw(X)

    def predict(self, X: Any) -> np.ndarray:
        probability = self._raw(X)
        if self.model_.task.kind == MULTILABEL:
            return (probability > 0.5).astype(int)
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    def _encode_target(self, y: Any, n: int) -> tuple[Task, np.ndarray]:
        task, target, self.classes_ = classes_of(self._target(y, n))
        return task, target

    def _check_rows(self, task: Task, target: np.ndarray, weight: np.ndarray) -> None:
        super()._check_rows(task, target, weight)
        refuse_one_class(task, target, weight, self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class ShoalRegressor(RegressorMixin, _ShoalEstimator):
    """Search for networks that predict numbers, one or several at once, and combine the best of them."""

    __doc__ += "\n" + _ShoalEstimator.__doc__.partition("\n")[2]  # type: ignore[union-attr]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, time: Any = None) -> ShoalRegressor:
        return self._fit(X, y, sample_weight=sample_weight, groups=groups, time=time)

    def predict(self, X: Any) -> np.ndarray:
        values = self._raw(X)
        return values[:, 0] if self.one_column_ else values

    def _encode_target(self, y: Any, n: int) -> tuple[Task, np.ndarray]:
        name = self._target_name(y)
        y = self._target(y, n)
        self.one_column_ = y.ndim == 1
        return numbers_of(y, name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

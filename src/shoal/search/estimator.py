"""Shared code of the two estimators of a search: fitting, results, certainty and explanations."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal.callbacks import Callbacks
from shoal.conformal.strangeness import SHARE, Strange
from shoal.console.notebook import in_notebook
from shoal.errors import UserError, WrongType
from shoal.explain.results import Importances
from shoal.explain.rows import RowExplanations
from shoal.files.plain_files import PRIVATE
from shoal.models.certainty import predict_interval, predict_set, strange
from shoal.report import write_search_page
from shoal.runs.journal import Journal
from shoal.runs.lock import take
from shoal.search.budget.clock import Clock
from shoal.search.notebook import SearchOutput, interrupt_keeps_best
from shoal.search.options import SearchOptions, options_of_estimator, threads_of
from shoal.search.problem.data import TrainingData, search_digest, training_data
from shoal.search.problem.roles import Roles
from shoal.search.results.leaderboard import cv_results, variance_shares
from shoal.search.results.report_data import Context, report_data
from shoal.search.results.result import Earlier, SearchResult
from shoal.search.results.row_explanations import background_of, explain_estimator, importance_of
from shoal.search.run import design_search, run_search
from shoal.search.screen import SearchScreen
from shoal.search.table_estimators import TableEstimator
from shoal.tables.inputs import new_table, training_table
from shoal.tables.schema import Schema
from shoal.validate import shown


@dataclass(eq=False, repr=False)
class SearchEstimator(TableEstimator):
    """What both estimators share. Constructors only store; `fit` checks.

    Parameters
    ----------
    space : dict, Member or list of Member, optional
        Which recipes to try. None takes the default space. A dict has alternatives or scipy distributions for fields
        of Member (and "encoding"), as in `shoal.grid`. A Member, or a list of them, is tried as it is.
    strategy : str or SearchStrategy, default "halving"
        "halving" (the better third continues), "random", "grid", "optuna", or a custom
        `shoal.search.strategies.SearchStrategy`.
    recipes : int, optional
        How many recipes to try. None means 100, unless there is a budget.
    budget : float, optional
        Seconds for the whole fit. Give recipes or budget, not both.
    cv : int, splitter or iterable of pairs, optional
        None (by the number of rows), a number of folds, any scikit-learn splitter, or pairs of row numbers.
    scoring : str or callable, optional
        What the leaderboard and the honest score show; None: accuracy or R2. Others are "balanced_accuracy",
        "roc_auc" (the mean over classes, each against the rest), "f1" (of two classes that of the second one, of more
        the mean), "f1_macro", "neg_log_loss", "neg_brier_score"; for numbers "neg_mean_absolute_error",
        "neg_mean_squared_error"; any other name of scikit-learn, a scorer of make_scorer, or a function of
        (estimator, X, y) that looks at predictions only.
    seeds : int, default 3
        How many seeds train each of the best recipes, to tell luck from architecture.
    epochs : int, optional
        Epochs of the longest default recipe, and of members without epochs. None decides by the number of rows.
    model : {"ensemble", "compact", "best"}
        What to deliver: "ensemble", the weighted average of the best recipes; "compact", the fewest networks whose
        out-of-fold loss is within one standard error of the ensemble's (`result_.outcome.compact` has what that costs
        and saves); "best", the best recipe alone.
    refit : bool or "auto", default "auto"
        Train the chosen recipes again on all rows. "auto" does so only for folds like those of time series.
    group_repeats : bool, default True
        Keep rows with equal inputs in one fold where they are copies of each other.
    n_jobs : int, optional
        Threads. None uses all cores.
    random_state : int or RandomState, default 0
        The same number gives the same bits, unless a budget ends the search.
    verbose : bool, default False
        Show progress; in a notebook as a picture, a dot for each recipe.
    kinds : dict of str, optional
        What columns hold, where Shoal should not infer it, as in {"zip": "category"}: "number", "category", "date",
        "text", "boolean", "drop", or a custom `shoal.encoders.column.ColumnEncoder`.
    callbacks : list of Callback, optional
        A list of objects that watch the search and may stop it (see `shoal.callbacks.Callback`); the events are those
        of `shoal.search.events`.
    executor : str or Executor, optional
        Where to train: None uses this process, "local:4" starts four worker processes; "dask://host:8786", "mpi", or
        any concurrent.futures.Executor. The bits are the same.
    explain_seconds : float, optional
        Seconds for finding out which columns matter. None uses what is left of the budget, or few; 0 turns it off.
    journal : path, optional
        A folder for finished work: after a crash, the same fit resumes from it; with other data or parameters nothing
        in it is used.

    Attributes
    ----------
    honest_score_ : HonestScore
        What to expect on new rows, with an interval.
    leaderboard_ : DataFrame
        Every recipe, best first; `board_` is the same without pandas.
    importance_ : Importances
        By how much the score falls when a column is shuffled, with intervals.
    explanation_ : Explanation
        Importances and the effects of columns.
    best_member_, best_score_, best_index_, cv_results_ : Member, float, int, dict
        As in scikit-learn's searches.
    luck_, ensemble_gain_, n_networks_ : dict, float, int
        How much of the differences is luck; what averaging gains; how many networks were trained.
    schema_, reading_, notes_ : Schema, Reading, list of str
        What each column is; how the file was read; notes on rows that depend on each other.
    model_, background_ : Model, Table
        The model; rows that `explain` compares with.
    result_ : SearchResult
        All that was tried (not in files and pickles).

    Notes
    -----
    `fit` takes three more arguments about the rows, each an array or the name of a column of X. `sample_weight` says
    how much rows count. `groups` keeps rows of a group in one fold. `time` scores folds on later rows than they were
    trained on. Columns of weights and groups are not inputs, and new rows need not have them.
    """

    kind: ClassVar[str]  # what it predicts: classification or regression
    model_kind: ClassVar[str] = "search"  # see `shoal.models.saving`

    space: Any = None
    _: KW_ONLY
    strategy: Any = "halving"
    recipes: int | None = None
    budget: float | None = None
    cv: Any = None
    scoring: Any = None
    seeds: int = 3
    epochs: int | None = None
    model: str = "ensemble"
    refit: bool | str = "auto"
    group_repeats: bool = True
    n_jobs: int | None = None
    random_state: Any = 0
    verbose: bool = False
    kinds: Any = None
    callbacks: Any = None
    executor: Any = None
    journal: Any = None
    explain_seconds: float | None = None

    # ---- fitting ----

    def repeat(self, X: Any, y: Any, earlier: SearchResult | Earlier, **rows: Any) -> Any:
        """Fit by doing an earlier search on the same data again, to the bit, without looking at the clock.

        Parameters
        ----------
        X, y : as in `fit`
            The same data as in the earlier search.
        earlier : SearchResult
            The `result_` of a fitted model.
        **rows : as in `fit`
            What else `fit` was given: sample_weight, groups, time.

        Returns
        -------
        self
        """
        earlier = earlier.as_earlier() if isinstance(earlier, SearchResult) else earlier
        if not isinstance(earlier, Earlier):
            raise WrongType(f"repeat needs the result of a search, such as model.result_; got {shown(earlier)}")
        return self._fit(X, y, rows, clock=Clock(), earlier=earlier)

    def _fit(
        self,
        X: Any,
        y: Any,
        rows: Mapping[str, Any],
        *,
        clock: Clock | None = None,
        earlier: Earlier | None = None,
        journal: Journal | None = None,
    ) -> Any:
        options = options_of_estimator(self)
        clock = clock or Clock(options.budget)
        data = self._data(X, y, rows)
        with self._watched(options, clock) as callbacks, _journal(self.journal, journal, data, options) as opened:
            design = design_search(data, options, clock=clock, journal=opened, earlier=earlier)
            for note in (*self.notes_, *([design.note] if design.note else [])):
                if callbacks.listens("note"):
                    callbacks.notify("note", note)
                else:
                    warnings.warn(note, stacklevel=3)
            result = run_search(data, options, callbacks, design=design)
        self._publish(result)
        return self

    def _data(self, X: Any, y: Any, rows: Mapping[str, Any]) -> TrainingData:
        """What was given, checked; `rows`: sample_weight, groups and time."""
        self.__dict__.pop("reading_", None)  # of the file of an earlier fit
        if y is None:
            raise UserError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        table, plain = training_table(self, X)
        roles = Roles.of(table, self.cv, **rows)
        schema = Schema.of(table, plain=plain, kinds=roles.kinds(self.kinds))
        for note in schema.unlike:
            warnings.warn(note, UserWarning, stacklevel=4)
        weight = getattr(self, "class_weight", None)
        data = training_data(
            table, y, self.kind, roles=roles, schema=schema, group_repeats=self.group_repeats, class_weight=weight
        )
        self.notes_ = [note.for_python() for note in data.notes]
        return replace(data, X=X)

    @contextmanager
    def _watched(self, options: SearchOptions, clock: Clock) -> Iterator[Callbacks]:
        """The user's callbacks; with `verbose`, progress on the screen as well, or in the notebook."""
        callbacks = Callbacks(self.callbacks)
        with interrupt_keeps_best(clock) as needed:
            callbacks.callbacks += needed
            if not self.verbose:
                yield callbacks
                return
            with (SearchOutput if in_notebook() else SearchScreen)("score", options.budget) as shown:
                callbacks.callbacks.append(shown)
                yield callbacks

    def _publish(self, result: SearchResult) -> None:
        outcome = result.outcome
        self.result_ = result
        self._publish_target(result.data.classes, result.data.one_column)
        self.model_ = outcome.model
        self.board_ = outcome.board
        self.best_member_ = outcome.best.recipe.member
        self.best_index_ = outcome.place
        self.best_score_ = outcome.board[outcome.place]["score"]
        self.honest_score_ = outcome.honest
        self.cv_results_ = cv_results(outcome.board, outcome.fold_scores, outcome.params)
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
            return board.to_pandas()
        except ModuleNotFoundError:
            return board

    @property
    def importance_(self) -> Importances:
        """By how much the score falls when each column is shuffled, the largest first, with intervals."""
        return importance_of(self)

    def explain(
        self, X: Any, *, background: Any = None, seconds: float | None = None, exact: bool = False
    ) -> RowExplanations:
        """Explain each row: the contribution of each column to its prediction (Shapley values, by sampling).

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            Rows to explain.
        background : array or frame, optional
            Rows to compare with; by default a sample of the training data.
        seconds : float, optional
            At most, about; by default as many samples as are usual.
        exact : bool
            From all sets of columns; for at most 8 columns.

        Returns
        -------
        RowExplanations
            `values` (n_rows, n_outputs, n_columns), with their intervals.
        """
        check_is_fitted(self)
        rows = background_of(self) if background is None else new_table(self, background)
        return explain_estimator(self, new_table(self, X), rows, seconds, exact, threads_of(self.n_jobs))

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write the report of the search as one HTML page that works offline.

        Parameters
        ----------
        path : path
            Where to write it.
        title : str, optional
            Its heading; by default the number of rows.

        Returns
        -------
        Path
            Where it is.
        """
        check_is_fitted(self)
        result: SearchResult | None = getattr(self, "result_", None)
        if result is None:
            raise UserError(
                "report needs what happened in the search, which files and pickles of a model do not hold; call it "
                "after fit, before saving (`shoal search` writes report.html beside its model)"
            )
        context = Context(title or f"{len(result.table):,} rows", self.notes_)
        return write_search_page(report_data(result, context), Path(path))

    def __getstate__(self) -> dict[str, Any]:
        """Pickles hold what prediction and reading the results need, not every network that was ever trained."""
        state = dict(super().__getstate__())
        state.pop("result_", None)
        return state

    # ---- predicting ----

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """The lowest and the highest value to expect of each row.

        The true value lies inside for about `coverage` of rows like the training data, in one number at a time.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.
        coverage : float, default 0.9
            The share of rows whose true value should lie inside.

        Returns
        -------
        array of shape (n_rows, 2)
            Of several numbers (n_rows, n_outputs, 2).
        """
        check_is_fitted(self)
        found = predict_interval(self.model_, new_table(self, X), coverage, threads_of(self.n_jobs))
        return found[:, 0] if getattr(self, "one_column_", False) else found

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """The classes that each row may have, one at least.

        The true class is among them for about `coverage` of all rows like those of the training data.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.
        coverage : float, default 0.9
            The share of rows whose true class should be among them.

        Returns
        -------
        bool array of shape (n_rows, n_classes)
            In the order of `classes_`.
        """
        check_is_fitted(self)
        return predict_set(self.model_, new_table(self, X), coverage, threads_of(self.n_jobs))

    def strange(self, X: Any, share: float = SHARE) -> Strange:
        """How unlike the training data rows are.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_columns)
            New rows.
        share : float, default 0.01
            Of rows from the same source, about this share or fewer are marked.

        Returns
        -------
        Strange
            `p_values` and `marked` of shape (n_rows,), and the `columns` that make marked rows so.
        """
        check_is_fitted(self)
        return strange(self.model_, new_table(self, X), share)


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

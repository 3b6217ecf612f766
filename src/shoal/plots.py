"""Figures for papers with matplotlib, as scikit-learn's displays: `from_estimator` computes, `plot` draws again.

Calibration, confusion matrices and ROC curves need no class here: scikit-learn's own displays take these estimators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal.errors import MissingPackage, UserError
from shoal.explain.results import Effect, Importance, Importances
from shoal.population.history import History
from shoal.report.shell.words import metric_name
from shoal.validate import nearest

__all__ = ["EffectDisplay", "ImportanceDisplay", "IntervalDisplay", "LossCurveDisplay"]

WORDS_TURNED = 4  # more words on an axis than this are turned


def _axes(ax: Any) -> Any:
    """The axes to draw into: those given, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise MissingPackage("figures need matplotlib: pip install 'shoal-ml[plots]'") from error
    return plt.subplots(layout="constrained")[1]


@dataclass
class _Drawn:
    """What `plot` leaves behind, as scikit-learn's displays do."""

    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    def _keep(self, ax: Any) -> Any:
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass
class ImportanceDisplay(_Drawn):
    """By how much the score falls when each column is shuffled, with intervals.

    Parameters
    ----------
    columns : sequence of Importance
        The columns to draw, the most important first.
    metric : str
        The score that falls.
    confidence : float
        Of the intervals.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shoal import ShoalClassifier
    >>> model = ShoalClassifier(recipes=2, seeds=1).fit(*load_iris(return_X_y=True, as_frame=True))
    >>> display = ImportanceDisplay.from_estimator(model, most=3)
    >>> len(display.ax_.get_yticks())
    3
    """

    columns: Sequence[Importance]
    metric: str
    confidence: float

    @classmethod
    def from_estimator(cls, estimator: Any, *, most: int = 15, ax: Any = None) -> ImportanceDisplay:
        """Draw what the search has found out about columns.

        Parameters
        ----------
        estimator : ShoalClassifier or ShoalRegressor
            Fitted.
        most : int, default 15
            How many columns to draw.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        ImportanceDisplay
        """
        check_is_fitted(estimator)
        found: Importances = estimator.importance_
        return cls(found.columns[:most], found.metric, found.confidence).plot(ax)

    def plot(self, ax: Any = None) -> ImportanceDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        ImportanceDisplay
        """
        ax, places = _axes(ax), np.arange(len(self.columns))[::-1]
        values = np.array([one.importance for one in self.columns])
        ends = np.array([[one.low for one in self.columns], [one.high for one in self.columns]])
        colours = ["C0" if one.matters else "0.75" for one in self.columns]
        ax.barh(places, values, color=colours, height=0.65)
        ax.hlines(places, ends[0], ends[1], color="0.2", linewidth=1.2)
        ax.axvline(0, color="0.2", linewidth=0.8)
        ax.set_yticks(places, [one.name for one in self.columns])
        ax.set_xlabel(f"fall of the {metric_name(self.metric)} ({self.confidence:.0%} intervals)")
        return self._keep(ax)


@dataclass
class EffectDisplay(_Drawn):
    """The prediction with one column set to each of some values, on average over rows (partial dependence).

    The band holds eight in ten networks of the ensemble. scikit-learn's `PartialDependenceDisplay` also works; it
    knows no band, and it predicts again.

    Parameters
    ----------
    effects : sequence of Effect
        Of one column: one for each output.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from shoal import ShoalRegressor
    >>> model = ShoalRegressor(recipes=2, seeds=1).fit(*load_diabetes(return_X_y=True, as_frame=True))
    >>> EffectDisplay.from_estimator(model, "bmi").ax_.get_xlabel()
    'bmi'
    """

    effects: Sequence[Effect]

    @classmethod
    def from_estimator(cls, estimator: Any, column: str | None = None, *, ax: Any = None) -> EffectDisplay:
        """Draw the effect of a column that the search has looked at.

        Parameters
        ----------
        estimator : ShoalClassifier or ShoalRegressor
            Fitted.
        column : str, optional
            Its name; by default the one with the largest importance. Effects are known of the most important columns.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        EffectDisplay
        """
        check_is_fitted(estimator)
        known = () if estimator.explanation_ is None else estimator.explanation_.effects
        names = list(dict.fromkeys(one.column for one in known))
        if not names:
            raise UserError("no effects are known; fit with more time, or explain_seconds=10")
        chosen = names[0] if column is None else str(column)
        if chosen not in names:
            raise UserError(f"the effect of {chosen!r} is not known; one of {', '.join(names)}{nearest(chosen, names)}")
        return cls([one for one in known if one.column == chosen]).plot(ax)

    def plot(self, ax: Any = None) -> EffectDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        EffectDisplay
        """
        ax, first = _axes(ax), self.effects[0]
        numeric = all(isinstance(value, int | float) for value in first.values)
        places = np.array(first.values, float) if numeric else np.arange(len(first.values))
        for place, one in enumerate(self.effects):
            colour = f"C{place}"
            if numeric:
                ax.plot(places, one.mean, color=colour, label=one.output)
                ax.fill_between(places, one.low, one.high, color=colour, alpha=0.2, linewidth=0)
            else:
                shifted = places + 0.15 * (place - (len(self.effects) - 1) / 2)
                ends = np.abs(np.array([one.low, one.high]) - np.array(one.mean))
                ax.errorbar(shifted, one.mean, ends, fmt="o", color=colour, label=one.output)
        if not numeric:
            turned = {"rotation": 40, "ha": "right"} if len(places) > WORDS_TURNED else {}
            ax.set_xticks(places, [str(value) for value in first.values], **turned)
        if len(self.effects) > 1:
            ax.legend()
        ax.set_xlabel(first.column)
        said = "probability" if len(self.effects) > 1 or first.output is None else f"probability of {first.output}"
        ax.set_ylabel(said if first.share else "prediction")
        return self._keep(ax)


@dataclass
class LossCurveDisplay(_Drawn):
    """The loss by epoch: dashed while training, solid on held-out rows.

    scikit-learn's `LearningCurveDisplay`, the score by the number of rows, also works with these estimators.

    Parameters
    ----------
    curves : dict
        By name: the loss while training, and the loss on held-out rows, each by epoch.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shoal import ShoalClassifier
    >>> model = ShoalClassifier(recipes=4, seeds=1).fit(*load_iris(return_X_y=True))
    >>> len(LossCurveDisplay.from_estimator(model, most=2).curves)
    2
    """

    curves: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, most: int = 3, ax: Any = None) -> LossCurveDisplay:
        """Draw the curves of the best recipes, means over folds.

        Parameters
        ----------
        estimator : ShoalClassifier or ShoalRegressor
            Just fitted: files and pickles hold no curves.
        most : int, default 3
            How many recipes to draw.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        LossCurveDisplay
        """
        check_is_fitted(estimator)
        result = getattr(estimator, "result_", None)
        if result is None:
            raise UserError("loss curves need what happened in the search, which files and pickles do not hold")
        curves = {}
        for row, (one, *_) in zip(result.outcome.board, result.outcome.groups[:most], strict=False):
            activation = "" if row["hidden"] == row["activation"] else f" {row['activation']}"
            curves[f"{row['rank']}. {row['hidden']}{activation}, {row['encoding']}"] = one.train_curve, one.valid_curve
        return cls(curves).plot(ax)

    @classmethod
    def from_history(
        cls, history: History, members: Sequence[int] | None = None, *, ax: Any = None
    ) -> LossCurveDisplay:
        """Draw the curves of members of a population.

        Parameters
        ----------
        history : History
            What `Population.fit` returned.
        members : sequence of int, optional
            Which members; by default the first three.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        LossCurveDisplay
        """
        chosen = range(min(3, len(history.loss))) if members is None else members
        return cls({f"member {k}": (history.loss[k], history.valid_loss[k]) for k in chosen}).plot(ax)

    def plot(self, ax: Any = None) -> LossCurveDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        LossCurveDisplay
        """
        ax = _axes(ax)
        for place, (name, (train, valid)) in enumerate(self.curves.items()):
            held_out = np.isfinite(valid).any()
            for curve, style, labelled in ((train, "--", not held_out), (valid, "-", held_out)):
                epochs = np.arange(1, len(curve) + 1)
                ax.plot(epochs, curve, style, color=f"C{place}", linewidth=1.6, label=name if labelled else None)
        ax.legend(fontsize="small", title="dashed: training, solid: held out", title_fontsize="small")
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss")
        return self._keep(ax)


@dataclass
class IntervalDisplay(_Drawn):
    """Predictions with their intervals, in the order of the predictions, and the true values.

    Parameters
    ----------
    predicted : array of shape (n_rows,)
        Predictions.
    intervals : array of shape (n_rows, 2)
        The lowest and the highest value to expect of each row.
    y : array of shape (n_rows,)
        True values.
    coverage : float
        The share of rows whose true value should lie inside.

    Attributes
    ----------
    covered_ : float
        The share of rows whose true value does.
    ax_, figure_ : Axes, Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from shoal import ShoalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ShoalRegressor(recipes=2, seeds=1).fit(X[100:], y[100:])
    >>> IntervalDisplay.from_estimator(model, X[:100], y[:100]).covered_ > 0.7
    True
    """

    predicted: np.ndarray
    intervals: np.ndarray
    y: np.ndarray
    coverage: float

    @property
    def covered_(self) -> float:
        """The share of rows whose true value lies inside."""
        low, high = self.intervals.T
        return float(((low <= self.y) & (self.y <= high)).mean())

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, coverage: float = 0.9, ax: Any = None
    ) -> IntervalDisplay:
        """Predict rows that the model was not fitted on, and draw them.

        Parameters
        ----------
        estimator : ShoalRegressor
            Fitted, of one number.
        X : array or frame of shape (n_rows, n_columns)
            New rows.
        y : array of shape (n_rows,)
            Their true values.
        coverage : float, default 0.9
            The share of rows whose true value should lie inside.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        IntervalDisplay
        """
        check_is_fitted(estimator)
        intervals = estimator.predict_interval(X, coverage=coverage)
        if intervals.ndim != 2:
            raise UserError("IntervalDisplay draws a model of one number; this one has several")
        return cls(estimator.predict(X), intervals, np.asarray(y, float), coverage).plot(ax)

    def plot(self, ax: Any = None) -> IntervalDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        IntervalDisplay
        """
        ax, order = _axes(ax), np.argsort(self.predicted, kind="stable")
        places, (low, high), y = np.arange(len(order)), self.intervals[order].T, self.y[order]
        inside = (low <= y) & (y <= high)
        ax.fill_between(places, low, high, step="mid", color="C0", alpha=0.2, linewidth=0, label="interval")
        ax.plot(places, self.predicted[order], color="C0", linewidth=1.4, label="prediction")
        ax.plot(places[inside], y[inside], ".", color="0.25", markersize=4, label="inside")
        ax.plot(places[~inside], y[~inside], "x", color="C3", markersize=5, label="outside")
        ax.set_xlabel("rows, by prediction")
        ax.set_title(f"{self.covered_:.1%} inside, {self.coverage:.0%} asked", fontsize="medium")
        ax.legend(fontsize="small")
        return self._keep(ax)

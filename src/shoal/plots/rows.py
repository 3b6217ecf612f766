"""Figures of predictions: intervals of numbers, and probabilities of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal.errors import UserError
from shoal.plots.display import Display, literal


@dataclass
class IntervalDisplay(Display):
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

    def _draw(self, ax: Any) -> None:
        order = np.argsort(self.predicted, kind="stable")
        places, (low, high), y = np.arange(len(order)), self.intervals[order].T, self.y[order]
        inside = (low <= y) & (y <= high)
        ax.fill_between(places, low, high, step="mid", color="C0", alpha=0.2, linewidth=0, label="interval")
        ax.plot(places, self.predicted[order], color="C0", linewidth=1.4, label="prediction")
        ax.plot(places[inside], y[inside], ".", color="0.25", markersize=4, label="inside")
        ax.plot(places[~inside], y[~inside], "x", color="C3", markersize=5, label="outside")
        ax.set_xlabel("rows, by prediction")
        ax.set_title(f"{self.covered_:.1%} inside, {self.coverage:.0%} asked", fontsize="medium")
        ax.legend(fontsize="small")


@dataclass
class CalibrationDisplay(Display):
    """How often what was predicted with a probability came true.

    For two classes it is about the second one, as in scikit-learn's `CalibrationDisplay`. For more it is about the
    class that was predicted, where scikit-learn's refuses. Larger dots stand for more rows.

    Parameters
    ----------
    predicted : array of shape (n_bins,)
        The mean predicted probability of each bin that has rows.
    observed : array of shape (n_bins,)
        The share of its rows in which that came true.
    rows : array of shape (n_bins,)
        How many rows it has.
    about : str
        Whose probability it is.

    Attributes
    ----------
    ax_, figure_ : Axes, Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shoal import ShoalClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ShoalClassifier(recipes=2, seeds=1).fit(X[::2], y[::2])
    >>> int(CalibrationDisplay.from_estimator(model, X[1::2], y[1::2]).rows.sum())
    75
    """

    predicted: np.ndarray
    observed: np.ndarray
    rows: np.ndarray
    about: str

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, n_bins: int = 10, ax: Any = None) -> CalibrationDisplay:
        """Predict rows that the model was not fitted on, and draw how often it was right.

        Parameters
        ----------
        estimator : ShoalClassifier
            Fitted, of one target.
        X : array or frame of shape (n_rows, n_columns)
            New rows.
        y : array of shape (n_rows,)
            Their true classes.
        n_bins : int, default 10
            Of equal width. Those without rows are not drawn.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        CalibrationDisplay
        """
        check_is_fitted(estimator)
        y = np.asarray(y)
        if not hasattr(estimator, "predict_proba") or y.ndim != 1:
            raise UserError("CalibrationDisplay draws the probabilities of a classifier of one target")
        p, classes = estimator.predict_proba(X), estimator.classes_
        if len(classes) == 2:
            said, true, about = p[:, 1], y == classes[1], str(classes[1])
        else:
            said, true, about = p.max(axis=1), classes[p.argmax(axis=1)] == y, "the predicted class"
        place = np.minimum((said * n_bins).astype(int), n_bins - 1)
        rows = np.bincount(place, minlength=n_bins)
        found = rows > 0
        means = [np.bincount(place, values, n_bins)[found] / rows[found] for values in (said, true)]
        return cls(means[0], means[1], rows[found], about).plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.plot([0, 1], [0, 1], ":", color="0.4", linewidth=1.2, label="perfect")
        ax.plot(self.predicted, self.observed, color="C0", linewidth=1.2)
        ax.scatter(self.predicted, self.observed, 20 + 100 * self.rows / self.rows.max(), color="C0", label="observed")
        ax.set(xlabel=f"predicted probability of {literal(self.about)}", ylabel="how often it was so", aspect="equal")
        ax.legend(fontsize="small")

"""Figures of columns: which matter, and the effect of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal.errors import UserError
from shoal.explain.results import Effect, Importance, Importances
from shoal.plots.display import Display, literal
from shoal.report.shell.words import metric_name
from shoal.validate import nearest

WORDS_TURNED = 4  # more words on an axis than this are turned


@dataclass
class ImportanceDisplay(Display):
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

    def _draw(self, ax: Any) -> None:
        places = np.arange(len(self.columns))[::-1]
        values = np.array([one.importance for one in self.columns])
        ends = np.array([[one.low for one in self.columns], [one.high for one in self.columns]])
        colours = ["C0" if one.matters else "0.75" for one in self.columns]
        ax.barh(places, values, color=colours, height=0.65)
        ax.hlines(places, ends[0], ends[1], color="0.2", linewidth=1.2)
        ax.axvline(0, color="0.2", linewidth=0.8)
        ax.set_yticks(places, [literal(one.name) for one in self.columns])
        ax.set_xlabel(f"fall of the {literal(metric_name(self.metric))} ({self.confidence:.0%} intervals)")


@dataclass
class EffectDisplay(Display):
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

    def _draw(self, ax: Any) -> None:
        first = self.effects[0]
        numeric = all(isinstance(value, int | float) for value in first.values)
        places = np.array(first.values, float) if numeric else np.arange(len(first.values))
        for place, one in enumerate(self.effects):
            colour, name = f"C{place}", None if one.output is None else literal(one.output)
            if numeric:
                ax.plot(places, one.mean, color=colour, label=name)
                ax.fill_between(places, one.low, one.high, color=colour, alpha=0.2, linewidth=0)
            else:
                shifted = places + 0.15 * (place - (len(self.effects) - 1) / 2)
                ends = np.abs(np.array([one.low, one.high]) - np.array(one.mean))
                ax.errorbar(shifted, one.mean, ends, fmt="o", color=colour, label=name)
        if not numeric:
            turned = {"rotation": 40, "ha": "right"} if len(places) > WORDS_TURNED else {}
            ax.set_xticks(places, [literal(value) for value in first.values], **turned)
        if len(self.effects) > 1:
            ax.legend()
        ax.set_xlabel(literal(first.column))
        of = "" if len(self.effects) > 1 or first.output is None else f" of {literal(first.output)}"
        ax.set_ylabel(f"probability{of}" if first.share else "prediction")

"""Figures of the loss by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shoal.errors import UserError
from shoal.plots.display import Display
from shoal.population.history import History


@dataclass
class LossCurveDisplay(Display):
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

    def _draw(self, ax: Any) -> None:
        for place, (name, (train, valid)) in enumerate(self.curves.items()):
            held_out = np.isfinite(valid).any()
            for curve, style, labelled in ((train, "--", not held_out), (valid, "-", held_out)):
                epochs = np.arange(1, len(curve) + 1)
                ax.plot(epochs, curve, style, color=f"C{place}", linewidth=1.6, label=name if labelled else None)
        ax.legend(fontsize="small", title="dashed: training, solid: held out", title_fontsize="small")
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss")

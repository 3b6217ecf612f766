"""Figures for papers with matplotlib, as scikit-learn's displays: `from_estimator` computes, `plot` draws again.

Confusion matrices, ROC curves and learning curves need no class here: scikit-learn's displays take these estimators.
"""

from shoal.plots.columns import EffectDisplay, ImportanceDisplay
from shoal.plots.losses import LossCurveDisplay
from shoal.plots.rows import CalibrationDisplay, IntervalDisplay

__all__ = ["CalibrationDisplay", "EffectDisplay", "ImportanceDisplay", "IntervalDisplay", "LossCurveDisplay"]

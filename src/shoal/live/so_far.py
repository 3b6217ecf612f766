"""What the best network so far may be worth: a rough range, corrected for choosing the best of many.

The honest score of a finished search comes from a bootstrap (`search/scoring/honest.py`), which takes seconds. This one
takes a few additions for each candidate, so that it can be shown while networks train.
"""

from __future__ import annotations

import math

import numpy as np

CONFIDENCE = 0.95
FEWEST_FOLDS = 3


class RangeSoFar:
    """Each fold is scored by the candidate that is best on the other folds, so no fold chooses its own score.

    least, most  of any score

    Examples
    --------
    >>> so_far = RangeSoFar(most=1.0)
    >>> so_far.add(np.array([[0.7, 0.8, 0.9], [0.6, 0.5, 0.6]]))
    >>> [round(value, 2) for value in so_far.interval()]
    [0.55, 0.8, 1.0]
    """

    def __init__(self, least: float = -math.inf, most: float = math.inf) -> None:
        self.least, self.most = least, most
        self._others = np.empty(0)  # (n_folds,) the best mean over all other folds
        self._held_out = np.empty(0)  # (n_folds,) the score of that candidate on the fold

    def add(self, scores: np.ndarray) -> None:
        """Candidates with their scores, (n, n_folds). Those that diverged do not count."""
        scores = scores[np.isfinite(scores).all(axis=1)]
        folds = scores.shape[1]
        if not len(scores) or folds < FEWEST_FOLDS:
            return
        if len(self._others) != folds:
            self._others, self._held_out = np.full(folds, -np.inf), np.zeros(folds)
        others = (scores.sum(axis=1, keepdims=True) - scores) / (folds - 1)
        best, fold = others.argmax(axis=0), np.arange(folds)
        better = others[best, fold] > self._others
        self._others[better] = others[best, fold][better]
        self._held_out[better] = scores[best, fold][better]

    def interval(self) -> tuple[float, float, float] | None:
        """Low, middle and high; None: there are too few folds."""
        from scipy.special import stdtrit

        folds = len(self._held_out)
        if not folds:
            return None
        middle, spread = float(self._held_out.mean()), float(self._held_out.std(ddof=1))
        half = float(stdtrit(folds - 1, (1 + CONFIDENCE) / 2)) * spread / math.sqrt(folds)
        return max(middle - half, self.least), middle, min(middle + half, self.most)

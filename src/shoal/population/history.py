"""Training curves per member."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.console.notebook import InNotebook

CURVES = ("loss", "valid_loss", "valid_score")


@dataclass(eq=False)
class History(InNotebook):
    """Curves of shape (n_members, n_epochs); NaN where a member was not trained or had nothing to be scored on.

    `loss` is the mean training loss seen during the epoch, `valid_loss` and `valid_score` (accuracy, or R2 for
    squared error) are measured after it on the member's own validation rows. In the epoch in which a member diverged
    its losses are infinite and its score is minus infinity, so that it is never taken for the best.
    """

    loss: np.ndarray
    valid_loss: np.ndarray
    valid_score: np.ndarray
    seconds: float = 0.0  # spent in engines, over all fits

    @staticmethod
    def empty(n_members: int, n_epochs: int = 0) -> History:
        shape = n_members, n_epochs
        return History(np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan))

    @property
    def n_epochs(self) -> int:
        return int(self.loss.shape[1])

    def last(self, curve: str = "loss") -> np.ndarray:
        """The newest value of each member's curve; NaN for a member that has none."""
        values = getattr(self, curve)
        if values.shape[1] == 0:
            return np.full(len(values), np.nan)
        seen = ~np.isnan(values)
        position = values.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)
        return np.asarray(values[np.arange(len(values)), position])

    def record(self, which: np.ndarray, start: np.ndarray, new: History) -> None:
        """Add curves, such as those of one run of an engine: which[k] had done start[k] epochs when they began."""
        needed = int(start.max(initial=0)) + new.n_epochs
        columns = start[:, None] + np.arange(new.n_epochs)
        for name in CURVES:
            old = getattr(self, name)
            if needed > old.shape[1]:
                old = np.pad(old, ((0, 0), (0, needed - old.shape[1])), constant_values=np.nan)
                setattr(self, name, old)
            old[which[:, None], columns] = getattr(new, name)

    def trim(self, n_epochs: int) -> None:
        """Drop the epochs after `n_epochs`: a stopped run has reserved more than it used."""
        for name in CURVES:
            setattr(self, name, getattr(self, name)[:, :n_epochs])

    def select(self, members: np.ndarray) -> History:
        return History(self.loss[members], self.valid_loss[members], self.valid_score[members], self.seconds)

    def __repr__(self) -> str:
        text = f"History({len(self.loss)} members, {self.n_epochs} epochs, {self.seconds:.2f} s"
        if self.n_epochs and np.isfinite(self.loss).any():
            text += f", loss {np.nanmedian(self.loss[:, 0]):.4g} -> {np.nanmedian(self.last()):.4g} (median)"
        return text + ")"

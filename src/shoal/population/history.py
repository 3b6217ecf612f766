"""Training curves per member."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

CURVES = ("loss", "valid_loss", "valid_score")


def _no_epochs() -> np.ndarray:
    return np.empty((0, 0))


@dataclass(eq=False)
class History:
    """Curves of shape (n_members, n_epochs); NaN where a member was not trained or had nothing to be scored on.

    `loss` is the mean training loss seen during the epoch, `valid_loss` and `valid_score` (accuracy, or R2 for
    squared error) are measured after it on the member's own validation rows. In the epoch in which a member diverged
    its losses are infinite and its score is minus infinity, so that it is never taken for the best.
    """

    loss: np.ndarray = field(default_factory=_no_epochs)
    valid_loss: np.ndarray = field(default_factory=_no_epochs)
    valid_score: np.ndarray = field(default_factory=_no_epochs)
    seconds: float = 0.0  # spent in engines, over all fits

    @staticmethod
    def empty(n_members: int) -> History:
        return History(**{name: np.empty((n_members, 0)) for name in CURVES})  # type: ignore[arg-type]

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

    def record(self, which: np.ndarray, start: np.ndarray, **curves: np.ndarray) -> None:
        """Add the curves of one run of an engine: member which[k] had done start[k] epochs when the run began."""
        span = next(iter(curves.values())).shape[1]
        needed = int(start.max(initial=0)) + span
        columns = start[:, None] + np.arange(span)
        for name in CURVES:
            old = getattr(self, name)
            if needed > old.shape[1]:
                new = np.full((len(old), needed), np.nan)
                new[:, : old.shape[1]] = old
                setattr(self, name, new)
                old = new
            old[which[:, None], columns] = curves[name]

    def trim(self, n_epochs: int) -> None:
        """Drop the epochs after `n_epochs`: a stopped run has reserved more than it used."""
        for name in CURVES:
            setattr(self, name, getattr(self, name)[:, :n_epochs])

    def select(self, members: np.ndarray) -> History:
        curves = {name: getattr(self, name)[members].copy() for name in CURVES}
        return History(**curves, seconds=self.seconds)

    def __repr__(self) -> str:
        text = f"History({len(self.loss)} members, {self.n_epochs} epochs, {self.seconds:.2f} s"
        if self.n_epochs and np.isfinite(self.loss).any():
            text += f", loss {np.nanmedian(self.loss[:, 0]):.4g} -> {np.nanmedian(self.last()):.4g} (median)"
        return text + ")"

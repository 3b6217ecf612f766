"""The leaderboard as a frame of pandas; importing this needs pandas."""

from __future__ import annotations

import importlib
from typing import Any

import pandas as pd

from shoal.console.notebook import CARDS

SHOWN = ("rank", "score", "fold_spread", "label")  # columns of the card


class LeaderboardFrame(pd.DataFrame):
    """A frame that notebooks show as a card. What is made from it, also by pickling, is a plain frame."""

    def _repr_html_(self) -> str | None:
        shown: str | None = super()._repr_html_()  # None: pandas is set to show no HTML
        if shown is None or not set(SHOWN) <= set(self.columns):
            return shown
        return str(importlib.import_module(CARDS).card_of(self))

    def __reduce__(self) -> Any:
        return pd.DataFrame, (), self.__getstate__()

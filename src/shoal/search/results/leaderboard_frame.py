"""The leaderboard as a pandas DataFrame. Imported only where somebody looks at it: it needs pandas."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

import pandas as pd

from shoal.search.results.leaderboard import Leaderboard


class LeaderboardFrame(pd.DataFrame):
    """A DataFrame with a row for each recipe; printed as the best recipes. `board[0]` is a row, as a dict."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # parts of it are plain frames, printed by pandas

    def __getitem__(self, key: Any) -> Any:
        return self._board()[int(key)] if isinstance(key, Integral) else super().__getitem__(key)

    def _board(self) -> Leaderboard:
        columns = {str(name): super(LeaderboardFrame, self).__getitem__(name).astype(object) for name in self.columns}
        return Leaderboard({name: column.where(column.notna(), None).tolist() for name, column in columns.items()})

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame(self)

    def to_csv(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """As DataFrame's, without the index unless it is asked for."""
        return super().to_csv(path, **{"index": False, **options})

    def __repr__(self) -> str:
        return repr(self._board())


def leaderboard_frame(board: Leaderboard) -> LeaderboardFrame:
    return LeaderboardFrame(board.columns)

"""How candidates stand among each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shoal.search.candidates import Candidate


def best_of(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
    """So many of those that did not diverge, the lowest loss first."""
    usable = [candidate for candidate in candidates if math.isfinite(candidate.loss)]
    return sorted(usable, key=lambda candidate: (candidate.loss, candidate.number))[:count]


class Standing:
    """How many candidates have a result, and the best of them. Those of earlier rounds are not looked at again."""

    def __init__(self) -> None:
        self._known = 0
        self._best: Candidate | None = None
        self._round: Sequence[Candidate] = ()

    def begin(self, candidates: Sequence[Candidate]) -> None:
        """A new round: nothing of the earlier ones changes any more."""
        self._known, self._best = self.now()
        self._round = candidates

    def now(self) -> tuple[int, Candidate | None]:
        found = [candidate for candidate in self._round if math.isfinite(candidate.loss)]
        first = [] if self._best is None else [self._best]
        best = max([*first, *found], key=lambda candidate: (candidate.finished, candidate.score), default=None)
        return self._known + len(found), best

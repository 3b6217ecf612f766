"""The score of the best of many candidates, corrected for the selection: bootstrap bias-corrected cross-validation.

Selecting the best of thousands of candidates biases its score upwards. BBC-CV (Tsamardinos, Greasidou and
Borboudakis, 2018) repeats the selection on bootstrap samples of the rows and scores each selected candidate on the rows
outside its sample. It needs out-of-fold predictions only and trains nothing again. Candidates that ended early
take part with the predictions they had: without them the correction would be too small.

Predictions of hundreds of candidates fit into memory, those of a hundred thousand do not. Beyond CELLS_IN_MEMORY they
are read from a file in blocks (`picks.py`): one pass over all candidates serves all bootstrap samples.

The delivered model averages the networks of all folds; `averaging.py` estimates what that adds to the score, and it
is added at the end. `score_interval.py` has the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.search.evidence import Evidence
from shoal.search.picks import make_pick
from shoal.search.score_interval import CONFIDENCE, score_interval

BOOTSTRAPS = 200
FEWEST_BOOTSTRAPS = 40
FEWEST_ROWS = 20  # with fewer, intervals do not hold
FEWEST_UNITS = 5  # groups, or different rows
CELLS_IN_MEMORY = 1 << 25  # rows times outputs times candidates, up to which all predictions are in memory


@dataclass(frozen=True)
class HonestScore:
    """A score as it looks (`raw`), and what to expect on new data (`corrected`, with an interval).

    With too few rows there is nothing to expect: `corrected`, `low` and `high` are NaN, and `problem` says why.
    """

    metric: str
    raw: float
    corrected: float
    low: float
    high: float
    confidence: float
    bootstraps: int
    averaging: float = 0.0  # part of `corrected`: what averaging over folds adds
    problem: str = ""  # why there is no honest score

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __float__(self) -> float:
        return self.corrected

    def __format__(self, form: str) -> str:
        """The words of `str`, or with a format such as `.3f` the corrected score."""
        return format(self.corrected, form) if form else str(self)

    def __str__(self) -> str:
        if self.problem:
            return f"{self.metric}: {self.problem}; before correction {self.raw:.4f}"
        return (
            f"{self.metric} {self.corrected:.4f} ({self.confidence:.0%} interval {self.low:.4f} to {self.high:.4f}); "
            f"before correction {self.raw:.4f}"
        )


def correct(
    evidence: Evidence,
    final: np.ndarray,
    *,
    ensemble: bool = False,
    parts: int | None = None,
    seed: int = 0,
    bootstraps: int = BOOTSTRAPS,
    raw: float | None = None,
    gain: float = 0.0,
    temperature: float = 1.0,
    enough: Callable[[], bool] = lambda: False,
) -> HonestScore:
    """Score of the final model, corrected for its selection; `final` are its out-of-fold predictions.

    Selection means weighing an ensemble with `ensemble` (of so many `parts`, if it is compact), else taking the
    candidate with the best score. `gain` is what averaging over folds adds to the score; `temperature` is that of the
    final model. Once `enough()` is true, sampling ends at FEWEST_BOOTSTRAPS samples.
    """
    metric = evidence.metric
    measured = float(metric.score(evidence.task, final, evidence.y, evidence.weight))
    raw = measured if raw is None else raw
    problem = too_few(evidence)
    if problem:
        return HonestScore(metric.name, raw, np.nan, np.nan, np.nan, CONFIDENCE, 0, problem=problem)
    generator = np.random.default_rng(seed)
    scores = _bootstrap(evidence, (ensemble, parts), temperature, generator, bootstraps, enough)
    # A bootstrap sample may pick a candidate that the search dropped or had no time to finish. The expected score of
    # the delivered model is never set above its measured score.
    before = min(float(np.mean(scores)), measured)
    corrected = float(np.clip(before + gain, metric.least, metric.most))
    low, high = score_interval(evidence, final, measured, corrected, measured - before, gain)
    return HonestScore(metric.name, raw, corrected, low, high, CONFIDENCE, len(scores), corrected - before)


def too_few(evidence: Evidence) -> str:
    """Why these rows are too few for an honest score; empty if they are enough."""
    counted = evidence.weight > 0
    rows = int(max(evidence.weight.sum() + 1e-6, counted.sum()))  # a weight of two is the row twice
    if rows < FEWEST_ROWS:
        return f"too few rows for an honest score ({rows}; it needs {FEWEST_ROWS})"
    share = evidence.weight[counted] / evidence.weight[counted].max()
    if evidence.group is not None:
        share = np.bincount(np.unique(evidence.group[counted], return_inverse=True)[1], share)
    units = int(share.sum() ** 2 / (share**2).sum() + 0.5)  # so many of the same weight would tell as much (Kish)
    if units < FEWEST_UNITS:
        what = "different rows" if evidence.group is None else "groups"
        return f"too few {what} for an honest score ({units}; it needs {FEWEST_UNITS})"
    return ""


def _bootstrap(
    evidence: Evidence,
    selection: tuple[bool, int | None],
    temperature: float,
    generator: np.random.Generator,
    bootstraps: int,
    enough: Callable[[], bool],
) -> list[float]:
    """For each bootstrap sample, the score of what is picked on it, on the rows outside it.

    After FEWEST_BOOTSTRAPS samples, sampling ends as soon as `enough()` is true.
    """
    task, metric, y, weight = evidence.task, evidence.metric, evidence.y, evidence.weight
    ensemble, parts = selection
    pick, samples = make_pick(evidence, ensemble, _samples(evidence, generator, bootstraps), parts)
    scores: list[float] = []
    for number, counts in enumerate(samples):
        if number >= FEWEST_BOOTSTRAPS and enough():
            break
        picked = task.temper(pick(number, counts), temperature)
        scores.append(metric.score_part(task, picked, y, weight, _left_out(evidence, counts)))
    return scores


def _samples(evidence: Evidence, generator: np.random.Generator, bootstraps: int) -> Iterator[np.ndarray]:
    """How often each row is in a bootstrap sample, for so many of them; a sample that leaves no row out is none."""
    found = 0
    for _ in range(10 * bootstraps):
        counts = evidence.counts(generator)
        if len(_left_out(evidence, counts)) and (counts * evidence.weight).any():
            yield counts
            found += 1
        if found == bootstraps:
            return


def _left_out(evidence: Evidence, counts: np.ndarray) -> np.ndarray:
    return np.flatnonzero((counts == 0) & (evidence.weight > 0))

"""The score of the best of many candidates, corrected for the selection: bootstrap bias-corrected cross-validation.

The best of thousands looks better than it is: part of its lead is luck. BBC-CV (Tsamardinos, Greasidou and
Borboudakis, 2018) repeats the selection on bootstrap samples of the rows and scores each selected candidate on the rows
left out of its sample. It needs out-of-fold predictions only and trains nothing again. Candidates that ended early
take part with the predictions they had: without them the correction would be too small.

Predictions of hundreds of candidates fit into memory, those of a hundred thousand do not. Beyond CELLS_IN_MEMORY they
are read from a file in blocks (`picks.py`): one pass over all candidates serves all bootstrap samples.

The delivered model averages the networks of all folds; `averaging.py` estimates what that adds to the score, and it
is added at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from shoal.metrics.metric import Metric
from shoal.search.evidence import Evidence
from shoal.search.picks import make_pick

CONFIDENCE = 0.95
BOOTSTRAPS = 200
FEWEST_BOOTSTRAPS = 40
WIDER = 1.3  # factor of the interval that the choice of rows alone gives
CELLS_IN_MEMORY = 1 << 25  # rows times outputs times candidates, up to which all predictions are in memory
GAIN_ERROR = 0.25  # standard error of what averaging adds, as a share of it


@dataclass(frozen=True)
class HonestScore:
    """A score as it looks (`raw`), and what to expect on new data (`corrected`, with an interval)."""

    metric: str
    raw: float
    corrected: float
    low: float
    high: float
    confidence: float
    bootstraps: int
    averaging: float = 0.0  # part of `corrected`: what averaging over folds adds

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __float__(self) -> float:
        return self.corrected

    def __format__(self, form: str) -> str:
        """The words of `str`, or with a format such as `.3f` the corrected score."""
        return format(self.corrected, form) if form else str(self)

    def __str__(self) -> str:
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
    task, metric, y, weight = evidence.task, evidence.metric, evidence.y, evidence.weight
    rows = metric.rows(task, final, y, weight)
    measured = float(metric.score(task, final, y, weight))
    out_of_sample, in_sample = _bootstrap(
        evidence, (ensemble, parts), rows, temperature, np.random.default_rng(seed), bootstraps, enough
    )
    raw = measured if raw is None else raw
    if not out_of_sample:  # one row, or one group: nothing can be left out
        return HonestScore(metric.name, raw, measured, metric.least, metric.most, CONFIDENCE, 0)
    # A bootstrap sample may pick a candidate that the search dropped or had no time to finish. The expected score of
    # the delivered model is never set above its measured score.
    before = min(float(np.mean(out_of_sample)), measured)
    corrected = float(np.clip(before + gain, metric.least, metric.most))
    low, high = _interval(metric, corrected, np.array(in_sample), gain, int((weight > 0).sum()))
    return HonestScore(metric.name, raw, corrected, low, high, CONFIDENCE, len(out_of_sample), corrected - before)


def _bootstrap(
    evidence: Evidence,
    selection: tuple[bool, int | None],
    rows: np.ndarray,
    temperature: float,
    generator: np.random.Generator,
    bootstraps: int,
    enough: Callable[[], bool],
) -> tuple[list[float], list[float]]:
    """For each bootstrap sample: the score of what is picked on it, on the rows left out, and the final model's on it.

    `rows` are the values of the final model per row, whose mean is its score. After FEWEST_BOOTSTRAPS samples, sampling
    ends as soon as `enough()` is true.
    """
    task, metric, y, weight = evidence.task, evidence.metric, evidence.y, evidence.weight
    out_of_sample: list[float] = []
    in_sample: list[float] = []
    ensemble, parts = selection
    pick, samples = make_pick(evidence, ensemble, _samples(evidence, generator, bootstraps), parts)
    for number, counts in enumerate(samples):
        if number >= FEWEST_BOOTSTRAPS and enough():
            break
        left_out, sampled = _left_out(evidence, counts), counts * weight
        picked = task.temper(pick(number, counts)[left_out], temperature)
        out_of_sample.append(float(metric.score(task, picked, y[left_out], weight[left_out])))
        in_sample.append(float(rows @ sampled / sampled.sum()))
    return out_of_sample, in_sample


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


def _interval(metric: Metric, corrected: float, in_sample: np.ndarray, gain: float, n_rows: int) -> tuple[float, float]:
    """The confidence interval of the corrected score.

    It accounts for the choice of rows and for the error of `gain`. Other rows would also have led to the choice of
    another model; that adds almost no error, as such models are about equally good.
    """
    spread = in_sample - np.mean(in_sample)
    spread = spread * np.sqrt(1 + (GAIN_ERROR * gain / max(float(spread.std()), 1e-12)) ** 2)
    tail = (1 - CONFIDENCE) / 2
    low, high = corrected + np.quantile(spread, [tail, 1 - tail])
    if metric.name == "accuracy":  # a hundred right answers do not prove that there are no wrong ones
        least, most = wilson(corrected, n_rows)
        low, high = min(low, least), max(high, most)
    # Networks of one fold err together, and folds share training rows: out-of-fold errors are not independent, and
    # vary more than independent ones would (Bates, Hastie and Tibshirani, 2024). WIDER was measured with
    # `shoal bench honest`.
    if np.isfinite([low, high]).all():
        low, high = corrected + WIDER * (low - corrected), corrected + WIDER * (high - corrected)
    low, high = np.clip([low, high], metric.least, metric.most).tolist()
    return low, high


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's interval for a share seen in n rows; it does not shrink to a point at 0 or 1.

    >>> [round(bound, 3) for bound in wilson(1.0, 100)]
    [0.963, 1.0]
    """
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(max(share * (1 - share), 0.0) / n + z * z / (4 * n * n)))
    return centre - half, centre + half

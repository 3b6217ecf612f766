"""The price of having picked the best of many, taken off: bootstrap bias-corrected cross-validation.

The best of thousands looks better than it is, because its luck was picked with it. BBC-CV (Tsamardinos, Greasidou and
Borboudakis, 2018) repeats the picking on a bootstrap sample of the rows and scores what was picked on the rows left
out of that sample: out-of-fold predictions are all it needs, nothing is trained again. Candidates that ended early
take part with the predictions they had, since leaving them out would hide that they had been tried.

What averaging over folds adds to the score (`averaging.py`) is added at the end, so that the estimate is of the model
that is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from shoal.metrics.metric import Metric
from shoal.metrics.tasks import Task
from shoal.search.ensemble import weigh

CONFIDENCE = 0.95
BOOTSTRAPS = 200
FEWEST_BOOTSTRAPS = 40
ENSEMBLE_CANDIDATES = 128
QUICK_STEPS = 10  # of greedy selection in each bootstrap sample
WIDER = 1.3  # times than by chance in the rows alone
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


@dataclass(frozen=True, eq=False)
class Evidence:
    """Out-of-fold predictions of every candidate on the same rows."""

    task: Task
    metric: Metric
    prediction: np.ndarray  # (n_candidates, n, n_outputs)
    y: np.ndarray
    weight: np.ndarray  # (n,) in scores
    loss_weight: np.ndarray  # (n,) in losses
    scale: np.ndarray | float  # of losses
    group: np.ndarray | None = None  # (n,) rows of one group are drawn together

    def counts(self, generator: np.random.Generator) -> np.ndarray:
        """How often each row is in a bootstrap sample."""
        if self.group is None:
            n = len(self.y)
            return np.bincount(generator.integers(n, size=n), minlength=n)
        groups = int(self.group.max()) + 1
        return np.bincount(generator.integers(groups, size=groups), minlength=groups)[self.group]


def correct(
    evidence: Evidence,
    final: np.ndarray,
    *,
    ensemble: bool = False,
    seed: int = 0,
    bootstraps: int = BOOTSTRAPS,
    raw: float | None = None,
    gain: float = 0.0,
    temperature: float = 1.0,
    enough: Callable[[], bool] = lambda: False,
) -> HonestScore:
    """Score of the final model, corrected for how it was picked; `final` are its out-of-fold predictions.

    With `ensemble` the picking is the weighing of an ensemble, without it is taking the best candidate by
    score. `gain` is what averaging over folds adds to it; `temperature` is that of the final model.
    Once `enough()` is true, no more samples are drawn than must be.
    """
    task, metric, y, weight = evidence.task, evidence.metric, evidence.y, evidence.weight
    pick = _EnsemblePick(evidence) if ensemble else _BestPick(evidence)
    rows = metric.rows(task, final, y, weight)
    whole = float(metric.score(task, final, y, weight))
    outside, inside = _bootstrap(evidence, pick, rows, seed, bootstraps, temperature, enough)
    shown = whole if raw is None else raw
    if not outside:  # one row, or one group: nothing can be left out
        return HonestScore(metric.name, shown, whole, metric.least, metric.most, CONFIDENCE, 0)
    # A bootstrap sample may pick a candidate that the search had dropped, or the clock cut off; what is delivered
    # is never better than it measures.
    before = min(float(np.mean(outside)), whole)
    corrected = float(np.clip(before + gain, metric.least, metric.most))
    low, high = _interval(evidence, corrected, np.array(inside), gain)
    return HonestScore(metric.name, shown, corrected, low, high, CONFIDENCE, len(outside), corrected - before)


def _bootstrap(
    evidence: Evidence, pick: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, seed: int, bootstraps: int,
    temperature: float, enough: Callable[[], bool],
) -> tuple[list[float], list[float]]:  # fmt: skip
    """For each sample: the score of what it picks on the rows left out of it, and of the final model inside of it.

    `rows` are the scores of the final model row by row.
    """
    generator = np.random.default_rng(seed)
    weight = evidence.weight
    outside: list[float] = []
    inside: list[float] = []
    for _ in range(10 * bootstraps):  # a draw that leaves no row out does not count
        if len(outside) >= bootstraps or (len(outside) >= FEWEST_BOOTSTRAPS and enough()):
            break
        counts = evidence.counts(generator)
        out = np.flatnonzero((counts == 0) & (weight > 0))
        drawn = counts * weight
        if not len(out) or not drawn.any():
            continue
        picked = evidence.task.temper(pick(counts)[out], temperature)
        outside.append(float(evidence.metric.score(evidence.task, picked, evidence.y[out], weight[out])))
        inside.append(float(rows @ drawn / drawn.sum()))
    return outside, inside


def _interval(evidence: Evidence, corrected: float, inside: np.ndarray, gain: float) -> tuple[float, float]:
    """Where the score on new rows will be, by how much the scores of bootstrap samples differ."""
    metric = evidence.metric
    # Which rows there were to score on, and how well the gain is known. That other rows would have led to another
    # choice adds next to nothing to the error: the choices are about equally good.
    spread = inside - np.mean(inside)
    spread = spread * np.sqrt(1 + (GAIN_ERROR * gain / max(float(spread.std()), 1e-12)) ** 2)
    tail = (1 - CONFIDENCE) / 2
    low, high = corrected + np.quantile(spread, [tail, 1 - tail])
    if metric.name == "accuracy":  # a hundred right answers do not prove that there are no wrong ones
        least, most = wilson(corrected, int((evidence.weight > 0).sum()))
        low, high = min(low, least), max(high, most)
    # Networks of one fold err together, and folds share training rows: out-of-fold errors are not independent, and
    # vary more than independent ones would (Bates, Hastie and Tibshirani, 2024). By how much was measured
    # (`shoal bench honest`).
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


class _BestPick:
    """The candidate with the best score on a bootstrap sample, ties by loss."""

    def __init__(self, evidence: Evidence) -> None:
        task, y, weight = evidence.task, evidence.y, evidence.weight
        self.prediction, self.weight = evidence.prediction, weight
        rows = [evidence.metric.rows(task, p, y, weight) for p in evidence.prediction]
        losses = [task.losses(p, y, evidence.scale) for p in evidence.prediction]
        self.rows = (np.array(rows) - 1e-6 * np.array(losses)).astype(np.float32)

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return np.asarray(self.prediction[int(np.argmax(self.rows @ (counts * self.weight).astype(np.float32)))])


class _EnsemblePick:
    """An ensemble weighed on a bootstrap sample."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        task, y = evidence.task, evidence.y
        self.loss_inputs = np.array([task.loss_inputs(p, y) for p in evidence.prediction])
        self.losses = task.losses_of_inputs(self.loss_inputs, y, evidence.scale).astype(np.float32)

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        evidence = self.evidence
        inside = np.flatnonzero(counts * evidence.loss_weight)
        mass = (counts * evidence.loss_weight)[inside]
        order = np.argsort(self.losses[:, inside] @ mass.astype(np.float32), kind="stable")[:ENSEMBLE_CANDIDATES]
        loss_inputs = self.loss_inputs[order][:, inside]
        shares = weigh(evidence.task, loss_inputs, evidence.y[inside], mass, evidence.scale, QUICK_STEPS)
        used = np.flatnonzero(shares)
        return np.asarray(np.tensordot(shares[used], evidence.prediction[order[used]], axes=1))

"""The score of the best of many candidates, corrected for the selection: bootstrap bias-corrected cross-validation.

Selecting the best of thousands of candidates biases its score upwards. BBC-CV (Tsamardinos, Greasidou and
Borboudakis, 2018) repeats the selection on bootstrap samples of the rows and scores each selected candidate on the rows
outside its sample. It needs out-of-fold predictions only and trains nothing again. Candidates that ended early
take part with the predictions they had: without them the correction would be too small.

Predictions of hundreds of candidates fit into memory, those of a hundred thousand do not. Beyond CELLS_IN_MEMORY they
are read from a file in blocks (`picks.py`): one pass over all candidates serves all bootstrap samples.

The delivered model averages the networks of all folds; `averaging.py` estimates what that adds to the score, and it
is added at the end. `score_interval` is the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.console.notebook import InNotebook
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.search.scoring.evidence import Evidence, effective_rows
from shoal.search.scoring.picks import BestPick, EnsemblePick

BOOTSTRAPS = 200
FEWEST_BOOTSTRAPS = 40
FEWEST_ROWS_FOR_INTERVAL = 20
FEWEST_UNITS = 5  # groups, or different rows
CELLS_IN_MEMORY = 1 << 25  # rows times outputs times candidates, up to which all predictions are in memory


@dataclass(frozen=True)
class HonestScore(InNotebook):
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


@dataclass(frozen=True)
class ModelSelection:
    """How the final model was selected, and what is known of it."""

    ensemble: bool = False  # weighed; else the candidate with the best score
    parts: int | None = None  # of a compact ensemble
    raw: float | None = None  # its score as it looks; None: that of its predictions
    gain: float = 0.0  # what averaging over folds adds to the score
    temperature: float = 1.0


SINGLE = ModelSelection()


def correct(
    evidence: Evidence,
    final: np.ndarray,
    selection: ModelSelection = SINGLE,
    *,
    seed: int = 0,
    bootstraps: int = BOOTSTRAPS,
    enough: Callable[[], bool] = lambda: False,
) -> HonestScore:
    """Score of the final model, corrected for its selection; `final` are its out-of-fold predictions.

    Once `enough()` is true, sampling ends at FEWEST_BOOTSTRAPS samples.
    """
    metric = evidence.metric
    measured = float(metric.score(evidence.task, final, evidence.y, evidence.weight))
    raw, gain = measured if selection.raw is None else selection.raw, selection.gain
    problem = too_few(evidence)
    if problem:
        return HonestScore(metric.name, raw, np.nan, np.nan, np.nan, CONFIDENCE, 0, problem=problem)
    generator = np.random.default_rng(seed)
    scores = _bootstrap(evidence, selection, generator, bootstraps, enough)
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
    if rows < FEWEST_ROWS_FOR_INTERVAL:
        return f"too few rows for an honest score ({rows}; it needs {FEWEST_ROWS_FOR_INTERVAL})"
    group = None if evidence.group is None else evidence.group[counted]
    units = int(effective_rows(evidence.weight[counted], group) + 0.5)
    if units < FEWEST_UNITS:
        what = "different rows" if evidence.group is None else "groups"
        return f"too few {what} for an honest score ({units}; it needs {FEWEST_UNITS})"
    return ""


def _bootstrap(
    evidence: Evidence,
    selection: ModelSelection,
    generator: np.random.Generator,
    bootstraps: int,
    enough: Callable[[], bool],
) -> list[float]:
    """For each bootstrap sample, the score of what is picked on it, on the rows outside it.

    After FEWEST_BOOTSTRAPS samples, sampling ends as soon as `enough()` is true.
    """
    task, metric, y, weight = evidence.task, evidence.metric, evidence.y, evidence.weight
    samples = list(_samples(evidence, generator, bootstraps))
    ensemble = selection.ensemble
    pick = EnsemblePick(evidence, samples, selection.parts) if ensemble else BestPick(evidence, samples)
    scores: list[float] = []
    for number, counts in enumerate(samples):
        if number >= FEWEST_BOOTSTRAPS and enough():
            break
        picked = task.temper(pick(number, counts), selection.temperature)
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


# ---- the interval ----

CONFIDENCE = 0.95
WIDER_SHARE = 1.15
WIDER = {CLASSIFICATION: 1.05, MULTILABEL: 1.05, REGRESSION: 1.2}  # of losses
CORRECTION_ERROR = 1.0  # standard error of the correction for the selection, as a share of it
GAIN_ERROR = 0.25  # likewise of what averaging adds
# Over the number of rows: relative error of a loss that comes from fitting a few parameters.
FIT_ERROR = {CLASSIFICATION: 1.0, MULTILABEL: 1.0, REGRESSION: 1.75}
# A few rows with large errors decide a loss. A sample that has none of them underestimates it, so the interval reaches
# further up than down: factors of its two halves on the log scale. Squares make the largest errors count most.
HALVES = (0.95, 1.15)
HALVES_OF_SQUARES = (0.8, 1.35)
PSEUDO_ROWS = 4.0  # added to shares, half of them right
FEWEST_FREEDOM = 2.0
SMALLEST = 1e-300


def score_interval(
    evidence: Evidence, final: np.ndarray, measured: float, corrected: float, correction: float, gain: float
) -> tuple[float, float]:
    """Lowest and highest score to expect, where `final` are the out-of-fold predictions that scored `measured`."""
    metric = evidence.metric
    if not np.isfinite([measured, corrected]).all():
        return corrected, corrected
    others = np.hypot(CORRECTION_ERROR * correction, GAIN_ERROR * gain)
    if np.isfinite(metric.least):
        low, high = _of_share(evidence, final, measured, corrected, others)
    else:
        deviations = _deviations(evidence, metric.rows(evidence.task, final, evidence.y, evidence.weight))
        low, high = _of_loss(evidence, deviations, (measured, corrected), others)
    low, high = np.clip([min(low, corrected), max(high, corrected)], metric.least, metric.most).tolist()
    return low, high


def _of_share(
    evidence: Evidence, final: np.ndarray, measured: float, corrected: float, others: float
) -> tuple[float, float]:
    """Of a score between bounds."""
    task, counted = evidence.task, evidence.weight > 0
    units = int(counted.sum()) if evidence.group is None else len(np.unique(evidence.group[counted]))
    predicted, truth = _pseudo_rows(task, final.dtype)
    added = evidence.weight.sum() / units * PSEUDO_ROWS / len(truth)
    weight = np.concatenate([evidence.weight, np.full(len(truth), added)])
    values = evidence.metric.rows(task, np.concatenate([final, predicted]), np.concatenate([evidence.y, truth]), weight)
    centre = float((values * weight).sum() / weight.sum())
    share = (values - centre) * weight / weight.sum()
    n = len(evidence.y)
    variance = (_sums(share[:n], evidence.group) ** 2).sum() + (share[n:] ** 2).sum()
    half = _quantile(units - 1) * float(np.hypot(WIDER_SHARE * np.sqrt(variance), others))
    return corrected + centre - measured - half, corrected + centre - measured + half


def _of_loss(
    evidence: Evidence, deviations: np.ndarray, scores: tuple[float, float], others: float
) -> tuple[float, float]:
    """Of a score without a lower bound: a loss, or 1 less a loss. `scores`: as measured, and corrected."""
    metric, kind, (measured, corrected) = evidence.metric, evidence.task.kind, scores
    error, quantile = WIDER[kind] * float(np.sqrt((deviations**2).sum())), _quantile(_freedom(deviations))
    if not np.isfinite(metric.most):
        half = quantile * float(np.hypot(error, others))
        return corrected - half, corrected + half
    loss = metric.most - corrected
    scale = max(loss, others, SMALLEST)  # a gain may be estimated to be as large as the loss itself
    relative = [error / max(metric.most - measured, SMALLEST), others / scale, FIT_ERROR[kind] / len(deviations)]
    half = quantile * float(np.linalg.norm(relative))
    down, up = HALVES_OF_SQUARES if metric.name == "neg_mean_squared_error" else HALVES
    return metric.most - scale * float(np.exp(up * half)), metric.most - loss / float(np.exp(down * half))


def _freedom(deviations: np.ndarray) -> float:
    """Degrees of freedom of an estimated variance: fewer, the higher the kurtosis."""
    count = len(deviations)
    scaled = deviations / max(float(np.abs(deviations).max()), SMALLEST)
    kurtosis = float((scaled**4).mean() / (scaled**2).mean() ** 2) if scaled.any() else 1.0
    return float(np.clip(2 * count / max(kurtosis, 1.0), FEWEST_FREEDOM, max(count - 1, FEWEST_FREEDOM)))


def _deviations(evidence: Evidence, values: np.ndarray) -> np.ndarray:
    """What each row, or group of rows, adds to the error of the score."""
    counted = evidence.weight > 0
    weight, values = evidence.weight[counted], values[counted]
    share = (values - (values * weight).sum() / weight.sum()) * weight / weight.sum()
    found = _sums(share, None if evidence.group is None else evidence.group[counted])
    return found * np.sqrt(len(found) / max(len(found) - 1, 1))


def _sums(values: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    if group is None:
        return values
    _, place = np.unique(group, return_inverse=True)
    return np.bincount(place, values)


def _pseudo_rows(task: Task, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and truths: each class once right and once wrong, without any doubt."""
    k = task.n_outputs
    if task.kind == MULTILABEL:
        both = np.array([0, 1, 0, 1], dtype=dtype)[:, None].repeat(k, axis=1)
        return both, np.array([0, 1, 1, 0], dtype=np.float32)[:, None].repeat(k, axis=1)
    one = np.eye(k, dtype=dtype)
    return np.concatenate([one, np.roll(one, 1, axis=0)]), np.tile(np.arange(k), 2)


def _quantile(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + CONFIDENCE / 2, max(freedom, 1)))

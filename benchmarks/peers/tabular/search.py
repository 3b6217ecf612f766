"""Random search that ends on time: what `RandomizedSearchCV` does, but given seconds instead of a number of recipes."""

from __future__ import annotations

import multiprocessing
import queue
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

FOLDS = 5
LEAST_PROBABILITY = 1e-7
Candidate = tuple[Any, dict[str, Any]]  # an estimator, and the parameters in which it differs from the first one
REFIT_MARGIN = 1.4  # the refit sees more rows than a fold's fit did, and times vary


class TimedSearch:
    """Cross-validates candidates on all cores until the time left is what fitting the best one again will take.

    Folds are dealt out to one process for each core, so that no core waits for the slowest fold of a candidate. A fit
    that is under way when time is up is ended: one slow candidate costs its own time, and no more.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate],
        task: str,
        seconds: float,
        threads: int,
        seed: int = 0,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.candidates, self.task, self.seconds = candidates, task, seconds
        self.threads, self.seed, self.now = threads, seed, now
        self._pool: Any = None

    def warm_up(self) -> None:
        """Start the processes and import what they need: not charged to the search."""
        self._pool = multiprocessing.get_context("spawn").Pool(self.threads, _start_worker)
        self._pool.map(time.sleep, [0.05] * 4 * self.threads, chunksize=1)  # until every process is there

    def fit(self, X: Any, y: np.ndarray) -> TimedSearch:
        begun = self.now()
        if self._pool is None:
            self.warm_up()
        try:
            trials = self._search(X, y, begun)
        finally:
            self._pool.terminate()
            self._pool.join()
            self._pool = None
        best = _best(trials)
        _use_threads(best.model, self.threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model_ = best.model.fit(X, y)
        scores = [trial.score for trial in trials if trial.complete]
        self.details_ = {
            "candidates": len(scores), "inner_folds": len(best.scores), "best_candidate": trials.index(best),
            "best_score": best.score if best.complete else None, "first_score": scores[0] if scores else None,
            "best_parameters": {name: _text(value) for name, value in best.parameters.items()},
        }  # fmt: skip
        return self

    def predict(self, X: Any, classes: int) -> np.ndarray:
        return outputs(self.model_, X, classes)

    def _search(self, X: Any, y: np.ndarray, begun: float) -> list[Trial]:
        classes = int(y.max()) + 1 if self.task == "classification" else 0
        inner = folds(y, classes, self.seed)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        trials: list[Trial] = []
        tasks = self._tasks(trials, len(inner))
        under_way = 0
        while True:
            while under_way < 2 * self.threads:  # so many wait that no process ever does
                at = next(tasks, None)
                if at is None:
                    break
                work = (trials[at[0]].model, X, y, *inner[at[1]], classes)
                self._pool.apply_async(_evaluate, (at, *work), callback=answers.put, error_callback=answers.put)
                under_way += 1
            left = begun + self.seconds - _refit_seconds(trials) - self.now()
            if under_way == 0 or left <= 0:
                return trials
            try:
                answer = answers.get(timeout=left)
            except queue.Empty:
                return trials
            if isinstance(answer, BaseException):
                raise answer
            trial, fold, score, seconds = answer
            trials[trial].scores[fold], trials[trial].seconds[fold] = score, seconds
            under_way -= 1

    def _tasks(self, trials: list[Trial], count: int) -> Iterator[tuple[int, int]]:
        """(trial, fold), endless or until the candidates are used up; `trials` grows on the way."""
        for k, (model, parameters) in enumerate(self.candidates):
            trials.append(Trial(model, parameters, count))
            yield from ((k, fold) for fold in range(count))


class Trial:
    """A candidate, its score and its seconds on every fold; not a number where it has not been tried yet."""

    def __init__(self, model: Any, parameters: dict[str, Any], count: int) -> None:
        self.model, self.parameters = model, parameters
        self.scores = np.full(count, np.nan)
        self.seconds = np.full(count, np.nan)

    @property
    def complete(self) -> bool:
        return not np.isnan(self.scores).any()

    @property
    def score(self) -> float:
        return float(self.scores.mean())


def outputs(model: Any, X: Any, classes: int) -> np.ndarray:
    """Values; or probabilities of so many classes, zero for those that the model has never seen."""
    if not classes:
        return np.asarray(model.predict(X), dtype=float).ravel()
    found = np.zeros((len(X), classes))
    found[:, np.asarray(model.classes_, dtype=int)] = model.predict_proba(X)
    return found


def log_loss(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Mean negative logarithm of the probability of what happened; 1e-7 at least, so that one surprise is not all.

    >>> round(log_loss(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([1, 0])), 4)
    0.3466
    """
    clipped = np.clip(probabilities, LEAST_PROBABILITY, 1.0)
    clipped = clipped / clipped.sum(axis=1, keepdims=True)
    return float(-np.log(clipped[np.arange(len(y)), y]).mean())


def r_squared(values: np.ndarray, y: np.ndarray) -> float:
    """
    >>> r_squared(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    0.7857142857142857
    """
    return float(1.0 - ((y - values) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def folds(y: np.ndarray, classes: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(train, valid) rows, shuffled; every class in every fold as often as it can be."""
    from sklearn.model_selection import KFold, StratifiedKFold

    count = FOLDS
    if classes:
        count = max(2, min(FOLDS, int(np.unique(y, return_counts=True)[1].min())))
    kind = StratifiedKFold if classes else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class with one row
        return list(kind(count, shuffle=True, random_state=seed).split(np.zeros((len(y), 1)), y))


def _refit_seconds(trials: list[Trial]) -> float:
    """What fitting the best one so far on all rows is expected to take."""
    if not trials:
        return 0.0
    seconds = _best(trials).seconds
    if np.isnan(seconds).all():
        return 0.0
    return float(REFIT_MARGIN * np.nanmax(seconds))


def _best(trials: list[Trial]) -> Trial:
    """The best of those tried on all folds; the first, which is the default, where there is none."""
    complete = [trial for trial in trials if trial.complete]
    return max(complete, key=lambda trial: trial.score) if complete else trials[0]


def _use_threads(model: Any, threads: int) -> None:
    """A forest, whose trees do not wait for each other, has all cores for the refit. For the rest one is enough: on
    tables of this size threads wait for each other longer than they compute, and predictions are slower with two."""
    if model.get_params().get("model__n_jobs") is not None:
        model.set_params(model__n_jobs=threads)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- in the worker processes ----


def _start_worker() -> None:
    """Import what every fit needs, and leave out what scikit-learn says about candidates that do not converge."""
    import sklearn.ensemble
    import sklearn.neural_network  # noqa: F401

    warnings.simplefilter("ignore")


def _evaluate(
    at: tuple[int, int], model: Any, X: Any, y: np.ndarray, train: np.ndarray, valid: np.ndarray, classes: int
) -> tuple[int, int, float, float]:
    """Score of one candidate on one fold, and the seconds of its fit; the lowest score if it fails."""
    begun = time.perf_counter()
    try:
        model.fit(X.iloc[train], y[train])
        seconds = time.perf_counter() - begun
        found = outputs(model, X.iloc[valid], classes)
        score = -log_loss(found, y[valid]) if classes else r_squared(found, y[valid])
    except (ValueError, FloatingPointError, np.linalg.LinAlgError):  # a candidate that diverged
        return (*at, -np.inf, time.perf_counter() - begun)
    return (*at, score if np.isfinite(score) else -np.inf, seconds)

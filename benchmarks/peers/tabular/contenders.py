"""Who takes part. Read by the benchmark, and by each contender's process in its own environment: needs no Shoal."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

OURS = "shoal"


class Fitted(Protocol):
    """Fitted once, asked once. `details_` says what was done, ready for JSON."""

    details_: dict[str, Any]

    def warm_up(self) -> None: ...  # imports and processes: not charged

    def fit(self, X: Any, y: np.ndarray) -> Any: ...

    def predict(self, X: Any, classes: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Entrant:
    """A contender: where its code is, and the packages whose versions decide whether a result is still of today."""

    title: str
    maker: str  # module:name, of a function of (task, seconds, cores, seed), or (task, seed) for candidates
    packages: tuple[str, ...]
    searched: bool = False  # the maker gives candidates for a random search or a grid

    def make(self, task: str, seconds: float, cores: int, seed: int) -> Fitted:
        module, _, name = self.maker.partition(":")
        maker: Callable[..., Any] = getattr(importlib.import_module(f"benchmarks.peers.tabular.{module}"), name)
        if not self.searched:
            fitted: Fitted = maker(task, seconds, cores, seed)
            return fitted
        from benchmarks.peers.tabular.search import TimedSearch

        candidates: Iterator[Any] = maker(task, seed)
        return TimedSearch(candidates, task, seconds, cores, seed)


ENTRANTS = {
    OURS: Entrant("Shoal", "ours:Shoal", ("shoal-ml",)),
    "autogluon-best": Entrant("AutoGluon, best_quality", "autogluon:best", ("autogluon.tabular",)),
    "autogluon-medium": Entrant("AutoGluon, medium_quality", "autogluon:medium", ("autogluon.tabular",)),
    "catboost": Entrant("CatBoost, defaults", "boosters:catboost", ("catboost",)),
    "catboost-tuned": Entrant("CatBoost, random search", "boosters:catboost_candidates", ("catboost",), True),
    "lightgbm": Entrant("LightGBM, defaults", "boosters:lightgbm", ("lightgbm",)),
    "lightgbm-tuned": Entrant("LightGBM, random search", "boosters:lightgbm_candidates", ("lightgbm",), True),
    "boosting": Entrant("HistGradientBoosting, random search", "scikit:boosting", ("scikit-learn",), True),
    "forest": Entrant("random forest, random search", "scikit:forest", ("scikit-learn",), True),
    "linear": Entrant("logistic or ridge regression, grid", "scikit:linear", ("scikit-learn",), True),
    "realmlp": Entrant("RealMLP", "networks:RealMLP", ("pytabkit", "torch")),
    "tabm": Entrant("TabM", "networks:TabM", ("pytabkit", "torch")),
}

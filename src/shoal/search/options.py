"""What users may choose about a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search; `ShoalClassifier` says what each one means."""

    space: Any = None
    strategy: Any = "halving"
    recipes: int = 100
    budget: float | None = None
    cv: Any = None
    scoring: Any = None
    seeds: int = 3
    epochs: int | None = None
    ensemble: bool = True
    refit: bool | str = "auto"
    threads: int | None = None
    seed: int = 0

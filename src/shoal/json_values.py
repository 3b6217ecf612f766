"""Any value as one that JSON has: no numpy, no tuples, no numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def plain(value: Any, *, digits: int | None = None, other: Callable[[float], Any] = lambda _: None) -> Any:
    """A copy for `json.dumps`. `digits`: how many significant ones are kept; `other`: what infinities and NaN become.

    >>> plain({"a": (1.5, float("nan")), 2: float("inf")}), plain(float("-inf"), other=repr), plain(1 / 3, digits=2)
    ({'a': [1.5, None], '2': None}, '-inf', 0.33)
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return other(value)
        return float(value) if digits is None else float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {str(key): plain(part, digits=digits, other=other) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part, digits=digits, other=other) for part in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy
        return plain(value.tolist(), digits=digits, other=other)
    raise TypeError(f"JSON has no {type(value).__name__}; convert it first")

"""Any value as one that JSON has: no numpy, no tuples, no numbers that are not finite."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

PIECE = 1_000  # items of a long list that are written at a time


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


def pieces(value: Any, **how: Any) -> Iterator[str]:
    """The text of `json.dumps(value, **how)`, a part at a time: that of a large search takes hundreds of megabytes.

    >>> "".join(pieces({"b": [1, 2], "a": {}}, sort_keys=True))
    '{"a": {}, "b": [1, 2]}'
    """
    between, after = how.get("separators") or (", ", ": ")
    if isinstance(value, dict) and value:
        names = sorted(value) if how.get("sort_keys") else list(value)
        for k, name in enumerate(names):
            yield f"{between if k else '{'}{json.dumps(name)}{after}"
            yield from pieces(value[name], **how)
        yield "}"
    elif isinstance(value, list) and len(value) > PIECE:
        for start in range(0, len(value), PIECE):
            yield (between if start else "[") + json.dumps(value[start : start + PIECE], **how)[1:-1]
        yield "]"
    else:
        yield json.dumps(value, **how)

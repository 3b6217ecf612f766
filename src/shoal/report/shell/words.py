"""Numbers and names formatted for readers. `common.js` formats numbers by the same rules."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeGuard

NOTHING = "\N{EN DASH}"
SHARES = {"accuracy", "balanced_accuracy", "top_k_accuracy"}
METRICS = {
    "r2": "R\N{SUPERSCRIPT TWO}",
    "roc_auc": "area under the ROC curve",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1 score",
    "f1_macro": "mean F1 score of the classes",
    "neg_log_loss": "log-loss (negative)",
    "neg_brier_score": "Brier score (negative)",
    "neg_mean_squared_error": "mean squared error (negative)",
    "neg_mean_absolute_error": "mean absolute error (negative)",
}
STRATEGIES = {
    "halving": "All recipes started together. In several rounds the weaker ones were stopped, and the remaining ones "
    "trained on (successive halving).",
    "random": "Recipes were drawn at random from the space below.",
    "grid": "Every combination in the space below was tried (a grid).",
    "optuna": "Recipes were proposed in batches by Optuna, which learns from the scores so far.",
}


def known(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number; all else is shown as a dash, never as `nan`."""
    return isinstance(value, int | float) and math.isfinite(value)


def fixed(value: float, decimals: int) -> str:
    """Fixed decimals; ties are rounded away from zero, as in JavaScript's `toFixed`.

    >>> fixed(0.78125, 4), f"{0.78125:.4f}"
    ('0.7813', '0.7812')
    """
    step = Decimal(1).scaleb(-decimals)
    return f"{Decimal(value).quantize(step, rounding=ROUND_HALF_UP):,f}"


def significant(value: float, digits: int = 3) -> str:
    """
    >>> [significant(v) for v in (0, 0.00123456, 0.000012345, 12.345, 1234.5, 3.2e9)]
    ['0', '0.00123', '1.2e-5', '12.3', '1,235', '3.2e9']
    """
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-4 or size >= 1e7:
        exponent = math.floor(math.log10(size))
        mantissa = float(fixed(value / 10.0**exponent, 1))
        if abs(mantissa) >= 10:
            mantissa, exponent = mantissa / 10, exponent + 1
        return f"{mantissa:g}e{exponent}"
    if size >= 100:
        return fixed(value, 0)
    decimals = digits - 1 - math.floor(math.log10(size))
    text = fixed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def formatted(value: Any, style: str, decimals: int) -> str:
    """The text of a cell of the leaderboard."""
    if value is None:
        return NOTHING
    if style == "text":
        return str(value)
    if not known(value):
        return NOTHING
    if style == "integer":
        return f"{int(value):,}"
    return fixed(value, decimals) if style == "fixed" else significant(value)


def count(number: object, singular: str = "", plural: str = "") -> str:
    """
    >>> count(1, "network"), count(2400, "network"), count(2, "epoch of a network", "epochs of networks")
    ('1 network', '2,400 networks', '2 epochs of networks')
    """
    if not known(number):
        return NOTHING
    text = f"{int(number):,}"
    if not singular:
        return text
    return f"{text} {singular if number == 1 else plural or singular + 's'}"


def percent(share: float, decimals: int = 0) -> str:
    return f"{fixed(share * 100, decimals)}%"


def metric_name(metric: str) -> str:
    return METRICS.get(metric, metric.replace("_", " "))


def is_share(metric: str) -> bool:
    """Whether a score is a share of rows, which is shown as a percentage."""
    return metric.replace(" ", "_") in SHARES


def score(value: object, metric: str) -> str:
    """
    >>> score(0.7521, "accuracy"), score(0.7521, "r2"), score(-1234.5, "neg_mse"), score(None, "r2") == NOTHING
    ('75.2%', '0.752', '-1,235', True)
    """
    if not known(value):
        return NOTHING
    if is_share(metric):
        return percent(value, 1)
    return fixed(value, 3) if abs(value) < 10 else significant(value)


def difference(value: float, metric: str) -> str:
    """
    >>> difference(0.0182, "accuracy"), difference(0.0182, "r2")
    ('1.8 points', '0.018')
    """
    return f"{fixed(value * 100, 1)} points" if is_share(metric) else score(value, metric)


def duration(seconds: object) -> str:
    """
    >>> [duration(s) for s in (0.0042, 0.41, 8.25, 58.2, 60, 192, 7500)]
    ['4 ms', '0.41 s', '8.3 s', '58 s', '1 min', '3 min 12 s', '2 h 5 min']
    """
    if not known(seconds):
        return NOTHING
    if seconds < 0.1:
        return f"{fixed(seconds * 1000, 0)} ms"
    if seconds < 1:
        return f"{fixed(seconds, 2)} s"
    if seconds < 10:
        return f"{fixed(seconds, 1)} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s".removesuffix(" 0 s")
    return f"{whole // 3600} h {whole % 3600 // 60} min".removesuffix(" 0 min")


def size(bytes_used: object) -> str | None:
    """
    >>> size(261000000), size(2_500_000_000), size(900)
    ('261 MB', '2.5 GB', '0.9 kB')
    """
    if not known(bytes_used):
        return None
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if bytes_used >= scale:
            return f"{significant(bytes_used / scale)} {unit}"
    return f"{significant(bytes_used / 1e3)} kB"

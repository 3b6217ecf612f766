"""Numbers and names formatted for readers."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeGuard

from shoal.machine import size_text
from shoal.metrics.metric import METRICS

NOTHING = "\N{EN DASH}"
LONGEST_NAME = 40
SHARES = {"accuracy", "balanced_accuracy", "top_k_accuracy"}


def known(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number; all else is shown as a dash, never as `nan`."""
    return isinstance(value, int | float) and math.isfinite(value)


def fixed(value: float, decimals: int) -> str:
    """Fixed decimals; ties are rounded away from zero.

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


def counted(number: object) -> str | None:
    """As `count`; None, which a list of terms leaves out, where the number is not known."""
    return count(number) if known(number) else None


def percent(share: float, decimals: int = 0) -> str:
    return f"{fixed(share * 100, decimals)}%"


def small_percent(share: float) -> str:
    """Two digits, so that a small share is not shown as none.

    >>> small_percent(0.0038), small_percent(0.853), small_percent(1)
    ('0.38%', '85%', '100%')
    """
    return f"{significant(100 * share, 2)}%"


def short(name: object, most: int = LONGEST_NAME) -> str:
    """
    >>> short("a very long name of a strategy", 20)
    'a very long name of\N{HORIZONTAL ELLIPSIS}'
    """
    text = str(name)
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def capitalised(text: str) -> str:
    """With a capital first letter; the others stay (`str.capitalize` makes them small)."""
    return text[:1].upper() + text[1:]


def metric_name(metric: str) -> str:
    known_one = METRICS.get(metric)
    return known_one.label.replace("R2", "R\N{SUPERSCRIPT TWO}") if known_one else metric.replace("_", " ")


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


def moment(seconds: object) -> str:
    """A short time with three digits, down to microseconds.

    >>> [moment(s) for s in (0, 3.14e-6, 0.0001, 0.01234, 0.5, 12)]
    ['0 s', '3.14 µs', '0.1 ms', '12.3 ms', '0.5 s', '12 s']
    """
    if not known(seconds):
        return NOTHING
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= scale / 10 or seconds == 0:
            return f"{significant(seconds / scale)} {unit}"
    return f"{significant(seconds / 1e-6)} µs"


def duration(seconds: object) -> str:
    """
    >>> [duration(s) for s in (0.00733, 0.41, 8.25, 58.2, 60, 192, 7500)]
    ['7.33 ms', '0.41 s', '8.3 s', '58 s', '1 min', '3 min 12 s', '2 h 5 min']
    """
    if not known(seconds) or seconds < 0.1:
        return moment(seconds)
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
    """As `size_text`; None where the number is not known."""
    return size_text(bytes_used) if known(bytes_used) else None


def rate(bytes_per_second: object) -> str | None:
    """A data rate, in bits as links are named.

    >>> rate(125e6), rate(1.25e6), rate(3.9e8), rate(1250), rate(None)
    ('1 Gbit/s', '10 Mbit/s', '3.12 Gbit/s', '0.01 Mbit/s', None)
    """
    if not known(bytes_per_second):
        return None
    bits = bytes_per_second * 8
    return f"{significant(bits / 1e9)} Gbit/s" if bits >= 1e9 else f"{significant(bits / 1e6)} Mbit/s"


def times(speedup: object) -> str:
    """A speed-up as a comparison.

    >>> times(2.41), times(1.004), times(0.05), times(None) == NOTHING
    ('2.41 times as fast', 'as fast', '20 times as long', True)
    """
    if not known(speedup) or speedup <= 0:
        return NOTHING
    if abs(speedup - 1) < 0.005:
        return "as fast"
    if speedup > 1:
        return f"{significant(speedup)} times as fast"
    if speedup > 0.5:
        return f"{percent(1 / speedup - 1)} longer"
    return f"{significant(1 / speedup)} times as long"


def saved(improvement: object) -> str:
    """The share of one node's time that is saved, in percent; a longer time is a comparison.

    >>> saved(75.0), saved(0.0), saved(-25.0), saved(-510947.0), saved(None) == NOTHING
    ('75.0%', '0.0%', '25% longer', '5,110 times as long', True)
    """
    if not known(improvement):
        return NOTHING
    return percent(abs(improvement) / 100, 1) if improvement >= 0 else times(100 / (100 - improvement))


def predicted_error(predicted: float, measured: float) -> str:
    """How far a predicted time is from the measured one.

    >>> predicted_error(1.1, 1.0), predicted_error(0.5, 1.0), predicted_error(51.1, 0.01)
    ('+10%', '-50%', '5,110 times too long')
    """
    ratio = predicted / measured
    return f"{ratio - 1:+.0%}" if ratio < 2 else f"{significant(ratio)} times too long"


def setting(found: Any) -> str | None:
    """Any setting as text; None stays None.

    >>> [setting(one) for one in (50000, 0.001, True, ["a", 2], [1, 2, 3, 4], {"a": 1}, None)]
    ['50,000', '0.001', 'yes', 'a, 2', '1 to 4', 'a 1', None]
    """
    if found is None or found == "":
        return None
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, int):
        return count(found)
    if isinstance(found, float):
        return significant(found)
    if isinstance(found, list):
        if len(found) > 3 and all(isinstance(one, int) and one == found[0] + k for k, one in enumerate(found)):
            return f"{count(found[0])} to {count(found[-1])}"
        return ", ".join(setting(one) or NOTHING for one in found) or None
    if isinstance(found, dict):
        return ", ".join(f"{key} {setting(one) or NOTHING}" for key, one in found.items()) or None
    return str(found)

"""Formats of numbers that only a plan has: data rates, short times, comparisons of speed."""

from __future__ import annotations

from typing import Any

from shoal.report.shell import words


def rate(bytes_per_second: object) -> str | None:
    """A data rate, in bits as links are named.

    >>> rate(125e6), rate(1.25e6), rate(3.9e8), rate(1250), rate(None)
    ('1 Gbit/s', '10 Mbit/s', '3.12 Gbit/s', '0.01 Mbit/s', None)
    """
    if not words.known(bytes_per_second):
        return None
    bits = bytes_per_second * 8
    return f"{words.significant(bits / 1e9)} Gbit/s" if bits >= 1e9 else f"{words.significant(bits / 1e6)} Mbit/s"


def size(bytes_used: object) -> str | None:
    """
    >>> size(0), size(131e6)
    ('0', '131 MB')
    """
    return "0" if bytes_used == 0 else words.size(bytes_used)


def percent(share: float) -> str:
    """Two digits, so that a small share is not shown as none.

    >>> percent(0.0038), percent(0.853), percent(1)
    ('0.38%', '85%', '100%')
    """
    return f"{words.significant(100 * share, 2)}%"


def moment(seconds: object) -> str:
    """A short time with three digits, down to microseconds.

    >>> [moment(s) for s in (0, 3.14e-6, 0.0001, 0.01234, 0.5, 12)]
    ['0 s', '3.14 µs', '0.1 ms', '12.3 ms', '0.5 s', '12 s']
    """
    if not words.known(seconds):
        return words.NOTHING
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= scale / 10 or seconds == 0:
            return f"{words.significant(seconds / scale)} {unit}"
    return f"{words.significant(seconds / 1e-6)} µs"


def duration(seconds: object) -> str:
    """As on the other pages, with three digits for what is shorter than a tenth of a second.

    >>> duration(0.00733), duration(0.41), duration(192)
    ('7.33 ms', '0.41 s', '3 min 12 s')
    """
    return moment(seconds) if words.known(seconds) and seconds < 0.1 else words.duration(seconds)


def times(speedup: object) -> str:
    """A speed-up in words.

    >>> times(2.41), times(1.004), times(0.05), times(None) == words.NOTHING
    ('2.41 times as fast', 'as fast', '20 times as long', True)
    """
    if not words.known(speedup) or speedup <= 0:
        return words.NOTHING
    if abs(speedup - 1) < 0.005:
        return "as fast"
    if speedup > 1:
        return f"{words.significant(speedup)} times as fast"
    if speedup > 0.5:
        return f"{words.percent(1 / speedup - 1)} longer"
    return f"{words.significant(1 / speedup)} times as long"


def nodes(number: object) -> str:
    return words.count(number, "node")


def consecutive(found: list[Any]) -> bool:
    return isinstance(found[0], int) and found == list(range(found[0], found[0] + len(found)))


def value(found: Any) -> str | None:
    """Any setting as text; None is left out.

    >>> value(50000), value(0.001), value(True), value(["a", 2]), value([1, 2, 3, 4]), value({"a": 1}), value(None)
    ('50,000', '0.001', 'yes', 'a, 2', '1 to 4', 'a 1', None)
    """
    if found is None or found == "":
        return None
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, int):
        return words.count(found)
    if isinstance(found, float):
        return words.significant(found)
    if isinstance(found, list) and len(found) > 3 and consecutive(found):
        return f"{words.count(found[0])} to {words.count(found[-1])}"
    if isinstance(found, list):
        return ", ".join(value(one) or words.NOTHING for one in found) or None
    if isinstance(found, dict):
        return ", ".join(f"{key} {value(one) or words.NOTHING}" for key, one in found.items()) or None
    return str(found)

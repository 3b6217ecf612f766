"""Checks of single values: the one place that words what is wrong with a value.

Each function takes the name that the user knows the value by (`recipes`, `--recipes` or `search.recipes`), the value
and the rule. It returns the value in plain Python types, or raises an error that names the rule and the value received.

>>> whole("epochs", 3, least=1)
3
>>> number("--test", 1.0, least=0, below=1, what="a share")
Traceback (most recent call last):
shoal.errors.UserError: --test must be a share of at least 0 and below 1; got 1.0
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from shoal.errors import UserError, WrongType

Check = Callable[[str, Any], Any]  # takes name and value, gives the value back

SHOWN = 60  # characters of a value in an error
NAMES_OF_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}


def whole(
    name: str, value: Any, least: int | None = None, most: int | None = None, *, what: str = "a whole number",
    otherwise: str = "",
) -> int:  # fmt: skip
    """A whole number. `what`: of what, as in "a whole number of bytes"; `otherwise`: what else would have been right.

    >>> whole("--workers", 0, least=1)
    Traceback (most recent call last):
    shoal.errors.UserError: --workers must be a whole number of at least 1; got 0
    """
    right_type = isinstance(value, Integral) and not isinstance(value, bool)
    if right_type and (least is None or value >= least) and (most is None or value <= most):
        return int(value)
    rule = f"{what}{_bounds(least, most)}{otherwise}"
    raise (UserError if right_type else WrongType)(f"{name} must be {rule}; got {shown(value)}")


def number(
    name: str, value: Any, least: float | None = None, most: float | None = None, *, above: float | None = None,
    below: float | None = None, what: str = "a number",
) -> float:  # fmt: skip
    """A finite number. `what`: what it is, as in "a share" or "a number of seconds".

    >>> number("learning_rate", float("inf"), above=0, below=1e7)
    Traceback (most recent call last):
    shoal.errors.UserError: learning_rate must be a positive number below 1e+07; got inf
    """
    right_type = isinstance(value, Real) and not isinstance(value, bool)
    found = _float(value) if right_type else math.nan
    bounded = (least is None or found >= least) and (most is None or found <= most)
    if bounded and (above is None or found > above) and (below is None or found < below) and math.isfinite(found):
        return found
    positive = what == "a number" and above == 0
    rule = f"{'a positive number' if positive else what}{_bounds(least, most, None if positive else above, below)}"
    raise (UserError if right_type else WrongType)(f"{name} must be {rule}; got {shown(value)}")


def one_of(name: str, value: Any, known: Iterable[str], hint: str | None = None) -> str:
    """A word out of a list, or a key of a table. `hint`: what to say in the place of "did you mean".

    >>> one_of("activation", "rleu", ["tanh", "relu"])
    Traceback (most recent call last):
    shoal.errors.UserError: activation must be one of tanh, relu; got 'rleu'; did you mean 'relu'?
    """
    words = list(known)
    if isinstance(value, str) and value in words:
        return value
    hint = nearest(value, words) if hint is None else hint
    raise UserError(f"{name} must be one of {', '.join(words)}; got {shown(value)}{hint}")


def yes_or_no(name: str, value: Any) -> bool:
    """A truth value. A word such as "no" would count as yes."""
    if not isinstance(value, (bool, np.bool_)):
        raise WrongType(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def strings(name: str, value: Any) -> tuple[str, ...]:
    """A list of strings, as a tuple."""
    return tuple(instance(f"{name}.{k}", word, str) for k, word in enumerate(instance(name, value, (list, tuple))))


def instance(name: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    """A value of this type; of the first one, for the message, where there are several.

    >>> instance("data.path", None, str)
    Traceback (most recent call last):
    shoal.errors.WrongType: data.path must be a string; got None
    """
    if not isinstance(value, kind):
        first = kind[0] if isinstance(kind, tuple) else kind
        rule = NAMES_OF_TYPES.get(first) or f"of type {getattr(first, '__name__', first)}"
        raise WrongType(f"{name} must be {rule}; got {shown(value)}")
    return value


def nearest(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'relu'?`, or nothing where no known word is near."""
    match = difflib.get_close_matches(str(word).lower().replace("-", "_"), list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""


def shown(value: Any) -> str:
    """A value as an error shows it: a table by its type, and cut where it is long.

    >>> shown("two"), shown(np.zeros(3))
    ("'two'", 'a ndarray')
    """
    if getattr(value, "shape", ()):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _bounds(least: float | None, most: float | None, above: float | None = None, below: float | None = None) -> str:
    """
    >>> _bounds(1, None), _bounds(0, 9), _bounds(None, None, 0, 1), _bounds(0, None, None, 1)
    (' of at least 1', ' from 0 to 9', ' above zero and below 1', ' of at least 0 and below 1')
    """
    if least is not None and most is not None:
        return f" from {_plain(least)} to {_plain(most)}"
    parts = [f"{word} {'zero' if word == 'above' and bound == 0 else _plain(bound)}"
             for word, bound in (("of at least", least), ("above", above), ("below", below), ("at most", most))
             if bound is not None]  # fmt: skip
    return f" {' and '.join(parts)}" if parts else ""


def _float(value: Any) -> float:
    """
    >>> _float(10**400)
    inf
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"

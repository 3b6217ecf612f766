"""Dataclasses as JSON and arrays, and back: their fields and the types of these say all that is needed.

An array goes by the path of its field, such as "target.scale"; all else becomes JSON of the same structure. Values of a
file are checked against the types. A field of type `Any` is not stored, and has its default in what is restored.

>>> @dataclasses.dataclass
... class Scale:
...     unit: str
...     factor: np.ndarray
>>> arrays = {}
>>> described = describe(Scale("cm", np.ones(2)), "scale", arrays)
>>> described, list(arrays), restore(Scale, "scale", described, arrays).unit
({'unit': 'cm'}, ['scale.factor'], 'cm')
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from shoal.validate import instance, number, whole


def describe(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """The value as JSON; arrays in it are added to `arrays`."""
    if dataclasses.is_dataclass(value):
        found = {}
        for name, kind in _fields(type(value)).items():  # type: ignore[arg-type]
            part = getattr(value, name)
            if kind is np.ndarray:
                arrays[f"{path}.{name}"] = part
            else:
                found[name] = describe(part, f"{path}.{name}", arrays)
        return found
    if isinstance(value, dict):
        return {name: describe(part, f"{path}.{k}", arrays) for k, (name, part) in enumerate(value.items())}
    if isinstance(value, (list, tuple)):
        return [describe(part, f"{path}.{k}", arrays) for k, part in enumerate(value)]
    return value


def restore(kind: Any, path: str, described: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value of this type that `describe` was given; an error that names the path where it cannot be that."""
    if dataclasses.is_dataclass(kind):
        fields = _fields(kind)  # type: ignore[arg-type]  # mypy takes classes for not hashable
        instance(path, described, dict)
        return kind(**{  # type: ignore[operator]  # it is a class
            name: arrays[f"{path}.{name}"] if one is np.ndarray
            else restore(one, f"{path}.{name}", _part(described, path, name), arrays)
            for name, one in fields.items()
        })  # fmt: skip
    if isinstance(kind, UnionType):
        return None if described is None else restore(_not_none(kind), path, described, arrays)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is dict:
        parts = enumerate(instance(path, described, dict).items())
        return {name: restore(inner[1], f"{path}.{k}", part, arrays) for k, (name, part) in parts}
    if origin is tuple:
        parts = instance(path, described, list)
        kinds = inner[:1] * len(parts) if inner[1:] == (...,) else inner
        return tuple(
            restore(one, f"{path}.{k}", part, arrays) for k, (one, part) in enumerate(zip(kinds, parts, strict=True))
        )
    return _checked(kind, path, described)


def _checked(kind: Any, path: str, value: Any) -> Any:
    if type(value) is str is kind or kind is Any:
        return value
    return whole(path, value) if kind is int else number(path, value) if kind is float else instance(path, value, kind)


def _part(described: dict[str, Any], path: str, name: str) -> Any:
    if name not in described:
        raise KeyError(f"{path}.{name}")
    return described[name]


def _not_none(kind: UnionType) -> Any:
    (other,) = (one for one in get_args(kind) if one is not NoneType)
    return other


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The types of the fields that are stored."""
    types = get_type_hints(kind)
    named = (field.name for field in dataclasses.fields(kind))
    return {name: types[name] for name in named if types[name] is not Any}

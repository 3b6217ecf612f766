"""Every public name of docs/reference/python.md says what it takes and gives, and has an example that runs."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

docscrape = pytest.importorskip("numpydoc.docscrape")

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python.md"
HOOKS = ("Strategy", "Updater", "Callback", "StopWhen", "ProgressBar", "ParallelMLPs", "Heads", "Population", "Plan")
HOOKS += ("JSONLines", "MLflow", "TensorBoard")


def public_names() -> list[tuple[str, Any]]:
    """The names that the page lists, as `module.name`, with their objects."""
    module, found = None, []
    for line in PAGE.read_text().splitlines():
        if place := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = importlib.import_module(place[1])
        elif name := re.fullmatch(r"   (\w+)", line):
            found.append((f"{module.__name__}.{name[1]}", getattr(module, name[1])))
    return found


NAMES = public_names()


def parsed(value: Any) -> Any:
    return docscrape.NumpyDocString(inspect.getdoc(value) or "")


def parameters_in(doc: Any) -> set[str]:
    """The documented parameters that have a type or a description."""
    listed = doc["Parameters"] + doc["Other Parameters"]
    return {name.strip().lstrip("*") for one in listed if one.type and one.desc for name in one.name.split(",")}


def taken(value: Any) -> set[str]:
    return {name for name in inspect.signature(value).parameters if name not in ("self", "cls")}


def methods(kind: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class that Shoal wrote."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("shoal")]
    names = {name for base in own for name in vars(base) if not name.startswith("_")}
    found = [(name, inspect.getattr_static(kind, name)) for name in sorted(names)]
    return [(name, value) for name, value in found if callable(value) or isinstance(value, (property, staticmethod))]


def test_the_page_lists_what_the_package_offers() -> None:
    assert len(NAMES) > 25
    shown = {name.rpartition(".")[2] for name, _ in public_names()}
    package = importlib.import_module("shoal")
    left = {name for name in package.__all__ if not inspect.ismodule(getattr(package, name))} - shown
    assert left <= {"ACTIVATIONS", "__version__"}


@pytest.mark.parametrize(("name", "value"), NAMES, ids=[name for name, _ in NAMES])
def test_a_public_name_is_documented(name: str, value: Any) -> None:
    doc = parsed(value)
    assert doc["Summary"], name
    if inspect.isclass(value) and issubclass(value, BaseException):
        return
    assert doc["Examples"], f"{name} has no Examples"
    is_result = inspect.isclass(value) and doc["Attributes"] and not doc["Parameters"]
    assert is_result or taken(value) <= parameters_in(doc), taken(value) - parameters_in(doc)
    returns = inspect.signature(value).return_annotation
    assert inspect.isclass(value) or returns in (None, "None") or doc["Returns"], f"{name} has no Returns"


CLASSES = [(name, value) for name, value in NAMES if inspect.isclass(value) and not issubclass(value, BaseException)]


@pytest.mark.parametrize(("name", "value"), CLASSES, ids=[name for name, _ in CLASSES])
def test_the_methods_of_a_public_class_are_documented(name: str, value: type) -> None:
    for method, found in methods(value):
        plain = found.__func__ if isinstance(found, staticmethod) else found
        assert inspect.getdoc(getattr(value, method)), f"{name}.{method} has no docstring"
        if not isinstance(plain, property) and value.__name__ not in HOOKS and method != "restored":
            left = taken(plain) - parameters_in(parsed(plain))
            assert not left, f"{name}.{method} does not say what {', '.join(sorted(left))} is"

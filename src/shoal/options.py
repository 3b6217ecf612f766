"""Options written down once: default, type, rule, help text, flag, and whether an option changes the result.

A command's options are a frozen dataclass under `Options`, with a field for each. From that class follow the flags of
the command line (`shoal.cli.parameters`), the checks, the settings in files, and what must agree when a run is resumed.

>>> @dataclass(frozen=True)
... class TrainOptions(Options):
...     epochs: int = option(3, "Passes over the rows.", least=1)
...     learning_rate: float = option(1e-3, "Size of the steps.", above=0, flags="--learning-rate --lr")
...     schedule: str = option("linear", "How the rate falls.", one_of=("linear", "cosine"))
...     drop: tuple[str, ...] = option((), "Ignore this column; repeatable.")
...     ensemble: bool = option(True, "Use the best recipe instead of an ensemble.", flags="--no-ensemble")
...     threads: int | None = option(None, "Threads. (default: all cores)", least=1, changes_result=False)

Whoever makes one has checked options; `check_together` of a class may add rules about several of them.

>>> TrainOptions(epochs=0)
Traceback (most recent call last):
shoal.errors.UserError: epochs must be a whole number of at least 1; got 0
>>> TrainOptions.from_flags({"learning_rate": -1.0})
Traceback (most recent call last):
shoal.errors.UserError: --learning-rate must be a positive number; got -1.0

Files hold plain values, and are checked when they are read; `fingerprint` has what decides the result.

>>> options = TrainOptions(drop=("name",), threads=2)
>>> TrainOptions.from_dict(options.as_dict()) == options
True
>>> TrainOptions.from_dict(options.as_dict() | {"schedule": "cosin"}, "train.")
Traceback (most recent call last):
shoal.errors.UserError: train.schedule must be one of linear, cosine; got 'cosin'; did you mean 'cosine'?
>>> "threads" in options.fingerprint(), "epochs" in options.fingerprint()
(False, True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from shoal import validate
from shoal.errors import UserError
from shoal.validate import Check

if TYPE_CHECKING:
    from typing import Self

MARK = "shoal.option"  # in the metadata of a field


@dataclass(frozen=True)
class Option:
    """All that is known of one option. `option` makes it; name, type and default come from its field."""

    help: str  # one short sentence; `{default}` in it is filled in, and the help then shows no other default
    rule: Mapping[str, Any]  # least, most, above, below, what, one_of, as in `shoal.validate`
    check: Check | None = None  # in the place of the rule: gives the value back, or raises
    # The type on the command line and in files, with the rule, where Python's callers may give more (an object for a
    # name, say) and `check` looks at that.
    typed: Any = None
    flags: tuple[str, ...] = ()  # --yes/--no for both; --no-... switches off what is done by default
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None  # of the text that was typed, for types that typer does not know
    changes_result: bool = True  # False: a run may be resumed with another value
    on_command_line: bool = True
    in_files: bool = True
    name: str = ""
    type: Any = None  # without None
    optional: bool = False
    default: Any = None

    @property
    def flag(self) -> str:
        """The first name on the command line, as errors use it."""
        return self.flags[0].split("/")[0]

    @property
    def switches_off(self) -> bool:
        """Whether the flag says no to something that is done by default."""
        return self.default is True and self.flag.startswith("--no-")

    def checked(self, name: str, value: Any, typed: bool) -> Any:
        """The value in its plain type. `name`: what errors call it; `typed`: from the command line or a file."""
        if value is None and self.optional:
            return None
        if typed and self.typed is not None:
            return _check_of(self.typed, self.rule)(name, value)
        if self.check is not None:
            return self.check(name, value)
        return _check_of(self.type, {} if self.typed else self.rule)(name, value)


def option(default: Any, help: str, *, flags: str = "", check: Check | None = None, typed: Any = None,
           metavar: str | None = None, parse: Callable[[str], Any] | None = None, changes_result: bool = True,
           on_command_line: bool = True, in_files: bool = True, **rule: Any) -> Any:  # fmt: skip
    """A field of a class of options; see `Option`. `flags`, separated by blanks: if not --name.

    Further keywords are rules of `shoal.validate` beside the field's type: least, most, above, below, what, one_of.
    """
    known = Option(
        help, rule, check, typed, tuple(flags.split()), metavar, parse, changes_result, on_command_line, in_files
    )
    return dataclasses.field(default=default, metadata={MARK: known})


def options_of(kind: type[Options]) -> dict[str, Option]:
    """The options of a class by name, in the order of its fields."""
    return _declared(kind)  # type: ignore[arg-type]  # mypy takes classes for not hashable


@cache
def _declared(kind: type[Options]) -> dict[str, Option]:
    types = get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if MARK not in field.metadata:
            raise TypeError(f"{kind.__name__}.{field.name} must be made by option(...)")
        plain, optional = _without_none(types[field.name])
        optional = optional or field.default is None
        known: Option = field.metadata[MARK]
        flags = known.flags or ("--" + field.name.replace("_", "-"),)
        found[field.name] = dataclasses.replace(
            known, name=field.name, type=plain, optional=optional, default=field.default, flags=flags
        )
    return found


def _without_none(kind: Any) -> tuple[Any, bool]:
    """A type, and whether None is allowed beside it."""
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    others = tuple(part for part in get_args(kind) if part is not NoneType)
    return (others[0] if len(others) == 1 else Union[others]), len(others) < len(get_args(kind))  # noqa: UP007


def _check_of(kind: Any, rule: Mapping[str, Any]) -> Check:
    """What a type and the rules beside it ask for."""
    if "one_of" in rule:
        return partial(validate.one_of, known=rule["one_of"])
    if kind in (int, float):
        return partial(validate.whole if kind is int else validate.number, **rule)
    if kind is Path:
        return lambda name, value: Path(validate.instance(name, value, (str, Path)))
    if get_origin(kind) is tuple:
        return validate.strings
    if kind is Any:
        return lambda name, value: value
    return validate.yes_or_no if kind is bool else partial(validate.instance, kind=kind)


class Options:
    """What all classes of options can do; see the module's text."""

    def __post_init__(self) -> None:
        self._settle(str, typed=False)

    def check_together(self, called: Callable[[str], str]) -> None:
        """Refuse what contradicts itself. `called` gives the name of an option as the user wrote it."""

    @classmethod
    def from_flags(cls, values: Mapping[str, Any]) -> Self:
        """Options from the command line: errors name the flags. Those that are not given have their defaults."""
        declared = options_of(cls)
        return cls._made(values, lambda name: declared[name].flag)

    @classmethod
    def with_names(cls, values: Mapping[str, Any], names: Mapping[str, str]) -> Self:
        """Options from Python, where some have other names, which errors then use."""
        return cls._made(values, lambda name: names.get(name, name), typed=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], part: str = "") -> Self:
        """Options from a file, as `as_dict` wrote them; `part` stands before names in errors, as in "search."."""
        declared = {name: known for name, known in options_of(cls).items() if known.in_files}
        for name in content:
            if name not in declared:
                raise UserError(f"{part}{name} is no option{validate.nearest(name, declared)}")
        for name in declared:
            if name not in content:
                raise UserError(f"{part}{name} is missing")
        return cls._made(content, lambda name: part + name)

    @classmethod
    def names_in_files(cls) -> tuple[str, ...]:
        """The options that every file has."""
        return tuple(name for name, known in options_of(cls).items() if known.in_files)

    @classmethod
    def part_of(cls, content: Mapping[str, Any], part: str = "") -> Self:
        """Like `from_dict`, out of an object of a file that holds other things as well."""
        names = options_of(cls)
        return cls.from_dict({name: value for name, value in content.items() if name in names}, part)

    @classmethod
    def _made(cls, values: Mapping[str, Any], called: Callable[[str], str], typed: bool = True) -> Self:
        """A new object whose checks use other names than `__init__` would."""
        made = object.__new__(cls)
        for name, known in options_of(cls).items():
            object.__setattr__(made, name, values.get(name, known.default))
        made._settle(called, typed)
        return made

    def _settle(self, called: Callable[[str], str], typed: bool) -> None:
        """Check all values, and keep them in their plain types."""
        for name, known in options_of(type(self)).items():
            object.__setattr__(self, name, known.checked(called(name), getattr(self, name), typed))
        self.check_together(called)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: _plain(getattr(self, name)) for name, known in options_of(type(self)).items()
                if known.in_files}  # fmt: skip

    def fingerprint(self) -> dict[str, Any]:
        """What decides the result, ready for JSON: a run can be resumed with options that agree on it."""
        declared = options_of(type(self)).values()
        return {known.name: _plain(getattr(self, known.name)) for known in declared if known.changes_result}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value

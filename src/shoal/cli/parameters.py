"""Flags of a command, made from its options (see `shoal.options`)."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from shoal.options import Declared, Options, options_of

Command = Callable[..., None]


def with_options(
    *,
    defaults: Mapping[str, Any] | None = None,
    moved: Mapping[str, str] | None = None,
    headed: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """A parameter whose type is a class of options becomes a flag for each of them, in its place; others stay.

    defaults  of the command line, where they are not those of the class; None: left open, the help shows none
    moved     for the order of the help: {"seed": "out"} puts `seed`, and what follows it in its class, after `out`
    headed    what the help of all options of a parameter begins with: {"reading": "FILE: "}

    A parameter of type typer.Context is passed on; `given` tells which flags were typed.
    """

    def decorate(function: Command) -> Command:
        types = get_type_hints(function, include_extras=True)
        classes: dict[str, type[Options]] = {}
        blocks: list[list[inspect.Parameter]] = []
        for parameter in inspect.signature(function).parameters.values():
            kind = types[parameter.name]
            if isinstance(kind, type) and issubclass(kind, Options):
                classes[parameter.name] = kind
                head = (headed or {}).get(parameter.name, "")
                blocks.append([_parameter(known, defaults or {}, head) for known in _flags_of(kind).values()])
            else:
                blocks.append([parameter.replace(annotation=kind)])
        signature = inspect.Signature(_in_order(blocks, moved or {}))

        @functools.wraps(function)
        def command(*arguments: Any, **flags: Any) -> None:
            bound = signature.bind(*arguments, **flags)
            bound.apply_defaults()
            values = dict(bound.arguments)
            for name, kind in classes.items():
                typed = {known.name: values.pop(known.name) for known in _flags_of(kind).values()}
                values[name] = kind.from_flags(_understood(typed, kind))
            function(**values)

        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        return command

    return decorate


def given(context: typer.Context) -> dict[str, str]:
    """The flags that the user typed, by the name of the option."""
    sources = {parameter: context.get_parameter_source(parameter.name or "") for parameter in context.command.params}
    return {
        parameter.name or "": parameter.opts[0]
        for parameter, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }


def _flags_of(kind: type[Options]) -> dict[str, Declared]:
    return {name: known for name, known in options_of(kind).items() if known.about.on_command_line}


def _parameter(known: Declared, defaults: Mapping[str, Any], head: str = "") -> inspect.Parameter:
    """An option as typer wants it."""
    default = defaults.get(known.name, known.default)
    kind = str if known.about.parse is not None else known.about.typed or known.type
    if get_origin(kind) is tuple:
        kind, default = list[str], list(default) or None
    if known.switches_off:
        default = False
    if default is None or known.optional:
        kind = kind | None
    flags = known.flags if known.about.flags or known.type is bool else ()
    shown = typer.Option(
        *flags, help=head + known.help, metavar=known.about.metavar, show_default=not known.default_in_help
    )
    return inspect.Parameter(
        known.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )


def _understood(typed: Mapping[str, Any], kind: type[Options]) -> dict[str, Any]:
    """What typer gives, as the options want it; what was left open is left out, and has the default of the class."""
    values = {}
    for name, value in typed.items():
        known = options_of(kind)[name]
        if value is None and not known.optional:
            continue
        if known.switches_off:
            value = not value
        elif known.about.parse is not None and isinstance(value, str):
            value = known.about.parse(value)
        values[name] = value
    return values


def _in_order(blocks: list[list[inspect.Parameter]], moved: Mapping[str, str]) -> list[inspect.Parameter]:
    """All parameters of a command, some of them moved behind others."""
    parts = []
    for block in blocks:
        cuts = [0, *(k for k, parameter in enumerate(block) if k and parameter.name in moved), len(block)]
        parts += [block[start:end] for start, end in itertools.pairwise(cuts)]
    ordered = [parameter for part in parts if part and part[0].name not in moved for parameter in part]
    for part in parts:
        if part and part[0].name in moved:
            names = [parameter.name for parameter in ordered]
            place = names.index(moved[part[0].name]) + 1
            ordered[place:place] = part
    return ordered

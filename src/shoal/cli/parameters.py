"""Flags of a command, made from its options (see `shoal.options`)."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from shoal.options import Option, Options, option, options_of

Command = Callable[..., None]


@dataclass(frozen=True)
class RunFolderOptions(Options):
    """Options of commands that write a run folder which can be resumed."""

    out: Path | None = option(None, "Folder for the results. (default: ./shoal-runs/<name>-<n>)")
    fresh: bool = option(False, "Start over, even if an earlier run could be resumed.")
    dry_run: bool = option(False, "Print how the data are read and the plan, then stop.")


def _one_of_a_list(name: str) -> str:
    """
    >>> _one_of_a_list("--drop <list[str]>"), _one_of_a_list("DIR <list[Path]>")
    ('--drop <str>', 'DIR <path>')
    """
    return re.sub(r"<list\[(\w+)\]>", lambda found: f"<{found[1].lower()}>", name)


class GroupedCommand(TyperCommand):
    """A command whose help lists its options under headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                heading = "Arguments" if argument else getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(heading, []).append((_one_of_a_list(record[0]), record[1]))
        if len(sections) > 2:  # --help itself
            sections["Other"] = sections.pop("Options", [])
        for heading in sorted(sections, key=lambda name: (name != "Arguments", name == "Other")):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def with_options(
    *, defaults: Mapping[str, Any] | None = None, groups: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """A parameter whose type is a class of options becomes a flag for each of them; others stay.

    defaults  of the command line, where they are not those of the class; None: left open, the help shows none
    groups    headings of the help, each with its options in their order: {"Data": "target drop", "Output": "out"};
              options without a heading come last

    A parameter of type typer.Context is passed on; `given` tells which flags were typed.
    """
    heading_of = {name: heading for heading, names in (groups or {}).items() for name in names.split()}
    order = {name: place for place, name in enumerate(heading_of)}

    def decorate(function: Command) -> Command:
        types = get_type_hints(function, include_extras=True)
        classes: dict[str, type[Options]] = {}
        found: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            kind = types[parameter.name]
            if isinstance(kind, type) and issubclass(kind, Options):
                classes[parameter.name] = kind
                found += [_parameter(known, defaults or {}) for known in _flags_of(kind).values()]
            else:
                found.append(parameter.replace(annotation=kind))
        for parameter in found:
            for about in getattr(parameter.annotation, "__metadata__", ()):
                if isinstance(about, OptionInfo):
                    about.rich_help_panel = heading_of.get(parameter.name)
        signature = inspect.Signature(sorted(found, key=lambda one: (one.kind, order.get(one.name, len(order)))))

        @functools.wraps(function)
        def command(*arguments: Any, **flags: Any) -> None:
            bound = signature.bind(*arguments, **flags)
            bound.apply_defaults()
            values = dict(bound.arguments)
            for name, kind in classes.items():
                typed = {known.name: values.pop(known.name) for known in _flags_of(kind).values()}
                values[name] = kind.from_flags(_understood(typed, kind))
            function(**values)

        command.headings = groups  # type: ignore[attr-defined]
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


def _flags_of(kind: type[Options]) -> dict[str, Option]:
    return {name: known for name, known in options_of(kind).items() if known.on_command_line}


def _parameter(known: Option, defaults: Mapping[str, Any]) -> inspect.Parameter:
    """An option as typer wants it."""
    default = defaults.get(known.name, known.default)
    kind = str if known.parse is not None else known.typed or known.type
    if get_origin(kind) is tuple:
        kind, default = list[str], list(default) or None
    if known.switches_off:
        default = False
    if default is None or known.optional:
        kind = kind | None
    shown = f"{known.default:g}".replace("e-0", "e-") if isinstance(known.default, float) else str(known.default)
    about = typer.Option(
        *known.flags, help=known.help.replace("{default}", shown), metavar=known.metavar,
        show_default="{default}" not in known.help,
    )  # fmt: skip
    return inspect.Parameter(
        known.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )


def _understood(typed: Mapping[str, Any], kind: type[Options]) -> dict[str, Any]:
    """What typer gives, as the options want it; an option that was not given has the default of the class."""
    values = {}
    for name, value in typed.items():
        known = options_of(kind)[name]
        if value is None and not known.optional:
            continue
        if known.switches_off:
            value = not value
        elif known.parse is not None and isinstance(value, str):
            value = known.parse(value)
        values[name] = value
    return values

"""Options are declared once: flags, checks, files and fingerprints follow from the class."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from shoal.cli.parameters import GroupedCommand, given, with_options
from shoal.errors import UserError
from shoal.options import Options, option, options_of


@dataclass(frozen=True)
class Growing(Options):
    """All that a plant needs."""

    days: int = option(3, "Days in the sun.", least=1)
    water: float = option(0.5, "Litres a day. (default: {default})", above=0, flags="--water -w", metavar="LITRES")
    soil: str = option("loam", "What it stands in.", one_of={"loam": 1, "sand": 2})
    pots: tuple[str, ...] = option((), "Leave this pot out; repeatable.")
    roof: bool = option(True, "Leave it in the rain.", flags="--no-roof")
    labels: bool | None = option(None, "Whether it has labels.", flags="--labels/--bare")
    every: int | str = option("day", "day, or hours.", parse=lambda text: int(text) if text.isdecimal() else text)
    notes: Path | None = option(None, "Where to write.", changes_result=False)
    helpers: int = option(1, "How many.", least=1, changes_result=False, on_command_line=False)
    music: bool = option(False, "Play some.")
    splits: Any = option(None, "Into how many.", typed=int, least=2)
    friend: Any = option(None, "An object of Python's.", on_command_line=False, in_files=False)

    def check_together(self, called: Any) -> None:
        if self.soil == "sand" and self.days > 9:
            raise UserError(f"give {called('soil')} sand or more than nine {called('days')}, not both")


SEEN: dict[str, Any] = {}


GROUPS = {"Water": "water roof", "Place": "soil out"}


@with_options(groups=GROUPS, defaults={"days": 4, "soil": None})
def grow(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A seed.")] = None,
    *,
    growing: Growing,
    loud: Annotated[bool, typer.Option("--loud", help="Say more.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder.")] = None,
) -> None:
    """Grow it."""
    SEEN.update(growing=growing, file=file, loud=loud, given=given(context))


def called(*arguments: str) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=GroupedCommand)(grow)
    SEEN.clear()
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "150"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_command_is_made_from_its_options():
    called("seed.txt", "--days", "5", "-w", "2", "--soil", "sand", "--pots", "a", "--pots", "b", "--no-roof", "--bare",
           "--every", "7", "--loud", "--music")  # fmt: skip
    expected = Growing(5, 2.0, "sand", ("a", "b"), roof=False, labels=False, every=7, music=True)
    assert SEEN["growing"] == expected
    assert (SEEN["file"], SEEN["loud"]) == (Path("seed.txt"), True)
    assert SEEN["given"].keys() == {
        "file", "days", "water", "soil", "pots", "roof", "labels", "every", "loud", "music",
    }  # fmt: skip
    assert (SEEN["given"]["roof"], SEEN["given"]["labels"]) == ("--no-roof", "--labels")


def test_without_flags_a_command_has_the_defaults_of_the_class():
    called()
    assert SEEN["growing"] == Growing(days=4), "days has another default on the command line"
    assert SEEN["given"] == {}


def test_the_help_has_flags_texts_defaults_and_the_order_asked_for():
    text = called("--help").stdout
    lines = [line.strip() for line in text.splitlines()]
    names = [line.split(",")[0].split(" ")[0] for line in lines if re.match("-|[A-Z][a-z]+:$", line)]
    assert names == ["Arguments:", "Water:", "-w", "--no-roof", "Place:", "--soil", "--out", "Other:",
                     "--days", "--pots", "--labels", "--every", "--notes", "--music", "--splits", "--loud",
                     "--help"]  # fmt: skip
    assert "Days in the sun.  [default: 4]" in text
    assert re.search(r"What it stands in\.$", text, re.MULTILINE), "no default where it is left open"
    assert re.search(r"--splits <int> +Into how many", text)
    assert "Litres a day. (default: 0.5)" in text
    assert "LITRES" in text
    assert "--helpers" not in text


@pytest.mark.parametrize(
    ("flags", "fields", "message"),
    [
        (["--days", "0"], {"days": 0}, "{days} must be a whole number of at least 1; got 0"),
        (["-w", "nan"], {"water": float("nan")}, "{water} must be a positive number; got nan"),
        (["--soil", "lome"], {"soil": "lome"}, "{soil} must be one of loam, sand; got 'lome'; did you mean 'loam'?"),
        (["--soil", "sand", "--days", "10"], {"soil": "sand", "days": 10},
         "give {soil} sand or more than nine {days}, not both"),
    ],
)  # fmt: skip
def test_errors_name_an_option_as_the_user_wrote_it(flags, fields, message):
    names = {"days": "--days", "water": "--water", "soil": "--soil"}
    for make, known in ((lambda: called(*flags), names), (lambda: Growing(**fields), {n: n for n in names})):
        with pytest.raises(UserError) as caught:
            make()
        assert str(caught.value) == message.format(**known)


@pytest.mark.parametrize(
    "wrong",
    [{"days": 1.0}, {"days": True}, {"roof": "no"}, {"pots": "ab"}, {"pots": [3]}, {"notes": 3}, {"every": 0.5}],
)
def test_values_of_another_type_are_refused(wrong):
    with pytest.raises(TypeError, match=f"^{next(iter(wrong))}.* must be .*; got "):
        Growing(**wrong)


def test_options_come_back_from_a_file_and_are_checked():
    options = Growing(days=4, pots=("a",), notes=Path("notes.txt"), labels=True)
    content = json.loads(json.dumps(options.as_dict()))
    assert Growing.from_dict(content) == options
    with pytest.raises(UserError, match=r"^plan\.days must be a whole number of at least 1; got '4'$"):
        Growing.from_dict(content | {"days": "4"}, "plan.")
    with pytest.raises(UserError, match=r"^plan\.watre is no option; did you mean 'water'\?$"):
        Growing.from_dict(content | {"watre": 1}, "plan.")
    with pytest.raises(UserError, match=r"^plan\.days is missing$"):
        Growing.from_dict({name: value for name, value in content.items() if name != "days"}, "plan.")


def test_python_may_give_objects_where_flags_and_files_have_plain_values():
    options = Growing(splits=[1, 2], friend=object())
    assert options.splits == [1, 2]
    assert "friend" not in options.as_dict()
    with pytest.raises(UserError, match=r"^plan\.splits must be a whole number of at least 2; got \[1, 2\]$"):
        Growing.from_dict(options.as_dict(), "plan.")
    with pytest.raises(UserError, match=r"^plan\.friend is no option"):
        Growing.from_dict(Growing().as_dict() | {"friend": None}, "plan.")
    with pytest.raises(UserError, match=r"^--splits must be a whole number of at least 2; got 1$"):
        called("--splits", "1")


def test_what_must_agree_on_resuming_does_not_hang_on_the_order_of_fields():
    options = Growing(notes=Path("a"), helpers=2)
    assert options.fingerprint() == Growing().fingerprint()
    assert replace(options, every=2).fingerprint() != options.fingerprint()  # it stands before `notes`
    assert replace(options, music=True).fingerprint() != options.fingerprint()  # and this one after it


def test_a_field_without_an_option_is_refused():
    @dataclass(frozen=True)
    class Forgotten(Options):
        days: int = 3

    with pytest.raises(TypeError, match=r"Forgotten\.days must be made by option"):
        options_of(Forgotten)

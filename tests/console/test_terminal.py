"""No text from outside moves a cursor, changes a colour, or becomes a command of the shell."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.console import terminal
from shoal.console.progress import Screen

ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)
FILES = st.text(st.characters(exclude_characters="\x00/", exclude_categories=("Cs",)), min_size=1, max_size=20)
JOINERS = "\u200c\u200d"


def is_plain(text: str, also: str = "") -> bool:
    left = [sign for sign in text if sign not in also + JOINERS and not sign.isprintable()]
    return all((terminal.visible(sign) == sign and sign.isspace()) or ord(sign) >= 0xE000 for sign in left)


@settings(max_examples=300, deadline=None)
@given(ANY)
@example("\x1b]0;title\x07\x9b2J\x7f\u202e\u2028\u2029\ufeff\udc80\r\n")
def test_one_line_of_visible_signs(text: str) -> None:
    shown = terminal.visible(text)
    assert is_plain(shown)
    assert len(shown.splitlines()) <= 1
    assert terminal.visible(shown) == shown
    assert is_plain(terminal.visible_lines(text), also="\n\t")
    if text.isprintable():
        assert shown == text


def test_words_of_all_languages_stay_as_they_are() -> None:
    for text in (
        "Größe in m²",
        "大きさ　単位",
        "\u0646\u06cc\u0645\u200c\u0641\u0627\u0635\u0644\u0647",
        "цена, ₽",
        "👩\u200d💻",
        "a\u00a0b",
        "[bold] :end: {x}",
    ):
        assert terminal.visible(text) == text


@settings(max_examples=100, deadline=None)
@given(FILES)
@example("$(touch X).csv")
@example("`touch X`; rm -rf ~ #'\"\\")
@example("a\x1b[2J'\n\\b")
def test_a_file_is_one_word_of_a_command(name: str) -> None:
    word = terminal.quoted(name)
    assert is_plain(word)
    if terminal.visible(name) == name:
        assert shlex.split(f"shoal predict {word} new.csv") == ["shoal", "predict", name, "new.csv"]


def test_a_shell_reads_the_name_and_runs_nothing(tmp_path) -> None:
    names = [
        "$(touch X).csv",
        "`touch X`",
        "'; touch X; '",
        "a\x1b[2J'\n\\b\t\x7f",
        "ü\u202e\u2028$(touch X)",
        "-n",
        "*",
    ]
    words = " ".join(map(terminal.quoted, names))
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, cwd=tmp_path, check=True)
    assert done.stdout.decode().split("\0")[:-1] == names
    assert not list(tmp_path.iterdir())


@settings(max_examples=50, deadline=None)
@given(ANY)
def test_nothing_that_is_printed_while_a_command_runs_reaches_the_terminal_as_it_is(text: str) -> None:
    streams = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]), terminal.guarded():
        print(text)
        sys.stdout.writelines([text, "\n"])
        sys.stderr.write(text)
        terminal.say(text)
        terminal.console().print(f"[bold]:end:[/bold]{text}")
        screen = Screen(lambda record: None)
        screen.say(text)
    for stream in streams:
        assert is_plain(stream.getvalue(), also="\n\t")
    assert "[bold]:end:[/bold]" in streams[0].getvalue()


def test_data_for_programs_are_exact_and_on_a_terminal_they_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.guarded():
        terminal.say_data("a\x1b[2J,b")
    assert capsys.readouterr().out == "a\x1b[2J,b\n"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with contextlib.redirect_stdout(stream), terminal.guarded():
        terminal.say_data("a\x1b[2J,b")
    assert stream.getvalue() == "a\\x1b[2J,b\n"

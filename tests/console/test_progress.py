"""Progress on the screen, and when a command began."""

from __future__ import annotations

import subprocess
import sys


def test_a_command_counts_from_the_start_of_its_process() -> None:
    lines = "import time; first = time.monotonic(); from shoal.console import progress; before = progress.started();"
    lines += "progress.count_from_process_start(); print(progress.started() < first < before)"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_the_screen_shows_texts_as_they_are(capsys):
    from shoal.console.progress import Screen

    Screen(lambda record: None).say("a[i:key:j] = ':fish:' [bold]")
    assert capsys.readouterr().out == "a[i:key:j] = ':fish:' [bold]\n"

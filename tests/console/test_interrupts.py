"""Ctrl-C and SIGTERM, heard at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import command


def test_sigterm_is_heard_where_ctrl_c_is_ignored():
    """As in a command that a script has put into the background."""
    from shoal.console.interrupts import interruptible

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupt.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupt.requested == "SIGTERM"
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_an_interrupt_while_libraries_are_loaded_says_so(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()\n")
    done = subprocess.run(command("--version"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    # The signal's default action has ended it, for which a shell shows the exit code 130.
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "interrupted\n")


# A cycle of objects that says when it is found: soon, or at the end, or never.
FAREWELL = """
import gc
from shoal.console.early import collect_rarely


class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        print("found")


if {rarely}:
    collect_rarely()
Cycle()
young = [[] for _ in range(5000)]
print("end")
"""


@pytest.mark.parametrize(("rarely", "words"), [(False, ["found", "end"]), (True, ["end"])])
def test_garbage_is_looked_for_rarely_in_processes_of_ours(rarely, words):
    """Seven hundred new objects are enough otherwise; and at the end there is no search at all."""
    program = FAREWELL.format(rarely=rarely)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == words

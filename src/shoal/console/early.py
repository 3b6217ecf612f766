"""The first moments of a `shoal` command: libraries are being loaded, and Ctrl-C already has to be understood."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from types import FrameType


def is_command() -> bool:
    """Whether this process was started as `shoal ...` or `python -m shoal ...`."""
    words = sys.orig_argv[1:3]
    return words == ["-m", "shoal"] or os.path.basename(words[0] if words else "") in ("shoal", "shoal-script.py")


def _quit(number: int, _frame: FrameType | None) -> None:
    """Say so, and leave the rest to the signal's default action, which ends the process.

    Not an exception: libraries that are half loaded turn that into errors of their own.
    """
    os.write(2, b"interrupted\n")
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def collect_rarely() -> None:
    """Let Python look for garbage more rarely in this process, which is one of ours, and not at all at its end.

    PyTorch makes half a million objects as it is loaded. To look through them again and again, then and when the
    process ends, takes a second. Garbage that is a cycle of objects is found after ten thousand new ones instead of
    seven hundred.
    """
    gc.set_threshold(10_000, 10, 10)
    atexit.register(gc.freeze)


def listen() -> None:
    """From now on Ctrl-C ends the command with one word, if it is one of ours."""
    if is_command():
        collect_rarely()
    ours = is_command() and threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _quit)


def loaded() -> None:
    """All is there: Ctrl-C is an exception again."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)

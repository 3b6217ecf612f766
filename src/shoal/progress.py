"""Progress on the screen, and Ctrl-C that ends work at a clean point."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


def started() -> float:
    """When this command began, on time.monotonic()'s clock; for other programs that use its parts: now.

    The process is older than its first line of Python: the interpreter and libraries were loaded.
    """
    now = time.monotonic()
    return now if _age is None else now - _age()


def count_from_process_start() -> None:
    """The process is one of our commands from its beginning, so its budget begins with the process."""
    global _age
    born = _process_start()
    _age = None if born is None else lambda: time.clock_gettime(time.CLOCK_BOOTTIME) - born


_age: Callable[[], float] | None = None


def _process_start() -> float | None:
    """Seconds between the start of the machine and that of this process; None where the system does not tell."""
    try:
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        return float(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


@contextmanager
def sigterm_is_interrupt() -> Iterator[None]:
    """While inside, SIGTERM raises KeyboardInterrupt, as Ctrl-C does; where it had its default meaning."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Interrupt:
    """Set by the first Ctrl-C; the second one acts at once, as without us."""

    requested = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """While inside, the first SIGINT only sets a flag, and so does SIGTERM where a command has given it a handler.

    Outside the main thread signals cannot be caught: no change.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    # A handler that we cannot put back, one that ignores (a command in the background), the default of SIGTERM: left.
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in found.items() if callable(handler)}

    def as_before() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        interrupt.requested = True
        as_before()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield interrupt
    finally:
        as_before()


class Reporter:
    """A progress bar over member-epochs, or nothing at all. Engines count from zero in each run."""

    def __init__(self, show: bool, total: int) -> None:
        self.total = total
        self._bar: Any = None
        self._task: Any = None
        self._before = 0  # done in earlier runs
        self._done = 0
        if show and total:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("network-epochs"),
                TimeRemainingColumn(elapsed_when_finished=True),
            )  # fmt: skip
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Reporter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if self._bar:
            if failure is None:  # members that stopped early will not use what was reserved for them
                self._bar.update(self._task, completed=self._before, total=self._before)
            self._bar.stop()

    def update(self, done: int) -> bool:
        """Show so many member-epochs of this run. Always False: a reporter never asks to stop."""
        self._done = done
        if self._bar:
            self._bar.update(self._task, completed=self._before + done)
        return False

    def finish_run(self) -> None:
        self._before += self._done
        self._done = 0


def steady_output() -> None:
    """Lines appear at once, also in a file that progress goes to as well; and no terminal is too old for a sign."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="replace")


class Screen:
    """A bar with the time left, a line for each record, and notes; nothing at all where it is to be quiet."""

    def __init__(self, line: Callable[[dict[str, Any]], str | None], quiet: bool = False) -> None:
        """`line` says a record in words; None where it is not worth a line."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        steady_output()
        self.line, self.quiet = line, quiet
        self.console = Console(soft_wrap=True, highlight=False, quiet=quiet)
        self.bar = Progress(
            BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}"),
            TimeRemainingColumn(elapsed_when_finished=True), console=self.console,
            disable=quiet or not self.console.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("starting", total=1.0)

    def __enter__(self) -> Screen:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, emoji=False)

    def tell(self, content: dict[str, Any]) -> None:
        if "note" in content:
            self.say(content["note"])
        if "record" in content:
            text = self.line(content["record"])
            if text is not None:
                self.say(text)
        if "share" in content:
            loss = f"loss {content['loss']:.4f}" if "loss" in content else ""
            self.bar.update(self.task, completed=content["share"], description=loss)

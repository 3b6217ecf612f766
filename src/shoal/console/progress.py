"""Progress on the screen: one bar, and what is made with it; and when the command began."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from shoal.console import terminal
from shoal.console.notebook import OutputBar, in_notebook


def started() -> float:
    """When this command began, on time.monotonic()'s clock; for other programs that use its parts: now.

    The process is older than its first line of Python: the interpreter and libraries were loaded.
    """
    now = time.monotonic()
    return now if _age is None else now - _age()


def count_from_process_start() -> None:
    """The process is one of our commands from its beginning, so its budget begins with the process."""
    global _age
    import psutil

    born, clock = psutil.Process().create_time(), time.time
    if hasattr(time, "CLOCK_BOOTTIME"):
        # Linux counts from the start of the machine, which psutil knows to the second only, and has added to this.
        born, clock = born - psutil.boot_time(), partial(time.clock_gettime, time.CLOCK_BOOTTIME)

    def age() -> float:
        return clock() - born

    _age = age


_age: Callable[[], float] | None = None


def steady_output() -> None:
    """Lines appear at once, also in a file that progress goes to as well; and no terminal is too old for a sign."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True, errors="replace")


class Bar:
    """The progress bar: a title, the bar, how much is done, words of the moment, a clock; or nothing at all."""

    def __init__(
        self,
        total: float,
        *,
        title: str = "",
        amount: Literal["count", "percent", ""] = "",
        words: str = "",
        clock: Literal["left", "elapsed", ""] = "",
        console: Any = None,
        transient: bool = False,
        show: bool = True,
    ) -> None:
        self._bar: Any = None
        if not show:
            return
        from rich import progress as rich

        columns: dict[str, Any] = {
            "title": rich.TextColumn(title, markup=False), "bar": rich.BarColumn(30),
            "count": rich.MofNCompleteColumn(), "percent": rich.TextColumn("{task.percentage:>3.0f}%"),
            "words": rich.TextColumn("{task.fields[words]}", markup=False),
            "left": rich.TimeRemainingColumn(elapsed_when_finished=True), "elapsed": rich.TimeElapsedColumn(),
        }  # fmt: skip
        parts = [columns[name] for name in ("title" if title else "", "bar", amount, "words", clock) if name]
        self._bar = rich.Progress(*parts, console=console or terminal.console(), transient=transient)
        self._task = self._bar.add_task("", total=total, words=words)

    def start(self) -> None:
        if self._bar is not None:
            self._bar.start()

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: float, words: str | None = None, total: float | None = None) -> None:
        """How much is done now, of a new total if given; words stay unless others are given."""
        if self._bar is not None:
            changed = {} if words is None else {"words": terminal.visible(words)}
            self._bar.update(self._task, completed=done, total=total, **changed)


class ProgressBar:
    """A callback that shows the memory and the progress of `Population.fit` in the terminal or notebook.

    Examples
    --------
    >>> from shoal import Member, Population
    >>> population = Population([Member()], n_features=1, n_outputs=1, loss="mse")
    >>> _ = population.fit([[1.0], [2.0]], [1.0, 2.0], epochs=1, callbacks=[ProgressBar()])  # doctest: +ELLIPSIS
    estimated peak memory ...
    """

    _bar: Bar | OutputBar | None = None

    def started(self, memory: object) -> None:
        """Show the estimated memory."""
        terminal.say(str(memory))

    def progress(self, event: Any) -> None:
        """Move the bar."""
        if self._bar is None:
            titled: dict[str, Any] = {"title": "training", "words": "network-epochs"}
            if in_notebook():
                self._bar = OutputBar(event.total, **titled)
            else:
                self._bar = Bar(event.total, amount="count", clock="left", **titled)
            self._bar.start()
        self._bar.update(event.done)
        self._total = event.total

    def finished(self, history: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.update(self._total)  # members that stopped early will not use what was reserved for them
            self._bar.stop()
            self._bar = None


class Screen:
    """A bar with the time left, a line for each record, and notes; nothing at all where it is to be quiet."""

    def __init__(self, line: Callable[[dict[str, Any]], str | None], quiet: bool = False) -> None:
        """`line` says a record in words; None where it is not worth a line."""
        steady_output()
        self.line, self.quiet = line, quiet
        self.console = terminal.console(soft_wrap=True, quiet=quiet)
        self.bar = Bar(
            1.0, amount="percent", words="starting", clock="left", console=self.console,
            show=not quiet and self.console.is_terminal,
        )  # fmt: skip

    def __enter__(self) -> Screen:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        self.console.print(terminal.visible(text))

    def tell(self, content: dict[str, Any]) -> None:
        if "note" in content:
            self.say(content["note"])
        if "record" in content:
            text = self.line(content["record"])
            if text is not None:
                self.say(text)
        if "share" in content:
            loss = f"loss {content['loss']:.4f}" if "loss" in content else ""
            self.bar.update(content["share"], words=loss)

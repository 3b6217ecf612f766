"""Ctrl-C and SIGTERM, which `kill`, `timeout` and batch systems send: the first asks work to end, the second quits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


@contextmanager
def sigterm_is_interrupt() -> Iterator[None]:
    """While inside, SIGTERM raises KeyboardInterrupt, as Ctrl-C does; where it had its default meaning."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Interrupt:
    """Whether the user has asked to end, and how."""

    requested = ""  # "Ctrl-C" or "SIGTERM"


_held = False  # whether the block that hears them wants those inside not to


@contextmanager
def interruptible(told: Callable[[], None] | None = None) -> Iterator[Interrupt]:
    """While inside, the first SIGINT is noted and `told` is called; the second one acts at once, as without us.

    So it is with SIGTERM where a command has given it a handler. Outside the main thread signals cannot be caught: no
    change. Nor inside `holding_interrupts`.
    """
    interrupt = Interrupt()
    if _held or threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    # A handler that we cannot put back, one that ignores (a command in the background), the default of SIGTERM: left.
    found = {number: signal.getsignal(number) for number in NAMES}
    before = {number: handler for number, handler in found.items() if callable(handler)}

    def as_before() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        interrupt.requested = NAMES[signal.Signals(number)]
        as_before()
        if told is not None:
            told()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield interrupt
    finally:
        as_before()


@contextmanager
def holding_interrupts(told: Callable[[], None]) -> Iterator[Interrupt]:
    """As `interruptible`, for a whole of parts that are `interruptible` themselves: the whole hears it, not a part."""
    global _held
    with interruptible(told) as interrupt:
        before, _held = _held, True
        try:
            yield interrupt
        finally:
            _held = before

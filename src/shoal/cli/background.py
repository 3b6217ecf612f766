"""Long work in a thread of its own, so that the main thread is free for Ctrl-C and the screen.

Signals reach the main thread only. While a population trains there, its own handler takes the first Ctrl-C; with the
work elsewhere, one handler (`shoal.interrupts`) serves all phases of a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

LAST_MOMENT = 10.0  # seconds; the engines look several times a second whether they are to end


def run(work: Callable[[], Any], meanwhile: Callable[[], None], every: float = 0.1) -> Any:
    """The result of `work`, done in another thread; the present one calls `meanwhile` now and then.

    After KeyboardInterrupt the work is waited for, at most a moment: Python must not shut down while the kernel trains.
    """
    results: list[Any] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # handed over to the thread that waits
            errors.append(error)

    thread = threading.Thread(target=body, name="shoal-search", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(every)
            meanwhile()
    except KeyboardInterrupt:
        thread.join(LAST_MOMENT)
        raise
    if errors:
        raise errors[0]
    return results[0]

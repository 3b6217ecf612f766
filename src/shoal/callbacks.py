"""One protocol to watch and stop runs: searches, populations, parallel training, plans and fine-tuning."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.errors import UserError

TRACKERS = ("JSONLines", "MLflow", "TensorBoard")  # of `shoal.trackers`, a higher layer: loaded when first asked for
EVENTS = ("started", "progress", "step_ended", "note", "finished")


def __getattr__(name: str) -> Any:
    if name in TRACKERS:
        return getattr(importlib.import_module("shoal.trackers"), name)
    raise AttributeError(f"module 'shoal.callbacks' has no attribute {name!r}")


class Callback:
    """Watches a run, and may stop it. Override what you need.

    `progress` and `step_ended` may return True: the run then stops early and keeps the best so far. A step is a rung
    of a search, an epoch of a training, or a stage of a plan. `progress` is called in the thread that trains, several
    times a second, so it should be quick. Each kind of run documents the events that it passes.

    Examples
    --------
    >>> from shoal import Member, Population
    >>> class Watch(Callback):
    ...     def step_ended(self, history):
    ...         print("trained")
    >>> population = Population([Member()], n_features=1, n_outputs=1, loss="mse")
    >>> _ = population.fit(np.ones((4, 1)), np.ones(4), epochs=1, callbacks=[Watch()])
    trained
    """

    def started(self, event: Any) -> None:
        """Preparation is done and training begins."""

    def progress(self, event: Any) -> bool | None:
        """Called several times a second while networks train."""

    def step_ended(self, event: Any) -> bool | None:
        """A rung, an epoch or a stage has ended."""

    def finished(self, result: Any) -> None:
        """The result is complete."""


class StopWhen:
    """A callback that stops a run once a condition is true.

    Parameters
    ----------
    condition : callable
        Takes nothing and is called several times a second.

    Examples
    --------
    >>> import time
    >>> evening = StopWhen(lambda: time.localtime().tm_hour >= 18)
    """

    def __init__(self, condition: Callable[[], bool]) -> None:
        self.condition = condition

    def progress(self, event: Any) -> bool:
        """Whether to stop."""
        return bool(self.condition())


class Callbacks:
    """Several callbacks as one. Any object with at least one of the methods is a callback.

    A method `note(text)` receives what would be a warning otherwise.
    """

    def __init__(self, callbacks: Any = None) -> None:
        given: Any = callbacks.callbacks if isinstance(callbacks, Callbacks) else callbacks
        given = [] if given is None else given
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise UserError(f"callbacks must be a list of callbacks or None; got {callbacks!r}: put it into a list")
        for callback in given:
            if isinstance(callback, type):
                raise UserError(f"a callback must be an object, such as {callback.__name__}(); got {callback!r}")
            if not any(hasattr(callback, event) for event in EVENTS):
                raise UserError(f"a callback has at least one of the methods {', '.join(EVENTS)}; got {callback!r}")
        self.callbacks: list[Any] = list(given)

    def notify(self, event: str, content: Any) -> bool:
        """Call every callback that has this method; whether one of them asks to stop."""
        try:
            answers = [getattr(callback, event)(content) for callback in self.callbacks if hasattr(callback, event)]
        except SystemExit as error:  # it would end Python as if all had gone well
            raise UserError(
                f"a callback called sys.exit({'' if error.code is None else repr(error.code)}) in {event}; to stop "
                "early, return True"
            ) from error
        return any(isinstance(answer, (bool, np.bool_)) and bool(answer) for answer in answers)

    def listens(self, event: str) -> bool:
        """Whether any callback has this method."""
        return any(hasattr(callback, event) for callback in self.callbacks)

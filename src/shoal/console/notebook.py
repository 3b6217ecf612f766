"""Notebooks: whether this is one, objects that show themselves there, and an output that changes in its place."""

from __future__ import annotations

import importlib
import sys
import time
from html import escape
from typing import Any

CARDS = "shoal.report.notebook"  # loaded when something is first shown: it is a higher layer


class InNotebook:
    """Shown as a small card of HTML where a notebook asks for it; elsewhere nothing changes."""

    def _repr_html_(self) -> str:
        return str(importlib.import_module(CARDS).card_of(self))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, so that HTML is shown."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class Output:
    """One output of the present cell, whose content can be replaced as often as is wanted."""

    _handle: Any = None

    def show(self, html: str, text: str) -> None:
        """Replace what is shown by HTML, or by text where that is all that can be shown."""
        from IPython.display import display

        content = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class OutputBar:
    """A bar in a notebook: how much is done, and a few words."""

    def __init__(self, total: float, title: str, words: str) -> None:
        self.total, self.title, self.words, self.output = total, title, words, Output()
        self._next = 0.0

    def start(self) -> None:
        """It appears with the first update."""

    def stop(self) -> None:
        """It stays."""

    def update(self, done: float) -> None:
        """At most a few times a second, and at the end."""
        now = time.monotonic()
        if now >= self._next or done >= self.total:
            self._next = now + 0.25
            said = f"{self.title}: {done:,.0f} of {self.total:,.0f} {self.words}"
            bar = f'<progress value="{done:g}" max="{self.total:g}" style="width: 16em"></progress>'
            self.output.show(f"<div>{bar} {escape(said)}</div>", said)

"""What all displays share: the axes to draw into, and what `plot` leaves behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shoal.errors import MissingPackage


def axes_for(ax: Any) -> Any:
    """The axes to draw into: those given, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise MissingPackage("figures need matplotlib: pip install 'shoal-ml[plots]'") from error
    return plt.subplots(layout="constrained")[1]


def literal(text: object) -> str:
    """A name from the data as matplotlib takes it: two dollar signs would begin and end a formula.

    >>> print(literal("cost in $ of 2 $"))
    cost in \\$ of 2 \\$
    """
    return str(text).replace("$", r"\$")


DisplayT = TypeVar("DisplayT", bound="Display")


@dataclass
class Display(ABC):
    """What all displays share with those of scikit-learn."""

    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    def plot(self: DisplayT, ax: Any = None) -> DisplayT:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        display
            This object.
        """
        ax = axes_for(ax)
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw into these axes."""

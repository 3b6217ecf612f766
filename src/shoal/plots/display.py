"""What all displays share: the axes to draw into, and what `plot` leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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


@dataclass
class Drawn:
    """What `plot` leaves behind, as scikit-learn's displays do."""

    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    def _keep(self, ax: Any) -> Any:
        self.ax_, self.figure_ = ax, ax.figure
        return self

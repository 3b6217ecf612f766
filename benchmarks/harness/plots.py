"""What the plots share: colours, axes, ticks. Figures are made without pyplot: no window and no state is involved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinct to colour-blind eyes (Okabe and Ito).
COLORS = {
    "native": "#D55E00",
    "grouped": "#E69F00",
    "reference": "#009E73",
    "vmap": "#0072B2",
    "sequential": "#CC79A7",
    "bmm": "#56B4E9",
    "jax": "#7A5195",
}


def grid_of_axes(rows: int, columns: int, width: float = 3.9, height: float = 3.1) -> tuple[Figure, Any]:
    """A figure and its axes, always as rows of columns, with light grids."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(width * columns, 6.0), max(height * rows + 0.6, 3.6)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.grid(True, which="major", color="0.9", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def plain_ticks(axis: Any, values: Sequence[float]) -> None:
    """The values themselves on a logarithmic x axis, as plain numbers."""
    from matplotlib.ticker import NullFormatter, NullLocator

    axis.set_xticks(values, [f"{value:,}" for value in values])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())

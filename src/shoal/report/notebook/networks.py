"""Cards of a population and of its history."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from shoal.files.json_values import plain
from shoal.population.history import History
from shoal.report.notebook.card import card, facts, heading, small
from shoal.report.shell import words
from shoal.report.shell.figures import area, drawing, grid, polyline
from shoal.report.shell.markup import EMPTY, Html, tag
from shoal.report.shell.scales import Axis, padded

if TYPE_CHECKING:
    from shoal.population.population import Population

SHAPES_SHOWN, POINTS = 4, 120
CURVES = {"loss": "training loss", "valid_loss": "validation loss", "valid_score": "validation score"}


def population_card(population: Population) -> Html:
    """How many networks of what kinds, and how far they are."""
    epochs, members = population.epochs, population.members
    span = words.count(int(epochs.min())) if epochs.min() == epochs.max() else f"{epochs.min():,} to {epochs.max():,}"
    states = ", ".join(f"{words.count(n)} {name}" for name, n in Counter(population.status).items())
    said = f"{words.count(len(members), 'network')}, {words.count(int(population.layout.counts.sum()), 'parameter')}"
    found = facts(
        inputs=words.count(population.n_features), outputs=words.count(population.n_outputs), loss=population.loss,
        epochs_done=span, status=states,
        hidden_layers=_commonest(["x".join(map(str, one.hidden)) or "linear" for one in members]),
        activations=_commonest([one.activation for one in members if one.hidden]),
    )  # fmt: skip
    return card(heading("Population", said), found, _curves(population.history))


def _commonest(values: list[str]) -> str | None:
    counts = Counter(values).most_common()
    if not counts:
        return None
    shown = ", ".join(value for value, _ in counts[:SHAPES_SHOWN])
    return f"{shown} and {words.count(len(counts) - SHAPES_SHOWN)} more" if len(counts) > SHAPES_SHOWN else shown


def history_card(history: History) -> Html:
    """Curves of the loss, and of what was measured on validation rows."""
    said = f"{words.count(len(history.loss), 'network')}, {words.count(history.n_epochs, 'epoch')}"
    best = history.last("valid_score")
    best = best[np.isfinite(best)]
    found = facts(
        time=words.duration(history.seconds),
        best_validation_score=words.significant(float(best.max())) if len(best) else None,
        diverged=words.count(int(n)) if (n := np.isinf(history.last()).sum()) else None,
    )
    return card(heading("History", said), found, _curves(history))


def _curves(history: History) -> Html:
    figures = [figure for name in CURVES if (figure := _figure(history, name))]
    if not figures:
        return EMPTY
    said = small("The line is the median of all networks; eight in ten are within the band.")
    return tag("div", *figures, said, class_="curves")


def _figure(history: History, name: str) -> Html:
    """The median and the middle eight tenths of all networks, epoch by epoch."""
    values = getattr(history, name)
    last = max(history.n_epochs - 1, 0)
    chosen = np.unique(np.linspace(0, last, POINTS).astype(int))[: history.n_epochs]
    epochs, bands = [], []
    for epoch in chosen:
        known = values[:, epoch][np.isfinite(values[:, epoch])]
        if len(known):
            epochs.append(int(epoch) + 1)
            bands.append(np.quantile(known, [0.1, 0.5, 0.9]).tolist())
    if not epochs:
        return EMPTY
    low, middle, high = (list(column) for column in zip(*plain(bands), strict=True))
    across, up = Axis(epochs[0], max(epochs[-1], epochs[0] + 1), 46, 250), Axis(*padded([*low, *high]), 150, 24)
    parts = [
        grid(across, up, "epochs", CURVES[name], about=(4, 3)), area(across, up, epochs, low, high),
        polyline(across, up, epochs, middle, "valid"),
    ]  # fmt: skip
    description = f"The median goes from {words.significant(middle[0])} to {words.significant(middle[-1])}."
    drawn = drawing(f"curve-{name}", words.capitalised(CURVES[name]), description, 190, *parts, width=260)
    return tag("figure", drawn)

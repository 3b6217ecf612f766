"""The card of a search that is running: how far it is, and a dot for each recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.report.notebook.card import card, heading, small
from shoal.report.shell import words
from shoal.report.shell.figures import drawing, grid
from shoal.report.shell.markup import EMPTY, Html, tag
from shoal.report.shell.scales import Axis, padded

WIDTH, HEIGHT = 690, 220
MOST_DOTS = 1500  # of each kind: what a notebook stores stays small
Dots = Sequence[tuple[float, float]]  # seconds, score


@dataclass(frozen=True)
class SearchDots:
    """Recipes as points of time and score, each where it was last scored."""

    metric: str
    seconds: float  # of the axis
    dropped: Dots  # recipes that do not continue
    going: Dots  # those that do, or are finished
    chosen: Dots = ()  # those in the model


def progress_card(said: str, share: float, dots: SearchDots) -> Html:
    """`said`: how far the search is; `share`: of it that is done."""
    width = round(WIDTH * min(max(share, 0.0), 1.0), 1)
    track = tag(
        "svg", tag("rect", width=WIDTH, height=4, class_="track"), tag("rect", width=width, height=4, class_="bar"),
        viewBox=f"0 0 {WIDTH} 4", preserveAspectRatio="none", style="height:4px;margin-bottom:0.7rem",
        aria_hidden="true",
    )  # fmt: skip
    return card(heading("Search", said), track, dots_figure(dots))


def dots_figure(dots: SearchDots) -> Html:
    """Time against score. A score far below the others is drawn at the lower edge."""
    every = np.array([*dots.dropped, *dots.going])
    if not len(every):  # as high as it will be, so that nothing jumps
        empty = tag("svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", aria_hidden="true")
        return tag("div", tag("figure", empty, style="max-width:none"), small("no recipe has a score yet"))
    scores = every[:, 1]
    low = float(np.quantile(scores, 0.2)) if len(scores) > 10 else float(scores.min())
    low, high = padded([low, float(scores.max())], 0.1)
    across, up = Axis(0.0, max(dots.seconds, 1e-3), 46, WIDTH - 10), Axis(low, high, HEIGHT - 38, 24)
    unit, factor = ("%", 100) if words.is_share(dots.metric) else ("", 1)
    parts = [grid(across, up, "seconds", words.metric_name(dots.metric), unit_up=unit)]
    for kind, found in (("gone", dots.dropped), ("tried", dots.going), ("chosen", dots.chosen)):
        thinned = found[:: len(found) // MOST_DOTS + 1]
        path = "".join(f"M{across(x):g} {up(max(y, low)):g}h0" for x, y in thinned)
        parts.append(tag("path", d=path, class_=kind) if path else EMPTY)
    best = words.fixed(factor * float(scores.max()), 1 if unit else 3) + unit
    description = f"{words.count(len(every), 'recipe')}, the best score is {best}."
    drawn = drawing("dots", "Recipes by time and score", description, HEIGHT, *parts, width=WIDTH)
    keys = [("tried", "continues or is finished"), ("gone", "stopped"), ("chosen", "in the model")]
    shown = [(kind, name) for kind, name in keys if kind != "chosen" or dots.chosen]
    marks = [part for kind, name in shown for part in (_mark(kind), f" {name} ")]
    return tag("div", tag("figure", drawn, style="max-width:none"), small(*marks))


def _mark(kind: str) -> Html:
    """A dot in a line of text."""
    dot = tag("path", d="M6 6h0", class_=kind)
    return tag("svg", dot, viewBox="0 0 12 12", style="display:inline-block;width:12px;height:12px", aria_hidden="true")

"""How strategies are told apart: colour, dashes, marker and a label at the end of a line; and the legend of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.report.plan.strategies import Strategy
from shoal.report.shell.figures import text
from shoal.report.shell.markup import EMPTY, Html, join, tag
from shoal.report.shell.scales import Axis, LogAxis

# So many styles are in the style sheet; further strategies take them again.
STYLES = 16
LABEL_HEIGHT = 13.0
RADIUS = 3.2
LONGEST_LABEL = 20
# Shapes of a radius of about 1: disc, square, triangle, diamond and so on, as in the scatter plot of a search.
SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.3), (1.25, 0.9), (-1.25, 0.9)),
    ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    ((0, 1.3), (1.25, -0.9), (-1.25, -0.9)),
    ((-1.4, -0.55), (1.4, -0.55), (1.4, 0.55), (-1.4, 0.55)),
    (
        (-0.45, -1.35),
        (0.45, -1.35),
        (0.45, -0.45),
        (1.35, -0.45),
        (1.35, 0.45),
        (0.45, 0.45),
        (0.45, 1.35),
        (-0.45, 1.35),
        (-0.45, 0.45),
        (-1.35, 0.45),
        (-1.35, -0.45),
        (-0.45, -0.45),
    ),
    ((-0.55, -1.4), (0.55, -1.4), (0.55, 1.4), (-0.55, 1.4)),
    ((-1.2, -1.2), (1.2, -1.2), (-1.2, 1.2)),
    ((-0.6, -1.2), (0.6, -1.2), (1.3, 0), (0.6, 1.2), (-0.6, 1.2), (-1.3, 0)),
    ((1.2, 1.2), (-1.2, 1.2), (1.2, -1.2)),
    ((-1.3, -1.1), (1.3, 1.1), (1.3, -1.1), (-1.3, 1.1)),
    ((-0.9, -1.25), (1.3, 0), (-0.9, 1.25)),
    ((0, -1.7), (0.45, -0.45), (1.7, 0), (0.45, 0.45), (0, 1.7), (-0.45, 0.45), (-1.7, 0), (-0.45, -0.45)),
    ((0.9, -1.25), (-1.3, 0), (0.9, 1.25)),
    ((-1.1, -1.3), (1.1, 1.3), (-1.1, 1.3), (1.1, -1.3)),
)


def shape(place: int, x: float, y: float, radius: float) -> str:
    """The path of a strategy's marker at a position.

    >>> shape(1, 10, 20, 2)
    'M8.2 18.2L11.8 18.2L11.8 21.8L8.2 21.8z'
    """
    corners = SHAPES[place % STYLES]
    if not corners:
        r = f"{radius:g}"
        return f"M{x - radius:g} {y:g}a{r} {r} 0 1 0 {2 * radius:g} 0a{r} {r} 0 1 0 {-2 * radius:g} 0z"
    return "M" + "L".join(f"{round(x + radius * dx, 1):g} {round(y + radius * dy, 1):g}" for dx, dy in corners) + "z"


def markers(place: int, points: Sequence[tuple[float, float]], hollow: bool = False) -> Html:
    """All markers of a line as one path."""
    paths = "".join(shape(place, x, y, RADIUS) for x, y in points)
    kind = f"hollow line{place % STYLES}" if hollow else f"mark tone{place % STYLES}"
    return tag("path", d=paths, class_=kind) if points else EMPTY


def route(points: Sequence[tuple[float, float]], place: int) -> Html:
    """The line through some positions."""
    if len(points) < 2:
        return EMPTY
    return tag("path", d="M" + "L".join(f"{x:g} {y:g}" for x, y in points), class_=f"route line{place % STYLES}")


def apart(points: Sequence[tuple[float, float]], distance: float) -> list[tuple[float, float]]:
    """Some of the positions, from left to right, at least so far apart; the last one always.

    >>> apart([(0, 1), (4, 1), (9, 1), (12, 1)], 8)
    [(4, 1), (12, 1)]
    """
    kept: list[tuple[float, float]] = []
    for point in reversed(points):
        if not kept or kept[-1][0] - point[0] >= distance:
            kept.append(point)
    return kept[::-1]


def group(place: int, *children: object) -> Html:
    """What belongs to one strategy, for the script that highlights it."""
    return tag("g", *children, data_strategy=place)


@dataclass(frozen=True)
class End:
    """The end of a line, and its label."""

    x: float
    y: float
    label: str
    place: int


def spread(heights: list[float], least: float, low: float, high: float) -> list[float]:
    """Sorted heights moved apart to a distance of at least `least`, within low and high as far as they fit.

    >>> spread([10, 11, 50], 13, 0, 100), spread([90, 95], 13, 0, 100)
    ([10, 23, 50], [87, 100])
    """
    moved = list(heights)
    for place in range(1, len(moved)):
        moved[place] = max(moved[place], moved[place - 1] + least)
    over = moved[-1] - high if moved else 0
    if over > 0:
        moved[-1] -= over
        for place in range(len(moved) - 2, -1, -1):
            moved[place] = max(min(moved[place], moved[place + 1] - least), low + place * least)
    return moved


def shortened(label: str, longest: int = LONGEST_LABEL) -> str:
    """
    >>> shortened("a very long name of a strategy")
    'a very long name of…'
    """
    return label if len(label) <= longest else f"{label[: longest - 1]}…"


def labels(ends: list[End], right: float, up: Axis) -> list[Html]:
    """Labels right of the plot, each with a hair line to the end of its line, moved apart where they would overlap."""
    ends = sorted(ends, key=lambda end: end.y)
    heights = spread([end.y for end in ends], LABEL_HEIGHT, up.end, up.start)
    parts = []
    for end, y in zip(ends, heights, strict=True):
        path = f"M{end.x + 4:g} {end.y:g}L{right + 4:g} {end.y:g}L{right + 12:g} {y:g}"
        leader = tag("path", d=path, class_="leader")
        name = text(right + 15, round(y + 4, 1), shortened(end.label), f"label ink{end.place % STYLES}")
        parts.append(group(end.place, leader, name))
    return parts


def swatch(place: int) -> Html:
    """A piece of the line with its marker."""
    stroke = tag("path", d="M0 8H40", class_=f"route line{place % STYLES}")
    mark = tag("path", d=shape(place, 20, 8, 4), class_=f"mark tone{place % STYLES}")
    return tag("svg", stroke, mark, viewBox="0 0 40 16", aria_hidden="true", class_="swatch-line")


def legend(shown: list[Strategy]) -> Html:
    """The names of the lines. The script makes buttons of them, which highlight a strategy in all figures."""
    if len(shown) < 2:
        return EMPTY
    items = [tag("li", swatch(one.place), tag("span", one.label), data_pick=one.place) for one in shown]
    return tag("ul", join(items), class_="legend strategies", aria_label="Strategies")


@dataclass(frozen=True)
class NodesAxis(LogAxis):
    """Nodes on a logarithmic axis, with labels at the counts that the plan has."""

    counts: tuple[int, ...] = ()

    def marks(self, about: int = 4, factor: float = 1) -> list[tuple[float, str]]:
        doubled = [count for count in self.counts if count & (count - 1) == 0]
        counts = doubled if len(doubled) > 2 and len(self.counts) > 8 else self.counts
        places = apart([(self(count), float(count)) for count in counts], 24)
        return [(x, f"{int(count):,}") for x, count in places]

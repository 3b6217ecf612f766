"""Sections on the columns: which of them matter, what each does, which act together."""

from __future__ import annotations

import datetime
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import cursor, drawing, grid, line, polyline, text
from shoal.report.shell.markup import (
    EMPTY,
    Html,
    Section,
    cell,
    column_head,
    join,
    paragraph,
    row_head,
    strong,
    table,
    tag,
)
from shoal.report.shell.scales import Axis, padded

COLUMNS_SHOWN = 12
COLUMNS_WRITTEN = 500
GROUPS_SHOWN = 5
BAR_WIDTH, BAR_HEIGHT = 300, 18
LONGEST_NAME = 40
MICROSECONDS = 1e6
Part = dict[str, Any]


def short(name: object, most: int = LONGEST_NAME) -> str:
    shown = str(name)
    return shown if len(shown) <= most else shown[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


# ---- what matters ----


def drop(value: float, metric: str) -> str:
    """An importance: points where the score is a percentage, else a number.

    >>> drop(0.0417, "accuracy"), drop(0.0417, "r2")
    ('4.2', '0.042')
    """
    if words.is_share(metric):
        return words.fixed(value * 100, 1)
    return words.fixed(value, 3) if abs(value) < 10 else words.significant(value)


def importance_bar(one: Part, axis: Axis) -> Html:
    """The importance as a bar and its interval as a line; the numbers are in the table."""
    zero, middle = axis(0.0), BAR_HEIGHT / 2
    end = axis(max(one["importance"], 0.0))
    parts = [
        tag("rect", x=zero, y=3, width=round(max(end - zero, 0), 1), height=BAR_HEIGHT - 6, class_="bar"),
        line(axis(one["low"]), middle, axis(one["high"]), middle, "whisker"),
        line(zero, 0, zero, BAR_HEIGHT, "axis"),
    ]
    return tag("svg", *parts, viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}", preserveAspectRatio="none", class_="importance",
               aria_hidden="true")  # fmt: skip


def importance_table(caption: str, identity: str, columns: list[Part], metric: str, axis: Axis) -> Html:
    unit = "points" if words.is_share(metric) else words.metric_name(metric)
    head = [
        column_head("Column"), column_head(f"Loss without it ({unit})", numeric=True), tag("td", class_="bars"),
        column_head("Likely between", numeric=True),
    ]  # fmt: skip
    rows = [
        tag(
            "tr",
            row_head(" + ".join(one["columns"])),
            cell(drop(one["importance"], metric), numeric=True),
            cell(importance_bar(one, axis), class_="bars"),
            cell(f"{drop(one['low'], metric)} and {drop(one['high'], metric)}", numeric=True),
            class_=None if one["low"] > 0 else "weak",
        )
        for one in columns
    ]
    return table(caption, head, rows, id=identity, class_="text")


def named(columns: list[str]) -> list[object]:
    """Names as a list in words.

    >>> "".join(named(["a", "b", "c"]))
    '<em>a</em>, <em>b</em> and <em>c</em>'
    """
    parts: list[object] = []
    for place, name in enumerate(columns):
        parts += ["" if not place else " and " if place == len(columns) - 1 else ", ", tag("em", short(name))]
    return parts


def first_words(found: Part, metric: str, target: str) -> Html:
    """What the table says, in two sentences."""
    columns = found["columns"]
    matter = [one for one in columns if one["low"] > 0]
    if not matter and not found["groups"]:
        return paragraph(
            strong("No column matters by itself, as far as can be told."), f" Shuffling any one of them changes the "
            f"predictions of {target} no more than chance would."
        )  # fmt: skip
    if not matter:
        return paragraph("No column matters by itself, but some do together: see below.")
    first = matter[0]
    rest = len(columns) - len(matter)
    parts = [
        strong(short(first["columns"][0])), f" matters most for predicting {target}. ",
    ]  # fmt: skip
    if len(matter) > 1:
        parts += ["Next come ", *named([one["columns"][0] for one in matter[1:4]]), ". "] if len(matter) > 2 else [
            "Next comes ", *named([matter[1]["columns"][0]]), ". "
        ]  # fmt: skip
    if rest:
        of_all = f"{words.count(rest, 'column')} of {words.count(len(columns))}"
        parts.append(f"{of_all} {'is' if rest == 1 else 'are'} no help, as far as can be told (grey).")
    return paragraph(*parts)


def method_words(found: Part, metric: str) -> Html:
    times, rows = words.count(found["rounds"], "time"), words.count(found["rows"], "row")
    return paragraph(
        f"How it was measured: the cells of a column were shuffled among {rows} that the networks had not been trained "
        f"on, {times}, and the {words.metric_name(metric)} fell by so much. The line is the "
        f"{words.percent(found['confidence'])} confidence interval.",
        kind="small",
    )


def group_words(groups: list[Part], metric: str) -> Html:
    """Columns that stand in for each other."""
    if not groups:
        return EMPTY
    intro = paragraph(
        strong("Some columns carry the same information. "),
        "Without one of them the others fill in for it, so each looks less important than it is. Shuffled together:",
    )
    unit = " points" if words.is_share(metric) else ""
    items = [
        tag(
            "li",
            *named(list(group["columns"])),
            ": ",
            strong(drop(group["importance"], metric) + unit),
            f" (likely between {drop(group['low'], metric)} and {drop(group['high'], metric)})",
        )
        for group in groups[:GROUPS_SHOWN]
    ]
    return join([intro, tag("ul", *items, id="groups")])


def what_matters(data: Part) -> Section | None:
    found = (data.get("explanation") or {}).get("importance")
    if not found or not found.get("columns"):
        return None
    metric = found["metric"]
    target = (data.get("data") or {}).get("target") or "the target"
    columns = found["columns"][:COLUMNS_WRITTEN]
    axis = Axis(*padded([0.0, *[one[end] for one in columns for end in ("low", "high")]], 0.02), 2, BAR_WIDTH - 2)
    parts = [
        first_words(found, metric, target),
        importance_table("What matters", "importance", columns[:COLUMNS_SHOWN], metric, axis),
    ]
    rest = columns[COLUMNS_SHOWN:]
    if rest:
        more = importance_table("Further columns", "more-importance", rest, metric, axis)
        parts.append(tag("details", tag("summary", words.count(len(rest), "further column")), more))
    parts += [group_words(found.get("groups") or [], metric), method_words(found, metric)]
    if found.get("left_out"):
        count = words.count(len(found["left_out"]), "column")
        parts.append(paragraph(f"There was no time for {count}: give --explain-seconds.", kind="small"))
    return Section("matters", "What matters?", "What matters", join(parts))


# ---- what each column does ----


def value_words(value: Any, kind: str) -> str:
    """A value of a column for readers; dates are stored as microseconds."""
    if isinstance(value, str):
        return short(value)
    if kind == "date":
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value / MICROSECONDS)
        return moment.strftime("%Y-%m-%d")
    return words.significant(value)


def answer_words(value: float, share: bool) -> str:
    return words.percent(value, 1) if share else words.significant(value)


def answer_name(effect: Part, target: str) -> str:
    return target if effect["output"] is None else f"probability of {effect['output']}"


def effect_table(place: int, effect: Part, target: str) -> Html:
    share = effect["output"] is not None
    head = [column_head(short(effect["column"])), column_head(answer_name(effect, target), numeric=True)]
    head.append(column_head("Networks between", numeric=True))
    rows = [
        tag(
            "tr",
            row_head(value_words(value, effect["kind"])),
            cell(answer_words(mean, share), numeric=True),
            cell(f"{answer_words(low, share)} and {answer_words(high, share)}", numeric=True),
        )
        for value, mean, low, high in zip(effect["values"], effect["mean"], effect["low"], effect["high"], strict=True)
    ]
    shown = table(f"Effect of {short(effect['column'])}", head, rows, id=f"effect-table-{place}", class_="text")
    return tag("details", tag("summary", "As a table"), shown)


def effect_axis(effects: list[Part]) -> tuple[float, float]:
    """One range for all, so that effects can be compared."""
    return padded([value for effect in effects for end in ("low", "high") for value in effect[end]])


def effect_figure(place: int, effect: Part, limits: tuple[float, float], target: str) -> Html:
    """The mean prediction at each value, the band of the networks, and where the data are."""
    is_words = any(isinstance(value, str) for value in effect["values"])
    xs = list(range(len(effect["values"]))) if is_words else effect["values"]
    height, share = 230, effect["output"] is not None
    across, up = Axis(*padded(xs, 0.08 if is_words else 0.0), 52, 368), Axis(*limits, height - 44, 26)
    name = answer_name(effect, target)
    parts = [_effect_grid(across, up, effect, xs, is_words, name)]
    if is_words:
        for x, low, high, mean in zip(xs, effect["low"], effect["high"], effect["mean"], strict=True):
            parts += [line(across(x), up(low), across(x), up(high), "band-line")]
            parts.append(tag("circle", cx=across(x), cy=up(mean), r=4.5, class_="dot"))
    else:
        ahead = [f"{across(x):g} {up(y):g}" for x, y in zip(xs, effect["high"], strict=True)]
        back = [f"{across(x):g} {up(y):g}" for x, y in zip(xs[::-1], effect["low"][::-1], strict=True)]
        parts.append(tag("path", d="M" + "L".join([*ahead, *back]) + "z", class_="band"))
        rug = [x for x in effect["rug"] if across.low <= x <= across.high]
        parts.append(tag("path", d="".join(f"M{across(x):g} {up.start:g}v-6" for x in rug), class_="rug"))
        parts.append(polyline(across, up, xs, effect["mean"], "valid"))
    low, high = min(effect["mean"]), max(effect["mean"])
    at_low, at_high = (effect["values"][effect["mean"].index(value)] for value in (low, high))
    description = (
        f"{name}: lowest, {answer_words(low, share)}, at {value_words(at_low, effect['kind'])}; highest, "
        f"{answer_words(high, share)}, at {value_words(at_high, effect['kind'])}."
    )
    hidden, plot = cursor(across, up)
    title = f"Effect of {short(effect['column'])} on {name}"
    return drawing(f"effect-{place}", title, description, height, *parts, hidden, data_plot=plot)


def _effect_grid(across: Axis, up: Axis, effect: Part, xs: list[float], is_words: bool, name: str) -> Html:
    """Lines and labels; words and dates stand in the place of numbers."""
    unit = "%" if effect["output"] is not None else ""
    if not is_words and effect["kind"] != "date":
        return grid(across, up, short(effect["column"]), short(name), unit_up=unit)
    parts = [grid(across, up, "", short(name), unit_up=unit, about=(0, 4))]
    if effect["kind"] == "date":
        marks = [(xs[0], "start"), (xs[len(xs) // 2], "middle"), (xs[-1], "end")]
        parts += [text(across(x), up.start + 17, value_words(x, "date"), "tick", anchor) for x, anchor in marks]
    elif len(xs) <= 6:
        room = int(300 / len(xs) / 7.5)
        shown = zip(xs, effect["values"], strict=True)
        parts += [text(across(x), up.start + 17, short(value, room), "tick", "middle") for x, value in shown]
    else:
        parts.append(text(across.start, up.start + 17, "the most common value first", "tick"))
    parts.append(text(across.end, up.start + 33, short(effect["column"]), "name", "end"))
    return join(parts)


def effects(data: Part) -> Section | None:
    found = (data.get("explanation") or {}).get("effects") or []
    if not found:
        return None
    target = (data.get("data") or {}).get("target") or "the target"
    intro = paragraph(
        "What the model predicts, on average, if a column had this value in every row and all else stayed as it is. "
        "The band shows where the curves of eight in ten of its networks run: where it is wide, they disagree. Ticks "
        "at the bottom show where the data are; where there are none, do not trust the curve."
    )
    by_output = {effect["output"] for effect in found}
    limits = {out: effect_axis([one for one in found if one["output"] == out]) for out in by_output}
    figures = []
    for place, effect in enumerate(found):
        caption = tag("figcaption", strong(short(effect["column"])))
        picture = effect_figure(place, effect, limits[effect["output"]], target)
        figures.append(tag("figure", caption, picture, effect_table(place, effect, target), data_effect=place))
    body = join([intro, tag("div", *figures, class_="pair")])
    return Section("effects", "What does each column do?", "Effects", body)


# ---- which act together ----


def pair_table(place: int, pair: Part, kinds: dict[str, str], target: str) -> Html:
    """A map of both columns: darker is higher."""
    share = pair["output"] is not None
    flat = [value for row in pair["mean"] for value in row]
    low, high = min(flat), max(flat)
    first, second = pair["columns"]
    head = [column_head(f"{short(first, 20)} (rows), {short(second, 20)} (columns)")]
    head += [column_head(value_words(value, kinds.get(second, "")), numeric=True) for value in pair["values"][1]]
    rows = [
        tag(
            "tr",
            row_head(value_words(value, kinds.get(first, ""))),
            *[
                cell(answer_words(mean, share), True, style=f"--share:{(mean - low) / ((high - low) or 1):.2f}")
                for mean in line_
            ],
        )
        for value, line_ in zip(pair["values"][0], pair["mean"], strict=True)
    ]
    caption = join([
        f"{answer_name(pair, target)[:1].upper()}{answer_name(pair, target)[1:]} by ", *named([first, second]),
        f": strength {words.fixed(pair['strength'], 2)}",
    ])  # fmt: skip
    return table(caption, head, rows, id=f"pair-{place}", class_="matrix")


def pairs(data: Part) -> Section | None:
    found = (data.get("explanation") or {}).get("pairs") or []
    if not found:
        return None
    target = (data.get("data") or {}).get("target") or "the target"
    kinds = {column["name"]: column.get("kind") or "" for column in (data.get("data") or {}).get("table") or []}
    first = found[0]
    intro = paragraph(
        "Sometimes what one column does depends on another. Most of all that is so for ",
        *named(list(first["columns"])),
        ". Strength is Friedman's H: 0 means that each acts by itself, 1 that they act only together. Darker cells are "
        "higher predictions; if every row of a map looks alike, there is nothing to see.",
    )
    maps = [pair_table(place, pair, kinds, target) for place, pair in enumerate(found)]
    return Section("together", "Which columns act together?", "Together", join([intro, *maps]))


def script_effects(data: Part) -> list[Part]:
    """What the script needs to tell the values of curves."""
    found = (data.get("explanation") or {}).get("effects") or []
    made = []
    for effect in found:
        is_words = any(isinstance(value, str) for value in effect["values"])
        share = effect["output"] is not None
        made.append({
            "points": list(range(len(effect["values"]))) if is_words else effect["values"],
            "words": [
                f"{value_words(value, effect['kind'])}: {answer_words(mean, share)} (networks between "
                f"{answer_words(low, share)} and {answer_words(high, share)})"
                for value, mean, low, high in zip(
                    effect["values"], effect["mean"], effect["low"], effect["high"], strict=True
                )
            ],
        })  # fmt: skip
    return made

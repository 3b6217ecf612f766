"""Sections on what columns do: the effect of each, and pairs that act together."""

from __future__ import annotations

import datetime
from typing import Any

from shoal.report.search.columns import named, short
from shoal.report.shell import words
from shoal.report.shell.figures import cursor, drawing, grid, line, polyline, text
from shoal.report.shell.markup import Html, Section, cell, column_head, join, paragraph, row_head, strong, table, tag
from shoal.report.shell.scales import Axis, padded

MICROSECONDS = 1e6
Part = dict[str, Any]


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
    if effect["output"] is None:
        return target
    return f"probability of {effect['output']}" if effect["share"] else f"{target}: {effect['output']}"


def effect_table(place: int, effect: Part, target: str) -> Html:
    share = effect["share"]
    head = [column_head(short(effect["column"])), column_head(answer_name(effect, target), numeric=True)]
    head.append(column_head("Networks between", numeric=True))
    head += [column_head("Rows", numeric=True)] if effect["kind"] == "category" else []
    rows = [
        tag(
            "tr",
            row_head(value_words(value, effect["kind"])),
            cell(answer_words(mean, share), numeric=True),
            cell(f"{answer_words(low, share)} and {answer_words(high, share)}", numeric=True),
            cell(words.percent(effect["rug"][k]), numeric=True) if effect["kind"] == "category" else None,
        )
        for k, (value, mean, low, high) in enumerate(
            zip(effect["values"], effect["mean"], effect["low"], effect["high"], strict=True)
        )
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
    height, share = 230, effect["share"]
    across, up = _across(xs, is_words), Axis(*limits, height - 44, 26)
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


def _across(xs: list[float], is_words: bool) -> Axis:
    """Words stand in the middle of equal parts."""
    return Axis(-0.5, len(xs) - 0.5, 52, 368) if is_words else Axis(*padded(xs, 0.0), 52, 368)


def data_words(effect: Part, place: int) -> str:
    """How many rows have a value, of columns of words."""
    return f", {words.percent(effect['rug'][place])} of the rows" if effect["kind"] == "category" else ""


def _effect_grid(across: Axis, up: Axis, effect: Part, xs: list[float], is_words: bool, name: str) -> Html:
    """Lines and labels; words and dates stand in the place of numbers."""
    unit = "%" if effect["share"] else ""
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
    """A map of both columns, under a scale of its tints."""
    share = pair["share"]
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
    ends = [f"lowest {answer_words(low, share)}", f"highest {answer_words(high, share)}"]
    scale = paragraph(ends[0], tag("span", class_="ramp", aria_hidden="true"), ends[1], kind="scale")
    return join([table(caption, head, rows, id=f"pair-{place}", class_="matrix"), scale])


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
        ". Strength is Friedman's H: 0 means that each acts by itself, 1 that they act only together. The "
        "stronger the tint of a cell, the higher the prediction; if every row of a map looks alike, there is nothing "
        "to see.",
    )
    maps = [pair_table(place, pair, kinds, target) for place, pair in enumerate(found)]
    return Section("together", "Which columns act together?", "Together", join([intro, *maps]))


def script_effects(data: Part) -> list[Part]:
    """What the script needs to tell the values of curves."""
    found = (data.get("explanation") or {}).get("effects") or []
    made = []
    for effect in found:
        is_words = any(isinstance(value, str) for value in effect["values"])
        share = effect["share"]
        made.append({
            "points": list(range(len(effect["values"]))) if is_words else effect["values"],
            "words": [
                f"{value_words(value, effect['kind'])}: {answer_words(mean, share)} (networks between "
                f"{answer_words(low, share)} and {answer_words(high, share)}{data_words(effect, place)})"
                for place, (value, mean, low, high) in enumerate(
                    zip(effect["values"], effect["mean"], effect["low"], effect["high"], strict=True)
                )
            ],
        })  # fmt: skip
    return made

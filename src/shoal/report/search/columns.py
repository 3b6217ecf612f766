"""Sections on the columns: which of them matter, what each does, and which pairs act together."""

from __future__ import annotations

import datetime
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import BAR_WIDTH, area, circle, cursor, drawing, grid, line, polyline, signed_bar, text
from shoal.report.shell.markup import (
    BAR,
    EMPTY,
    NUMBER,
    TEXT,
    Columns,
    Html,
    Section,
    data_table,
    details,
    join,
    matrix,
    paragraph,
    strong,
    table_row,
    tag,
)
from shoal.report.shell.scales import Axis, padded

IMPORTANT_COLUMNS_SHOWN = 12
IMPORTANT_COLUMNS_WRITTEN = 500
GROUPS_SHOWN = 5
WORDS_ON_AXIS = 6
Part = dict[str, Any]


def named(columns: list[str]) -> list[object]:
    """Names as a list in words.

    >>> "".join(named(["a", "b", "c"]))
    '<em>a</em>, <em>b</em> and <em>c</em>'
    """
    parts: list[object] = []
    for place, name in enumerate(columns):
        parts += ["" if not place else " and " if place == len(columns) - 1 else ", ", tag("em", words.short(name))]
    return parts


# ---- which columns matter ----


def drop(value: float, metric: str) -> str:
    """An importance: points where the score is a percentage, else a number.

    >>> drop(0.0417, "accuracy"), drop(0.0417, "r2"), drop(-0.0001, "accuracy")
    ('4.2', '0.042', '0.0')
    """
    value, decimals = (100 * value, 1) if words.is_share(metric) else (value, 3)
    if abs(value) >= 10 and decimals == 3:
        return words.significant(value)
    return words.fixed(round(value, decimals) or 0.0, decimals)


def importance_table(caption: str, identity: str, columns: list[Part], metric: str, axis: Axis) -> Html:
    unit = "points" if words.is_share(metric) else words.metric_name(metric)
    heads: Columns = [("Column", TEXT), (f"Worse by ({unit})", NUMBER), ("", BAR), ("Likely between", NUMBER)]
    rows = []
    for one in columns:
        helps = one["low"] > 0
        bar = signed_bar(axis, max(one["importance"], 0.0), one["low"], one["high"], "bar" if helps else "idle")
        between = f"{drop(one['low'], metric)} and {drop(one['high'], metric)}"
        values = [" + ".join(one["columns"]), drop(one["importance"], metric), bar, between]
        rows.append(table_row(heads, values, class_=None if helps else "weak"))
    return data_table(identity, caption, heads, rows)


def importance_words(found: Part, target: str) -> Html:
    """What the table says, in two sentences."""
    names = [one["columns"][0] for one in found["columns"] if one["low"] > 0]
    if not names and not found["groups"]:
        return paragraph(
            strong("No single column clearly matters."),
            f" Shuffling any one of them changes the predictions of {target} no more than chance would.",
        )
    if not names:
        return paragraph("No single column clearly matters, but some do together: see below.")
    parts: list[object] = [strong(words.short(names[0])), f" matters most for predicting {target}. "]
    if names[1:]:
        parts += ["Next come " if names[2:] else "Next comes ", *named(names[1:4]), ". "]
    rest = len(found["columns"]) - len(names)
    if rest:
        of_all = f"{words.count(rest, 'column')} of {words.count(len(found['columns']))}"
        parts.append(f"{of_all} (faint) {'does' if rest == 1 else 'do'} not clearly help.")
    return paragraph(*parts)


def method_words(found: Part, metric: str) -> Html:
    times, rows = words.count(found["rounds"], "time"), words.count(found["rows"], "row")
    return paragraph(
        f"How it was measured: Shoal shuffled the cells of a column {times} among {rows} that the networks had not "
        f"been trained on. The table shows how much the {words.metric_name(metric)} fell. The line is the "
        f"{words.percent(found['confidence'])} confidence interval.",
        kind="small",
    )


def group_words(groups: list[Part], metric: str) -> Html:
    """Columns that stand in for each other."""
    if not groups:
        return EMPTY
    intro = paragraph(
        strong("Some columns carry the same information. "),
        "Without one of them the others replace it, so each looks less important than it is. Shuffled together:",
    )
    unit = " points" if words.is_share(metric) else ""
    items = []
    for group in groups[:GROUPS_SHOWN]:
        between = f" (likely between {drop(group['low'], metric)} and {drop(group['high'], metric)})"
        importance = strong(drop(group["importance"], metric) + unit)
        items.append(tag("li", *named(list(group["columns"])), ": ", importance, between))
    return join([intro, tag("ul", *items, id="groups")])


def what_matters(data: Part) -> Section | None:
    if not data["explanation"] or not data["explanation"]["importance"]["columns"]:
        return None
    found = data["explanation"]["importance"]
    metric, columns = found["metric"], found["columns"][:IMPORTANT_COLUMNS_WRITTEN]
    axis = Axis(*padded([0.0, *[one[end] for one in columns for end in ("low", "high")]], 0.02), 2, BAR_WIDTH - 2)
    first, rest = columns[:IMPORTANT_COLUMNS_SHOWN], columns[IMPORTANT_COLUMNS_SHOWN:]
    caption = "How much worse the score gets without a column"
    parts = [importance_words(found, data["target"]), importance_table(caption, "importance", first, metric, axis)]
    if rest:
        more = importance_table("Further columns", "more-importance", rest, metric, axis)
        parts.append(details(words.count(len(rest), "further column"), more))
    parts += [group_words(found["groups"], metric), method_words(found, metric)]
    if found["left_out"]:
        count = words.count(len(found["left_out"]), "column")
        text = f"There was no time to measure {count}. Give more with --explain-seconds."
        parts.append(paragraph(text, kind="small"))
    return Section("matters", "What matters?", "What matters", join(parts))


# ---- what each column does ----


def value_words(value: Any, kind: str) -> str:
    """A value of a column for readers; dates are stored as microseconds."""
    if isinstance(value, str):
        return words.short(value)
    if kind == "date":
        return (datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=value)).strftime("%Y-%m-%d")
    return words.significant(value)


def answer_words(value: float, share: bool) -> str:
    return words.percent(value, 1) if share else words.significant(value)


def answer_name(effect: Part, target: str) -> str:
    if effect["output"] is None:
        return target
    return f"probability of {effect['output']}" if effect["share"] else f"{target}: {effect['output']}"


def positions(effect: Part) -> list[float]:
    """Where the values of a column are on the axis: words stand in the middle of equal parts."""
    values = effect["values"]
    return list(range(len(values))) if any(isinstance(value, str) for value in values) else values


def effect_lines(effect: Part) -> list[tuple[str, str, str, str]]:
    """For each value of a column: the value, the mean prediction, the range of the networks, the share of the rows."""
    share, lines = effect["share"], []
    columns = zip(effect["values"], effect["mean"], effect["low"], effect["high"], strict=True)
    for place, (value, mean, low, high) in enumerate(columns):
        between = f"{answer_words(low, share)} and {answer_words(high, share)}"
        rows = words.percent(effect["rug"][place]) if effect["kind"] == "category" else ""
        lines.append((value_words(value, effect["kind"]), answer_words(mean, share), between, rows))
    return lines


def effect_table(place: int, effect: Part, target: str) -> Html:
    column, category = words.short(effect["column"]), effect["kind"] == "category"
    heads: Columns = [(column, TEXT), (answer_name(effect, target), NUMBER), ("Networks between", NUMBER)]
    heads = [*heads, ("Rows", NUMBER)] if category else heads
    rows = [line_ if category else line_[:3] for line_ in effect_lines(effect)]
    return details("As a table", data_table(f"effect-table-{place}", f"Effect of {column}", heads, rows))


def effect_figure(place: int, effect: Part, limits: tuple[float, float], target: str) -> Html:
    """The mean prediction at each value, the band of the networks, and where the data are."""
    xs, height = positions(effect), 230
    is_words = xs is not effect["values"]
    across = Axis(-0.5, len(xs) - 0.5, 52, 368) if is_words else Axis(*padded(xs, 0.0), 52, 368)
    up, name = Axis(*limits, height - 44, 26), answer_name(effect, target)
    parts = [effect_grid(across, up, effect, is_words, name)]
    if is_words:
        for x, low, high, mean in zip(xs, effect["low"], effect["high"], effect["mean"], strict=True):
            parts.append(line(across(x), up(low), across(x), up(high), "band-line"))
            parts.append(circle(across(x), up(mean), 4.5, "dot"))
    else:
        parts.append(area(across, up, xs, effect["low"], effect["high"]))
        rug = [x for x in effect["rug"] if across.low <= x <= across.high]
        parts.append(tag("path", d="".join(f"M{across(x):g} {up.start:g}v-6" for x in rug), class_="rug"))
        parts.append(polyline(across, up, xs, effect["mean"], "valid"))
    lines, means = effect_lines(effect), effect["mean"]
    low, high = lines[means.index(min(means))], lines[means.index(max(means))]
    description = f"{name}: lowest, {low[1]}, at {low[0]}; highest, {high[1]}, at {high[0]}."
    hidden, plot = cursor(across, up)
    title = f"Effect of {words.short(effect['column'])} on {name}"
    return drawing(f"effect-{place}", title, description, height, *parts, hidden, data_plot=plot)


def effect_grid(across: Axis, up: Axis, effect: Part, is_words: bool, name: str) -> Html:
    """Lines and labels; words and dates stand in the place of numbers."""
    unit, column, values = "%" if effect["share"] else "", words.short(effect["column"]), effect["values"]
    if not is_words and effect["kind"] != "date":
        return grid(across, up, column, words.short(name), unit_up=unit)
    parts = [grid(across, up, "", words.short(name), unit_up=unit, about=(0, 4))]
    if effect["kind"] == "date":
        first, last = values[0], values[-1]
        marks = [(first, "start"), ((first + last) / 2, "middle"), (last, "end")]
        parts += [text(across(x), up.start + 17, value_words(x, "date"), "tick", anchor) for x, anchor in marks]
    elif len(values) <= WORDS_ON_AXIS:
        room = int(300 / len(values) / 7.5)
        for x, value in enumerate(values):
            parts.append(text(across(x), up.start + 17, words.short(value, room), "tick", "middle"))
    else:
        parts.append(text(across.start, up.start + 17, "the most common value first", "tick"))
    return join([*parts, text(across.end, up.start + 33, column, "name", "end")])


def effects(data: Part) -> Section | None:
    if not data["explanation"] or not data["explanation"]["effects"]:
        return None
    found, target = data["explanation"]["effects"], data["target"]
    intro = paragraph(
        "The mean prediction if a column had this value in every row and all else stayed as it is. The band contains "
        "the curves of eight in ten networks of the model: where it is wide, they disagree. Ticks at the bottom show "
        "where the data are. Do not trust the curve where there are none."
    )
    figures = []
    for place, effect in enumerate(found):
        same = [one for one in found if one["output"] == effect["output"]]  # one range, so that effects compare
        limits = padded([value for one in same for end in ("low", "high") for value in one[end]])
        caption = tag("figcaption", strong(words.short(effect["column"])))
        picture = effect_figure(place, effect, limits, target)
        block = [caption, picture, effect_table(place, effect, target)]
        figures.append(tag("figure", *block, data_read=f"effect-{place}"))
    body = join([intro, tag("div", *figures, class_="pair")])
    return Section("effects", "What does each column do?", "Effects", body)


def effect_readings(data: Part) -> Part:
    """What the slider of each effect says at each value of the column."""
    found = {}
    for place, effect in enumerate(data["explanation"]["effects"] if data["explanation"] else []):
        texts = []
        for value, mean, between, rows in effect_lines(effect):
            texts.append([f"{value}: {mean} (networks between {between}{f', {rows} of the rows' if rows else ''})"])
        label = f"Value, Effect of {words.short(effect['column'])} on {answer_name(effect, data['target'])}"
        reading = {"label": label, "points": positions(effect), "texts": texts, "first": len(texts) // 2}
        found[f"effect-{place}"] = reading
    return found


# ---- which act together ----


def pair_map(place: int, pair: Part, kinds: dict[str, str], target: str) -> Html:
    """The predictions for both columns as a map, with a scale of its tints."""
    flat = [value for row in pair["mean"] for value in row]
    low, high = min(flat), max(flat)
    (first, second), (downs, acrosses) = pair["columns"], pair["values"]
    names = [f"{words.short(first, 20)} (rows), {words.short(second, 20)} (columns)"]
    names += [value_words(value, kinds.get(second, "")) for value in acrosses]
    rows = []
    for value, means in zip(downs, pair["mean"], strict=True):
        cells = [(answer_words(mean, pair["share"]), (mean - low) / ((high - low) or 1)) for mean in means]
        rows.append((value_words(value, kinds.get(first, "")), cells))
    strength = f": strength {words.fixed(pair['strength'], 2)}"
    caption = join([words.capitalised(answer_name(pair, target)), " by ", *named([first, second]), strength])
    ends = [f"lowest {answer_words(low, pair['share'])}", f"highest {answer_words(high, pair['share'])}"]
    scale = paragraph(ends[0], tag("span", class_="ramp", aria_hidden="true"), ends[1], kind="scale")
    return join([matrix(f"pair-{place}", caption, names, rows), scale])


def pairs(data: Part) -> Section | None:
    if not data["explanation"] or not data["explanation"]["pairs"]:
        return None
    found = data["explanation"]["pairs"]
    kinds = {column["name"]: column["kind"] for column in data["data"]["table"]}
    intro = paragraph(
        "The effect of one column may depend on another. It does so most for ",
        *named(list(found[0]["columns"])),
        ". Strength is Friedman's H: at 0 each column acts by itself, at 1 they act only together. The stronger the "
        "tint of a cell, the higher the prediction. If all rows of a map look alike, the columns act separately.",
    )
    maps = [pair_map(place, pair, kinds, data["target"]) for place, pair in enumerate(found)]
    return Section("together", "Which columns act together?", "Together", join([intro, *maps]))

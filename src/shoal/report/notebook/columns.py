"""Cards of what was found out about columns and rows."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from shoal.explain.results import SHOWN, Explanation, Importances
from shoal.explain.rows import RowExplanations
from shoal.files.json_values import plain
from shoal.report.notebook.card import card, heading, small
from shoal.report.search.columns import importance_table, method_words
from shoal.report.shell import words
from shoal.report.shell.figures import BAR_WIDTH, signed_bar
from shoal.report.shell.markup import BAR, EMPTY, NUMBER, TEXT, Html, data_table, join, tag
from shoal.report.shell.scales import Axis, padded
from shoal.report.why import added, answer

ROWS_SHOWN, COLUMNS_OF_A_ROW = 3, 6


def bars_of_columns(found: Importances, most: int, caption: str) -> Html:
    """The first columns as a table with bars; how many more there are."""
    columns = [plain(asdict(one)) for one in found.columns]
    ends = [one[end] for one in columns[:most] for end in ("low", "high")]
    axis = Axis(*padded([0.0, *ends], 0.02), 2, BAR_WIDTH - 2)
    for one in columns:
        one["columns"] = [words.short(name) for name in one["columns"]]
    table = importance_table(caption, "importance", columns[:most], found.metric, axis)
    rest = len(columns) - most
    return join([table, small(f"{words.count(rest, 'more column')}.")]) if rest > 0 else table


def importances_card(found: Importances) -> Html:
    """Of all columns."""
    if not len(found):
        return card(heading("Importance"), small("No column was looked at."))
    said = f"how much the {words.metric_name(found.metric)} falls when a column is shuffled"
    how = method_words(plain(asdict(found)), found.metric) if found.rounds else EMPTY
    caption = f"With {words.percent(found.confidence)} confidence intervals"
    return card(heading("Importance", said), bars_of_columns(found, SHOWN, caption), _groups(found), how)


def _groups(found: Importances) -> Html:
    """Columns that stand in for each other."""
    if not found.groups:
        return EMPTY
    names = ["; ".join(" + ".join(words.short(name) for name in one.columns) for one in found.groups)]
    return small("The same information is in ", tag("em", *names), ".")


def explanation_card(found: Explanation) -> Html:
    """Importances; which columns have an effect, and which pairs act together."""
    heads = [("Columns", TEXT), ("Strength of acting together", NUMBER)]
    rows = [[" + ".join(map(words.short, one.columns)), words.significant(one.strength, 2)] for one in found.pairs]
    pairs = data_table("pairs", "Pairs of columns that act together: 0 not at all, 1 only together", heads, rows)
    named = dict.fromkeys(words.short(one.column) for one in found.effects)
    drawn = small("Effects are known of ", tag("em", ", ".join(named)), "; the report draws them.") if named else EMPTY
    table = bars_of_columns(found.importance, 10, "What matters") if len(found.importance) else EMPTY
    return card(heading("Explanation"), table, pairs if rows else EMPTY, drawn)


def rows_card(found: RowExplanations) -> Html:
    """The first rows: what each column adds to the prediction."""
    outputs = found.values.shape[2] if found.values.ndim == 3 else 0
    parts = [part for row in range(min(len(found), ROWS_SHOWN)) for part in _row(found, row)]
    rest = len(found) - ROWS_SHOWN
    if rest > 0:
        parts.append(small(f"{words.count(rest, 'more row')}."))
    said = f"{words.count(len(found), 'row')}, {words.count(len(found.columns), 'column')}"
    said += f", {words.count(outputs, 'output')}" if outputs else ""
    return card(heading("Why these predictions", said), *parts)


def _row(found: RowExplanations, row: int) -> list[Html]:
    """A sentence and the bars of one row; of several outputs, those of the largest prediction."""
    one, name, share = found, "", False
    if found.values.ndim == 3:
        place = int(np.argmax(found.prediction[row]))
        one, share = found.of(place), found.outputs is not None
        name = f" for {words.short(found.outputs[place])}" if found.outputs else f" for output {place}"
    order = np.argsort(-np.abs(one.values[row]))
    columns = [(one.columns[k], float(one.values[row, k]), float(one.error[row, k])) for k in order]
    prediction, mean = answer(float(one.prediction[row]), share), answer(float(one.mean), share)
    caption = f"Row {row + 1}: {prediction}{name}, where the average is {mean}"
    shown, rest = columns[:COLUMNS_OF_A_ROW], columns[COLUMNS_OF_A_ROW:]
    largest = max((abs(adds) + error for _, adds, error in columns), default=0.0) or 1.0
    axis, cells = Axis(-largest, largest, 2, BAR_WIDTH - 2), []
    for column, adds, error in shown:
        bar = signed_bar(axis, adds, adds - error, adds + error, "bar" if adds >= 0 else "bar lowers")
        cells.append([words.short(column), added(adds, share), bar])
    table = data_table(f"row-{row}", caption, [("Column", TEXT), ("Adds", NUMBER), ("", BAR)], cells)
    if not rest:
        return [table]
    together = added(sum(adds for _, adds, _ in rest), share)
    return [table, small(f"{words.count(len(rest), 'more column')}, together {together}.")]

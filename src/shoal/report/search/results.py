"""Sections on the recipes' results: leaderboard, width and activation, learning curves, luck, mistakes, calibration."""

from __future__ import annotations

from statistics import median
from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import calibration_figure, curve_figure, curve_range, residual_figure, share_bar
from shoal.report.shell.markup import Html, Section, cell, column_head, join, paragraph, row_head, strong, table, tag
from shoal.report.shell.prepare import by_activation, cell_value, column_values

PAGE_OF_ROWS = 25
CLASSES_AS_MATRIX = 20
MISTAKES_LISTED = 15


def order_words(columns: list[dict[str, Any]]) -> str:
    """How the leaderboard is sorted: stopped recipes come last, even those with a high score."""
    stopped = sum(value == "yes" for value in column_values(columns, "stopped"))
    if not stopped:
        return "Every recipe that was tried, best first. "
    return (
        "Every recipe that was tried, best first. Recipes that were stopped before the end of their training, because "
        f"others were ahead or the time was up ({words.count(stopped)} here), come last, whatever their score. "
    )


def leaderboard(columns: list[dict[str, Any]], rows: int) -> Section | None:
    """The first page of the leaderboard. The script makes it sortable and adds the other pages."""
    if not rows:
        return None
    head = [column_head(column["label"], column["style"] != "text", data_key=column["key"]) for column in columns]
    body = []
    for row in range(min(rows, PAGE_OF_ROWS)):
        cells = []
        for place, column in enumerate(columns):
            value = words.formatted(cell_value(column, row), column["style"], column["decimals"])
            numeric = column["style"] != "text"
            cells.append(row_head(value, numeric) if place == 0 else cell(value, numeric))
        body.append(tag("tr", *cells))
    intro = paragraph(
        order_words(columns),
        "The fold spread shows how much the score depends on which rows were held out, the seed spread how much it "
        "depends on the random initial weights. Differences smaller than these spreads mean little.",
    )
    board = table("Leaderboard", head, body, id="leaderboard", class_="board")
    first = "" if rows <= PAGE_OF_ROWS else f"The first {PAGE_OF_ROWS} of {words.count(rows)}. "
    status = tag("p", f"{first}Turn on JavaScript to sort and filter all.", id="board-status", role="status")
    controls = tag("div", id="board-controls", hidden=True)
    pages = tag("div", id="board-pages", hidden=True)
    return Section("board", "Leaderboard", "Leaderboard", join([intro, controls, status, board, pages]), wide=True)


def scatter(columns: list[dict[str, Any]], metric: str) -> Section | None:
    """An empty element in which the script draws the plot, and the same data as a table."""
    groups = by_activation(columns)
    if not groups:
        return None
    best = groups[0]
    text = f"The first recipe of the leaderboard is {best['activation']}"
    if words.known(best["width"]) and best["width"] > 0:
        text += f" with {words.count(best['width'], 'hidden neuron')}"
    text += ". If every width has dots about equally high, width hardly matters here."
    head = [column_head("Activation")]
    head += [column_head(name, numeric=True) for name in ("Recipes", "Best score", "Median score", "Width of the best")]
    rows = [
        tag(
            "tr",
            row_head(group["activation"]),
            cell(words.count(group["count"]), numeric=True),
            cell(words.score(group["best"], metric) + ("" if group["finished"] else " (stopped)"), numeric=True),
            cell(words.score(group["median"], metric), numeric=True),
            cell(words.count(group["width"]), numeric=True),
        )
        for group in groups
    ]
    summary = table("Scores by activation", head, rows, id="activations", class_="text")
    return Section("width", "Width and activation", "Width", join([paragraph(text), tag("div", id="scatter"), summary]))


def curves(shown: list[dict[str, Any]]) -> Section | None:
    """The best and the median recipe side by side, on the same scale."""
    limits = curve_range(shown)
    if limits is None:
        return None
    intro = paragraph(
        "The loss after every epoch; lower is better. Where the loss on the held-out rows rises while the training "
        "loss still falls, the network is overfitting. The dot marks the best epoch."
    )
    figures = []
    for place, curve in enumerate(shown):
        caption = tag("figcaption", strong(curve["label"]), f" (recipe {curve['recipe']})" if "recipe" in curve else "")
        figures.append(tag("figure", caption, curve_figure(place, curve, limits), data_curve=place))
    return Section("curves", "Learning curves", "Curves", join([intro, tag("div", *figures, class_="pair")]))


def luck(shares: dict[str, Any] | None) -> Section | None:
    """How much of the variance of the scores comes from the recipes, and how much from chance."""
    names = {"architecture": "the recipe", "folds": "which rows were held out", "seeds": "the initial weights"}
    parts = [(name, shares[key]) for key, name in names.items() if shares and words.known(shares.get(key))]
    if not shares or not parts:
        return None
    recipe = shares.get("architecture") or 0.0
    if recipe >= 0.5:
        text = "Most of the differences between scores come from the recipes themselves: it pays to choose among them."
    else:
        text = "Most of the differences between scores are luck: the order at the top of the leaderboard means little."
    legend = tag(
        "ul",
        *[
            tag(
                "li",
                tag("span", class_=f"swatch part{place}", aria_hidden="true"),
                strong(words.percent(share)),
                f" {name}",
            )
            for place, (name, share) in enumerate(parts)
        ],
        class_="legend",
    )
    figure = tag("figure", share_bar("luck-figure", "Where the differences between scores come from", parts), legend)
    return Section("luck", "Recipe or luck", "Luck", join([paragraph(text), figure]))


def confusion(part: dict[str, Any]) -> Section:
    """The confusion matrix; with too many classes for a matrix, a list of the most frequent mistakes."""
    classes, counts = [str(name) for name in part["classes"]], part["counts"]
    pairs = range(len(classes))
    mistakes = [(counts[i][j], classes[i], classes[j]) for i in pairs for j in pairs if i != j and counts[i][j]]
    mistakes.sort(key=lambda mistake: -mistake[0])
    total, right = sum(map(sum, counts)), sum(counts[i][i] for i in pairs)
    text = [f"Of {words.count(total, 'held-out row')}, {words.count(right)} were predicted correctly. "]
    if mistakes:
        number, true, taken = mistakes[0]
        text += [
            "The most frequent mistake: ",
            tag("em", true),
            " predicted as ",
            tag("em", taken),
            f", {words.count(number, 'time')}.",
        ]
    intro = paragraph(*text)
    if len(classes) > CLASSES_AS_MATRIX:
        head = [column_head("True"), column_head("Predicted"), column_head("Rows", numeric=True)]
        rows = [
            tag("tr", row_head(true), cell(taken), cell(words.count(number), numeric=True))
            for number, true, taken in mistakes[:MISTAKES_LISTED]
        ]
        shown = table("The most frequent mistakes", head, rows, id="confusion", class_="text")
    else:
        shown = confusion_matrix(classes, counts)
    return Section("mistakes", "Correct and wrong predictions", "Mistakes", join([intro, shown]))


def confusion_matrix(classes: list[str], counts: list[list[int]]) -> Html:
    head = [column_head("true (rows), predicted (columns)"), *[column_head(name, numeric=True) for name in classes]]
    rows = []
    for name, line in zip(classes, counts, strict=True):
        total = sum(line) or 1
        shades = [
            cell(
                join([words.count(n), " ", tag("small", words.percent(n / total))]),
                True,
                style=f"--share:{n / total:.2f}",
            )
            for n in line
        ]
        rows.append(tag("tr", row_head(name), *shades))
    return table("Held-out rows by true and predicted class", head, rows, id="confusion", class_="matrix")


def residuals(part: dict[str, Any], target: str) -> Section | None:
    pairs = [(t, p) for t, p in zip(part["true"], part["predicted"], strict=True) if words.known(t) and words.known(p)]
    if not pairs:
        return None
    misses = sorted(abs(true - predicted) for true, predicted in pairs)
    half, most = median(misses), misses[min(len(misses) - 1, int(0.9 * len(misses)))]
    text = (
        f"Half of the predictions of {target} are off by less than {words.significant(half)}, "
        f"nine in ten by less than {words.significant(most)}. Predictions on the diagonal are exact."
    )
    true, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    figure = tag("figure", residual_figure(true, predicted, target), class_="square")
    return Section("mistakes", "Prediction errors", "Errors", join([paragraph(text), figure]))


def calibration(part: dict[str, Any] | None) -> Section | None:
    """Whether predicted probabilities match observed frequencies."""
    bins = [
        b for b in (part or {}).get("bins") or [] if words.known(b.get("predicted")) and words.known(b.get("observed"))
    ]
    if not part or not bins:
        return None
    text = "When the model predicts 80%, does it happen in 80 cases of 100? On the diagonal it does, exactly"
    if words.known(part.get("error")):
        text += f"; on average the model is {words.difference(part['error'], 'accuracy')} off"
    text += ". Larger dots stand for more rows."
    temperature = part.get("temperature")
    if words.known(temperature) and temperature != 1:
        change = "less extreme" if temperature > 1 else "more extreme"
        text += f" Temperature scaling made its probabilities {change} (temperature {words.significant(temperature)})."
    head = [column_head(name, numeric=True) for name in ("Predicted", "Observed", "Rows")]
    rows = [
        tag(
            "tr",
            row_head(words.percent(b["predicted"], 1), numeric=True),
            cell(words.percent(b["observed"], 1), numeric=True),
            cell(words.count(b.get("count")), numeric=True),
        )
        for b in bins
    ]
    numbers = table("Predicted probability and observed frequency", head, rows, id="calibration-table", class_="text")
    more = tag("details", tag("summary", "The same as a table"), numbers)
    return Section(
        "calibration",
        "Are its probabilities right?",
        "Calibration",
        join([paragraph(text), tag("figure", calibration_figure(bins), class_="square"), more]),
    )

"""What the recipes did: the leaderboard, width and activation, learning curves, luck, mistakes, calibration."""

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
    """How the leaderboard is sorted; recipes that were stopped come last, also those with a high score."""
    stopped = sum(value == "yes" for value in column_values(columns, "stopped"))
    if not stopped:
        return "Every recipe that was tried, best first. "
    return (
        "Every recipe that was tried, best first. Those that were stopped before the end of their training, because "
        f"others were ahead or the time was up ({words.count(stopped)} here), come last, whatever their score. "
    )


def leaderboard(columns: list[dict[str, Any]], rows: int) -> Section | None:
    """The first page of the leaderboard; the script makes it sortable and adds the others."""
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
        "The spread over folds says how much the score depends on which rows "
        "were held out, the spread over seeds how much on the luck of the first weights: two recipes closer than that "
        "are not really different.",
    )
    board = table("Leaderboard", head, body, id="leaderboard", class_="board")
    first = "" if rows <= PAGE_OF_ROWS else f"The first {PAGE_OF_ROWS} of {words.count(rows)}. "
    status = tag("p", f"{first}With JavaScript on, all can be sorted and filtered.", id="board-status", role="status")
    controls = tag("div", id="board-controls", hidden=True)
    pages = tag("div", id="board-pages", hidden=True)
    return Section("board", "Leaderboard", "Leaderboard", join([intro, controls, status, board, pages]), wide=True)


def scatter(columns: list[dict[str, Any]], metric: str) -> Section | None:
    """Room for the plot, which the script draws, and the same in a table."""
    groups = by_activation(columns)
    if not groups:
        return None
    best = groups[0]
    said = f"The first recipe of the leaderboard is {best['activation']}"
    if words.known(best["width"]) and best["width"] > 0:
        said += f" with {words.count(best['width'], 'hidden neuron')}"
    said += ". A column of dots that reaches as high as its neighbours means that width hardly matters here."
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
    return Section("width", "Width and activation", "Width", join([paragraph(said), tag("div", id="scatter"), summary]))


def curves(shown: list[dict[str, Any]]) -> Section | None:
    """The best and the median recipe side by side, on one scale."""
    limits = curve_range(shown)
    if limits is None:
        return None
    intro = paragraph(
        "The loss after every pass over the rows; lower is better. Where the line of the held-out rows turns up while "
        "training still falls, the network has begun to learn its rows by heart. The dot marks the best epoch."
    )
    figures = []
    for place, curve in enumerate(shown):
        caption = tag("figcaption", strong(curve["label"]), f" (recipe {curve['recipe']})" if "recipe" in curve else "")
        figures.append(tag("figure", caption, curve_figure(place, curve, limits), data_curve=place))
    return Section("curves", "Learning curves", "Curves", join([intro, tag("div", *figures, class_="pair")]))


def luck(shares: dict[str, Any] | None) -> Section | None:
    """How much of the difference between scores is the recipe, and how much is chance."""
    names = {"architecture": "the recipe", "folds": "which rows were held out", "seeds": "the first weights"}
    parts = [(name, shares[key]) for key, name in names.items() if shares and words.known(shares.get(key))]
    if not shares or not parts:
        return None
    recipe = shares.get("architecture") or 0.0
    if recipe >= 0.5:
        said = "Most of the differences between scores come from the recipes themselves: choosing among them pays."
    else:
        said = "Most of the differences between scores are luck: the order at the top of the leaderboard says little."
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
    return Section("luck", "Recipe or luck", "Luck", join([paragraph(said), figure]))


def confusion(part: dict[str, Any]) -> Section:
    """Which class was taken for which; the commonest mistakes only where there are too many classes for a matrix."""
    classes, counts = [str(name) for name in part["classes"]], part["counts"]
    pairs = range(len(classes))
    mistakes = [(counts[i][j], classes[i], classes[j]) for i in pairs for j in pairs if i != j and counts[i][j]]
    mistakes.sort(key=lambda mistake: -mistake[0])
    total, right = sum(map(sum, counts)), sum(counts[i][i] for i in pairs)
    said = [f"Of {words.count(total, 'held-out row')}, {words.count(right)} were answered correctly. "]
    if mistakes:
        number, true, taken = mistakes[0]
        said += [
            "The commonest mistake: ",
            tag("em", true),
            " taken for ",
            tag("em", taken),
            f", {words.count(number, 'time')}.",
        ]
    intro = paragraph(*said)
    if len(classes) > CLASSES_AS_MATRIX:
        head = [column_head("True"), column_head("Predicted"), column_head("Rows", numeric=True)]
        rows = [
            tag("tr", row_head(true), cell(taken), cell(words.count(number), numeric=True))
            for number, true, taken in mistakes[:MISTAKES_LISTED]
        ]
        shown = table("The commonest mistakes", head, rows, id="confusion", class_="text")
    else:
        shown = confusion_matrix(classes, counts)
    return Section("mistakes", "Right and wrong", "Mistakes", join([intro, shown]))


def confusion_matrix(classes: list[str], counts: list[list[int]]) -> Html:
    head = [column_head("true, down; predicted, across"), *[column_head(name, numeric=True) for name in classes]]
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
    said = (
        f"Half of the predictions of {target} are off by less than {words.significant(half)}, "
        f"nine in ten by less than {words.significant(most)}. On the diagonal a prediction is exact."
    )
    true, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    figure = tag("figure", residual_figure(true, predicted, target), class_="square")
    return Section("mistakes", "Near and far", "Misses", join([paragraph(said), figure]))


def calibration(part: dict[str, Any] | None) -> Section | None:
    """Whether 80 per cent means 80 per cent."""
    bins = [
        b for b in (part or {}).get("bins") or [] if words.known(b.get("predicted")) and words.known(b.get("observed"))
    ]
    if not part or not bins:
        return None
    said = "When the model says 80%, is it so in 80 cases of 100? On the diagonal it is, exactly"
    if words.known(part.get("error")):
        said += f"; on average it is {words.difference(part['error'], 'accuracy')} off"
    said += ". Larger dots stand for more rows."
    temperature = part.get("temperature")
    if words.known(temperature) and temperature != 1:
        tone = "more cautious" if temperature > 1 else "bolder"
        said += f" Temperature scaling made its probabilities {tone} (temperature {words.significant(temperature)})."
    head = [column_head(name, numeric=True) for name in ("It said", "It was so", "Rows")]
    rows = [
        tag(
            "tr",
            row_head(words.percent(b["predicted"], 1), numeric=True),
            cell(words.percent(b["observed"], 1), numeric=True),
            cell(words.count(b.get("count")), numeric=True),
        )
        for b in bins
    ]
    numbers = table("Predicted probability and what happened", head, rows, id="calibration-table", class_="text")
    more = tag("details", tag("summary", "The same as a table"), numbers)
    return Section(
        "calibration",
        "Are its probabilities right?",
        "Calibration",
        join([paragraph(said), tag("figure", calibration_figure(bins), class_="square"), more]),
    )

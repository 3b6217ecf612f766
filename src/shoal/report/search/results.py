"""Sections on how good the model is: learning curves, luck, mistakes, calibration, and what to expect of one row."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from shoal.files.json_values import plain
from shoal.report.shell import words
from shoal.report.shell.figures import (
    circle,
    cursor,
    drawing,
    end_labels,
    grid,
    line,
    polyline,
    share_bar,
    usual_ends,
    weight_bar,
)
from shoal.report.shell.markup import (
    BAR,
    EMPTY,
    NUMBER,
    TEXT,
    Html,
    Section,
    data_table,
    details,
    join,
    matrix,
    paragraph,
    strong,
    tag,
)
from shoal.report.shell.scales import Axis, padded

LONGEST_CURVE = 400
LARGEST_MATRIX = 20
MISTAKES_LISTED = 15
CLASSES_LISTED = 12
Part = dict[str, Any]


# ---- learning curves ----


def thinned(curve: Part) -> Part:
    """A curve with about LONGEST_CURVE points at most, all that a figure can show. The last epoch is kept."""
    epochs = curve["epochs"]
    step = math.ceil(len(epochs) / LONGEST_CURVE)
    kept = [*range(0, len(epochs) - 1, step), len(epochs) - 1]
    return curve | {
        name: plain([curve[name][place] for place in kept], digits=5) for name in ("epochs", "train", "valid")
    }


def best_place(curve: Part) -> int:
    """The place of the lowest loss on held-out rows; without any, the last."""
    known = [(loss, place) for place, loss in enumerate(curve["valid"]) if loss is not None]
    return min(known)[1] if known else len(curve["epochs"]) - 1


def curve_figure(place: int, curve: Part, limits: tuple[float, float]) -> Html:
    """Training loss and loss on held-out rows, by epoch."""
    epochs = curve["epochs"]
    across = Axis(epochs[0], max(epochs[-1], epochs[0] + 1), 46, 306)
    up = Axis(*limits, 210, 26)
    parts = [grid(across, up, "epochs", "loss")]
    ends = []
    for name, label in (("train", "training"), ("valid", "held out")):
        parts.append(polyline(across, up, epochs, curve[name], name))
        shown = [(x, y) for x, y in zip(epochs, curve[name], strict=True) if y is not None]
        if shown:
            ends.append((up(min(shown[-1][1], up.high)), across(shown[-1][0]), label, name))
    parts += end_labels(ends)
    description = words.count(epochs[-1], "epoch")
    best = best_place(curve)
    loss, epoch = curve["valid"][best], epochs[best]
    if loss is not None:
        parts.append(circle(across(epoch), up(loss), 4, "dot"))
        description += f"; the loss on held-out rows is lowest, {words.significant(loss)}, at epoch {epoch}"
    hidden, plot = cursor(across, up)
    title = f"Learning curve of the {curve['label']} recipe"
    return drawing(f"curve-{place}", title, description + ".", 250, *parts, hidden, data_plot=plot)


def curves(shown: list[Part]) -> Section | None:
    """The best and the median recipe side by side, on the same scale."""
    losses = [loss for curve in shown for name in ("train", "valid") for loss in curve[name] if loss is not None]
    if not losses:
        return None
    intro = paragraph(
        "The loss after every epoch; lower is better. Where the loss on the held-out rows rises while the training "
        "loss still falls, the network overfits. The dot marks the best epoch."
    )
    limits, figures = padded(usual_ends(losses)), []
    for place, curve in enumerate(shown):
        caption = tag("figcaption", strong(curve["label"]), f" (recipe {curve['recipe']})")
        figures.append(tag("figure", caption, curve_figure(place, curve, limits), data_read=f"curve-{place}"))
    return Section("curves", "Learning curves", "Curves", join([intro, tag("div", *figures, class_="pair")]))


def curve_readings(shown: list[Part]) -> Part:
    """What the slider of each curve says at each epoch; it starts at the best one."""
    found = {}
    for place, curve in enumerate(shown):
        texts = []
        for epoch, *losses in zip(curve["epochs"], curve["train"], curve["valid"], strict=True):
            named = zip(("training", "held out"), losses, strict=True)
            said = [f"{name} {words.significant(loss)}" for name, loss in named if loss is not None]
            texts.append([f"Epoch {epoch}: {', '.join(said) or 'no loss known'}"])
        label = f"Epoch, learning curve of the {curve['label']} recipe"
        reading = {"label": label, "points": curve["epochs"], "texts": texts, "first": best_place(curve)}
        found[f"curve-{place}"] = reading
    return found


# ---- luck, mistakes and calibration ----


def luck(shares: Part | None) -> Section | None:
    """How much of the variance of the scores comes from the recipes, and how much from chance."""
    if not shares:
        return None
    names = {"architecture": "the recipe", "folds": "which rows were held out", "seeds": "the initial weights"}
    parts = [(name, shares[key]) for key, name in names.items()]
    if shares["architecture"] >= 0.5:
        text = "Most of the differences between scores come from the recipes, so choosing among them pays."
    else:
        text = "Most of the differences between scores are luck: the order at the top of the leaderboard means little."
    items = []
    for place, (name, share) in enumerate(parts):
        mark = tag("span", class_=f"swatch part{place}", aria_hidden="true")
        items.append(tag("li", mark, strong(words.percent(share)), f" {name}"))
    bar = share_bar("luck-figure", "Where the differences between scores come from", parts)
    figure = tag("figure", bar, tag("ul", *items, class_="legend"))
    return Section("luck", "Recipe or luck", "Luck", join([paragraph(text), figure]))


def confusion(part: Part) -> Section:
    """The confusion matrix; with too many classes for a matrix, a list of the most frequent mistakes."""
    classes, counts = [str(name) for name in part["classes"]], part["counts"]
    pairs = range(len(classes))
    mistakes = [(counts[i][j], classes[i], classes[j]) for i in pairs for j in pairs if i != j and counts[i][j]]
    mistakes.sort(key=lambda mistake: -mistake[0])
    total, right = sum(map(sum, counts)), sum(counts[i][i] for i in pairs)
    text = [f"Of {words.count(total, 'held-out row')}, {words.count(right)} were predicted correctly. "]
    if mistakes:
        number, true, taken = mistakes[0]
        text += ["The most frequent mistake: ", tag("em", true), " predicted as ", tag("em", taken)]
        text.append(f", {words.count(number, 'time')}.")
    if len(classes) > LARGEST_MATRIX:
        heads = [("True", TEXT), ("Predicted", TEXT), ("Rows", NUMBER)]
        listed = [[true, taken, words.count(number)] for number, true, taken in mistakes[:MISTAKES_LISTED]]
        shown = data_table("confusion", "The most frequent mistakes", heads, listed)
    else:
        rows = []
        for name, line_ in zip(classes, counts, strict=True):
            shares = [n / (sum(line_) or 1) for n in line_]
            texts = [
                join([words.count(n), " ", tag("small", words.percent(s))]) for n, s in zip(line_, shares, strict=True)
            ]
            rows.append((name, list(zip(texts, shares, strict=True))))
        names = ["true (rows), predicted (columns)", *classes]
        shown = matrix("confusion", "Held-out rows by true and predicted class", names, rows)
    return Section("mistakes", "Correct and wrong predictions", "Mistakes", join([paragraph(*text), shown]))


def residual_figure(pairs: list[tuple[float, float]], target: str) -> Html:
    """Every held-out row as a dot: predicted value against true value."""
    limits = padded([value for pair in pairs for value in pair], 0.03)
    across, up = Axis(*limits, 62, 366), Axis(*limits, 300, 26)
    dots = "".join(f"M{across(true):g} {up(predicted):g}h0" for true, predicted in pairs)
    diagonal = line(across.start, up.start, across.end, up.end, "ideal")
    parts = [grid(across, up, "true value", "predicted"), diagonal, tag("path", d=dots, class_="dots")]
    description = f"{words.count(len(pairs), 'held-out row')}. The closer to the diagonal, the better the prediction."
    return drawing("residual-figure", f"Predicted against true {target}", description, 340, *parts)


def residuals(part: Part, target: str) -> Section:
    pairs = list(zip(part["true"], part["predicted"], strict=True))
    misses = sorted(abs(true - predicted) for true, predicted in pairs)
    half, most = median(misses), misses[min(len(misses) - 1, int(0.9 * len(misses)))]
    text = (
        f"Half of the predictions of {target} are off by less than {words.significant(half)}, "
        f"nine in ten by less than {words.significant(most)}. Predictions on the diagonal are exact."
    )
    figure = tag("figure", residual_figure(pairs, target), class_="square")
    return Section("mistakes", "Prediction errors", "Errors", join([paragraph(text), figure]))


def calibration_figure(bins: list[Part]) -> Html:
    """Observed frequency against predicted probability; perfect calibration is the diagonal."""
    across, up = Axis(0, 1, 46, 346), Axis(0, 1, 300, 26)
    parts = [grid(across, up, "predicted probability", "observed frequency", "%")]
    parts.append(line(across(0), up(0), across(1), up(1), "ideal"))
    largest = max(part["count"] for part in bins)
    points = [(part["predicted"], part["observed"], part["count"]) for part in bins]
    parts.append(polyline(across, up, [p for p, _, _ in points], [o for _, o, _ in points], "link"))
    parts += [circle(across(p), up(o), 3 + 7 * math.sqrt(n / largest), "bubble") for p, o, n in points]
    description = "; ".join(f"predicted {words.percent(p)}, observed {words.percent(o)}" for p, o, _ in points)
    title = "Observed frequency against predicted probability"
    return drawing("calibration-figure", title, description + ".", 340, *parts)


def calibration(part: Part | None) -> Section | None:
    """Whether predicted probabilities match observed frequencies."""
    if not part:
        return None
    bins, temperature = part["bins"], part["temperature"]
    text = (
        "When the model predicts 80%, does it happen in 80 cases of 100? On the diagonal it does; on average the model "
        f"is {words.difference(part['error'], 'accuracy')} off. Larger dots stand for more rows."
    )
    if temperature != 1:
        change = "less extreme" if temperature > 1 else "more extreme"
        text += f" Temperature scaling made its probabilities {change} (temperature {words.significant(temperature)})."
    heads = [(name, NUMBER) for name in ("Predicted", "Observed", "Rows")]
    rows = [[words.percent(b["predicted"], 1), words.percent(b["observed"], 1), words.count(b["count"])] for b in bins]
    numbers = data_table("calibration-table", "Predicted probability and observed frequency", heads, rows)
    figure = tag("figure", calibration_figure(bins), class_="square")
    body = join([paragraph(text), figure, details("As a table", numbers)])
    return Section("calibration", "Are its probabilities right?", "Calibration", body)


# ---- one row ----


def one_row(part: Part | None, target: str) -> Section | None:
    """How wide intervals, or how large class sets, are, and for which rows."""
    if not part or not all(words.known(width) for width in part.get("widths", [])):
        return None
    numbers = part["kind"] == "numbers"
    body = [interval_widths(part, target) if numbers else set_sizes(part, target)]
    if part["refit"]:
        body.append(
            paragraph(
                "The final model was trained again on all rows. These numbers come from networks that were not, so "
                "they are an estimate."
            )
        )
    body += [sureness_table(part, numbers), EMPTY if numbers else sizes_by_class(part)]
    command = tag("code", f"shoal predict RUN new.csv --coverage {part['coverage']:g}")
    body.append(paragraph("For your own rows, run ", command, ". It also lists rows unlike any in this table."))
    return Section("one-row", "What to expect for one row", "One row", join(body))


def half_width(width: float) -> str:
    """
    >>> half_width(3.0)
    '\N{PLUS-MINUS SIGN}1.5'
    """
    return f"\N{PLUS-MINUS SIGN}{words.significant(width / 2)}"


def interval_widths(part: Part, target: str) -> Html:
    narrow, middle, wide = part["widths"]
    spread = " It is about equally sure of every row."
    if wide > 1.05 * narrow:
        spread = (
            f" For the surest tenth of the rows it is less than {half_width(narrow)}, for the least sure tenth more "
            f"than {half_width(wide)}."
        )
    text = f"The model can give an interval that contains {target} for {asked(part)} new rows. "
    return paragraph(text, "Typically that is the prediction ", strong(half_width(middle)), ".", spread)


def asked(part: Part) -> str:
    return f"{round(10 * part['coverage'])} in 10"


def set_sizes(part: Part, target: str) -> Html:
    shares = part["sizes"]
    text = (
        f"The model can give a set of classes that contains the true {target} for at least {asked(part)} new rows. "
        "The surer it is, the smaller the set: "
    )
    said = [f"{words.percent(shares[0])} of the rows have one class"]
    if len(shares) > 1 and shares[1] >= 0.005:
        said.append(f"{words.percent(shares[1])} two")
    if sum(shares[2:]) >= 0.005:
        said.append(f"{words.percent(sum(shares[2:]))} three or more")
    return paragraph(text, strong(", ".join(said)), ".")


def sureness_table(part: Part, numbers: bool) -> Html:
    found = [(column["name"], entry) for column in part["columns"] for entry in column["parts"]]
    if not found:
        return paragraph("It is about the same for all values of the columns.")
    largest = max(entry["size"] for _, entry in found) or 1
    heads = [
        ("Rows where", TEXT),
        ("Prediction" if numbers else "Classes in the set", NUMBER),
        ("", BAR),
        ("Rows", NUMBER),
    ]
    rows = []
    for name, entry in found:
        size = half_width(entry["size"]) if numbers else words.significant(entry["size"])
        label = join([name, ": ", tag("span", entry["label"])])
        rows.append([label, size, weight_bar(entry["size"] / largest), words.count(entry["rows"])])
    return data_table("for-whom", "Where the model is more and less sure", heads, rows)


def sizes_by_class(part: Part) -> Html:
    """By true class, the largest sets first."""
    found = sorted(part["classes"], key=lambda entry: -entry["size"])[:CLASSES_LISTED]
    if len(found) < 2:
        return EMPTY
    heads = [("True class", TEXT), ("Classes in the set", NUMBER), ("Rows", NUMBER)]
    rows = [[one["name"], words.significant(one["size"]), words.count(one["rows"])] for one in found]
    return details("The same by class", data_table("set-sizes", "Mean size of the set by class", heads, rows))

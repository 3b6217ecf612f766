"""Sections on the search as a whole: the honest score, the search, the final model, the data, the cost."""

from __future__ import annotations

from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import WIDTH, circle, drawing, line, text, weight_bar
from shoal.report.shell.markup import (
    BAR,
    EMPTY,
    NUMBER,
    TEXT,
    Html,
    Section,
    beside,
    bullets,
    data_table,
    details,
    join,
    large_figure,
    paragraph,
    strong,
    tag,
    terms,
)
from shoal.report.shell.scales import Axis, padded

COLUMNS_SHOWN = 25
COLUMNS_WRITTEN = 1000
CLASSES_SHOWN = 12
SKIPPED_SHOWN = 100
STRATEGIES = {
    "halving": "All recipes start together. In several rounds the weaker ones stop, and the others train on "
    "(successive halving).",
    "random": "Recipes are drawn at random from the space below.",
    "grid": "Every combination in the space below is tried (a grid).",
    "optuna": "Optuna proposes recipes in batches and learns from the scores so far.",
}


# ---- the honest score ----


def found_words(data: dict[str, Any]) -> str:
    """What was found."""
    made = data["ensemble"]
    recipes = made["recipes"] if made["used"] else 1
    what = f"an ensemble of {words.count(recipes)} recipes" if recipes > 1 else "one recipe"
    return f"Shoal found {what} that predicts {data['target']}. "


def quality_words(score: dict[str, Any], target: str) -> str:
    """How good it is on new rows, beside guessing, and how sure that is."""
    metric, value, chance = score["metric"], score["corrected"], score["chance"]
    shown, low, high, guess = (words.score(score[key], metric) for key in ("corrected", "low", "high", "chance"))
    if metric == "accuracy":
        said, guessed = f"Expect it to be right for {shown} of new rows", f"guessing is right for {guess}"
    elif metric == "r2" and words.known(value) and value >= 0:
        said = f"Expect it to explain {words.percent(value)} of the variance of {target} in new rows"
        guessed = "predicting the mean explains none"
    else:
        said, guessed = f"Expect {shown} ({words.metric_name(metric)}) on new rows", f"guessing scores {guess}"
    said += f"; {guessed}." if words.known(chance) else "."
    confidence = words.percent(score["confidence"])
    return f"{said} With {confidence} confidence, the {words.metric_name(metric)} is between {low} and {high}."


def headline(data: dict[str, Any]) -> Html:
    """The expected score in large type; what was found, how good it is and how sure that is."""
    score = data["score"]
    number, said = words.score(score["corrected"], score["metric"]), f"{words.capitalised(score['problem'])}."
    if not score["problem"]:
        said = found_words(data) + quality_words(score, data["target"])
    return large_figure(number if not score["problem"] else "?", said)


def correction_words(score: dict[str, Any], recipes: int) -> Html:
    """Why the expected score differs from the measured one."""
    metric, raw, corrected, gain = (score[key] for key in ("metric", "raw", "corrected", "averaging"))
    if score["problem"] or not words.known(raw):
        return EMPTY
    among = f"the best of {words.count(recipes)} recipes" if recipes > 1 else "the best"
    said = (
        f"On rows it was not trained on, the model scored {words.score(raw, metric)}. It was selected as {among} by "
        "its score on the same rows, which biases that score upwards. "
    )
    nothing = words.difference(0.0, metric)
    bias = words.difference(max(raw - corrected + gain, 0.0), metric)
    if bias == nothing:  # as it is shown
        said += "Here the bias is too small to matter."
    else:
        said += f"Correcting for this lowers the score by {bias}."
    shown = words.difference(abs(gain), metric)
    if shown != nothing:
        said += (
            " The measured score is that of the networks of one fold at a time. The final model averages the networks "
            f"of all folds, which {'raises' if gain > 0 else 'lowers'} the score by {shown}."
        )
    return paragraph(said)


def guessing_warning(score: dict[str, Any]) -> Html:
    """A warning where the model may be no better than guessing, or is worse."""
    chance, low, high = score["chance"], score["low"], score["high"]
    if not (words.known(chance) and words.known(low)) or low > chance:
        return EMPTY
    said = "The model is worse than guessing." if high < chance else "The model may be no better than guessing."
    return paragraph(strong(said))


def score_figure(score: dict[str, Any]) -> Html:
    """The scores of guessing, as measured and to expect, one below the other on the same scale."""
    metric = score["metric"]
    names = {"chance": "guessing", "raw": "measured", "corrected": "to expect"}
    rows = [(key, name) for key, name in names.items() if words.known(score[key])]
    values = [score[key] for key in (*names, "low", "high") if words.known(score[key])]
    if len(values) < 2:
        return EMPTY
    axis = Axis(*padded(values, 0.08), 102, 322)
    bottom = 34 * len(rows) + 4
    unit, factor = ("%", 100) if words.is_share(metric) else ("", 1)
    parts = []
    for x, label in axis.marks(3, factor):
        parts += [line(x, 2, x, bottom, "hair"), text(x, bottom + 16, label + unit, "tick", "middle")]
    interval = words.known(score["low"]) and words.known(score["high"])
    for place, (key, name) in enumerate(rows):
        y, x = 34 * place + 20, axis(score[key])
        kind = "row strong" if key == "corrected" else "row"
        parts.append(text(0, y + 4.5, name, kind))
        parts.append(text(WIDTH, y + 4.5, words.score(score[key], metric), kind, "end"))
        if key == "corrected" and interval:
            parts.append(line(axis(score["low"]), y, axis(score["high"]), y, "interval"))
        # The expected score is a stroke, not a disc, which would hide a narrow interval.
        diamond = tag("path", d=f"M{x} {y - 6}l6 6l-6 6l-6 -6z", class_="chance")
        shapes = {"chance": diamond, "raw": circle(x, y, 5.5, "open")}
        parts.append(shapes.get(key) or line(x, y - 11, x, y + 11, "expected"))
    description = "; ".join(f"{name} {words.score(score[key], metric)}" for key, name in rows)
    if interval:
        description += f", likely between {words.score(score['low'], metric)} and {words.score(score['high'], metric)}"
    title = f"The {words.metric_name(metric)} to expect, beside the measured one and guessing"
    return drawing("score-figure", title, description + ".", bottom + 22, *parts)


def opening(data: dict[str, Any]) -> Section:
    score = data["score"]
    others = [(words.metric_name(name), words.score(value, name)) for name, value in score["others"].items()]
    picture = score_figure(score)
    if picture and words.known(score["low"]):
        confidence = words.percent(score["confidence"])
        picture = join([picture, paragraph(f"The band is the {confidence} confidence interval.", kind="small")])
    prose = join([guessing_warning(score), correction_words(score, data["search"]["recipes"])])
    figure = tag("figure", picture) if picture else None
    return Section("score", "The honest score", "Score", join([headline(data), beside(prose, figure), terms(others)]))


# ---- the search ----


def reductions(effort: dict[str, Any], rows: Any) -> str:
    """What the search reduced for lack of time, as a sentence; empty if it reduced nothing."""
    parts = []
    if effort.get("rows"):
        parts.append(f"{words.count(effort['rows'])} of the {words.count(rows, 'row')}")
    if effort.get("folds"):
        parts.append(words.count(effort["folds"], "fold"))
    if effort.get("encodings"):
        parts.append("one encoding of numbers")
    return f"To save time, it used only {', '.join(parts)}. " if parts else ""


def search_summary(data: dict[str, Any]) -> Html:
    search, table = data["search"], data["data"]
    rows = words.count(search["effort"].get("rows") or table["rows"], "row")
    said = f"Shoal tried {words.count(search['recipes'], 'recipe')} on {rows} "
    said += f"with {words.count(table['columns'], 'column')}. " + reductions(search["effort"], table["rows"])
    if search["folds"] > 1:
        said += (
            f"Each was trained {words.count(search['folds'])} times, each time with a different part held out "
            f"for scoring ({search['cv']}). "
        )
    said += f"In total, {words.count(search['networks'], 'network')} trained together as one population. "
    return paragraph(said + STRATEGIES.get(search["strategy"], f"Strategy: {search['strategy']}."))


def skipped(recipes: list[dict[str, Any]]) -> list[Html]:
    """Recipes that no worker could train: without them, the result is not that of the whole search."""
    if not recipes:
        return []
    said = paragraph(
        strong(f"{words.count(len(recipes), 'recipe')} skipped."),
        " No worker could complete the training. The result may differ from that of the whole search. Start over with "
        "--fresh.",
    )
    heads = [("Recipe", TEXT), ("Settings", TEXT), ("Reason", TEXT)]
    rows = [[one["recipe"], one["label"], one["reason"]] for one in recipes[:SKIPPED_SHOWN]]
    return [said, data_table("skipped", "Skipped recipes", heads, rows)]


def searched(data: dict[str, Any]) -> Section:
    search = data["search"]
    parts = [search_summary(data)]
    if search["interrupted"]:
        parts.append(paragraph(strong("The search was interrupted."), " This report shows the results so far."))
    parts += skipped(search["skipped"])
    if search["space"]:
        rows = [[name.replace("_", " "), value] for name, value in search["space"].items()]
        parts.append(data_table("space", "The space of recipes", [("Setting", TEXT), ("Values tried", TEXT)], rows))
    return Section("searched", "What was searched", "Search", join(parts))


# ---- the final model ----


def ensemble_summary(ensemble: dict[str, Any], metric: str) -> Html:
    score, gain = ensemble["score"], ensemble["gain"]
    networks = f"{words.count(ensemble['networks'], 'network')} in all"
    if not ensemble["used"]:
        return paragraph("The final model is the best recipe; no ensemble was used.")
    if ensemble["recipes"] == 1:
        return paragraph(f"The final model is one recipe, {networks}.")
    said = f"The final model averages {words.count(ensemble['recipes'], 'recipe')}, {networks}. "
    said += f"Together they scored {words.score(score, metric)}, "
    said += f"the best one alone {words.score(ensemble['best_single'], metric)}"
    said += f": a gain of {words.difference(gain, metric)}. " if words.known(gain) and gain > 0 else ". "
    said += "Both scores are measured, before the correction above."
    if words.known(gain) and gain < 0:
        said += (
            " The final model is still the ensemble. The best recipe was selected by this score, so part of its "
            "lead is luck. On new rows, an average of good recipes is usually at least as good."
        )
    return paragraph(said)


def ensemble(data: dict[str, Any]) -> Section:
    made = data["ensemble"]
    recipes = sorted(made["parts"], key=lambda part: -part["weight"])
    heads = [("Recipe", NUMBER), ("Weight", NUMBER), ("", BAR), ("Settings", TEXT)]
    rows = []
    for part in recipes:
        bar = weight_bar(part["weight"] / recipes[0]["weight"])
        rows.append([part["recipe"], words.percent(part["weight"], 1), bar, tag("code", part["label"])])
    cost = f"{words.significant(made['milliseconds_per_1000_rows'])} ms for 1,000 rows"
    parts = [
        ensemble_summary(made, data["score"]["metric"]),
        terms([("parameters", words.count(made["parameters"])), ("time to predict", cost)]),
        data_table("parts", "Recipes of the final model", heads, rows),
    ]
    return Section("ensemble", "The final model", "Final model", join(parts))


# ---- the data ----


def columns_table(identity: str, caption: str, columns: list[dict[str, Any]]) -> Html:
    rows = []
    for column in columns:
        share = words.percent(column["missing"], 0 if column["missing"] in (0, 1) else 1)
        rows.append([column["name"], column["kind"], share, column["note"]])
    heads = [("Column", TEXT), ("Kind", TEXT), ("Missing", NUMBER), ("Note", TEXT)]
    return data_table(identity, caption, heads, rows)


def data_understood(data: dict[str, Any]) -> Section:
    found = data["data"]
    pairs = [
        ("rows", words.count(found["rows"])),
        ("columns", words.count(found["columns"])),
        ("target", data["target"]),
        ("task", data["task"]),
        ("classes", class_list(found["classes"]) if found["classes"] else None),
    ]
    columns = found["table"]
    parts = [terms(pairs), bullets(found["notes"])]
    parts.append(columns_table("columns", "Columns and how they were read", columns[:COLUMNS_SHOWN]))
    rest = columns[COLUMNS_SHOWN:COLUMNS_WRITTEN]
    if rest:
        more = columns_table("more-columns", "Further columns", rest)
        parts.append(details(words.count(len(rest), "further column"), more))
    if len(columns) > COLUMNS_WRITTEN:
        parts.append(paragraph(f"{words.count(len(columns) - COLUMNS_WRITTEN)} more columns are not listed."))
    return Section("data", "The data as understood", "Data", join(parts))


def class_list(classes: list[Any]) -> str:
    shown = ", ".join(str(name) for name in classes[:CLASSES_SHOWN])
    return f"{len(classes)}: {shown}" + (", and so on" if len(classes) > CLASSES_SHOWN else "")


# ---- the cost ----


def trained_on(found: dict[str, Any] | None) -> str | None:
    """The workers, in words; None if this process has trained."""
    if not found:
        return None
    slots = words.count(found["slots"], "shard")
    parts = [f"{found['workers']}: {slots} at a time, {words.count(found['shards'])} in all"]
    parts.append(f"{words.size(found['bytes_sent'])} sent, {words.size(found['bytes_received'])} received")
    if found["lost"] or found["repeated"]:
        lost = words.count(found["lost"], "worker")
        parts.append(f"{lost} lost, {words.count(found['repeated'], 'shard')} repeated")
    return "; ".join(parts)


def cost(data: dict[str, Any]) -> Section:
    search = data["search"]
    within = "" if search["budget"] is None else f" of a budget of {words.duration(search['budget'])}"
    pairs = [
        ("time", words.duration(search["seconds"]) + within),
        ("peak memory", words.size(search["memory"])),
        ("networks trained", f"{words.significant(search['networks'] / search['seconds'])} a second"),
        ("epochs in all", words.count(search["epochs"])),
        ("threads", search["threads"]),
        ("processor", search["processor"]),
        ("trained on", trained_on(search["trained_on"])),
        ("seed", search["seed"]),
    ]
    longest = max(phase["seconds"] for phase in search["phases"]) or 1
    rows = [
        [one["name"], words.duration(one["seconds"]), weight_bar(one["seconds"] / longest)] for one in search["phases"]
    ]
    heads = [("Phase", TEXT), ("Time", NUMBER), ("", BAR)]
    phases = data_table("phases", "Where the time went", heads, rows)
    return Section("cost", "Time and memory", "Cost", join([terms(pairs), phases]))

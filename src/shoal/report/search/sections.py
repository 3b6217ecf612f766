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
    made = data["ensemble"] or {"used": True}
    recipes = made.get("recipes") if made.get("used") else 1
    what = f"an ensemble of {words.count(recipes)} recipes" if words.known(recipes) else "a model"
    what = "one recipe" if recipes == 1 else what
    return f"Shoal found {what} that predicts {data['target']}. "


def quality_words(score: dict[str, Any], target: str) -> str:
    """How good it is on new rows, beside guessing."""
    metric, chance = score["metric"], score.get("chance")
    honest = words.known(score.get("corrected"))
    value = score["corrected"] if honest else score.get("raw")
    shown, guess = words.score(value, metric), words.score(chance, metric)
    if metric == "accuracy":
        said, guessed = f"Expect it to be right for {shown} of new rows", f"guessing is right for {guess}"
    elif metric == "r2" and words.known(value) and value >= 0:
        said = f"Expect it to explain {words.percent(value)} of the variance of {target} in new rows"
        guessed = "predicting the mean explains none"
    else:
        said, guessed = f"Expect {shown} ({words.metric_name(metric)}) on new rows", f"guessing scores {guess}"
    warning = "" if honest else " This is the measured score, not corrected for selecting the best recipe."
    return said + (f"; {guessed}." if words.known(chance) else ".") + warning


def certainty_words(score: dict[str, Any]) -> str:
    """How sure that is."""
    metric, low, high = score["metric"], score.get("low"), score.get("high")
    if not (words.known(low) and words.known(high)):
        return ""
    between = f"between {words.score(low, metric)} and {words.score(high, metric)}"
    confidence = words.percent(score.get("confidence") or 0.95)
    return f" With {confidence} confidence, the {words.metric_name(metric)} is {between}."


def headline(data: dict[str, Any]) -> Html:
    """The expected score in large type; what was found, how good it is and how sure that is."""
    score = data["score"]
    number, said = "?", words.capitalised(score.get("problem") or "") + "."
    if not score.get("problem"):
        corrected = score.get("corrected")
        number = words.score(corrected if words.known(corrected) else score.get("raw"), score["metric"])
        said = found_words(data) + quality_words(score, data["target"]) + certainty_words(score)
    return paragraph(tag("span", number, class_="figure"), " ", tag("span", said), kind="headline")


def correction_words(score: dict[str, Any], recipes: Any) -> Html:
    """Why the expected score differs from the measured one."""
    metric, raw, corrected = score["metric"], score.get("raw"), score.get("corrected")
    gain = score.get("averaging") or 0.0
    if not (words.known(raw) and words.known(corrected)):
        return EMPTY
    among = f"the best of {words.count(recipes)} recipes" if recipes and recipes > 1 else "the best"
    said = (
        f"On rows it was not trained on, the model scored {words.score(raw, metric)}. It was selected as {among} by "
        "its score on the same rows, which biases that score upwards. "
    )
    if raw > corrected - gain:
        said += f"Correcting for this lowers the score by {words.difference(raw - corrected + gain, metric)}."
    else:
        said += "Here the bias is too small to matter."
    shown = words.difference(abs(gain), metric)
    if shown != words.difference(0.0, metric):
        said += (
            " The measured score is that of the networks of one fold at a time. The final model averages the networks "
            f"of all folds, which {'raises' if gain > 0 else 'lowers'} the score by {shown}."
        )
    return paragraph(said)


def guessing_warning(score: dict[str, Any]) -> Html:
    """A warning where the model may be no better than guessing."""
    chance, bound = score.get("chance"), score.get("low")
    bound = bound if words.known(bound) else score.get("corrected")
    doubtful = words.known(chance) and words.known(bound) and bound <= chance
    return paragraph(strong("The model may be no better than guessing.")) if doubtful else EMPTY


def score_figure(score: dict[str, Any]) -> Html:
    """The scores of guessing, as measured and to expect, one below the other on the same scale."""
    metric = score["metric"]
    names = {"chance": "guessing", "raw": "measured", "corrected": "to expect"}
    rows = [(key, name) for key, name in names.items() if words.known(score.get(key))]
    values = [score[key] for key in (*names, "low", "high") if words.known(score.get(key))]
    if len(values) < 2:
        return EMPTY
    axis = Axis(*padded(values, 0.08), 102, 322)
    bottom = 34 * len(rows) + 4
    unit, factor = ("%", 100) if words.is_share(metric) else ("", 1)
    parts = []
    for x, label in axis.marks(3, factor):
        parts += [line(x, 2, x, bottom, "hair"), text(x, bottom + 16, label + unit, "tick", "middle")]
    interval = words.known(score.get("low")) and words.known(score.get("high"))
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


def opening(data: dict[str, Any]) -> Section | None:
    score = data["score"]
    if not score:
        return None
    others = [(words.metric_name(name), words.score(v, name)) for name, v in (score.get("others") or {}).items()]
    picture = score_figure(score)
    if picture and words.known(score.get("low")):
        confidence = words.percent(score.get("confidence") or 0.95)
        picture = join([picture, paragraph(f"The band is the {confidence} confidence interval.", kind="small")])
    prose = join([guessing_warning(score), correction_words(score, data["search"].get("recipes"))])
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
    effort, columns = search.get("effort") or {}, table.get("columns")
    rows = effort.get("rows") or table.get("rows")
    said = f"Shoal tried {words.count(search.get('recipes'), 'recipe')}"
    if rows and columns:
        said += f" on {words.count(rows, 'row')} with {words.count(columns, 'column')}"
    said += ". " + reductions(effort, table.get("rows"))
    if (search.get("folds") or 0) > 1:
        said += (
            f"Each was trained {words.count(search['folds'])} times, each time with a different part held out "
            f"for scoring ({search.get('cv') or 'cross-validation'}). "
        )
    if search.get("networks"):
        said += f"In total, {words.count(search['networks'], 'network')} trained together as one population. "
    strategy = search.get("strategy") or ""
    return paragraph(said + STRATEGIES.get(strategy, f"Strategy: {strategy}." if strategy else ""))


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


def searched(data: dict[str, Any]) -> Section | None:
    search = data["search"]
    if not search:
        return None
    parts = [search_summary(data)]
    if search.get("interrupted"):
        parts.append(paragraph(strong("The search was interrupted."), " This report shows the results so far."))
    parts += skipped(search.get("skipped") or [])
    space = search.get("space") or {}
    if space:
        rows = [[name.replace("_", " "), value] for name, value in space.items()]
        parts.append(data_table("space", "The space of recipes", [("Setting", TEXT), ("Values tried", TEXT)], rows))
    return Section("searched", "What was searched", "Search", join(parts))


# ---- the final model ----


def ensemble_summary(ensemble: dict[str, Any], metric: str) -> Html:
    single, score, gain = (ensemble.get(key) for key in ("best_single", "score", "gain"))
    networks = f"{words.count(ensemble.get('networks'), 'network')} in all"
    if not ensemble.get("used"):
        return paragraph("The final model is the best recipe; no ensemble was used.")
    if ensemble.get("recipes") == 1:
        return paragraph(f"The final model is one recipe, {networks}.")
    said = f"The final model averages {words.count(ensemble.get('recipes'), 'recipe')}, {networks}. "
    if words.known(single) and words.known(score):
        said += f"Together they scored {words.score(score, metric)}, the best one alone {words.score(single, metric)}"
        said += f": a gain of {words.difference(gain, metric)}. " if words.known(gain) and gain > 0 else ". "
        said += "Both scores are measured, before the correction above."
        if words.known(gain) and gain < 0:
            said += (
                " The final model is still the ensemble. The best recipe was selected by this score, so part of its "
                "lead is luck. On new rows, an average of good recipes is usually at least as good."
            )
    return paragraph(said)


def ensemble(data: dict[str, Any]) -> Section | None:
    made = data["ensemble"]
    if not made:
        return None
    parts = [ensemble_summary(made, data["score"].get("metric") or "")]
    milliseconds, parameters = made.get("milliseconds_per_1000_rows"), made.get("parameters")
    cost = f"{words.significant(milliseconds)} ms for 1,000 rows" if words.known(milliseconds) else None
    parts.append(terms([("parameters", words.counted(parameters)), ("time to predict", cost)]))
    recipes = sorted(made.get("parts") or [], key=lambda part: -(part["weight"] or 0))
    if recipes:
        largest = recipes[0]["weight"] or 1
        rows = []
        for part in recipes:
            weight = part["weight"] or 0
            bar = weight_bar(weight / largest)
            rows.append([part["recipe"], words.percent(weight, 1), bar, tag("code", part["label"])])
        heads = [("Recipe", NUMBER), ("Weight", NUMBER), ("", BAR), ("Settings", TEXT)]
        parts.append(data_table("parts", "Recipes of the final model", heads, rows))
    return Section("ensemble", "The final model", "Final model", join(parts))


# ---- the data ----


def columns_table(identity: str, caption: str, columns: list[dict[str, Any]]) -> Html:
    rows = []
    for column in columns:
        missing = column.get("missing")
        share = words.percent(missing, 0 if missing in (0, 1) else 1) if words.known(missing) else words.NOTHING
        rows.append([column["name"], column.get("kind") or "", share, column.get("note") or ""])
    heads = [("Column", TEXT), ("Kind", TEXT), ("Missing", NUMBER), ("Note", TEXT)]
    return data_table(identity, caption, heads, rows)


def data_understood(data: dict[str, Any]) -> Section | None:
    found = data["data"]
    if not found:
        return None
    pairs = [
        ("rows", words.counted(found.get("rows"))),
        ("columns", words.counted(found.get("columns"))),
        ("target", found.get("target")),
        ("task", data["task"]),
        ("classes", class_list(found["classes"]) if found.get("classes") else None),
    ]
    columns = found.get("table") or []
    parts = [terms(pairs), bullets(found.get("notes") or [])]
    if columns:
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


def trained_on(found: dict[str, Any]) -> str | None:
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


def cost(data: dict[str, Any]) -> Section | None:
    search = data["search"]
    if not search:
        return None
    seconds, networks, budget = search.get("seconds"), search.get("networks"), search.get("budget")
    rate = None
    if words.known(seconds) and seconds > 0 and networks:
        rate = f"{words.significant(networks / seconds)} a second"
    within = f" of a budget of {words.duration(budget)}" if words.known(budget) else ""
    pairs = [
        ("time", words.duration(seconds) + within),
        ("peak memory", words.size(search.get("memory"))),
        ("networks trained", rate),
        ("epochs in all", words.counted(search.get("epochs"))),
        ("threads", search.get("threads")),
        ("processor", search.get("processor")),
        ("trained on", trained_on(search.get("trained_on") or {})),
        ("seed", search.get("seed")),
    ]
    parts = [terms(pairs)]
    phases = [(one["name"], one["seconds"]) for one in search.get("phases") or [] if words.known(one.get("seconds"))]
    if phases:
        longest = max(taken for _, taken in phases) or 1
        rows = [[name, words.duration(taken), weight_bar(taken / longest)] for name, taken in phases]
        heads = [("Phase", TEXT), ("Time", NUMBER), ("", BAR)]
        parts.append(data_table("phases", "Where the time went", heads, rows))
    return Section("cost", "Time and memory", "Cost", join(parts))

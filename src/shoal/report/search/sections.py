"""Sections on the search as a whole: the honest score, the search, the final model, the data, the cost."""

from __future__ import annotations

from typing import Any

from shoal.report.shell import words
from shoal.report.shell.figures import WIDTH, score_figure
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
    terms,
)

COLUMNS_SHOWN = 25
COLUMNS_WRITTEN = 1000
SKIPPED_SHOWN = 100


def headline(score: dict[str, Any], target: str) -> Html:
    """The expected score in large type, and what it means."""
    metric = score["metric"]
    honest = words.known(score.get("corrected"))
    value = score["corrected"] if honest else score.get("raw")
    if words.is_share(metric) and metric == "accuracy":
        meaning = join(["of new rows should be predicted correctly"])
    elif metric == "r2" and words.known(value) and value >= 0:
        share = words.percent(value)
        meaning = join(
            ["R\N{SUPERSCRIPT TWO} on new rows: about ", share, " of the variance of ", target, " explained"]
        )
    else:
        meaning = join([words.metric_name(metric), " expected on new rows"])
    if score.get("problem"):
        return paragraph(
            tag("span", "?", class_="figure"), " ",
            tag("span", score["problem"][0].upper() + score["problem"][1:] + "."), kind="headline",
        )  # fmt: skip
    if not honest:
        meaning = join([meaning, " (as measured, not corrected for selecting the best)"])
    return paragraph(
        tag("span", words.score(value, metric), class_="figure"), " ", tag("span", meaning), kind="headline"
    )


def interval_words(score: dict[str, Any]) -> Html:
    metric, low, high = score["metric"], score.get("low"), score.get("high")
    if not (words.known(low) and words.known(high)):
        return EMPTY
    confidence = words.percent(score.get("confidence") or 0.95)
    return paragraph(
        f"With {confidence} confidence it lies between ",
        strong(words.score(low, metric)),
        " and ",
        strong(words.score(high, metric)),
        ".",
    )


def correction_words(score: dict[str, Any], recipes: Any) -> Html:
    """Why the expected score differs from the measured one."""
    metric, raw, corrected = score["metric"], score.get("raw"), score.get("corrected")
    gain = score.get("averaging") or 0.0
    if not (words.known(raw) and words.known(corrected)):
        return EMPTY
    among = f"the best of {words.count(recipes)} recipes" if recipes and recipes > 1 else "the best of what was tried"
    text = (
        f"On rows it had not been trained on, the model scored {words.score(raw, metric)}. But it was selected as "
        f"{among} by its score on those same rows, so part of that score is luck. "
    )
    if raw > corrected - gain:
        text += f"Removing that luck lowers the score by {words.difference(raw - corrected + gain, metric)}."
    else:
        text += "Here that luck is too small to matter."
    shown = words.difference(abs(gain), metric)
    if shown != words.difference(0.0, metric):
        text += (
            " The measured score is that of the networks of one fold at a time. The final model averages the networks "
            f"of all folds; that {'raises' if gain > 0 else 'lowers'} the score by {shown}."
        )
    return paragraph(text)


def chance_words(score: dict[str, Any]) -> Html:
    """Whether the model is better than guessing."""
    metric, chance = score["metric"], score.get("chance")
    if not words.known(chance):
        return EMPTY
    text = f"Guessing without using the columns scores {words.score(chance, metric)}. "
    low, corrected = score.get("low"), score.get("corrected")
    bound = low if words.known(low) else corrected
    if not words.known(bound):
        return paragraph(text)
    if bound > chance:
        return paragraph(text, "The whole interval is above that." if bound == low else "")
    return paragraph(text, strong("The model may be no better than guessing."))


def opening(data: dict[str, Any]) -> Section | None:
    score = data.get("score")
    if not score:
        return None
    target = (data.get("data") or {}).get("target") or "the target"
    recipes = (data.get("search") or {}).get("recipes")
    others = [
        (words.metric_name(name), words.score(value, name)) for name, value in (score.get("others") or {}).items()
    ]
    picture = score_figure(score)
    if picture and words.known(score.get("low")):
        confidence = words.percent(score.get("confidence") or 0.95)
        picture = join([picture, paragraph(f"The band is the {confidence} confidence interval.", kind="small")])
    prose = join([interval_words(score), correction_words(score, recipes), chance_words(score)])
    body = join(
        [
            headline(score, target),
            tag("div", tag("div", prose), tag("figure", picture) if picture else None, class_="beside"),
            terms(others),
        ]
    )
    return Section("score", "The honest score", "Score", body)


def left_out(effort: dict[str, Any], rows: Any) -> str:
    """What the search left out for lack of time, as a sentence; empty if it left nothing out."""
    parts = []
    if effort.get("rows"):
        parts.append(f"on {words.count(effort['rows'])} of the {words.count(rows, 'row')}")
    if effort.get("folds"):
        parts.append(f"in {words.count(effort['folds'], 'fold')}")
    if effort.get("encodings"):
        parts.append("with one encoding of numbers only")
    return f"To save time, it searched {', '.join(parts)}. " if parts else ""


def search_summary(data: dict[str, Any]) -> Html:
    search, table_of = data["search"], data.get("data") or {}
    effort, columns = search.get("effort") or {}, table_of.get("columns")
    rows = effort.get("rows") or table_of.get("rows")
    text = f"Shoal tried {words.count(search.get('recipes'), 'recipe')}"
    if rows and columns:
        text += f" on {words.count(rows, 'row')} of {words.count(columns, 'column')}"
    text += ". " + left_out(effort, table_of.get("rows"))
    if (search.get("folds") or 0) > 1:
        text += (
            f"Each was trained {words.count(search['folds'])} times, each time with another part of the rows held out "
            f"for scoring ({search.get('cv') or 'cross-validation'}). "
        )
    if search.get("networks"):
        text += f"In total, {words.count(search['networks'], 'network')} trained together as one population. "
    strategy = search.get("strategy") or ""
    text += words.STRATEGIES.get(strategy, f"Strategy: {strategy}." if strategy else "")
    return paragraph(text)


def skipped(recipes: list[dict[str, Any]]) -> list[Html]:
    """Recipes that nobody could train: without them, the result is not that of the whole search."""
    if not recipes:
        return []
    text = paragraph(
        strong(f"{words.count(len(recipes), 'recipe')} skipped."),
        " No worker could complete the training. The result may differ from that of the whole search; --fresh searches "
        "anew.",
    )
    head = [column_head(name) for name in ("Recipe", "Settings", "Reason")]
    shown = recipes[:SKIPPED_SHOWN]
    rows = [tag("tr", row_head(str(one["recipe"])), cell(one["label"]), cell(one["reason"])) for one in shown]
    return [text, table("Skipped recipes", head, rows, id="skipped", class_="text")]


def searched(data: dict[str, Any]) -> Section | None:
    search = data.get("search")
    if not search:
        return None
    parts = [search_summary(data)]
    if search.get("interrupted"):
        parts.append(paragraph(strong("The search was interrupted."), " The page shows what was known by then."))
    parts += skipped(search.get("skipped") or [])
    space = search.get("space") or {}
    if space:
        head = [column_head("Setting"), column_head("Values tried")]
        rows = [tag("tr", row_head(name.replace("_", " ")), cell(value)) for name, value in space.items()]
        parts.append(table("The space of recipes", head, rows, id="space", class_="text"))
    return Section("searched", "What was searched", "Search", join(parts))


def ensemble_summary(ensemble: dict[str, Any], metric: str) -> Html:
    single, score, gain = (ensemble.get(key) for key in ("best_single", "score", "gain"))
    if not ensemble.get("used"):
        text = "The final model is the best single recipe; no ensemble was used."
    elif ensemble.get("recipes") == 1:
        text = f"The final model is one recipe, {words.count(ensemble.get('networks'), 'network')} in all."
    else:
        text = (
            f"The final model averages {words.count(ensemble.get('recipes'), 'recipe')}, "
            f"{words.count(ensemble.get('networks'), 'network')} in all. "
        )
        if words.known(single) and words.known(score):
            text += (
                f"Together they scored {words.score(score, metric)}, the best one alone {words.score(single, metric)}"
            )
            text += f": a gain of {words.difference(gain, metric)}. " if words.known(gain) and gain > 0 else ". "
            text += "Both scores are as measured, before the correction above."
            if words.known(gain) and gain < 0:
                text += (
                    " The final model is the ensemble nevertheless: the best recipe was selected by this score, so "
                    "part of its lead is luck, and on new rows an average of good recipes is usually at least as good."
                )
    return paragraph(text)


def weight_bar(share: float) -> Html:
    width = max(0.0, min(1.0, share)) * WIDTH
    bar = tag("rect", x=0, y=0, width=round(width, 1), height=10, class_="bar")
    return tag("svg", bar, viewBox=f"0 0 {WIDTH} 10", preserveAspectRatio="none", class_="weight", aria_hidden="true")


def ensemble(data: dict[str, Any]) -> Section | None:
    made = data.get("ensemble")
    if not made:
        return None
    metric = (data.get("score") or {}).get("metric") or ""
    parts = [ensemble_summary(made, metric)]
    milliseconds = made.get("milliseconds_per_1000_rows")
    cost = f"{words.significant(milliseconds)} ms for 1,000 rows" if words.known(milliseconds) else None
    numbers = words.count(made["parameters"]) if made.get("parameters") is not None else None
    parts.append(terms([("parameters", numbers), ("time to predict", cost)]))
    recipes = made.get("parts") or []
    if recipes:
        largest = max(part["weight"] or 0 for part in recipes) or 1
        head = [
            column_head("Recipe", numeric=True),
            column_head("Weight", numeric=True),
            tag("td", class_="bars"),
            column_head("Settings"),
        ]
        rows = [
            tag(
                "tr",
                row_head(part["recipe"], numeric=True),
                cell(words.percent(part["weight"] or 0, 1), numeric=True),
                cell(weight_bar((part["weight"] or 0) / largest), class_="bars"),
                cell(tag("code", part["label"])),
            )
            for part in sorted(recipes, key=lambda part: -(part["weight"] or 0))
        ]
        parts.append(table("Recipes of the final model", head, rows, id="parts", class_="text"))
    return Section("ensemble", "The final model", "Final model", join(parts))


def column_rows(columns: list[dict[str, Any]]) -> list[Html]:
    rows = []
    for column in columns:
        missing = column.get("missing")
        share = (words.percent(missing, 0 if missing in (0, 1) else 1)) if words.known(missing) else words.NOTHING
        name, kind, note = column["name"], column.get("kind") or "", column.get("note") or ""
        rows.append(tag("tr", row_head(name), cell(kind), cell(share, numeric=True), cell(note)))
    return rows


def data_understood(data: dict[str, Any]) -> Section | None:
    found = data.get("data")
    if not found:
        return None
    classes = found.get("classes")
    parts = [
        terms(
            [
                ("rows", words.count(found["rows"]) if found.get("rows") is not None else None),
                ("columns", words.count(found["columns"]) if found.get("columns") is not None else None),
                ("predicted", found.get("target")),
                ("task", data["task"]),
                ("classes", class_list(classes) if classes else None),
            ]
        )
    ]
    notes = found.get("notes") or []
    if notes:
        parts.append(tag("ul", *[tag("li", note) for note in notes]))
    columns = found.get("table") or []
    head = [column_head("Column"), column_head("Read as"), column_head("Missing", numeric=True), column_head("Note")]
    if columns:
        parts.append(
            table(
                "Columns and how they were read",
                head,
                column_rows(columns[:COLUMNS_SHOWN]),
                id="columns",
                class_="text",
            )
        )
    rest = columns[COLUMNS_SHOWN:COLUMNS_WRITTEN]
    if rest:
        more = table("Further columns", head, column_rows(rest), id="more-columns", class_="text")
        parts.append(tag("details", tag("summary", f"{words.count(len(rest), 'further column')}"), more))
    if len(columns) > COLUMNS_WRITTEN:
        parts.append(paragraph(f"{words.count(len(columns) - COLUMNS_WRITTEN)} more columns are not listed."))
    return Section("data", "The data as understood", "Data", join(parts))


def class_list(classes: list[Any], most: int = 12) -> str:
    shown = ", ".join(str(name) for name in classes[:most])
    return f"{len(classes)}: {shown}" + (", and so on" if len(classes) > most else "")


def trained_on(found: dict[str, Any]) -> str | None:
    """The workers, in words; None: this process has trained."""
    if not found:
        return None
    slots = words.count(found["slots"], "shard")
    parts = [f"{found['workers']}: {slots} at a time, {words.count(found['shards'])} in all"]
    parts.append(f"{words.size(found['bytes_sent'])} sent, {words.size(found['bytes_received'])} received")
    if found["lost"] or found["repeated"]:
        lost = words.count(found["lost"], "worker")
        parts.append(f"{lost} lost, {words.count(found['repeated'], 'shard')} computed again")
    return "; ".join(parts)


def cost(data: dict[str, Any]) -> Section | None:
    search = data.get("search")
    if not search:
        return None
    seconds, networks, budget = search.get("seconds"), search.get("networks"), search.get("budget")
    rate = None
    if words.known(seconds) and seconds > 0 and networks:
        rate = f"{words.significant(networks / seconds)} a second"
    pairs = [
        ("time", words.duration(seconds) + (f" of {words.duration(budget)} allowed" if words.known(budget) else "")),
        ("peak memory", words.size(search.get("memory"))),
        ("networks trained", rate),
        ("epochs in all", words.count(search["epochs"]) if search.get("epochs") is not None else None),
        ("threads", search.get("threads")),
        ("processor", search.get("processor")),
        ("trained on", trained_on(search.get("trained_on") or {})),
        ("seed", search.get("seed")),
    ]
    parts = [terms(pairs)]
    phases = [phase for phase in search.get("phases") or [] if words.known(phase.get("seconds"))]
    if phases:
        longest = max(phase["seconds"] for phase in phases) or 1
        rows = [
            tag(
                "tr",
                row_head(phase["name"]),
                cell(words.duration(phase["seconds"]), numeric=True),
                cell(weight_bar(phase["seconds"] / longest), class_="bars"),
            )
            for phase in phases
        ]
        head = [column_head("Phase"), column_head("Time", numeric=True), tag("td", class_="bars")]
        parts.append(table("Where the time went", head, rows, id="phases", class_="text"))
    return Section("cost", "Time and memory", "Cost", join(parts))

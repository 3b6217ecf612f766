"""Sections on a fine-tuning run: figures and values by step, samples of generated text, settings, data."""

from __future__ import annotations

from typing import Any

from shoal.report.finetune.figures import loss_figure, small_figure
from shoal.report.finetune.log import LOSSES, ROWS, Series, all_steps, group_size, stops
from shoal.report.shell import words
from shoal.report.shell.markup import (
    EMPTY,
    Html,
    Section,
    cell,
    column_head,
    join,
    paragraph,
    preformatted,
    row_head,
    strong,
    table,
    tag,
    terms,
)

SAMPLES_SHOWN = 20


def resumed_steps(data: dict[str, Any], ends: tuple[int, int]) -> list[int]:
    steps = (data.get("run") or {}).get("resumed_at") or []
    return [int(step) for step in steps if words.known(step) and ends[0] <= step <= ends[1]]


def resumed_words(steps: list[int], most: int = 8) -> str:
    """
    >>> resumed_words([40, 80])
    'The run was resumed at steps 40 and 80. '
    """
    if not steps:
        return ""
    named = [words.count(step) for step in steps[:most]]
    if len(steps) > most:
        listed = f"steps {', '.join(named)} and {len(steps) - most} more"
    elif len(named) > 1:
        listed = f"steps {', '.join(named[:-1])} and {named[-1]}"
    else:
        listed = f"step {named[0]}"
    return f"The run was resumed at {listed}. "


def loss_words(losses: list[Series]) -> Html:
    text = "The loss at every logged step; lower is better. "
    if len(losses) == 2:
        text += (
            "The dotted line is the loss on the training rows, the solid one on the test rows. Where the solid line "
            "rises while the dotted one still falls, the model is overfitting."
        )
    return paragraph(text.strip())


def loss_marks(losses: list[Series], resumed: list[int]) -> Html:
    """An explanation of the other marks that the figure has."""
    text = ""
    if losses[-1].key == "eval_loss" and len(losses[-1].known) > 1:
        text += "The large dot marks the lowest evaluation loss. "
    if resumed:
        text += resumed_words(resumed) + (
            "A thin line marks that step. " if len(resumed) == 1 else "Thin lines mark these steps. "
        )
    longest = max(len(series.steps) for series in losses)
    together = group_size(longest)
    if together > 1:
        text += f"Lines are drawn through means of up to {words.count(together)} values; bands span lowest to highest."
    return paragraph(text.strip(), kind="small") if text else EMPTY


def small_multiple(series: Series, ends: tuple[int, int]) -> Html:
    value = tag("span", series.reading(ends[1]), data_series=series.key, class_="now")
    caption = tag("figcaption", tag("span", series.label.capitalize()), " ", value)
    return tag("figure", caption, small_figure(series, ends))


def course(data: dict[str, Any], series: dict[str, Series]) -> Section | None:
    """All figures, with one slider for all of them."""
    if not series:
        return None
    every = [step for one in series.values() for step in (one.steps[0], one.steps[-1])]
    ends = (min(every), max(every))
    losses = [series[key] for key in LOSSES if key in series]
    resumed = resumed_steps(data, ends)
    intro, figures = EMPTY, []
    if losses:
        intro = loss_words(losses)
        picture, marks = loss_figure(losses, ends, resumed), loss_marks(losses, resumed)
        figures.append(tag("figure", picture, marks, class_="loss"))
    small = [small_multiple(one, ends) for key, one in series.items() if key not in LOSSES]
    if small:
        figures.append(tag("div", *small, class_="multiples"))
    body = join([intro, tag("div", *figures, class_="course"), log_table(series)])
    return Section("course", "Step by step", "Step by step", body)


def log_table(series: dict[str, Series]) -> Html:
    """The values of up to ROWS steps as a table: the text alternative to the figures."""
    steps = stops(series, ROWS)
    every = len(all_steps(series))
    rows = []
    for step in steps:
        found = ((one, one.at(step)) for one in series.values())
        numbers = [words.NOTHING if place is None else one.text(place) for one, place in found]
        rows.append(tag("tr", row_head(words.count(step), True), *[cell(text, True) for text in numbers]))
    head = [column_head("step", numeric=True), *[column_head(one.label, numeric=True) for one in series.values()]]
    caption = "Values by step" + (f"; {len(steps)} of {words.count(every)} steps" if every > len(steps) else "")
    inner = table(caption, head, rows, id="log", class_="log")
    return tag("details", tag("summary", "Values by step, as a table"), inner)


SIDES = (("expected", "Expected"), ("before", "Before training"), ("after", "After training"))


def block(name: str, value: Any, kind: str) -> Html:
    text = preformatted(value) if str(value).strip() else paragraph("nothing", kind="empty")
    return tag("div", tag("h4", name), text, class_=kind)


def one_sample(place: int, sample: dict[str, Any]) -> Html:
    parts = [tag("h3", f"Sample {place}")]
    if sample.get("prompt") is not None:
        parts.append(block("Prompt", sample["prompt"], "prompt"))
    sides = [block(name, sample[key], key) for key, name in SIDES if sample.get(key) is not None]
    return tag("div", *parts, tag("div", *sides, class_="sides"), class_="sample")


def samples(data: dict[str, Any]) -> Section | None:
    """Samples of generated text, before and after training."""
    shown = [sample for sample in data.get("samples") or [] if sample]
    if not shown:
        return None
    intro = paragraph("Text that the model generated from a prompt, before and after training.")
    blocks = [one_sample(place, sample) for place, sample in enumerate(shown[:SAMPLES_SHOWN], start=1)]
    if len(shown) > SAMPLES_SHOWN:
        blocks.append(paragraph(f"{words.count(len(shown) - SAMPLES_SHOWN)} more samples are not shown."))
    return Section("samples", "Generated samples", "Samples", join([intro, *blocks]), wide=True)


def roughly(number: object) -> str:
    """
    >>> roughly(124_439_808), roughly(1_557_611_200), roughly(84_000)
    ('124 million', '1.56 billion', '84,000')
    """
    if words.known(number):
        for name, scale in (("billion", 1e9), ("million", 1e6)):
            if number >= scale:
                return f"{words.significant(number / scale)} {name}"
    return words.count(number)


def run_summary(run: dict[str, Any], rows: object) -> Html:
    parameters, trained = run.get("parameters"), run.get("trained")
    parts: list[object] = ["The model "]
    if run.get("model"):
        parts += [tag("code", run["model"]), " "]
    if words.known(parameters):
        parts.append(f"has {roughly(parameters)} weights")
        if words.known(trained) and 0 < trained < parameters:
            share = words.significant(100 * trained / parameters)
            parts.append(f", of which {roughly(trained)} ({share}%) were trained (LoRA). It ")
        else:
            parts.append(", and all of them were trained. It ")
    parts.append("was trained on ")
    parts.append(words.count(rows, "row") if words.known(rows) else "the rows")
    if words.known(run.get("epochs")):
        parts.append(f" {words.significant(run['epochs'])} times" if run["epochs"] != 1 else " once")
    if words.known(run.get("batch_size")):
        parts.append(f", {words.count(run['batch_size'])} at a time")
    if words.known(run.get("steps")):
        parts.append(f": {words.count(run['steps'], 'step')}")
    if words.known(run.get("seconds")):
        parts.append(f" in {words.duration(run['seconds'])}")
    return paragraph(*parts, ".")


def lora_words(lora: Any) -> str | None:
    if not lora:
        return None
    if isinstance(lora, dict):
        return ", ".join(f"{key} {value}" for key, value in lora.items())
    return "yes" if lora is True else f"rank {lora}" if words.known(lora) else str(lora)


def counted(value: object) -> str | None:
    return words.count(value) if words.known(value) else None


def training(data: dict[str, Any]) -> Section | None:
    run = data.get("run")
    if not run:
        return None
    rate, planned, context = run.get("learning_rate"), run.get("steps_planned"), run.get("context")
    steps = counted(run.get("steps"))
    if steps and words.known(planned):
        steps += f" of {words.count(planned)} planned"
    pairs = [
        ("model", run.get("model")),
        ("weights", counted(run.get("parameters"))),
        ("weights trained", counted(run.get("trained"))),
        ("LoRA", lora_words(run.get("lora"))),
        ("epochs", words.significant(run["epochs"]) if words.known(run.get("epochs")) else None),
        ("steps", steps),
        ("batch size", counted(run.get("batch_size"))),
        ("learning rate", words.significant(rate) if words.known(rate) else None),
        ("schedule", run.get("schedule")),
        ("longest text", words.count(context, "token") if words.known(context) else None),
        ("time", words.duration(run["seconds"]) if words.known(run.get("seconds")) else None),
        ("workers", counted(run.get("workers"))),
        ("threads per worker", counted(run.get("threads"))),
        ("device", run.get("device")),
        ("processor", run.get("processor")),
        ("seed", run.get("seed")),
    ]
    resumed = [int(step) for step in run.get("resumed_at") or [] if words.known(step)]
    again = paragraph(resumed_words(resumed).strip()) if resumed else EMPTY
    summary = run_summary(run, (data.get("data") or {}).get("train"))
    return Section("training", "How it was trained", "Training", join([summary, again, terms(pairs)]))


def data_understood(data: dict[str, Any]) -> Section | None:
    found = data.get("data")
    if not found:
        return None
    cut, context = found.get("cut"), (data.get("run") or {}).get("context")
    columns = found.get("columns")
    pairs = [
        ("file", found.get("file")),
        ("rows", counted(found.get("rows"))),
        ("trained on", counted(found.get("train"))),
        ("tested on", counted(found.get("test"))),
        ("columns", ", ".join(map(str, columns)) if columns else None),
        ("tokens", counted(found.get("tokens"))),
    ]
    parts = [terms(pairs)]
    if words.known(cut) and cut > 0:
        limit = f" of {words.count(context, 'token')}" if words.known(context) else ""
        texts = "text was longer than the limit" if cut == 1 else "texts were longer than the limit"
        parts.append(paragraph(strong(words.count(cut)), f" {texts}{limit} and {'was' if cut == 1 else 'were'} cut."))
    notes = found.get("notes") or []
    if notes:
        parts.append(tag("ul", *[tag("li", note) for note in notes]))
    if found.get("format"):
        parts += [paragraph("Each row became one text of this form:"), preformatted(found["format"])]
    return Section("data", "The data as understood", "Data", join(parts))

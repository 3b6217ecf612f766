"""Sections on a fine-tuning run: figures and values by step, samples of generated text, settings, data."""

from __future__ import annotations

from typing import Any

from shoal.report.finetune.figures import loss_figure, small_figure
from shoal.report.finetune.log import LOSSES, ROWS, Series, all_steps, group_size, stops
from shoal.report.shell import words
from shoal.report.shell.markup import (
    EMPTY,
    NUMBER,
    Columns,
    Html,
    Section,
    bullets,
    data_table,
    details,
    join,
    paragraph,
    preformatted,
    strong,
    tag,
    terms,
)

SAMPLES_SHOWN = 20


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
    every = all_steps(series)
    ends = (every[0], every[-1])
    losses = [series[key] for key in LOSSES if key in series]
    resumed = [step for step in data["run"]["resumed_at"] if step <= ends[1]]
    intro, figures = EMPTY, []
    if losses:
        intro = loss_words(losses)
        picture, marks = loss_figure(losses, ends, resumed), loss_marks(losses, resumed)
        figures.append(tag("figure", picture, marks, class_="loss"))
    small = [small_multiple(one, ends) for key, one in series.items() if key not in LOSSES]
    if small:
        figures.append(tag("div", *small, class_="multiples"))
    body = join([intro, tag("div", *figures, class_="course", data_read="course"), log_table(series)])
    return Section("course", "Step by step", "Step by step", body)


def log_table(series: dict[str, Series]) -> Html:
    """The values of up to ROWS steps as a table: the text alternative to the figures."""
    steps = stops(series, ROWS)
    every = len(all_steps(series))
    heads: Columns = [("step", NUMBER), *[(one.label, NUMBER) for one in series.values()]]
    rows = []
    for step in steps:
        found = ((one, one.at(step)) for one in series.values())
        numbers = [words.NOTHING if place is None else one.text(place) for one, place in found]
        rows.append([words.count(step), *numbers])
    caption = "Values by step" + (f"; {len(steps)} of {words.count(every)} steps" if every > len(steps) else "")
    return details("Values by step, as a table", data_table("log", caption, heads, rows, "log"))


SIDES = (("expected", "Expected"), ("before", "Before training"), ("after", "After training"))


def block(name: str, value: Any, kind: str) -> Html:
    text = preformatted(value) if str(value).strip() else paragraph("nothing", kind="empty")
    return tag("div", tag("h4", name), text, class_=kind)


def one_sample(place: int, sample: dict[str, Any]) -> Html:
    parts = [tag("h3", f"Sample {place}"), block("Prompt", sample["prompt"], "prompt")]
    sides = [block(name, sample[key], key) for key, name in SIDES if key in sample]
    return tag("div", *parts, tag("div", *sides, class_="sides"), class_="sample")


def samples(data: dict[str, Any]) -> Section | None:
    """Samples of generated text, before and after training."""
    shown = data["samples"]
    if not shown:
        return None
    intro = paragraph("Text that the model generated from a prompt, before and after training.")
    blocks = [one_sample(place, sample) for place, sample in enumerate(shown[:SAMPLES_SHOWN], start=1)]
    if len(shown) > SAMPLES_SHOWN:
        blocks.append(paragraph(f"{words.count(len(shown) - SAMPLES_SHOWN)} more samples are not shown."))
    return Section("samples", "Generated samples", "Samples", join([intro, *blocks]), wide=True)


def roughly(number: int) -> str:
    """
    >>> roughly(124_439_808), roughly(1_557_611_200), roughly(84_000)
    ('124 million', '1.56 billion', '84,000')
    """
    for name, scale in (("billion", 1e9), ("million", 1e6)):
        if number >= scale:
            return f"{words.significant(number / scale)} {name}"
    return words.count(number)


def run_summary(run: dict[str, Any], rows: int) -> Html:
    parameters, trained = run["parameters"], run.get("trained", run["parameters"])
    weights = ", and all of them were trained"
    if trained < parameters:
        share = words.significant(100 * trained / parameters)
        weights = f", of which {roughly(trained)} ({share}%) were trained (LoRA)"
    often = "once" if run["epochs"] == 1 else f"{run['epochs']} times"
    taken = "" if run["seconds"] is None else f" in {words.duration(run['seconds'])}"
    return paragraph(
        "The model ",
        tag("code", run["model"]),
        f" has {roughly(parameters)} weights{weights}. It was trained on {words.count(rows, 'row')} {often}, "
        f"{words.count(run['batch_size'])} at a time: {words.count(run['steps'], 'step')}{taken}.",
    )


def training(data: dict[str, Any]) -> Section:
    run = data["run"]
    context, seconds = run.get("context"), run["seconds"]
    pairs = [
        ("model", run["model"]),
        ("weights", words.count(run["parameters"])),
        ("weights trained", words.counted(run.get("trained"))),
        ("LoRA", f"rank {run['lora']}" if run["lora"] else None),
        ("epochs", words.count(run["epochs"])),
        ("steps", f"{words.count(run['steps'])} of {words.count(run['steps_planned'])} planned"),
        ("batch size", words.count(run["batch_size"])),
        ("learning rate", words.significant(run["learning_rate"])),
        ("schedule", run["schedule"]),
        ("longest text", None if context is None else words.count(context, "token")),
        ("time", None if seconds is None else words.duration(seconds)),
        ("workers", words.count(run["workers"])),
        ("threads per worker", words.counted(run.get("threads"))),
        ("device", run.get("device")),
        ("processor", run["processor"]),
        ("seed", run["seed"]),
    ]
    again = paragraph(resumed_words(run["resumed_at"]).strip()) if run["resumed_at"] else EMPTY
    summary = run_summary(run, data["data"]["train"])
    return Section("training", "How it was trained", "Training", join([summary, again, terms(pairs)]))


def data_understood(data: dict[str, Any]) -> Section:
    found = data["data"]
    pairs = [
        ("file", found["file"]),
        ("rows", words.count(found["rows"])),
        ("trained on", words.count(found["train"])),
        ("tested on", words.count(found["test"])),
        ("columns", ", ".join(found["columns"])),
        ("tokens", words.counted(found.get("tokens"))),
    ]
    parts = [terms(pairs)]
    cut = found.get("cut", 0)
    if cut:
        limit = words.count(data["run"]["context"], "token")
        were = "text was" if cut == 1 else "texts were"
        said = f" {were} longer than the limit of {limit} and {'was' if cut == 1 else 'were'} cut."
        parts.append(paragraph(strong(words.count(cut)), said))
    parts += [
        bullets(found["notes"]),
        paragraph("Each row became one text of this form:"),
        preformatted(found["format"]),
    ]
    return Section("data", "The data as understood", "Data", join(parts))

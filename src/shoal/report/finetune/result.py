"""The result of a fine-tuning run: the loss on test rows, its meaning, and whether to train longer or shorter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.report.finetune.figures import before_after
from shoal.report.finetune.log import Series
from shoal.report.shell import words
from shoal.report.shell.markup import EMPTY, Html, Section, join, paragraph, strong, tag, terms

# A rise by less than this share of the loss is noise of a few test rows.
TURN = 0.01
FALL = 0.02


@dataclass(frozen=True)
class Outcome:
    """Evaluation losses before, after and at the lowest; None where not known."""

    before: float | None
    after: float | None
    lowest: float | None
    step_lowest: int | None
    # The step of the last evaluation, if the run has no loss from its end.
    measured_at: int | None


def outcome(data: dict[str, Any], series: dict[str, Series]) -> Outcome:
    """The losses that the run reports, else those of the log: an interrupted run has only the log."""
    text = {key: value for key, value in (data.get("result") or {}).items() if words.known(value)}
    evaluated = series["eval_loss"].known if "eval_loss" in series else []
    first = evaluated[0] if evaluated and evaluated[0][0] == 0 else (0, None)
    last = evaluated[-1] if evaluated and evaluated[-1][0] > 0 else (None, None)
    lowest = min(evaluated, key=lambda pair: pair[1]) if evaluated else (None, None)
    if "loss_lowest" in text and "step_lowest" in text:
        lowest = (int(text["step_lowest"]), text["loss_lowest"])
    after = text.get("loss_after", last[1])
    at = last[0] if "loss_after" not in text else None
    return Outcome(text.get("loss_before", first[1]), after, lowest[1], lowest[0], at)


def perplexity(loss: float | None) -> float | None:
    """e to the power of the loss; None if it is too large for a float."""
    return math.exp(loss) if words.known(loss) and loss < 700 else None


def choices(loss: float | None) -> str:
    value = perplexity(loss)
    return words.NOTHING if value is None else words.significant(value)


def large_figure(figure: str, meaning: str) -> Html:
    return paragraph(tag("span", figure, class_="figure"), " ", tag("span", meaning), kind="headline")


def rows_tested(data: dict[str, Any]) -> str:
    rows = (data.get("data") or {}).get("test")
    return words.count(rows, "test row") if words.known(rows) and rows > 0 else "test rows"


def headline(found: Outcome, data: dict[str, Any]) -> Html:
    meaning = f"evaluation loss after training, on {rows_tested(data)} that it did not learn from"
    if words.known(found.measured_at):
        meaning = (
            f"evaluation loss at step {words.count(found.measured_at)}, where it was last measured, "
            f"on {rows_tested(data)} that it did not learn from"
        )
    if words.known(found.before):
        meaning += f"; before, it was {words.significant(found.before)}"
    return large_figure(words.significant(found.after or 0.0), f"{meaning}.")


def perplexity_words(found: Outcome) -> Html:
    """The loss explained as perplexity."""
    now = perplexity(found.after)
    if now is None:
        return EMPTY
    text: list[object] = [
        "Lower is better. The model is now as uncertain about the next token of a text as if it had to choose among ",
        strong(words.significant(now)),
        " equally likely tokens" if words.significant(now) != "1" else " token: it is nearly certain",
    ]
    then = perplexity(found.before)
    if then is not None:
        text += ["; before training, among ", strong(words.significant(then))]
    return paragraph(*text, ". This number is the perplexity.")


def epochs_at(step: int, series: dict[str, Series]) -> str:
    """
    >>> epochs_at(4, {"epoch": Series("epoch", [0, 4], [0.0, 1.25])})
    ' (after 1.3 epochs)'
    """
    known = [pair for pair in series["epoch"].known if pair[0] <= step] if "epoch" in series else []
    return f" (after {words.fixed(known[-1][1], 1).removesuffix('.0')} epochs)" if known else ""


def still_falling(found: Outcome, series: dict[str, Series]) -> bool | None:
    """Whether the last quarter of the run still lowered the loss; None if there were too few evaluations."""
    known = series["eval_loss"].known if "eval_loss" in series else []
    if len(known) < 4 or not words.known(found.after):
        return None
    start = known[0][0] + 0.75 * (known[-1][0] - known[0][0])
    earlier = [value for step, value in known if step <= start]
    return earlier[-1] - found.after > FALL * abs(found.after)


def trend(found: Outcome, series: dict[str, Series]) -> Html:
    """Whether to train for fewer or more epochs. The lowest loss is a hint for the next run, not a score."""
    after, lowest, step = found.after, found.lowest, found.step_lowest
    if after is None:
        return EMPTY
    risen = lowest is not None and after - lowest > TURN * abs(lowest)
    useless = found.before is not None and after >= found.before
    parts: list[object] = []
    if useless:
        parts.append(strong("The loss on the test rows is no lower than before training. "))
    if risen and lowest is not None and step is not None and step > 0:
        parts += [
            f"It was lowest, {words.significant(lowest)}, at step {words.count(step)}{epochs_at(step, series)} ",
            "and has ",
            strong("risen"),
            " since: the model is overfitting, and fewer epochs would have been enough. ",
            "The lowest loss was chosen on the test rows, so use it to decide how long to train next time; as a score "
            "it is too optimistic.",
        ]
    elif not useless:
        falling = still_falling(found, series)
        if falling:
            parts += ["It was ", strong("still falling"), " at the end: more epochs would probably lower it further."]
        elif falling is False:
            parts += ["It had ", strong("levelled off"), " by the end: more epochs would change little."]
    return paragraph(*parts) if parts else EMPTY


def interruption(data: dict[str, Any]) -> Html:
    run = data.get("run") or {}
    if not run.get("interrupted"):
        return EMPTY
    steps, planned = run.get("steps"), run.get("steps_planned")
    where = f" at step {words.count(steps)}" if words.known(steps) else ""
    where += f" of {words.count(planned)}" if where and words.known(planned) else ""
    return paragraph(
        strong(f"The run was interrupted{where}."), " The page shows what was known by then; the run can be resumed."
    )


def untested(series: dict[str, Series]) -> Html:
    """Without test rows there is only the training loss, which says nothing about new texts."""
    if "loss" not in series:
        return paragraph("No loss was measured.")
    known = series["loss"].known
    meaning = "training loss at the end, on the rows it learned from"
    if len(known) > 1:
        meaning += f"; at step {words.count(known[0][0])} it was {words.significant(known[0][1])}"
    warning = "The loss was not measured on test rows, so this page does not show how the model does on new texts."
    return join([large_figure(words.significant(known[-1][1]), f"{meaning}."), paragraph(strong(warning))])


def opening(data: dict[str, Any], series: dict[str, Series]) -> Section | None:
    found = outcome(data, series)
    if found.after is None and found.before is None and not series and not interruption(data):
        return None
    if found.after is None:
        body = [interruption(data), untested(series)]
        if words.known(found.before):
            body.append(paragraph(f"Before training, the evaluation loss was {words.significant(found.before)}."))
        return Section("result", "The result", "Result", join(body))
    picture = before_after(found.before, found.after) if found.before is not None else EMPTY
    prose = join([perplexity_words(found), trend(found, series)])
    beside = tag("div", tag("div", prose), tag("figure", picture) if picture else None, class_="beside")
    then = choices(found.before) if found.before is not None else None
    numbers = terms([("perplexity before", then), ("perplexity after", choices(found.after))])
    return Section("result", "The result", "Result", join([interruption(data), headline(found, data), beside, numbers]))

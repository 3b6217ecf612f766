"""The result of a fine-tuning run: the loss on test rows, its meaning, and whether to train longer or shorter."""

from __future__ import annotations

import math
from typing import Any

from shoal.report.finetune.figures import before_after
from shoal.report.finetune.log import Series
from shoal.report.shell import words
from shoal.report.shell.markup import (
    EMPTY,
    Html,
    Section,
    beside,
    join,
    large_figure,
    paragraph,
    strong,
    tag,
    terms,
)

NOISE = 0.01  # share of the loss by which a few test rows may raise it
CLEAR_FALL = 0.02  # share of the loss


def perplexity(loss: float) -> str:
    """e to the power of the loss; a dash if it is too large for a float."""
    return words.significant(math.exp(loss)) if loss < 700 else words.NOTHING


def headline(losses: list[tuple[int, float]], data: dict[str, Any]) -> Html:
    (_, before), (last, after) = losses[0], losses[-1]
    ended = last >= data["run"]["steps_planned"]
    when = "after training" if ended else f"at step {words.count(last)}, where it was last measured"
    rows = words.count(data["data"]["test"], "test row")
    meaning = (
        f"evaluation loss {when}, on {rows} that it did not learn from; before, it was {words.significant(before)}."
    )
    return large_figure(words.significant(after), meaning)


def perplexity_words(losses: list[tuple[int, float]]) -> Html:
    """The loss explained as perplexity."""
    before, after = perplexity(losses[0][1]), perplexity(losses[-1][1])
    tokens = " equally likely tokens" if after != "1" else " token: it is nearly certain"
    return paragraph(
        "Lower is better. The model is now as uncertain about the next token of a text as if it had to choose among ",
        strong(after),
        f"{tokens}; before training, among ",
        strong(before),
        ". This number is the perplexity.",
    )


def epochs_at(step: int, series: dict[str, Series]) -> str:
    """
    >>> epochs_at(4, {"epoch": Series("epoch", [0, 4], [0.0, 1.25])})
    ' (after 1.3 epochs)'
    """
    known = [pair for pair in series["epoch"].known if pair[0] <= step] if "epoch" in series else []
    return f" (after {words.fixed(known[-1][1], 1).removesuffix('.0')} epochs)" if known else ""


def still_falling(losses: list[tuple[int, float]]) -> bool:
    """Whether the last quarter of the run still lowered the loss."""
    start = losses[0][0] + 0.75 * (losses[-1][0] - losses[0][0])
    earlier = [value for step, value in losses if step <= start]
    return earlier[-1] - losses[-1][1] > CLEAR_FALL * abs(losses[-1][1])


def trend(losses: list[tuple[int, float]], series: dict[str, Series]) -> Html:
    """Whether to train for fewer or more epochs. The lowest loss is a hint for the next run, not a score."""
    after = losses[-1][1]
    step, lowest = min(losses, key=lambda pair: pair[1])
    useless = after >= losses[0][1]
    parts: list[object] = []
    if useless:
        parts.append(strong("The loss on the test rows is no lower than before training. "))
    if step > 0 and after - lowest > NOISE * abs(lowest):
        parts += [
            f"It was lowest, {words.significant(lowest)}, at step {words.count(step)}{epochs_at(step, series)} ",
            "and has ",
            strong("risen"),
            " since: the model is overfitting, and fewer epochs would have been enough. ",
            "The lowest loss was chosen on the test rows, so use it to decide how long to train next time; as a score "
            "it is too optimistic.",
        ]
    elif not useless and len(losses) >= 4:
        if still_falling(losses):
            parts += ["It was ", strong("still falling"), " at the end: more epochs would probably lower it further."]
        else:
            parts += ["It had ", strong("levelled off"), " by the end: more epochs would change little."]
    return paragraph(*parts) if parts else EMPTY


def interruption(run: dict[str, Any]) -> Html:
    if not run["interrupted"]:
        return EMPTY
    where = f"at step {words.count(run['steps'])} of {words.count(run['steps_planned'])}"
    return paragraph(
        strong(f"The run was interrupted {where}."), " The page shows what was known by then; the run can be resumed."
    )


def opening(data: dict[str, Any], series: dict[str, Series]) -> Section:
    """Shoal measures the loss on the test rows before training, so the first of the losses is that of step 0."""
    losses = series["eval_loss"].known if "eval_loss" in series else []
    parts = [interruption(data["run"])]
    if len(losses) > 1:
        before, after = losses[0][1], losses[-1][1]
        prose = join([perplexity_words(losses), trend(losses, series)])
        parts += [headline(losses, data), beside(prose, tag("figure", before_after(before, after)))]
        parts.append(terms([("perplexity before", perplexity(before)), ("perplexity after", perplexity(after))]))
    elif losses:
        parts.append(paragraph(f"Before training, the evaluation loss was {words.significant(losses[0][1])}."))
    else:
        parts.append(paragraph("The loss was not measured yet."))
    return Section("result", "The result", "Result", join(parts))

"""What strategies share whose workers train on rows of their own: how rows are dealt, how workers start and stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.errors import UserError, WrongType
from shoal.options import Options, option
from shoal.parallel.strategies.base import Strategy
from shoal.validate import number, one_of, shown, whole

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.job import Job

BY_CLASS = "class:"
SPLITS = ("random", "order", "class:ALPHA")
STARTS = ("same", "own")
LARGEST = 1e9  # of numbers that are only compared with each other


def number_or_word(text: str) -> int | str:
    """What was typed on the command line: a number, if it is one."""
    return int(text) if text.isascii() and text.isdecimal() else text


def concentration(split: str) -> float | None:
    """The ALPHA of a split by class, None for others.

    >>> concentration("class:0.5"), concentration("order")
    (0.5, None)
    """
    return float(split.removeprefix(BY_CLASS)) if split.startswith(BY_CLASS) else None


def _average_every(name: str, value: Any) -> int | str:
    return value if value in ("epoch", "end") else whole(name, value, 1, otherwise=' or "epoch" or "end"')


def check_split(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(BY_CLASS):
        return one_of(name, value, SPLITS)
    try:
        alpha = concentration(value)
    except ValueError:
        alpha = None
    if alpha is None or not 0 < alpha < LARGEST:
        raise UserError(f"the number in {name} must be positive and below 1e9, as in class:0.5; got {shown(value)}")
    return value


def positive_numbers(name: str, value: Any) -> tuple[float, ...]:
    """Positive numbers; also as a text, "3,1"."""
    wrong = f"{name} must be numbers, one for each worker, as in 3,1; got {shown(value)}"
    if isinstance(value, str):
        try:
            value = [float(part) for part in value.split(",")]
        except ValueError:
            raise UserError(wrong) from None
    if not isinstance(value, Sequence) or not value:
        raise WrongType(wrong)
    return tuple(number(f"each number of {name}", part, above=0, below=LARGEST) for part in value)


@dataclass(frozen=True)
class OwnRowsOptions(Options):
    average_every: int | str = option(
        "epoch", "local_sgd: steps, epoch or end; gossip: steps or epoch.", check=_average_every, parse=number_or_word
    )
    split: str = option(
        "random",
        "local_sgd, gossip: rows of a worker at random, in the order of the data, or by class:ALPHA: each class is "
        "shared out by a draw from the Dirichlet distribution.",
        check=check_split, metavar="random|order|class:ALPHA", new=True,
    )  # fmt: skip
    shares: tuple[float, ...] | None = option(
        None, "local_sgd, gossip: rows of each worker, in proportion, as in 3,1. (default: equal)",
        check=positive_numbers,
        parse=str, new=True,
    )  # fmt: skip
    start: str = option(
        "same", "local_sgd, gossip: workers begin with the same weights, or each with its own.", one_of=STARTS,
        new=True,
    )  # fmt: skip
    until_error: float | None = option(
        None, "local_sgd, gossip: a worker stops when the mean loss of its rows in an epoch is at most this.", least=0,
        new=True,
    )  # fmt: skip


NEW = ("split", "shares", "start", "until_error")  # options that no other strategy has a use for


class OwnRows(Strategy):
    """Each worker trains on rows of its own: `shoal.parallel.ownership` says which."""

    options = OwnRowsOptions
    owns_rows = True

    def check(self, job: Job) -> None:
        if job.shares is not None and concentration(job.split) is not None:
            raise UserError(f"shares and split={job.split!r} both say how many rows a worker has; leave out one")

    def check_model(self, job: Job, model: nn.Module) -> None:
        check_shares(job.shares, job.workers)

    def fewest_rows(self, job: Job) -> int:
        return job.workers

    def needs_targets(self, job: Job) -> bool:
        return concentration(job.split) is not None


def keeps_rows(job: Job) -> bool:
    """Local SGD: whether a worker has the same rows in every epoch; if not, those of a round are cut anew."""
    dealt = job.split != "random" or job.shares is not None or job.until_error is not None
    return dealt or isinstance(job.average_every, str)


def check_shares(shares: Sequence[float] | None, workers: int) -> None:
    """Refuse another number of shares than of workers."""
    if shares is not None and len(shares) != workers:
        raise UserError(f"shares must be one number for each of the {workers} workers; got {len(shares)}")

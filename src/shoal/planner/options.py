"""The options of a plan, each in one place (see `shoal.options`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from shoal.errors import UserError, WrongType
from shoal.options import Options, option
from shoal.parallel.job import BACKENDS, LARGEST, LOSSES, OPTIMIZERS, SCHEDULES, SHARDS, name_or_function
from shoal.parallel.strategies.own_rows import STARTS, check_split, concentration, positive_numbers
from shoal.planner.links import Link
from shoal.planner.machines import Hardware
from shoal.planner.variants import DEFAULT, find_variants
from shoal.validate import number, one_of, shown, strings, whole

RATE_RULES = ("none", "linear", "sqrt")
MOST_NODES = 4096
MOST_EPOCHS, MOST_ROWS, MOST_PARTS = 10**6, 10**9, 10**5  # of a training, of a batch, of a batch or of the rows
SPEEDS = (1e-3, 1e3)  # of a node; this machine's is 1


def node_counts(name: str, value: Any) -> tuple[int, ...]:
    """Numbers of nodes, in order; always with one, to compare with.

    >>> node_counts("--nodes", "2,4-6"), node_counts("nodes", (8, 2))
    ((1, 2, 4, 5, 6), (1, 2, 8))
    """
    if isinstance(value, (int, str)):
        value = [_span(name, part.strip(), str(value)) for part in str(value).split(",")]
        value = [count for span in value for count in span]
    if not isinstance(value, Iterable):
        raise WrongType(f"{name} must be whole numbers of nodes, as in 1,2,4,8; got {shown(value)}")
    found = {whole(name, count, 1, MOST_NODES, what="whole numbers of nodes") for count in value}
    if not found:
        raise UserError(f"{name} needs at least one number of nodes, as in 1,2,4,8")
    return tuple(sorted({1, *found}))


def _span(name: str, text: str, typed: str) -> range:
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UserError(f"{name} must be whole numbers or spans of them, as in 1,2,4-8; got {typed!r}")
    if dash and int(last) < int(first):
        raise UserError(f"{name}: the span {text!r} ends before it begins; write {last}-{first}")
    end = whole(name, int(last if dash else first), 1, MOST_NODES, what="whole numbers of nodes")
    return range(int(first), end + 1)


def check_goal(name: str, value: Any) -> tuple[str, float]:
    """What is to be reached, as in accuracy=0.97."""
    if isinstance(value, str):
        metric, _, bound = value.partition("=")
        try:
            value = (metric.strip().lower(), float(bound))
        except ValueError:
            raise UserError(f"{name} is a score and a number, as in accuracy=0.97; got {value!r}") from None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise WrongType(f"{name} is a score and a number, as in accuracy=0.97; got {shown(value)}")
    metric, bound = value
    one_of(name, metric, ("accuracy", "r2"))
    return metric, number(f"{name} {metric}", bound, above=0, below=1, what="a number")


def _link(name: str, value: Any) -> Link:
    return value.checked(name, value) if isinstance(value, Link) else Link.parse(str(value), name)


def _speeds(name: str, value: Any) -> tuple[float, ...]:
    found = positive_numbers(name, value)
    return tuple(number(f"each number of {name}", speed, *SPEEDS) for speed in found)


def _hardware(name: str, value: Any) -> Hardware:
    return value if isinstance(value, Hardware) else Hardware.parse(str(value), name)


def _strategies(name: str, value: Any) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else strings(name, value)
    return tuple(variant.name for variant in find_variants(words or DEFAULT, name))


@dataclass(frozen=True)
class PlanOptions(Options):
    """Options of a plan, in the order of its help."""

    nodes: tuple[int, ...] = option(
        (1, 2, 4, 8), "How many nodes to compare: 1,2,4,8 or 1-64. (default: 1,2,4,8)", check=node_counts, parse=str,
        metavar="<list>",
    )  # fmt: skip
    strategy: tuple[str, ...] = option(
        DEFAULT, "Strategies, separated by commas, or all; local_sgd:K averages every K steps. "
        f"(default: {', '.join(DEFAULT)})", check=_strategies, parse=str, metavar="<list>",
    )  # fmt: skip
    link: Link | None = option(
        None, "The link between nodes, each a machine of its own: 1gbit,0.1ms. (default: nodes share this machine)",
        check=_link, parse=str, metavar="<rate,latency>",
    )  # fmt: skip
    share_machine: bool | None = option(
        None, "Nodes share this machine's cores. (default: unless --link is given)",
        flags="--share-machine/--own-machines",
    )  # fmt: skip
    backend: str = option("processes", "threads, processes or mpi.", one_of=BACKENDS)
    node: Hardware | None = option(
        None, "Other hardware than this machine: 4tflops,200gb/s. (default: like this machine)", check=_hardware,
        parse=str, metavar="<flops,bytes>",
    )  # fmt: skip
    node_speed: tuple[float, ...] | None = option(
        None, "Speeds of nodes that differ, 1 is this machine: 1,1,0.5; the last holds for all further nodes. "
        "One node alone is the fastest of them.",
        check=_speeds, parse=str, metavar="<list>",
    )  # fmt: skip
    price: float | None = option(None, "Price of a node for an hour.", least=0, below=LARGEST)
    goal: tuple[str, float] | None = option(
        None, "Plan the time to a score on the test rows: accuracy=0.97, or r2=0.8.", check=check_goal, parse=str,
        metavar="<score>",
    )  # fmt: skip
    epochs: int = option(10, "Passes over the rows.", least=1, most=MOST_EPOCHS)
    batch_size: int = option(128, "Rows in a step over all nodes (local_sgd, gossip, asynchronous: of each node).",
                             least=1, most=MOST_ROWS)  # fmt: skip
    batch_per_node: bool = option(False, "--batch-size is that of each node: more nodes, larger batches.")
    rate_rule: str = option(
        "linear", "--batch-per-node: the learning rate grows with the batch: none, linear or sqrt.", one_of=RATE_RULES
    )
    loss: str | Callable[[Any, Any], Any] = option(
        "cross_entropy", "cross_entropy, mse or bce. (default: by the target)", check=name_or_function(LOSSES),
        parse=str,
    )  # fmt: skip
    optimizer: str | Callable[[Any], Any] = option(
        "sgd", "sgd, adam or adamw.", check=name_or_function(OPTIMIZERS), parse=str
    )
    learning_rate: float = option(0.1, "Size of the steps.", above=0, below=LARGEST, flags="--learning-rate --lr")
    momentum: float = option(0.0, "For sgd.", least=0, below=LARGEST)
    weight_decay: float = option(0.0, "Pulls weights towards zero.", least=0, below=LARGEST)
    schedule: str = option("constant", "constant or cosine.", one_of=SCHEDULES)
    shards: int = option(SHARDS, "Parts of a batch (exact all-reduce), micro-batches (pipeline).", least=1,
                         most=MOST_PARTS)  # fmt: skip
    folds: int = option(5, "kfold: how many.", least=2, most=MOST_PARTS)
    split: str = option(
        "random", "How rows are dealt to nodes that keep theirs: random, order, or class:ALPHA (Dirichlet).",
        check=check_split,
    )  # fmt: skip
    shares: tuple[float, ...] | None = option(
        None, "Uneven shares of the rows: 3,1,1; needs one number of nodes.", check=positive_numbers, parse=str,
        metavar="<list>",
    )  # fmt: skip
    start: str = option("same", "Initial weights of nodes: same, or own for each.", one_of=STARTS)
    until_error: float | None = option(
        None, "A node stops at this training loss, as in the paper.", least=0, below=LARGEST
    )
    node_folds: int | None = option(
        None, "local_sgd:epoch and :end: each node cross-validates its rows in so many folds, and takes the mean.",
        least=2, most=MOST_PARTS,
    )  # fmt: skip
    remeasure: bool = option(
        False, "Measure what is between workers again, though an earlier plan did; with --link, or without accuracy."
    )
    accuracy: bool = option(True, "Leave out what nodes do to accuracy: seconds instead of minutes.",
                            flags="--no-accuracy")  # fmt: skip
    seeds: int = option(3, "Trainings of each kind; intervals follow from them.", least=1, most=1000)
    seed: int = option(0, "Seed of all that is drawn at random.", least=0)

    def check_together(self, called: Callable[[str], str]) -> None:
        if self.shares is not None and any(count not in (1, len(self.shares)) for count in self.nodes):
            raise UserError(
                f"{called('shares')} has {len(self.shares)} shares, which need {called('nodes')} {len(self.shares)}; "
                f"got {called('nodes')} {','.join(map(str, self.nodes))}"
            )
        if self.shares is not None and concentration(self.split) is not None:
            both = f"{called('shares')} and {called('split')} {self.split}"
            raise UserError(f"{both} both say how many rows a node has; leave out one")
        if self.goal is not None and not self.accuracy:
            off = called("accuracy")
            off = off if off.startswith("--") else f"{off}=False"
            raise UserError(
                f"{called('goal')} needs the accuracy of each plan, which {off} leaves out; drop one of them"
            )
        if self.backend == "threads" and self.link is not None:
            raise UserError(
                f"{called('backend')} threads are threads of one machine, and {called('link')} joins machines; use "
                "processes or mpi"
            )

    @property
    def own_machines(self) -> bool:
        """Whether each node is a machine of its own."""
        return self.link is not None if self.share_machine is None else not self.share_machine

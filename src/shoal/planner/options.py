"""The options of a plan, and the trainings that they describe (see `shoal.options`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from shoal.errors import UserError, WrongType
from shoal.options import option, options_of
from shoal.parallel.cost import Variant
from shoal.parallel.data.ownership import concentration
from shoal.parallel.exact.tree_sum import shards_of
from shoal.parallel.job import LARGEST, MOST_PARTS, Job, TrainingOptions
from shoal.parallel.strategies import find_strategy
from shoal.parallel.strategies.own_rows import ROW_OPTIONS, positive_numbers
from shoal.planner.cost.cluster import Hardware, NodeLink
from shoal.planner.variants import DEFAULT, find_variants
from shoal.validate import number, one_of, shown, strings, whole

RATE_RULES = ("none", "linear", "sqrt")
MOST_NODES = 4096
SPEEDS = (1e-3, 1e3)  # of a node; this machine's is 1
ALONE = ("serial", "blas", "native")  # strategies of one worker
CLOSE = "allreduce-close"


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


def _link(name: str, value: Any) -> NodeLink:
    return value.checked(name, value) if isinstance(value, NodeLink) else NodeLink.parse(str(value), name)


def _speeds(name: str, value: Any) -> tuple[float, ...]:
    found = positive_numbers(name, value)
    return tuple(number(f"each number of {name}", speed, *SPEEDS) for speed in found)


def _hardware(name: str, value: Any) -> Hardware:
    return value if isinstance(value, Hardware) else Hardware.parse(str(value), name)


def _strategies(name: str, value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else strings(name, value)
    words = tuple(word.strip() for part in given for word in part.split(","))
    for word in words:
        if word not in (*ALONE, "auto", CLOSE):
            find_variants(word, name)
    return words


def _nodes(name: str, value: Any) -> tuple[int, ...]:
    return () if value == () else node_counts(name, value)


@dataclass(frozen=True)
class PlanOptions(TrainingOptions):
    """The options of a training, and those of its plan."""

    strategy: tuple[str, ...] = option(
        (), "Strategies, separated by commas, or all. local_sgd:K averages every K steps; allreduce-close is allreduce "
        f"with --close. (default: allreduce if --workers is given, else {', '.join((CLOSE, *DEFAULT[1:]))})",
        check=_strategies, parse=str, metavar="<list>",
    )  # fmt: skip
    workers: int | None = option(None, "Plan this number of nodes, as in shoal train.", least=1, most=MOST_NODES)
    nodes: tuple[int, ...] = option(
        (), "Numbers of nodes: 1,2,4,8 or 1-64. (default: 1,2,4,8)", check=_nodes, parse=str, metavar="<list>"
    )
    link: NodeLink | None = option(
        None, "The link between nodes, each a machine of its own: 1gbit,0.1ms. (default: nodes share this machine)",
        check=_link, parse=str, metavar="<rate,latency>",
    )  # fmt: skip
    share_machine: bool | None = option(
        None, "Nodes share this machine's cores. (default: unless --link is given)",
        flags="--share-machine/--own-machines",
    )  # fmt: skip
    node: Hardware | None = option(
        None, "Other hardware than this machine: 4tflops,200gb/s. (default: like this machine)", check=_hardware,
        parse=str, metavar="<flops,bytes>",
    )  # fmt: skip
    node_speed: tuple[float, ...] | None = option(
        None, "Speeds of nodes that differ, 1 is this machine: 1,1,0.5; the last holds for all further nodes. "
        "One node alone is the fastest of them.",
        check=_speeds, parse=str, metavar="<list>",
    )  # fmt: skip
    price: float | None = option(None, "Price of a node-hour.", least=0, below=LARGEST)
    goal: tuple[str, float] | None = option(
        None, "Predict the time to reach a score on the test rows: accuracy=0.97, or r2=0.8.", check=check_goal,
        parse=str, metavar="<score>",
    )  # fmt: skip
    batch_per_node: bool = option(False, "Give each node a batch of --batch-size rows: more nodes, larger batches.")
    rate_rule: str = option(
        "linear", "With --batch-per-node, how the learning rate grows: none, linear or sqrt.", one_of=RATE_RULES
    )
    node_folds: int | None = option(
        None, "With local_sgd:epoch or :end, each node trains a network for each fold of its rows, and averages them.",
        least=2, most=MOST_PARTS,
    )  # fmt: skip
    remeasure: bool = option(False, "Measure communication again instead of using cached values.")
    accuracy: bool = option(True, "Skip the accuracy simulation.", flags="--no-accuracy")
    seeds: int = option(3, "Number of seeds to train each strategy with. Intervals come from them.", least=1, most=1000)

    def check_together(self, called: Callable[[str], str]) -> None:
        self._settle_nodes(called)
        if self.shares is not None and any(count not in (1, len(self.shares)) for count in self.nodes):
            raise UserError(
                f"{called('shares')} has {len(self.shares)} shares, which need {called('nodes')} {len(self.shares)}; "
                f"got {called('nodes')} {','.join(map(str, self.nodes))}"
            )
        if self.shares is not None and concentration(self.split) is not None:
            both = f"{called('shares')} and {called('split')} {self.split}"
            raise UserError(f"{both} both set how many rows a node has; give only one of them")
        if self.goal is not None and not self.accuracy:
            off = called("accuracy")
            off = off if off.startswith("--") else f"{off}=False"
            raise UserError(f"{called('goal')} needs the accuracy of each plan, which {off} skips; drop one of them")
        if self.backend == "threads" and self.link is not None:
            raise UserError(
                f"{called('backend')} threads are threads of one machine, and {called('link')} connects machines; "
                "use processes or mpi"
            )
        if self.device not in ("auto", "cpu"):
            raise UserError(f"a plan is for CPUs; got {called('device')} {self.device}. Omit {called('device')}")
        if self.mesh is not None:
            raise UserError(f"a plan uses the default mesh of each strategy; omit {called('mesh')}")

    def _settle_nodes(self, called: Callable[[str], str]) -> None:
        """Set the numbers of nodes, if they are not given."""
        alone = bool(self.strategy) and set(self.strategy) <= set(ALONE)
        asked = 1 if alone and self.workers is None else self.workers
        settled = (1, 2, 4, 8) if asked is None else tuple(sorted({1, asked}))
        if self.nodes not in ((), settled) and (self.workers is not None or alone):
            other = called("workers") if self.workers is not None else f"{called('strategy')} {self.strategy[0]}"
            raise UserError(f"{called('nodes')} and {other} both set the number of nodes; give only one of them")
        if alone and settled != (1,):
            raise UserError(f"strategy {self.strategy[0]!r} has one worker; got {called('workers')}={self.workers}")
        object.__setattr__(self, "nodes", self.nodes or settled)

    @property
    def own_machines(self) -> bool:
        """Whether each node is a machine of its own."""
        return self.link is not None if self.share_machine is None else not self.share_machine

    # ---- the trainings that are planned ----

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The strategies to compare. A name of `shoal train` is what that runs with the same options."""
        words = [word for word in self.strategy if word not in ALONE]
        if not words and (self.strategy or self.workers is not None):
            words = ["allreduce"]
        if not words or "auto" in words:
            unwanted = None if self.exact is None else "allreduce" if self.exact else "allreduce-exact"
            pair = [word for word in ("allreduce", "allreduce-exact") if word != unwanted]
            words = [*(word for word in words if word != "auto"), *(word for word in DEFAULT if word not in pair)]
            others = [self.variant_name(word) for word in words if word != unwanted]
            return find_variants((*pair, *others))
        return find_variants(tuple(self.variant_name(word) for word in words))

    def variant_name(self, word: str) -> str:
        """The variant that a name of `shoal train` stands for."""
        if word == CLOSE:
            return "allreduce"
        if word == "allreduce":
            exact = max(self.nodes) <= (self.shards or shards_of(self.batch_size)) if self.exact is None else self.exact
            return "allreduce-exact" if exact else "allreduce"
        if word in ("local_sgd", "gossip"):
            return f"{word}:{self.average_every}"
        return "parameter_server-async" if word == "parameter_server" and self.asynchronous else word

    def training(self, variant: Variant, nodes: int) -> Job:
        """What `shoal train` runs with the same options, this strategy and so many workers."""
        settings, kept = dict(variant.settings), self._shared()
        method = find_strategy(settings["strategy"])
        if nodes == 1 and (self.nodes != (1,) or not self.strategy) and method.name != "kfold":
            return self.alone
        if set(self.strategy) <= set(ALONE) and self.strategy:
            settings = {"strategy": self.strategy[0]}
        if not method.owns_rows:
            kept -= set(ROW_OPTIONS)
        values = {name: getattr(self, name) for name in kept} | settings | {"workers": nodes}
        if values.get("exact"):
            batch = self.batch_size * (nodes if self.batch_per_node else 1)
            if nodes > (self.shards or shards_of(batch)):
                values["shards"] = nodes
        if self.batch_per_node and not variant.own_algorithm:
            values["batch_size"] = self.batch_size * nodes
            values["learning_rate"] = self.learning_rate * rate_factor(self.rate_rule, nodes)
        return Job(**values)

    @property
    def alone(self) -> Job:
        """The plain loop on one node, or the compiled kernel if no other strategy is asked for."""
        kept = self._shared() - {*ROW_OPTIONS, "exact", "average_every", "asynchronous"}
        threads = 1 if self.strategy == ("serial",) else self.blas_threads
        values = {name: getattr(self, name) for name in kept} | {"blas_threads": threads}
        return Job(strategy="native" if self.strategy == ("native",) else "blas", workers=1, **values)

    def _shared(self) -> set[str]:
        return set(options_of(TrainingOptions)) - {"mesh"}


def rate_factor(rule: str, nodes: int) -> float:
    """How the learning rate grows with the batch.

    >>> rate_factor("linear", 4), rate_factor("sqrt", 4), rate_factor("none", 4)
    (4.0, 2.0, 1.0)
    """
    return {"linear": float(nodes), "sqrt": math.sqrt(nodes), "none": 1.0}[rule]

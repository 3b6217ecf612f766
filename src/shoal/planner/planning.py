"""`plan`: what training one network would cost on n nodes, what it would do to accuracy, and whether it pays."""

from __future__ import annotations

import copy
import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from shoal.callbacks import Callbacks
from shoal.console.notebook import InNotebook
from shoal.errors import UserError, WrongType
from shoal.files.json_values import plain as plain_values
from shoal.machine import instruction_set, processor
from shoal.parallel.checks import check_fit
from shoal.parallel.cost import Estimate, Variant
from shoal.parallel.data.loader import find_device
from shoal.parallel.data.ownership import concentration
from shoal.parallel.exact.randomness import draw_weights
from shoal.parallel.job import Job
from shoal.planner.cost.cluster import Cluster
from shoal.planner.cost.times import CostModel
from shoal.planner.events import PlanProgress, PlanStarted, StageEnded
from shoal.planner.measure.calibration import MachineCalibration
from shoal.planner.measure.measuring import Check, measure
from shoal.planner.options import PlanOptions
from shoal.planner.simulate.accuracy import Scores, Simulator, metric_of
from shoal.planner.simulate.cases import case_of, check_cases, run_cases
from shoal.planner.simulate.noise import Noise, noise_scale
from shoal.planner.variants import find_variants
from shoal.planner.verdict import Verdict, judge, unstable, unstable_note
from shoal.runs.versions import versions
from shoal.validate import nearest
from shoal.version import __version__

MEASURING = 0.3  # of the progress of a plan with accuracies
TRACE_LANES = {"compute": 0, "link": 1}


@dataclass(frozen=True)
class Row:
    """One strategy on one number of nodes. Seconds, bytes and cost are those of the whole training.

    `seconds` are all that the user waits for: `start_seconds` until the workers have started, the epochs, the end.
    """

    strategy: str
    label: str
    nodes: int
    seconds_per_epoch: float
    seconds: float
    speedup: float
    improvement_percent: float
    efficiency: float
    communication_share: float
    bytes_per_node: float
    memory_bytes: float
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    seconds_to_goal: float | None = None
    cost: float | None = None
    note: str = ""
    diverged: bool = False
    start_seconds: float = 0.0
    spread: float = 0.0  # of the score over seeds: the standard deviation

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "diverged"}


@dataclass
class Plan(InNotebook):
    """The result of `plan`.

    Attributes
    ----------
    rows : list of Row
        Each strategy on each number of nodes: seconds, speed-up, accuracy.
    verdict : Verdict
        Whether workers pay, and which row is the best.
    options : PlanOptions
        What was asked.
    machine : dict
        Where it was measured.
    model : CostModel
        The measured costs that the rows follow from.
    scores : dict
        Simulated scores, by strategy and nodes.
    notes : list of str
        Everything that the plan skipped, and why.
    interrupted : bool
        After Ctrl-C.

    Examples
    --------
    See `plan`. `parallel.fit(model, train_set, **vars(found.training()))` runs the best row.
    """

    what: str
    options: PlanOptions
    machine: dict[str, Any]
    rows: list[Row]
    verdict: Verdict
    model: CostModel
    scores: dict[tuple[str, int], Scores] = field(default_factory=dict)
    noise: Noise | None = None
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    metric: str = "accuracy"

    def __str__(self) -> str:
        return self.verdict.text

    def row(self, strategy: str, nodes: int) -> Row:
        """One of the rows, by the name of the row or of the strategy that was asked for."""
        for name in (strategy, self.options.variant_name(strategy)):
            for row in self.rows:
                if (row.strategy, row.nodes) == (name, nodes):
                    return row
        known = sorted({row.strategy for row in self.rows})
        raise UserError(f"the plan has no row {strategy!r} on {nodes} nodes{nearest(strategy, known)}")

    @property
    def best(self) -> Row:
        """The row that the verdict recommends."""
        return self.row(self.verdict.strategy, self.verdict.nodes)

    def training(self, row: Row | None = None) -> Job:
        """The options of a row's training, of the best row if none is given.

        `parallel.fit(model, train_set, **vars(found.training()))` runs it.
        """
        row = row or self.best
        job = self.options.training(find_variants(row.strategy)[0], row.nodes)
        here = self.model.calibration
        left_open = job.strategy == "blas" and "blas" not in self.options.strategy and job.blas_threads is None
        if left_open and here.plain[1](job.batch_size) < here.plain[here.cores](job.batch_size):
            job = replace(job, strategy="serial")  # faster with one thread
        return job if find_device("auto").type == "cpu" else replace(job, device="cpu")

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        facts = self.model.calibration.facts
        settings = {**self.options.as_dict(), "strategy": [variant.name for variant in self.options.variants],
                    "rows": self.model.rows, "parameters": facts.parameters,
                    "link": None if self.options.link is None else str(self.options.link),
                    "node": None if self.options.node is None else vars(self.options.node)}  # fmt: skip
        for name in ("loss", "optimizer"):
            settings[name] = value if isinstance(value := settings[name], str) else "function"
        found: dict[str, Any] = plain_values({
            "what": self.what, "machine": self.machine, "settings": settings,
            "rows": [row.as_dict() for row in self.rows], "verdict": asdict(self.verdict),
            "predicted": {**self.best.as_dict(), "metric": self.metric, "own_machines": self.options.own_machines,
                          "link": self.machine["link"]["name"]},
            "goal": self.options.goal and dict(zip(("metric", "value"), self.options.goal, strict=True)),
            "metric": self.metric, "curves": self.curves(), "timeline": self.timeline(),
            "noise": None if self.noise is None else self.noise.as_dict(), "notes": self.notes,
            "unstable": any(unstable(row) for row in self.rows),
            "interrupted": self.interrupted, "version": __version__,
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        })  # fmt: skip
        return found

    def curves(self) -> list[dict[str, Any]]:
        """The score against time: a point for each epoch, from when the workers are started."""
        found = []
        for row in self.rows:
            scores = self.scores.get((row.strategy, row.nodes))
            if scores is not None:
                seconds = [row.start_seconds + row.seconds_per_epoch * (epoch + 1)
                           for epoch in range(len(scores.by_epoch))]  # fmt: skip
                found.append({"strategy": row.strategy, "label": row.label, "nodes": row.nodes, "seconds": seconds,
                              "accuracy": scores.by_epoch})  # fmt: skip
        return found

    def timeline(self) -> dict[str, Any]:
        """One step of each node: of what the verdict names, else of the fastest strategy that sends something."""
        chosen = next((row for row in self.rows if self.verdict.pays
                       and (row.strategy, row.nodes) == (self.verdict.strategy, self.verdict.nodes)), None)  # fmt: skip
        if chosen is None:
            many = [row for row in self.rows if row.nodes > 1] or self.rows
            fewest = [row for row in many if row.nodes == min(row.nodes for row in many)]
            talking = [row for row in fewest if self.model.estimate(find_variants(row.strategy)[0], row.nodes).sent]
            chosen = min(talking or fewest, key=lambda row: row.seconds)
        return self.timeline_of(chosen.strategy, chosen.nodes)

    def timeline_of(self, strategy: str, nodes: int, most: int = 16) -> dict[str, Any]:
        """One step of each of the first nodes; without what would never end."""
        variant = find_variants(strategy)[0]
        estimate = self.model.estimate(variant, nodes)
        spans = [span for span in estimate.spans if span["node"] < most]  # type: ignore[operator]
        if estimate.round is not None:
            spans = [span for node in range(min(nodes, most)) for span in estimate.round.spans(node)]
        spans = [span for span in spans if math.isfinite(span["start"] + span["seconds"])]  # type: ignore[operator]
        end = max((span["start"] + span["seconds"] for span in spans), default=0.0)  # type: ignore[operator]
        return {"strategy": strategy, "label": variant.label, "nodes": nodes, "seconds": end, "spans": spans}

    def trace(self) -> dict[str, Any]:
        """A step in the format of Chrome's and Perfetto's traces."""
        line = self.timeline()
        return trace_of(line["spans"], f"{line['label']} on {line['nodes']} nodes: one step")


def trace_of(spans: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
    """A step of each node for chrome://tracing or Perfetto: nodes are processes, computing and link their threads."""
    events: list[dict[str, Any]] = []
    for node in sorted({span["node"] for span in spans}):
        events.append({"ph": "M", "name": "process_name", "pid": node, "tid": 0, "args": {"name": f"node {node}"}})
        events += [{"ph": "M", "name": "thread_name", "pid": node, "tid": number, "args": {"name": lane}}
                   for lane, number in TRACE_LANES.items()]  # fmt: skip
    events += [
        {"ph": "X", "name": span["name"], "cat": span["lane"], "pid": span["node"], "tid": TRACE_LANES[span["lane"]],
         "ts": 1e6 * span["start"], "dur": 1e6 * span["seconds"]}
        for span in spans
    ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}


def plan(
    model: nn.Module,
    train: Dataset[Any],
    test: Dataset[Any],
    *,
    what: str = "",
    redraw: Callable[[int], nn.Module] | None = None,
    callbacks: Any = None,
    **settings: Any,
) -> Plan:
    """Predict how long the training of a network takes on several nodes, and how good it gets.

    Parameters
    ----------
    model : nn.Module
        The network.
    train, test : Dataset
        Pairs of (inputs, target). Accuracy is that on `test`.
    what : str, optional
        What the plan calls the training.
    redraw : callable, optional
        Makes the network with the weights of a seed; if not given, a copy of the model with new weights.
    callbacks : list of Callback, optional
        Watch the plan and may end it early (see `shoal.callbacks`, and `shoal.planner.events` for the events).
    **settings : any
        Fields of `shoal.planner.options.PlanOptions`: all options of `parallel.fit`, and nodes, link, goal, ...

    Returns
    -------
    Plan
        After Ctrl-C it has what is known so far, and `interrupted` is true.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> data = TensorDataset(torch.randn(256, 3), torch.randint(2, (256,)))
    >>> found = plan(nn.Linear(3, 2), data, data, nodes=[1, 2], epochs=1, accuracy=False)
    >>> sorted({row.nodes for row in found.rows})
    [1, 2]
    """
    for name in settings:
        if name not in PlanOptions.__dataclass_fields__:
            raise WrongType(f"plan has no option {name!r}{nearest(name, PlanOptions.__dataclass_fields__)}")
    options = PlanOptions(**settings)
    watched = _Watched(callbacks, MEASURING if options.accuracy else 1.0)
    job = replace(options.alone, device="cpu", checkpoint=None)
    check_fit(job, model, train, test)
    metric = metric_of(job, model, test)
    _check_metric(options, metric)
    variants, notes = usable(options, model, len(train))  # type: ignore[arg-type]
    simulator = Simulator([model], train, test)
    cases = {(variant.name, count): case_of(variant, count, options, job)
             for variant, counts in variants.items() for count in counts if options.accuracy}  # fmt: skip
    check_cases(simulator, cases.values())
    watched.start(variants, options, model, train)
    calibration, check, remembered = measure(options, job, model, train, list(variants), watched.measuring)
    watched.ended("measured")
    notes += [remembered] if remembered else []
    cluster = Cluster(options.link, options.own_machines, options.node_speed or (), options.node)
    costs = CostModel(calibration, cluster, job, len(train), shares=options.shares,  # type: ignore[arg-type]
                      node_folds=options.node_folds or 1, batch_per_node=options.batch_per_node)  # fmt: skip
    estimates = {(variant.name, count): costs.estimate(variant, count)
                 for variant, counts in variants.items() for count in counts}  # fmt: skip
    scores: dict[tuple[str, int], Scores] = {}
    noise, interrupted = None, False
    if options.accuracy:
        simulator.models = [copy.deepcopy(model) if seed == 0 else _redrawn(model, options.seed + seed, redraw)
                            for seed in range(options.seeds)]  # fmt: skip
        simulator.flops = calibration.facts.flops
        try:
            for key, found in run_cases(simulator, cases, costs, watched.simulating):
                scores[key] = found
                watched.ended(f"{key[0]} on {key[1]}")
            noise = noise_scale(job, model, train)
        except (KeyboardInterrupt, _Stopped) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            notes.append(f"{'Interrupted' if interrupted else 'Stopped'}: accuracy is known for some rows only.")
    rows = [_row(variant, count, estimates, scores, options) for variant, counts in variants.items()
            for count in counts]  # fmt: skip
    machine = describe(calibration, options, check)
    folded = [row for row in rows if options.node_folds is not None and find_variants(row.strategy)[0].can_fold]
    notes += unstable_note(rows, options)
    verdict = judge(folded or rows, costs, options.goal if scores else None)
    made = Plan(what, options, machine, rows, verdict, costs, scores, noise, notes, interrupted, metric or "accuracy")
    watched.callbacks.notify("finished", made)
    return made


class _Stopped(Exception):
    """A callback has asked to stop."""


class _Watched:
    """Callbacks, and what they have asked for. Nothing is known before this machine is measured, so it always is."""

    def __init__(self, callbacks: Any, measuring: float) -> None:
        self.callbacks, self.share_of_measuring, self.stopped = Callbacks(callbacks), measuring, False

    def start(self, variants: dict[Variant, list[int]], options: PlanOptions, model: nn.Module, rows: Any) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        names = tuple(variant.name for variant in variants)
        self.callbacks.notify("started", PlanStarted(names, options.nodes, len(rows), parameters))

    def ended(self, stage: str) -> None:
        self.stopped |= self.callbacks.notify("step_ended", StageEnded(stage))

    def measuring(self, share: float, doing: str) -> None:
        self.stopped |= self.callbacks.notify("progress", PlanProgress(self.share_of_measuring * share, doing))

    def simulating(self, share: float, doing: str) -> None:
        done = self.share_of_measuring + (1 - self.share_of_measuring) * share
        self.stopped |= self.callbacks.notify("progress", PlanProgress(done, doing))
        if self.stopped:
            raise _Stopped


def _check_metric(options: PlanOptions, metric: str) -> None:
    if options.accuracy and not metric:
        raise UserError("a plan predicts accuracy for classes (with two outputs or more) and R2 for numbers under the "
                        "loss mse; this loss and target have neither score. Add --no-accuracy")  # fmt: skip
    if metric == "r2" and concentration(options.split) is not None:
        raise UserError(f"--split {options.split} needs a target of classes, and this one holds numbers")
    if options.goal is not None and options.goal[0] != metric:
        kind = "numbers" if metric == "r2" else "classes"
        raise UserError(f"the target holds {kind}, so the goal is {metric}; got {options.goal[0]}={options.goal[1]:g}")


def usable(options: PlanOptions, model: nn.Module, rows: int) -> tuple[dict[Variant, list[int]], list[str]]:
    """The strategies that can train this network, each with its numbers of nodes, and a note on what is skipped."""
    found: dict[Variant, list[int]] = {}
    notes = []
    for variant in options.variants:
        counts, reason = [1], ""
        for count in (count for count in options.nodes if count > 1):
            try:
                trial = options.training(variant, count)
                trial.method.check_model(trial, model)
                needed = trial.method.fewest_rows(trial)
                if rows < needed:
                    raise UserError(f"it needs at least {needed} rows, and there are {rows}")
                counts.append(count)
            except UserError as error:
                reason = reason or f"{variant.label} on {count} nodes is skipped: {error}."
        notes += [reason] if reason else []
        if len(counts) > 1 or len(options.nodes) == 1:
            found[variant] = counts
    if not found:
        raise UserError(f"none of the strategies can train this network on so many nodes. {' '.join(notes)}")
    return found, notes


def _redrawn(model: nn.Module, seed: int, redraw: Callable[[int], nn.Module] | None) -> nn.Module:
    if redraw is not None:
        return redraw(seed)
    other = copy.deepcopy(model)
    draw_weights(other, seed)
    return other


def _row(
    variant: Variant,
    count: int,
    estimates: dict[tuple[str, int], Estimate],
    scores: dict[tuple[str, int], Scores],
    options: PlanOptions,
) -> Row:
    found, alone = estimates[variant.name, count], estimates[variant.name, 1]
    known = scores.get((variant.name, count))
    trained = _epochs(known, options)
    seconds = found.total(trained)
    first = alone.total(_epochs(scores.get((variant.name, 1)), options))
    speedup = first / seconds if seconds > 0 else math.inf
    machines = count + (variant.strategy.servers if count > 1 else 0)
    interval = known.interval() if known is not None else None
    epochs = known.epochs_to(options.goal[1]) if known is not None and options.goal is not None else None
    return Row(
        variant.name, variant.label, count, found.seconds, seconds, speedup,
        100 * (first - seconds) / first if first > 0 else 0.0, speedup / machines,
        _share(found.communicating * trained + found.finish, seconds),
        trained * found.sent + found.sent_at_end, found.memory,
        None if known is None or known.diverged else known.last,
        None if interval is None else interval[0], None if interval is None else interval[1],
        None if epochs is None else found.total(epochs),
        None if options.price is None else options.price * machines * seconds / 3600,
        "diverged" if known is not None and known.diverged else found.note, known is not None and known.diverged,
        found.start, 0.0 if known is None or known.diverged else known.spread,
    )  # fmt: skip


def _epochs(known: Scores | None, options: PlanOptions) -> float:
    """Of the training: those that nodes needed to reach the error at which they stop, else all."""
    return options.epochs if known is None or options.until_error is None else known.epochs


def _share(part: float, seconds: float) -> float:
    """Of the time; a link without bandwidth takes all of it."""
    if math.isinf(seconds):
        return 1.0
    return part / seconds if seconds > 0 else 0.0


def describe(calibration: MachineCalibration, options: PlanOptions, check: Check | None) -> dict[str, Any]:
    """The machine, the link, and how steps were measured."""
    link: dict[str, Any] = {"name": "measured on this machine", "bandwidth": None, "latency": None}
    if options.link is not None:
        link = {"name": str(options.link), **asdict(options.link)}
    curve = calibration.plain[calibration.cores]
    return {
        "cpu": processor(), "cores": calibration.cores, "instruction_set": instruction_set(), "versions": versions(),
        "backend": options.backend, "link": link, "own_machines": options.own_machines,
        "compute": curve.as_dict(), "start_seconds": calibration.start or None,
        "check": None if check is None else check.as_dict(),
    }  # fmt: skip

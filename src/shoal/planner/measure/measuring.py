"""Measurements that a plan makes on this machine before it predicts, and a check of the prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import Dataset

from shoal.machine import thread_count
from shoal.parallel.exact.randomness import torch_as_it_was
from shoal.parallel.exact.tree_sum import shards_of
from shoal.planner.cost.cluster import Cluster
from shoal.planner.cost.times import CostModel
from shoal.planner.measure.calibration import BRIEF, BRIEFEST, TINY, MachineCalibration, calibrate, probed, row_sizes
from shoal.planner.measure.remembered import recalled, remember
from shoal.planner.measure.steps import alone, step_seconds
from shoal.report.shell.words import predicted_error

if TYPE_CHECKING:
    from shoal.parallel.cost import Variant
    from shoal.parallel.job import Job
    from shoal.planner.options import PlanOptions

STEPS_SHARE = 0.4  # of the progress of measuring: steps of one worker; the rest is between workers


@dataclass(frozen=True)
class Check:
    """A training that was not measured for the calibration: what the plan says, and what a clock says."""

    what: str
    predicted: float  # seconds of a step
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    def as_dict(self) -> dict[str, Any]:
        return {"text": str(self), "error": self.error, "predicted": self.predicted, "measured": self.measured}

    def __str__(self) -> str:
        return (
            f"{self.what}: {1e3 * self.predicted:.3g} ms a step predicted, {1e3 * self.measured:.3g} ms measured: "
            f"{predicted_error(self.predicted, self.measured)}"
        )


def measure(
    options: PlanOptions,
    job: Job,
    model: nn.Module,
    train: Dataset[Any],
    variants: Sequence[Variant],
    progress: Callable[[float, str], None],
) -> tuple[MachineCalibration, Check | None, str]:
    """Calibrate for this network, between workers as well if there are to be any; then check one step.

    Between machines of their own, messages are counted rather than measured. What software adds to them hardly depends
    on the network, so that of an earlier plan will do. Nodes on this machine take what an earlier plan has measured of
    the same network, where the plan has to be quick.
    """
    sizes = row_sizes(needed_sizes(options, len(train)), len(train))  # type: ignore[arg-type]
    calibration = calibrate(job, model, train, sizes, lambda share, words: progress(STEPS_SHARE * share, words),
                            BRIEF if options.accuracy else BRIEFEST)  # fmt: skip
    note = ""
    if max(options.nodes) > 1:
        known = None
        if not options.remeasure and (options.own_machines or not options.accuracy):
            known = recalled(calibration, job, variants, () if options.own_machines else sizes)
        if known is not None:
            calibration, date = known
            note = f"Messages between workers were measured on this machine on {date} (--remeasure: again)."
        else:
            progress(STEPS_SHARE, f"messages between workers ({job.backend})")
            if options.own_machines:
                sizes = row_sizes(shared_sizes(options, variants), len(train))  # type: ignore[arg-type]
            calibration = probed(calibration, job, model, train, sizes, variants)
            remember(calibration, job, variants)
    return calibration, _check(calibration, job, model, train), note


def needed_sizes(options: PlanOptions, rows: int) -> set[float]:
    """Rows of the steps that a plan is about: of a batch, of each node's part of it or of all rows, of a shard."""
    found: set[float] = {TINY}
    for count in options.nodes:
        batch = min(rows, options.batch_size * (count if options.batch_per_node else 1))
        own = min(options.batch_size, rows / count)  # of nodes that keep their rows
        shards = options.shards or shards_of(batch)
        found |= {batch, own, *(max(1.0, batch / parts) for parts in (count, max(1, count // 2), shards))}
    return found


def shared_sizes(options: PlanOptions, variants: Sequence[Variant]) -> set[float]:
    """Rows of steps that threads of one node take side by side: small ones, shards of exact sums, and folds."""
    most = max(options.nodes) if options.batch_per_node else 1
    batches = [options.batch_size * count for count in (1, most)]
    found = {TINY, *(batch / (options.shards or shards_of(batch)) for batch in batches)}
    return found | ({options.batch_size} if any(one.strategy.holds_out_rows for one in variants) else set())


def _check(calibration: MachineCalibration, job: Job, model: nn.Module, train: Dataset[Any]) -> Check | None:
    """A few steps of one node with the batch size asked for; a little smaller, if that was measured."""
    rows = min(job.batch_size, len(train))  # type: ignore[arg-type]
    seen = {size for size, _ in calibration.plain[calibration.cores].points}
    if rows in seen:
        rows -= rows // 8
    if rows in seen:
        return None
    predicted = CostModel(calibration, Cluster(), job, rows).plain(rows)
    with torch_as_it_was():
        times = [
            step_seconds(alone(job, "plain", count), model, train, rows, 4, enough=BRIEF)
            for count in sorted({1, thread_count()})
        ]
        measured = min(min(found) for found in times)
    return Check(f"one node, batch {rows:,}", predicted, measured)

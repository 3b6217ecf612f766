"""The trainings that a plan has to simulate, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.errors import UserError
from shoal.parallel.cost import Variant
from shoal.parallel.strategies.local_sgd import ALONE
from shoal.parallel.strategies.parameter_server import service_seconds
from shoal.planner.options import rate_factor
from shoal.planner.simulate.accuracy import Case, Scores, Simulator
from shoal.planner.simulate.virtual import Timing

if TYPE_CHECKING:
    from shoal.parallel.job import Job
    from shoal.planner.cost.times import CostModel
    from shoal.planner.options import PlanOptions

Key = tuple[str, int]  # strategy, nodes


def case_of(variant: Variant, count: int, options: PlanOptions, alone: Job) -> Case:
    """The training behind a row; `alone`: that of one node.

    Strategies that share each batch are one training, whatever the number of nodes.
    """
    name, strategy = variant.name, variant.strategy
    if strategy.holds_out_rows:
        return Case(name, _seeds(replace(alone, strategy=strategy.name, workers=1), options))
    dealt = {"split": options.split, "shares": options.shares, "start": options.start,
             "until_error": options.until_error}  # fmt: skip
    folds = options.node_folds if variant.can_fold else None
    if variant.own_algorithm and (count > 1 or folds):
        settings = dict(variant.settings)
        if strategy.owns_rows and count > 1:  # one node has all rows
            settings |= dealt
        job = replace(alone, workers=count, backend="threads", **settings)
        return Case(f"{name} on {count}", _seeds(job, options), folds)
    batch, rate = alone.batch_size, alone.learning_rate
    if options.batch_per_node and not variant.own_algorithm:
        batch, rate = batch * count, rate * rate_factor(options.rate_rule, count)
    single = replace(alone, **ALONE, backend="threads", batch_size=batch, learning_rate=rate,
                     until_error=options.until_error)  # fmt: skip
    return Case(f"one training, batch {batch}", _seeds(single, options))


def _seeds(job: Job, options: PlanOptions) -> tuple[Job, ...]:
    return tuple(replace(job, seed=options.seed + seed) for seed in range(options.seeds))


def check_cases(simulator: Simulator, cases: Iterable[Case]) -> None:
    """Refuse what cannot be simulated, before anything is measured."""
    if any(case.folds and not simulator.fast(case) for case in cases):
        raise UserError("--node-folds needs a network of linear layers and rows in memory, which the population engine "
                        "can train. Omit it for this network")  # fmt: skip


def run_cases(
    simulator: Simulator, cases: dict[Key, Case], costs: CostModel, progress: Callable[[float, str], None]
) -> Iterator[tuple[Key, Scores]]:
    """Scores of all rows, as they become known; those that the engine trains first. Equal cases are trained once."""
    keys: dict[str, list[Key]] = {}
    different: dict[str, Case] = {}
    for key, case in cases.items():
        keys.setdefault(case.name, []).append(key)
        different[case.name] = case
    total = sum(case.epochs for case in different.values())
    done = 0.0
    now = "accuracy"

    def advance(more: float) -> None:
        nonlocal done
        done += more
        progress(min(1.0, done / total), now)

    fast = [case for case in different.values() if not case.jobs[0].method.holds_out_rows and simulator.fast(case)]
    for case, scores in simulator.averaged(fast, advance):
        for key in keys[case.name]:
            yield key, scores
    for case in different.values():
        if case in fast:
            continue
        now = f"accuracy: {case.name}"
        progress(min(1.0, done / total), now)
        if case.jobs[0].method.holds_out_rows:
            scores = simulator.on_folds(case, advance)
        else:
            scores = simulator.on_nodes(case, advance, _timing(case.jobs[0], costs))
        for key in keys[case.name]:
            yield key, scores


def _timing(job: Job, costs: CostModel) -> Timing | None:
    """Where the order of messages matters: virtual seconds from the cost model, nodes at their own speeds."""
    if not job.asynchronous:
        return None
    workers = job.workers
    work = costs.gradient(job.batch_size, workers) / costs.cluster.slowest(workers)
    speeds, service = costs.cluster.speeds_of(workers), service_seconds(costs)

    def step(rank: int) -> float:
        return service if rank == 0 else work / speeds[rank - 1]

    return Timing(step, lambda count: costs.messages(workers).message(count))

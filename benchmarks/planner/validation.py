"""Is the planner right? Predicted against measured, for every strategy that runs on this machine."""

from __future__ import annotations

import itertools
import math
import statistics
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.report import Result
from benchmarks.planner import hosts
from benchmarks.planner.dlmp import check_packages
from benchmarks.planner.subjects import DRAWN, GIVEN, HERE, Subject, find_subject
from benchmarks.planner.trainings import COMMON, network, rows_of, test_rows, train
from shoal.errors import UserError
from shoal.machine import thread_count

if TYPE_CHECKING:
    from shoal.planner.cost.cluster import Cluster
    from shoal.planner.measure.calibration import MachineCalibration
    from shoal.planner.variants import Variant

STRATEGIES = {
    "threads": ("allreduce", "allreduce-exact", "local_sgd:8", "local_sgd:epoch", "gossip", "parameter_server"),
    "processes": ("allreduce", "allreduce-exact", "local_sgd:8", "local_sgd:epoch", "gossip", "parameter_server",
                  "parameter_server-async", "tensor", "pipeline", "sharded"),
    "mpi": ("allreduce", "allreduce-exact", "local_sgd:8", "local_sgd:epoch", "gossip", "parameter_server"),
}  # fmt: skip
ON_HOSTS = ("allreduce", "allreduce-exact", "local_sgd:8", "local_sgd:epoch")
EPOCHS = 4  # of a timed training; the first one does not count
ALONE = "one worker"
NO_HOSTS = "none"
SLOW_LINK = 50e6  # bytes a second below which one round between hosts is enough
MOST_EPOCHS = 8  # between hosts
NEITHER = 0.05  # measured speed-ups this near to 1 are neither faster nor slower


@dataclass(frozen=True)
class Judged:
    """One configuration: what the planner said, and what a clock said."""

    net: str
    backend: str
    place: str  # "this machine", or the rate of the link between two hosts
    strategy: str
    workers: int
    batch: int
    predicted: float  # seconds of an epoch
    measured: float
    predicted_speedup: float
    measured_speedup: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def right(self) -> bool | None:
        """Whether a plan would have told if this is faster than one worker; None: measured as neither."""
        if abs(self.measured_speedup - 1) < NEITHER:
            return None
        return (self.predicted_speedup > 1) == (self.measured_speedup > 1)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error, "right": self.right}


@benchmark(
    needs=("torch",),
    quick={
        "nets": ("mlp",),
        "backends": ("threads",),
        "rounds": 1,
        "rates": (),
        "accuracy_rows": 600,
        "accuracy_epochs": 1,
    },
)
def planner(
    *,
    nets: tuple[str, ...] = (*GIVEN, f"{DRAWN}:1", f"{DRAWN}:2"),
    backends: tuple[str, ...] = tuple(STRATEGIES),
    workers: tuple[int, ...] = (1, 2),
    rounds: int = 2,
    rates: tuple[str, ...] = ("100mbit", "1gbit"),
    accuracy_rows: int = 6000,
    accuracy_epochs: int = 4,
    dlmp: Path | None = None,
    dlmp_python: Path | None = None,
) -> Result:
    """Is `shoal plan` right? Its times, accuracies and verdicts against real runs, every strategy that runs here.

    nets: mlp, wide mlp, cnn, or drawn:SEED: by chance.
    backends: threads, processes, mpi.
    workers: Numbers of workers.
    rounds: Times of calibrating and measuring.
    rates: Rates of the link between two hosts, or none; needs root.
    accuracy_rows: Rows of the comparison of accuracies.
    accuracy_epochs: Epochs of it.
    dlmp: A checkout of DLMP, to run beside.
    dlmp_python: A Python that can run it.
    """
    from benchmarks.planner import validation_report as report

    subjects = [find_subject(name) for name in nets]
    check_packages(dlmp, dlmp_python)
    unable = {**_missing_backends(backends), **_missing_hosts(rates)}
    able = tuple(name for name in backends if name not in unable)
    rates = () if "hosts" in unable or NO_HOSTS in rates else rates
    trials = [trial for subject in subjects for trial in _trials(subject, able, workers, rates)]
    cells = rounds * sum(bool(trial.workers) + len(trial.rates) for trial in trials) + 6
    judged: list[Judged] = []
    with progress_bar("planner", cells) as tick:
        for trial in trials:
            judged += _judged(trial, rounds, tick, unable)
        tick("accuracy")
        scored = accuracies(backends, accuracy_rows, accuracy_epochs)
        rivals = _rivals(dlmp, dlmp_python, tick, unable)
    found = {"judged": [one.as_dict() for one in judged], "accuracy": scored, "dlmp": rivals, "not_measured": unable}
    return Result(
        title="The planner against real runs: predicted and measured",
        data=found,
        tables=report.tables(judged, scored, rivals), targets=report.targets(judged, scored),
        notes=report.notes(judged, unable), draw=lambda: report.draw(judged),
    )  # fmt: skip


def _missing_backends(backends: tuple[str, ...]) -> dict[str, str]:
    from benchmarks.parallel.workers import mpi_missing

    why = mpi_missing() if "mpi" in backends else ""
    return {"mpi": why} if why else {}


def _missing_hosts(rates: tuple[str, ...]) -> dict[str, str]:
    why = hosts.missing() if rates and NO_HOSTS not in rates else ""
    return {"hosts": why} if why else {}


def calibrated(subject: Subject, backend: str, variants: Sequence[Variant]) -> MachineCalibration:
    """As a plan with accuracies measures, but no size of a batch, or of a worker's half of one, that is judged."""
    from shoal.planner.measure.calibration import calibrate, probed, row_sizes

    rows, job, model = rows_of(subject.rows), _job(backend), network(subject.net)
    sizes = row_sizes([8, *(batch / parts for batch in subject.batches for parts in (1, 2, 8))], subject.rows)
    sizes = [size for size in sizes if not {size, 2 * size} & set(subject.batches)]
    return probed(calibrate(job, model, rows, sizes), job, model, rows, sizes, variants)


def _job(backend: str, batch: int = 64) -> Any:
    from shoal.parallel.job import Job

    return Job(strategy="blas", workers=1, backend=backend, batch_size=batch, epochs=EPOCHS, **COMMON)


Cell = tuple[str, int, int]  # strategy, workers, batch
Times = dict[Cell, list[tuple[float, float]]]  # predicted and measured seconds of an epoch, of each round


@dataclass(frozen=True)
class Trial:
    """A network with a backend: numbers of workers on this machine, rates of links between two hosts."""

    subject: Subject
    backend: str
    workers: Sequence[int]
    rates: Sequence[str]


def _trials(subject: Subject, backends: Sequence[str], workers: Sequence[int], rates: Sequence[str]) -> list[Trial]:
    """Hosts have processes, and share their calibration."""
    for count in workers:
        if count * max(subject.batches) > subject.rows:
            raise UserError(f"--workers {count} with --net {subject.name}: its {subject.rows:,} rows are less than a "
                            f"batch of {max(subject.batches)} for each worker")  # fmt: skip
    found = [Trial(subject, name, workers, rates if name == "processes" else ()) for name in backends]
    return [*found, Trial(subject, "processes", (), rates)] if rates and "processes" not in backends else found


def _judged(trial: Trial, rounds: int, tick: Tick, unable: dict[str, str]) -> list[Judged]:
    """Rounds of calibrating and measuring: the machine's own speed drifts, and the best of all rounds are compared."""
    times: dict[str, Times] = {}
    for number in range(rounds):
        for place, cells in _one_round(trial, number, tick, unable, set(times)).items():
            for cell, pair in cells.items():
                times.setdefault(place, {}).setdefault(cell, []).append(pair)
    found: list[Judged] = []
    for place, cells_of_place in times.items():
        cases = judge(trial.subject.name, trial.backend, place, cells_of_place)
        found += [one for one in cases if one.workers > 1 or place == HERE]
    return found


def judge(net: str, backend: str, place: str, times: Times) -> list[Judged]:
    """The best of all rounds, and speed-ups against one worker."""
    best = {cell: tuple(min(column) for column in zip(*pairs, strict=True))
              for cell, pairs in times.items()}  # fmt: skip
    found = []
    for (strategy, workers, batch), (predicted, measured) in best.items():
        alone = best[ALONE, 1, batch]
        found.append(Judged(net, backend, place, strategy, workers, batch, predicted, measured, alone[0] / predicted,
                            alone[1] / measured))  # fmt: skip
    return found


def _one_round(
    trial: Trial, number: int, tick: Tick, unable: dict[str, str], known: Collection[str]
) -> dict[str, dict[Cell, tuple[float, float]]]:
    """Predicted and measured, by place. One worker, which all are compared with, is measured before and after."""
    from shoal.planner.cost.cluster import Cluster, NodeLink
    from shoal.planner.variants import find_variants

    subject, words = trial.subject, f"{trial.subject.name}, {trial.backend}"
    variants = find_variants(STRATEGIES[trial.backend])
    if trial.workers:
        tick(f"{words}: round {number + 1}")
    calibration = calibrated(subject, trial.backend, variants)
    found: dict[str, dict[Cell, tuple[float, float]]] = {}
    before = measured_alone(subject)

    def compare(place: str, cluster: Cluster, measured: dict[Cell, float]) -> None:
        nonlocal before
        after = measured_alone(subject)
        measured |= {(ALONE, 1, batch): min(before[batch], after[batch]) for batch in subject.batches}
        before = after
        found[place] = {cell: (_predicted(calibration, cluster, trial, cell), measured[cell]) for cell in measured}

    if trial.workers:
        together = [measured_together(subject, trial.backend, variants, count) for count in trial.workers if count > 1]
        compare(HERE, Cluster(), {cell: seconds for part in together for cell, seconds in part.items()})
    for rate in trial.rates:
        tick(f"{words}, two hosts at {rate}: round {number + 1}")
        if rate in known and NodeLink.parse(rate).bandwidth < SLOW_LINK:
            continue  # the link takes nearly all the time there, and a token bucket does not drift
        cluster = Cluster(NodeLink.parse(rate), own_machines=False)
        try:
            compare(rate, cluster, _on_two_hosts(trial, rate, cluster, calibration))
        except (RuntimeError, subprocess.SubprocessError) as error:
            why = str(error) if isinstance(error, RuntimeError) else type(error).__name__
            unable[f"{subject.name} on hosts at {rate}, round {number + 1},"] = why
    return found


def _predicted(calibration: MachineCalibration, cluster: Cluster, trial: Trial, cell: Cell) -> float:
    """Seconds of an epoch; on one node all strategies are the same.

    Trainings have whole batches of each worker only, and count as if there were parts of them in proportion.
    """
    from shoal.planner.cost.times import CostModel
    from shoal.planner.variants import find_variants

    strategy, count, batch = cell
    rows, variant = trial.subject.rows, find_variants("allreduce" if strategy == ALONE else strategy)[0]
    used = rows - rows % (batch * count)
    model = CostModel(calibration, cluster, _job(trial.backend, batch), used)
    return model.estimate(variant, count).seconds * rows / used


def measured_alone(subject: Subject) -> dict[int, float]:
    """By batch size, an epoch of the plain loop, with one thread or all: the better one."""
    from benchmarks.planner.timed import LEAST_SECONDS
    from shoal.parallel.exact.randomness import torch_as_it_was
    from shoal.planner.measure.steps import alone, step_seconds

    found: dict[int, float] = {}
    rows, model, job = rows_of(subject.rows), network(subject.net), _job("processes")
    with torch_as_it_was():
        for batch, threads in itertools.product(subject.batches, sorted({1, thread_count()})):
            steps = subject.rows // batch
            seconds = step_seconds(alone(job, "plain", threads), model, rows, batch, steps, enough=LEAST_SECONDS)
            found[batch] = min(found.get(batch, math.inf), subject.rows / batch * min(seconds))
    return found


def measured_together(subject: Subject, backend: str, variants: Sequence[Variant], count: int) -> dict[Cell, float]:
    """Epochs of real trainings by `count` workers, one after the other in the same processes."""
    from benchmarks.planner.timed import run_trainings
    from shoal.parallel.strategies import find_strategy

    found: dict[Cell, float] = {}
    for servers in (0, 1):
        chosen = [one for one in variants if find_strategy(one.settings["strategy"]).servers == servers]
        found |= {
            (name, count, batch): seconds
            for (name, batch), seconds in run_trainings(
                _job(backend), network(subject.net), rows_of(subject.rows), chosen, subject.batches, count
            ).items()
        }
    return found


def _on_two_hosts(trial: Trial, rate: str, cluster: Cluster, calibration: MachineCalibration) -> dict[Cell, float]:
    """Two workers, each on a host of its own; the hosts share this machine's cores, and their link is slow."""
    from shoal.planner.variants import find_variants

    subject, runs, expected = trial.subject, [], 0.0
    cells: list[Cell] = [(name, 2, batch) for batch in subject.batches for name in ON_HOSTS]
    for cell in cells:
        batch, seconds = cell[2], _predicted(calibration, cluster, trial, cell)
        epochs = min(MOST_EPOCHS, 2 + int(1 / seconds))
        expected += epochs * seconds
        runs.append({"net": subject.net, "rows": subject.rows - subject.rows % (2 * batch),
                     "settings": {"batch_size": batch, "epochs": epochs, "blas_threads": 1,
                                  **find_variants(cell[0])[0].settings}})  # fmt: skip
    measured = hosts.run_on_hosts(rate, runs, limit=hosts.LIMIT + 2 * expected)
    return {cell: one["seconds"] * subject.rows / run["rows"]
            for cell, run, one in zip(cells, runs, measured, strict=True)}  # fmt: skip


# ---- accuracy ----


def accuracies(backends: tuple[str, ...], accuracy_rows: int, accuracy_epochs: int) -> list[dict[str, Any]]:
    """Test accuracy on virtual nodes beside that of a real distributed run with the same seed and rows."""
    from shoal.planner.cost.cluster import Cluster
    from shoal.planner.cost.times import CostModel
    from shoal.planner.options import PlanOptions
    from shoal.planner.simulate.accuracy import Simulator
    from shoal.planner.simulate.cases import case_of, run_cases
    from shoal.planner.variants import find_variants

    subject, names = GIVEN["mlp"], ("allreduce", "local_sgd:8", "local_sgd:epoch", "local_sgd:end", "gossip",
                         "parameter_server-async")  # fmt: skip
    options = PlanOptions(nodes=(1, 2), strategy=names, epochs=accuracy_epochs, batch_size=64,
                          learning_rate=COMMON["learning_rate"], seeds=1)  # fmt: skip
    job = replace(_job("processes"), epochs=accuracy_epochs)
    rows, variants = rows_of(accuracy_rows), find_variants(names)
    costs = CostModel(calibrated(subject, "threads", ()), Cluster(), job, len(rows))
    cases = {(one.name, 2): case_of(one, 2, options, costs.job) for one in variants}
    simulated = dict(run_cases(Simulator([network(subject.net)], rows, test_rows(), 1.0), cases, costs, _silent))
    found = []
    for variant in variants:
        for backend in [name for name in backends if name not in _missing_backends(backends)]:
            if backend == "threads" and variant.name == "allreduce":
                continue
            real = train({"net": subject.net, "rows": len(rows), "score": True, "settings": {
                "backend": backend, "workers": 2, "batch_size": 64, "epochs": accuracy_epochs,
                **variant.settings}})  # fmt: skip
            found.append({"strategy": variant.name, "backend": backend, "predicted": simulated[variant.name, 2].last,
                          "measured": real["accuracy"]})  # fmt: skip
    return found


def _silent(share: float, words: str) -> None: ...


def _rivals(dlmp: Path | None, dlmp_python: Path | None, tick: Tick, unable: dict[str, str]) -> list[dict[str, Any]]:
    """DLMP on the same cases, if there is a checkout of it. If it fails, what was measured before is not lost."""
    if dlmp is None or dlmp_python is None:
        return []
    from benchmarks.planner.rivals import compared

    found = []
    for nodes in (1, 2):
        try:
            found.append(compared(nodes, dlmp, dlmp_python, tick))
        except Exception as error:  # whatever another program does; results hold no paths, so not its words
            unable[f"DLMP on {nodes} nodes"] = f"it failed ({type(error).__name__})"
    return found


def median_error(judged: Sequence[Judged]) -> float:
    """The middle of all relative errors, without their signs."""
    return statistics.median(abs(one.error) for one in judged)

"""DLMP, the planner and the real thing on one case."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import Tick
from benchmarks.planner import dlmp
from benchmarks.planner.case import Case, Images, lenet, load_images
from benchmarks.planner.real import real_run, tensors

SEEDS = 3


def compared(nodes: int, checkout: Path, python: Path, tick: Tick) -> dict[str, Any]:
    """Seconds of an epoch and test accuracy over some seeds; nodes of the real run are processes of this machine."""
    cases = [Case(nodes=nodes, seed=seed) for seed in range(SEEDS)]
    images = load_images(cases[0])
    tick(f"DLMP: {nodes} nodes")
    theirs = [dlmp.predict(case, checkout, python, images, coordination="sync") for case in cases]
    real = [real_run(case, images, "processes" if nodes > 1 else "threads") for case in cases]
    seconds, scores = _ours(cases, images)
    return {
        "nodes": nodes,
        "real": statistics.median(statistics.median(run.epochs) for run in real), "shoal": seconds,
        "dlmp": statistics.median(run.seconds / len(run.epochs) for run in theirs),
        "real_accuracy": statistics.fmean(run.accuracy for run in real), "shoal_accuracy": statistics.fmean(scores),
        "dlmp_accuracy": statistics.fmean(run.accuracy for run in theirs), "dlmp_runs": theirs[0].coordination,
    }  # fmt: skip


def _ours(cases: list[Case], images: Images) -> tuple[float, list[float]]:
    """What the planner says: seconds of an epoch, and the accuracy of each seed."""
    from shoal.parallel.job import Job
    from shoal.planner.cost.cluster import Cluster
    from shoal.planner.cost.times import CostModel
    from shoal.planner.measure.calibration import calibrate, probed, row_sizes
    from shoal.planner.simulate.accuracy import Case as Training
    from shoal.planner.simulate.accuracy import Simulator
    from shoal.planner.variants import VARIANTS

    case, rows, test = cases[0], tensors(images.X_train, images.y_train), tensors(images.X_test, images.y_test)
    job = Job(strategy="blas", workers=1, backend="processes", optimizer="sgd", learning_rate=case.learning_rate,
              batch_size=case.batch_size, epochs=case.epochs, device="cpu")  # fmt: skip
    sizes = row_sizes([case.batch_size, 8], case.rows)
    averaged = VARIANTS["local_sgd:epoch"]
    calibration = calibrate(job, lenet(0), rows, sizes)
    if case.nodes > 1:
        calibration = probed(calibration, job, lenet(0), rows, sizes, [averaged])
    model = CostModel(calibration, Cluster(), job, case.rows)
    seconds = model.estimate(averaged, case.nodes).seconds
    if case.nodes == 1:  # the real run has one thread
        seconds = case.rows / case.batch_size * calibration.vector[1](case.batch_size)
    scores = []
    for one in cases:
        single = Job(strategy="local_sgd", average_every="epoch", workers=one.nodes, backend="threads",
                     optimizer="sgd", learning_rate=one.learning_rate, batch_size=one.batch_size, epochs=one.epochs,
                     device="cpu", seed=one.seed)  # fmt: skip
        simulator = Simulator([lenet(one.seed)], rows, test, calibration.facts.flops)
        scores.append(simulator.on_nodes(Training("case", (single,)), lambda done: None).last)
    return seconds, scores

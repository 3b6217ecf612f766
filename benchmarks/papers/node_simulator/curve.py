"""What a simulation costs: wall seconds against nodes x steps, of the fast path, of the slow one, and of DLMP."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import TensorDataset

from benchmarks.harness.measure import Tick, fit_line
from benchmarks.harness.problems import random_data
from benchmarks.planner import dlmp
from benchmarks.planner.case import Case, lenet, load_images
from benchmarks.planner.real import tensors
from shoal.parallel.exact.tree_sum import shares
from shoal.parallel.job import Job
from shoal.parallel.networks import make_model
from shoal.planner.simulate.averaged import train_averaged
from shoal.planner.simulate.virtual import run_nodes

if TYPE_CHECKING:
    from benchmarks.papers.node_simulator.study import Study

NET, FEATURES, BATCH = "mlp:20-10-2", 20, 8
PATHS = {"fast": "all nodes as one population (train_averaged)", "slow": "one node after the other (run_nodes)"}
KINDS = {
    "dealt": "all rows dealt to the nodes: more nodes, fewer rows each",
    "grown": "so many rows for each node: more nodes, more rows",
}


def run_curve(study: Study, tick: Tick) -> dict[str, Any]:
    """Points of both paths, a line through those where the work grows with the nodes, DLMP if it is there."""
    X, y = random_data(study.curve_rows, FEATURES)
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    most = max(study.curve_nodes)
    found = []
    for path in PATHS:
        counts = [nodes for nodes in study.curve_nodes if path == "fast" or nodes <= study.curve_slow]
        for kind in KINDS:
            for nodes in counts:
                tick(f"cost of a simulation: {nodes} nodes, {path}")
                rows = len(data) if kind == "dealt" else nodes * max(1, len(data) // most)
                found.append({"path": path, "kind": kind, **point(study, path, data, nodes, rows)})
    result: dict[str, Any] = {"points": found, "lines": lines(found)}
    if study.dlmp is not None:
        result["dlmp"] = [beside_dlmp(study, nodes, tick) for nodes in study.dlmp_nodes]
    return result


def point(study: Study, path: str, data: TensorDataset, nodes: int, rows: int) -> dict[str, Any]:
    """The best of some runs. The slow path trains fewer epochs; steps are counted."""
    epochs = study.curve_epochs if path == "fast" else study.curve_slow_epochs
    job = Job(
        strategy="local_sgd", average_every="epoch", workers=nodes, backend="threads", device="cpu", optimizer="sgd",
        learning_rate=0.1, batch_size=BATCH, epochs=epochs, blas_threads=1,
    )  # fmt: skip
    part = TensorDataset(*(tensor[:rows] for tensor in data.tensors))
    model = make_model(NET, activation="tanh")

    def simulate() -> None:
        if path == "fast":
            train_averaged(model, part, job)
        else:
            run_nodes(job, copy.deepcopy(model), part, None)

    return {"nodes": nodes, "rows": rows, "steps": steps_of(job, rows), "seconds": best(simulate, study.repeats)}


def steps_of(job: Job, rows: int) -> int:
    """Of all nodes together."""
    return job.epochs * sum(-(-(end - start) // job.batch_size) for start, end in shares(rows, job.workers))


def best(work: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats + 1):  # the first one warms up
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found[1:])


def lines(points: Sequence[dict[str, Any]]) -> dict[str, dict[str, float] | None]:
    """seconds = fixed + each x (nodes x steps), for each path; None where there are too few points for a line."""
    found: dict[str, dict[str, float] | None] = {}
    for path in PATHS:
        mine = [entry for entry in points if (entry["path"], entry["kind"]) == (path, "grown")]
        steps, seconds = [entry["steps"] for entry in mine], [entry["seconds"] for entry in mine]
        found[path] = asdict(fit_line(steps, seconds)) if len(set(steps)) > 2 else None
    return found


# ---- beside another simulator ----


def beside_dlmp(study: Study, nodes: int, tick: Tick) -> dict[str, Any]:
    """Wall seconds of one case, in which nodes have as many rows each whatever their number."""
    case = Case(nodes=nodes, rows=nodes * study.dlmp_rows, test_rows=max(100, nodes), epochs=1)
    images = load_images(case)
    tick(f"DLMP: {nodes} nodes")
    theirs = dlmp.predict(case, Path(str(study.dlmp)), Path(str(study.dlmp_python)), images)
    tick(f"virtual nodes, DLMP's case: {nodes} nodes")
    train, test = tensors(images.X_train, images.y_train), tensors(images.X_test, images.y_test)
    job = Job(
        strategy="local_sgd", average_every="epoch", workers=nodes, backend="threads", device="cpu", optimizer="sgd",
        learning_rate=case.learning_rate, batch_size=case.batch_size, epochs=case.epochs, blas_threads=case.threads,
        seed=case.seed,
    )  # fmt: skip
    begun = time.perf_counter()
    run_nodes(job, lenet(case.seed), train, test)
    ours = time.perf_counter() - begun
    return {"nodes": nodes, "steps": steps_of(job, case.rows), "dlmp_seconds": theirs.wall, "seconds": ours,
            "dlmp_averages": theirs.coordination == "average"}  # fmt: skip

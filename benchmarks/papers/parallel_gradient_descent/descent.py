"""Parallel gradient descent: two sigmoid networks on MNIST, every way of training that there is, six batch sizes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.report import Result
from benchmarks.papers.parallel_gradient_descent.descent_report import draw, notes, tables, targets
from benchmarks.parallel import workers
from benchmarks.parallel.workers import PLAIN, Way
from shoal.machine import thread_count
from shoal.parallel.exact.tree_sum import shards_of
from shoal.validate import one_of

if TYPE_CHECKING:
    import torch
    from torch.utils.data import TensorDataset


NETS = {"net-1h": "mlp:784-1024-10", "net-2h": "mlp:784-1024-1024-10"}
BATCHES = (128, 256, 512, 1024, 2048, 4096)
RATES = (0.001, 0.002, 0.01, 0.1, 0.5, 1.0)
BATCH = 16  # to choose the learning rate and to train to the end, for which the paper names none; 128 takes far longer


def squared_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The paper's equation 1: squares summed over outputs, mean over rows. torch's mse_loss is ten times smaller."""
    import torch

    wanted = torch.zeros_like(output).scatter_(1, target.unsqueeze(1), 1.0)
    return (output - wanted).square().sum(1).mean()


def network(name: str) -> torch.nn.Module:
    from shoal.parallel.networks import make_model

    return make_model(NETS[name], activation="sigmoid", output="sigmoid", init="glorot")


@benchmark(
    needs=("torch",),
    quick={
        "nets": ("net-1h",),
        "batches": (512,),
        "rows": 2048,
        "epochs": 2,
        "repeats": 1,
        "search_rows": 1500,
        "search_epochs": 1,
        "train_rows": 6000,
        "train_epochs": 2,
    },
)
def descent(
    *,
    nets: tuple[str, ...] = tuple(NETS),
    batches: tuple[int, ...] = BATCHES,
    rows: int = 12_288,
    epochs: int = 3,
    repeats: int = 2,
    search_rows: int = 24_000,
    search_epochs: int = 3,
    train_rows: int = 60_000,
    train_epochs: int = 20,
) -> Result:
    """How much faster is gradient descent over threads, BLAS, processes and MPI, for which batch sizes? (MNIST)

    nets: net-1h, net-2h.
    batches: Batch sizes.
    rows: Rows of 50,000 that times are measured on.
    epochs: Epochs of each timed run.
    repeats: Times that everything is measured.
    search_rows: Rows that the learning rate is chosen on, hold-out included.
    search_epochs: Epochs on them.
    train_rows: Rows trained on, hold-out included.
    train_epochs: Epochs of training to the end.
    """
    for name in nets:
        one_of("--nets", name, NETS)
    from shoal.parallel.data.datasets import load_data

    data = load_data("mnist", valid=1 / 6, scale="unit")
    rows = min(rows, len(data.train))
    ways, found = all_ways(thread_count()), {}
    cells = len(nets) * len(batches)
    total = cells * (workers.rounds([*ways, Way("auto")], repeats) + 1) + len(nets) * (len(RATES) + 1)
    with progress_bar("descent", total) as tick:
        for name in nets:
            model = network(name)
            way = replace(choose(model, data.train, common(RATES[0], BATCH, train_epochs))[0], name="chosen")
            rates = search(search_rows, search_epochs, way, model, tick)
            best = max(rates, key=lambda rate: rates[rate])
            measured = []
            for batch in batches:
                tick(f"batch {batch:,}: choosing")
                auto = choose(model, data.train, common(best, batch, train_epochs))
                timed = common(best, batch, epochs)
                measured.append(measure(ways, auto, model, workers.first_rows(data.train, rows), repeats, tick, timed))
            found[name] = {
                "learning_rates": rates, "learning_rate": best, "flops_per_row": flops(model, data.train),
                "batches": measured, "trained": finish(train_rows, train_epochs, way, model, best, tick),
            }  # fmt: skip
    for net in found.values():
        complete(net, rows, len(data.train))
    whole = descent.is_whole(
        nets=nets, batches=batches, rows=rows, epochs=epochs, search_rows=search_rows, search_epochs=search_epochs,
        train_rows=train_rows, train_epochs=train_epochs,
    )  # fmt: skip
    content = {"nets": found, "epoch_rows": len(data.train), "measured_rows": rows}
    return Result(
        title="Parallel gradient descent: Net-1h and Net-2h on MNIST, sigmoid, squared error", data=content,
        tables=tables(content), targets=targets(content, whole), notes=notes(content, thread_count()),
        draw=lambda: draw(content), settings={"rows": rows},
    )  # fmt: skip


def all_ways(cores: int) -> list[Way]:
    """Every implementation there is, with as many workers as there are cores, but two at least."""
    many = max(2, cores)
    threads = {"strategy": "allreduce", "backend": "threads", "workers": many}
    processes = {"strategy": "allreduce", "backend": "processes", "workers": many}
    parts = {"shards": many} if many > shards_of(min(BATCHES)) else {}
    few = "" if cores >= 4 else f"it needs 4 cores, for 2 processes of 2 threads; there are {cores}"
    return [
        Way("serial", {"strategy": "serial"}),
        Way("blas", {"strategy": "blas"}),
        Way("threads", {**threads, "exact": False}),
        Way("threads, exact", {**threads, "exact": True, **parts}),
        Way("processes", {**processes, "exact": False}),
        Way("processes, exact", {**processes, "exact": True, **parts}),
        Way("mpi", {**processes, "backend": "mpi", "exact": False}, workers.mpi_missing()),
        Way("hybrid", {**processes, "workers": 2, "exact": False, "blas_threads": max(1, cores // 2)}, few),
        Way(PLAIN),
    ]


def common(rate: float, batch: int, epochs: int) -> dict[str, Any]:
    return {
        "loss": squared_error, "optimizer": "sgd", "learning_rate": rate, "batch_size": batch, "epochs": epochs,
    }  # fmt: skip


def search(search_rows: int, search_epochs: int, way: Way, model: torch.nn.Module, tick: Tick) -> dict[float, float]:
    """Accuracy on the rows held out, for each learning rate of the grid: five parts to train, one to choose."""
    from shoal.parallel.data.datasets import load_data

    data = load_data("mnist", valid=1 / 6, rows=_at_most(search_rows), scale="unit")
    found = {}
    for rate in RATES:
        tick(f"learning rate {rate:g}")
        trial = workers.train(way, model, data.train, **common(rate, BATCH, search_epochs))
        found[rate] = workers.accuracy(trial.model, data.valid)
    return found


def _at_most(rows: int) -> int:
    """As many rows as asked for, if the data set has them."""
    from shoal.datasets import load_mnist

    return min(rows, len(load_mnist().X_train))


def measure(
    ways: list[Way],
    chosen: tuple[Way, str, float],
    model: torch.nn.Module,
    part: TensorDataset,
    repeats: int,
    tick: Tick,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Seconds of an epoch for every way, one batch size."""
    auto, why, choosing = chosen
    # The two that are compared to within a few percent run one after the other.
    trials, failed = workers.race([*ways, auto], model, part, repeats, tick, **options)
    if "auto" in trials:
        trials["auto"].startup += choosing
    measured = {
        name: {"seconds_measured": trial.best, "raw_seconds": trial.epochs, "startup_seconds": trial.startup}
        for name, trial in trials.items()
    }
    return {
        "batch": options["batch_size"],
        "ways": measured,
        "not_measured": failed,
        "auto": {"settings": auto.settings, "why": why},
    }


def choose(model: torch.nn.Module, train: TensorDataset, options: dict[str, Any]) -> tuple[Way, str, float]:
    """What strategy "auto" takes for a training with these options, why, and the seconds that it took to find out."""
    from shoal.parallel.strategies.auto import choose as decide
    from shoal.parallel.training import make_job

    said: list[str] = []

    def listen(event: str, content: Any) -> bool:
        if event == "note":
            said.append(content)
        return False

    begun = time.perf_counter()
    job = make_job(strategy="auto", **options)
    job = decide(job, model, train, listen)
    chosen = {name: getattr(job, name) for name in ("strategy", "backend", "workers", "exact", "blas_threads")}
    return Way("auto", chosen), " ".join(filter(None, said)), time.perf_counter() - begun


def finish(
    train_rows: int, train_epochs: int, way: Way, model: torch.nn.Module, rate: float, tick: Tick
) -> dict[str, Any]:
    """Train to the end, the way that auto chose; look at the test set once."""
    from shoal.parallel.data.datasets import load_data

    tick("training to the end")
    data = load_data("mnist", valid=1 / 6, rows=_at_most(train_rows), scale="unit")
    trial = workers.train(way, model, data.train, **common(rate, BATCH, train_epochs))
    return {
        "way": way.settings["strategy"], "epochs": train_epochs, "batch": BATCH, "rows": len(data.train),
        "seconds": sum(trial.epochs), "held_out_accuracy": workers.accuracy(trial.model, data.valid),
        "test_accuracy": workers.accuracy(trial.model, data.test),
    }  # fmt: skip


def flops(model: torch.nn.Module, train: TensorDataset) -> float:
    """Operations of a training step for one row, as torch counts them."""
    import torch

    from shoal.parallel.data.loader import Loader
    from shoal.parallel.evaluation import flops_per_row
    from shoal.parallel.job import Job

    return flops_per_row(model, Loader(train, torch.device("cpu")), Job(loss=squared_error))


def complete(net: dict[str, Any], rows: int, epoch_rows: int) -> None:
    """From seconds on a part of the rows to those of an epoch, GFLOPS, and the speed-up against one thread."""
    for cell in net["batches"]:
        for numbers in cell["ways"].values():
            seconds = numbers["seconds_measured"]
            numbers["seconds"] = seconds * epoch_rows / rows
            numbers["scaled"] = rows != epoch_rows
            numbers["gflops"] = net["flops_per_row"] * rows / seconds / 1e9
            numbers["speed_up"] = cell["ways"]["serial"]["seconds_measured"] / seconds

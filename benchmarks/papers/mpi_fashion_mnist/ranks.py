"""Sequential training against MPI: Fashion-MNIST, a sigmoid network, one, two and four ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.parallel import workers
from benchmarks.parallel.workers import Way, percent
from shoal.machine import thread_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.parallel.data.datasets import LoadedData

NET = "mlp:784-256-128-10"
OPTIMIZERS = {"sgd": 0.01, "adam": 0.001}
NAMES = {"sgd": "SGD", "adam": "Adam"}


@benchmark(needs=("torch",), quick={"ranks": (1, 2), "iterations": 3, "rows": 6000})
def ranks(*, ranks: tuple[int, ...] = (1, 2, 4), iterations: int = 60, rows: int = 60_000, batch: int = 256) -> Result:
    """How much faster than a sequential program is one over MPI ranks, and is it as accurate? (Fashion-MNIST)

    ranks: Numbers of MPI ranks.
    iterations: Passes over the rows.
    rows: Rows, the sixth for validation included.
    batch: Batch size.
    """
    from shoal.datasets import load_mnist
    from shoal.parallel.data.datasets import load_data

    rows = min(rows, len(load_mnist("fashion-mnist").X_train))
    data = load_data("fashion-mnist", valid=1 / 6, rows=rows)
    ways = all_ways(ranks)
    found: dict[str, Any] = {}
    missing: dict[str, str] = {way.name: way.missing for way in ways if way.missing}
    with progress_bar("ranks", len(OPTIMIZERS) * (len(ways) - len(missing))) as tick:
        for optimizer in OPTIMIZERS:
            found[optimizer] = {}
            for way in [way for way in ways if way.name not in missing]:
                tick(f"{optimizer}: {way.name}")
                try:
                    found[optimizer][way.name] = measure(iterations, batch, way, optimizer, data)
                except RuntimeError as error:
                    missing[way.name] = str(error).splitlines()[0]
    for measured in found.values():
        for numbers in measured.values():
            numbers["speed_up"] = measured["sequential"]["seconds"] / numbers["seconds"]
    content = {"optimizers": found, "not_measured": missing, "training_rows": len(data.train)}
    return Result(
        title="Sequential training against MPI: Fashion-MNIST, 784-256-128-10, sigmoid", data=content,
        tables=[table(optimizer, measured) for optimizer, measured in found.items()],
        notes=notes(ranks, iterations, batch, content, thread_count()), draw=lambda: draw(found),
        settings={"rows": rows},
    )  # fmt: skip


def all_ways(ranks: Sequence[int]) -> list[Way]:
    """One thread in each rank, as in the sequential program."""
    missing = workers.mpi_missing()
    mpi = {"strategy": "allreduce", "backend": "mpi", "exact": False, "blas_threads": 1}
    return [
        Way("sequential", {"strategy": "serial"}),
        *(Way(f"{count} rank{'s' * (count > 1)}", {**mpi, "workers": count}, missing) for count in ranks),
    ]


def measure(iterations: int, batch: int, way: Way, optimizer: str, data: LoadedData) -> dict[str, Any]:
    """A whole training, scored on rows for validation and on the test set."""
    from shoal.parallel.networks import make_model

    model = make_model(NET, activation="sigmoid", init="glorot")
    trial = workers.train(
        way, model, data.train, optimizer=optimizer, learning_rate=OPTIMIZERS[optimizer], batch_size=batch,
        epochs=iterations, device="cpu",
    )  # fmt: skip
    return {
        "ranks": way.settings.get("workers", 1), "seconds": sum(trial.epochs), "raw_seconds": trial.epochs,
        "startup_seconds": trial.startup, "communicating": trial.communicating,
        "valid_accuracy": workers.accuracy(trial.model, data.valid),
        "test_accuracy": workers.accuracy(trial.model, data.test),
    }  # fmt: skip


def table(optimizer: str, measured: dict[str, Any]) -> ResultTable:
    cores = thread_count()
    rows = [
        [
            f"{name}{'*' * (numbers['ranks'] > cores)}", significant(numbers["seconds"]),
            f"{significant(numbers['speed_up'])}x", percent(numbers["communicating"], 0),
            f"{numbers['startup_seconds']:.2f}", percent(numbers["valid_accuracy"]), percent(numbers["test_accuracy"]),
        ]
        for name, numbers in measured.items()
    ]  # fmt: skip
    header = ["way", "seconds", "speed-up", "communicating", "start, s", "validation accuracy", "test accuracy"]
    return ResultTable(f"{NAMES[optimizer]}, rate {OPTIMIZERS[optimizer]:g}", header, rows)


def notes(ranks: tuple[int, ...], iterations: int, batch: int, data: dict[str, Any], cores: int) -> list[str]:
    found = [
        f"The paper's 60 iterations are taken as epochs: {iterations} passes over {data['training_rows']:,} "
        f"rows in batches of {batch}. It gives no size of the network or of batches.",
        "Plain SGD with rate 0.01 is the paper's; sigmoids learn slowly with it, so that Adam stands beside it.",
        "Every rank holds the weights, computes its part of each batch in one thread, and gradients are summed over "
        "MPI. Seconds are those of training; starting mpiexec is in the column `start`; one rank alone needs none.",
        "The paper reports nearly 50% less time on CPUs with two machines.",
    ]
    found += [f"{way} was not measured: {why}." for way, why in data["not_measured"].items()]
    return found + workers.cores_note(max(ranks), cores, "ranks")


def draw(found: dict[str, Any]) -> Figure:
    """Seconds, split into computing and communicating, and accuracy."""
    figure, (axes,) = grid_of_axes(1, 1 + len(found), width=4.2, height=3.4)
    for axis, (optimizer, measured) in zip(axes, found.items(), strict=False):
        talking = [numbers["seconds"] * numbers["communicating"] for numbers in measured.values()]
        working = [numbers["seconds"] - part for numbers, part in zip(measured.values(), talking, strict=True)]
        axis.bar(list(measured), working, color=COLORS["native"], width=0.6, label="computing")
        axis.bar(list(measured), talking, bottom=working, color=COLORS["vmap"], width=0.6, label="communicating")
        axis.set(ylabel="seconds")
        axis.set_title(f"{NAMES[optimizer]}, rate {OPTIMIZERS[optimizer]:g}", fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    for k, (optimizer, measured) in enumerate(found.items()):
        places = [number + (k - 0.5) * 0.35 for number in range(len(measured))]
        heights = [100 * numbers["test_accuracy"] for numbers in measured.values()]
        axes[-1].bar(places, heights, 0.33, color=workers.PALETTE[k + 1], label=NAMES[optimizer])
        axes[-1].set_xticks(range(len(measured)), list(measured))
    axes[-1].set(ylabel="test accuracy, %", ylim=(0, 115))
    axes[-1].legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    for axis in axes:
        axis.tick_params(axis="x", labelsize=8)
    return figure

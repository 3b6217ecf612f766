"""Split data, averaged weights, folds over workers: what it saves in time, and what it costs in accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import grid_of_axes, plain_ticks
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.parallel import workers as running
from benchmarks.parallel.workers import Way, percent, performance_improvement
from shoal.machine import thread_count
from shoal.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.parallel.data.datasets import LoadedData

# Sizes of the paper's perceptrons are not given; the convolutional network and its settings are.
NETS: dict[str, dict[str, Any]] = {
    "1 hidden layer": {"net": "mlp:784-256-10", "learning_rate": 0.099, "batch_size": 128},
    "3 hidden layers": {"net": "mlp:784-256-256-256-10", "learning_rate": 0.099, "batch_size": 128},
    "cnn": {"net": "cnn", "learning_rate": 0.099, "batch_size": 1024},
}
AVERAGINGS = ("end", "epoch")
# Processing seconds of the paper's tables 3 and 4, by workers.
PAPER = {
    "1 hidden layer, 10 folds": {1: 9511.66, 2: 9123.58, 4: 8277.06, 8: 2909.78},
    "3 hidden layers, split": {1: 2815.08, 2: 2647.11, 4: 4168.46},
}


@benchmark(
    needs=("torch",),
    quick={"workers": (1, 2), "folds": (5,), "rows": 1250, "epochs": 1, "fold_rows": 500, "fold_epochs": 1},
)
def averaging(
    *,
    nets: tuple[str, ...] = tuple(NETS),
    workers: tuple[int, ...] = (1, 2, 4, 8),
    folds: tuple[int, ...] = (5, 10),
    rows: int = 12_500,
    epochs: int = 20,
    fold_rows: int = 6250,
    fold_epochs: int = 8,
    backend: Literal["threads", "processes"] = "threads",
) -> Result:
    """What do data split over workers, averaged weights and folds over workers save, and what do they cost?

    nets: '1 hidden layer', '3 hidden layers', cnn.
    workers: Numbers of workers.
    folds: Numbers of folds.
    rows: Rows that are split, a fifth to test.
    epochs: Epochs on them.
    fold_rows: Rows for folds, a fifth to test.
    fold_epochs: Epochs of each fold.
    backend: Where workers run.
    """
    for name in nets:
        one_of("--nets", name, NETS)
    workers = tuple(sorted({1, *workers}))
    split, folded = _data(rows), _data(fold_rows)
    found = []
    with progress_bar("averaging", len(nets) * len(workers) * (len(AVERAGINGS) + len(folds))) as tick:
        for name in nets:
            found += [splits(workers, epochs, backend, name, every, split, tick) for every in AVERAGINGS]
            found += [cross_validate(workers, fold_epochs, backend, name, count, folded, tick) for count in folds]
    for experiment in found:
        improve(experiment)
    data = {"experiments": found, "paper_seconds": PAPER, "training_rows": len(split.train),
            "fold_training_rows": len(folded.train)}  # fmt: skip
    return Result(
        title="Data split over workers, weights averaged; folds over workers: MNIST", data=data,
        tables=tables(found), notes=notes(workers, epochs, fold_epochs, backend, data, thread_count()),
        draw=lambda: draw(found), settings={"workers": workers},
    )  # fmt: skip


def _data(rows: int) -> LoadedData:
    """Four fifths to train, a fifth to test."""
    from shoal.datasets import load_mnist
    from shoal.parallel.data.datasets import load_data

    return load_data("mnist", valid=0.2, rows=min(rows, len(load_mnist().X_train)))


def common(name: str, epochs: int) -> dict[str, Any]:
    """A worker is one thread of computation, however many there are: more workers, not more threads each."""
    return {
        "optimizer": "sgd", "learning_rate": NETS[name]["learning_rate"], "batch_size": NETS[name]["batch_size"],
        "epochs": epochs, "blas_threads": 1, "device": "cpu",
    }  # fmt: skip


def splits(
    workers: tuple[int, ...], epochs: int, backend: str, name: str, every: str, data: LoadedData, tick: Tick
) -> dict[str, Any]:
    """Each worker trains on rows of its own; weights are averaged after every epoch, or once at the end."""
    from shoal.parallel.networks import make_model

    measured = {}
    for count in workers:
        tick(
            f"{name}: split over {count}, averaged every {every}" if every == "epoch" else f"{name}: split over {count}"
        )
        way = Way("split", {"strategy": "local_sgd", "backend": backend, "workers": count,
                            "average_every": every})  # fmt: skip
        trial = running.train(way, make_model(NETS[name]["net"]), data.train, **common(name, epochs))
        measured[count] = {
            "seconds": trial.seconds, "startup_seconds": trial.startup, "communicating": trial.communicating,
            "accuracy": running.accuracy(trial.model, data.valid),
        }  # fmt: skip
    return {"net": name, "kind": "split", "average_every": every, "workers": measured}


def cross_validate(
    workers: tuple[int, ...], fold_epochs: int, backend: str, name: str, count: int, data: LoadedData, tick: Tick
) -> dict[str, Any]:
    """A network for each fold, as many at a time as there are workers."""
    from shoal.parallel.networks import make_model

    measured = {}
    for many in workers:
        tick(f"{name}: {count} folds over {many}")
        way = Way("folds", {"strategy": "kfold", "backend": backend, "workers": many, "folds": count})
        trial = running.train(way, make_model(NETS[name]["net"]), data.train, **common(name, fold_epochs))
        measured[many] = {
            "seconds": trial.seconds, "accuracy": sum(trial.folds) / len(trial.folds), "fold_accuracies": trial.folds,
            "best_fold_test_accuracy": running.accuracy(trial.model, data.valid),
        }  # fmt: skip
    return {"net": name, "kind": "folds", "folds": count, "workers": measured}


def improve(experiment: dict[str, Any]) -> None:
    """The paper's performance improvement, against one worker."""
    measured = experiment["workers"]
    for numbers in measured.values():
        numbers["improvement_percent"] = performance_improvement(measured[1]["seconds"], numbers["seconds"])


def title(experiment: dict[str, Any]) -> str:
    if experiment["kind"] == "folds":
        return f"{experiment['net']}, {experiment['folds']} folds"
    return f"{experiment['net']}, averaged {'each epoch' if experiment['average_every'] == 'epoch' else 'at the end'}"


def tables(found: list[dict[str, Any]]) -> list[ResultTable]:
    cores = thread_count()
    made = []
    for kind, heading, last in (
        ("split", "Data split over workers, weights averaged", "accuracy on the fifth for testing"),
        ("folds", "Cross-validation, folds over workers", "accuracy, mean of the folds"),
    ):
        rows = []
        for experiment in [experiment for experiment in found if experiment["kind"] == kind]:
            for count, numbers in experiment["workers"].items():
                change = "-" if count == 1 else f"{numbers['improvement_percent']:+.1f}%"
                rows.append([
                    title(experiment), f"{count}{'*' * (count > cores)}", significant(numbers["seconds"]), change,
                    percent(numbers["accuracy"]), _paper(experiment, count),
                ])  # fmt: skip
        if rows:
            header = ["what", "workers", "seconds", "PI", last, "the paper's PI"]
            made.append(ResultTable(heading, header, rows))
    return made


def _paper(experiment: dict[str, Any], count: int) -> str:
    """What the paper found with its own data, where its table can be read."""
    kind = "split" if experiment["kind"] == "split" else f"{experiment['folds']} folds"
    theirs = PAPER.get(f"{experiment['net']}, {kind}", {})
    if kind == "split" and experiment["average_every"] != "end":
        theirs = {}
    return f"{performance_improvement(theirs[1], theirs[count]):+.1f}%" if count in theirs and count > 1 else "-"


def notes(
    workers: tuple[int, ...], epochs: int, fold_epochs: int, backend: str, data: dict[str, Any], cores: int
) -> list[str]:
    lost = [
        numbers["accuracy"] - experiment["workers"][1]["accuracy"]
        for experiment in data["experiments"] if experiment["kind"] == "split"
        for count, numbers in experiment["workers"].items() if count > 1
    ]  # fmt: skip
    found = [
        "PI = (t1 - tx) / t1 x 100: how much of one worker's time x workers save. A worker is one thread of "
        f"computation (backend {backend}); seconds are those of training, averaging included.",
        f"Split: {data['training_rows']:,} rows to train, {epochs} epochs. Folds: "
        f"{data['fold_training_rows']:,} rows, {fold_epochs} epochs. SGD with rate 0.099; batch 1,024 for the "
        "convolutional network, as in the paper, 128 for the others. The paper's 94,000 tweets "
        "are not at hand: MNIST takes their place.",
        "Averaging weights is another algorithm than training on all rows: each worker takes fewer steps on fewer "
        "rows, and accuracy falls with the number of workers. Folds are the same work for any number of workers.",
    ]
    if lost:
        found.append(
            f"Against one worker, accuracy changed by {100 * min(lost):+.1f} to {100 * max(lost):+.1f} points."
        )
    return found + running.cores_note(max(workers), cores)


def draw(found: list[dict[str, Any]]) -> Figure:
    """For each network: seconds above, accuracy below, against the number of workers."""
    names = list(dict.fromkeys(experiment["net"] for experiment in found))
    figure, axes = grid_of_axes(2, len(names), width=4.2, height=2.9)
    for column, name in enumerate(names):
        mine = [experiment for experiment in found if experiment["net"] == name]
        for k, experiment in enumerate(mine):
            counts = list(experiment["workers"])
            label = title(experiment).removeprefix(f"{name}, ")
            for row, (key, scale) in enumerate((("seconds", 1), ("accuracy", 100))):
                values = [scale * numbers[key] for numbers in experiment["workers"].values()]
                # Lines may lie on each other: folds are the same work for any number of workers.
                style = {"color": running.PALETTE[(1, 3, 4, 6)[k % 4]], "linestyle": ("-", "--")[k % 2], "marker": "o"}
                axes[row][column].plot(counts, values, label=label, markersize=4, **style)
        for row, label in enumerate(("seconds", "accuracy, %")):
            axes[row][column].set(xscale="log", xlabel="workers", ylabel=label)
            plain_ticks(axes[row][column], list(mine[0]["workers"]))
        axes[0][column].set_ylim(bottom=0)
        axes[0][column].set_title(name, fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure

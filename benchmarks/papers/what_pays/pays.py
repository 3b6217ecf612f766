"""When parallel work pays: a tiny network on Iris, a convolutional one on MNIST; in one thread, in many, elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.parallel import workers
from benchmarks.parallel.workers import Way, percent
from shoal.files.plain_files import remove
from shoal.machine import thread_count

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure
    from torch.utils.data import TensorDataset

NETS = {"iris": "mlp:4-50-3", "mnist": "cnn"}
TITLES = {"iris": "Iris, 4-50-3", "mnist": "MNIST, the convolutional network"}
BATCH, RATE = 64, 0.001
ACCURACY = 0.99
# The paper's table: seconds and accuracy.
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    "iris": {"base": (0.28, 1.0), "batched and threaded": (2.73, 1.0), "mps": (1.61, 1.0)},
    "mnist": {"base": (316.18, 0.9909), "mps": (72.64, 0.9912), "cuda": (148.9, 0.9805)},
}


class PerItem:
    """Rows as they are stored, made ready one at a time when they are asked for: work for a thread beside training."""

    def __init__(self, rows: torch.Tensor, classes: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        self.rows, self.classes, self.mean, self.deviation = rows, classes, mean, deviation

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.rows[k].float() - self.mean) / self.deviation, self.classes[k]


class Problem(NamedTuple):
    """A data set twice: made ready beforehand, and row by row."""

    ready: TensorDataset
    stored: PerItem
    test: TensorDataset


@benchmark(needs=("torch",), quick={"iris_epochs": 20, "epochs": 2, "rows": 640, "train_rows": 2560, "repeats": 1})
def pays(
    *,
    iris_epochs: int = 100,
    epochs: int = 10,
    rows: int = 6400,
    train_rows: int = 60_000,
    repeats: int = 2,
    schedule: Literal["cosine", "constant"] = "cosine",
    out: Path,
) -> Result:
    """Does parallel work pay, for a tiny network (Iris) and for a convolutional one (MNIST)?

    A run that was stopped while it trains to the end goes on from its last epoch.

    epochs: Epochs on MNIST.
    iris_epochs: Epochs on Iris.
    rows: Rows of MNIST that ways are timed on.
    train_rows: Rows trained on to the end.
    repeats: Times that everything is measured.
    schedule: Learning rate of the training to the end; the paper's is constant.
    """
    ways = all_ways(thread_count())
    mnist = mnist_problem()
    rows, train_rows = min(rows, len(mnist.stored)), min(train_rows, len(mnist.stored))
    scale = train_rows / rows * epochs  # an epoch over a part of MNIST is timed
    with progress_bar("pays", 2 * workers.rounds(ways, repeats) + 1) as tick:
        found = {
            "iris": measure("iris", iris_problem(), ways, iris_epochs, 1.0, repeats, tick),
            "mnist": measure("mnist", _part(mnist, rows), ways, 1, scale, repeats, tick),
        }
        finish(epochs, train_rows, schedule, mnist, found["mnist"], ways, out, tick)
    whole = pays.is_whole(iris_epochs=iris_epochs, epochs=epochs, rows=rows, train_rows=train_rows)
    data = {"data_sets": found, "paper": PAPER}
    return Result(
        title="When parallel work pays: Iris with 4-50-3, MNIST with a convolutional network", data=data,
        tables=[table(name, numbers) for name, numbers in found.items()], targets=targets(found, whole),
        notes=notes(iris_epochs, epochs, rows, train_rows, schedule, found), draw=lambda: draw(found),
        settings={"rows": rows, "train_rows": train_rows},
    )  # fmt: skip


def all_ways(cores: int) -> list[Way]:
    import torch

    shared = {"strategy": "allreduce", "exact": False}
    here = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available()}
    return [
        Way("base", {"strategy": "serial", "device": "cpu"}),
        Way("batched and threaded", {"strategy": "blas", "device": "cpu"}),
        Way("threads share batches", {**shared, "backend": "threads", "workers": max(2, cores), "device": "cpu"}),
        Way("2 processes share batches", {**shared, "backend": "processes", "workers": 2, "device": "cpu"}),
        *(
            Way(
                name,
                {"strategy": "blas", "device": name},
                "" if found else f"this machine has no {name.upper()} device",
            )
            for name, found in here.items()
        ),
    ]


def iris_problem(seed: int = 0) -> Problem:
    """Four fifths to train, a fifth to test."""
    import torch
    from sklearn.datasets import load_iris
    from sklearn.model_selection import train_test_split

    X, y = load_iris(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    X, X_test, y, y_test = (torch.from_numpy(part) for part in parts)
    return _problem(X.float(), y, X_test.float(), y_test, X.float().mean(0), X.float().std(0))


def mnist_problem() -> Problem:
    import torch

    from shoal.datasets import load_mnist

    X, y, X_test, y_test = (torch.from_numpy(part.copy()) for part in load_mnist())  # copies may be written to
    pixels = X.float()
    return _problem(X, y, X_test, y_test, pixels.mean(), pixels.std())


def _problem(
    X: torch.Tensor, y: torch.Tensor, X_test: torch.Tensor, y_test: torch.Tensor, mean: Any, deviation: Any
) -> Problem:
    from torch.utils.data import TensorDataset

    ready, test = ((part.float() - mean) / deviation for part in (X, X_test))
    return Problem(TensorDataset(ready, y), PerItem(X, y, mean, deviation), TensorDataset(test, y_test))


def _part(problem: Problem, rows: int) -> Problem:
    stored = problem.stored
    first = PerItem(stored.rows[:rows], stored.classes[:rows], stored.mean, stored.deviation)
    return Problem(workers.first_rows(problem.ready, rows), first, problem.test)


def measure(
    name: str,
    problem: Problem,
    ways: list[Way],
    epochs: int,
    scale: float,
    repeats: int,
    tick: Tick,
) -> dict[str, Any]:
    """Seconds of the whole training, for every way in turn; of MNIST an epoch over a part, scaled."""
    from shoal.parallel.networks import make_model

    model = make_model(NETS[name])
    common = {"optimizer": "adam", "learning_rate": RATE, "batch_size": BATCH, "epochs": epochs}
    special = {"batched and threaded": problem.stored}
    trials, failed = workers.race(ways, model, problem.ready, repeats, tick, special, **common)
    found = {
        way: {
            "seconds": trial.seconds * scale, "seconds_measured": trial.seconds, "scaled": scale != 1,
            "startup_seconds": trial.startup, "communicating": trial.communicating,
            "test_accuracy": workers.accuracy(trial.model, problem.test) if name == "iris" else None,
        }
        for way, trial in trials.items()
    }  # fmt: skip
    return {"ways": found, "not_measured": failed}


def finish(
    epochs: int,
    train_rows: int,
    schedule: str,
    problem: Problem,
    found: dict[str, Any],
    ways: list[Way],
    folder: Path,
    tick: Tick,
) -> None:
    """The network on MNIST, trained to the end the fastest way."""
    from shoal import parallel
    from shoal.parallel.networks import make_model

    tick("mnist: training to the end")
    best = min(found["ways"], key=lambda name: found["ways"][name]["seconds"])
    way = next(way for way in ways if way.name == best)
    data = _part(problem, train_rows)
    place = folder / f"pays-checkpoint-{train_rows}-{epochs}-{schedule}"
    result = parallel.fit(
        make_model(NETS["mnist"]), data.stored if best == "batched and threaded" else data.ready,  # type: ignore[arg-type]
        optimizer="adam", learning_rate=RATE, batch_size=BATCH, epochs=epochs, schedule=schedule,
        checkpoint=str(place), **way.settings,
    )  # fmt: skip
    found["trained"] = {
        "way": best, "epochs": epochs, "rows": train_rows,
        "seconds": sum(record["seconds"] for record in result.history),
        "test_accuracy": workers.accuracy(result.model, problem.test),
    }  # fmt: skip
    remove(place)


def table(name: str, numbers: dict[str, Any]) -> ResultTable:
    """A row for each way, with the paper's figures, and one for the training to the end."""
    rows = []
    base = numbers["ways"].get("base")
    for way in [*numbers["ways"], *numbers["not_measured"]]:
        mine, paper = numbers["ways"].get(way), PAPER[name].get(way)
        theirs = [significant(paper[0]), percent(paper[1])] if paper else ["-", "-"]
        if mine is None:
            rows.append([way, "-", "-", "-", "-", *theirs])
            continue
        mark = "~" if mine["scaled"] else ""
        ratio = f"{mark}{significant(base['seconds'] / mine['seconds'])}x" if base else "-"
        rows.append([
            way, f"{mark}{significant(mine['seconds'])}", ratio, f"{mine['startup_seconds']:.2f}",
            percent(mine["test_accuracy"]), *theirs,
        ])  # fmt: skip
    if "trained" in numbers:
        trained = numbers["trained"]
        label, seconds = f"{trained['way']}, to the end", significant(trained["seconds"])
        rows.append([label, seconds, "-", "-", percent(trained["test_accuracy"]), "-", "-"])
    header = ["way", "seconds", "against base", "start, s", "test accuracy", "the paper: seconds", "its accuracy"]
    return ResultTable(f"{TITLES[name]}{' (~ scaled)' * ('trained' in numbers)}", header, rows)


def targets(found: dict[str, Any], whole: bool) -> list[Target]:
    trained = found["mnist"]["trained"]
    what = "MNIST, the convolutional network: test accuracy"
    return [Target(what, 100 * trained["test_accuracy"], 100 * ACCURACY, unit="%", complete=whole)]


def notes(iris_epochs: int, epochs: int, rows: int, train_rows: int, schedule: str, found: dict[str, Any]) -> list[str]:
    trained = found["mnist"]["trained"]
    iris = found["iris"]["ways"]
    fastest = {name: min(numbers["ways"], key=lambda way: numbers["ways"][way]["seconds"])
               for name, numbers in found.items()}  # fmt: skip
    pays = {name: "does not pay" if way == "base" else "pays" for name, way in fastest.items()}
    words = [
        f"Parallel work {pays['iris']} on Iris (fastest: {fastest['iris']}), and {pays['mnist']} on MNIST (fastest: "
        f"{fastest['mnist']}).",
        f"Adam, learning rate {RATE:g}, batch {BATCH}; {iris_epochs} epochs on Iris, {epochs} on "
        "MNIST. Seconds are those of training; starting processes is in the column `start`.",
        "Batched and threaded: rows are scaled one at a time in a thread that works ahead of training, on all cores. "
        "All others have rows that were scaled beforehand.",
        f"~ an epoch over {rows:,} rows, scaled to {epochs} epochs of {train_rows:,}. "
        f"Only `{trained['way']}`, the fastest, was trained to the end, with a {schedule} learning rate "
        "(the paper's is constant); the test set was looked at once.",
        f"Iris has 30 rows to test: one more or less is {100 / 30:.1f}%.",
    ]
    if "2 processes share batches" in iris:
        started = iris["2 processes share batches"]["startup_seconds"]
        words.append(f"Processes take {started:.1f} s to start before they train, which is not in `seconds`.")
    missing = {way: why for numbers in found.values() for way, why in numbers["not_measured"].items()}
    return words + [f"{way} was not measured: {why}." for way, why in missing.items()]


def draw(found: dict[str, Any]) -> Figure:
    figure, (axes,) = grid_of_axes(1, len(found), width=5.6, height=3.6)
    for axis, (name, numbers) in zip(axes, found.items(), strict=True):
        ours = [(f"{way}{' (scaled)' if cell['scaled'] else ''}", cell["seconds"], COLORS["native"])
                for way, cell in numbers["ways"].items()]  # fmt: skip
        theirs = [(f"the paper: {way}", seconds, "0.7") for way, (seconds, _) in PAPER[name].items()]
        labels, values, colors = zip(*reversed([*ours, *theirs]), strict=True)
        bars = axis.barh(labels, values, color=colors, height=0.6)
        axis.bar_label(bars, fmt=lambda value: f"{significant(value)} s", padding=3, fontsize=8)
        axis.set(xscale="log", xlabel="seconds of training", xlim=(min(values) / 3, max(values) * 6))
        axis.set_title(TITLES[name], fontsize=10)
        axis.tick_params(axis="y", labelsize=8)
    return figure

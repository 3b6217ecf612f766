"""What sharing each batch over workers costs, next to a plain PyTorch loop on all cores, for networks of the papers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.papers.parallel_gradient_descent import descent
from benchmarks.parallel import workers
from benchmarks.parallel.workers import PALETTE, PLAIN, Way
from shoal.machine import thread_count
from shoal.validate import one_of

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

BATCHES = (128, 512, 4096)
EPOCHS = 3  # of each timed run
WHOLE = 20  # epochs of the training that auto chooses for
RATE = 0.01
# Networks of the papers on gradient descent over threads, on what pays, and on MPI; all have rows of 784 pixels.
NETS: dict[str, dict[str, Any]] = {
    "net-1h": {"net": "mlp:784-1024-10", "activation": "sigmoid", "output": "sigmoid", "init": "glorot"},
    "net-2h": {"net": "mlp:784-1024-1024-10", "activation": "sigmoid", "output": "sigmoid", "init": "glorot"},
    "cnn": {"net": "cnn"},
    "mpi": {"net": "mlp:784-256-128-10", "activation": "sigmoid", "init": "glorot"},
}
# Time against the plain loop: at most so many times as long, with a batch of 128 rows and with larger ones.
SMALL, LARGE = 128, 512
MOST = {
    "threads": (1.10, 1.03), "threads, exact": (1.35, 1.10), "processes": (1.25, 1.08),
    "processes, exact": (1.50, 1.15), "mpi": (1.30, 1.10),
}  # fmt: skip
SPEED_UP = {"threads": 1.8, "processes": 1.6, "mpi": 1.6}  # over one thread, with the larger batches, on two cores
START = {"threads": 0.3, "processes": 2.0}  # seconds
AUTO = 1.03  # times the best way


@benchmark(needs=("torch",), quick={"nets": ("mpi",), "batches": (512,), "rows": 2048, "repeats": 1})
def sharing(
    *,
    nets: tuple[str, ...] = tuple(NETS),
    batches: tuple[int, ...] = BATCHES,
    rows: int = 12_288,
    repeats: int = 3,
) -> Result:
    """How much longer than a plain loop do workers take that share each batch? (MNIST)

    nets: net-1h, net-2h, cnn, mpi.
    batches: Batch sizes.
    rows: Rows of an epoch, at most; the convolutional network has a third of them.
    repeats: Times that everything is measured.
    """
    from shoal.parallel.data.datasets import load_data

    for name in nets:
        one_of("--nets", name, NETS)
    data = load_data("mnist", scale="unit")
    ways = descent.all_ways(thread_count())
    cells = []
    with progress_bar("sharing", len(nets) * len(batches) * workers.rounds([*ways, Way("auto")], repeats)) as tick:
        for name in nets:
            model = network(name)
            part = workers.first_rows(data.train, min(rows // (3 if name == "cnn" else 1), len(data.train)))
            for batch in batches:
                options = {**descent.common(RATE, batch, EPOCHS), "loss": loss_of(name)}
                auto = descent.choose(model, data.train, {**options, "epochs": WHOLE})
                found = descent.measure(ways, auto, model, part, repeats, tick, options)
                cells.append({"net": name, "rows": len(part), **compared(found)})
    whole = sharing.is_whole(nets=nets, batches=batches, rows=rows)
    return Result(
        title="What sharing a batch costs, against a plain loop", data={"cells": cells}, tables=tables(cells),
        targets=targets(cells, whole), notes=notes(cells), draw=lambda: draw(cells),
    )  # fmt: skip


def network(name: str) -> torch.nn.Module:
    from shoal.parallel.networks import make_model

    return make_model(**NETS[name])


def loss_of(name: str) -> Any:
    return descent.squared_error if NETS[name].get("output") == "sigmoid" else "cross_entropy"


def compared(cell: dict[str, Any]) -> dict[str, Any]:
    """With the ratio of each way to the plain loop and to the best way, and its speed-up over one thread."""
    ways = cell["ways"]
    best = min(numbers["seconds_measured"] for name, numbers in ways.items() if name != "auto")
    for numbers in ways.values():
        seconds = numbers["seconds_measured"]
        numbers["ratio"] = seconds / ways[PLAIN]["seconds_measured"]
        numbers["against_best"] = seconds / best
        numbers["speed_up"] = ways["serial"]["seconds_measured"] / seconds
    return cell


def tables(cells: list[dict[str, Any]]) -> list[ResultTable]:
    names = list(dict.fromkeys(way for cell in cells for way in cell["ways"]))
    titles = {"ratio": "Time against the plain loop", "speed_up": "Speed-up over one thread"}
    return [
        ResultTable(
            title, ["network", "batch", "plain loop, s", *names],
            [[cell["net"], f"{cell['batch']:,}", significant(cell["ways"][PLAIN]["seconds_measured"]),
              *(_times(cell["ways"].get(name), measure) for name in names)] for cell in cells],
        )
        for measure, title in titles.items()
    ]  # fmt: skip


def _times(numbers: dict[str, Any] | None, measure: str) -> str:
    return "-" if numbers is None else f"{significant(numbers[measure])}x"


def targets(cells: list[dict[str, Any]], whole: bool) -> list[Target]:
    small = [cell for cell in cells if cell["batch"] == SMALL]
    large = [cell for cell in cells if cell["batch"] >= LARGE]
    found = []
    for way, bounds in MOST.items():
        for part, bound, words in zip(
            (small, large), bounds, (f"batch {SMALL}", f"batch {LARGE} and more"), strict=True
        ):
            worst, where = _worst(part, way, "ratio", max)
            found.append(Target(f"{way}, {words}", worst, bound, False, "x", where, whole))
    for way, bound in SPEED_UP.items():
        worst, where = _worst(large, way, "speed_up", min)
        found.append(Target(f"{way}: speed-up over one thread", worst, bound, True, "x", where, whole))
    for way, bound in START.items():
        worst, where = _worst(cells, way, "startup_seconds", max)
        found.append(Target(f"{way}: start", worst, bound, False, " s", where, whole))
    worst, where = _worst(cells, "auto", "against_best", max)
    return [*found, Target("auto against the best way", worst, AUTO, False, "x", where, whole)]


def _worst(cells: Iterable[dict[str, Any]], way: str, measure: str, which: Any) -> tuple[float | None, str]:
    """The worst of the cells that have this way, and where it is."""
    found = [(cell["ways"][way][measure], cell["net"], cell["batch"]) for cell in cells if way in cell["ways"]]
    if not found:
        return None, ""
    value, net, batch = which(found)
    return value, f"worst of {len(found)}: {net}, batch {batch:,}"


def notes(cells: list[dict[str, Any]]) -> list[str]:
    found = [
        f"Plain SGD. The best epoch of all runs counts; an epoch has {max(cell['rows'] for cell in cells):,} rows at "
        "most. The ways take turns.",
        f"The plain loop is PyTorch by hand on {thread_count()} BLAS threads. `serial` has one thread.",
        "net-1h and net-2h are those of `descent`, cnn that of `pays`, mpi that of `ranks`.",
    ]
    missing = {way: why for cell in cells for way, why in cell["not_measured"].items()}
    found += [f"{way} was not measured: {why}." for way, why in missing.items()]
    return found + [f"auto, {cell['net']}, batch {cell['batch']:,}: {cell['auto']['why']}." for cell in cells]


def draw(cells: list[dict[str, Any]]) -> Figure:
    """Ratios to the plain loop: a group of bars for each network and batch size."""
    figure, ((axis,),) = grid_of_axes(1, 1, width=11.0, height=4.0)
    names = [way for way in dict.fromkeys(way for cell in cells for way in cell["ways"]) if way != PLAIN]
    width = 0.85 / len(names)
    for k, way in enumerate(names):
        places = [group + (k - (len(names) - 1) / 2) * width for group in range(len(cells))]
        heights = [cell["ways"].get(way, {}).get("ratio", 0.0) for cell in cells]
        axis.bar(places, heights, width, color=PALETTE[k % len(PALETTE)], label=way)
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_xticks(range(len(cells)), [f"{cell['net']}\n{cell['batch']:,}" for cell in cells], fontsize=8)
    axis.set(ylabel="time against the plain loop")
    figure.legend(loc="outside lower center", ncols=len(names), frameon=False, fontsize=8)
    return figure

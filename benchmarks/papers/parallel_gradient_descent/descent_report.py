"""Tables, targets, notes and bar charts of `python -m benchmarks descent`."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.harness.plots import grid_of_axes
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.parallel.workers import PALETTE, PLAIN, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"net-1h": "Net-1h (784-1024-10)", "net-2h": "Net-2h (784-1024-1024-10)"}
PAPER_THREADS = 32
SLOWER = 1.03  # than the plain loop: what auto may be at most
ACCURACY = 0.93  # the paper: 93% to 97.8%
MEASURES = {"seconds": "seconds per epoch", "gflops": "GFLOPS", "speed_up": "speed-up against serial"}


def tables(data: dict[str, Any]) -> list[ResultTable]:
    found = [accuracy_table(data)]
    for name, net in data["nets"].items():
        found += [measure_table(name, net, measure) for measure in MEASURES]
    return found


def accuracy_table(data: dict[str, Any]) -> ResultTable:
    rows = []
    for name, net in data["nets"].items():
        trained = net["trained"]
        rates = ", ".join(f"{rate:g}: {percent(share, 1)}" for rate, share in net["learning_rates"].items())
        rows.append([
            TITLES[name], f"{net['learning_rate']:g}", percent(trained["held_out_accuracy"]),
            percent(trained["test_accuracy"]), f"{trained['epochs']} in {trained['seconds']:.0f} s, {trained['way']}",
            rates,
        ])  # fmt: skip
    header = ["network", "learning rate", "hold-out", "test", "epochs", "hold-out by learning rate, in the search"]
    return ResultTable("Accuracy (the paper: 93% to 97.8%)", header, rows)


def ways_of(net: dict[str, Any]) -> list[str]:
    """Every way that was measured with some batch size, in order."""
    return list(dict.fromkeys(way for cell in net["batches"] for way in cell["ways"]))


def measure_table(name: str, net: dict[str, Any], measure: str) -> ResultTable:
    """A row for each way, a column for each batch size; what is scaled has a mark."""
    rows = []
    for way in ways_of(net):
        cells = [cell["ways"].get(way) for cell in net["batches"]]
        row = [way] + ["-" if cell is None else _text(cell, measure) for cell in cells]
        if measure == "seconds":
            row.append(f"{statistics.median(cell['startup_seconds'] for cell in cells if cell):.2f}")
        rows.append(row)
    header = ["way", *(f"batch {cell['batch']:,}" for cell in net["batches"])]
    if measure == "seconds":
        header.append("start, s")
    return ResultTable(f"{TITLES[name]}: {MEASURES[measure]}", header, rows)


def _text(cell: dict[str, Any], measure: str) -> str:
    mark = "~" if measure == "seconds" and cell["scaled"] else ""
    return f"{mark}{significant(cell[measure])}{'x' if measure == 'speed_up' else ''}"


def targets(data: dict[str, Any], whole: bool) -> list[Target]:
    ratios = [
        (cell["ways"]["auto"]["seconds_measured"] / cell["ways"][PLAIN]["seconds_measured"], name, cell["batch"])
        for name, net in data["nets"].items()
        for cell in net["batches"]
        if {"auto", PLAIN} <= set(cell["ways"])
    ]
    worst = max(ratios, default=None)
    where = f"worst of {len(ratios)}: {TITLES[worst[1]]}, batch {worst[2]:,}" if worst else ""
    found = [
        Target(
            "auto's time against the plain loop's", worst[0] if worst else None, SLOWER, at_least=False, unit="x",
            note=where, complete=whole,
        )
    ]  # fmt: skip
    for name, title in TITLES.items():
        accuracy = data["nets"][name]["trained"]["test_accuracy"] if name in data["nets"] else None
        measured = None if accuracy is None else 100 * accuracy
        found.append(Target(f"{title}: test accuracy", measured, 100 * ACCURACY, unit="%", complete=whole))
    return found


def notes(data: dict[str, Any], cores: int) -> list[str]:
    trained = next(iter(data["nets"].values()))["trained"]
    found = [
        "Sigmoid in every layer, the last included; squared error summed over the outputs (the paper's equation 1), "
        "Glorot's initialisation, plain SGD, pixels from 0 to 1. The learning rate was chosen on a sixth of the rows "
        "held out; this run looked at the test set once, at the end, but that small batches suit was known before. "
        "Populations have no sigmoid on the output, so that the six rates were tried one after the other. For this and "
        "for accuracy batches have "
        f"{trained['batch']} rows: the paper names no size, and larger ones need many times the epochs.",
        "The best epoch of all runs counts. Starting processes, and for auto measuring what to choose, is in the "
        "column `start`, not in the time per epoch.",
        f"The plain loop is PyTorch by hand on {cores} threads: same rows in the same order, same steps.",
    ]
    if data["measured_rows"] != data["epoch_rows"]:
        found.append(
            f"~ measured on {data['measured_rows']:,} rows, scaled to an epoch of {data['epoch_rows']:,}."
        )  # fmt: skip
    missing = {
        way: why
        for net in data["nets"].values()
        for cell in net["batches"]
        for way, why in cell["not_measured"].items()
    }
    found += [f"{way} was not measured: {why}." for way, why in missing.items()]
    for name, net in data["nets"].items():
        for cell in net["batches"]:
            found.append(f"auto, {name}, batch {cell['batch']:,}: {cell['auto']['why']}.")
    if cores < PAPER_THREADS:
        found.append(
            f"The paper has {PAPER_THREADS} threads and reports about 10x over its own serial code, less over BLAS; "
            f"this machine has {cores} core{'s' * (cores > 1)} and cannot show more than so many times."
        )
    return found


def draw(data: dict[str, Any]) -> Figure:
    """The paper's figures 5 to 10: a column for each network, a row for each measure."""
    nets = data["nets"]
    every = list(dict.fromkeys(way for net in nets.values() for way in ways_of(net)))
    figure, axes = grid_of_axes(len(MEASURES), len(nets), width=6.5, height=3.0)
    for column, (name, net) in enumerate(nets.items()):
        for row, (measure, label) in enumerate(MEASURES.items()):
            axis = axes[row][column]
            bars(axis, net, every, measure)
            axis.set(xlabel="batch size", ylabel=label)
            axis.set_title(TITLES[name], fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def bars(axis: Any, net: dict[str, Any], every: list[str], measure: str) -> None:
    """Groups of bars, one group for each batch size, one colour for each way."""
    width = 0.85 / max(1, len(every))
    for k, way in enumerate(every):
        heights = [cell["ways"].get(way, {}).get(measure, 0.0) for cell in net["batches"]]
        places = [group + (k - (len(every) - 1) / 2) * width for group in range(len(heights))]
        axis.bar(places, heights, width, color=PALETTE[k % len(PALETTE)], label=way)
    axis.set_xticks(range(len(net["batches"])), [f"{cell['batch']:,}" for cell in net["batches"]])

"""Accuracy and predicted time over nodes, the four cells, and what a simulation costs: one panel for each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness.plots import grid_of_axes, plain_ticks
from benchmarks.papers.node_simulator.curve import PATHS
from benchmarks.papers.node_simulator.lookup import Entry
from benchmarks.papers.node_simulator.start import CELLS, Mean
from benchmarks.parallel.workers import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = (PALETTE[8], PALETTE[3], PALETTE[4], PALETTE[1], PALETTE[6])
STYLES = {1: "-", 3: "--"}  # by hidden layers


def draw(data: dict[str, Any]) -> Figure:
    panels: list[tuple[Callable[[Any, Any], None], Any]] = []
    if "text" in data:
        panels += [(text_accuracy, data["text"]), (text_times, data["text"])]
    if "cnn" in data:
        panels += [(cnn_accuracy, data["cnn"]), (cnn_times, data["cnn"])]
    if data.get("start"):
        panels.append((start_cells, data["start"]))
    if "curve" in data:
        panels.append((costs, data["curve"]))
    columns = min(2, len(panels))
    figure, axes = grid_of_axes(-(-len(panels) // columns), columns, width=5.2, height=3.4)
    for axis, (panel, part) in zip(axes.flat, panels, strict=False):
        panel(axis, part)
        axis.legend(frameon=False, fontsize=7, handlelength=3.2)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    return figure


def _over_nodes(axis: Any, entries: list[Entry], values: Sequence[float], **style: Any) -> None:
    counts = [entry["nodes"] for entry in entries]
    axis.plot(counts, values, marker="o", markersize=4, **style)
    axis.set(xscale="log", xlabel="nodes")
    plain_ticks(axis, counts)


def _text_lines(axis: Any, text: list[Entry], names: dict[str, str], value: Callable[[Entry], float]) -> None:
    for layers, line in STYLES.items():
        for k, (variant, words) in enumerate(names.items()):
            mine = [entry for entry in text if (entry["layers"], entry["variant"]) == (layers, variant)]
            values = [value(entry) for entry in mine]
            _over_nodes(axis, mine, values, color=COLORS[k], linestyle=line, label=f"{layers} hidden, {words}")


def text_accuracy(axis: Any, text: list[Entry]) -> None:
    names = {"split, end": "split", "split, epoch": "split, each epoch", "split, folds": "split, folds",
             "whole, end": "not split"}  # fmt: skip
    _text_lines(axis, text, names, lambda entry: 100 * statistics.fmean(entry["accuracies"]))
    axis.set(title="Text: accuracy", ylabel="accuracy, %")


def text_times(axis: Any, text: list[Entry]) -> None:
    names = {"split, end": "split", "split, folds": "split, folds", "whole, end": "not split"}
    _text_lines(axis, text, names, lambda entry: float(entry["predicted"]["own"]["seconds"]))
    axis.set(title="Text: predicted seconds, machines of their own", ylabel="seconds", yscale="log")


def cnn_accuracy(axis: Any, cnn: dict[str, Any]) -> None:
    ways = dict.fromkeys((entry["folds"], entry["every"]) for entry in cnn["accuracy"])
    for k, (folds, every) in enumerate(ways):
        mine = [entry for entry in cnn["accuracy"] if (entry["folds"], entry["every"]) == (folds, every)]
        label = (
            f"{folds} folds on each node"
            if folds > 1
            else f"no folds, averaged {'each epoch' if every == 'epoch' else 'at the end'}"
        )
        values = [100 * entry["accuracy"] for entry in mine]
        _over_nodes(axis, mine, values, color=COLORS[k % len(COLORS)], label=label)
    plain_ticks(axis, sorted({entry["nodes"] for entry in cnn["accuracy"]}))  # one node has nothing to average
    axis.set(title="CNN, rows split: accuracy on rows to test", ylabel="accuracy, %")


def cnn_times(axis: Any, cnn: dict[str, Any]) -> None:
    folds = max(entry["folds"] for entry in cnn["times"])
    for k, (split, words) in enumerate(((True, "split"), (False, "not split"))):
        mine = [entry for entry in cnn["times"] if (entry["folds"], entry["split"]) == (folds, split)]
        for place, line in (("own", "-"), ("shared", "--")):
            values = [entry["predicted"][place]["seconds"] for entry in mine]
            _over_nodes(axis, mine, values, color=COLORS[k], linestyle=line, label=f"{words}, {place}")
    axis.set(title=f"CNN, {folds} folds: predicted seconds", ylabel="seconds", yscale="log")


def start_cells(axis: Any, entries: list[Entry]) -> None:
    """A group of bars for each network and number of nodes."""
    cells = {"alone": "one node, all rows", **CELLS}
    width = 0.8 / len(cells)
    for k, (cell, words) in enumerate(cells.items()):
        means = [Mean.of([100 * v for v in (entry["alone"] if cell == "alone" else entry["cells"][cell])])
                 for entry in entries]  # fmt: skip
        places = [place + (k - (len(cells) - 1) / 2) * width for place in range(len(entries))]
        halves = [0.0 if mean.high is None else mean.high - mean.value for mean in means]
        axis.bar(places, [mean.value for mean in means], width, yerr=halves, color=COLORS[k], label=words,
                 error_kw={"elinewidth": 0.8})  # fmt: skip
    axis.set_xticks(range(len(entries)), [f"{entry['layers']} hidden\nn = {entry['nodes']}" for entry in entries])
    axis.set(title="Less data or different starts?", ylabel="accuracy, %", ylim=(40, 118))


def costs(axis: Any, curve: dict[str, Any]) -> None:
    for k, path in enumerate(PATHS):
        for kind, line in (("grown", "-"), ("dealt", ":")):
            mine = [entry for entry in curve["points"] if (entry["path"], entry["kind"]) == (path, kind)]
            style = {"marker": "o", "markersize": 3, "color": COLORS[k], "linestyle": line}
            steps, seconds = [entry["steps"] for entry in mine], [entry["seconds"] for entry in mine]
            axis.plot(steps, seconds, label=f"{path}, rows {kind}", **style)
    if curve.get("dlmp"):
        axis.plot([entry["steps"] for entry in curve["dlmp"]], [entry["dlmp_seconds"] for entry in curve["dlmp"]],
                  marker="s", color=COLORS[2], label="DLMP (LeNet)")  # fmt: skip
    axis.set(title="Wall seconds of a simulation", xlabel="nodes x steps", ylabel="seconds", xscale="log", yscale="log")

"""Is accuracy lost because nodes have less data, or because each begins with weights of its own? Four cells."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.harness.measure import Tick
from benchmarks.papers.node_simulator.text import LAYERS, Outcome, Texts, job_of, network, train
from shoal.parallel.data.loader import RandomKey, key
from shoal.parallel.data.ownership import owners
from shoal.parallel.exact.randomness import draw_weights
from shoal.planner.simulate.averaged import train_averaged

if TYPE_CHECKING:
    from benchmarks.papers.node_simulator.study import Study

STARTS = ("same", "own")
CELLS = {
    "averaged, same": "n nodes averaged, same start", "averaged, own": "n nodes averaged, own starts",
    "single, same": "one node on 1/n of the rows, same start",
    "single, own": "one node on 1/n of the rows, own start",
}  # fmt: skip


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and its 95% interval, by Student's t; of one seed there is none."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """
        >>> Mean.of([0.5]), Mean.of([1.0, 1.0])
        (Mean(value=0.5, low=None, high=None), Mean(value=1.0, low=1.0, high=1.0))
        """
        from scipy.stats import t

        middle = statistics.fmean(values)
        if len(values) < 2 or math.isnan(middle):
            return cls(middle)
        half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
        return cls(middle, middle - half, middle + half)

    @property
    def sure(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def run_start(study: Study, texts: Texts, tick: Tick) -> list[dict[str, Any]]:
    """Accuracies of all seeds: of one node on all rows, and of the four cells for each number of nodes."""
    found = []
    for layers in LAYERS:
        tick(f"starts, {layers} hidden")
        seeds = range(study.seeds)
        alone = train(study, texts, layers, [job_of(study, 1, seed) for seed in seeds])
        for nodes in (count for count in study.start_nodes if count > 1):
            cells: dict[str, list[float]] = {}
            for start in STARTS:
                jobs = [job_of(study, nodes, seed, start=start) for seed in seeds]
                averaged = train(study, texts, layers, jobs)
                cells[f"averaged, {start}"] = [outcome.accuracy for outcome in averaged]
                cells[f"single, {start}"] = [single(study, texts, layers, nodes, seed, start) for seed in seeds]
            found.append({"layers": layers, "nodes": nodes, "alone": [one.accuracy for one in alone], "cells": cells})
    return found


def single(study: Study, texts: Texts, layers: int, nodes: int, seed: int, start: str) -> float:
    """The mean accuracy of the nodes' own networks, before any averaging: each trained by itself on its rows."""
    inputs, target = texts.train.tensors
    owner = owners(target, len(target), nodes, job_of(study, nodes, seed))
    model = network(texts.features, layers, seed)
    accuracies = []
    for node in range(nodes):
        mine = TensorDataset(inputs[owner == node], target[owner == node])
        found = train_averaged(own_start(model, seed, node, start), mine, job_of(study, 1, seed))
        accuracies += [one.accuracy for one in Outcome.each(found, texts.test, study.text_epochs)]
    return statistics.fmean(accuracies)


def own_start(model: nn.Module, seed: int, node: int, start: str) -> nn.Module:
    """The weights that a node begins with: those of the model, or, but for the first node, those it draws itself."""
    if start == "same" or node == 0:
        return model
    other = copy.deepcopy(model)
    draw_weights(other, key(seed, RandomKey.FIRST_WEIGHTS, node))
    return other


@dataclass(frozen=True)
class Losses:
    """Points of accuracy lost, seed by seed, against one node on all rows: altogether, and by which cause."""

    altogether: Mean  # own starts, averaged
    less_data: Mean  # a node by itself on its rows
    averaging: Mean  # by averaging networks with the same start; below zero: gained
    starts: Mean  # more of it, if starts are not the same


def losses(entry: dict[str, Any]) -> Losses:
    """A node by itself loses by less data; what averaging makes of that depends on the starts."""
    cells = entry["cells"]

    def lost(before: Sequence[float], after: Sequence[float]) -> Mean:
        return Mean.of([100 * (one - other) for one, other in zip(before, after, strict=True)])

    return Losses(
        lost(entry["alone"], cells["averaged, own"]), lost(entry["alone"], cells["single, same"]),
        lost(cells["single, same"], cells["averaged, same"]), lost(cells["averaged, same"], cells["averaged, own"]),
    )  # fmt: skip


def cause(entry: dict[str, Any]) -> str:
    """Which of the two the loss comes from, in words; where neither is sure, that is said."""
    found = losses(entry)
    data, starts = (mean.value if mean.sure and mean.value > 0 else 0.0 for mean in (found.less_data, found.starts))
    if not data and not starts:
        return "neither for sure"
    if max(data, starts) < 2 * min(data, starts):
        return "both"
    more = "less data" if data > starts else "different starts"
    return f"mostly {more}" if data and starts else more

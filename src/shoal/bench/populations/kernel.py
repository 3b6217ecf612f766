"""The compiled kernel alone: GFLOPS of one thread for shapes, activations and optimisers, per instruction set."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal import _native
from shoal.bench import peers
from shoal.bench.harness.machine import MatrixProduct, describe, load_average, require
from shoal.bench.harness.measure import Contender, Tick, progress_bar, race, rounds
from shoal.bench.harness.problems import Problem, random_data
from shoal.bench.harness.report import Result
from shoal.bench.harness.tables import ResultTable, significant
from shoal.machine import using_instruction_set
from shoal.members import ACTIVATIONS, Member
from shoal.population import Population
from shoal.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Optimisers, with the fields of their members. The kernel has code of its own for each of them.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "learning_rate": 1e-3},
    "momentum": {"optimizer": "sgd", "learning_rate": 1e-4, "momentum": 0.9},
    "adam": {"optimizer": "adam", "learning_rate": 1e-4},
    "adamw": {"optimizer": "adamw", "learning_rate": 1e-4, "weight_decay": 1e-3},
}


@dataclass(frozen=True)
class Shape:
    """Layers of a network, inputs and outputs included, and its batch size."""

    layers: tuple[int, ...]
    batch: int

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.layers))}, batch {self.batch}"


SHAPES = (
    Shape((10, 8, 2), 32),  # smaller than a vector of AVX-512
    Shape((10, 50, 2), 32),
    Shape((100, 50, 2), 32),
    Shape((100, 50, 2), 256),  # several blocks of rows
    Shape((100, 64, 64, 2), 32),
    Shape((20, 256, 256, 10), 128),
    Shape((784, 128, 10), 128),
)


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    instruction_set: str
    shape: Shape
    activation: str
    optimizer: str

    def __str__(self) -> str:
        return f"{self.instruction_set}, {self.shape}, {self.activation}, {self.optimizer}"


@dataclass(frozen=True)
class Settings:
    shapes: Sequence[Shape] = SHAPES
    activations: Sequence[str] = ACTIVATIONS  # each with sgd
    optimizers: Sequence[str] = tuple(OPTIMIZERS)  # each with relu
    instruction_sets: Sequence[str] | None = None  # None: the one in use
    members: int = 32
    rows: int = 512
    seconds: float = 0.05  # that a run takes at least
    repeats: int = 3


QUICK = Settings(shapes=(SHAPES[0], SHAPES[2]), activations=("relu", "tanh", "gelu"), seconds=0.02, repeats=2)


def run(settings: Settings) -> Result:
    require("torch", "matplotlib")
    begun, machine = time.perf_counter(), describe()
    sets = _instruction_sets(settings)
    _check("--activation", settings.activations, ACTIVATIONS)
    _check("--optimizer", settings.optimizers, tuple(OPTIMIZERS))
    product = MatrixProduct(threads=1)
    batches = [cells_of(settings, name, shape) for name in sets for shape in settings.shapes]
    total = sum(rounds(len(cells) + 1, settings.repeats) for cells in batches)
    with progress_bar("kernel", total) as tick:
        measured = [found for cells in batches for found in measure(cells, settings, product, tick)]
    loads = machine["load_average_before"], load_average()
    data = {"peak": product.as_dict(), "load_average_after": loads[1], "cells": measured}
    written = {**asdict(settings), "shapes": list(map(str, settings.shapes)), "instruction_sets": sets}
    return Result(
        name="kernel", title="GFLOPS of the compiled kernel on one thread", machine=machine, settings=written,
        data=data, tables=tables(measured, settings, sets), targets=[], notes=notes(settings, product, loads),
        draw=lambda: draw(measured, settings, sets, product.gflops), seconds=time.perf_counter() - begun,
    )  # fmt: skip


def cells_of(settings: Settings, instruction_set: str, shape: Shape) -> list[Cell]:
    """Every activation with sgd, then every optimiser with relu; what is in both is measured once."""
    pairs = [(activation, "sgd") for activation in settings.activations]
    pairs += [("relu", optimizer) for optimizer in settings.optimizers]
    return [Cell(instruction_set, shape, *pair) for pair in dict.fromkeys(pairs)]


def measure(cells: Sequence[Cell], settings: Settings, product: MatrixProduct, tick: Tick) -> list[dict[str, Any]]:
    """Cells of one shape and instruction set, in turn."""
    problems = [problem_of(cell, settings) for cell in cells]
    contenders = [Contender("matrix product", product, product)]
    contenders += [contender(cell, problem, settings) for cell, problem in zip(cells, problems, strict=True)]
    timings = race(contenders, settings.repeats, tick)
    found = []
    for cell, problem in zip(cells, problems, strict=True):
        problem.check()
        timing = timings[str(cell)]
        found.append({
            **asdict(cell), "shape": str(cell.shape), "flops": problem.flops,
            "gflops": problem.flops / timing.seconds / 1e9, **timing.as_dict(),
        })  # fmt: skip
    return found


def problem_of(cell: Cell, settings: Settings) -> Problem:
    n_features, *hidden, n_outputs = cell.shape.layers
    members = [
        Member(tuple(hidden), cell.activation, batch_size=cell.shape.batch, seed=seed, **OPTIMIZERS[cell.optimizer])
        for seed in range(settings.members)
    ]
    X, y = random_data(settings.rows, n_features, n_outputs)
    return Problem(Population(members, n_features, n_outputs), X, y)


def contender(cell: Cell, problem: Problem, settings: Settings) -> Contender:
    """As many epochs in a run as fill `settings.seconds`."""
    peer = peers.make("native", problem, threads=1)

    def timed(epochs: int) -> float:
        with using_instruction_set(cell.instruction_set):
            begun = time.perf_counter()
            peer.run(epochs)
            return time.perf_counter() - begun

    timed(1)  # the first touch of all memory
    epochs = max(1, math.ceil(settings.seconds / timed(1)))
    return Contender(str(cell), lambda: timed(epochs), lambda: timed(1), divisor=epochs)


def _instruction_sets(settings: Settings) -> list[str]:
    if settings.instruction_sets is None:
        return [_native.instruction_set()]
    usable = _native.instruction_sets()
    if "all" in settings.instruction_sets:
        return [name for name in usable if name != "wide"]  # for tests only
    _check("--isa", settings.instruction_sets, ("all", *usable))
    return list(settings.instruction_sets)


def _check(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for word in given:
        one_of(option, word, known)


def tables(measured: list[dict[str, Any]], settings: Settings, sets: Sequence[str]) -> list[ResultTable]:
    """Two for each instruction set: shapes against activations, and against optimisers."""
    gflops = {(m["instruction_set"], m["shape"], m["activation"], m["optimizer"]): m["gflops"] for m in measured}
    found = []
    for name in sets:
        for title, columns, pairs in (
            ("activations, with sgd", settings.activations, [(a, "sgd") for a in settings.activations]),
            ("optimisers, with relu", settings.optimizers, [("relu", o) for o in settings.optimizers]),
        ):
            rows = [
                [str(shape), *(significant(gflops[(name, str(shape), *pair)]) for pair in pairs)]
                for shape in settings.shapes
            ]
            found.append(ResultTable(f"GFLOPS on {name}: {title}", ["shape", *columns], rows))
    return found


def notes(settings: Settings, product: MatrixProduct, loads: Sequence[list[float]]) -> list[str]:
    load = " and ".join(
        f"{values[0]:g} {when}" for values, when in zip(loads, ("before", "after"), strict=True) if values
    )
    return [
        f"One thread trains {settings.members} networks of a shape on {settings.rows} rows with `Population.fit`; the "
        f"best of {settings.repeats} runs of at least {settings.seconds:g} s counts.",
        "A shape is inputs, hidden layers and outputs. GFLOPS count the multiplications and additions of the matrix "
        "products, padding not counted: not those of activations, losses and optimisers.",
        f"torch's product of two {product.size} x {product.size} matrices reaches {product.gflops:.0f} GFLOPS on one "
        "thread, the best of all calls between the runs.",
        *([f"The machine's load was {load} (1 for each busy core, this one included)."] if load else []),
    ]


def draw(measured: list[dict[str, Any]], settings: Settings, sets: Sequence[str], peak: float) -> Figure:
    """A panel for each instruction set, a row for each shape, a point for each activation and optimiser."""
    from shoal.bench.harness.plots import COLORS, grid_of_axes

    shapes = [str(shape) for shape in settings.shapes][::-1]
    figure, axes = grid_of_axes(len(sets), 1, width=7.0, height=0.35 * len(shapes) + 0.8)
    kinds = (("activations, with sgd", True, "native", "o", 0.12), ("other optimisers", False, "vmap", "D", -0.12))
    for name, (axis,) in zip(sets, axes, strict=True):
        here = [found for found in measured if found["instruction_set"] == name]
        for label, sgd, color, marker, shift in kinds:
            some = [found for found in here if (found["optimizer"] == "sgd") == sgd]
            heights = [shapes.index(found["shape"]) + shift for found in some]
            axis.plot([found["gflops"] for found in some], heights, marker, color=COLORS[color], alpha=0.7, label=label)
        axis.axvline(peak, color="0.3", linestyle="--", linewidth=1, label=f"torch's matrix product: {peak:.0f}")
        axis.set_yticks(range(len(shapes)), shapes)
        axis.set(xlim=(0, None), title=name)
    axes[-1][0].set_xlabel("GFLOPS of one thread (padding not counted)")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower right", frameon=False, fontsize=9, ncols=3
    )
    return figure

"""The compiled kernel alone: GFLOPS of one thread for shapes, activations and optimisers, per instruction set."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import peers
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import MatrixProduct
from benchmarks.harness.measure import Contender, Tick, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.problems import Problem, random_data
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from shoal import _native
from shoal.machine import using_instruction_set
from shoal.population.members import ACTIVATIONS, Member
from shoal.population.population import Population
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


@benchmark(
    needs=("torch",),
    quick={"shapes": (SHAPES[0], SHAPES[2]), "activations": ("relu", "tanh", "gelu"), "seconds": 0.02, "repeats": 2},
)
def kernel(
    *,
    shapes: tuple[Shape, ...] = SHAPES,
    activations: tuple[str, ...] = ACTIVATIONS,
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS),
    instruction_sets: tuple[str, ...] | None = None,
    members: int = 32,
    rows: int = 512,
    seconds: float = 0.05,
    repeats: int = 3,
) -> Result:
    """The compiled kernel on one thread: GFLOPS per shape, activation and optimiser, per instruction set.

    activations: Activations, each with sgd.
    optimizers: sgd, momentum, adam, adamw, each with relu.
    instruction_sets: avx512, avx2, baseline, or all.
    members: Networks of a shape.
    rows: Rows.
    seconds: Seconds that a run takes at least.
    repeats: Times that everything is measured; the best counts.
    """
    sets = _instruction_sets(instruction_sets)
    _check("--activations", activations, ACTIVATIONS)
    _check("--optimizers", optimizers, tuple(OPTIMIZERS))
    product = MatrixProduct(threads=1)
    batches = [cells_of(activations, optimizers, name, shape) for name in sets for shape in shapes]
    total = sum(rounds(len(cells) + 1, repeats) for cells in batches)
    with progress_bar("kernel", total) as tick:
        measured = [
            found for cells in batches for found in measure(cells, members, rows, seconds, repeats, product, tick)
        ]
    data = {"peak": product.as_dict(), "cells": measured}
    return Result(
        title="GFLOPS of the compiled kernel on one thread", settings={"instruction_sets": sets}, data=data,
        tables=tables(measured, shapes, activations, optimizers, sets),
        notes=notes(members, rows, seconds, repeats, product),
        draw=lambda: draw(measured, shapes, sets, product.gflops),
    )  # fmt: skip


def cells_of(
    activations: tuple[str, ...], optimizers: tuple[str, ...], instruction_set: str, shape: Shape
) -> list[Cell]:
    """Every activation with sgd, then every optimiser with relu; what is in both is measured once."""
    pairs = [(activation, "sgd") for activation in activations]
    pairs += [("relu", optimizer) for optimizer in optimizers]
    return [Cell(instruction_set, shape, *pair) for pair in dict.fromkeys(pairs)]


def measure(
    cells: Sequence[Cell], members: int, rows: int, seconds: float, repeats: int, product: MatrixProduct, tick: Tick
) -> list[dict[str, Any]]:
    """Cells of one shape and instruction set, in turn."""
    problems = [problem_of(cell, members, rows) for cell in cells]
    contenders = [Contender("matrix product", product, product)]
    contenders += [contender(cell, problem, seconds) for cell, problem in zip(cells, problems, strict=True)]
    timings = race(contenders, repeats, tick)
    found = []
    for cell, problem in zip(cells, problems, strict=True):
        problem.check()
        timing = timings[str(cell)]
        found.append({
            **asdict(cell), "shape": str(cell.shape), "flops": problem.flops,
            "gflops": problem.flops / timing.seconds / 1e9, **timing.as_dict(),
        })  # fmt: skip
    return found


def problem_of(cell: Cell, members: int, rows: int) -> Problem:
    n_features, *hidden, n_outputs = cell.shape.layers
    networks = [
        Member(tuple(hidden), cell.activation, batch_size=cell.shape.batch, seed=seed, **OPTIMIZERS[cell.optimizer])
        for seed in range(members)
    ]
    X, y = random_data(rows, n_features, n_outputs)
    return Problem(Population(networks, n_features, n_outputs), X, y)


def contender(cell: Cell, problem: Problem, seconds: float) -> Contender:
    """As many epochs in a run as fill `settings.seconds`."""
    peer = peers.make("native", problem, threads=1)

    def timed(epochs: int) -> float:
        with using_instruction_set(cell.instruction_set):
            begun = time.perf_counter()
            peer.run(epochs)
            return time.perf_counter() - begun

    timed(1)  # the first touch of all memory
    epochs = max(1, math.ceil(seconds / timed(1)))
    return Contender(str(cell), lambda: timed(epochs), lambda: timed(1), divisor=epochs)


def _instruction_sets(instruction_sets: Sequence[str] | None) -> list[str]:
    if instruction_sets is None:
        return [_native.instruction_set()]
    usable = _native.instruction_sets()
    if "all" in instruction_sets:
        return [name for name in usable if name != "wide"]  # for tests only
    _check("--instruction-sets", instruction_sets, ("all", *usable))
    return list(instruction_sets)


def _check(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for word in given:
        one_of(option, word, known)


def tables(
    measured: list[dict[str, Any]],
    shapes: tuple[Shape, ...],
    activations: tuple[str, ...],
    optimizers: tuple[str, ...],
    sets: Sequence[str],
) -> list[ResultTable]:
    """Two for each instruction set: shapes against activations, and against optimisers."""
    gflops = {(m["instruction_set"], m["shape"], m["activation"], m["optimizer"]): m["gflops"] for m in measured}
    found = []
    for name in sets:
        for title, columns, pairs in (
            ("activations, with sgd", activations, [(a, "sgd") for a in activations]),
            ("optimisers, with relu", optimizers, [("relu", o) for o in optimizers]),
        ):
            rows = [
                [str(shape), *(significant(gflops[(name, str(shape), *pair)]) for pair in pairs)] for shape in shapes
            ]
            found.append(ResultTable(f"GFLOPS on {name}: {title}", ["shape", *columns], rows))
    return found


def notes(members: int, rows: int, seconds: float, repeats: int, product: MatrixProduct) -> list[str]:
    return [
        f"One thread trains {members} networks of a shape on {rows} rows with `Population.fit`; the "
        f"best of {repeats} runs of at least {seconds:g} s counts.",
        "A shape is inputs, hidden layers and outputs. GFLOPS count the multiplications and additions of the matrix "
        "products, padding not counted: not those of activations, losses and optimisers.",
        f"torch's product of two {product.size} x {product.size} matrices reaches {product.gflops:.0f} GFLOPS on one "
        "thread, the best of all calls between the runs.",
    ]


def draw(measured: list[dict[str, Any]], shapes: tuple[Shape, ...], sets: Sequence[str], peak: float) -> Figure:
    """A panel for each instruction set, a row for each shape, a point for each activation and optimiser."""
    names = [str(shape) for shape in shapes][::-1]
    figure, axes = grid_of_axes(len(sets), 1, width=7.0, height=0.35 * len(names) + 0.8)
    kinds = (("activations, with sgd", True, "native", "o", 0.12), ("other optimisers", False, "vmap", "D", -0.12))
    for name, (axis,) in zip(sets, axes, strict=True):
        here = [found for found in measured if found["instruction_set"] == name]
        for label, sgd, color, marker, shift in kinds:
            some = [found for found in here if (found["optimizer"] == "sgd") == sgd]
            heights = [names.index(found["shape"]) + shift for found in some]
            axis.plot([found["gflops"] for found in some], heights, marker, color=COLORS[color], alpha=0.7, label=label)
        axis.axvline(peak, color="0.3", linestyle="--", linewidth=1, label=f"torch's matrix product: {peak:.0f}")
        axis.set_yticks(range(len(names)), names)
        axis.set(xlim=(0, None), title=name)
    axes[-1][0].set_xlabel("GFLOPS of one thread (padding not counted)")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower right", frameon=False, fontsize=9, ncols=3
    )
    return figure

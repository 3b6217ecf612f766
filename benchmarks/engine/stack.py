"""Modules of one architecture as one, against a loop over them: seconds of a step, and whether both end alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Contender, Tick, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from shoal.machine import thread_count

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

RATES = (0.02, 0.05, 0.1)  # in turn: each copy has its own


class Case(NamedTuple):
    name: str
    copies: int
    batch: int
    make: Callable[[], torch.nn.Module]


@benchmark(needs=("torch",), quick={"copies": 3, "batches": (8,), "steps": 2, "repeats": 1})
def stack(*, copies: int = 8, batches: tuple[int, ...] = (16, 64), steps: int = 3, repeats: int = 3) -> Result:
    """Modules of one architecture as one (shoal.torch.stack), against a loop over them.

    copies: Copies of the convolutional network.
    batches: Batch sizes.
    steps: Steps in one run.
    repeats: Times that everything is measured; the best counts.
    """
    listed = cases(copies, batches)
    threads = sorted({1, thread_count()})
    with progress_bar("stack", len(listed) * rounds(2 * len(threads), repeats)) as tick:
        measured = [measure(case, steps, repeats, threads, tick) for case in listed]
    return Result(
        title="Modules of one architecture as one, against a loop over them", data={"cases": measured},
        tables=[table(measured)], notes=notes(measured), draw=lambda: draw(measured),
    )  # fmt: skip


def cases(copies: int, batches: tuple[int, ...]) -> list[Case]:
    from torch import nn

    from shoal.parallel.networks import make_model

    def paper() -> nn.Module:
        return make_model("cnn", seed=_seed())

    def small() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Flatten(),
                             nn.Linear(4 * 8 * 8, 10))  # fmt: skip

    def perceptron() -> nn.Module:
        return nn.Sequential(nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))

    many = 4 * copies
    found = [Case("cnn of the paper, 421,642 weights", copies, batch, paper) for batch in batches]
    found += [Case("small cnn, 2,674 weights", many, batch, small) for batch in batches]
    return found + [Case("784-16-10, 12,730 weights", many, batch, perceptron) for batch in batches]


def _seed() -> int:
    import torch

    return torch.initial_seed()


class Training:
    """A few steps of all copies on random images, as one or in a loop. Each run goes on from the last."""

    def __init__(self, case: Case, steps: int, threads: int, as_one: bool) -> None:
        import torch

        from shoal.torch import seeded, stack

        draws = torch.Generator().manual_seed(0)
        shape = (steps, case.batch)
        pixels, classes = torch.rand(*shape, 784, generator=draws), torch.randint(0, 10, shape, generator=draws)
        self.data = list(zip(pixels, classes, strict=True))
        self.modules = seeded(case.make, range(case.copies))
        self.threads = threads
        rates = [RATES[k % len(RATES)] for k in range(case.copies)]
        self.stack = stack(self.modules) if as_one else None
        groups = stack(self.modules).parameter_groups(lr=rates)
        self.optimizer = torch.optim.SGD(groups, momentum=0.9)

    def __call__(self, steps: int | None = None) -> None:
        from torch.nn import functional

        from benchmarks.peers.torch_threads import torch_threads

        with torch_threads(self.threads):
            for x, y in self.data[:steps]:
                self.optimizer.zero_grad()
                if self.stack is not None:
                    self.stack.losses(self.stack(x), y).sum().backward()
                else:
                    for module in self.modules:
                        functional.cross_entropy(module(x), y).backward()
                self.optimizer.step()


def measure(case: Case, steps: int, repeats: int, threads: list[int], tick: Tick) -> dict[str, Any]:
    distance = largest_difference(case, steps)
    contenders = []
    for count in threads:
        for name in ("stack", "loop"):
            training = Training(case, steps, count, name == "stack")
            variant = f"{count} thread{'s' if count > 1 else ''}"
            contenders.append(
                Contender(name, training, lambda one=training: one(1), steps, variant=variant)  # type: ignore[misc]
            )
    timings = race(contenders, repeats, lambda name: tick(f"{case.name}, batch {case.batch}: {name}"))
    seconds = {name: timing.seconds for name, timing in timings.items()}
    return {
        "case": case.name, "copies": case.copies, "batch": case.batch, "largest_difference_of_weights": distance,
        "stack_is_faster_by": seconds["loop"] / seconds["stack"],
        "ways": {name: timing.as_dict() for name, timing in timings.items()},
    }  # fmt: skip


def largest_difference(case: Case, steps: int) -> float:
    """Between the weights of both ways, after the same steps from the same start."""
    both = [Training(case, steps, 1, as_one) for as_one in (True, False)]
    before = [copy.deepcopy(module).state_dict() for module in both[1].modules]
    for training in both:
        training()
    pairs = zip(*(training.modules for training in both), strict=True)
    found = max(float((a - b).detach().abs().max()) for one, other in pairs
                for a, b in zip(one.parameters(), other.parameters(), strict=True))  # fmt: skip
    moved = max(float((value - start[name]).abs().max()) for module, start in zip(both[1].modules, before, strict=True)
                for name, value in module.state_dict().items())  # fmt: skip
    if not np.isfinite(found) or not moved:
        raise RuntimeError(f"{case.name}: the networks diverged or did not train, their times mean nothing")
    return found


def table(measured: list[dict[str, Any]]) -> ResultTable:
    rows = []
    for one in measured:
        ways = [one["ways"][name] for name in ("stack", "loop")]
        times = [f"{significant(1000 * way['seconds'])} ({way['variant']})" for way in ways]
        rows.append([one["case"], str(one["copies"]), str(one["batch"]), *times, f"{one['stack_is_faster_by']:.2f}x",
                     f"{one['largest_difference_of_weights']:.0e}"])  # fmt: skip
    header = ["module", "copies", "batch", "stack, ms a step of all", "loop", "stack is faster by", "weights differ by"]
    return ResultTable("A step of all copies", header, rows)


def notes(measured: list[dict[str, Any]]) -> list[str]:
    slower = [
        f"{one['case'].split(',')[0]} at batch {one['batch']}" for one in measured if one["stack_is_faster_by"] < 1
    ]
    return [
        "A step is forward, loss, backward and SGD with momentum, a learning rate for each copy; the faster number of "
        "threads counts, for each way.",
        f"Slower than the loop: {'; '.join(slower) or 'none'}. On a CPU, convolutions with stacked weights become "
        "grouped ones, and a large step already fills the cores. Stacking is meant for devices that one small step "
        "leaves mostly idle.",
    ]


def draw(measured: list[dict[str, Any]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=7.5, height=0.45 * len(measured) + 1.5)
    names = [f"{one['case'].split(',')[0]}, batch {one['batch']}, {one['copies']} copies" for one in measured][::-1]
    values = [one["stack_is_faster_by"] for one in measured][::-1]
    bars = axis.barh(names, values, color=[COLORS["vmap"] if value >= 1 else COLORS["native"] for value in values])
    axis.bar_label(bars, fmt="%.2fx", padding=3)
    axis.axvline(1, color="0.3", linewidth=1)
    axis.set_xlim(0, 1.15 * max(*values, 1))
    axis.set_xlabel("stack against a loop, times as fast")
    return figure

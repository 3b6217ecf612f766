"""How close the kernel comes to the machine on all cores: few and many inputs, wide networks, prediction."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import MatrixProduct
from benchmarks.harness.measure import Contender, Tick, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.problems import paper_members
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target, at_worst
from shoal.errors import UserError
from shoal.machine import thread_count
from shoal.population.layout import Layout
from shoal.population.members import Member

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHILD = os.path.join(os.path.dirname(__file__), "limits_child.py")
FEW = (5, 10)  # features
WIDE = 512  # neurons, and more


@dataclass(frozen=True)
class Case:
    """The paper's networks (`width` 0), or a few of one width."""

    features: int
    batch: int
    width: int = 0
    optimizer: str = "sgd"
    outputs: int = 2
    predicted: int = 0  # rows to predict, as well

    def __str__(self) -> str:
        if not self.width:
            return f"1 to 100 neurons, {self.features} features, batch {self.batch}"
        return f"{self.features}-{self.width}-{self.outputs}, {self.optimizer}, batch {self.batch}"

    def members(self, count: int, few: int) -> list[Member]:
        if not self.width:
            return paper_members(count, self.batch)
        rate = 1e-3 if self.optimizer == "sgd" else 1e-5
        return [
            Member((self.width,), "relu", self.optimizer, rate, batch_size=self.batch, seed=seed) for seed in range(few)
        ]


CASES = (
    *(Case(features, 32) for features in (5, 10, 100)),
    *(Case(features, 256, predicted=100_000) for features in (5, 10, 100)),
    *(Case(784, 128, width, outputs=10) for width in (512, 1024, 2048, 4096)),
    *(Case(784, 128, width, "adam", outputs=10) for width in (512, 2048)),
)


@benchmark(
    needs=("torch",),
    quick={
        "cases": (Case(5, 32), Case(10, 64, predicted=500), Case(20, 64, WIDE)),
        "members": 40,
        "wide": 2,
        "rows": 128,
        "seconds": 0.01,
        "repeats": 2,
    },
)
def limits(
    *,
    cases: tuple[Case, ...] = CASES,
    members: int = 1000,
    wide: int = 4,
    rows: int = 1000,
    seconds: float = 0.3,
    repeats: int = 5,
    before: Path | None = None,
) -> Result:
    """How close the kernel comes to the machine on all cores: few and many inputs, wide networks, prediction.

    members: Networks of 1 to 100 neurons.
    wide: Networks of a wide case.
    rows: Rows.
    seconds: Seconds that a run takes at least.
    repeats: Times that everything is measured; the best counts.
    before: Folder of the sources of another version, with its kernel: compare.
    """
    product = MatrixProduct(thread_count())
    versions = {"now": None, **({"before": before} if before else {})}
    total = sum(rounds(1 + len(versions) * (1 + bool(case.predicted)), repeats) for case in cases)
    with progress_bar("limits", total) as tick:
        found = [
            measure_case(case, case.members(members, wide), versions, rows, seconds, repeats, product, tick)
            for case in cases
        ]
    peak = product.as_dict()
    for case in found:
        complete(case, peak["gflops"])
    whole = limits.is_whole(members=members, rows=rows, cases=cases)
    return Result(
        title="How close the kernel comes to the machine",
        data={"peak": peak, "cases": found}, tables=[table(found), *prediction_table(found)],
        targets=targets(found, whole), notes=notes(members, wide, rows, before, peak),
        draw=lambda: draw(found),
    )  # fmt: skip


class Version:
    """A process that trains and predicts with one version of Shoal."""

    def __init__(self, sources: Path | None) -> None:
        env = {**os.environ, "PYTHONPATH": str(sources)} if sources else None
        self.process = subprocess.Popen(
            [sys.executable, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        where = Path(self._line())
        if sources and sources.resolve() not in where.resolve().parents:
            self.close()
            raise UserError(f"--before must be a folder with a folder shoal, its kernel included; got {sources}")

    def ask(self, **told: Any) -> float:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(told) + "\n")
            self.process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            self.close()
            raise RuntimeError("the process that trains has ended; what it printed stands above")
        return answer.strip()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it may have ended
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def measure_case(
    case: Case,
    members: list[Member],
    versions: dict[str, Path | None],
    rows: int,
    seconds: float,
    repeats: int,
    product: MatrixProduct,
    tick: Tick,
) -> dict[str, Any]:
    """Training, and prediction where the case asks for it, of each version, and the matrix product, in turn."""
    layout = Layout(members, case.features, case.outputs)
    told = {
        "members": [[member.hidden, _fields(member)] for member in members], "features": case.features,
        "outputs": case.outputs, "rows": rows, "predicted": case.predicted, "threads": thread_count(),
    }  # fmt: skip
    with ExitStack() as running:
        contenders = [Contender("matrix product", product, product)]
        for name, sources in versions.items():
            version = running.enter_context(closing(Version(sources)))
            version.ask(**told)
            contenders += _contenders(name, version, case, seconds)
        timings = race(contenders, repeats, lambda what: tick(f"{case}: {what}"))
    training = float(layout.flops_per_row.sum())
    forward = sum(2.0 * a * b for i in range(len(layout)) for a, b in layout.shapes(i))
    return {
        **asdict(case), "case": str(case), "flops": training * rows, "rows": rows,
        "forward_share": forward / training,
        "timings": {name: timing.as_dict() for name, timing in timings.items() if name != "matrix product"},
    }  # fmt: skip


def _fields(member: Member) -> dict[str, Any]:
    names = ("activation", "optimizer", "learning_rate", "batch_size", "seed")
    return {name: getattr(member, name) for name in names}


def _contenders(name: str, version: Version, case: Case, seconds: float) -> list[Contender]:
    """As many epochs in a run as fill `seconds`."""

    def train(epochs: int) -> float:
        return version.ask(do="train", epochs=epochs)

    train(1)
    epochs = max(1, math.ceil(seconds / train(1)))
    found = [Contender(f"train, {name}", lambda: train(epochs), lambda: train(1), divisor=epochs)]
    if case.predicted:
        found.append(
            Contender(f"predict, {name}", lambda: version.ask(do="predict"), lambda: version.ask(do="predict"))
        )
    return found


def complete(case: dict[str, Any], peak: float) -> None:
    """Add speeds, shares and ratios to what was measured."""
    timings = case["timings"]
    now = timings["train, now"]["seconds"]
    case["gflops"] = case["flops"] / now / 1e9
    case["share_of_peak"] = case["gflops"] / peak
    if "train, before" in timings:
        case["times_as_fast"] = timings["train, before"]["seconds"] / now
    if case["predicted"]:
        seconds = timings["predict, now"]["seconds"]
        allowed = now / case["rows"] * case["predicted"] * case["forward_share"]
        case["of_forward_share"] = allowed / seconds
        if "predict, before" in timings:
            case["predicts_times_as_fast"] = timings["predict, before"]["seconds"] / seconds


def targets(cases: list[dict[str, Any]], whole: bool) -> list[Target]:
    def share(chosen: Sequence[dict[str, Any]]) -> float | None:
        return at_worst(100 * case["share_of_peak"] for case in chosen)

    paper = [case for case in cases if not case["width"]]
    many = {batch: [case for case in paper if (case["features"], case["batch"]) == (100, batch)] for batch in (32, 256)}
    wide = [case for case in cases if case["width"] >= WIDE]
    few = [case["times_as_fast"] for case in paper if case["features"] in FEW and "times_as_fast" in case]
    predicted = [100 * case["of_forward_share"] for case in cases if case["predicted"]]
    worst = min(wide, key=lambda case: case["share_of_peak"])["case"] if wide else ""
    return [
        Target("100 features, batch 32: share of the matrix product", share(many[32]), 80.0, unit="%", complete=whole),
        Target("100 features, batch 256: share of it", share(many[256]), 85.0, unit="%", complete=whole),
        Target("wide networks: share of it, worst case", share(wide), 80.0, unit="%", note=worst, complete=whole),
        Target("5 and 10 features: times as fast as before, worst case", at_worst(few), 2.0, unit="x", complete=whole),
        Target("prediction: speed of the forward part of training, worst case", at_worst(predicted), 100.0, unit="%",
               note="by the share of multiplications", complete=whole),
    ]  # fmt: skip


def table(cases: list[dict[str, Any]]) -> ResultTable:
    header = ["case", "seconds per epoch", "GFLOPS", "share of the matrix product"]
    compared = any("times_as_fast" in case for case in cases)
    rows = []
    for case in cases:
        row = [case["case"], significant(case["timings"]["train, now"]["seconds"]), significant(case["gflops"])]
        row.append(f"{100 * case['share_of_peak']:.0f}%")
        rows.append(row + ([f"{case['times_as_fast']:.2f}x"] if compared else []))
    return ResultTable("Training", header + (["as fast as before"] if compared else []), rows)


def prediction_table(cases: list[dict[str, Any]]) -> list[ResultTable]:
    chosen = [case for case in cases if case["predicted"]]
    if not chosen:
        return []
    compared = any("predicts_times_as_fast" in case for case in chosen)
    header = ["case", "rows", "seconds", "of the speed of the forward part of training"]
    rows = []
    for case in chosen:
        row = [case["case"], f"{case['predicted']:,}", significant(case["timings"]["predict, now"]["seconds"])]
        row.append(f"{100 * case['of_forward_share']:.0f}%")
        rows.append(row + ([f"{case['predicts_times_as_fast']:.2f}x"] if compared else []))
    return [ResultTable("Prediction by all networks", header + (["as fast as before"] if compared else []), rows)]


def notes(members: int, wide: int, rows: int, before: Path | None, peak: dict[str, Any]) -> list[str]:
    found = [
        f"Peak: torch's product of two {peak['size']} x {peak['size']} matrices reaches {peak['gflops']:.0f} GFLOPS on "
        f"{peak['threads']} threads, the best of all calls between the runs.",
        f"{members:,} of the paper's networks (1 to 100 neurons, ten activations, 2 outputs), or "
        f"{wide} wide ones (relu), on {rows:,} rows. GFLOPS count multiplications and additions of "
        "the matrix products, padding not counted: not those of activations, losses and optimisers.",
        "The forward part of training is taken to have the share of time that it has of multiplications: about half "
        "with one hidden layer, since the gradient of the inputs is not needed.",
    ]
    if before:
        found.append("Before: an earlier version of Shoal, in a process of its own, in turn with this one.")
    return found


def draw(cases: list[dict[str, Any]]) -> Figure:
    """The share of the matrix product of each case."""
    figure, axes = grid_of_axes(1, 1, width=8.0, height=0.34 * len(cases) + 1.0)
    axis = axes[0][0]
    names = [case["case"] for case in cases][::-1]
    bars = axis.barh(names, [100 * case["share_of_peak"] for case in cases][::-1], color=COLORS["native"], height=0.7)
    axis.bar_label(bars, fmt="%.0f%%", padding=3, fontsize=9)
    axis.axvline(100, color="0.3", linestyle="--", linewidth=1)
    axis.grid(False, axis="y")
    axis.set(xlim=(0, 112), xlabel="share of the speed of torch's matrix product")
    return figure

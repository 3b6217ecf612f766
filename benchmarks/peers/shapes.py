"""Networks of one shape, where stacking them is easy: native against torch.func.vmap, JAX and torch.bmm by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import peers
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.machine import MatrixProduct, installed, require
from benchmarks.harness.measure import Contender, Tick, progress_bar, race, rounds
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.problems import LEARNING_RATE, Problem, random_data
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target, at_worst
from shoal.machine import thread_count
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENGINES = ("native", "grouped", "vmap", "bmm", "jax")

# Each engine's variants, of which the fastest counts. A chunk is networks that run an epoch before the next ones do.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "native": [{}],
    "grouped": [{}],
    "vmap": [{}, {"chunk": 250}],
    "bmm": [{}, {"chunk": 100}, {"chunk": 25}],
    "jax": [{"formulation": f, "chunk": c} for f in ("vmap", "einsum", "wide") for c in (None, 100)],
}


@dataclass(frozen=True)
class Case:
    hidden: tuple[int, ...]
    activation: str
    optimizer: str
    batch: int

    def __str__(self) -> str:
        shape = " and ".join(map(str, self.hidden))
        return f"{shape} neurons, {self.activation}, {self.optimizer}, batch {self.batch}"

    def members(self, count: int) -> list[Member]:
        rate = LEARNING_RATE if self.optimizer == "sgd" else 1e-3
        return [
            Member(self.hidden, self.activation, self.optimizer, rate, batch_size=self.batch, seed=seed)
            for seed in range(count)
        ]


CASES = (
    *(Case((50,), activation, "sgd", batch) for batch in (32, 128) for activation in ("relu", "tanh")),
    Case((64, 64), "relu", "adam", 32),
)


@benchmark(
    needs=("torch",),
    quick={"cases": (CASES[0], CASES[-1]), "epochs": 1, "repeats": 2},
)
def shapes(
    *,
    engines: tuple[str, ...] | None = None,
    cases: tuple[Case, ...] = CASES,
    members: int = 1000,
    rows: int = 1000,
    features: int = 100,
    epochs: int = 2,
    repeats: int = 3,
) -> Result:
    """Networks of one shape, where stacking them is easy: against torch.func.vmap, JAX and torch.bmm by hand.

    engines: native, grouped, vmap, bmm, jax; by default all that are installed.
    members: Networks.
    rows: Rows.
    features: Features.
    epochs: Epochs in one run.
    repeats: Times that everything is measured; the best counts.
    """
    require(*({"jax"} & set(engines or ())))
    chosen = _engines(engines)
    product, data = MatrixProduct(thread_count()), random_data(rows, features)
    variants = sum(len(VARIANTS[name]) for name in chosen) + 1
    with progress_bar("shapes", len(cases) * rounds(variants, repeats)) as tick:
        found = [measure_case(case, chosen, members, data, epochs, repeats, product, tick) for case in cases]
    peak = product.as_dict()
    for case in found:
        complete(case, peak["gflops"])
    whole = shapes.is_whole(members=members, rows=rows, features=features, cases=cases)
    return Result(
        title=f"{members:,} networks of one shape, {rows:,} rows, {features} features",
        settings={"engines": chosen}, data={"peak": peak, "cases": found}, tables=[table(found)],
        targets=targets(found, whole), notes=notes(peak, found), draw=lambda: draw(found, peak["gflops"]),
    )  # fmt: skip


def measure_case(
    case: Case,
    engines: Sequence[str],
    members: int,
    data: tuple[np.ndarray, np.ndarray],
    epochs: int,
    repeats: int,
    product: MatrixProduct,
    tick: Tick,
) -> dict[str, Any]:
    X, y = data
    problem = Problem(Population(case.members(members), X.shape[1], 2), X, y)
    contenders = [Contender("matrix product", product, product)]
    for name in engines:
        for options in VARIANTS[name]:
            peer = peers.make(name, problem, thread_count(), **options)
            variant = ", ".join(str(value) for value in options.values() if value) or "all at once"
            contenders.append(_contender(name, peer, len(X), epochs, variant, case.batch))
    timings = race(contenders, repeats, lambda what: tick(f"{case}: {what}"))
    timings.pop("matrix product")
    problem.check()
    numbers = {name: {**t.as_dict(), "gflops": problem.flops / t.seconds / 1e9} for name, t in timings.items()}
    return {
        "case": str(case), "hidden": list(case.hidden), "optimizer": case.optimizer, "flops": problem.flops,
        "engines": numbers,
    }  # fmt: skip


def _contender(name: str, peer: peers.Peer, rows: int, epochs: int, variant: str, batch: int) -> Contender:
    """grouped packs its networks in each fit: a fit of one update is taken off, and that update with it."""
    packs = name == "grouped" and epochs * rows > batch
    trained = epochs - (min(batch, rows) / rows if packs else 0.0)
    idle = peer.warm_up if packs else None
    return Contender(name, lambda: peer.run(epochs), peer.warm_up, trained, variant=variant, idle=idle)


def _engines(engines: Sequence[str] | None) -> list[str]:
    """What was asked for, native first; or everything that is installed."""
    if engines is None:
        return [name for name in ENGINES if name != "jax" or installed("jax")]
    for name in engines:
        one_of("--engine", name, ENGINES)
    return ["native", *(name for name in engines if name != "native")]


def complete(case: dict[str, Any], peak: float) -> None:
    """Add ratios and shares to what was measured."""
    native = case["engines"]["native"]["seconds"]
    for numbers in case["engines"].values():
        numbers["native_is_faster_by"] = numbers["seconds"] / native
        numbers["share_of_peak"] = numbers["gflops"] / peak


def targets(cases: list[dict[str, Any]], whole: bool) -> list[Target]:
    found = []
    for engine, bound in (("vmap", 3.0), ("jax", 2.5)):
        ratios = {
            case["case"]: case["engines"][engine]["native_is_faster_by"] for case in cases if engine in case["engines"]
        }
        worst = (
            f"of {len(ratios)}: {min(ratios, key=ratios.__getitem__)}" if ratios else "not asked for or not installed"
        )
        what = f"native against {engine}, worst case"
        found.append(Target(what, at_worst(ratios.values()), bound, unit="x", note=worst, complete=whole))
    deep = [case for case in cases if len(case["hidden"]) == 2 and case["optimizer"] == "adam"]
    share = at_worst(100 * case["engines"]["native"]["share_of_peak"] for case in deep)
    what = "share of matrix-product peak, two hidden layers with Adam, batch 32"
    found.append(Target(what, share, 60.0, unit="%", note=deep[0]["case"] if deep else "", complete=whole))
    return found


def table(cases: list[dict[str, Any]]) -> ResultTable:
    rows = []
    for case in cases:
        for name, numbers in case["engines"].items():
            ratio = "" if name == "native" else f"{significant(numbers['native_is_faster_by'])}x"
            rows.append([
                case["case"] if name == "native" else "", name, significant(numbers["seconds"]),
                significant(numbers["gflops"]), f"{100 * numbers['share_of_peak']:.0f}%", ratio, numbers["variant"],
            ])  # fmt: skip
    header = ["case", "engine", "seconds per epoch", "GFLOPS", "share of peak", "native is faster", "fastest variant"]
    return ResultTable("Networks of one shape", header, rows)


def notes(peak: dict[str, Any], cases: list[dict[str, Any]]) -> list[str]:
    found = [
        f"Peak: torch's product of two {peak['size']} x {peak['size']} matrices reaches {peak['gflops']:.0f} GFLOPS on "
        f"{peak['threads']} threads.",
        "vmap: torch.func.vmap over stacked networks. bmm: forward and backward by hand. Both with all networks at "
        "once and in chunks that fit into the cache; the fastest counts.",
    ]
    if "jax" in cases[0]["engines"]:
        found.append(
            "jax: a whole epoch in one jit, lax.scan over batches, donated parameters, compiling not counted; "
            "vmap(grad), batched einsum and one wide first layer, each at once and in chunks; the fastest counts."
        )
    else:
        found.append("jax was not measured: pip install '.[jax]'.")
    return found


def draw(cases: list[dict[str, Any]], peak: float) -> Figure:
    """GFLOPS of each engine as bars, a panel for each case, with the peak as a line."""
    figure, axes = grid_of_axes(len(cases), 1, width=7.0, height=1.7)
    for case, (axis,) in zip(cases, axes, strict=True):
        names = list(case["engines"])[::-1]
        values = [case["engines"][name]["gflops"] for name in names]
        bars = axis.barh(names, values, color=[COLORS[name] for name in names], height=0.7)
        axis.bar_label(bars, fmt="%.0f", padding=3, fontsize=9)
        axis.axvline(peak, color="0.3", linestyle="--", linewidth=1, label=f"torch's matrix product: {peak:.0f}")
        axis.grid(False, axis="y")
        axis.set_xlim(0, 1.12 * max(peak, *values))
        axis.set_title(case["case"], fontsize=10)
    axes[-1][0].set_xlabel("GFLOPS (padding not counted)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower right", frameon=False, fontsize=9)
    return figure

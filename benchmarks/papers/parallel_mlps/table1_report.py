"""Table 1 as tables, targets and a plot, from its numbers alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness.measure import LONG
from benchmarks.harness.plots import COLORS, grid_of_axes, plain_ticks
from benchmarks.harness.problems import PAPER_MEMBERS
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target, at_worst

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS_OF_THE_PAPER = 36
Cell = dict[str, Any]


def build_result(members: int, engines: Sequence[str], data: dict[str, Any]) -> Result:
    """`data` has peak, cells, setup and memory, as measured; ratios and shares are added to the cells here."""
    for cell in data["cells"]:
        _complete(cell, data["peak"]["gflops"])
    return Result(
        title=f"Table 1 of the paper: {members:,} networks, one epoch", data=data, settings={"engines": engines},
        tables=[seconds_table(data["cells"]), ratio_table(data["cells"])],
        targets=targets(data["cells"], data["setup"], data["memory"]),
        notes=notes(data),
        draw=lambda: draw(data["cells"]),
    )  # fmt: skip


def _complete(cell: Cell, peak: float) -> None:
    native = cell["engines"]["native"]["seconds"]
    for numbers in cell["engines"].values():
        numbers["native_is_faster_by"] = numbers["seconds"] / native
        numbers["share_of_peak"] = numbers["gflops"] / peak


def faster(cell: Cell, engine: str) -> float | None:
    """How many times faster native is; None if the engine was not measured."""
    return cell["engines"][engine]["native_is_faster_by"] if engine in cell["engines"] else None


def scaled(cells: list[Cell], engine: str) -> bool:
    """Whether any time of this engine was extrapolated from a part."""
    return any(cell["engines"][engine]["scaled"] for cell in cells if engine in cell["engines"])


def targets(cells: list[Cell], setup: dict[str, Any], memory: dict[str, Any]) -> list[Target]:
    """The targets of the project, against these cells. They speak of 10,000 networks in all cells of the paper."""
    whole = memory["members"] == PAPER_MEMBERS
    every = whole and sum(cell["paper"] is not None for cell in cells) == CELLS_OF_THE_PAPER
    where = f"{len(cells)} of {CELLS_OF_THE_PAPER} cells"
    found = []
    for engine, mean in (("reference", 30.0), ("sequential", 50.0)):
        ratios = [ratio for cell in cells if (ratio := faster(cell, engine)) is not None]
        middle = statistics.geometric_mean(ratios) if ratios else None
        about: dict[str, Any] = {"unit": "x", "note": where, "complete": every, "scaled": scaled(cells, engine)}
        found += [
            Target(f"native against {engine}, worst cell", at_worst(ratios), 10.0, **about),
            Target(f"native against {engine}, geometric mean", middle, mean, **about),
        ]
    return [*found, _ahead_of_paper(cells, every), _share_of_peak(cells, every), *_costs(setup, memory, whole)]


def _ahead_of_paper(cells: list[Cell], every: bool) -> Target:
    """The smallest of (our speed-up over sequential training) / (the paper's)."""
    margins = [
        ratio / cell["paper"]["ratio"] for cell in cells if cell["paper"] and (ratio := faster(cell, "sequential"))
    ]
    note = f"ahead in {sum(margin > 1 for margin in margins)} of {len(margins)} cells"
    what = "speed-up over sequential / the paper's, worst cell"
    part = scaled(cells, "sequential")
    return Target(what, at_worst(margins), 1.0, unit="x", note=note, complete=every, scaled=part)


def _share_of_peak(cells: list[Cell], every: bool) -> Target:
    shares = [100 * cell["engines"]["native"]["share_of_peak"] for cell in cells if cell["features"] == 100]
    note = f"median {statistics.median(shares):.0f}% of {len(shares)} cells" if shares else "no cell has 100 features"
    what = "share of matrix-product peak, worst cell of 100 features"
    return Target(what, at_worst(shares), 70.0, unit="%", note=note, complete=every)


def _costs(setup: dict[str, Any], memory: dict[str, Any], whole: bool) -> list[Target]:
    size = f"{memory['samples']:,} x {memory['features']}, batch {memory['batch']}, {memory['members']:,} networks"
    largest = whole and (memory["samples"], memory["features"], memory["batch"]) == (10_000, 100, 256)
    what = "peak memory of the process, largest cell"
    return [
        Target(what, memory["peak_bytes"] / 1e9, 1.0, False, " GB", size, complete=largest),
        Target(
            "setting up all networks", setup["seconds"], 1.0, False, " s", "members, layout, weights", complete=whole
        ),
    ]


def seconds_table(cells: list[Cell]) -> ResultTable:
    engines = list(cells[0]["engines"])
    rows = []
    for cell in cells:
        native = cell["engines"]["native"]
        times = [mark(cell["engines"][name]) for name in engines]
        share = f"{100 * native['share_of_peak']:.0f}%"
        rows.append([*_place(cell), *times, significant(native["gflops"]), share])
    header = ["samples", "features", "batch", *engines, "native GFLOPS", "share of peak"]
    return ResultTable("Seconds per epoch (~ scaled up from a part)", header, rows)


def ratio_table(cells: list[Cell]) -> ResultTable:
    """Ratios to native, and the paper's seconds and ratio on its own CPU."""
    others = [name for name in cells[0]["engines"] if name != "native"]
    rows = []
    for cell in cells:
        ratios = [_ratio(faster(cell, name), cell["engines"][name]["scaled"]) for name in others]
        theirs = cell["paper"]
        numbers = [significant(theirs[key]) for key in ("parallel", "sequential", "ratio")] if theirs else ["-"] * 3
        rows.append([*_place(cell), *ratios, *numbers[:2], f"{numbers[2]}x"])
    if len(cells) > 1:
        means = [
            _ratio(statistics.geometric_mean([faster(cell, name) or 0.0 for cell in cells]), scaled(cells, name))
            for name in others
        ]
        known = [cell["paper"]["ratio"] for cell in cells if cell["paper"]]
        rows.append(
            ["mean", "", "", *means, "", "", f"{significant(statistics.geometric_mean(known))}x" if known else "-"]
        )
    header = ["samples", "features", "batch", *others, "paper parallel s", "paper sequential s", "paper ratio"]
    title = "Native is so many times faster than (last row: geometric mean; ~ from a scaled time)"
    return ResultTable(title, header, rows)


def _ratio(value: float | None, is_scaled: bool) -> str:
    return f"{'~' * is_scaled}{significant(value or 0.0)}x"


def mark(numbers: dict[str, Any]) -> str:
    """Seconds, with a tilde if they were scaled."""
    return ("~" if numbers["scaled"] else "") + significant(numbers["seconds"])


def _place(cell: Cell) -> list[str]:
    return [f"{cell['samples']:,}", str(cell["features"]), str(cell["batch"])]


def notes(data: dict[str, Any]) -> list[str]:
    peak, memory, setup = data["peak"], data["memory"], data["setup"]
    found = [
        f"Peak: torch's product of two {peak['size']} x {peak['size']} matrices reaches {peak['gflops']:.0f} GFLOPS on "
        f"{peak['threads']} threads, the best of many calls spread over this run.",
        "GFLOPS count the multiplications and additions of each network itself; padding is not counted.",
        f"The best of the repeats counts, for every engine; engines take turns within a cell. Where two runs take more "
        f"than {LONG:.0f} s there are two, for native as for all.",
    ]
    if "grouped" in data["cells"][0]["engines"]:
        found.append(
            "grouped: the time of a fit of one update is taken off, and that update with it: each call of fit packs "
            "all networks, which a longer training would do once. native is charged for the whole of its fit."
        )
    for name in data["cells"][0]["engines"]:
        parts = {cell["engines"][name]["measured_on"] for cell in data["cells"] if cell["engines"][name]["scaled"]}
        if parts:
            found.append(f"~ {name}: measured on {'; on '.join(sorted(parts))}; scaled.")
    found.append(
        f"Setting up: {setup['members_seconds']:.2f} s to write down the members, {setup['population_seconds']:.2f} s "
        f"for layout and weights. Memory: {memory['peak_bytes'] / 1e6:.0f} MB at most, of which "
        f"{memory['imports_bytes'] / 1e6:.0f} MB after the imports, in a process that does nothing else."
    )
    return found


def draw(cells: list[Cell]) -> Figure:
    """A panel for each batch size and number of samples; seconds over features, both in logarithms."""
    samples, batches = sorted({c["samples"] for c in cells}), sorted({c["batch"] for c in cells})
    figure, axes = grid_of_axes(len(batches), len(samples))
    for row, batch in enumerate(batches):
        for column, count in enumerate(samples):
            panel, axis = [c for c in cells if c["batch"] == batch and c["samples"] == count], axes[row][column]
            panel.sort(key=lambda c: c["features"])
            for name in panel[0]["engines"]:
                _draw_engine(axis, panel, name)
            for name, style in (("parallel", "--"), ("sequential", ":")):
                theirs = [(c["features"], c["paper"][name]) for c in panel if c["paper"]]
                if theirs:
                    axis.plot(*zip(*theirs, strict=True), style, color="0.45", label=f"the paper, {name} (its CPU)")
            axis.set(xscale="log", yscale="log", xlabel="features")
            axis.set_title(f"{count:,} samples, batch {batch}", fontsize=10)
            axis.set_ylabel("seconds per epoch" if column == 0 else "")
            plain_ticks(axis, [c["features"] for c in panel])
    handles, labels = axes[0][0].get_legend_handles_labels()
    (hollow,) = axes[0][0].plot([], [], "o", markersize=5, color="0.3", markerfacecolor="white")
    figure.legend(
        [*handles, hollow], [*labels, "hollow: scaled up from a part"],
        loc="outside lower center", ncols=4, frameon=False,
    )  # fmt: skip
    return figure


def _draw_engine(axis: Any, panel: list[Cell], name: str) -> None:
    """A line, and a dot for each time: hollow where it was scaled."""
    times = [(c["features"], c["engines"][name]["seconds"]) for c in panel]
    axis.plot(*zip(*times, strict=True), color=COLORS[name], label=name, marker="o", markersize=4)
    hollow = [time for time, cell in zip(times, panel, strict=True) if cell["engines"][name]["scaled"]]
    if hollow:
        look = {"color": COLORS[name], "markerfacecolor": "white", "markersize": 5, "zorder": 3}
        axis.plot(*zip(*hollow, strict=True), "o", **look)

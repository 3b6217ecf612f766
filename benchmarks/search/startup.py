"""What a user waits for besides training: `import shoal`, `shoal --help`, and the report of a large search."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.report_data import search_data
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of the package as a user has it: in a development installation the finder of editable packages comes on top.
COMMANDS = {"import shoal": ["-c", "import shoal"], "shoal --help": ["-m", "shoal", "--help"], "python": ["-c", "pass"]}
BOUNDS = {"import shoal": 0.3, "shoal --help": 0.5, "report": 10.0}
MEMBERS = 10_000


@benchmark(quick={"repeats": 3})
def report(*, members: int = MEMBERS, repeats: int = 7) -> Result:
    """What one waits for besides training: `import shoal`, `shoal --help`, the report of 10,000 members.

    members: Members of the report.
    repeats: Times that everything is measured.
    """
    rounds = repeats * len(COMMANDS) + min(3, repeats)
    with progress_bar("report", rounds) as tick:
        raw = measure_commands(repeats, tick)
        pages, size = measure_report(members, repeats, tick)
    raw["report"] = pages
    best = {name: min(seconds) for name, seconds in raw.items()}
    data = {"seconds": best, "raw_seconds": raw, "report_bytes": size}
    return Result(
        title=f"Waiting: import, --help, and a report of {members:,} members", data=data,
        tables=[table(members, data)], targets=targets(members, best), notes=notes(members, best),
        draw=lambda: draw(best),
    )  # fmt: skip


def measure_commands(repeats: int, tick: Tick) -> dict[str, list[float]]:
    """Seconds of whole processes, the start of Python included, in turn."""
    raw: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for name in [name for _ in range(repeats) for name in COMMANDS]:
        tick(name)
        begun = time.perf_counter()
        subprocess.run([sys.executable, *COMMANDS[name]], check=True, stdout=subprocess.DEVNULL)
        raw[name].append(time.perf_counter() - begun)
    return raw


def measure_report(members: int, repeats: int, tick: Tick) -> tuple[list[float], int]:
    """Seconds from a search's results to the page, and the bytes of the page."""
    from shoal.report import search_page

    data, seconds, page = search_data(rows=members), [], ""
    for _ in range(min(3, repeats)):
        tick("report")
        begun = time.perf_counter()
        page = search_page(data)
        seconds.append(time.perf_counter() - begun)
    return seconds, len(page.encode())


def targets(members: int, best: dict[str, float]) -> list[Target]:
    found = []
    for name, bound in BOUNDS.items():
        what = f"report of {MEMBERS:,} members" if name == "report" else name
        complete = name != "report" or members >= MEMBERS
        found.append(Target(what, best[name], bound, at_least=False, unit=" s", complete=complete))
    return found


def table(members: int, data: dict[str, Any]) -> ResultTable:
    rows = [[name, significant(seconds)] for name, seconds in data["seconds"].items() if name != "report"]
    size = f"{data['report_bytes'] / 1e6:.1f} MB"
    rows.append([f"report of {members:,} members ({size})", significant(data["seconds"]["report"])])
    return ResultTable("Seconds, the best of all runs", ["what", "seconds"], rows)


def notes(members: int, best: dict[str, float]) -> list[str]:
    return [
        f"Commands are whole processes of this installation; starting Python alone takes {best['python']:.3f} s of it.",
        f"The report is built from made-up results of {members:,} recipes on 10 classes, curves included.",
    ]


def draw(best: dict[str, float]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.4)
    names = list(BOUNDS)
    bars = axis.barh(names[::-1], [best[name] for name in names[::-1]], color=COLORS["native"], height=0.5)
    axis.bar_label(bars, fmt="%.2f s", padding=3)
    for k, name in enumerate(names[::-1]):
        axis.plot([BOUNDS[name]] * 2, [k - 0.35, k + 0.35], color="0.3", linewidth=2)
    axis.set(xscale="log", xlabel="seconds (the line is the target)", xlim=(0.03, 30))
    return figure

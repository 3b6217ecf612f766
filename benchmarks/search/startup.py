"""What a user waits for besides training: `import shoal`, `shoal --help`, and the report of a large search."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from shoal.population.members import ACTIVATIONS

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

    data, seconds, page = made_up_search(members), [], ""
    for _ in range(min(3, repeats)):
        tick("report")
        begun = time.perf_counter()
        page = search_page(data)
        seconds.append(time.perf_counter() - begun)
    return seconds, len(page.encode())


def made_up_search(members: int, seed: int = 0) -> dict[str, Any]:
    """What a search over so many recipes hands to the report; numbers are drawn, sizes are real."""
    random = np.random.default_rng(seed)
    classes, epochs = [str(k) for k in range(10)], list(range(1, 101))
    curve = np.exp(-np.array(epochs) / 20)
    bins = [{"predicted": p, "observed": min(1.0, p + 0.02), "count": 150} for p in np.arange(0.05, 1, 0.1).tolist()]
    return {
        "title": "made-up.csv", "created": "2026-01-01 00:00", "version": "0", "task": "classification",
        "data": {
            "rows": 10_000, "columns": 60, "target": "class", "classes": classes, "notes": [],
            "table": [{"name": f"column {k}", "kind": "number", "missing": 0.0, "note": ""} for k in range(60)],
        },
        "search": {
            "strategy": "halving", "recipes": members, "networks": 5 * members, "folds": 5, "cv": "stratified 5-fold",
            "epochs": 100 * members, "seconds": 600.0, "memory": 1_000_000_000, "budget": 600, "seed": 0, "threads": 2,
            "processor": "made up", "phases": [{"name": "training", "seconds": 600.0}],
            "space": {"hidden": "(), 8 to 512"}, "interrupted": False,
        },
        "score": {
            "metric": "accuracy", "raw": 0.9, "corrected": 0.89, "low": 0.88, "high": 0.9, "confidence": 0.95,
            "chance": 0.1, "others": {"log-loss": 0.3},
        },
        "ensemble": {
            "used": True, "recipes": 20, "networks": 100, "parameters": 1_000_000, "best_single": 0.89, "score": 0.9,
            "gain": 0.01, "milliseconds_per_1000_rows": 10.0,
            "parts": [{"recipe": k, "label": f"recipe {k}", "weight": 0.05} for k in range(20)],
        },
        "leaderboard": leaderboard(members, random),
        "curves": [
            {"label": label, "recipe": k, "epochs": epochs, "train": curve.tolist(), "valid": (curve + 0.1).tolist()}
            for k, label in enumerate(("best", "median"))
        ],
        "luck": {"architecture": 0.7, "seeds": 0.1, "folds": 0.2},
        "confusion": {"classes": classes, "counts": random.integers(0, 200, (10, 10)).tolist()},
        "residuals": None, "calibration": {"bins": bins, "error": 0.02, "temperature": 1.1},
    }  # fmt: skip


def leaderboard(members: int, random: np.random.Generator) -> dict[str, Any]:
    columns = {
        "rank": list(range(1, members + 1)),
        "recipe": random.permutation(members).tolist(),
        "score": np.sort(random.beta(20, 3, members))[::-1].tolist(),
        "fold_spread": random.uniform(0, 0.05, members).tolist(),
        "seed_spread": random.uniform(0, 0.02, members).tolist(),
        "loss": random.uniform(0.2, 2, members).tolist(),
        "hidden": [f"{a}x{b}" for a, b in random.integers(8, 512, (members, 2)).tolist()],
        "width": random.integers(8, 1024, members).tolist(),
        "activation": random.choice(ACTIVATIONS, members).tolist(),
        "learning_rate": np.exp(random.uniform(-9, -3, members)).tolist(),
        "weight_decay": np.exp(random.uniform(-12, -2, members)).tolist(),
        "dropout": random.choice([0.0, 0.1, 0.2, 0.4], members).tolist(),
        "batch_size": random.choice([16, 32, 64, 128], members).tolist(),
        "epochs": random.integers(5, 100, members).tolist(),
        "stopped": random.choice(["yes", ""], members).tolist(),
        "parameters": random.integers(100, 500_000, members).tolist(),
        "seconds": random.uniform(0.01, 3, members).tolist(),
        "seeds": random.integers(1, 4, members).tolist(),
    }  # fmt: skip
    kinds = {name: "text" if isinstance(values[0], str) else "number" for name, values in columns.items()}
    return {
        "columns": [{"key": name, "label": name.replace("_", " "), "kind": kind} for name, kind in kinds.items()],
        "rows": [list(row) for row in zip(*columns.values(), strict=True)],
    }


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

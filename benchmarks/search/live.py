"""What the live page costs a search, what its browser does for 100,000 dots, and how large a replay is."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import Tick, progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.search.live_browser import WIDTHS, browse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COST, MEGABYTES, SCRIPTING = 1.01, 2.0, 50.0
NETWORKS, DOTS, PAIRS, RECIPES = 10_000, 100_000, 15, 60
TINY = {"hidden": [(2,)], "epochs": [1], "encoding": ["plain"]}  # learning rates and activations differ
READER = "import sys, urllib.request as web\nfor line in web.urlopen(sys.argv[1]): pass"
ABOUT = {"title": "houses.csv", "target": "price", "metric": "accuracy", "percent": True, "budget": 3600.0}


@benchmark(quick={"pairs": 2, "recipes": 4, "networks": 50, "dots": 2_000, "seconds": 2.0})
def live(
    *, pairs: int = PAIRS, recipes: int = RECIPES, networks: int = NETWORKS, dots: int = DOTS, seconds: float = 15.0
) -> Result:
    """What the live page costs a search and a browser, and how large a replay is.

    pairs: Pairs of a search without and with a page that is watched.
    recipes: Recipes of each of these searches.
    networks: Recipes of the search whose replay is written.
    dots: Dots of the page that is measured in Chromium.
    seconds: How long Chromium is measured, for each width.
    """
    with progress_bar("live", 2 * pairs + 2) as tick:
        cost = measure_cost(pairs, recipes, tick)
        tick("replay")
        replay = measure_replay(networks)
        tick("browser")
        browser = browse(dots, seconds)
    data = {"cost": cost, "replay": replay, "browser": browser}
    complete = {"cost": pairs >= PAIRS, "replay": networks >= NETWORKS, "browser": dots >= DOTS}
    return Result(
        title="The live page: its cost, its browser, its replay", data=data, tables=tables(data),
        targets=targets(data, complete), notes=notes(data), draw=lambda: draw(data),
    )  # fmt: skip


# ---- what it costs the search ----


def measure_cost(pairs: int, recipes: int, tick: Tick) -> dict[str, Any]:
    """Searches in turn, without and with a page, its server and a reader; processor and clock time of each."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    scores = []
    for pair in range(pairs):
        for name in ("without", "with") if pair % 2 else ("with", "without"):
            tick(name)
            timed, score = one_search(X, y, recipes, name == "with")
            found[name].append(timed)
            scores.append(score)
    assert all(np.array_equal(score, scores[0]) for score in scores), "a page changed a result"
    ratios = {
        clock: [one[clock] / other[clock] for one, other in zip(found["with"], found["without"], strict=True)]
        for clock in ("cpu_seconds", "seconds")
    }
    return {"raw": found, "ratios": ratios, "medians": {name: float(np.median(all)) for name, all in ratios.items()}}


def one_search(X: np.ndarray, y: np.ndarray, recipes: int, watched: bool) -> tuple[dict[str, float], np.ndarray]:
    import shoal

    with ExitStack() as stack:
        listeners = [stack.enter_context(watching())] if watched else []
        model = shoal.ShoalClassifier(recipes=recipes, seeds=1, explain_seconds=0, callbacks=listeners)
        begun, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        timed = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}
    return timed, model.board_["score"]


@contextmanager
def watching() -> Iterator[Any]:
    """A recorder whose run folder is served, and another process that reads all of it as it comes."""
    from shoal.live.recorders import SearchRecorder
    from shoal.live.server import LiveServer

    with run_folder() as path, SearchRecorder(path, ABOUT, print) as recorder:
        server = LiveServer(path)
        address = server.url.replace("/?", "/events?")
        reader = subprocess.Popen([sys.executable, "-c", READER, address])
        try:
            while not server.streams and reader.poll() is None:
                time.sleep(0.01)
            yield recorder
        finally:
            server.close()
            reader.wait()


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder in which this process works on a search."""
    from shoal.runs.folder import RunFolder
    from shoal.runs.kinds import SEARCH

    with tempfile.TemporaryDirectory(prefix="shoal-") as place:
        path = Path(place) / "run"
        with RunFolder(SEARCH, path, "houses", {"data": "made up"}, say=lambda text: None):
            yield path


# ---- a replay ----


def measure_replay(networks: int) -> dict[str, int]:
    """Bytes of the recording and of the replay of a real search of so many recipes of one tiny network each."""
    import shoal
    from shoal.live.page import write_replay
    from shoal.live.recorders import SearchRecorder
    from shoal.runs.kinds import LIVE, read_run

    X = np.random.default_rng(0).normal(size=(60, 2))
    space = TINY | {"activation": ["relu", "tanh", "mish"], "learning_rate": np.geomspace(1e-4, 0.1, networks).tolist()}
    with run_folder() as path:
        with SearchRecorder(path, ABOUT, print) as recorder:
            search = shoal.ShoalClassifier(space, recipes=networks, seeds=1, cv=2, explain_seconds=0)
            search.set_params(callbacks=[recorder]).fit(X, X[:, 0] > 0)
        run = read_run(path)
        assert run is not None
        size = write_replay(run, path / "replay.html").stat().st_size
        return {"recipes": len(search.board_), "recorded_bytes": (path / LIVE).stat().st_size, "bytes": size}


# ---- what was found ----


def targets(data: dict[str, Any], complete: dict[str, bool]) -> list[Target]:
    found = [
        Target("processor time with a page, against without", data["cost"]["medians"]["cpu_seconds"], COST,
               at_least=False, unit=" times", complete=complete["cost"]),
        Target(f"replay of {NETWORKS:,} networks", data["replay"]["bytes"] / 1e6, MEGABYTES, at_least=False,
               unit=" MB", complete=complete["replay"]),
    ]  # fmt: skip
    for width, measured in data["browser"].items():
        found.append(
            Target(f"scripting in a second at {width} px, {DOTS:,} dots", measured["script_ms"], SCRIPTING,
                   at_least=False, unit=" ms", complete=complete["browser"])
        )  # fmt: skip
    return found


def tables(data: dict[str, Any]) -> list[ResultTable]:
    cost, replay = data["cost"], data["replay"]
    rows = []
    for clock, name in (("cpu_seconds", "processor"), ("seconds", "clock")):
        sides = [float(np.median([one[clock] for one in cost["raw"][side]])) for side in ("without", "with")]
        rows.append([name, *map(significant, sides), f"{cost['medians'][clock]:.4f}"])
    costs = ResultTable("Seconds of a search, medians", ["time", "without", "with a page", "median ratio"], rows)
    sizes = [[f"{replay['recipes']:,}", f"{replay['recorded_bytes'] / 1e6:.2f}", f"{replay['bytes'] / 1e6:.2f}"]]
    replays = ResultTable("Megabytes of a run", ["recipes", "recorded", "replay"], sizes)
    shown = [[f"{width} px", f"{one['dots']:,}", *(f"{one[key]:.1f}" for key in ("script_ms", "task_ms", "load_ms"))]
             for width, one in data["browser"].items()]  # fmt: skip
    heads = ["page", "dots", "scripting", "all work", "to load"]
    return [costs, replays, *([ResultTable("Milliseconds in a second of Chromium", heads, shown)] if shown else [])]


def notes(data: dict[str, Any]) -> list[str]:
    found = [
        "A search with a page has its recorder, its server, and another process that reads every event as it comes. "
        "All searches found the same scores to the bit.",
        "Processor time is that of all threads of the search's process, so that it does not depend on other work.",
        "The replay is of a real search whose networks are tiny: a recipe is a network for each of two folds.",
    ]
    if data["browser"]:
        return [*found, "While Chromium is measured, 400 new dots arrive each second, and recipes are dropped."]
    return [*found, "There is no Chromium or no Playwright here, so that the browser was not measured."]


def draw(data: dict[str, Any]) -> Figure:
    figure, axes = grid_of_axes(1, 2, width=4.2)
    ratios = sorted(data["cost"]["ratios"]["cpu_seconds"])
    axes[0, 0].plot(ratios, range(1, len(ratios) + 1), "o", color=COLORS["native"])
    axes[0, 0].axvline(COST, color="0.3", linewidth=2)
    axes[0, 0].set(xlabel="processor time with a page / without (the line is the target)", ylabel="pairs")
    spent = [data["browser"].get(width, {}).get("script_ms", 0.0) for width in WIDTHS]
    bars = axes[0, 1].bar([f"{width} px" for width in WIDTHS], spent, color=COLORS["native"], width=0.5)
    axes[0, 1].bar_label(bars, fmt="%.0f ms", padding=3)
    axes[0, 1].axhline(SCRIPTING, color="0.3", linewidth=2)
    axes[0, 1].set(ylabel="scripting in a second")
    return figure

"""The live page of a large search in Chromium: what its scripts take while dots arrive."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

WIDTHS: dict[str, Any] = {"1280": {"width": 1280, "height": 900}, "400": {"width": 400, "height": 800}}
NEW_DOTS = 200  # that arrive every half second
ROUND, AT_A_TIME = 2000, 500  # recipes of a rung, dots of an event
SETTLING = 4.0  # seconds
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
KINDS = (["relu", "tanh", "gelu", "silu"], ["plain", "quantile", "periodic"], ["16", "64", "64-32", "256-256"])


class MadeUpSearch:
    """Records a search that never ends: rungs that keep a third of their recipes."""

    def __init__(self, recording: Any, clock: list[float]) -> None:
        self.recording, self.clock, self.rng = recording, clock, np.random.default_rng(0)
        self.recipes = self.dots = 0
        about = {"title": "houses.csv", "target": "price", "metric": "accuracy", "percent": True, "budget": 3600.0}
        recording.write("begin", kind="search", host="here", pid=1, **about)
        recording.write("started", rows=1000, folds=5, metric="accuracy", budget=3600.0, workers=None)

    def add(self, numbers: list[int], epochs: int, new: bool, seconds: float) -> None:
        """Dots of these recipes, and what is known then."""
        self.clock[0] += seconds
        scores = 0.9 - 0.2 * self.rng.random(len(numbers)) ** 2
        dots: list[list[Any]] = [[k, round(float(s), 5), epochs] for k, s in zip(numbers, scores, strict=True)]
        for dot in dots if new else []:
            activation, encoding, hidden = (str(self.rng.choice(values)) for values in KINDS)
            dot += [hidden, activation, float(f"{10 ** self.rng.uniform(-4, -1):.5g}"), encoding]
        self.recording.write("dots", stage="searching", dots=dots)
        self.dots += len(dots)
        self.recipes += len(dots) * new
        best, share = [0, 0.93], self.clock[0] / 3600
        self.recording.write(
            "now", stage="searching", share=share, tried=self.recipes, best=best, range=[0.88, 0.9, 0.92], workers=None
        )

    def end_rung(self, numbers: list[int]) -> list[int]:
        kept = numbers[::3]
        self.recording.write("rung", stage="searching", trained=len(numbers), kept=kept)
        return kept

    def fill(self, dots: int) -> None:
        """Whole rounds of rungs until there are so many."""
        while self.dots < dots:
            going, epochs, new = list(range(self.recipes, self.recipes + ROUND)), 4, True
            while len(going) > 50 and self.dots < dots:
                for start in range(0, len(going), AT_A_TIME):
                    self.add(going[start : start + AT_A_TIME], epochs, new, seconds=1.0)
                going, epochs, new = self.end_rung(going), 3 * epochs, False

    def go_on(self, until: threading.Event) -> None:
        """New recipes, in the time of the clock on the wall."""
        waiting: list[int] = []
        while not until.wait(0.5):
            numbers = list(range(self.recipes, self.recipes + NEW_DOTS))
            self.add(numbers, 4, new=True, seconds=0.5)
            waiting += numbers
            if len(waiting) >= ROUND:
                self.end_rung(waiting)
                waiting = []


def browse(dots: int, seconds: float) -> dict[str, dict[str, float]]:
    """By width, milliseconds in each second; nothing where there is no browser."""
    from shoal.live.recording import Recording
    from shoal.live.server import LiveServer
    from shoal.runs.folder import RunFolder
    from shoal.runs.kinds import SEARCH

    if shutil.which("chromium") is None or find_spec("playwright") is None:
        return {}
    with tempfile.TemporaryDirectory(prefix="shoal-") as place:
        path, clock = Path(place) / "run", [0.0]
        with RunFolder(SEARCH, path, "houses", {"data": "made up"}, say=lambda text: None):
            recording = Recording(path, print, lambda: clock[0])
            search = MadeUpSearch(recording, clock)
            search.fill(dots)
            server = LiveServer(path)
            try:
                return _measure(server.url, search, seconds)
            finally:
                server.close()
                recording.close()


def _measure(url: str, search: MadeUpSearch, seconds: float) -> dict[str, dict[str, float]]:
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for width, size in WIDTHS.items():
            page = browser.new_context(viewport=size, device_scale_factor=3 if size["width"] < 500 else 1).new_page()
            link = page.context.new_cdp_session(page)
            link.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(url)
            page.get_by_text("recipes so far. ").wait_for(timeout=120_000)
            time.sleep(SETTLING)
            ended = threading.Event()
            writer = threading.Thread(target=search.go_on, args=(ended,))
            writer.start()
            before, begun = _spent(link), time.perf_counter()
            page.wait_for_timeout(1000 * seconds)
            after, passed = _spent(link), time.perf_counter() - begun
            ended.set()
            writer.join()
            found[width] = {
                "dots": search.dots, "load_ms": before[0],
                "script_ms": (after[0] - before[0]) / passed, "task_ms": (after[1] - before[1]) / passed,
            }  # fmt: skip
            page.context.close()
        browser.close()
    return found


def _spent(link: Any) -> tuple[float, float]:
    """Milliseconds of scripts, and of all work of the page."""
    found = {one["name"]: one["value"] for one in link.send("Performance.getMetrics")["metrics"]}
    return 1000 * found["ScriptDuration"], 1000 * found["TaskDuration"]

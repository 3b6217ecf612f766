"""Searches that are killed, stopped and lied to, at random moments: do they end, with the same bytes, and how late?"""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.clusters import CLUSTERS, missing
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.searches import Story, search_words, write_table
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.search.faults.kinds import KINDS, Kind, Scene
from shoal.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETWEEN = 4  # disturbed searches between two undisturbed ones
LATE = 10.0  # seconds that one lost worker may cost, beside its work


@benchmark(quick={"kills": 2, "recipes": 30})
def faults(
    *,
    kinds: tuple[str, ...] = tuple(KINDS),
    kills: int = 20,
    together: int = 5,
    recipes: int = 80,
    seed: int | None = None,
    out: Path,
) -> Result:
    """Searches, workers and schedulers killed at random moments, journals damaged: same bytes? Seconds lost?

    A run that was stopped goes on after the last kind of fault that it has finished.

    kinds: Kinds of faults.
    kills: Faults of each kind; a quarter where each takes a whole search.
    together: Faults in one search at most.
    recipes: Recipes of each search.
    seed: Seed of the moments; by default another one each time.
    """
    for name in kinds:
        one_of("--kinds", name, KINDS)
    asked = {"kills": kills, "together": together, "recipes": recipes, "seed": seed}
    seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
    done = Done(out / "faults.jsonl", asked)
    found: dict[str, dict[str, Any]] = {}
    with progress_bar("faults", len(kinds)) as tick, tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), recipes)
        for name in kinds:
            tick(name)
            found[name] = done.of(name) or done.add(
                name, disturb(stage, name, kills, together, Random(f"{seed} {name}"))
            )
    done.path.unlink()
    return Result(
        title="Searches that are disturbed", settings={"seed": seed},
        data={"kinds": found}, tables=[table(found)], targets=targets(kills >= faults.settings({})["kills"], found),
        notes=notes(kills, together, recipes, found), draw=lambda: draw(found),
    )  # fmt: skip


class Done:
    """One line of JSON for each kind that is finished, until all are."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self._settings = path, settings
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self._found = {line["name"]: line["found"] for line in lines if line["settings"] == self._settings}

    def of(self, name: str) -> dict[str, Any] | None:
        return self._found.get(name)

    def add(self, name: str, found: dict[str, Any]) -> dict[str, Any]:
        with self.path.open("a") as file:
            file.write(json.dumps({"name": name, "settings": self._settings, "found": found}) + "\n")
        return found


class Stage:
    """A table to search on, and a folder for each search. The first one, alone and undisturbed, says what is right."""

    def __init__(self, folder: Path, recipes: int) -> None:
        self.folder, self.recipes = folder, recipes
        self.table = write_table(folder / "table.csv")
        self._stories = 0
        self.right, _ = self.undisturbed("serial")

    def new(self, cluster: str, random: Random | None = None, usual: float = 48.0, faults: int = 0) -> Scene:
        """A search that has not begun, with its cluster."""
        self._stories += 1
        folder = self.folder / f"{self._stories}"
        folder.mkdir()
        place = CLUSTERS[cluster](folder)
        words = search_words(self.table, "target", self.recipes, place.address)
        place.start()
        return Scene(Story(place.command(words), folder), place, random or Random(0), usual, faults)

    def undisturbed(self, cluster: str) -> tuple[bytes, float]:
        """The weights that a search gives, and its seconds."""
        scene = self.new(cluster)
        try:
            if not scene.story.finish(scene.limit, starts=1):
                said = scene.story.attempts[-1].said()[-2000:]
                raise RuntimeError(f"an undisturbed search ({scene.cluster.name}) failed:\n{said}")
            return scene.story.weights(), scene.story.seconds
        finally:
            scene.story.end()
            scene.cluster.end()


def disturb(stage: Stage, name: str, most: int, together: int, random: Random) -> dict[str, Any]:
    """Searches with faults of one kind, and undisturbed ones before, between and after them."""
    kind = KINDS[name]
    absent = missing(kind.cluster)
    if absent:
        return {"kind": kind.words, "cluster": kind.cluster, "left_out": f"{absent} is not installed"}
    plain = [stage.undisturbed(kind.cluster)]
    stories: list[dict[str, Any]] = []
    kills, goal = 0, math.ceil(kind.share * most)
    while kills < goal and len(stories) < 3 * goal:
        count = min(random.randint(1, together), goal - kills)
        stories.append(one_search(stage, kind, random, plain[-1][1], count))
        kills += len(stories[-1]["faults"])
        if kills >= goal or len(stories) % BETWEEN == 0:
            plain.append(stage.undisturbed(kind.cluster))
    return {
        "kind": kind.words, "cluster": kind.cluster, "undisturbed_seconds": [seconds for _, seconds in plain],
        "undisturbed_same": all(weights == stage.right for weights, _ in plain), "searches": stories,
    }  # fmt: skip


def one_search(stage: Stage, kind: Kind, random: Random, usual: float, count: int) -> dict[str, Any]:
    scene = stage.new(kind.cluster, random, usual, count)
    story = scene.story
    try:
        finished = kind.play(scene)
    finally:
        story.end()
        scene.cluster.end()
    found = {
        "faults": story.faults, "seconds": [attempt.seconds for attempt in story.attempts],
        "codes": [attempt.code for attempt in story.attempts], "found": [attempt.found for attempt in story.attempts],
        "finished": finished,
        "same": finished and story.weights() == stage.right, "left_behind": story.left_behind,
    }  # fmt: skip
    if not found["same"] or any(attempt.code not in (0, -signal.SIGKILL) for attempt in story.attempts):
        found["said"] = [attempt.said()[-3000:].replace(str(stage.folder), "...") for attempt in story.attempts]
    return found


def seconds_lost(found: dict[str, Any]) -> list[float]:
    """For each search, by fault: how much longer it took, all its starts together, than an undisturbed one."""
    usual = sum(found["undisturbed_seconds"]) / len(found["undisturbed_seconds"])
    return [
        (sum(search["seconds"]) - usual) / len(search["faults"])
        for search in found["searches"]
        if search["faults"] and search["finished"]
    ]


def table(measured: dict[str, dict[str, Any]]) -> ResultTable:
    head = [
        "fault", "search on", "faults", "searches", "ended", "same bytes", "starts", "that resumed", "left behind",
        "undisturbed", "lost per fault, median", "most",
    ]  # fmt: skip
    rows = []
    for found in measured.values():
        if "left_out" in found:
            rows.append([found["kind"], found["cluster"], found["left_out"], *[""] * 9])
            continue
        hit = [search for search in found["searches"] if search["faults"]]
        lost = seconds_lost(found)
        rows.append([
            found["kind"], found["cluster"], str(sum(len(search["faults"]) for search in hit)), str(len(hit)),
            _share(hit, "finished"), _share(hit, "same"), str(sum(len(search["codes"]) for search in hit)),
            str(sum(results > 0 for search in hit for results in search["found"])),
            str(sum(search["left_behind"] for search in hit)),
            f"{min(found['undisturbed_seconds']):.1f} to {max(found['undisturbed_seconds']):.1f} s",
            f"{median(lost):.1f} s" if lost else "-", f"{max(lost):.1f} s" if lost else "-",
        ])  # fmt: skip
    return ResultTable("Disturbed searches, and seconds that they took longer", head, rows)


def _share(searches: list[dict[str, Any]], name: str) -> str:
    return f"{sum(search[name] for search in searches)} of {len(searches)}"


def targets(complete: bool, measured: dict[str, dict[str, Any]]) -> list[Target]:
    """All must end with the same bytes; a lost worker may cost its work and some seconds."""
    made = []
    for name, found in measured.items():
        if "left_out" in found:
            continue
        hit = [search for search in found["searches"] if search["faults"]]
        share = sum(search["same"] for search in hit) / len(hit) if hit else None
        made.append(Target(f"{name}: searches with the same bytes", share, 1.0, complete=complete))
        if found["kind"] == "worker killed":
            lost = max(seconds_lost(found), default=None)
            made.append(Target(f"{name}: lost per fault, at most", lost, LATE, at_least=False, unit=" s"))
    return made


def notes(kills: int, together: int, recipes: int, measured: dict[str, dict[str, Any]]) -> list[str]:
    ways: dict[str, int] = {}
    for found in measured.values():
        for search in found.get("searches", []) if found["kind"].endswith("damaged") else []:
            for fault in search["faults"]:
                ways[fault] = ways.get(fault, 0) + 1
    damaged = ", ".join(f"{way} {count}" for way, count in sorted(ways.items()))
    return [
        f"Each is `shoal search` of {recipes} recipes on a table of 569 rows; after each fault that ends it, "
        "the same command is started again. Same bytes: model/weights.safetensors is that of an undisturbed search.",
        f"Faults of each kind: {kills}, or a quarter of that where each takes a whole search.",
        f"Up to {together} faults at random moments in one search. Lost per fault: the seconds of all starts "
        f"together, less those of an undisturbed search (mean of several: one before each {BETWEEN}, one after them), "
        "divided by the faults. "
        "Each new start costs the start of Python and the reading of the table once more, about 1.5 s.",
        "That resumed: starts that found results of earlier ones in the journal. Left behind: processes of a search "
        "that were there 20 s after its end.",
        *([f"What was done to journals: {damaged}."] if damaged else []),
    ]


def draw(measured: dict[str, dict[str, Any]]) -> Figure:
    figure, ((axis,),) = grid_of_axes(1, 1, width=6.4)
    names = [name for name, found in measured.items() if "left_out" not in found][::-1]
    for k, name in enumerate(names):
        lost = seconds_lost(measured[name])
        axis.plot(lost, [k] * len(lost), "o", color=COLORS["native"], alpha=0.5)
        if lost:
            axis.text(median(lost), k + 0.25, significant(median(lost), 2), ha="center")
    axis.set_yticks(range(len(names)), names)
    axis.set(xlabel="seconds lost per fault (each dot is a search, the number is the median)")
    axis.set_ylim(-0.6, len(names) - 0.2)
    return figure

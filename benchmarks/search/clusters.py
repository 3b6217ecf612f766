"""Searches on up to 1,000 workers, simulated from measured costs: which figure breaks first?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.harness.tables import ResultTable, significant
from benchmarks.search.shard_costs import FEATURES, FOLDS, measure
from benchmarks.search.simulate import PLACES, gains, simulate
from shoal.machine import size_text

RECIPES = 5_000
WORTH = 1.05  # times quicker: less is not worth a word
WORDS = {"search": "the search", "link": "its link", "disk": "the journal's disk", "rounds": "rounds and rungs"}


def simulate_searches(rows: int, workers: Sequence[int]) -> dict[str, Any]:
    """Searches on a table of so many rows, on each of these numbers of workers."""
    costs, round_of = measure(rows)
    runs = []
    for count in workers:
        run = simulate(costs, RECIPES, count, round_of)
        runs.append({
            "workers": count, "seconds": run.seconds, "efficiency": run.efficiency, "shards": run.shards,
            "messages": run.messages, "sent": run.sent, "received": run.received,
            "busy": {place: run.share(place) for place in PLACES},
            "gains": gains(costs, RECIPES, count, round_of),
        })  # fmt: skip
    return {"rows": rows, "recipes": RECIPES, "round_of": round_of, "costs": asdict(costs), "runs": runs}


def costs_table(clusters: Sequence[dict[str, Any]]) -> ResultTable:
    """What was measured on this machine."""

    def line(what: str, of: Any) -> list[str]:
        return [what, *(of(one["costs"]) for one in clusters)]

    def ms(value: float) -> str:
        return f"{significant(1e3 * value)} ms"

    rows = [
        line("training a recipe to its end, one core", lambda c: f"{significant(c['recipe'])} s"),
        line("the search, for each shard", lambda c: ms(c["submit"] + c["collect"])),
        line("the search, for each recipe of a shard", lambda c: ms(c["note"])),
        line("the search, for each shard and other shard in flight", lambda c: ms(c["watch"])),
        line("the journal's thread, for each shard", lambda c: ms(c["disk"])),
        line("the journal's thread, for each recipe", lambda c: ms(c["disk_each"])),
        line("what every worker gets once", lambda c: size_text(c["job"])),
        line("to a worker, for each recipe", lambda c: size_text(c["sent"])),
        line("back, for each recipe of a rung", lambda c: size_text(c["received"])),
        line("back, for each recipe that ends, with its networks", lambda c: size_text(c["received_end"])),
        line("networks and moments of a recipe, where they travel", lambda c: size_text(c["state"])),
    ]  # fmt: skip
    return ResultTable("Costs, measured", ["what", *(f"{one['rows']:,} rows" for one in clusters)], rows)


def cluster_table(cluster: dict[str, Any]) -> ResultTable:
    rows = []
    for run in cluster["runs"]:
        busy = run["busy"]
        link = max(busy["link out"], busy["link back"])
        rows.append([
            f"{run['workers']:,}", significant(run["seconds"]), f"{run['efficiency']:.0%}", f"{run['messages']:,}",
            size_text(run["sent"] + run["received"]), f"{busy['search']:.0%}", f"{busy['disk']:.0%}", f"{link:.0%}",
            holds_up(run["gains"]),
        ])  # fmt: skip
    header = ["workers", "seconds", "of it training", "messages", "bytes", "search", "disk", "link", "holds it up most"]
    return ResultTable(f"{cluster['recipes']:,} recipes on {cluster['rows']:,} rows, simulated", header, rows)


def holds_up(gained: dict[str, float]) -> str:
    """What would make the search quicker if it cost nothing, and by how much."""
    name = max(gained, key=lambda name: gained[name])
    return f"{WORDS[name]} ({gained[name]:.1f}x)" if gained[name] >= WORTH else "nothing"


def cluster_notes(clusters: Sequence[dict[str, Any]]) -> list[str]:
    rounds = " and ".join(f"{one['round_of']:,}" for one in clusters)
    return [
        f"Simulated: {RECIPES:,} recipes of the default space in {FOLDS} folds on {FEATURES} numbers, successive "
        f"halving, in rounds of {rounds} recipes; one core for each worker, a link of 1 Gbit/s at the search.",
        "Seconds of the search are those that its thread computes; those of the journal are by the clock on this disk.",
        "What holds it up most: how many times quicker the search would be if that cost nothing; for rounds and rungs, "
        "if all recipes were one round.",
    ]

"""Run as a process of its own to see what training occupies: imports shoal, builds, trains, says its peak memory."""

from __future__ import annotations

import json
import sys

from shoal.bench.harness.problems import paper_members, random_data
from shoal.machine import peak_memory
from shoal.population import Population


def main(settings: dict[str, int]) -> dict[str, int]:
    """Train once; peak memory after the imports, and at the end."""
    imported = peak_memory()
    X, y = random_data(settings["samples"], settings["features"])
    population = Population(paper_members(settings["members"], settings["batch"]), settings["features"], 2)
    population.fit(X, y, 1, engine="native", threads=settings["threads"])
    return {"imports_bytes": imported, "peak_bytes": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

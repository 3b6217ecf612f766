"""Peak memory of a process that imports shoal, builds a population and trains it."""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.harness import child
from benchmarks.harness.problems import paper_members, random_data
from shoal import machine
from shoal.population.population import Population


def peak_memory(settings: dict[str, int]) -> dict[str, Any]:
    """In bytes, of a process of its own that trains for one epoch."""
    return child.ask(__name__, settings)


def main(settings: dict[str, int]) -> dict[str, int]:
    """Train once; peak memory after the imports, and at the end."""
    imported = machine.peak_memory()
    X, y = random_data(settings["samples"], settings["features"])
    population = Population(paper_members(settings["members"], settings["batch"]), settings["features"], 2)
    population.fit(X, y, 1, engine="native", threads=settings["threads"])
    return {"imports_bytes": imported, "peak_bytes": machine.peak_memory()}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

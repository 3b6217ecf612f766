"""Run as a process of its own to see what training occupies: imports shoal, builds, trains, says its peak memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shoal.bench.harness.problems import paper_members, random_data
from shoal.population import Population


def peak_bytes() -> int:
    """The largest resident size of this process.

    Linux hands the parent's ru_maxrss down to a process started from it, so that it may say far too much; VmHWM belongs
    to this program alone.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(settings: dict[str, int]) -> dict[str, int]:
    """Train once; peak memory after the imports, and at the end."""
    imported = peak_bytes()
    X, y = random_data(settings["samples"], settings["features"])
    population = Population(paper_members(settings["members"], settings["batch"]), settings["features"], 2)
    population.fit(X, y, 1, engine="native", threads=settings["threads"])
    return {"imports_bytes": imported, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

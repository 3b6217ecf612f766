"""A rank on a host, started with torchrun's variables: trains run after run, prints the seconds of their epochs."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from benchmarks.planner.trainings import train

    found, first = [], int(os.environ["MASTER_PORT"])
    for number, run in enumerate(runs):
        os.environ["MASTER_PORT"] = str(first + number)  # the port of the run before may not be free yet
        found.append(train(run))
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

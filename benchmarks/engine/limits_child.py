"""Run as a process of its own, perhaps with another version of Shoal: it makes the case that it is told, trains or
predicts, and answers with seconds. It needs nothing of Shoal but what every version has."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import shoal
from shoal import Member, Population


def main() -> None:
    """Say where Shoal lies. Then a line of JSON in, a number out, until there are no more lines."""
    print(shoal.__file__, flush=True)
    made: dict[str, Any] = {}
    for line in sys.stdin:
        told = json.loads(line)
        if "members" in told:
            made = make(told)
            print(0.0, flush=True)
        elif told["do"] == "train":
            print(train(made, told["epochs"]), flush=True)
        else:
            print(predict(made), flush=True)


def make(told: dict[str, Any]) -> dict[str, Any]:
    members = [Member(tuple(hidden), **fields) for hidden, fields in told["members"]]
    generator = np.random.default_rng(0)
    rows, predicted = told["rows"], told["predicted"]
    X = generator.standard_normal((max(rows, predicted), told["features"]), dtype=np.float32)
    y = generator.integers(0, told["outputs"], rows)
    population = Population(members, told["features"], told["outputs"])
    out = np.zeros((len(members), predicted, told["outputs"]), dtype=np.float32)
    return {"population": population, "X": X, "y": y, "out": out, "threads": told["threads"]}


def train(made: dict[str, Any], epochs: int) -> float:
    X = made["X"][: len(made["y"])]
    begun = time.perf_counter()
    made["population"].fit(X, made["y"], epochs, engine="native", threads=made["threads"])
    seconds = time.perf_counter() - begun
    if "diverged" in made["population"].status:
        raise RuntimeError("a network diverged: it costs nothing from then on, and this time means nothing")
    return seconds


def predict(made: dict[str, Any]) -> float:
    out = made["out"]
    begun = time.perf_counter()
    made["population"].predict(made["X"][: out.shape[1]], out=out, threads=made["threads"])
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()

"""Models that were never trained: prediction takes the same time, whatever the weights are.

Run as a process of its own, it measures one of them and says what it found, as JSON. It uses only what earlier versions
of Shoal have as well, so that it can measure these: PYTHONPATH says which one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.models.model import FoldTransforms, Model, Part, bare, empty_networks
from shoal.population.members import Member
from shoal.tables.schema import Schema
from shoal.tables.table import Table

SHAPES: tuple[tuple[tuple[int, ...], str], ...] = (
    ((64,), "plain"),
    ((128,), "piecewise"),
    ((32, 32), "plain"),
    ((64, 64), "piecewise"),
)  # of hidden layers, and their encodings: the parts of a model take turns
LEVELS = {
    "workclass": 9, "education": 16, "marital": 7, "occupation": 15, "relationship": 6, "race": 5, "sex": 2,
    "country": 42,
}  # fmt: skip
FITTED_ROWS = 10_000
ONE_ROW_REPEATS = 30
WORDS_IN_TEXT = 60


def untrained_model(
    table: Table, task: Task, folds: int, parts: int, seed: int = 0, shapes: Sequence[Any] = SHAPES
) -> Model:
    """Encoders fitted on each fold's rows of a table, and networks with weights as drawn."""
    schema = Schema.of(table)
    generator = np.random.default_rng(seed)
    weights = [(generator.permutation(len(table)) % folds != 0).astype(float) for _ in range(folds)]
    encoders = Encoder.fit_many(schema, table, weights)
    y = generator.normal(size=(len(table), task.n_outputs)) * 3 + 7
    transforms = tuple(
        FoldTransforms(encoder, TargetScaling.fit(task, y, weight))
        for encoder, weight in zip(encoders, weights, strict=True)
    )
    chosen = [shapes[j % len(shapes)] for j in range(parts)]
    if not len(encoders[0].scaling.centre):
        chosen = [(hidden, "plain") for hidden, _ in chosen]
    share = generator.dirichlet(np.ones(parts))
    members = [Member(hidden=hidden, seed=seed + j) for j, (hidden, _) in enumerate(chosen)]
    made = tuple(
        Part(j, f"part {j}", encoding, bare(members[j]), float(share[j])) for j, (_, encoding) in enumerate(chosen)
    )
    networks = {}
    for encoding in dict.fromkeys(encoding for _, encoding in chosen):
        mine = [member for member, part in zip(members, made, strict=True) if part.encoding == encoding]
        width = max(encoder.width(encoding) for encoder in encoders)
        networks[encoding] = empty_networks(task, width, mine, folds)
    return Model(task, schema, transforms, made, networks, 1.0 if task.kind == REGRESSION else 1.2)


def adult_like(rows: int, seed: int, texts: bool = False) -> dict[str, Any]:
    """6 numbers and 8 categories, distributed about as in the census data of 1994; or two numbers and a text."""
    generator = np.random.default_rng(seed)
    numbers: dict[str, Any] = {
        "age": generator.integers(17, 90, rows).astype(float),
        "weight": np.exp(generator.normal(12, 0.5, rows)).round(),
    }
    if texts:
        vocabulary = np.array([f"word{j}" for j in range(3000)], dtype=object)
        drawn = (generator.pareto(1.0, (rows, WORDS_IN_TEXT)) * 10).astype(int) % len(vocabulary)
        return numbers | {"told": [" ".join(vocabulary[ids]) for ids in drawn]}
    numbers |= {
        "schooling": generator.integers(1, 17, rows).astype(float),
        "gain": np.where(generator.random(rows) < 0.08, np.exp(generator.normal(8, 1.2, rows)).round(), 0.0),
        "loss": np.where(generator.random(rows) < 0.05, generator.normal(1870, 300, rows).round(), 0.0),
        "hours": np.clip(generator.normal(40, 12, rows).round(), 1, 99),
    }
    shares = np.random.default_rng(0)
    for name, count in LEVELS.items():
        names = np.array([f"{name} {j}" for j in range(count)], dtype=object)
        cells = names[generator.choice(count, size=rows, p=shares.dirichlet(np.full(count, 0.7)))]
        cells[generator.random(rows) < 0.03] = None
        numbers[name] = cells
    return numbers


def measure(folds: int, parts: int, rows: int, repeats: int, texts: bool) -> dict[str, float]:
    """Microseconds a row, milliseconds of one row, and the memory that predicting takes beside table and model."""
    fitted = Table.of(adult_like(FITTED_ROWS if not texts else 2000, 0, texts))
    model = untrained_model(fitted, Task(CLASSIFICATION, 2), folds, parts)
    table = Table.of(adult_like(rows, 1, texts))
    model.predict(table.take(slice(0, 10)))
    one = []
    for row in range(ONE_ROW_REPEATS):
        new = table.take(np.array([row % rows]))
        begun = time.perf_counter()
        model.predict(new)
        one.append(time.perf_counter() - begun)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(repeats):
        new = table.take(slice(0, rows))  # nothing is remembered of it
        begun = time.perf_counter()
        model.predict(new)
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "microseconds": 1e6 * min(seconds) / rows,
        "one_row_milliseconds": 1e3 * float(np.median(one)),
        "memory_megabytes": (peak - before) / 1024,
    }


def save_small(folder: str) -> None:
    """A model that a search made, and a file with one row for it."""
    from shoal import ShoalClassifier, save

    cells = adult_like(600, 0)
    y = np.where(cells["age"] + np.random.default_rng(0).normal(0, 10, 600) > 50, "old", "young")
    estimator = ShoalClassifier(recipes=4, seeds=1, epochs=2, cv=3).fit(cells, y)
    save(estimator, Path(folder) / "model")
    row = {name: column[0] for name, column in cells.items()}
    text = ",".join(row) + "\n" + ",".join("" if cell is None else str(cell) for cell in row.values()) + "\n"
    (Path(folder) / "one.csv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if "folder" in given:
        save_small(given["folder"])
    else:
        print(json.dumps(measure(**given)))

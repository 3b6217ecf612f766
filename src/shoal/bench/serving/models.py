"""Models that were never trained: prediction takes the same time, whatever the weights are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.encoders.encoder import Encoder
from shoal.encoders.target import TargetScaling
from shoal.members import Member
from shoal.metrics.tasks import REGRESSION, Task
from shoal.models.model import FoldTransforms, Model, Part, bare, empty_networks
from shoal.tables.schema import Schema
from shoal.tables.table import Table

SHAPES: tuple[tuple[tuple[int, ...], str], ...] = (
    ((64,), "plain"),
    ((128,), "piecewise"),
    ((32, 32), "plain"),
    ((64, 64), "piecewise"),
)  # of hidden layers, and their encodings: the parts of a model take turns


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

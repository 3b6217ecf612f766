"""A training of `python -m benchmarks killed`. It prints its progress, its notes and the checksum of its weights."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel

FEATURES, CLASSES = 12, 4


class Said:
    """Events as lines."""

    def progress(self, event: parallel.events.EpochProgress) -> None:
        print(f"progress {event.share:.4f}", flush=True)

    def note(self, text: str) -> None:
        print(f"note {text}", flush=True)


def main(question: dict[str, Any]) -> None:
    case = question["case"]
    generator = torch.Generator().manual_seed(case["seed"])
    X = torch.randn(case["rows"], FEATURES, generator=generator)
    data = TensorDataset(X, X[:, :CLASSES].argmax(1))
    torch.manual_seed(case["seed"])
    layers: list[nn.Module] = []
    for before, width in itertools.pairwise([FEATURES, *case["hidden"]]):
        layers += [nn.Linear(before, width), nn.ReLU(), nn.Dropout(case["dropout"])]
    model = nn.Sequential(*layers, nn.Linear(case["hidden"][-1], CLASSES))
    result = parallel.fit(
        model, data, strategy="allreduce", exact=True, restarts=20, callbacks=[Said()], **case["job"], **question["how"]
    )
    weights = torch.cat([value.reshape(-1) for value in result.model.state_dict().values()])
    print("weights", hashlib.sha256(weights.numpy().tobytes()).hexdigest(), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

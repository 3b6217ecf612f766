"""Run as a process of its own, by a Python that has what DLMP needs (not Shoal): one simulation, as JSON.

DLMP is github.com/DLMPsim/DLMP. Its models are used as they are; what they print is dropped, and what they would
print of an epoch is read from their nodes instead.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import sys
import time
from argparse import Namespace
from typing import Any

MODULES = {"sync": "MASModelCNN", "p2p": "MASAModelCNN"}


def recording(model: type[Any]) -> type[Any]:
    """The same model, which notes after each epoch what its nodes say: of the slowest one, or of all together."""

    class Recording(model):
        def step(self) -> None:
            super().step()
            nodes = self.schedule.agents
            self.records = [*getattr(self, "records", []), {
                "compute": max(node.processing_time for node in nodes),
                "communication": max(node.last_comm_time_s for node in nodes),
                "right": sum(node.correct_classifications for node in nodes),
                "tested": sum(node.test_set_size for node in nodes),
            }]  # fmt: skip

    return Recording


def options(settings: dict[str, Any]) -> Namespace:
    """What its command line would have made; it takes momentum only if the optimiser is called SGDM."""
    return Namespace(
        processors=settings["nodes"], batch_size=settings["batch_size"], epochs=settings["epochs"],
        lr=settings["learning_rate"], net_bw_mbps=settings["bandwidth"], capacity_max=settings["slowest"],
        latency=(0.0, 0.0), optimizer="SGD", ds="MNIST", arch="LeNet5", num_classes=10, imagenet_pretrained=False,
    )  # fmt: skip


def warm_up() -> None:
    """One step of another network: what torch loads at the first one would count as computing of the first node."""
    import torch

    other = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    other(torch.zeros(2, 1, 4, 4)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()


def simulate(settings: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, os.path.join(settings["dlmp"], "code"))
    kind = importlib.import_module(MODULES[settings["coordination"]]).ParallelizationModel
    import numpy as np
    import torch

    torch.set_num_threads(settings["threads"])
    if settings["warm"]:
        warm_up()
    random.seed(settings["seed"])
    np.random.seed(settings["seed"])
    torch.manual_seed(settings["seed"])
    with np.load(settings["data"]) as data:
        rows = [data[name] for name in ("X_train", "y_train", "X_test", "y_test")]
    begun = time.perf_counter()
    model = recording(kind)(*rows, torch.device("cpu"), options(settings))
    model.run_model(settings["epochs"])
    return {
        "wall": time.perf_counter() - begun, "epochs": model.records, "bytes": model.total_comm_cost,
        "slowness": model.capacities, "averages": hasattr(kind, "synchronize_weights"),
    }  # fmt: skip


def main(settings: dict[str, Any]) -> dict[str, Any]:
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            return simulate(settings)
        except ModuleNotFoundError as error:
            return {"missing": error.name}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

"""What tests of shoal.parallel share: small data, small networks, and the oracle, a plain PyTorch loop."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

ROWS, FEATURES, CLASSES, BATCH = 131, 12, 4, 32  # the last batch has 3 rows, fewer than there are workers at times


def data(rows: int = ROWS, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(rows, FEATURES, generator=generator)
    y = (X[:, :CLASSES] + 0.5 * torch.randn(rows, CLASSES, generator=generator)).argmax(1)
    return TensorDataset(X, y)


def network(kind: str = "plain") -> nn.Sequential:
    """ "plain"; "random" with dropout; "stateful" with batch normalisation as well; "wide": messages of megabytes."""
    torch.manual_seed(0)
    if kind == "wide":
        return nn.Sequential(nn.Linear(FEATURES, 20_000), nn.ReLU(), nn.Linear(20_000, CLASSES))
    layers: list[nn.Module] = [nn.Linear(FEATURES, 16), nn.ReLU()]
    if kind == "stateful":
        layers.append(nn.BatchNorm1d(16))
    if kind != "plain":
        layers.append(nn.Dropout(0.3))
    layers += [nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Identity()]
    return nn.Sequential(*layers, nn.Linear(16, CLASSES))


def case_data(case: dict[str, Any]) -> TensorDataset:
    generator = torch.Generator().manual_seed(case["rows"])
    X = torch.randn(case["rows"], case["features"], generator=generator)
    return TensorDataset(X, X[:, :CLASSES].argmax(1))


def case_network(case: dict[str, Any]) -> nn.Sequential:
    """A network with the widths, batch normalisation and dropout of the case."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, width in itertools.pairwise([case["features"], *case["hidden"]]):
        layers += [nn.Linear(before, width), nn.ReLU()]
        layers += [nn.BatchNorm1d(width)] * case["norm"] + [nn.Dropout(case["dropout"])] * (case["dropout"] > 0)
    return nn.Sequential(*layers, nn.Linear([case["features"], *case["hidden"]][-1], CLASSES))


def order_of(rows: int, seed: int, epoch: int) -> torch.Tensor:
    from shoal.parallel.data.loader import epoch_order

    return epoch_order(rows, seed, epoch, True)


def plain_loop(model: nn.Module, rows: TensorDataset, epochs: int, learning_rate: float = 0.01, seed: int = 0) -> None:
    """The oracle: the training loop by hand, on the same batches."""
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    X, y = rows.tensors
    for epoch in range(epochs):
        for batch in order_of(len(rows), seed, epoch).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[batch]), y[batch]).backward()
            optimizer.step()


def flat(model: nn.Module | dict[str, torch.Tensor]) -> torch.Tensor:
    """All weights and buffers as one vector."""
    state = model if isinstance(model, dict) else model.state_dict()
    return torch.cat([value.detach().double().reshape(-1) for value in state.values()])


def far(one: Any, other: Any) -> float:
    """Relative distance of two sets of weights."""
    return float((flat(one) - flat(other)).norm() / flat(other).norm())


SETTINGS: dict[str, Any] = {"epochs": 4, "batch_size": BATCH, "learning_rate": 0.01, "seed": 0, "shards": 8}  # 20 steps


Jobs = dict[str, dict[str, Any]]


def run_ranks(folder: Path, launcher: str, teams: dict[int, Jobs], **more: str) -> dict[int, dict[str, dict[str, Any]]]:
    """Train jobs with several numbers of ranks, one after the other; results by number of ranks and job."""
    (folder / "teams.json").write_text(json.dumps(teams))
    program = [sys.executable, str(Path(__file__).with_name("parallel_ranks.py")), str(folder)]
    places = os.pathsep.join(filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": places}
    env |= more
    if launcher == "mpi":
        mpiexec = Path(sys.executable).parent / "mpiexec"
        found = str(mpiexec if mpiexec.exists() else shutil.which("mpiexec"))
        program = [found, "-n", str(max(teams)), *program]
    else:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        env["TEST_STORE"] = str(store.port)
    done = subprocess.run(program, env=env, stderr=subprocess.PIPE, timeout=300, text=True)
    assert done.returncode == 0, _first_error(done.stderr)
    return {
        size: {name: torch.load(folder / f"{size}-{name}.pt", weights_only=True) for name in jobs}
        for size, jobs in teams.items()
    }


def _first_error(said: str) -> str:
    """The error of one rank; not of those that only lost their connection to it."""
    errors = said.split("Traceback")[1:]
    own = [error for error in errors if "closed by peer" not in error]
    return (own or errors or [said])[0][-3000:]

"""What the papers' experiments on many workers share: ways to train, how one is timed, the plain loop beside them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.harness.measure import Tick
from shoal.machine import thread_count

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset, TensorDataset

PLAIN = "plain loop"
PALETTE = (
    "#999999", "#E69F00", "#56B4E9", "#0072B2", "#009E73", "#117733", "#CC79A7", "#7A5195", "#D55E00", "#222222",
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A way to train a network, as settings of `parallel.fit`. `missing` says why it cannot be tried here."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""

    @property
    def launches(self) -> bool:
        """Whether processes have to be started, which takes seconds."""
        return self.settings.get("backend", "threads") != "threads" and self.settings.get("workers", 1) > 1


@dataclass
class Trial:
    """One training run, or the best of several."""

    model: torch.nn.Module
    epochs: list[float]  # seconds of each; looking at other rows and writing checkpoints is not in it
    seconds: float  # of the whole training; of several runs, the best
    startup: float  # seconds waited for besides: starting processes, counting operations
    communicating: float = 0.0  # share of the time
    folds: list[float] = field(default_factory=list)  # accuracy of each fold of a cross-validation

    @property
    def best(self) -> float:
        return min(self.epochs)


def mpi_missing() -> str:
    """Why MPI cannot be used here; empty if it can."""
    from shoal.parallel.launch.launcher import mpi_launcher

    try:
        mpi_launcher()
    except ModuleNotFoundError as error:
        return str(error)
    return ""


def train(way: Way, model: torch.nn.Module, data: Dataset[Any], **settings: Any) -> Trial:
    """Train a copy of the model that way."""
    from shoal import parallel

    own = copy.deepcopy(model)
    if way.name == PLAIN:
        return _plain(own, data, **settings)
    begun = time.perf_counter()
    result = parallel.fit(own, data, **{**settings, **way.settings})
    wall = time.perf_counter() - begun
    epochs = [record["seconds"] for record in result.history]
    # Workers of other processes write checkpoints between epochs, which is no part of training.
    seconds = result.metrics["seconds"] if way.settings.get("average_every") == "end" else sum(epochs)
    startup = wall - result.metrics["seconds"]
    if result.folds:  # side by side: what counts is when the last one is done
        seconds, startup = wall, 0.0
    accuracies = [fold.metrics["valid_accuracy"] for fold in result.folds]
    return Trial(result.model, epochs, seconds, startup, result.metrics["communicating"], accuracies)


def _plain(model: torch.nn.Module, data: Dataset[Any], **settings: Any) -> Trial:
    from shoal.parallel.exact.randomness import torch_as_it_was
    from shoal.parallel.learner import make_loss

    begun = time.perf_counter()
    with torch_as_it_was():
        epochs = plain_loop(model, data, make_loss(settings.pop("loss", "cross_entropy")), **settings)  # type: ignore[arg-type]
    return Trial(model, epochs, sum(epochs), time.perf_counter() - begun - sum(epochs))


def plain_loop(
    model: torch.nn.Module,
    data: TensorDataset,
    loss: Callable[[Any, Any], torch.Tensor],
    *,
    optimizer: str,
    learning_rate: float,
    epochs: int,
    batch_size: int,
    seed: int = 0,
) -> list[float]:
    """What one writes by hand in PyTorch, on all cores, without a DataLoader, which would be slower: seconds of epochs.

    Rows come in the order that `parallel.fit` takes them in, so that both must end with the same weights.
    """
    import torch

    from shoal.parallel.data.loader import epoch_order

    X, y = data.tensors
    torch.set_num_threads(thread_count())
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    steps = kind(model.parameters(), lr=learning_rate)
    model.train()
    seconds = []
    for epoch in range(epochs):
        begun, total = time.perf_counter(), 0.0
        for rows in epoch_order(len(X), seed, epoch, True).split(batch_size):
            steps.zero_grad()
            value = loss(model(X.index_select(0, rows)), y.index_select(0, rows))
            value.backward()
            steps.step()
            total += value.item() * len(rows)
        seconds.append(time.perf_counter() - begun)
    return seconds


def race(
    ways: Sequence[Way],
    model: torch.nn.Module,
    data: Dataset[Any],
    repeats: int,
    tick: Tick,
    special: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[dict[str, Trial], dict[str, str]]:
    """Every way once before any of them again; the best epoch of each counts. Also: what failed, and why.

    Ways that start no processes cost no waiting: they run twice in each round. Some may have data of their own.
    """
    found: dict[str, Trial] = {}
    failed = {way.name: way.missing for way in ways if way.missing}
    for _ in range(repeats):
        for way in [way for again in (False, True) for way in ways if not (again and way.launches)]:
            if way.name in failed:
                continue
            tick(way.name)
            try:
                trial = train(way, model, (special or {}).get(way.name, data), **settings)
            except RuntimeError as error:  # a worker failed or was lost: the other ways are still worth knowing
                failed[way.name] = str(error).splitlines()[0]
                found.pop(way.name, None)
                continue
            found[way.name] = _both(found[way.name], trial) if way.name in found else trial
    return found, failed


def _both(one: Trial, other: Trial) -> Trial:
    """The better of two runs, with the epochs of both."""
    better = min(one, other, key=lambda trial: trial.seconds)
    return Trial(
        better.model, one.epochs + other.epochs, better.seconds, min(one.startup, other.startup), better.communicating,
        better.folds,
    )  # fmt: skip


def rounds(ways: Sequence[Way], repeats: int) -> int:
    """How many ticks a race gives."""
    return repeats * sum(0 if way.missing else 1 if way.launches else 2 for way in ways)


def accuracy(model: torch.nn.Module, data: TensorDataset) -> float:
    """Share of the rows whose class is the largest output."""
    import torch

    X, y = data.tensors
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(rows.to(device)).argmax(1).cpu() == classes).sum())
            for rows, classes in zip(X.split(1000), y.split(1000), strict=True)
        )
    model.train()
    return right / len(y)


def first_rows(data: TensorDataset, rows: int) -> TensorDataset:
    """A part of the rows; they are in random order already."""
    from torch.utils.data import TensorDataset

    return TensorDataset(*(tensor[:rows] for tensor in data.tensors))


def percent(share: float | None, digits: int = 2) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f}%"


def performance_improvement(one: float, many: float) -> float:
    """The paper's PI: by how many percent of one worker's time many workers are faster.

    >>> performance_improvement(9511.66, 2909.78) > 60, performance_improvement(2.0, 3.0)
    (True, -50.0)
    """
    return 100 * (one - many) / one


def cores_note(workers: int, cores: int, what: str = "workers") -> list[str]:
    """Said where this machine cannot show what the paper's could: rows with a * are meant."""
    if workers <= cores:
        return []
    return [
        f"* This machine has {cores} core{'s' * (cores > 1)}: more {what} than that share them. Such rows show what "
        f"working together costs; they cannot show a speed-up."
    ]

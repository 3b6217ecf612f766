"""A case as it really runs: workers of this machine, weights averaged after every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.parallel import workers
from benchmarks.parallel.workers import Way
from benchmarks.planner.case import Case, Images, lenet, load_images

if TYPE_CHECKING:
    import numpy as np
    from torch.utils.data import TensorDataset


@dataclass(frozen=True)
class Measured:
    epochs: list[float]  # seconds of each, averaging included, evaluation and checkpoints not
    communicating: float  # share of the time; waiting for slower workers is in it
    startup: float  # seconds waited for besides
    accuracy: float  # of the averaged network after the last epoch, on all test rows

    @property
    def seconds(self) -> float:
        return sum(self.epochs)


def real_run(case: Case, images: Images | None = None, backend: str = "threads") -> Measured:
    """Train for real, with as many workers as the case has nodes."""
    images = images or load_images(case)
    way = Way("real", {"strategy": "local_sgd", "average_every": "epoch", "backend": backend, "workers": case.nodes})
    trial = workers.train(
        way, lenet(case.seed), tensors(images.X_train, images.y_train), optimizer="sgd", epochs=case.epochs,
        learning_rate=case.learning_rate, batch_size=case.batch_size, blas_threads=case.threads, seed=case.seed,
        device="cpu",
    )  # fmt: skip
    accuracy = workers.accuracy(trial.model, tensors(images.X_test, images.y_test))
    return Measured(trial.epochs, trial.communicating, trial.startup, accuracy)


def tensors(X: np.ndarray, y: np.ndarray) -> TensorDataset:
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(torch.from_numpy(X).unsqueeze(1), torch.from_numpy(y))

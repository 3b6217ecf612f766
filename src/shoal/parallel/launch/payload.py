"""The files that a launcher sends to its workers: job, model and data, in a folder that only this user can read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import WrongType
from shoal.parallel.lazy import nn, torch

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from shoal.parallel.job import Job


def write(folder: Path, job: Job, model: nn.Module, train: Dataset[Any], valid: Dataset[Any] | None) -> None:
    """Classes and functions of the user's script are sent by value: workers do not run the script again."""
    import cloudpickle

    parts: dict[str, Any] = {"job": job, "model": model}
    for name, data in (("train", train), ("valid", valid)):
        if type(data) is torch.utils.data.TensorDataset:
            torch.save([tensor.cpu() for tensor in data.tensors], folder / f"{name}.pt")
            parts[name] = f"{name}.pt"
        else:
            parts[name] = data
    try:
        content = cloudpickle.dumps(parts)
    except Exception as error:
        raise WrongType(
            f"model, data set, loss, optimizer or strategy cannot be sent to other processes: {error}"
        ) from None
    (folder / "payload.pkl").write_bytes(content)


def read(folder: Path) -> tuple[Job, nn.Module, Dataset[Any], Dataset[Any] | None]:
    """Tensors are mapped into memory, not copied: all workers share the pages."""
    parts = pickle.loads((folder / "payload.pkl").read_bytes())
    data = []
    for name in ("train", "valid"):
        value = parts[name]
        if isinstance(value, str):
            value = torch.utils.data.TensorDataset(*torch.load(folder / value, mmap=True, weights_only=True))
        data.append(value)
    return parts["job"], parts["model"], data[0], data[1]

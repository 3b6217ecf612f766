"""What workers of a search do in tests: as always, but for some recipes, or on some workers."""

from __future__ import annotations

import errno
import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.files import tensors
from shoal.search.remote import on_workers
from shoal.search.remote.payloads import Setting

KILLS = "SHOAL_TEST_KILLS"  # folder with a file for each worker that was ended
FAULT = "SHOAL_TEST_FAULT"  # file with the name of an error, which every task raises in a process that has the variable
POISON = [7]
ERRORS: dict[str, Callable[[], Exception]] = {
    "disk": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "memory": lambda: MemoryError("too much"),
    "library": lambda: ModuleNotFoundError("No module named 'scipy'"),
    "other": lambda: ValueError("bad memory chip"),
}


def files_of_model(fitted: Any, folder: Path) -> dict[str, bytes]:
    """What must be the same wherever a model was trained."""
    shoal.save(fitted, folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def poisoned(setting: Setting, payload: bytes, threads: int) -> bytes:
    """`on_workers.work`, which ends its process where a recipe has 7 hidden units."""
    about = tensors.unpack(payload)[1] if payload[0] else {"members": []}
    if any(member["hidden"] == POISON for member in about["members"]):
        (Path(os.environ[KILLS]) / uuid.uuid4().hex).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return on_workers.work(setting, payload, threads)


def refused(setting: Setting, payload: bytes, threads: int) -> bytes:
    """`on_workers.work`, which fails where a recipe has the activation mish."""
    about = tensors.unpack(payload)[1] if payload[0] else {"members": []}
    if any(member["activation"] == "mish" for member in about["members"]):
        raise ArithmeticError("mish is not allowed")
    return on_workers.work(setting, payload, threads)


def faulty(setting: Setting, payload: bytes, threads: int) -> bytes:
    """`on_workers.work`, which fails whatever it does on a worker that has the variable."""
    if FAULT in os.environ:
        raise ERRORS[Path(os.environ[FAULT]).read_text()]()
    return on_workers.work(setting, payload, threads)


def median_error(estimator: Any, X: Any, y: Any) -> float:
    """A scorer of a user."""
    return -float(np.median(np.abs(estimator.predict(X) - y)))

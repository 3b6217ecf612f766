"""What workers of a search do in tests: as always, but for one recipe that ends them."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from shoal import tensors
from shoal.search import on_workers
from shoal.search.payloads import Setting

KILLS = "SHOAL_TEST_KILLS"  # folder with a file for each worker that was ended
POISON = [7]


def poisoned(setting: Setting, payload: bytes, threads: int) -> bytes:
    """`on_workers.work`, which ends its process where a recipe has 7 hidden units."""
    about = tensors.unpack(payload)[1] if payload[0] else {"members": []}
    if any(member["hidden"] == POISON for member in about["members"]):
        (Path(os.environ[KILLS]) / uuid.uuid4().hex).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return on_workers.work(setting, payload, threads)


def median_error(estimator: Any, X: Any, y: Any) -> float:
    """A scorer of a user."""
    return -float(np.median(np.abs(estimator.predict(X) - y)))

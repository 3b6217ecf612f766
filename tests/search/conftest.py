from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from sklearn.datasets import load_iris
from support.dask_cluster import close_shared
from support.machine import Machine

from shoal.search.rounds import candidates


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


@pytest.fixture
def machine_of_speed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Machine]:
    """All searches of the test train on a machine of this speed, whose clock they have to be given."""

    def made(speed: float) -> Machine:
        machine = Machine(speed)
        monkeypatch.setattr(candidates, "train", machine.train)
        return machine

    return made


@pytest.fixture(scope="module", autouse=True)
def no_idle_clusters() -> Iterator[None]:
    """Dask clusters are shared by the tests of a module."""
    yield
    close_shared()

from __future__ import annotations

from typing import Any

import pytest
from support.finetune import ROWS

from shoal.finetune import models

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny model as initial model. One thread, as two test processes share two cores."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    models.silence_libraries()
    models.make_tiny(folder, ROWS, 64, seed=1)
    yield folder
    torch.set_num_threads(before)

"""torch with a given number of threads, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def row_order(rows: int, shuffle: bool) -> torch.Tensor:
    return torch.randperm(rows) if shuffle else torch.arange(rows)

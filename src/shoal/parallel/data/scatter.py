"""Over MPI, rank 0 has the data and scatters the rows of each epoch: a rank gets those that it needs, in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.parallel.data.loader import Loader, Pair, to_device
from shoal.parallel.groups import Group
from shoal.parallel.lazy import torch


def scattered(group: Group, loader: Loader, rounds: Sequence[list[torch.Tensor]]) -> Iterator[list[Pair | None]]:
    """The data of each round, given the rows that this rank needs. All ranks call this together."""
    assert loader.tensors is not None
    parts = [part for parts in rounds for part in parts]
    mine = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
    wanted = group.gather_objects(mine)
    columns = [_column(group, tensor, wanted, len(mine)) for tensor in loader.tensors]
    start = 0
    for round_parts in rounds:
        items: list[Pair | None] = []
        for part in round_parts:
            rows = slice(start, start + len(part))
            pair = [to_device(column[rows], loader.device) for column in columns]
            items.append((pair[0], pair[1]) if len(part) else None)
            start += len(part)
        yield items


def _column(group: Group, tensor: torch.Tensor, wanted: list[torch.Tensor], count: int) -> torch.Tensor:
    """This rank's rows of one tensor; only rank 0 reads the tensor."""
    shape, dtype = group.first_object((tuple(tensor.shape[1:]), tensor.dtype))
    parts = [tensor.index_select(0, rows) for rows in wanted] if group.rank == 0 else None
    return group.scatter(parts, torch.empty((count, *shape), dtype=dtype))

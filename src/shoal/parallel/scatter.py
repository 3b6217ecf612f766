"""Over MPI the first rank has the data and scatters it: each rank gets the rows of an epoch that it will need, no more.

An epoch's rows go out once, in the order of their use, so that a rank holds a part of the data and not all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from shoal.parallel.feed import Feed, Pair, to_device
from shoal.parallel.groups import Mpi


def scattered(group: Mpi, feed: Feed, rounds: Sequence[list[torch.Tensor]]) -> Iterator[list[Pair | None]]:
    """The items of each round, for parts of rows that this rank needs; all ranks call this together."""
    assert feed.tensors is not None
    parts = [part for parts in rounds for part in parts]
    mine = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
    wanted = _wishes(group, mine)
    columns = [_column(group, tensor, wanted, len(mine)) for tensor in feed.tensors]
    start = 0
    for round_parts in rounds:
        items: list[Pair | None] = []
        for part in round_parts:
            rows = slice(start, start + len(part))
            pair = [to_device(column[rows], feed.device) for column in columns]
            items.append((pair[0], pair[1]) if len(part) else None)
            start += len(part)
        yield items


def _wishes(group: Mpi, mine: torch.Tensor) -> list[torch.Tensor]:
    """Which rows each rank needs."""
    lengths = group.all_gather(torch.tensor([len(mine)])).tolist()
    padded = torch.zeros(max(lengths), dtype=torch.int64)
    padded[: len(mine)] = mine
    table = group.all_gather(padded).view(group.size, -1)
    return [row[:length] for row, length in zip(table, lengths, strict=True)]


def _column(group: Mpi, tensor: torch.Tensor, wanted: list[torch.Tensor], count: int) -> torch.Tensor:
    """This rank's rows of one tensor, which only the first rank looks at."""
    shape, dtype = group.first_object((tuple(tensor.shape[1:]), tensor.dtype))
    parts = [tensor.index_select(0, rows) for rows in wanted] if group.rank == 0 else None
    return group.scatter(parts, torch.empty((count, *shape), dtype=dtype))

"""Assigns rows to workers: of each batch, or for the whole run if workers keep their own rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from shoal.errors import UserError
from shoal.parallel.data.loader import RandomKey, epoch_order, key
from shoal.parallel.exact.tree_sum import Node, shares
from shoal.parallel.lazy import torch

if TYPE_CHECKING:
    from shoal.parallel.job import Job

BY_CLASS = "class:"  # a split by class: then comes ALPHA


def owners(targets: torch.Tensor | None, rows: int, workers: int, job: Job, least: int = 1) -> torch.Tensor:
    """The worker of each row, by `job.split`, `job.shares` and `job.seed`.

    targets  the class of each row, for a split by class
    least    rows that a worker needs; fewer if there are too few for all
    """
    check_shares(job.shares, workers)
    if rows < workers:
        raise UserError(f"{workers} workers need at least {workers} rows, one each; got {rows}")
    alpha = concentration(job.split)
    owner = torch.empty(rows, dtype=torch.int64)
    if alpha is None:
        order = epoch_order(rows, job.seed, RandomKey.ROWS_OF_WORKERS, job.shuffle and job.split == "random")
        for worker, mine in enumerate(order.split(sizes(rows, workers, job.shares))):
            owner[mine] = worker
        return owner
    order = epoch_order(rows, job.seed, RandomKey.ROWS_OF_WORKERS, job.shuffle)
    classes = _classes(targets, rows, job.split)[order]
    for label in classes.unique().tolist():
        members = order[classes == label]
        drawn = np.random.default_rng(key(job.seed, RandomKey.CLASSES_OF_WORKERS, label)).dirichlet(
            np.full(workers, alpha)
        )
        for worker, mine in enumerate(members.split(_rounded((len(members) * drawn).tolist(), len(members)))):
            owner[mine] = worker
    return _fill(owner, workers, least if rows >= least * workers else 1)


def smallest_part(targets: torch.Tensor | None, rows: int, job: Job, least: int, keeps_rows: bool) -> int:
    """Rows in the smallest batch of any worker. Unless workers keep their rows, those of each round are cut anew."""
    if keeps_rows:
        counts = owners(targets, rows, job.workers, job, least).bincount(minlength=job.workers).tolist()
    else:
        assert isinstance(job.average_every, int)
        each = job.average_every * job.batch_size
        counts = [each] * (rows >= each * job.workers)
        counts += [end - start for start, end in shares(rows % (each * job.workers), job.workers)]
    return min(size for count in counts for size in batch_sizes(count, job.batch_size, least))


def sizes(rows: int, workers: int, weights: Sequence[float] | None = None) -> list[int]:
    """Rows of each worker: nearly equal, or in proportion to the weights; at least one each.

    >>> sizes(8, 3), sizes(9, 2, (3, 1)), sizes(3, 2, (100, 1))
    ([3, 3, 2], [7, 2], [2, 1])
    """
    if weights is None:
        return [end - start for start, end in shares(rows, workers)]
    exact = [Fraction(weight) for weight in weights]  # rounding errors would decide between equal remainders
    each = rows / sum(exact)
    found = _rounded([each * weight for weight in exact], rows)
    while 0 in found:
        found[found.index(max(found))] -= 1
        found[found.index(0)] += 1
    return found


def _rounded(exact: Sequence[float | Fraction], total: int) -> list[int]:
    """Whole numbers next to these, with this sum: what is left goes to the largest remainders, the first of equals."""
    found = [math.floor(part) for part in exact]
    remainders = [part - whole for part, whole in zip(exact, found, strict=True)]
    for k in sorted(range(len(found)), key=lambda k: -remainders[k])[: total - sum(found)]:
        found[k] += 1
    return found


def _classes(targets: torch.Tensor | None, rows: int, split: str) -> torch.Tensor:
    if targets is None or targets.is_floating_point() or targets.shape != (rows,):
        found = "none" if targets is None else f"{tuple(targets.shape)} of {str(targets.dtype).removeprefix('torch.')}"
        raise UserError(f"split={split!r} needs targets that are class numbers, one for each row; got {found}")
    return targets.cpu().long()


def _fill(owner: torch.Tensor, workers: int, least: int) -> torch.Tensor:
    """Workers with too few rows get some of those that have most."""
    counts = torch.bincount(owner, minlength=workers)
    while int(counts.min()) < least:
        poor, rich = int(counts.argmin()), int(counts.argmax())
        owner[(owner == rich).nonzero()[-1]] = poor
        counts[poor] += 1
        counts[rich] -= 1
    return owner


def concentration(split: str) -> float | None:
    """The ALPHA of a split by class, None for others.

    >>> concentration("class:0.5"), concentration("order")
    (0.5, None)
    """
    return float(split.removeprefix(BY_CLASS)) if split.startswith(BY_CLASS) else None


def check_shares(shares: Sequence[float] | None, workers: int) -> None:
    """Refuse another number of shares than of workers."""
    if shares is not None and len(shares) != workers:
        raise UserError(f"shares must be one number for each of the {workers} workers; got {len(shares)}")


# ---- of a batch ----


def split_rows(rows: int, parts: int, least: int) -> list[Node]:
    """Split rows into nearly equal parts of at least `least` rows; if there are too few rows, the last parts are empty.

    >>> split_rows(7, 4, 2)
    [(0, 3), (3, 5), (5, 7), (7, 7)]
    """
    filled = min(parts, max(1, rows // least))
    return shares(rows, filled) + [(rows, rows)] * (parts - filled)


def batches(rows: torch.Tensor, size: int, least: int) -> list[torch.Tensor]:
    """Rows in batches of `size`; a last one of fewer than `least` rows joins the one before."""
    parts = list(rows.split(size)) if len(rows) else []
    if len(parts) > 1 and len(parts[-1]) < least:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def batch_sizes(rows: int, size: int, least: int) -> list[int]:
    """The number of rows in each of `batches`.

    >>> batch_sizes(9, 4, 2), batch_sizes(10, 4, 2), batch_sizes(1, 4, 2)
    ([4, 5], [4, 4, 2], [1])
    """
    return [len(part) for part in batches(torch.arange(rows), size, least)]

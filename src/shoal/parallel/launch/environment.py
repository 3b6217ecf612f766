"""Finds out what started this process (a user, torchrun or an MPI launcher) from environment variables."""

from __future__ import annotations

import os

MPI_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_SIZE")
MPI_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
OWN = "SHOAL_RANK_OF"  # set for processes of our own launcher


def launcher() -> str | None:
    """ "torchrun", "mpi", or None. One process alone under a launcher counts as none."""
    if OWN in os.environ:
        return None
    if "TORCHELASTIC_RUN_ID" in os.environ or ("RANK" in os.environ and "MASTER_ADDR" in os.environ):
        return "torchrun"
    sizes = [int(os.environ[name]) for name in MPI_SIZES if os.environ.get(name, "").isdigit()]
    return "mpi" if sizes and max(sizes) > 1 else None


def world() -> tuple[int, int]:
    """(rank, size) as the launcher has set them; (0, 1) without one."""
    kind = launcher()
    if kind == "torchrun":
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if kind == "mpi":
        ranks = [int(os.environ[name]) for name in MPI_RANKS if os.environ.get(name, "").isdigit()]
        sizes = [int(os.environ[name]) for name in MPI_SIZES if os.environ.get(name, "").isdigit()]
        return (ranks or [0])[0], (sizes or [1])[0]
    return 0, 1

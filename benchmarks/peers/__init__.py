"""Ways to train a population, side by side. Each one does the same work: same data, batches, updates and loss.

A test holds this: every peer, from the same initial weights and the same order of rows, ends at native's weights.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:  # the peers of searches share this package, and run where Shoal is not installed
    from benchmarks.harness.problems import Problem

Weights = list[tuple[np.ndarray, np.ndarray]]


class Peer(Protocol):
    """Built from a problem, outside of any timing. Every `run` goes on from where the last one ended."""

    def run(self, epochs: int, shuffle: bool = True) -> None:
        """Train all members for so many epochs; a new order of rows each epoch if `shuffle`."""
        ...

    def warm_up(self) -> None:
        """Do once whatever is done only once: compile, start threads, allocate. May train a little."""
        ...

    def weights(self, i: int) -> Weights:
        """[(W, b), ...] of member `i`, W of shape (fan_in, fan_out)."""
        ...


# name -> (module, class, fixed options): torch and jax are imported when a peer of theirs is first made.
REGISTRY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "native": ("engines", "EnginePeer", {"engine": "native"}),
    "grouped": ("engines", "EnginePeer", {"engine": "grouped"}),
    "reference": ("reference", "ReferencePeer", {}),
    "vmap": ("stacked", "VmapPeer", {}),
    "sequential": ("sequential", "SequentialPeer", {}),
    "bmm": ("stacked", "BmmPeer", {}),
    "jax": ("jax_stacked", "JaxPeer", {}),
}


def make(name: str, problem: Problem, threads: int, **options: Any) -> Peer:
    """The peer of that name. `options` are its own: `chunk` for stacked peers, `formulation` for jax."""
    module, attribute, fixed = REGISTRY[name]
    peer: Peer = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)(
        problem, threads=threads, **fixed, **options
    )
    return peer

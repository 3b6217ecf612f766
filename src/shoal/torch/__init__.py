"""Populations as `nn.Module`s, for custom training loops.

`ParallelMLPs` is the module of the ParallelMLPs paper (Farias et al., 2023). `Heads` puts many heads on one backbone.
`stack` runs modules of one architecture as one.
"""

from shoal.torch.heads import Heads
from shoal.torch.parallel_mlps import MLP, ParallelMLPs
from shoal.torch.scatter import ACTIVATIONS, Layers, ScatterNetwork
from shoal.torch.stacked import Stack, seeded, stack

__all__ = ["ACTIVATIONS", "MLP", "Heads", "Layers", "ParallelMLPs", "ScatterNetwork", "Stack", "seeded", "stack"]

"""Populations as `nn.Module`s, for people with a training loop of their own.

`ParallelMLPs` is the module of the paper of that name; `Heads` puts many heads on one backbone; `stack` runs modules of
one architecture as one.
"""

from shoal.torch.heads import Heads
from shoal.torch.packed import ACTIVATIONS, MLP, Layers, ParallelMLPs, ScatterNetwork
from shoal.torch.stacked import Stack, seeded, stack

__all__ = ["ACTIVATIONS", "MLP", "Heads", "Layers", "ParallelMLPs", "ScatterNetwork", "Stack", "seeded", "stack"]

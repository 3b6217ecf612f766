"""Random numbers that depend on the shard, not on the worker that computes it.

Layers such as dropout draw from the generator of the process. Before a shard is computed, that generator is seeded with
the shard's key; where several threads share the process, each uses a generator of its own instead.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from shoal.parallel.lazy import torch


def own_generator(generator: torch.Generator) -> AbstractContextManager[Any]:
    """In this thread, operations that would draw from the process's generator draw from this one."""
    from shoal.parallel.exact.generators import OwnGenerator

    return OwnGenerator(generator)


def draw_weights(model: torch.nn.Module, key: int) -> None:
    """Initialise all layers anew that can do so themselves (`reset_parameters`), with random numbers of this key."""
    with torch.no_grad(), own_generator(torch.Generator().manual_seed(key)):
        for module in model.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()


@contextmanager
def keyed(key: int, threaded: bool) -> Iterator[None]:
    """Random numbers drawn inside are seeded with this key."""
    if threaded:
        with own_generator(torch.Generator().manual_seed(key)):
            yield
    else:
        torch.manual_seed(key)
        yield


def draws_random_numbers(model: torch.nn.Module, inputs: Any) -> bool:
    """Whether a forward pass in training draws any; tried on a copy of the model."""
    trial = copy.deepcopy(model).train()
    own = torch.Generator().manual_seed(0)
    before = own.get_state()
    with torch.no_grad(), own_generator(own):
        trial(inputs)
    return not torch.equal(before, own.get_state()) or _on_accelerator(model)


def _on_accelerator(model: torch.nn.Module) -> bool:
    """Generators of other devices are not checked: there the answer is yes, to be safe."""
    return any(parameter.device.type != "cpu" for parameter in model.parameters())


@contextmanager
def random_numbers_kept(seed: int | None = None) -> Iterator[None]:
    """The generators of PyTorch, numpy and Python afterwards give the numbers that they would have given.

    seed  for all three inside, if given
    """
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        if seed is not None:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Restore the caller's number of threads, generator and deterministic mode afterwards."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # to set it takes torch a second of imports
            torch.use_deterministic_algorithms(deterministic)

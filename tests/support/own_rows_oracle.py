"""The oracle for workers with rows of their own: local SGD and gossip, by hand in plain PyTorch."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from support.parallel_cases import order_of


def dealt(rows: int, workers: int, split: str, shares: tuple[int, ...] | None, seed: int = 0) -> torch.Tensor:
    """The worker of each row, at random or in order: whole numbers next to the exact ones, by largest remainders."""
    weights = shares or (1,) * workers
    exact = [Fraction(rows * weight, sum(weights)) for weight in weights]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(workers), key=lambda k: exact[k] - counts[k], reverse=True)
    for k in by_remainder[: rows - sum(counts)]:
        counts[k] += 1
    numbers = torch.repeat_interleave(torch.arange(workers), torch.tensor(counts))
    owner = torch.empty(rows, dtype=torch.int64)
    owner[order_of(rows, seed, -1) if split == "random" else torch.arange(rows)] = numbers
    return owner


def own_starts(model: nn.Module, workers: int, seed: int = 0) -> list[nn.Module]:
    """A model for each worker; all but the first are initialised anew."""
    from shoal.parallel.data.loader import key

    models = [copy.deepcopy(model) for _ in range(workers)]
    before = torch.get_rng_state()
    for rank, own in enumerate(models[1:], 1):
        torch.manual_seed(key(seed, -5, rank))
        for module in own.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    torch.set_rng_state(before)
    return models


def ring(workers: int) -> torch.Tensor:
    """How gossip mixes: row i holds the weights of all workers in the new worker i."""
    mixing = torch.zeros(workers, workers, dtype=torch.float64)
    for k in range(workers):
        near = {(k - 1) % workers, k, (k + 1) % workers}
        mixing[k, sorted(near)] = 1 / len(near)
    return mixing


def by_hand(models: list[nn.Module], rows: TensorDataset, owner: torch.Tensor, job: dict[str, Any]) -> dict[str, Any]:
    """Train one copy for each worker; "model" is what is delivered, "epochs" how many there were.

    job: strategy, optimizer (a function of parameters), average_every, epochs, batch_size, until_error
    """
    X, y = rows.tensors
    every, until = job["average_every"], job.get("until_error")
    optimizers = [job["optimizer"](model.parameters()) for model in models]
    counts = torch.bincount(owner, minlength=len(models)).double()
    mixing = ring(len(models)) if job["strategy"] == "gossip" else (counts / counts.sum()).repeat(len(models), 1)
    stopped = [False] * len(models)
    first_stop, epoch = None, 0
    for epoch in range(job["epochs"]):
        order = order_of(len(rows), 0, epoch)
        batches = [order[owner[order] == k].split(job["batch_size"]) for k in range(len(models))]
        longest = max(map(len, batches))
        sums = [0.0] * len(models)
        for begin in range(0, longest, longest if isinstance(every, str) else every):
            end = longest if isinstance(every, str) else begin + every
            for k, model in enumerate(models):
                for batch in () if stopped[k] else batches[k][begin:end]:
                    optimizers[k].zero_grad()
                    loss = nn.functional.cross_entropy(model(X[batch]), y[batch])
                    loss.backward()
                    optimizers[k].step()
                    sums[k] += float(loss.detach()) * len(batch)
            if every != "end":
                mix(models, optimizers, mixing)
        if until is not None:
            stopped = [stop or sums[k] / counts[k] <= until for k, stop in enumerate(stopped)]
            first_stop = epoch + 1 if first_stop is None and any(stopped) else first_stop
        if all(stopped):
            break
    apart = copy.deepcopy(models)
    mean = mixing if job["strategy"] == "local_sgd" else torch.full_like(mixing, 1 / len(models))
    mix(models, optimizers, mean)
    return {"model": models[0], "apart": apart, "epochs": epoch + 1, "first_stop": first_stop}


@torch.no_grad()
def mix(models: list[nn.Module], optimizers: list[torch.optim.Optimizer], mixing: torch.Tensor) -> None:
    """Replace weights, and what the optimisers keep for them, by weighted means over workers."""
    for parameters in zip(*(model.parameters() for model in models), strict=True):
        states = [optimizer.state[p] for optimizer, p in zip(optimizers, parameters, strict=True)]
        kept = [name for name, value in states[0].items() if isinstance(value, torch.Tensor)]
        for parts in (parameters, *([state[name] for state in states] for name in kept)):
            stack = torch.stack([part.double() for part in parts])
            for part, mean in zip(parts, torch.tensordot(mixing, stack, 1), strict=True):
                part.copy_(mean)

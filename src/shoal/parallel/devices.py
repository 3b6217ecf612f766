"""Which device a worker computes on."""

from __future__ import annotations

import torch

from shoal.errors import UserError


def find_device(name: str, rank: int = 0) -> torch.device:
    """ "auto": CUDA if there is one, else Apple's MPS, else the CPU. Several workers spread over several GPUs."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise UserError(f"device {name!r} was asked for, but torch finds no GPU; use --device auto or cpu")
        return torch.device("cuda", int(number) if number else rank % torch.cuda.device_count())
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device {name!r} was asked for, but this machine has no Apple GPU; use --device auto or cpu")
    return torch.device(name)

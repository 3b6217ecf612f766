"""What the planner is judged on: networks, rows of MNIST and batch sizes; three that are given, others by chance."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from shoal.errors import UserError
from shoal.validate import one_of

WIDTHS, LAYERS = (48, 900), (1, 2, 3)  # of hidden layers that are drawn
MLP_BATCHES, CNN_BATCHES = (24, 700), (16, 320)


@dataclass(frozen=True)
class Subject:
    name: str
    net: str
    rows: int  # of an epoch
    batches: tuple[int, ...]


GIVEN = {
    one.name: one
    for one in (
        Subject("mlp", "mlp:784-256-10", 8192, (64, 512)),
        Subject("wide mlp", "mlp:784-1024-1024-10", 4096, (128, 512)),
        Subject("cnn", "cnn", 1024, (64, 256)),
    )
}
DRAWN = "drawn"
HERE = "this machine"  # the place of cases that are not between hosts


def find_subject(name: str) -> Subject:
    """One of those given, or `drawn:7`: a network and batch sizes by chance, with this seed.

    >>> find_subject("drawn:0")
    Subject(name='drawn:0', net='cnn', rows=928, batches=(92, 232))
    """
    kind, _, seed = name.partition(":")
    if kind != DRAWN:
        return GIVEN[one_of("--net", name, [*GIVEN, f"{DRAWN}:SEED"])]
    if not seed.isdecimal():
        raise UserError(f"--net {name}: a network by chance is named by its seed, as in {DRAWN}:7")
    return _draw(name, random.Random(int(seed)))


def _draw(name: str, chance: random.Random) -> Subject:
    """A perceptron in two cases of three, else the convolutional network; the larger batch at least twice the other."""

    def between(low: float, high: float) -> int:
        return round(math.exp(chance.uniform(math.log(low), math.log(high))))

    if chance.random() < 2 / 3:
        hidden = [between(*WIDTHS) for _ in range(chance.choice(LAYERS))]
        net, (low, high) = "-".join(["mlp:784", *map(str, hidden), "10"]), MLP_BATCHES
    else:
        net, (low, high) = "cnn", CNN_BATCHES
    small = between(low, high / 2)
    large = between(2 * small, high)
    return Subject(name, net, large * (8 if net != "cnn" else 4), (small, large))

"""What the compiled kernel computes inside of a step, read from the outside."""

from __future__ import annotations

import numpy as np

from shoal import Member, Population
from shoal.population.rows import Split

SMALL = 2.0**-40  # weight of each neuron in the output: the sum of all neurons stays far below the target


def activation(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and derivative of an activation, from one step of plain gradient descent.

    Each number of x is the sum of one neuron. With output weights of zero, the step of an output weight is that of the
    output's bias times the value; with others, the step of a neuron's bias is that of the output's bias times the
    weight and the derivative.
    """
    member = Member(hidden=len(x), activation=name, optimizer="sgd", learning_rate=1.0)
    population = Population([member] * 2, 1, 1, "mse")
    for i, weight in enumerate((0.0, SMALL)):
        column = np.full((len(x), 1), weight, np.float32)
        population.set_weights(i, [(x[None], np.zeros(len(x))), (column, np.zeros(1))])
    population.fit(np.ones((1, 1)), np.full((1, 1), -1 / SMALL), 1, rows=Split([0]), threads=1)
    parameters = population.state.parameters.astype(np.float64)
    _, last = population.layout.views(0, parameters)
    hidden, last_small = population.layout.views(1, parameters)
    return last[:-1, 0] / last[-1, 0], hidden[-1] / (SMALL * last_small[-1, 0])


def dropout_mask(seed: int, step: int, layer: int, shape: tuple[int, int], rate: float) -> np.ndarray:
    """Which neurons (columns) are kept in each row of a batch: a hash of where and when, in plain numpy."""
    with np.errstate(over="ignore"):
        key = _split_mix(_split_mix(_split_mix(np.uint64(seed)) ^ np.uint64(step)) ^ np.uint64(layer))
        low, high = np.uint32(key & np.uint64(0xFFFFFFFF)), np.uint32(key >> np.uint64(32))
        row, neuron = np.arange(shape[0], dtype=np.uint32)[:, None], np.arange(shape[1], dtype=np.uint32)
        line = _mix(low + row * np.uint32(0x9E3779B9)) ^ high
        return (_mix(line + neuron * np.uint32(0x85EBCA6B)) >> np.uint32(8)) >= np.rint(rate * (1 << 24))


def _split_mix(x: np.uint64) -> np.uint64:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))

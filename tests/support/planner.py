"""A machine and a network of given speeds for tests of the planner: nothing is measured."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import nn

from shoal.parallel.cost import Facts, Layer, LinearPair
from shoal.parallel.job import Job
from shoal.planner.cost.cluster import Cluster, NodeLink
from shoal.planner.cost.curves import Curve
from shoal.planner.cost.times import CostModel
from shoal.planner.measure.calibration import MachineCalibration
from shoal.planner.simulate.averaged import Averaged
from shoal.planner.simulate.chains import chain_of


def network(widths=(64, 256, 256, 256, 10)) -> Facts:
    """A perceptron of these widths under plain SGD."""
    layers, tensors = [], []
    for inputs, outputs in itertools.pairwise(widths):
        layers.append(Layer("Linear", inputs * outputs + outputs, 6.0 * inputs * outputs, inputs, outputs))
        layers.append(Layer("ReLU", 0, 0.0, outputs, outputs))
        tensors += [4 * inputs * outputs, 4 * outputs]
    count = sum(tensors) // 4
    flops = sum(layer.flops for layer in layers)
    sizes = list(itertools.pairwise(widths))
    pairs = [LinearPair((part[-1][1], *([part[0][0]] if k else [])), 6.0 * sum(ins * outs for ins, outs in part))
             for k, part in enumerate(sizes[k : k + 2] for k in range(0, len(sizes), 2))]  # fmt: skip
    return Facts(count, tuple(tensors), 4 * count + 4, 4 * count, 0, 4 * sum(widths[1:]), 4 * widths[0], flops,
                 tuple(layers[:-1]), tuple(pairs))  # fmt: skip


def line(fixed: float, slope: float, sizes=(3, 12, 48, 192, 768, 3072)) -> Curve:
    return Curve(tuple((float(size), fixed + slope * size) for size in sizes))


def machine(
    fixed: float = 4e-4, slope: float = 1e-5, cores: int = 2, software: float = 0.0, jitter=(), **changes
) -> MachineCalibration:
    """Steps of a fixed part and a part for each row; `software`: seconds of a byte of any message."""
    facts = network()
    curves = {1: line(fixed, slope), cores: line(fixed, slope / cores)}
    messages = {name: line(0.0, software, (1024, 1 << 20, 8 << 20)) for name in
                ("all_reduce", "exchange", "all_gather", "message")}  # fmt: skip
    made = MachineCalibration(
        facts=facts, cores=cores, plain=curves, vector=curves, apply=fixed / 2, copy=0.0, add=0.0,
        load=0.0, peak_flops=1e11, peak_bytes=1e10, base=0, jitter=tuple(jitter),
        workers=2, messages=messages,
    )  # fmt: skip
    return replace(made, **changes)


def cost_model(
    link: NodeLink | None = None, own_machines: bool = True, batch_size: int = 128, rows: int = 10_000,
    calibration: MachineCalibration | None = None, backend: str = "processes", speeds=(), **job,
) -> CostModel:  # fmt: skip
    settings = {"strategy": "blas", "workers": 1, "backend": backend, "batch_size": batch_size, **job}
    return CostModel(calibration or machine(), Cluster(link, own_machines, tuple(speeds)), Job(**settings), rows)


def state_of(model: nn.Module, averaged: Averaged, job: int = 0) -> dict[str, torch.Tensor]:
    """The averaged network of a job, for `load_state_dict` of the model."""
    state = {}
    for name, (weight, bias) in zip(chain_of(model).names, averaged.networks.weights(job), strict=True):
        state[f"{name}.weight"], state[f"{name}.bias"] = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias)
    return state

"""Predict a training, then run the best plan and compare: `python examples/plan_and_run.py`."""

import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel, planner

random = torch.Generator().manual_seed(0)
inputs = torch.randn(4000, 20, generator=random)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
train, test = TensorDataset(inputs[:3000], labels[:3000]), TensorDataset(inputs[3000:], labels[3000:])
network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))

# Would a second worker help? The planner measures this machine and this network, then predicts.
plan = planner.plan(network, train, test, nodes=(1, 2), epochs=5, seeds=1, strategy=["allreduce"])
print(plan.verdict)
for row in plan.rows:
    print(f"{row.strategy} on {row.nodes} node(s): {row.seconds:.2f} s predicted")

# Run what it recommends.
begun = time.perf_counter()
result = parallel.fit(network, train, test, **vars(plan.training()))
print(f"measured: {time.perf_counter() - begun:.2f} s, {result.history[-1]}")

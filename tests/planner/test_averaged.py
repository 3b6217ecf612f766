"""Nodes as one population: what `shoal.parallel` computes with local_sgd on threads, and with folds a plain loop."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planner import state_of
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from shoal import parallel
from shoal.parallel.data.loader import epoch_order
from shoal.parallel.data.ownership import owners
from shoal.parallel.exact.tree_sum import shares
from shoal.parallel.job import Job
from shoal.planner.simulate.averaged import Averaged, train_averaged
from shoal.planner.simulate.chains import can_be_fast

# The largest difference of a weight; measured are 5e-7. But where a gradient is almost zero, Adam makes a step of its
# rounding error: then weights may be as far from those in float64 as PyTorch's own in float32, times a factor.
CLOSE, FACTOR = 1e-5, 4.0
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "learning_rate": 0.1},
    "momentum": {"optimizer": "sgd", "learning_rate": 0.03, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"optimizer": "adam", "learning_rate": 0.01, "weight_decay": 0.01},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
}
UNTIL = 1.09  # a loss that nodes reach at different times
KINDS = ("classes", "binary", "number", "numbers", "classes as numbers")


def rows_of(kind: str, rows: int = 107, features: int = 5, seed: int = 0) -> tuple[TensorDataset, str, int]:
    """Data with the loss and the number of outputs that they need."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(rows, features, generator=generator)
    noise = torch.randn(rows, 3, generator=generator)
    signal = noise + X @ torch.randn(features, 3, generator=generator)
    y, loss, outputs = {
        "classes": (signal.argmax(1), "cross_entropy", 3),
        "binary": ((signal[:, 0] > 0).long(), "bce", 1),
        "number": (signal[:, 0].double(), "mse", 1),
        "numbers": (signal[:, :2], "mse", 2),
        "classes as numbers": (signal.argmax(1), "mse", 3),
    }[kind]
    return TensorDataset(X, y), loss, outputs


def network(features: int, outputs: int, hidden: Sequence[int] = (6, 4), activation: type[nn.Module] = nn.Tanh,
            seed: int = 1) -> nn.Sequential:  # fmt: skip
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(features, width), activation()]
        features = width
    return nn.Sequential(*layers, nn.Linear(features, outputs))


def compare(model: nn.Sequential, train: TensorDataset, **given: Any) -> None:
    """Weights, training losses and validation losses of all epochs are those of workers in threads."""
    job = Job(
        **{"strategy": "local_sgd", "backend": "threads", "device": "cpu", "epochs": 3, "blas_threads": 1, **given}
    )
    chosen = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    real = copy.deepcopy(model)
    found = parallel.fit(real, train, train, **chosen)
    measured: list[float] = []

    def measure(epoch: int, averaged: Averaged) -> None:
        assert epoch == len(measured)
        plain = copy.deepcopy(model)
        plain.load_state_dict(state_of(model, averaged))
        measured.append(float(loss_of(plain, train, str(job.loss))))

    averaged = train_averaged(model, train, job, after_epoch=measure, threads=1)
    if far(state_of(model, averaged), real) > CLOSE:
        exact = copy.deepcopy(model).double()
        parallel.fit(exact, TensorDataset(train.tensors[0].double(), train.tensors[1]), **chosen)
        assert far(state_of(model, averaged), exact) < CLOSE + FACTOR * far(real.state_dict(), exact)
    losses = averaged.losses[0][np.isfinite(averaged.losses[0])]
    np.testing.assert_allclose(losses, [record["train_loss"] for record in found.history], CLOSE, CLOSE)
    np.testing.assert_allclose(measured, [record["valid_loss"] for record in found.history], CLOSE, CLOSE)
    assert averaged.diverged == [None]


def far(state: dict[str, torch.Tensor], other: nn.Module) -> float:
    """The largest difference of a weight."""
    return max(float((state[name] - value).abs().max()) for name, value in other.state_dict().items())


def loss_of(model: nn.Module, rows: TensorDataset, loss: str) -> torch.Tensor:
    X, y = rows.tensors
    with torch.no_grad():
        output = model(X)
        if loss == "cross_entropy":
            return nn.functional.cross_entropy(output, y)
        if y.dim() == 1 and output.shape[1] > 1:
            y = nn.functional.one_hot(y, output.shape[1])
        plain = nn.functional.mse_loss if loss == "mse" else nn.functional.binary_cross_entropy_with_logits
        return plain(output, y.reshape(output.shape).float())


# ---- as workers in threads ----


@pytest.mark.parametrize("every", ["epoch", "end"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(optimizer: str, schedule: str, every: str) -> None:
    """107 rows on 5 nodes are 22 and 21 rows: three batches of 7 with a fourth of one row on two of the nodes."""
    train, loss, outputs = rows_of("classes")
    compare(network(5, outputs), train, loss=loss, workers=5, batch_size=7, average_every=every, schedule=schedule,
            **OPTIMIZERS[optimizer])  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_target(kind: str) -> None:
    train, loss, outputs = rows_of(kind)
    compare(network(5, outputs), train, loss=loss, workers=3, batch_size=16, **OPTIMIZERS["momentum"])


@pytest.mark.parametrize("every", ["epoch", "end"])
@pytest.mark.parametrize(
    "given",
    [
        {"workers": 3, "shares": (5, 2, 1)},
        {"workers": 4, "split": "class:0.3"},
        {"workers": 3, "split": "order", "shuffle": False},
        {"workers": 3, "start": "own"},
        {"workers": 4, "until_error": UNTIL, "shares": (5, 2, 1, 1), "schedule": "cosine"},
        {"workers": 1},
        {"workers": 4, "schedule": "cosine"},
        {"workers": 40, "batch_size": 32},
    ],
    ids=lambda given: ", ".join(f"{name} {value}" for name, value in given.items()),
)
def test_every_way_to_deal_rows_to_start_and_to_stop(given: dict[str, Any], every: str) -> None:
    train, loss, outputs = rows_of("classes")
    settings = {"batch_size": 9, "epochs": 5, "average_every": every, **OPTIMIZERS["adam"], **given}
    compare(network(5, outputs), train, loss=loss, **settings)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    rows, workers = draw(st.integers(2, 90)), draw(st.integers(1, 6))
    case = {
        "kind": draw(st.sampled_from(KINDS)), "rows": max(rows, workers), "features": draw(st.integers(1, 9)),
        "hidden": draw(st.lists(st.integers(1, 20), max_size=3)), "workers": workers,
        "activation": draw(st.sampled_from([nn.Tanh, nn.GELU, nn.Sigmoid])), "batch_size": draw(st.integers(1, 40)),
        "average_every": draw(st.sampled_from(["epoch", "end"])), "seed": draw(st.integers(0, 1 << 40)),
        "schedule": draw(st.sampled_from(["constant", "cosine"])), "shuffle": draw(st.booleans()),
        "until_error": draw(st.sampled_from([None, None, 0.4])),
        **OPTIMIZERS[draw(st.sampled_from(list(OPTIMIZERS)))], "learning_rate": 0.005,
    }  # fmt: skip
    if case["optimizer"] == "sgd":  # in float64 others are drawn
        case["start"] = draw(st.sampled_from(["same", "own"]))
    if draw(st.booleans()):
        case["shares"] = tuple(draw(st.lists(st.integers(1, 9), min_size=workers, max_size=workers)))
    return case


@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_sizes_drawn_at_random(case: dict[str, Any]) -> None:
    train, loss, outputs = rows_of(case.pop("kind"), case.pop("rows"), case.get("features", 1))
    model = network(case.pop("features"), outputs, case.pop("hidden"), case.pop("activation"))
    compare(model, train, loss=loss, **case)


# ---- several jobs, folds ----


def test_jobs_trained_together_are_the_same_as_alone() -> None:
    train, loss, outputs = rows_of("classes")
    common: dict[str, Any] = {"strategy": "local_sgd", "loss": loss, "epochs": 4, "batch_size": 8, **OPTIMIZERS["adam"]}
    jobs = [
        Job(**common, workers=2, seed=0), Job(**common, workers=5, seed=1, average_every="end"),
        Job(**common, workers=2, shares=(3, 1), start="own"), Job(**common, workers=3, until_error=UNTIL),
    ]  # fmt: skip
    models = [network(5, outputs, seed=seed) for seed in range(4)]
    before = copy.deepcopy(models[0].state_dict())
    together = train_averaged(models, train, jobs)
    for k, (model, job) in enumerate(zip(models, jobs, strict=True)):
        alone = train_averaged(model, train, job)
        np.testing.assert_allclose(together.losses[k], alone.losses[0], atol=1e-6)
        for name, value in state_of(model, alone).items():
            assert torch.allclose(state_of(model, together, k)[name], value, atol=1e-6)
    assert np.isnan(together.losses[3, -1]), "one of them ends before the others"
    assert all(torch.equal(value, before[name]) for name, value in models[0].state_dict().items()), "not changed"
    X, y = train.tensors
    evaluated = together.networks.evaluate(X, y).loss
    for k, model in enumerate(models):
        model.load_state_dict(state_of(model, together, k))
        assert evaluated[k] == pytest.approx(float(loss_of(model, train, loss)), abs=1e-6)


@pytest.mark.parametrize("every", ["epoch", "end"])
def test_folds_of_each_node(every: str) -> None:
    """Against a plain loop: a network for each node and fold, trained without the fold; then the mean of all."""
    train, loss, outputs = rows_of("classes")
    job = Job(strategy="local_sgd", loss=loss, workers=2, shares=(2, 1), batch_size=9, epochs=3, seed=4,
              average_every=every, **OPTIMIZERS["momentum"])  # fmt: skip
    model = network(5, outputs)
    averaged = train_averaged(model, train, job, folds=3)
    for name, value in plain_folds(model, train, job, 3).items():
        assert torch.allclose(state_of(model, averaged)[name], value, rtol=0, atol=CLOSE), name


def plain_folds(model: nn.Module, train: TensorDataset, job: Job, folds: int) -> dict[str, torch.Tensor]:
    (X, y), rows = train.tensors, len(train)
    owner, dealt = owners(y, rows, job.workers, job), epoch_order(rows, job.seed, -2, True)
    networks, keeps, weights = [], [], []
    for node in range(job.workers):
        mine = dealt[owner[dealt] == node]
        for start, end in shares(len(mine), folds):
            networks.append(copy.deepcopy(model))
            keeps.append((owner == node).index_fill(0, mine[start:end], False))
            weights.append(len(mine) / rows / folds)
    optimizers = [torch.optim.SGD(own.parameters(), job.learning_rate, job.momentum, weight_decay=job.weight_decay)
                  for own in networks]  # fmt: skip
    for epoch in range(job.epochs):
        order = epoch_order(rows, job.seed, epoch, True)
        for own, optimizer, keep in zip(networks, optimizers, keeps, strict=True):
            for batch in order[keep[order]].split(job.batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(own(X[batch]), y[batch]).backward()
                optimizer.step()
        if job.average_every == "epoch":
            for values in zip(*(own.parameters() for own in networks), strict=True):
                average(values, weights)
                average([o.state[v]["momentum_buffer"] for o, v in zip(optimizers, values, strict=True)], weights)
    states = [own.state_dict() for own in networks]
    return {
        name: sum(state[name] * weight for state, weight in zip(states, weights, strict=True)) for name in states[0]
    }


@torch.no_grad()
def average(values: Sequence[torch.Tensor], weights: Sequence[float]) -> None:
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True))
    for value in values:
        value.copy_(mean)


def test_a_job_that_diverges_leaves_the_others_alone() -> None:
    train, loss, outputs = rows_of("numbers")
    job = Job(strategy="local_sgd", loss=loss, workers=3, epochs=4, batch_size=8, optimizer="sgd", learning_rate=0.01)
    wild, calm = network(5, outputs), network(5, outputs)
    with torch.no_grad():
        wild[-1].weight.fill_(1e30)
    found = train_averaged([wild, calm], train, [job, job])
    assert found.diverged == [0, None]
    assert np.isfinite(found.losses[0]).sum() == 0
    assert np.isfinite(found.losses[1]).all()
    assert np.array_equal(found.networks.weights(1)[0][0], train_averaged(calm, train, job).networks.weights(0)[0][0])


# ---- what only PyTorch can train ----

PLAIN = Job(strategy="local_sgd", workers=2)


class Own(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def hooked() -> nn.Sequential:
    model = network(5, 3)
    model[0].register_forward_hook(lambda module, given, output: output * 2)
    return model


def tied() -> nn.Sequential:
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(5, 3))


def frozen() -> nn.Sequential:
    model = network(5, 3)
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (network(5, 3), {"average_every": 3}),
        (network(5, 3), {"strategy": "allreduce"}),
        (network(5, 3), {"loss": nn.functional.cross_entropy}),
        (network(5, 3), {"optimizer": torch.optim.Adam}),
        (network(5, 3), {"optimizer": "sgd", "momentum": 1.5}),
        (Own(), {}),
        (nn.Sequential(nn.ReLU()), {}),
        (nn.Sequential(), {}),
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 3)), {}),
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), {}),
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 3)), {}),
        (nn.Sequential(nn.Linear(5, 4), nn.ELU(0.5), nn.Linear(4, 3)), {}),
        (nn.Sequential(nn.Linear(5, 3), nn.Sigmoid()), {}),
        (nn.Sequential(*network(5, 5), nn.ReLU(), nn.Linear(5, 3)), {}),
        (nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3)), {}),
        (network(5, 3).double(), {}),
        (hooked(), {}),
        (tied(), {}),
        (frozen(), {}),
        (network(4, 3), {}),
        (network(5, 2), {}),
    ],
)  # fmt: skip
def test_what_only_pytorch_can_train(model: nn.Module, change: dict[str, Any]) -> None:
    assert not can_be_fast(model, rows_of("classes")[0], replace(PLAIN, **change))


@pytest.mark.parametrize(
    ("train", "loss"),
    [
        (torch.utils.data.Subset(rows_of("classes")[0], [0, 1]), "cross_entropy"),
        (TensorDataset(torch.zeros(9, 5).double(), torch.zeros(9).long()), "cross_entropy"),
        (TensorDataset(torch.zeros(9, 5), torch.zeros(9, 3)), "cross_entropy"),
        (TensorDataset(torch.zeros(9, 5), torch.full((9,), -100)), "cross_entropy"),
        (TensorDataset(torch.zeros(9, 5), torch.full((9,), -1)), "mse"),
        (TensorDataset(torch.full((9, 5), torch.nan), torch.zeros(9).long()), "cross_entropy"),
    ],
)
def test_rows_that_cannot_be_fast(train: Dataset[Any], loss: str) -> None:
    assert not can_be_fast(network(5, 3), train, replace(PLAIN, loss=loss))


def test_what_can_be_fast_is() -> None:
    """Layers may be nested, images flattened, activations work in place; a linear model has no activation."""
    train = TensorDataset(torch.randn(20, 1, 2, 3), torch.arange(20) % 3)
    inner = nn.Sequential(nn.Linear(6, 4), nn.LeakyReLU(inplace=True))
    compare(nn.Sequential(nn.Flatten(), inner, nn.Linear(4, 3), nn.Identity()), train, workers=2, batch_size=4)
    compare(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), train, workers=2, batch_size=4)
    assert can_be_fast(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), train, PLAIN)


def test_a_node_needs_a_row_for_each_fold() -> None:
    train, _, outputs = rows_of("classes")
    with pytest.raises(ValueError, match="at least 60 rows, one for each fold; one has 53"):
        train_averaged(network(5, outputs), train, PLAIN, folds=60)

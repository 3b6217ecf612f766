"""Strategy `native`: the compiled kernel gives the result of the plain loop, or refuses in one sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parallel_cases import far
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel
from shoal.errors import UserError
from shoal.parallel.job import Job
from shoal.parallel.networks import make_model
from shoal.parallel.strategies import TABLE, auto
from shoal.parallel.strategies.native import can_train
from shoal.planner.measure.steps import alone
from shoal.planner.options import PlanOptions
from shoal.torch import ACTIVATIONS

JOB: dict[str, Any] = {"epochs": 3, "batch_size": 32, "learning_rate": 0.01}
OPTIMIZERS = ({"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adam"}, {"optimizer": "adamw", "weight_decay": 0.1})


def rows_for(loss: str, outputs: int, rows: int = 150, features: int = 9) -> TensorDataset:
    generator = torch.Generator().manual_seed(rows)
    X = torch.randn(rows, features, generator=generator)
    if loss == "cross_entropy" or outputs > 1:
        return TensorDataset(X, torch.randint(outputs, (rows,), generator=generator))
    return TensorDataset(X, (X.sum(1) > 0).float())


@given(
    loss=st.sampled_from(["cross_entropy", "mse", "bce"]), hidden=st.lists(st.integers(1, 40), max_size=3),
    outputs=st.integers(2, 5), single=st.booleans(), smooth=st.sampled_from(["tanh", "sigmoid", "gelu", "identity"]),
    schedule=st.sampled_from(["constant", "cosine"]), optimizer=st.sampled_from(OPTIMIZERS), rows=st.integers(20, 200),
    shuffle=st.booleans(), seed=st.integers(0, 2**70),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_the_result_is_that_of_the_plain_loop(
    loss, hidden, outputs, single, smooth, schedule, optimizer, rows, shuffle, seed
):
    outputs = 1 if single and loss != "cross_entropy" else outputs
    data = rows_for(loss, outputs, rows)
    net = "mlp:" + "-".join(map(str, [9, *hidden, outputs]))
    job = {**JOB, "loss": loss, "schedule": schedule, "shuffle": shuffle, "seed": seed, **optimizer}
    plain, native = (
        parallel.fit(make_model(net, smooth), data, data, strategy=name, **job) for name in ("serial", "native")
    )
    assert far(native.model, plain.model) < 1e-4
    for mine, its in zip(native.history, plain.history, strict=True):
        assert mine["train_loss"] == pytest.approx(its["train_loss"], rel=1e-4, abs=1e-5)
        assert mine["valid_loss"] == pytest.approx(its["valid_loss"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_and_dropout_are_understood(activation):
    model = make_model("mlp:9-20-20-3", activation, dropout=0.2)
    result = parallel.fit(model, rows_for("cross_entropy", 3), strategy="native", **{**JOB, "epochs": 30})
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert not can_train(Job(), model), "auto must not change more than rounding"


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_run_resumes_to_the_same_bits_with_any_number_of_threads(schedule, tmp_path):
    data = rows_for("cross_entropy", 3)
    job = {**JOB, "schedule": schedule, "strategy": "native", "epochs": 4}

    def trained(threads: int, callbacks: Any = None, checkpoint: Any = None) -> parallel.Result:
        model = make_model("mlp:9-300-200-3", dropout=0.1)
        return parallel.fit(model, data, callbacks=callbacks, checkpoint=checkpoint, blas_threads=threads, **job)

    class Two:
        def step_ended(self, event: Any) -> bool:
            return event.epoch == 1

    whole = trained(1)
    assert len(trained(2, [Two()], tmp_path).history) == 2
    resumed = trained(2, checkpoint=tmp_path)
    assert far(resumed.model, whole.model) == 0
    losses = [record["train_loss"] for record in whole.history]
    assert [record["train_loss"] for record in resumed.history] == losses


def biasless() -> nn.Module:
    return nn.Sequential(nn.Linear(9, 4, bias=False), nn.ReLU(), nn.Linear(4, 3))


def frozen() -> nn.Module:
    model = make_model("mlp:9-4-3")
    model[0].weight.requires_grad = False
    return model


def hooked() -> nn.Module:
    model = make_model("mlp:9-4-3")
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def tied() -> nn.Module:
    layer = nn.Linear(9, 9)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(9, 3))


class Custom(nn.Linear):
    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


@pytest.mark.parametrize(("make", "reason"), [
    (biasless, "a weight and a bias of its own"), (frozen, "float32 and be trained"), (hooked, "its hooks would not"),
    (tied, "a weight and a bias of its own"), (lambda: Custom(9, 3), "this is Custom"),
    (lambda: nn.Sequential(nn.Linear(9, 4), nn.LeakyReLU(0.3), nn.Linear(4, 3)), "LeakyReLU(negative_slope=0.3) is n"),
    (lambda: nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "BatchNorm1d"),
    (lambda: nn.Sequential(nn.Linear(9, 4), nn.Dropout(0.1), nn.ReLU(), nn.Linear(4, 3)), "one activation after"),
    (lambda: nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)), "the same activ"),
    (lambda: make_model("mlp:9-4-3", output="sigmoid"), "the last must be nn.Linear"),
    (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(9, 3)), "this is ParametrizedLinear"),
])  # fmt: skip
def test_other_networks_are_refused_in_one_sentence(make, reason):
    with pytest.raises(UserError, match=rf"strategy 'native' trains an nn.Sequential .*{re.escape(reason)}.*'blas'$"):
        parallel.fit(make(), rows_for("cross_entropy", 3), strategy="native", **JOB)
    assert not can_train(Job(), make())


@pytest.mark.parametrize(("options", "sentence"), [
    ({"loss": nn.functional.cross_entropy}, "loss must be a name, not a function"),
    ({"optimizer": lambda parameters: torch.optim.SGD(parameters, 0.1)}, "optimizer must be a name"),
    ({"workers": 2}, "'native' has one worker"),
    ({"optimizer": "sgd", "momentum": 1.5}, "momentum"),
])  # fmt: skip
def test_other_settings_are_refused(options, sentence):
    with pytest.raises(UserError, match=sentence):
        parallel.fit(make_model("mlp:9-4-3"), rows_for("cross_entropy", 3), strategy="native", **{**JOB, **options})


def test_training_that_diverges_is_an_error():
    with pytest.raises(parallel.Diverged, match=r"diverged in step .* \(epoch 1\).*lower learning rate than 1e\+06"):
        parallel.fit(make_model("mlp:9-4-3"), rows_for("cross_entropy", 3), strategy="native",
                     **{**JOB, "optimizer": "sgd", "learning_rate": 1e6, "weight_decay": 1e6})  # fmt: skip


def test_auto_takes_the_kernel_where_it_is_faster(monkeypatch):
    """On a clock that only steps move: a plain step takes 2 ms, a round of 8 native ones 4 ms."""
    now = [0.0]
    costs = {"blas": 0.002, "serial": 0.003, "allreduce": 0.003, "native": 0.004}

    def clocked(name: str, make: Any) -> Any:
        def updater(*arguments: Any) -> Any:
            made = make(*arguments)
            take = made.round

            def step(*given: Any) -> Any:
                now[0] += costs[name]
                return take(*given)

            made.round = step
            return made

        return updater

    for name in costs:
        monkeypatch.setattr(TABLE[name], "updater", clocked(name, TABLE[name].updater), raising=False)
    notes: list[str] = []

    def chosen(model: nn.Module) -> Job:
        notes.clear()
        job = Job(epochs=4000, batch_size=16)
        return auto.choose(job, model, rows_for("cross_entropy", 3), lambda _, text: bool(notes.append(text)),
                           lambda: now[0])  # fmt: skip

    assert chosen(make_model("mlp:9-4-3")).strategy == "native"
    assert "chosen: the compiled kernel with" in notes[0]
    assert "0.5 ms a step" in notes[0]
    costs["native"] = 0.02
    assert chosen(make_model("mlp:9-4-3")).strategy == "blas"
    assert chosen(make_model("mlp:9-4-3", dropout=0.1)).strategy == "blas"
    assert "kernel" not in notes[0]
    assert auto.Auto().resume(Job(), {"strategy": "native"}).strategy == "native"


def test_a_plan_measures_the_kernel():
    options = PlanOptions(strategy="native")
    assert options.nodes == (1,)
    assert options.alone.strategy == "native"
    assert alone(options.alone, "plain", 2).strategy == "native"
    assert alone(PlanOptions(strategy="blas").alone, "plain", 2).strategy == "blas"

"""Settings, models and data that users give to shoal.parallel and `shoal train`, and the messages they get."""

from __future__ import annotations

import copy
import json
import signal
import statistics
import subprocess
import sys
from collections import OrderedDict

import pytest
import torch
from support.parallel_cases import SETTINGS, data, far, flat, network
from support.waiting import wait_until
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from shoal import parallel
from shoal.parallel.data.datasets import load_data
from shoal.parallel.data.loader import Loader, epoch_order, prefetch
from shoal.parallel.exact.randomness import own_generator
from shoal.parallel.exact.threads import threads_per_worker
from shoal.parallel.job import Job
from shoal.parallel.launch import environment
from shoal.parallel.networks import make_model

# ---- settings ----


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"strategy": "alreduce"}, r"strategy must be one of .*; got 'alreduce'; did you mean 'allreduce'\?"),
        ({"backend": "mpy"}, r"backend must be one of threads, processes, mpi; got 'mpy'; did you mean 'mpi'\?"),
        ({"device": "cudda"}, r"device must be one of .* did you mean 'cuda'\?"),
        ({"loss": "mse_loss"}, r"loss must be one of .* did you mean 'mse'\?"),
        ({"optimizer": "admw"}, r"optimizer must be one of .*"),
        ({"epochs": 0}, r"epochs must be a whole number from 1 to 1000000; got 0"),
        ({"workers": -2, "strategy": "allreduce"}, r"workers must be a whole number of at least 1; got -2"),
        ({"learning_rate": 0.0}, r"learning_rate must be a positive number .*; got 0.0"),
        ({"strategy": "serial", "workers": 2}, r"strategy 'serial' has one worker; got workers=2"),
        ({"strategy": "tensor", "backend": "threads", "workers": 2}, r"use backend 'processes' or 'mpi'"),
        ({"strategy": "tensor", "workers": 2, "exact": True}, r"'tensor' has no exact mode"),
        ({"strategy": "allreduce", "workers": 9, "exact": True}, r"8 shards, too few for 9 workers"),
        ({"strategy": "data+tensor", "workers": 3}, r"an even number of workers, or mesh="),
        ({"strategy": "data+tensor", "workers": 4, "mesh": (3, 2)}, r"mesh must multiply to the 4 workers; got 3 x 2"),
        ({"learning_rate": float("inf")}, r"learning_rate must be a positive number .*; got inf"),
        ({"momentum": -3.0}, r"momentum must be a number of at least 0 .*; got -3.0"),
        ({"mesh": (2,), "strategy": "data+tensor", "workers": 2}, r"mesh must be two whole numbers"),
        ({"device": "cuda:x"}, r"the number in device must be whole"),
        ({"average_every": "month", "strategy": "local_sgd"}, r"average_every must be a whole number .*; got 'month'"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        parallel.fit(network(), data(), **{**SETTINGS, "strategy": "serial", **settings})


def test_an_unknown_setting_is_named_with_its_nearest():
    with pytest.raises(TypeError, match=r"no option 'batchsize'; did you mean 'batch_size'\?"):
        parallel.fit(network(), data(), batchsize=3)


def test_a_model_that_does_not_fit_the_data_is_told_by_shapes():
    with pytest.raises(ValueError, match=r"inputs \(2, 12\) of float32, targets \(2,\) of int64"):
        parallel.fit(make_model("mlp:784-10"), data(), strategy="serial")


def test_more_classes_than_outputs_are_told_before_training():
    with pytest.raises(ValueError, match=r"targets go from 0 to 3, and the network has 3 outputs"):
        parallel.fit(make_model("mlp:12-3"), data(), strategy="serial")
    X, y = data().tensors
    first = y.argsort(descending=True)  # also where rows of such a class come first
    with pytest.raises(ValueError, match=r"targets go from 0 to 3, and the network has 3 outputs"):
        parallel.fit(make_model("mlp:12-3"), TensorDataset(X[first], y[first]), strategy="serial")


def test_a_pipeline_needs_layers_that_it_can_part():
    tanh = nn.Tanh()
    shared = nn.Sequential(nn.Linear(12, 8), tanh, nn.Linear(8, 4), tanh)
    alone = copy.deepcopy(shared)
    job = {**SETTINGS, "exact": None}
    one = parallel.fit(shared, data(), strategy="pipeline", workers=1, **job)
    other = parallel.fit(alone, data(), strategy="serial", **job)
    assert far(one.model, other.model) < 1e-6
    twice = nn.Linear(12, 12)
    with pytest.raises(
        ValueError, match=r"'pipeline' cannot split tied parameters, and '0.weight' and '2.weight' are one; use"
    ):
        parallel.fit(nn.Sequential(twice, nn.ReLU(), twice), data(), strategy="pipeline", workers=2)
    named = nn.Sequential(OrderedDict(first=nn.Linear(12, 8), then=nn.ReLU(), last=nn.Linear(8, 4)))
    parallel.fit(named, data(), strategy="pipeline", workers=1, **job)
    with pytest.raises(ValueError, match="too few for a pipeline of 4"):
        parallel.fit(named, data(), strategy="pipeline", workers=4)
    with pytest.raises(ValueError, match=r"splits an nn.Sequential between its layers; the model is a TwoInputs"):
        parallel.fit(TwoInputs(), Squares(), loss="mse", strategy="pipeline", workers=2)


def test_no_rows_and_no_map_style_data_are_refused():
    with pytest.raises(ValueError, match="train_set has no rows"):
        parallel.fit(network(), TensorDataset(torch.zeros(0, 12), torch.zeros(0)), strategy="serial")
    with pytest.raises(TypeError, match="train_set must be a map-style data set"):
        parallel.fit(network(), iter([1]), strategy="serial")
    with pytest.raises(ValueError, match="needs at least 3 rows, one for each worker or fold; train_set has 2 rows"):
        parallel.fit(network(), data(2), strategy="local_sgd", backend="threads", workers=3)


def test_threads_are_shared_out_in_one_place():
    assert threads_per_worker(Job(strategy="serial"), cores=8) == 1
    assert threads_per_worker(Job(strategy="blas"), cores=8) == 8
    assert threads_per_worker(Job(strategy="allreduce", workers=3), cores=8) == 2
    assert threads_per_worker(Job(strategy="allreduce", workers=16), cores=8) == 1
    assert threads_per_worker(Job(strategy="allreduce", workers=2, blas_threads=3), cores=8) == 3


def test_mpi_without_mpi_names_the_pip_command(monkeypatch):
    import importlib.util

    from shoal.parallel.launch.launcher import mpi_launcher

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "mpi4py" else found(name))
    with pytest.raises(ModuleNotFoundError, match="pip install mpi4py mpich"):
        mpi_launcher()


def test_launchers_are_found_in_the_environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert environment.launcher() is None
    monkeypatch.setenv("PMI_RANK", "2")
    monkeypatch.setenv("PMI_SIZE", "4")
    assert (environment.launcher(), environment.world()) == ("mpi", (2, 4))
    with pytest.raises(ValueError, match="mpi has started 4 processes, but workers=3"):
        parallel.fit(network(), data(), workers=3, strategy="allreduce")
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "here"), ("TORCHELASTIC_RUN_ID", "x")):
        monkeypatch.setenv(name, value)
    assert (environment.launcher(), environment.world()) == ("torchrun", (1, 2))


# ---- any model, any data ----


class Squares(Dataset):
    """Rows computed on access, with inputs of two parts."""

    def __len__(self):
        return 90

    def __getitem__(self, row):
        value = torch.tensor([row / 90.0])
        return (value, 1 - value), value**2


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Linear(1, 8), nn.Linear(1, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, inputs):
        return self.out(torch.tanh(self.one(inputs[0]) + self.other(inputs[1])))


def test_any_module_any_map_style_data_any_loss_any_optimizer():
    def absolute(output, target):
        return (output - target).abs().mean()

    job = {"loss": absolute, "epochs": 40, "batch_size": 16, "exact": True, "backend": "threads"}
    results = [
        parallel.fit(
            TwoInputs(), Squares(), Squares(), strategy="allreduce", workers=workers,
            optimizer=lambda parameters: torch.optim.RMSprop(parameters, 0.01), **job,
        )
        for workers in (1, 3)
    ]  # fmt: skip
    assert results[0].history[-1]["valid_loss"] < 0.4 * results[0].history[0]["valid_loss"]
    for one, other in zip(results[0].model.parameters(), results[1].model.parameters(), strict=True):
        assert torch.equal(one, other)


class Shifted(TensorDataset):
    """A TensorDataset that changes its rows at random."""

    def __getitem__(self, row):
        inputs, target = super().__getitem__(row)
        return inputs + torch.rand(()), target


def test_random_changes_of_a_data_set_are_the_same_for_any_number_of_workers():
    rows = Shifted(*data().tensors)
    job = {**SETTINGS, "backend": "threads", "exact": True, "strategy": "allreduce"}
    results = [parallel.fit(network("random"), rows, workers=workers, **job).model for workers in (1, 2)]
    plain = parallel.fit(network("random"), data(), workers=1, **job).model
    assert torch.equal(flat(results[0]), flat(results[1]))
    assert far(results[0], plain) > 1e-3


def test_random_numbers_of_all_sorts_come_from_the_generator_of_the_thread():
    def draw():
        return [
            torch.rand(3), torch.randn(2), torch.randint(9, (4,)), torch.randint(3, 9, (2,)), torch.randperm(6),
            torch.rand_like(torch.zeros(2)), torch.randn_like(torch.zeros(2)), torch.randint_like(torch.zeros(3), 7),
            torch.bernoulli(torch.full((5,), 0.5)), torch.empty(2).uniform_(), torch.normal(0.0, torch.ones(2)),
            nn.functional.dropout(torch.ones(6), 0.5), torch.multinomial(torch.ones(5), 2),
        ]  # fmt: skip

    before = torch.get_rng_state()
    with own_generator(torch.Generator().manual_seed(3)):
        one = draw()
    torch.rand(7)
    with own_generator(torch.Generator().manual_seed(3)):
        other = draw()
    torch.set_rng_state(before)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    with own_generator(torch.Generator().manual_seed(4)):
        third = draw()
    assert not all(torch.equal(a, b) for a, b in zip(one, third, strict=True))
    assert torch.equal(before, torch.get_rng_state())


class TwoTargets(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, row):
        value = torch.tensor([row / 60.0])
        return value, (value**2, 1 - value)


def test_targets_of_several_parts_count_their_rows():
    def both(output, target):
        return ((output - target[0]) ** 2 + (output - target[1]) ** 2).mean()

    found = [
        parallel.fit(make_model("mlp:1-4-1"), TwoTargets(), TwoTargets(), loss=both, epochs=1, batch_size=16, **way)
        for way in (
            {"strategy": "serial"},
            {"strategy": "local_sgd", "backend": "threads", "workers": 1},
            {"strategy": "parameter_server", "backend": "threads", "workers": 1},
        )
    ]
    losses = [result.history[0]["train_loss"] for result in found]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert found[0].history[0]["valid_loss"] == pytest.approx(losses[0], rel=0.5)


def test_one_logit_for_two_classes():
    X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    rows = TensorDataset(X, (X[:, 0] > 0).long())
    job = {"loss": "bce", "epochs": 30, "learning_rate": 0.05, "batch_size": 16, "strategy": "serial"}
    result = parallel.fit(make_model("mlp:3-1"), rows, rows, **job)
    assert result.history[-1]["valid_loss"] < 0.3
    assert "valid_accuracy" not in result.history[-1]


def test_batch_normalisation_and_uneven_shards():
    rows = TensorDataset(*(tensor[:66] for tensor in data().tensors))  # batches of 32, 32 and 2
    for way in ({"strategy": "local_sgd"}, {"strategy": "parameter_server"}, {"strategy": "allreduce", "exact": False}):
        result = parallel.fit(network("stateful"), rows, rows, backend="threads", workers=2, **SETTINGS, **way)
        assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_folds_over_threads_are_reproducible_with_dropout():
    job = {**SETTINGS, "strategy": "kfold", "backend": "threads", "workers": 3, "folds": 3}
    one, other = (parallel.fit(network("random"), data(), **job).model for _ in range(2))
    assert torch.equal(flat(one), flat(other))


def test_a_fold_that_fails_ends_the_others():
    class Broken(TensorDataset):
        def __getitem__(self, row):
            if row == 17:
                raise ZeroDivisionError("row 17 is cursed")
            return super().__getitem__(row)

    job = {**SETTINGS, "epochs": 100_000, "strategy": "kfold", "backend": "threads", "workers": 3, "folds": 3}
    with pytest.raises(ZeroDivisionError, match="cursed"):
        parallel.fit(network(), Broken(*data().tensors), **job)


def test_a_result_tells_time_speed_and_the_share_of_talking():
    result = parallel.fit(network(), data(), data(40, 2), strategy="parameter_server", backend="threads", workers=2,
                          **SETTINGS)  # fmt: skip
    assert len(result.history) == SETTINGS["epochs"]
    last = result.history[-1]
    assert {"train_loss", "valid_loss", "valid_accuracy", "seconds", "samples_per_second", "gflops"} <= set(last)
    assert 0 < last["communicating"] <= 1
    metrics = result.metrics
    assert metrics["strategy"] == "parameter_server"
    for record in result.history:
        assert record["samples_per_second"] == pytest.approx(131 / record["seconds"])
    middle = statistics.median(record["samples_per_second"] for record in result.history)
    assert metrics["samples_per_second"] == middle
    weights = 12 * 16 + 3 * 16 * 16 + 16 * 4
    forward_and_backward = 2 * weights * 3 - 2 * 12 * 16  # no gradient for the inputs
    assert last["gflops"] * 1e9 / last["samples_per_second"] == pytest.approx(forward_and_backward, rel=0.35)


def test_a_cosine_schedule_ends_at_zero():
    rates = []

    class Recorded(torch.optim.SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    job = {**SETTINGS, "optimizer": lambda parameters: Recorded(parameters, 0.1)}
    parallel.fit(network(), data(), strategy="serial", schedule="cosine", **job)
    optimizer = torch.optim.SGD(network().parameters(), 0.1)
    schedule, expected = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20), []
    for _ in range(20):
        expected.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx(expected)
    assert schedule.get_last_lr() == [pytest.approx(0, abs=1e-9)], "the step after the last one"


def test_rows_are_fetched_ahead_and_errors_come_through():
    made = []

    def numbers():
        for k in range(6):
            made.append(k)
            yield k
        raise RuntimeError("no more")

    stream = prefetch(numbers())
    assert next(stream) == 0
    wait_until(lambda: len(made) >= 3)
    with pytest.raises(RuntimeError, match="no more"):
        list(stream)


def test_an_order_is_a_permutation_that_depends_on_seed_and_epoch():
    orders = [epoch_order(50, seed, epoch, True) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(order.tolist()) == list(range(50)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert Loader(data(), torch.device("cpu")).take(orders[0][:3])[0].shape == (3, 12)


# ---- networks and data by name ----


def test_networks_by_name():
    model = make_model("mlp:784-256-128-10", "sigmoid", init="glorot", dropout=0.1)
    assert [type(layer).__name__ for layer in model] == ["Linear", "Sigmoid", "Dropout"] * 2 + ["Linear"]
    assert not model[0].bias.any()
    assert float(model[0].weight.detach().abs().max()) <= (6 / (784 + 256)) ** 0.5
    cnn = make_model("cnn")
    assert cnn(torch.zeros(2, 784)).shape == (2, 10)
    assert sum(p.numel() for p in cnn.parameters()) == 320 + 18496 + 3136 * 128 + 128 + 128 * 64 + 64 + 650
    assert torch.equal(make_model("mlp:4-3", seed=5)[0].weight, make_model("mlp:4-3", seed=5)[0].weight)
    for wrong, sentence in (
        ("mpl:4-3", r"named mlp:784-256-10 or cnn; got 'mpl:4-3'; did you mean 'mlp'\?"),
        ("mlp:784", r"whole numbers, as in mlp:784-256-10; got 'mlp:784'"),
        ("mlp:4-x-3", r"got 'mlp:4-x-3'"),
        ("cnn:3", r"cnn has no sizes"),
    ):
        with pytest.raises(ValueError, match=sentence):
            make_model(wrong)


def test_data_by_name():
    iris = load_data("iris", valid=0.25)
    assert (len(iris.train), len(iris.valid), len(iris.test)) == (90, 30, 30)
    assert (iris.features, iris.classes) == (4, 3)
    X = torch.cat([iris.train.tensors[0], iris.valid.tensors[0]])
    assert X.mean(0).abs().max() < 1e-5
    with pytest.raises(ValueError, match=r"data must be one of .*; got 'mnits'; did you mean 'mnist'\?"):
        load_data("mnits")
    with pytest.raises(ValueError, match=r"rows must be from 2 to the 120"):
        load_data("iris", rows=1000)


# ---- the command ----


@pytest.fixture
def train(monkeypatch, capsys):
    """Runs `shoal train` in this process, which saves the seconds that torch takes to load."""
    from shoal.cli import main

    def trained(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["shoal", "train", *arguments])
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            main()
        signal.signal(signal.SIGTERM, before)
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, *capsys.readouterr())

    return trained


def test_train_tells_what_it_does_and_saves_what_it_found(tmp_path, train):
    done = train("--data", "iris", "--net", "mlp:4-50-3", "--strategy", "serial", "--epochs", "40",
                 "--batch-size", "16", "--lr", "0.01", "--out", str(tmp_path / "run"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "iris: 100 rows to train on, 20 to validate, 30 to test" in done.stdout
    assert "mlp:4-50-3: 403 parameters; serial, 1 worker" in done.stdout
    assert "epoch 40: training loss" in done.stdout
    accuracy = float(done.stdout.split("test: ")[1].split("%")[0])
    assert accuracy >= 90
    from safetensors.torch import load_file

    model = make_model("mlp:4-50-3")
    model.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    test = load_data("iris").test.tensors
    assert float((model(test[0]).argmax(1) == test[1]).float().mean()) == pytest.approx(accuracy / 100, abs=1e-4)
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert len(history["history"]) == 40
    again = train("--data", "iris", "--net", "mlp:4-50-3", "--out", str(tmp_path / "run"))
    assert again.returncode == 2
    assert "run holds a finished run: give another name" in again.stderr


def sorted_state(model):
    return dict(sorted(model.state_dict().items()))


def test_train_over_processes_is_the_same_as_over_threads(tmp_path, train):
    common = ["--data", "iris", "--net", "mlp:4-20-3", "--strategy", "allreduce", "--exact", "--workers", "2",
              "--epochs", "3"]  # fmt: skip
    done = train(*common, "--backend", "processes", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    from safetensors.torch import load_file

    rows = load_data("iris")
    job = {"strategy": "allreduce", "exact": True, "backend": "threads", "workers": 2, "epochs": 3, "batch_size": 128}
    threads = parallel.fit(make_model("mlp:4-20-3"), rows.train, rows.valid, **job)
    assert torch.equal(flat(load_file(tmp_path / "run" / "model.safetensors")), flat(sorted_state(threads.model)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "mnits"], "did you mean 'mnist'?"),
        (["--net", "mlp784"], "a network is named mlp:784-256-10 or cnn; got 'mlp784'"),
        (["--strategy", "alreduce"], "did you mean 'allreduce'?"),
        (["--data", "iris", "--net", "mlp:784-10", "--strategy", "serial"], "the model does not fit the data"),
        (["--device", "cuda", "--data", "iris", "--net", "mlp:4-3"], "torch finds no GPU for device 'cuda'"),
        (["--device", "cuda:1", "--data", "iris", "--net", "mlp:4-3"], "torch finds no GPU for device 'cuda:1'"),
        (["--epochs", "many"], "--epochs"),
    ],
)
def test_wrong_arguments_end_in_one_sentence(arguments, sentence, train):
    if "--device" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = train(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not done.stdout, "nothing is announced before"
    assert len(done.stderr.strip().splitlines()) == 1


def test_train_without_torch_names_the_extra():
    code = ("import sys; sys.modules['torch'] = None; import importlib.util as u; f = u.find_spec;"
            "u.find_spec = lambda n, *a: None if n == 'torch' else f(n, *a);"
            "sys.argv = ['shoal', 'train']; from shoal.cli import main; main()")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "shoal-ml[torch]" in done.stderr


def test_one_worker_that_is_asked_for_computes_what_more_would(tmp_path):
    from shoal.cli.train import complete

    def _strategy(workers, checkpoint, exact):
        typed = {} if workers is None else {"workers": "--workers"}
        return complete(Job(workers=workers or 1, checkpoint=checkpoint, exact=exact), typed).strategy

    assert [_strategy(workers, None, None) for workers in (None, 1, 2)] == ["auto", "allreduce", "allreduce"]
    parallel.fit(network(), data(), strategy="serial", checkpoint=str(tmp_path), **SETTINGS)
    assert _strategy(1, tmp_path, None) == "blas", "a plain loop that was begun goes on"
    assert _strategy(1, tmp_path, True) == _strategy(2, tmp_path, None) == "allreduce"


@pytest.mark.parametrize("way", [{"strategy": "serial"}, {"strategy": "allreduce", "workers": 2, "exact": True}])
def test_targets_that_torch_ignores_are_left_out(way):
    """Also where a shard has only such rows: their inputs do not change the weights."""
    X, y = data(64).tensors
    y[8:64] = -100
    job = {**SETTINGS, **way, "backend": "threads", "shuffle": False}
    ends = []
    for other in (X, torch.cat([X[:8], X[8:] + 1])):
        result = parallel.fit(network(), TensorDataset(other, y), TensorDataset(X, y), **job)
        ends.append(flat(result.model))
        assert result.history[-1]["valid_accuracy"] > 8 / 64, "of eight rows, not of all"
    assert torch.equal(*ends)
    assert not torch.equal(ends[0], flat(network()))
    with pytest.raises(ValueError, match="targets go from -1 to"):
        parallel.fit(network(), TensorDataset(X, y.clamp(min=-1)), **job)

"""Training that diverges ends in an error that names the step; the last good checkpoint is kept, nothing restarts."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from support.parallel_cases import SETTINGS, data, network
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel
from shoal.parallel import checkpoint
from shoal.parallel.divergence import Guard
from shoal.parallel.events import silent
from shoal.parallel.groups import Rendezvous, Threads
from shoal.parallel.job import Job
from shoal.parallel.launch import external
from shoal.parallel.networks import make_model
from shoal.parallel.worker import Worker

TOO_FAST = {**SETTINGS, "optimizer": "sgd", "learning_rate": 1e6}


@pytest.mark.parametrize(
    "way",
    [
        {"strategy": "serial"},
        {"strategy": "allreduce", "exact": True},
        {"strategy": "local_sgd"},
        {"strategy": "parameter_server"},
        {"strategy": "parameter_server", "asynchronous": True},
        {"strategy": "pipeline", "workers": 1},
        {"strategy": "kfold", "folds": 2},
    ],
    ids=lambda way: "-".join(map(str, way.values())),
)
def test_training_that_diverges_is_an_error_that_names_the_step(way):
    way = {"backend": "threads", "workers": 1 if way["strategy"] == "serial" else 2, **way}
    step = r"\d" if "asynchronous" in way else "3"  # who comes first is left to chance there
    said = rf"diverged in step {step} \(epoch 1\): the loss is .* \(the first was 1.*lower learning rate than 1e\+06"
    with pytest.raises(parallel.Diverged, match=said):
        parallel.fit(network(), data(), **TOO_FAST, **way)


def test_a_loss_that_is_finite_and_absurd_is_a_divergence():
    guard = Guard(Job())
    for step, loss in enumerate((2.0, 3e8, 4e8)):
        guard.see(loss, step)
    with pytest.raises(parallel.Diverged, match=r"step 4 \(epoch 1\): the loss is 5e\+08 \(the first was 2\)"):
        guard.see(5e8, 3)


def test_an_outlier_is_no_divergence_and_neither_are_large_targets():
    guard = Guard(Job())
    for step, loss in enumerate((0.5, 1e12, 0.4, 1e12, 1e12, 0.6)):
        guard.see(loss, step)
    X = torch.linspace(-1, 1, 64).reshape(-1, 1)
    rows = TensorDataset(X, 1e9 * (1 + X))
    result = parallel.fit(make_model("mlp:1-4-1"), rows, loss="mse", strategy="serial", **SETTINGS)
    assert result.history[0]["train_loss"] > 1e17


@pytest.mark.parametrize("way", [{"strategy": "serial"}, {"strategy": "local_sgd", "backend": "threads", "workers": 2}])
@pytest.mark.parametrize("valid", [None, data(40, 2)], ids=["train", "valid"])
def test_a_run_does_not_end_with_an_absurd_loss(way, valid):
    """After two steps, fewer than the three in a row of the rule; with validation rows, after one."""
    job = {**TOO_FAST, "batch_size": 131 // way.get("workers", 1) + 1, "epochs": 2 if valid is None else 1, **way}
    said = r"step 2 \(epoch 2\): the loss is" if valid is None else r"step 1 \(epoch 1\): the validation loss is"
    with pytest.raises(parallel.Diverged, match=said + r" .*e\+\d+ \(the first was 1"):
        parallel.fit(network(), data(), valid, **job)


def test_validation_rows_that_hold_nan_are_named_as_the_cause():
    X, y = data(40, 2).tensors
    X[17, 3] = float("nan")
    said = r"validation loss is nan \(epoch 1\): validation rows hold NaN or infinity; fill or drop these"
    with pytest.raises(parallel.Diverged, match=said):
        parallel.fit(network(), data(), TensorDataset(X, y), strategy="serial", **SETTINGS)


@pytest.mark.parametrize("workers", [1, 2])
def test_no_checkpoint_is_written_after_an_absurd_loss_and_the_first_loss_is_kept(tmp_path, workers):
    """The losses of this linear network are absurd from the second step on, but finite."""
    way = {"strategy": "local_sgd", "average_every": 1, "workers": workers, "backend": "threads", "batch_size": 16}
    job = {**TOO_FAST, **way, "checkpoint": str(tmp_path), "checkpoint_every": 1}
    job["optimizer"] = lambda parameters: torch.optim.SGD(parameters, 1e12)
    with pytest.raises(parallel.Diverged, match=r"step 4 \(epoch 1\): the loss is .*e\+1\d"):
        parallel.fit(make_model("mlp:12-4"), data(), **job)
    kept = torch.load(tmp_path / checkpoint.NAME, weights_only=True)
    assert kept["step"] == 1
    with pytest.raises(parallel.Diverged, match=rf"step 4 .*the first was {kept['first_loss']:.4g}"):
        parallel.fit(make_model("mlp:12-4"), data(), **job)


def test_rows_that_hold_nan_are_named_as_the_cause():
    X, y = data().tensors
    holed = X.clone()
    holed[17, 3] = float("nan")
    with pytest.raises(parallel.Diverged, match=r"its rows hold NaN or infinity; fill or drop these"):
        parallel.fit(network(), TensorDataset(holed, y), strategy="serial", **SETTINGS)
    broken = network()
    nn.init.constant_(broken[0].weight, float("inf"))
    with pytest.raises(parallel.Diverged, match=r"step 1 .*look for NaN or infinity in inputs, targets and weights"):
        parallel.fit(broken, data(), strategy="serial", **SETTINGS)


@pytest.mark.parametrize("row", range(0, 131, 26))
def test_rows_that_hold_nan_are_named_by_all_workers_that_share_a_batch(row):
    """Each of the two workers names the rows."""
    X, y = data().tensors
    X[row, 3] = float("nan")
    job = Job(**SETTINGS, strategy="allreduce", exact=True, blas_threads=1, backend="processes", workers=2)
    rendezvous, said = Rendezvous(2, 60.0), []

    def work(rank: int) -> None:
        try:
            Worker(job, Threads(rendezvous, rank), network(), TensorDataset(X, y), None, silent).run()
        except parallel.Diverged as error:
            said.append("its rows hold NaN or infinity; fill or drop these" in str(error))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [True, True]


def test_a_server_that_has_no_rows_names_both_causes():
    X, y = data().tensors
    X[17, 3] = float("nan")
    way = {"strategy": "parameter_server", "backend": "threads", "workers": 2, "shuffle": False, "batch_size": 8}
    with pytest.raises(parallel.Diverged, match=r"step 3 .*lower learning rate .*; or fill or drop NaN and"):
        parallel.fit(network(), TensorDataset(X, y), **{**SETTINGS, **way})


class Poisoned(torch.optim.SGD):
    """A weight becomes infinite in the last step of the third epoch, after all of its losses."""

    taken = 0

    def step(self, closure=None):
        super().step(closure)
        Poisoned.taken += 1
        if Poisoned.taken == 15:
            with torch.no_grad():
                self.param_groups[0]["params"][0][0, 0] = float("inf")


@pytest.mark.parametrize("every", ["epoch", 1])
def test_the_last_good_checkpoint_is_kept_and_named(tmp_path, every):
    Poisoned.taken = 0
    with pytest.raises(parallel.Diverged) as caught:
        parallel.fit(network(), data(), strategy="serial", optimizer=lambda p: Poisoned(p, 0.01),
                     checkpoint=str(tmp_path), checkpoint_every=every, **SETTINGS)  # fmt: skip
    file = tmp_path / checkpoint.NAME
    assert "step 15 (epoch 3): weights are not finite" in str(caught.value)
    assert str(caught.value).endswith(f"the last good checkpoint is {file}")
    kept = torch.load(file, weights_only=True)
    assert kept["step"] == (10 if every == "epoch" else 14)
    assert all(bool(torch.isfinite(value).all()) for value in kept["state"]["model"].values())


def test_workers_that_diverge_end_the_command_once_without_a_restart(tmp_path, call):
    done = call(tmp_path, "train", "--data", "iris", "--net", "mlp:4-16-3", "--optimizer", "sgd", "--lr", "1e6",
               "--close", "--batch-size", "16", "--workers", "2", "--checkpoint", "kept", code=2)  # fmt: skip
    assert done.stderr.count("error: ") == 1
    assert "training diverged in step" in done.stderr
    assert "there is no checkpoint in " in done.stderr
    assert "again" not in done.stdout


# ---- under torchrun ----


@pytest.fixture
def torchrun(monkeypatch):
    """The environment variables and the store of a torchrun with one rank."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "2"}  # fmt: skip

    def attempt(number: int) -> None:
        for name, value in {**told, "TORCHELASTIC_RESTART_COUNT": str(number)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(external, "RUNS", itertools.count())  # a new process

    attempt.store = store  # type: ignore[attr-defined] # it lives as long as the agent
    return attempt


def test_torchrun_does_not_train_again_what_has_diverged(torchrun):
    torchrun(0)
    first = external.ExternalRank("torchrun")
    first.store()
    first.remember(OSError("the disk is full"))
    assert not first.has_diverged()
    first.remember(parallel.Diverged("the loss is nan"))
    torchrun(1)
    code = "from shoal.parallel.launch.external import ExternalRank as Rank; Rank('torchrun').store(); print('again')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "not restarted, since training has diverged" in done.stderr
    assert not done.stdout


def test_what_is_said_of_a_lost_worker_depends_on_who_can_start_again(torchrun):
    torchrun(1)
    assert external.ExternalRank("torchrun", "place").next_step() == (
        "torchrun restarts them (restart 2 of 2) from the last checkpoint"
    )
    assert "from the beginning" in external.ExternalRank("torchrun").next_step()
    torchrun(2)
    assert external.ExternalRank("torchrun", "place").next_step() == (
        "the same command resumes from the last checkpoint in place; torchrun --max-restarts 3 does so by itself"
    )
    assert external.ExternalRank("mpi", str(Path("a") / "b")).next_step() == (
        "the same command resumes from the last checkpoint in a/b"
    )

"""Networks with tied parameters, sparse gradients, batch normalisation of one row, or an exit: right or refused."""

from __future__ import annotations

import os
import re
import sys
import threading

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.parallel_cases import CLASSES, FEATURES, data, far, order_of
from support.waiting import wait_until
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel
from shoal.errors import UserError
from shoal.parallel.networks import own_network
from shoal.parallel.strategies import TABLE
from shoal.parallel.training import make_job, run

JOB = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01}
ONE = TensorDataset(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(40, dtype=torch.long))


class AutoEncoder(nn.Module):
    """Two layers with one weight and a bias each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = nn.Linear(6, 6), nn.Linear(6, 6)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


def twice():
    """One layer in two places."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(6, 6))


def tied_layers():
    """As a pipeline would take it, were the two weights not one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    return model


def in_threads(name):
    """A job of a strategy that needs no processes; for those that split the model, one worker."""
    many = 1 if TABLE[name].one_worker or TABLE[name].splits_model else 2
    return {"strategy": name, "backend": "threads", "workers": many, **JOB}


@pytest.mark.parametrize("make", [AutoEncoder, twice, tied_layers])
@pytest.mark.parametrize("name", TABLE)
def test_tied_parameters_are_trained_as_one_or_refused_before_training(name, make):
    job = in_threads(name)
    repeated = name == "sharded" and make is twice
    if TABLE[name].splits_model and not repeated:
        for workers in (1, 2):
            with pytest.raises(UserError, match=rf"'{re.escape(name)}' cannot split tied parameters, and '.*' are one"):
                parallel.fit(make(), ONE, **{**job, "backend": "processes", "workers": workers})
        return
    if name == "native":
        with pytest.raises(UserError, match=r"'native' trains .*(this is AutoEncoder|a weight and a bias of its own)"):
            parallel.fit(make(), ONE, **job)
        return
    model = parallel.fit(make(), ONE, **job).model
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in make().named_parameters()], "still one parameter under its first name"
    if name in ("serial", "blas", "allreduce", "parameter_server", "sharded", "auto"):  # others are other algorithms
        plain = make()
        optimizer = torch.optim.Adam(plain.parameters(), 0.01)
        for epoch in range(2):
            for rows in order_of(40, 0, epoch).split(16):
                optimizer.zero_grad()
                nn.functional.cross_entropy(plain(ONE.tensors[0][rows]), ONE.tensors[1][rows]).backward()
                optimizer.step()
        assert far(model, plain) < 1e-5


@pytest.mark.parametrize("name", ["allreduce", "local_sgd", "gossip"])
def test_tied_parameters_are_resumed_as_one(name, tmp_path):
    job = in_threads(name)
    whole = parallel.fit(AutoEncoder(), ONE, **{**job, "epochs": 3}).model
    parallel.fit(AutoEncoder(), ONE, checkpoint=tmp_path, **job)
    resumed = parallel.fit(AutoEncoder(), ONE, checkpoint=tmp_path, **{**job, "epochs": 3}).model
    assert resumed.decoder.weight is resumed.encoder.weight
    assert far(resumed, whole) < 1e-7


def test_parameters_that_share_memory_without_being_tied_are_refused():
    model = AutoEncoder()
    model.decoder.weight = nn.Parameter(model.encoder.weight.data)
    with pytest.raises(UserError, match=r"'encoder.weight' and 'decoder.weight' share memory without being one"):
        parallel.fit(model, ONE, strategy="serial")
    model.decoder.weight = nn.Parameter(model.encoder.weight.data.clone())
    parallel.fit(model, ONE, strategy="serial", **JOB)


def test_numbers_of_a_parameter_that_share_memory_are_refused():
    model = nn.Linear(4, 2)
    model.bias = nn.Parameter(torch.zeros(1).expand(2))
    with pytest.raises(UserError, match=r"numbers of the parameter 'bias' share memory, .* clone it"):
        parallel.fit(model, TensorDataset(torch.randn(40, 4), torch.arange(40) % 2), strategy="serial")


@pytest.mark.parametrize("first", ["weight", "bias"])
def test_parameters_are_looked_at_to_their_last_number(first):
    """One is every second number of a piece of memory; the other begins in the middle of it."""
    memory, model = torch.zeros(16), nn.Linear(4, 2)
    model.weight = nn.Parameter(memory[::2].reshape(2, 4) if first == "weight" else memory[6:14].reshape(2, 4))
    model.bias = nn.Parameter(memory[12:14] if first == "weight" else memory[:16:8])
    with pytest.raises(UserError, match="share memory without being one"):
        parallel.fit(model, TensorDataset(torch.randn(40, 4), torch.arange(40) % 2), strategy="serial")


def test_a_network_that_cannot_be_copied_is_refused_with_the_reason():
    data = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
    model = nn.Linear(4, 2)
    model.lock = threading.Lock()
    with pytest.raises(UserError, match=r"needs a copy of the model, and it cannot be copied: cannot pickle .*lock"):
        parallel.fit(model, data, strategy="serial")
    with pytest.warns(FutureWarning):
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 2)))
    with pytest.raises(UserError, match=r"but can with torch.nn.utils.parametrizations.weight_norm"):
        parallel.fit(model, data, strategy="serial")


class Extra(nn.Linear):
    """Keeps a number where no worker, checkpoint or saved model would get it."""

    def get_extra_state(self):
        return {"scale": 2.0}

    def set_extra_state(self, state):
        pass


def test_a_state_that_is_no_tensor_is_refused_before_training():
    with pytest.raises(UserError, match=r"state_dict has '_extra_state', a dict, but only tensors .* in a buffer"):
        parallel.fit(Extra(4, 2), TensorDataset(torch.randn(40, 4), torch.arange(40) % 2), strategy="serial")


def test_a_network_of_a_file_that_changes_the_folder_leaves_it_as_it_was(tmp_path):
    (tmp_path / "own.py").write_text(
        "import os\nfrom torch import nn\nos.chdir('/')\ndef make(inputs, outputs):\n"
        "    os.chdir('/tmp')\n    return nn.Linear(inputs, outputs)\n"
    )
    before = os.getcwd()
    own_network(f"{tmp_path / 'own.py'}:make", 3, 2)
    assert os.getcwd() == before


class Fails(nn.Linear):
    def forward(self, x):
        if self.training and torch.is_grad_enabled() and threading.current_thread() is not threading.main_thread():
            raise KeyError("fails")
        return super().forward(x)


def test_a_training_that_fails_leaves_no_threads_behind():
    before = threading.active_count()
    rows = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
    with pytest.raises(KeyError, match="fails"):
        parallel.fit(Fails(4, 2), rows, strategy="allreduce", backend="threads", workers=2, exact=True)
    wait_until(lambda: threading.active_count() <= before, 10)


class Words(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.table(x))


@pytest.mark.parametrize("name", TABLE)
def test_sparse_gradients_are_refused_before_training(name):
    rows = TensorDataset(torch.arange(40) % 9, torch.arange(40) % 2)
    job = in_threads(name)
    if "pipeline" in name or name == "native":  # they do not take this network at all
        job = in_threads("allreduce")
    with pytest.raises(UserError, match=r"the gradient of 'table.weight' is sparse.* sparse=False, for the same"):
        parallel.fit(Words(True), rows, **job)
    parallel.fit(Words(False), rows, **job)


class Normalised(nn.Module):
    """Notes how many rows it is trained on. Batch normalisation over 1 x `width` cells; with more than one, of any."""

    seen: list[int]

    def __init__(self, width=1):
        super().__init__()
        self.norm, self.out, self.width = nn.BatchNorm2d(3), nn.Linear(3, CLASSES), width

    def forward(self, x):
        if self.training:
            Normalised.seen.append(len(x))
        return self.out(self.norm(x[:, :3, None, None].expand(-1, -1, 1, self.width)).mean((2, 3)))


THREADS = [name for name in TABLE if not TABLE[name].splits_model and name not in ("auto", "native")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(THREADS), rows=st.integers(2, 40), batch=st.integers(1, 12), workers=st.integers(1, 4),
       exact=st.booleans(), asynchronous=st.booleans(), every=st.sampled_from([1, 2, "epoch"]),
       split=st.sampled_from(["random", "order", "class:0.3"]))  # fmt: skip
def test_the_fewest_rows_are_known_before_training(name, rows, batch, workers, exact, asynchronous, every, split):
    """Of every strategy the smallest part of a batch is what it says, and one row is refused if it cannot be used."""
    own = TABLE[name].owns_rows
    assume(rows >= workers or not own)
    more = {"exact": exact} if TABLE[name].can_be_exact else {}
    more |= {"average_every": every, "split": split} if own else {}
    more |= {"asynchronous": asynchronous} if name == "parameter_server" else {}
    more |= {"folds": min(3, rows)} if name == "kfold" else {}
    job = make_job(strategy=name, backend="threads", workers=1 if TABLE[name].one_worker else workers, epochs=1,
                   batch_size=batch, **more)  # fmt: skip
    Normalised.seen = []
    run(job, Normalised(width=2), data(rows))
    targets = data(rows).tensors[1]
    assert (job.method.smallest_part(job, rows, 2, targets) == 1) == (min(Normalised.seen) == 1)
    said = {**more, "strategy": name, "backend": "threads", "workers": job.workers, "epochs": 1, "batch_size": batch}
    if min(Normalised.seen) > 1:
        parallel.fit(Normalised(), data(rows), **said)
    else:
        Normalised.seen = []
        with pytest.raises(UserError, match=r"cannot be trained on a single row .*Give another batch_size"):
            parallel.fit(Normalised(), data(rows), **said)
        assert len(Normalised.seen) <= 1, "nothing was trained"


@pytest.mark.parametrize("name", ["pipeline", "tensor", "sharded", "data+tensor", "data+pipeline"])
def test_one_row_is_refused_where_the_model_is_split(name):
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    job = {"strategy": name, "backend": "processes", "workers": 2, "batch_size": 26}
    with pytest.raises(UserError, match=r"with 131 rows, batch_size=26 and 2 workers a part of a batch has only one"):
        parallel.fit(model, data(), **job)


class Leaves(nn.Linear):
    """Ends Python after some calls."""

    calls = 0

    def __init__(self, code, after):
        super().__init__(FEATURES, CLASSES)
        self.code, self.after = code, after

    def forward(self, x):
        Leaves.calls += 1
        if Leaves.calls > self.after:
            sys.exit(self.code)
        return super().forward(x)


@pytest.mark.parametrize("code", [0, None, 3, "bye"])
@pytest.mark.parametrize("name", ["serial", "local_sgd", "auto", "allreduce", "kfold"])
@pytest.mark.parametrize("after", [0, 9])
def test_a_network_that_exits_has_failed(code, name, after):
    Leaves.calls = 0
    with pytest.raises(UserError, match=r"sys\.exit\("):
        parallel.fit(Leaves(code, after), data(), **in_threads(name))


def test_a_callback_that_exits_has_failed():
    class Exits:
        def progress(self, event):
            sys.exit(0)

    with pytest.raises(UserError, match=r"a callback called sys.exit\(0\) in progress; to stop early, return True"):
        parallel.fit(nn.Linear(FEATURES, CLASSES), data(), strategy="serial", callbacks=[Exits()], **JOB)

"""A checkpoint is bound to its data, network and settings, and every bit of it counts."""

from __future__ import annotations

import os
import pickle
import random
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.disks import small_disk
from support.parallel_cases import CLASSES, FEATURES, data, network
from torch import nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from shoal import parallel
from shoal.errors import CannotWrite, UserError
from shoal.parallel import checkpoint
from shoal.parallel.identity import SAMPLED, data_hash, described, network_lines
from shoal.parallel.networks import own_network

JOB = {"strategy": "serial", "epochs": 1, "batch_size": 64}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    parallel.fit(network(), data(), checkpoint=folder, **JOB)
    return (folder / checkpoint.NAME).read_bytes(), torch.load(folder / checkpoint.NAME)["fingerprint"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), from_end=st.booleans())
def test_one_flipped_bit_anywhere_is_noticed(tmp_path, whole, place, bit, from_end):
    content = bytearray(whole[0])
    at = int(place * (400 if from_end else len(content)))  # also where the checksum itself stands
    content[-1 - at if from_end else at] ^= 1 << bit
    (tmp_path / checkpoint.NAME).write_bytes(content)
    with pytest.raises(UserError, match=r"checkpoint.pt is damaged and cannot be resumed .*Delete it"):
        checkpoint.load(tmp_path, whole[1])


def test_a_whole_checkpoint_can_still_be_read_by_torch(tmp_path, whole):
    (tmp_path / checkpoint.NAME).write_bytes(whole[0])
    assert checkpoint.load(tmp_path, whole[1])["epoch"] == 1
    assert list(torch.load(tmp_path / checkpoint.NAME)["state"]["model"]) == list(network().state_dict())


class Own(nn.Module):
    """The same parameters in any case; what is done with them differs."""

    def __init__(self, function=torch.relu, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.function, self.factor = nn.Linear(FEATURES, CLASSES), function, factor

    def forward(self, x):
        factor = self.factor if isinstance(self.factor, float) else 1.0  # other kinds need only be told apart
        return factor * self.function(self.layer(x))


class Other(Own):
    def forward(self, x):
        return self.factor - self.function(self.layer(x))


@dataclass
class Config:
    scale: float = 1.0
    parts: tuple = ()


class Scaling:
    def __init__(self, scale):
        self.scale, self.itself = scale, self

    def __call__(self, *values):
        return self.scale * (values[0] if len(values) == 1 else functional.cross_entropy(*values))

    def descent(self, parameters):
        return torch.optim.SGD(parameters, 0.1 * self.scale)


class Way(Enum):
    one, other = 1.0, 2.0


def with_hook(kind, scale):
    model = network()
    hook = (lambda part, rows: (rows[0] * scale,)) if "pre" in kind else lambda part, rows, outputs: outputs * scale
    getattr(model, f"register_{kind}_hook")(hook)
    return model


def edited(row=130):
    X, y = (tensor.clone() for tensor in data().tensors)
    X[row, 0] += 1e-6
    return TensorDataset(X, y)


def with_activation(layer):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 8), layer, nn.Linear(8, CLASSES))


class Fixed(nn.Module):
    """With a buffer that training changes (of batch normalisation), others that it does not, and a frozen layer."""

    def __init__(self, scale=1.0, shift=0.0, frozen=1.0, tied=False, trained=False):
        super().__init__()
        self.norm, self.frozen = nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES)
        self.layer, self.other = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
        nn.init.constant_(self.frozen.weight, frozen)
        nn.init.zeros_(self.frozen.bias)
        self.frozen.requires_grad_(trained)
        if tied:
            self.other.weight = self.layer.weight
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("shift", torch.tensor(shift), persistent=False)
        self.register_buffer("calls", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.calls += 1
        x = self.norm(x)
        return self.scale * self.layer(x) + self.other(x) + self.frozen(x) + self.shift


def test_a_network_that_was_trained_meanwhile_resumes_its_checkpoint(tmp_path):
    model = Fixed()
    parallel.fit(model, data(), checkpoint=tmp_path, **JOB)
    again = parallel.fit(model, data(), checkpoint=tmp_path, **JOB | {"epochs": 2})
    assert len(again.history) == 2
    assert len(parallel.fit(Fixed(), data(), checkpoint=tmp_path, **JOB | {"epochs": 3}).history) == 3


@pytest.mark.parametrize(("first", "second", "words"), [
    ({"model": Fixed()}, {"model": Fixed(scale=2.0)}, "'scale' of the network, which is not trained, has other"),
    ({"model": Fixed()}, {"model": Fixed(shift=2.0)}, "'shift' of the network"),
    ({"model": Fixed()}, {"model": Fixed(frozen=2.0)}, "'frozen.weight' of the network"),
    ({"model": Fixed()}, {"model": Fixed(tied=True)}, "has 'other.weight: .*, the same as layer.weight'"),
    ({"model": Fixed()}, {"model": Fixed(trained=True)}, "has 'frozen.weight: .*, trained'"),
    ({}, {"rows": edited()}, "the data have changed since"),
    ({}, {"rows": edited(0)}, "the data have changed since"),
    ({"valid": data(40, 2)}, {"valid": data(40, 3)}, "the data have changed since"),
    ({}, {"valid": data(40, 3)}, "the data have changed since"),
    ({"model": with_activation(nn.ReLU())}, {"model": with_activation(nn.Tanh())}, "'1: ReLU .*' and has '1: Tanh'"),
    ({"model": with_activation(nn.ELU(1.0))}, {"model": with_activation(nn.ELU(2.0))}, "alpha=1.0.* has .*alpha=2.0"),
    ({"model": Own()}, {"model": Own(torch.tanh)}, "function=relu.* has .*function=tanh"),
    ({"model": Own()}, {"model": Own(factor=2.0)}, "factor=1.0.* has .*factor=2.0"),
    ({"model": Own(lambda x: x + 1)}, {"model": Own(lambda x: x + 2)}, "the network had"),
    ({"model": Own()}, {"model": Other()}, "the network had 'Own .* and has 'Other"),
    ({"loss": lambda o, t: (o - 1).mean()}, {"loss": lambda o, t: (o - 2).mean()}, "loss was"),
    ({"optimizer": lambda p: torch.optim.SGD(p, 0.1)}, {"optimizer": lambda p: torch.optim.SGD(p, 0.2)}, "optimizer"),
    *[({"model": Own(factor=one)}, {"model": Own(factor=other)}, "factor=") for one, other in (
        (Config(1.0), Config(2.0)), (Config(parts=(Scaling(1),)), Config(parts=(Scaling(2),))), (Way.one, Way.other),
        (SimpleNamespace(a=1), SimpleNamespace(a=2)), (Decimal(1), Decimal(2)), (range(2), range(3)),
    )],
    ({"model": Own(Scaling(1.0))}, {"model": Own(Scaling(2.0))}, "function="),
    ({"model": Own(Scaling(1.0).__call__)}, {"model": Own(Scaling(2.0).__call__)}, "function="),
    ({"loss": Scaling(1.0)}, {"loss": Scaling(2.0)}, "loss was"),
    ({"optimizer": Scaling(1.0).descent}, {"optimizer": Scaling(2.0).descent}, "optimizer was"),
    ({}, {"model": with_hook("forward", 2.0)}, "_forward_hooks"),
    ({"model": with_hook("forward", 1.0)}, {"model": with_hook("forward", 2.0)}, "_forward_hooks"),
    ({"model": with_hook("forward_pre", 1.0)}, {"model": with_hook("forward_pre", 2.0)}, "_forward_pre_hooks"),
    ({}, {"batch_size": 32}, "batch_size was 64 and is 32"),
    ({}, {"seed": 1}, "seed was 0 and is 1"),
])  # fmt: skip
def test_another_run_is_refused_with_what_differs(tmp_path, first, second, words):
    def fit(given):
        rows, valid, model = (given.pop(name, default) for name, default in (("rows", data()), ("valid", None),
                                                                              ("model", None)))  # fmt: skip
        return parallel.fit(model or network(), rows, valid, checkpoint=tmp_path, **JOB | given)

    fit(dict(first))
    with pytest.raises(UserError, match=rf"holds a run that differs: .*{words}.*Give another folder, or delete it"):
        fit(first | second)
    fit(first | {"epochs": 2})  # trained longer, it is the same run


def test_a_network_and_a_loss_that_were_sent_to_a_worker_are_the_same():
    """Other tests resume in processes; here with what has no file that a worker could read."""
    cloudpickle = pytest.importorskip("cloudpickle")

    class Local(Own):
        def forward(self, x):
            return super().forward(x) + 0.5

    def loss(output, target):
        return nn.functional.cross_entropy(output, target) * 2

    model, function = pickle.loads(cloudpickle.dumps((Local(), loss)))
    assert network_lines(model) == network_lines(Local())
    assert described(function) == described(loss)


NETWORK = """
import types
from functools import lru_cache, partial
import torch
from torch import nn
import beside_{name} as beside
from beside_{name} import scaled

SLOPE, UNUSED, CALLS = 0.1, 1, 0
TABLE = dict(low=[1, 2], high=(3, None))
CONFIG = types.SimpleNamespace(slope=0.1, epochs=5)
WEIGHTS = torch.ones(3)
LAYER = nn.LeakyReLU(0.1)
ITSELF = [SLOPE]
ITSELF.append(ITSELF)

def inner(x):
    return x * SLOPE if x.sum() > 1e9 else again(x)

def again(x):
    return x if x.sum() < 1e9 else inner(x)

@lru_cache
def cached():
    return 1.5

class Twice(torch.autograd.Function):
    factor = 2

class Net(nn.Linear):
    widths = (1, 2)

    def forward(self, x):
        global CALLS
        CALLS += 1
        x = LAYER(super().forward(x)) * CONFIG.slope * len(TABLE) * len(ITSELF) * cached() * Twice.factor
        act = partial(torch.mul, other=WEIGHTS.sum())
        return [inner(beside.shifted(act(part))) * scaled(part) for part in [x]][0] + self.widths[0]
"""
BESIDE = """
SHIFT, UNUSED, SCALE = 1.0, 1, 2.0

def shifted(x):
    return x + SHIFT

def scaled(x):
    return x * SCALE
"""


def own_lines(folder, name, edit=("", "")):
    """Of a network in a file of the user's, with one edit; as it is, and as a worker gets it."""
    cloudpickle = pytest.importorskip("cloudpickle")
    assert edit[0] in NETWORK + BESIDE
    (folder / f"{name}.py").write_text(NETWORK.replace("{name}", name).replace(*edit))
    (folder / f"beside_{name}.py").write_text(BESIDE.replace(*edit))
    model = own_network(f"{folder / name}.py:Net", FEATURES, CLASSES)
    lines = network_lines(model)
    model(torch.zeros(2, FEATURES))
    assert network_lines(model) == lines == network_lines(pickle.loads(cloudpickle.dumps(model)))
    return lines


@pytest.mark.parametrize(("before", "after"), [
    ("SLOPE, UNUSED, CALLS = 0.1", "SLOPE, UNUSED, CALLS = 5.0"), ("x if x.sum() <", "x if x.sum() <="),
    ("high=(3, None)", "high=(4, None)"), ("slope=0.1", "slope=0.2"), ("torch.ones(3)", "torch.ones(4)"),
    ("LeakyReLU(0.1)", "LeakyReLU(0.2)"), ("return 1.5", "return 1.6"), ("factor = 2", "factor = 3"),
    ("widths = (1, 2)", "widths = (1, 3)"), ("SHIFT, UNUSED, SCALE = 1.0", "SHIFT, UNUSED, SCALE = 1.1"),
    ("return x + SHIFT", "return x - SHIFT"), ("return x * SCALE", "return x / SCALE"), ("1, 2.0", "1, 2.1"),
])  # fmt: skip
def test_all_that_the_code_of_a_network_uses_is_part_of_it(tmp_path, before, after):
    name = f"net{abs(hash((before, after)))}"
    own = own_lines(tmp_path, f"{name}a")
    assert own == own_lines(tmp_path, f"{name}b")
    assert own != own_lines(tmp_path, f"{name}c", (before, after))


@pytest.mark.parametrize("edit", [("epochs=5", "epochs=6"), ("UNUSED, CALLS = 0.1, 1", "UNUSED, CALLS = 0.1, 2")])
def test_what_the_code_of_a_network_does_not_use_may_change(tmp_path, edit):
    name = f"net{abs(hash(edit))}"
    assert own_lines(tmp_path, f"{name}a") == own_lines(tmp_path, f"{name}b", edit)


class Rows(Dataset):
    """Of rows that are not in memory; `noise` makes them random, with the generator that it names."""

    def __init__(self, count, noise="", changed=-1):
        self.count, self.noise, self.changed, self.generator = count, noise, changed, np.random.default_rng()

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        drawn = {"": lambda: 0.0, "python": random.random, "numpy": np.random.rand,
                 "torch": lambda: float(torch.rand(())), "own": self.generator.random}[self.noise]()  # fmt: skip
        return {"x": np.full(3, row + drawn + 100 * (row == self.changed)), "name": "n"}, row


@pytest.mark.parametrize("noise", ["", "python", "numpy", "torch", "own"])
def test_rows_that_are_not_in_memory_are_sampled(noise):
    before = random.getstate(), np.random.get_state()[1].tolist()
    assert data_hash(Rows(50, noise)) == data_hash(Rows(50, noise))
    assert before == (random.getstate(), np.random.get_state()[1].tolist())
    assert data_hash(Rows(50, noise)) != data_hash(Rows(51, noise))
    assert (data_hash(Rows(50, noise)) == data_hash(Rows(50, noise, changed=17))) == (noise == "own")
    many = 5 * SAMPLED
    assert data_hash(Rows(many)) != data_hash(Rows(many, changed=many - 1))


def test_parts_of_data_in_memory_are_compared_to_the_last_row():
    for kind in (lambda rows: Subset(rows, range(5, 131)), lambda rows: ConcatDataset([rows, data()])):
        assert data_hash(kind(data())) == data_hash(kind(data()))
        assert data_hash(kind(data())) != data_hash(kind(edited()))
    assert data_hash(Subset(data(), [1, 2])) != data_hash(Subset(data(), [2, 1]))
    assert data_hash(data(), None) != data_hash(data(), data())
    odd = [torch.ones(3, dtype=kind) for kind in (torch.bool, torch.bfloat16, torch.complex64, torch.uint8)]
    assert len({data_hash(TensorDataset(one)) for one in odd}) == 4


def test_a_description_is_the_same_in_every_process():
    """No addresses, no order of a set, no line numbers."""
    names = frozenset({"a", "b", "c"})

    def function(x, among=("a", "b")):
        return x in {"relu", "tanh", "gelu"} or x in among or x in names

    text = "\n".join([described(function), *network_lines(Own(function))])
    assert not re.search(r"0x[0-9a-f]{6}| at line", text)
    assert described(function).startswith("function ")


@pytest.mark.parametrize("kind", ["a FIFO", "a device", "a folder"])
def test_a_checkpoint_that_is_no_file_is_not_waited_for(tmp_path, kind):
    place = tmp_path / checkpoint.NAME
    if kind == "a FIFO":
        os.mkfifo(place)
    elif kind == "a device":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    assert checkpoint.peek(tmp_path) == {}
    with pytest.raises(UserError, match=rf"cannot be resumed \(.*checkpoint.pt is {kind}, not a file\). Delete it"):
        parallel.fit(network(), data(), checkpoint=tmp_path, **JOB)


def test_an_error_of_the_disk_names_the_whole_path(tmp_path):
    folder = tmp_path / ("long" * 40)
    (folder / checkpoint.NAME).mkdir(parents=True)  # cannot be replaced by a file
    with pytest.raises(CannotWrite, match=rf"cannot be written to {folder}: .*{folder}"):
        checkpoint.save(folder, {"fingerprint": {}})


def test_a_full_disk_is_named_with_what_is_kept(tmp_path):
    content = {"fingerprint": {}, "state": torch.zeros(60_000)}
    with small_disk(tmp_path / "disk", "size=600k") as disk:
        for first, words in ((True, "there is no checkpoint in .* yet"), (False, "the last good checkpoint is .*pt")):
            if not first:
                checkpoint.save(disk, content)
            (disk / "rest").write_bytes(bytes(400_000 if first else 300_000))
            with pytest.raises(CannotWrite, match=rf"No space left on device; make room in .*{words}"):
                checkpoint.save(disk, content | {"more": torch.zeros(40_000)})
            (disk / "rest").unlink()


@pytest.mark.parametrize("every", ["epoch", 1])
def test_fewer_epochs_than_are_done_are_refused(tmp_path, every):
    """Also where the last of them is half done."""
    job = JOB | {"epochs": 3, "checkpoint": tmp_path, "checkpoint_every": every}

    class Interrupt:
        def progress(self, event):
            if every == 1 and event.epoch == 1:
                raise KeyboardInterrupt

        def step_ended(self, event):
            if event.epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel.fit(network(), data(), callbacks=[Interrupt()], **job)
    with pytest.raises(UserError, match=r"has begun 2 epochs.*1 .*asked for.*at least 2.*another folder"):
        parallel.fit(network(), data(), **job | {"epochs": 1})
    assert len(parallel.fit(network(), data(), **job | {"epochs": 2}).history) == 2

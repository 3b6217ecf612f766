"""`shoal train` with a checkpoint of something else, tied weights, or a network that exits: never a wrong result."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from shoal.models.saving import load
from shoal.parallel import checkpoint
from shoal.parallel.networks import own_network

SERIAL = ("--strategy", "serial", "--epochs", "1")
OWN = """
import sys
from torch import nn

class Tied(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.encoder, self.decoder, self.last = nn.Linear(inputs, 8), nn.Linear(8, inputs), nn.Linear(inputs, outputs)
        self.middle = nn.Linear(inputs, 8)
        self.middle.weight = self.encoder.weight

    def forward(self, rows):
        return self.last(self.decoder(self.middle(self.decoder(self.encoder(rows).relu())).relu()))

class Leaves(nn.Linear):
    calls = 0

    def forward(self, rows):
        self.calls += 1
        if self.training and self.calls > 3:
            sys.exit(0)
        return super().forward(rows)

class Ends(nn.Linear):
    def forward(self, rows):
        sys.exit()
"""


def table(folder, changed=()):
    rows = np.random.default_rng(0).normal(size=(80, 3)).round(3)
    lines = [f"{a},{b},{c + 10 * (k in changed)},{'up' if a + b > 0 else 'down'}" for k, (a, b, c) in enumerate(rows)]
    (folder / "points.csv").write_text("\n".join(["a,b,c,way", *lines]) + "\n")
    (folder / "own.py").write_text(OWN)


@pytest.mark.parametrize(("more", "words"), [
    (["--activation", "tanh"], "activation was relu and is tanh; the network had '1: ReLU "),
    (["--init", "glorot"], "init was torch and is glorot"),
    (["--dropout", "0.2"], "dropout was 0.0 and is 0.2"),
    (["--net", "mlp:3-5-2"], "net was mlp:3-64-64-2 and is mlp:3-5-2"),
    (["--seed", "4"], "seed was 0 and is 4"),
    (["--rows", "50"], "other rows of points.csv to train on (another split, seed or encoding)"),
    (["--valid", "0.3"], "other rows of points.csv to train on (another split, seed or encoding)"),
    (["--test", "0.3"], "other rows of points.csv to train on (another split, seed or encoding)"),
    (["--drop", "b"], "net was mlp:3-64-64-2 and is mlp:2-64-64-2"),
])  # fmt: skip
def test_a_checkpoint_of_another_network_or_of_other_rows_is_refused(tmp_path, call, more, words):
    table(tmp_path)
    base = ("train", "points.csv", "--target", "way", *SERIAL, "--checkpoint", "kept")
    call(tmp_path, *base)
    before = (tmp_path / "kept" / checkpoint.NAME).read_bytes()
    done = call(tmp_path, *base, *more, code=2)
    assert words in done.stderr
    assert "changed since" not in done.stderr
    assert "Give another folder, or delete it to start over" in done.stderr
    assert (tmp_path / "kept" / checkpoint.NAME).read_bytes() == before
    assert "resuming from the checkpoint" in call(tmp_path, *base, "--epochs", "2").stdout


LOADED = """
import random, numpy, torch
from pathlib import Path
from torch import nn

def make(inputs, outputs):
    model = nn.Linear(inputs, outputs)
    with torch.no_grad():
        model.weight += random.random() + numpy.random.rand()
        model.bias += float(Path("bias.txt").read_text())
    return model
"""


def test_a_network_that_loads_other_initial_weights_is_refused(tmp_path, call):
    table(tmp_path)
    (tmp_path / "loaded.py").write_text(LOADED)
    (tmp_path / "bias.txt").write_text("1")
    base = ("train", "points.csv", "--target", "way", *SERIAL, "--checkpoint", "kept", "--net", "loaded.py:make")
    call(tmp_path, *base)
    (tmp_path / "bias.txt").write_text("2")
    assert "the network's initial weights differ" in call(tmp_path, *base, code=2).stderr
    (tmp_path / "bias.txt").write_text("1")
    assert "resuming from the checkpoint" in call(tmp_path, *base, "--epochs", "2").stdout


@pytest.mark.parametrize("seed", range(8))
def test_an_edited_table_is_refused_and_the_old_one_resumed(tmp_path, call, seed):
    table(tmp_path)
    base = ("train", "points.csv", "--target", "way", *SERIAL, "--checkpoint", "kept")
    call(tmp_path, *base)
    table(tmp_path, changed=np.random.default_rng(seed).integers(80, size=1))  # it may be a row to test on
    assert re.search(r"points.csv has changed since|rows to test on differ", call(tmp_path, *base, code=2).stderr)
    table(tmp_path)
    call(tmp_path, *base)


def test_another_data_set_is_refused(tmp_path, call):
    call(tmp_path, "train", "--data", "iris", *SERIAL, "--checkpoint", "kept")
    done = call(tmp_path, "train", "--data", "wine", *SERIAL, "--checkpoint", "kept", code=2)
    assert "the data were iris and are wine" in done.stderr


def test_a_network_whose_code_has_changed_is_refused(tmp_path, call):
    table(tmp_path)
    base = ("train", "points.csv", "--target", "way", *SERIAL, "--net", "own.py:Tied", "--checkpoint", "kept")
    call(tmp_path, *base)
    (tmp_path / "own.py").write_text(
        OWN.replace("(rows).relu()", "(rows).tanh()").replace("import sys", "\n\nimport sys")
    )
    assert "the code of Tied, or a constant or function that it uses" in call(tmp_path, *base, code=2).stderr
    (tmp_path / "own.py").write_text("# a comment\n" + OWN)
    call(tmp_path, *base)


def test_tied_weights_are_saved_and_loaded(tmp_path, call):
    table(tmp_path)
    call(tmp_path, "train", "points.csv", "--target", "way", *SERIAL, "--net", "own.py:Tied", "--out", "run")
    model = own_network(str(tmp_path / "own.py") + ":Tied", 3, 2)
    trained = load(tmp_path / "run", model)
    assert model.middle.weight is model.encoder.weight
    weights = load_file(tmp_path / "run" / "model" / "weights.safetensors")
    assert torch.equal(model.encoder.weight, weights["networks.plain.encoder.weight"])
    assert set(trained.predict({"a": [2.0, -2.0], "b": [1.0, -1.0], "c": [0.0, 0.0]})) <= {"up", "down"}


@pytest.mark.parametrize("net", ["Leaves", "Ends"])
@pytest.mark.parametrize(
    "command", [("train", *SERIAL, "--batch-size", "4"), ("plan", "--nodes", "1,2", "--no-accuracy")]
)
def test_a_network_that_exits_is_an_error(tmp_path, call, net, command):
    table(tmp_path)
    done = call(tmp_path, command[0], "points.csv", "--target", "way", *command[1:], "--net", f"own.py:{net}", code=2)
    assert "exit" in done.stderr.lower()


ODD = """
from torch import nn

class Odd(nn.Linear):
    calls = 0

    def forward(self, rows):
        self.calls += 1
        found = super().forward(rows)
        return self.odd(found) if {when} else found

    def odd(self, found):
        {what}
"""
LATER = "self.training and self.calls > 2"  # after the checks before training
TEST = "not self.training and len(rows) == 16"  # the rows that are held back for the score


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize(("what", "words"), [
    ("return None", "the model must return one tensor for the loss 'cross_entropy'; it returns None"),
    ("return found[1:]", "the loss 'cross_entropy' cannot be computed from what the model returned, ("),
    ("return found.long()", "the loss 'cross_entropy' cannot be computed from what the model returned, ("),
    ("return found.detach()", "failed: RuntimeError: element 0 of tensors does not require grad"),
    ("raise MemoryError", "error: MemoryError"),
    ("raise type('Own', (BaseException,), {})('mine')", "failed: Own: mine"),
])  # fmt: skip
def test_a_network_that_turns_odd_in_a_later_step_is_no_bug_of_shoal(tmp_path, call, backend, what, words):
    table(tmp_path)
    (tmp_path / "odd.py").write_text(ODD.replace("{when}", LATER).replace("{what}", what))
    done = call(tmp_path, "train", "points.csv", "--target", "way", "--net", "odd.py:Odd", "--epochs", "9",
                "--workers", "2", "--backend", backend, "--out", "out", code=2)  # fmt: skip
    assert words in done.stderr
    assert not (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize(("what", "words"), [
    ("return found * float('nan')", "the network returns NaN or infinity for 16 of 16 rows, the first is row 1"),
    ("found[3] = float('nan'); return found", "NaN or infinity for 1 of 16 rows, the first is row 4"),
    ("return found.repeat(1, 2)", "must return 2 outputs for each of 16 rows; it returns (16, 4)"),
    ("return None", "must return 2 outputs for each of 16 rows; it returns NoneType"),
])  # fmt: skip
def test_outputs_that_are_none_of_the_test_rows_give_no_score(tmp_path, call, what, words):
    """The first class would be predicted for NaN, and counted as right where it is."""
    table(tmp_path)
    (tmp_path / "odd.py").write_text(ODD.replace("{when}", TEST).replace("{what}", what))
    done = call(tmp_path, "train", "points.csv", "--target", "way", "--net", "odd.py:Odd", *SERIAL, code=2)
    assert words in done.stderr
    assert "test:" not in done.stdout

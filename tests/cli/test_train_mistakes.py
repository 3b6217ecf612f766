"""`shoal train` with networks and tables that do not fit: told before training, in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from shoal.models.saving import load
from shoal.parallel import checkpoint
from shoal.parallel.data.tables import load_table
from shoal.parallel.job import Job
from shoal.parallel.launch import payload
from shoal.parallel.networks import own_network
from shoal.parallel.options import TableOptions
from shoal.parallel.training import check_fit
from shoal.runs.lock import take

NETWORKS = """
import sys
from torch import nn

class Squeezed(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 16), nn.Linear(16, 1)

    def forward(self, rows):
        return self.last(self.first(rows).relu()).squeeze()

class Pair(nn.Linear):
    def forward(self, rows):
        return super().forward(rows), rows

class Sum(nn.Linear):
    def forward(self, rows):
        return super().forward(rows).sum(0)

def squeezed(inputs, outputs): return Squeezed(inputs)
def pair(inputs, outputs): return Pair(inputs, outputs)
def summed(inputs, outputs): return Sum(inputs, outputs)
def one(inputs, outputs): return nn.Linear(inputs, 1)
def thirty(inputs, outputs): return nn.Linear(inputs, 30)
def lazy(inputs, outputs): return nn.Sequential(nn.LazyLinear(8), nn.Linear(8, outputs))
def nothing(inputs, outputs): return nn.Identity()
def quits(inputs, outputs): sys.exit(4)
"""
SERIAL = ("--strategy", "serial", "--epochs", "1")


def points(folder: Path, count: int = 120) -> None:
    """sums.csv has a number to predict, signs.csv one of two words."""
    (folder / "own.py").write_text(NETWORKS)
    rows = np.random.default_rng(1).normal(size=(count, 2)).round(3).tolist()
    (folder / "sums.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{100 + 10 * a - 5 * b:.4f}\n" for a, b in rows))
    words = "".join(f"{a},{b},{'yes' if a > b else 'no'}\n" for a, b in rows)
    (folder / "signs.csv").write_text("a,b,y\n" + words)


def test_one_number_a_row_is_scored_and_predicted_as_one_output(tmp_path, call):
    points(tmp_path)
    done = call(tmp_path, "train", "sums.csv", "--target", "y", "--net", "own.py:squeezed", "--epochs", "60", "--lr",
                "0.02", "--batch-size", "32", "--strategy", "serial", "--out", "run")  # fmt: skip
    assert float(done.stdout.split("test: R2 ")[1].split(",")[0]) > 0.9
    run = load(tmp_path / "run", own_network(f"{tmp_path / 'own.py'}:squeezed", 2, 1))
    assert run.predict({"a": [1.0, -1.0], "b": [0.0, 0.0]}) == pytest.approx([110, 90], abs=4)
    assert run.predict({"a": [1.0], "b": [0.0]}) == pytest.approx([110], abs=4)


@pytest.mark.parametrize(
    ("file", "net", "loss", "sentence"),
    [
        ("signs.csv", "one", "bce", "the network returns 1 output a row, the data need 2: change its last layer"),
        ("signs.csv", "one", "mse", "the network returns 1 output a row, the data need 2"),
        ("signs.csv", "thirty", "cross_entropy", "the network returns 30 outputs a row, the data need 2"),
        ("sums.csv", "thirty", "mse", "the network returns 30 outputs a row, the data need 1"),
        ("sums.csv", "summed", "mse", "must return one row of outputs a row; for 2 rows it returns"),
        ("signs.csv", "pair", "cross_entropy", "must return one tensor for the loss 'cross_entropy'; it returns a tup"),
        ("signs.csv", "lazy", "mse", "the size of '0.weight' is not known before the model has seen rows"),
        ("signs.csv", "nothing", "mse", "the model has no parameter that can be trained"),
    ],
)
def test_a_network_that_does_not_fit_the_table(file, net, loss, sentence, tmp_path, call):
    points(tmp_path)
    arguments = ("--target", "y", "--net", f"own.py:{net}", "--loss", loss, *SERIAL)
    refused(call(tmp_path, "train", file, *arguments, code=2), sentence)


def refused(done, sentence: str) -> None:
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_fewer_outputs_than_classes_whatever_the_loss(tmp_path, call):
    done = call(tmp_path, "train", "--data", "digits", "--net", "mlp:64-32-5", "--loss", "mse", *SERIAL, code=2)
    refused(done, "the network returns 5 outputs a row, the data need 10")
    data = TensorDataset(torch.randn(20, 3), torch.arange(20) % 4)
    for loss in ("mse", "bce", "cross_entropy"):
        with pytest.raises(ValueError, match=r"targets go from 0 to 3, and the network has 2 outputs"):
            check_fit(Job(loss=loss), nn.Linear(3, 2), data, None)
    check_fit(Job(loss="mse"), nn.Linear(3, 1), data, None)  # classes as numbers
    paired = nn.LSTM(3, 4)  # returns a tuple, which a loss of one's own may take
    check_fit(Job(loss=lambda output, target: output[0].mean()), paired, data, None)


def test_new_rows_are_read_as_the_training_file_was(tmp_path, call, recwarn):
    rows = np.random.default_rng(2).normal(size=(100, 2)).round(3)
    rows[::10, 0] = -999
    lines = "".join(f"{a};{b};x;{5 * b:.3f}\n" for a, b in rows.tolist())
    (tmp_path / "marked.csv").write_text("a;b;note;y\n" + lines)
    call(tmp_path, "train", "marked.csv", "--target", "y", "--missing", "-999", "--drop", "note", *SERIAL, "--out", "o")
    run = load(tmp_path / "o")
    (tmp_path / "new.csv").write_text("b;a\n0.5;-999\n0.5;1\n")
    right = run.predict({"a": [np.nan, 1.0], "b": [0.5, 0.5]})
    assert right[0] != right[1]
    given = [tmp_path / "new.csv", {"b": [0.5, 0.5], "a": [-999, 1]}, {"b": ["0.5", "0.5"], "a": ["-999", "1"]},
             pd.DataFrame({"a": [-999.0, 1.0], "y": 0.0, "note": "x", "b": 0.5}),
             np.array([[-999, 0.5], [1, 0.5]])]  # fmt: skip
    for new in given:
        assert run.predict(new).tolist() == right.tolist()
    assert not [one for one in recwarn if "ignored" in str(one.message)]
    with pytest.warns(UserWarning, match="columns that the training data did not have are ignored: 'more'"):
        assert run.predict({"more": [1, 1], "a": [-999, 1], "b": [0.5, 0.5]}).tolist() == right.tolist()
    with pytest.raises(ValueError, match="the table must have every column of the training data; 'a' is missing"):
        run.predict({"b": [0.5]})
    with pytest.raises(ValueError, match="X has 3 features, but Predictor is expecting 2"):
        run.predict(np.zeros((1, 3)))


def test_a_target_that_two_columns_are_called_is_asked_for_by_number(tmp_path, call):
    lines = "".join(f"{k},{k % 7},{k * 2.5},{k % 3}.5\n" for k in range(40))
    (tmp_path / "twice.csv").write_text("a,b,y,y\n" + lines)
    done = call(tmp_path, "train", "twice.csv", "--target", "y", *SERIAL, code=2)
    refused(done, "the target 'y' is the name of 2 columns; give its number: --target 2 or --target 3")
    assert "target: y, numbers from 0 to 97.5" in call(tmp_path, "train", "twice.csv", "--target", "2", *SERIAL).stdout


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (("--test", "0.9"), "--test"), (("--task", "regression"), "--task"), (("--drop", "x"), "--drop"),
        (("--sep", ";"), "--sep"), (("--no-header",), "--header/--no-header"), (("--missing", "?"), "--missing"),
        (("--target", "y", "--drop", "x"), "--target, --drop"),
    ],
)  # fmt: skip
def test_options_of_a_file_without_one(option, named, tmp_path, call):
    done = call(tmp_path, "train", "--data", "iris", *option, *SERIAL, code=2)
    refused(done, f"error: {named}: only for a file")


def test_files_beside_that_of_the_network_are_imported_and_travel_with_it(tmp_path):
    folder = tmp_path / "mine"
    (folder / "pack_beside").mkdir(parents=True)
    (folder / "pack_beside" / "__init__.py").write_text("")
    (folder / "pack_beside" / "deep.py").write_text("def twice(rows): return rows * 2\n")
    (folder / "layer_beside.py").write_text(
        "import pack_beside.deep\nfrom torch import nn\n"
        "class Layer(nn.Linear):\n    def forward(self, rows):\n"
        "        return pack_beside.deep.twice(super().forward(rows))\n"
    )
    (folder / "net.py").write_text(
        "from layer_beside import Layer\ndef make(inputs, outputs):\n    import pack_beside\n"
        "    return Layer(inputs, outputs)\n"
    )
    path = list(sys.path)
    model = own_network(f"{folder / 'net.py'}:make", 3, 2)
    assert sys.path == path
    rows = torch.ones(2, 3)
    payload.write(tmp_path, Job(), model, TensorDataset(rows, rows), None)
    torch.save((rows, model(rows)), tmp_path / "expected.pt")
    code = (
        "import sys, torch; from pathlib import Path; from shoal.parallel.launch import payload\n"
        "here = Path(sys.argv[1])\n"
        "rows, right = torch.load(here / 'expected.pt'); print(torch.equal(payload.read(here)[1](rows), right))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_a_network_file_that_ends_the_program_is_told(tmp_path):
    points(tmp_path)
    with pytest.raises(ValueError, match=r"own.py:quits: quits failed: SystemExit: 4"):
        own_network(f"{tmp_path / 'own.py'}:quits", 2, 1)
    (tmp_path / "ends.py").write_text("raise SystemExit('bye')\n")
    with pytest.raises(ValueError, match=r"ends.py cannot be run: SystemExit: bye"):
        own_network(f"{tmp_path / 'ends.py'}:make", 2, 1)


def test_shares_that_leave_nothing_to_train_on(tmp_path):
    points(tmp_path, 20)
    with pytest.raises(ValueError, match=r"of 20 rows, 0.95 for the test and 0.5 of the rest .* fewer than 2 to train"):
        load_table(tmp_path / "sums.csv", TableOptions(target="y", test=0.95), 0.5)
    with pytest.raises(ValueError, match=r"of 20 rows, 0.2 for the test and 0.95 of the rest .* a smaller --test or"):
        load_table(tmp_path / "sums.csv", TableOptions(target="y", test=0.2), 0.95)
    rows = "".join(f"{k},{'abc'[k % 3]}\n" for k in range(40))
    (tmp_path / "classes.csv").write_text("x,y\n" + rows)
    # fewer rows to train on than would hold all
    sets = load_table(tmp_path / "classes.csv", TableOptions(target="y", test=0.9), 0.1)[0]
    assert (len(sets.train), len(sets.valid), len(sets.test)) == (3, 1, 36)


def test_another_network_than_that_of_the_run_is_named_with_its_sizes(tmp_path, call):
    points(tmp_path)
    call(tmp_path, "train", "sums.csv", "--target", "y", "--net", "own.py:one", *SERIAL, "--out", "o")
    settings = json.loads((tmp_path / "o" / "settings.json").read_text())
    assert (settings["inputs"], settings["outputs"]) == (2, 1)
    with pytest.raises(ValueError, match=r"network=one\(2, 1\) in shoal.load, or --net own.py:one"):
        load(tmp_path / "o")
    told = r"not that of the model, own.py:one: 'weight' is \(1, 2\) in the model and \(1, 5\) in .*; give one\(2, 1\)"
    with pytest.raises(ValueError, match=told):
        load(tmp_path / "o", nn.Linear(5, 1))
    with pytest.raises(ValueError, match=r"'(weight|bias)' is .* in the model and missing in the network"):
        load(tmp_path / "o", nn.Sequential(nn.Linear(2, 1)))
    assert load(tmp_path / "o", nn.Linear(2, 1)).predict({"a": [1.0], "b": [1.0]}).shape == (1,)


def test_a_folder_for_checkpoints_may_have_any_name(tmp_path):
    mine, passing = tmp_path / "shoal-run-7" / "kept", tmp_path / "shoal-run-8"
    assert checkpoint.kept(mine) == f"there is no checkpoint in {mine} yet"
    checkpoint.save(mine, {})
    assert checkpoint.kept(mine) == f"the last good checkpoint is {mine / 'checkpoint.pt'}"
    checkpoint.save(checkpoint.temporary_place(passing), {})
    assert (
        checkpoint.kept(passing) == checkpoint.kept(None) == "no checkpoint is kept, since no folder was given for it"
    )


@pytest.mark.parametrize("device", ["cpu:3", "auto:1"])
def test_only_gpus_have_numbers(device):
    with pytest.raises(
        ValueError, match=f"only GPUs have numbers, as in cuda:0; got device '{device}': use '{device[:3]}"
    ):
        Job(device=device)
    assert Job(device="cuda:1").device == "cuda:1"


def test_two_processes_do_not_write_into_one_folder(tmp_path, call):
    points(tmp_path)
    (tmp_path / "run").mkdir()
    train = ("train", "sums.csv", "--target", "y", "--net", "own.py:one", *SERIAL, "--out", "run")
    held = take(tmp_path / "run")
    assert f"run is in use by process {os.getpid()} on" in call(tmp_path, *train, code=2).stderr
    held.release()
    call(tmp_path, *train)
    assert not [file.name for file in (tmp_path / "run").iterdir() if "lock" in file.name or "lease" in file.name]
    assert "holds a finished run" in call(tmp_path, *train, code=2).stderr

"""`shoal train` on a user's own table, and with a network of the user's own file; through the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shoal.models.saving import load
from shoal.parallel.data.tables import load_table
from shoal.parallel.networks import own_network
from shoal.parallel.options import TableOptions

NETWORK = """
from torch import nn

class Own(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 16), nn.Linear(16, outputs)

    def forward(self, rows):
        return self.last(self.first(rows).relu())

def make_network(inputs, outputs):
    return Own(inputs, outputs)

def fixed():
    return Own(2, 2)

def number():
    return 3

def broken():
    raise ZeroDivisionError("no")
"""


def write(path: Path, names: list[str], rows: list[list]) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def houses(path: Path, count: int = 300) -> Path:
    """Sizes, some of them missing, kinds and dates; the price is their doing."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        size, kind = random.uniform(30, 200), random.choice(["flat", "house"])
        price = 1e6 + 1000 * size * (1 + (kind == "house"))
        rows.append([f"{size:.1f}" if random.random() > 0.03 else "", kind, f"2020-0{random.integers(1, 9)}-11", price])
    return write(path, ["size", "kind", "when", "price"], rows)


def signs(path: Path) -> Path:
    points = np.random.default_rng(1).normal(size=(160, 2)).round(3)
    return write(path, ["a", "b", "label"], [[a, b, "yes" if a > b else "no"] for a, b in points.tolist()])


def test_a_table_of_numbers_is_trained_scored_and_kept_for_new_rows(tmp_path, call):
    file = houses(tmp_path / "houses.csv")
    done = call(tmp_path, "train", file.name, "--target", "price", "--epochs", "30", "--lr", "0.01",
                "--batch-size", "32", "--strategy", "serial", "--out", "run")  # fmt: skip
    assert "task: regression" in done.stdout
    assert "houses.csv: 200 rows to train on, 40 to validate, 60 to test" in done.stdout
    score = float(done.stdout.split("test: R2 ")[1].split(",")[0])
    assert 0.8 < score <= 1
    metrics = json.loads((tmp_path / "run" / "history.json").read_text())["metrics"]
    assert metrics["test_r2"] == pytest.approx(score, abs=1e-4)
    trained = load(tmp_path / "run")
    new = {"when": ["2020-03-11"] * 2, "size": [100.0, 100.0], "kind": ["house", "flat"], "unheard of": [1.0, 2.0]}
    with pytest.warns(UserWarning, match="are ignored: 'unheard of'"):
        assert trained.predict(new) == pytest.approx([1.2e6, 1.1e6], rel=0.03)
    assert trained.predict(file)[:2] == pytest.approx(trained.predict(str(file))[:2])
    sets, prepared, _ = load_table(file, TableOptions(target="price"))
    population = trained.model_.networks["plain"]
    output = population.predict(sets.test.tensors[0].numpy())[0]
    error = np.abs(output - sets.test.tensors[1].numpy()).mean() * prepared.scaling.scale[0]
    assert metrics["test_absolute_error"] == pytest.approx(error, rel=1e-4)


def in_units(prepared, target: torch.Tensor) -> list[float]:
    return (target.numpy()[:, 0] * prepared.scaling.scale[0] + prepared.scaling.centre[0]).tolist()


def test_nothing_is_learned_from_rows_that_are_held_back(tmp_path):
    file = houses(tmp_path / "houses.csv")
    sets, prepared, _ = load_table(file, TableOptions(target="price"))
    lines = file.read_text().splitlines()
    prices = {float(line.split(",")[-1]): place for place, line in enumerate(lines) if place}
    held = [prices[min(prices, key=lambda known: abs(known - price))] for part in (sets.valid, sets.test)
            for price in in_units(prepared, part.tensors[1])]  # fmt: skip
    assert len(set(held)) == 100
    for place in held:
        lines[place] = f"9999.0,castle,1901-01-01,{lines[place].split(',')[-1]}"
    file.write_text("\n".join(lines) + "\n")
    again, after, _ = load_table(file, TableOptions(target="price"))
    assert torch.equal(again.train.tensors[0], sets.train.tensors[0])
    assert after.encoder.feature_names == prepared.encoder.feature_names
    assert not torch.equal(again.test.tensors[0], sets.test.tensors[0])


def test_the_user_says_what_a_column_is(tmp_path):
    lines = "".join(f"{k % 4},{k % 7}\n" for k in range(80))
    (tmp_path / "zips.csv").write_text("zip,y\n" + lines)
    guessed, told = (
        load_table(tmp_path / "zips.csv", TableOptions(target="y", task="regression", kinds=kinds))[1]
        for kinds in ((), ("zip=category",))
    )
    assert [column.kind for column in guessed.encoder.schema.columns] == ["number"]
    assert [column.kind for column in told.encoder.schema.columns] == ["category"]


def test_classes_and_a_network_of_ones_own_over_launched_workers(tmp_path, call):
    signs(tmp_path / "signs.csv")
    (tmp_path / "mine.py").write_text(NETWORK)
    done = call(tmp_path, "train", "signs.csv", "--target", "label", "--net", "mine.py:make_network", "--workers", "2",
                "--exact", "--epochs", "40", "--lr", "0.02", "--batch-size", "32", "--out", "run")  # fmt: skip
    assert "task: classification (the values are words)" in done.stdout
    assert "allreduce, 2 workers (processes)" in done.stdout
    assert float(done.stdout.split("test: ")[1].split("%")[0]) > 85
    with pytest.raises(ValueError, match=r"this model is mine.py:make_network, .* the weights, not the code"):
        load(tmp_path / "run")
    model = own_network(f"{tmp_path / 'mine.py'}:make_network", 2, 2)
    assert load(tmp_path / "run", model).predict({"a": [2.0, -2.0], "b": [-1.0, 1.0]}).tolist() == ["yes", "no"]


def test_a_network_of_ones_own_is_called_as_it_wants_and_drawn_from_the_seed(tmp_path):
    (tmp_path / "mine.py").write_text(NETWORK)
    one, same, other = (own_network(f"{tmp_path / 'mine.py'}:make_network", 5, 3, seed) for seed in (1, 1, 2))
    assert (one.first.in_features, one.last.out_features) == (5, 3)
    assert torch.equal(one.first.weight, same.first.weight)
    assert not torch.equal(one.first.weight, other.first.weight)
    assert own_network(f"{tmp_path / 'mine.py'}:fixed", 5, 3).first.in_features == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["signs.csv"], "name the column to predict: --target"),
        (["signs.csv", "--target", "lable"], "there is no column 'lable'; did you mean 'label'?"),
        (["--target", "label"], "--target names a column of a file"),
        (["signs.csv", "--target", "label", "--data", "iris"], "a file or --data, not both"),
        (["signs.csv", "--target", "label", "--net", "mlp:3-8-1"],
         "has 3 inputs and 1 outputs; the table has 2 inputs once encoded and needs 2 outputs (2 classes): use --net "
         "mlp:2-8-2"),
        (["signs.csv", "--target", "a", "--loss", "bce"], "is for classes, and the target holds numbers; use mse"),
        (["signs.csv", "--target", "label", "--test", "1"], "--test must be a share above zero and below 1; got 1.0"),
        (["signs.csv", "--target", "label", "--net", "none.py:make"], "there is no file none.py"),
        (["signs.csv", "--target", "label", "--net", "mine.py:make"], "mine.py has no function 'make'"),
        (["signs.csv", "--target", "label", "--net", "mine.py"], "as in file.py:make_network; got 'mine.py'"),
        (["signs.csv", "--target", "label", "--net", "mine.py:number"], "must return a torch.nn.Module; it returned"),
        (["signs.csv", "--target", "label", "--net", "mine.py:broken"], "broken failed: ZeroDivisionError: no"),
        (["--data", "my.csv"], "your own table: its file in place of --data, with --target COLUMN; any other"),
        (["--net", "resnet"], "a custom one: --net file.py:make_network, or shoal.parallel.fit in Python"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_in_one_sentence(arguments, sentence, tmp_path, call):
    signs(tmp_path / "signs.csv")
    (tmp_path / "mine.py").write_text(NETWORK)
    done = call(tmp_path, "train", *arguments, code=2)
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_a_network_that_fits_is_the_default_for_all_data(tmp_path, call):
    done = call(tmp_path, "train", "--data", "iris", "--strategy", "serial", "--epochs", "1")
    assert "mlp:4-256-3: " in done.stdout


def test_copies_of_a_row_are_not_trained_on_and_tested(tmp_path):
    """Random labels of rows that are there five times cannot be predicted."""
    random = np.random.default_rng(0)
    rows = [[*random.normal(size=4).round(6), random.integers(2)] for _ in range(100)] * 5
    file = write(tmp_path / "copies.csv", ["a", "b", "c", "d", "label"], rows)
    sets, _, words = load_table(file, TableOptions(target="label"))
    trained, tested = ({tuple(row) for row in part.tensors[0].tolist()} for part in (sets.train, sets.test))
    assert not trained & tested
    assert any("500 of 500 rows repeat each other" in line and "copies stay together" in line for line in words)

"""Exported models on the raw cells of a file, through the exported program alone."""

import csv
import json

import numpy as np
import pytest
import torch
from support.exports import CLOSE, run_onnx
from support.fitting import fit_table

import shoal
from shoal.models.export.writing import export_model
from shoal.models.predictions import read_new_rows
from shoal.tables.files import read_table, strings_of
from shoal.tables.reading import Reading

ZIPS = ("01001", "1001", "10010", "12345678901234567890", "12345678901234567891")
GRADES = ("1.0", "2.0", "3.0", "")  # as pandas writes whole numbers beside a missing one
BOTH = ("1", "1.0", "x")
FLAGS = ("True", "False", "maybe")
NAMES = ("zip", "grade", "both", "flag")
ODD = (  # cells of new files: unseen, missing, and spelled in another way
    ("1001.0", "1", "1.0", "true"), ("001001", "2.00", "01", "TRUE"), ("12345678901234567168", "+1", "1.00", "False"),
    ("NA", "n/a", "?", "gone"), ("None", "-", "X", "maybe"), ("1e4", "1e0", "", "NULL"),
    ("never seen", "4.0", "0x1", "1"),
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model trained on a file whose categories are spelled in every way, and both exports of it."""
    folder = tmp_path_factory.mktemp("cells")
    generator = np.random.default_rng(0)
    picks = [generator.integers(len(known), size=300) for known in (ZIPS, GRADES, BOTH, FLAGS)]
    cells = [[known[k] for k in pick] for known, pick in zip((ZIPS, GRADES, BOTH, FLAGS), picks, strict=True)]
    y = sum((k + 1) * pick for k, pick in enumerate(picks)) + generator.normal(scale=0.1, size=300)
    x = generator.normal(size=300).round(3)
    for name, rows in (("t.csv", zip(x, *cells, y, strict=True)), ("odd.csv", ((0.5, *row, 0) for row in ODD * 2))):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("x", *NAMES, "y"))
            writer.writerows(rows)
    kinds = dict.fromkeys(NAMES, "category")
    table, found = read_table(folder / "t.csv", strings=strings_of(kinds), missing=["gone"])
    model = shoal.ShoalRegressor(
        space={"hidden": [(8,)]}, strategy="grid", epochs=10, cv=2, seeds=1, n_jobs=1, kinds=kinds
    )
    reading = Reading(("gone",), tuple(table.names), found.header, found.separator)
    fit_table(model, table.select(range(5)), table["y"], "y", reading)
    for to in ("onnx", "torch"):
        export_model(model, to, folder / f"m.{'onnx' if to == 'onnx' else 'pt2'}")
    return folder, model


@pytest.mark.parametrize("name", ["t.csv", "odd.csv"])
def test_exports_understand_the_cells_of_a_file(place, name):
    folder, model = place
    with open(folder / name, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    expected = model.predict(read_new_rows(folder / name, model))
    numbers = np.array([[float(row["x"])] for row in rows])
    cells = np.array([[row[column] for column in NAMES] for row in rows], dtype=object)
    got = run_onnx(folder / "m.onnx", numbers=numbers, categories=cells)["prediction"][:, 0]
    assert np.std(expected) > 0.1
    np.testing.assert_allclose(got, expected, atol=CLOSE * 10)
    extra = {"shoal.json": ""}
    module = torch.export.load(folder / "m.pt2", extra_files=extra).module()
    described = json.loads(extra["shoal.json"])
    codes = [
        [described["category_codes"][column].get(row[column], described["unseen_codes"][column]) for column in NAMES]
        for row in rows
    ]
    got = module(torch.from_numpy(numbers), torch.tensor(codes)).detach().numpy()[:, 0]
    np.testing.assert_allclose(got, expected, atol=CLOSE * 10)


def test_zips_that_differ_by_a_zero_are_predicted_apart(place):
    _, model = place
    rows = {"x": [0.5] * 2, "zip": ["01001", "1001"], "grade": [1.0] * 2, "both": ["x"] * 2, "flag": [True] * 2}
    one, other = model.predict(rows)
    assert abs(one - other) > 1e-3


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_the_check_of_an_export_feeds_raw_cells(place, tmp_path, monkeypatch, to):
    """An export that knows only the model's own spelling, as it was once written, does not pass."""
    _, model = place
    monkeypatch.setattr("shoal.models.export.plan.spellings", lambda value, style: [value])
    path = tmp_path / f"m{'.onnx' if to == 'onnx' else '.pt2'}"
    with pytest.raises(ValueError, match="must agree with Shoal's own prediction"):
        export_model(model, to, path)
    assert not path.exists()

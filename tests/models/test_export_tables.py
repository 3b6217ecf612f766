"""Exported models of tables with columns other than numbers."""

import json

import numpy as np
import pytest
import torch
from support.exports import CLOSE, QUICK, agrees, module_agrees, run_onnx

import shoal
from shoal.models.export.registry import EXPORTERS
from shoal.models.export.writing import export_model
from shoal.tables.table import Table


def mixed_table(n=400, cities=70):
    generator = np.random.default_rng(2)
    size, city = generator.normal(size=n), generator.integers(cities, size=n)
    columns = {
        "size": np.where(generator.random(n) < 0.1, np.nan, size),
        "colour": np.array(["red", "green", "blue", None], dtype=object)[generator.integers(4, size=n)],
        "city": np.array([f"city {k}" for k in city], dtype=object),
        "new": generator.random(n) < 0.5,
        "always": np.array(["kg"] * n, dtype=object),
        "side": np.array(["left", "right"], dtype=object)[generator.integers(2, size=n)],
    }
    y = ((size + (columns["colour"] == "red") + city / cities - 1.2 * columns["new"]) > 0.5).astype(int)
    return columns, y


def test_categories_go_to_onnx_as_strings(tmp_path):
    columns, y = mixed_table(n=1500)
    estimator = shoal.ShoalClassifier(space={"hidden": [(8,)], "encoding": ["plain", "piecewise"]}, strategy="grid",
                                      epochs=3, cv=3, seeds=1, n_jobs=1).fit(Table.of(columns), y)  # fmt: skip
    assert {column.name: column.kind for column in estimator.schema_.used} == {
        "size": "number", "colour": "category", "city": "category", "new": "boolean", "side": "category",
    }  # fmt: skip
    assert any(fold.encoder.columns["city"].frequent for fold in estimator.model_.folds), "frequencies are tried, too"
    agrees(estimator, "onnx", tmp_path / "m.onnx", Table.of(columns))
    numbers = np.array([[0.5, 1.0], [np.nan, 0.0]])
    strings = np.array([["red", "city 3", "left"], ["", "Atlantis", "right"]], dtype=object)
    rows = {"size": [0.5, None], "colour": ["red", None], "city": ["city 3", "Atlantis"], "new": [True, False],
            "always": ["kg", "kg"], "side": ["left", "right"]}  # fmt: skip
    got = run_onnx(tmp_path / "m.onnx", numbers=numbers, categories=strings)["probabilities"]
    np.testing.assert_allclose(got, estimator.predict_proba(Table.of(rows)), atol=CLOSE)
    module_agrees(estimator.model_, Table.of(columns))  # PyTorch has no strings: codes stand for them


def test_categories_alone(tmp_path):
    columns, y = mixed_table()
    table = Table.of({name: columns[name] for name in ("colour", "side")})
    estimator = shoal.ShoalClassifier(**QUICK).fit(table, y)
    agrees(estimator, "onnx", tmp_path / "m.onnx", table)
    export_model(estimator, "torch", tmp_path / "m.pt2", table)
    extra = {"shoal.json": ""}
    module = torch.export.load(tmp_path / "m.pt2", extra_files=extra).module()
    described = json.loads(extra["shoal.json"])
    codes, unseen = described["category_codes"], described["unseen_codes"]
    assert list(codes) == ["colour", "side"]
    rows = {"colour": ["green", "never seen", None], "side": ["left"] * 3}
    left = codes["side"]["left"]
    given = torch.tensor([[codes["colour"]["green"], left], [unseen["colour"], left], [codes["colour"][""], left]])
    got = module(torch.empty(3, 0, dtype=torch.float64), given).detach().numpy()
    np.testing.assert_allclose(got, estimator.predict_proba(rows), atol=CLOSE)


def test_dates_and_texts_are_refused_by_name(tmp_path):
    columns, y = mixed_table()
    day = np.datetime64("2024-01-01", "us") + np.arange(len(y)) * np.timedelta64(1, "D")
    estimator = shoal.ShoalClassifier(**QUICK).fit(Table.of({"size": columns["size"], "day": day}), y)
    for to in ("torch", "onnx"):
        with pytest.raises(ValueError, match=r"column 'day' \(date\).*use `shoal predict`"):
            export_model(estimator, to, tmp_path / f"m{EXPORTERS[to].suffix}")
    assert not list(tmp_path.iterdir())

"""Whatever made a model, the same commands take its folder: predict, explain, export, runs and `shoal.load`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import shoal
from shoal.models.predictor import Predictor
from shoal.runs.folder import RunFolder
from shoal.runs.kinds import TRAIN
from shoal.tables.table import Table

CODE = """
from torch import nn

def make_network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.GELU(), nn.Linear(8, outputs))
"""
TRAIN_QUICKLY = ("--epochs", "20", "--lr", "0.02", "--batch-size", "32", "--strategy", "serial")


def frame(rows: int, seed: int = 0) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    X = pd.DataFrame({
        "a": random.normal(size=rows), "b": random.normal(size=rows).round(2), "kind": random.choice(["x", "y"], rows)
    })  # fmt: skip
    X.loc[::9, "b"] = np.nan
    total = X["a"] * np.where(X["kind"] == "x", 1.0, -1.0) + X["b"].fillna(1.0)
    return X, {"classes": np.where(total > 0, "up", "down"), "numbers": np.array(3 + total)}


@pytest.fixture(scope="module")
def fitted():
    X, y = frame(160)
    return {
        "forest classes": shoal.ShoalForestClassifier(20, epochs=8).fit(X, y["classes"]),
        "forest numbers": shoal.ShoalForestRegressor(20, epochs=8).fit(X, y["numbers"]),
        "search numbers": shoal.ShoalRegressor(recipes=3, epochs=3, seeds=1, cv=2).fit(X, y["numbers"]),
    }


NAMES = ("forest classes", "forest numbers", "search numbers")


@pytest.mark.parametrize("name", NAMES)
def test_an_estimator_comes_back_as_it_was(fitted, name, tmp_path):
    model, (new, _) = fitted[name], frame(40, 1)
    shoal.save(model, tmp_path / "model")
    same = shoal.load(tmp_path / "model")
    assert type(same) is type(model)
    np.testing.assert_array_equal(same.predict(new), model.predict(new))
    if name.endswith("classes"):
        np.testing.assert_array_equal(same.predict_proba(new), model.predict_proba(new))
    for attribute in ("n_networks_", "oob_score_", "n_features_in_"):
        assert getattr(same, attribute, None) == getattr(model, attribute, None), attribute
    for attribute in ("oob_prediction_", "oob_decision_function_", "feature_names_in_", "estimators_features_"):
        np.testing.assert_equal(getattr(same, attribute, None), getattr(model, attribute, None))
    shoal.save(same, tmp_path / "again")
    for file in ("model.json", "weights.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_take_the_folder(fitted, name, tmp_path, call):
    model, (new, _) = fitted[name], frame(12, 2)
    shoal.save(model, tmp_path / "model")
    new.to_csv(tmp_path / "new.csv", index=False)
    call(tmp_path, "predict", "model", "new.csv", "--out", "answers.csv")
    with open(tmp_path / "answers.csv", newline="") as file:
        answers = [row["prediction"] for row in csv.DictReader(file)]
    expected = model.predict(new)
    if name.endswith("classes"):
        assert answers == expected.tolist()
    else:
        np.testing.assert_allclose([float(answer) for answer in answers], expected, rtol=1e-6)
    call(tmp_path, "explain", "model", "new.csv", "--explain-seconds", 0)
    assert (tmp_path / "why.html").is_file()
    said = call(tmp_path, "export", "model", "--to", "torch").stdout
    assert "the largest difference to Shoal's own prediction" in said


@pytest.mark.parametrize("name", ["forest classes", "forest numbers"])
def test_export_to_onnx(fitted, name, tmp_path, call):
    pytest.importorskip("onnxruntime")
    shoal.save(fitted[name], tmp_path / "model")
    said = call(tmp_path, "export", "model", "--to", "onnx").stdout
    assert "the largest difference to Shoal's own prediction" in said


def test_intervals_need_a_search(fitted, tmp_path, call):
    shoal.save(fitted["forest numbers"], tmp_path / "model")
    frame(3)[0].to_csv(tmp_path / "new.csv", index=False)
    told = call(tmp_path, "predict", "model", "new.csv", "--coverage", 0.9, code=2).stderr
    assert "this model has no intervals" in told
    assert "shoal search" in told
    assert "no compact form" in call(tmp_path, "export", "model", "--to", "torch", "--compact", code=2).stderr


@pytest.fixture
def table(tmp_path: Path) -> Path:
    X, y = frame(160)
    X.assign(y=y["numbers"]).to_csv(tmp_path / "sums.csv", index=False)
    X.assign(y=y["classes"]).to_csv(tmp_path / "ways.csv", index=False)
    frame(9, 3)[0].to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path


def test_a_training_is_a_run_with_a_model(table, call):
    done = call(table, "train", "ways.csv", "--target", "y", *TRAIN_QUICKLY)
    run = Path("shoal-runs") / "ways-1"
    assert f"saved to {run}" in done.stdout
    assert "prediction,probability of down" in call(table, "predict", run, "new.csv", "--proba").stdout
    call(table, "explain", run, "new.csv", "--explain-seconds", 0)
    call(table, "export", run, "--to", "torch")
    (listed,) = json.loads(call(table, "runs", "--json").stdout)
    score = json.loads((table / run / "history.json").read_text())["metrics"]["test_accuracy"]
    assert (listed["kind"], listed["state"], listed["metric"]) == ("train", "finished", "accuracy")
    assert listed["score"] == pytest.approx(score)
    assert f"{score:.4g}" in call(table, "runs").stdout
    assert "there is nothing to delete" in call(table, "runs", "clean", "--yes").stdout
    call(table, "train", "ways.csv", "--target", "y", *TRAIN_QUICKLY)
    assert (table / "shoal-runs" / "ways-2" / "model").is_dir(), "trained again, in a folder of its own"


def test_the_model_of_a_training_is_the_network(table, call):
    call(table, "train", "sums.csv", "--target", "y", "--net", "mlp:4-6-4-1", "--activation", "tanh", *TRAIN_QUICKLY,
         "--out", "named")  # fmt: skip
    call(table, "train", "sums.csv", "--target", "y", "--net", "mlp:4-6-4-1", "--activation", "tanh", *TRAIN_QUICKLY,
         "--output-activation", "tanh", "--out", "odd")  # fmt: skip
    new = pd.read_csv(table / "new.csv")
    named, odd = shoal.load(table / "named"), shoal.load(table / "odd")
    assert isinstance(named, Predictor)
    network = named.model_.networks["plain"].extract(0)
    inputs = named.model_.folds[0].encoder.transform(named.schema_.check(Table.of(new)), ("plain",))
    with torch.no_grad():
        raw = network(torch.from_numpy(inputs["plain"])).numpy()[:, 0]
    scaling = named.model_.folds[0].target
    np.testing.assert_allclose(named.predict(new), raw * scaling.scale + scaling.centre, rtol=1e-5)
    assert np.isfinite(odd.predict(new)).all(), "a named network that no population has is made again"
    assert "which Shoal does not export" in call(table, "export", "odd", "--to", "torch", code=2).stderr


def test_a_network_of_the_users_code_is_asked_for(table, call):
    call(table, "train", "ways.csv", "--target", "y", "--net", "mine.py:make_network", *TRAIN_QUICKLY, "--out", "run")
    told = call(table, "predict", "run", "new.csv", code=2).stderr
    assert "this model is mine.py:make_network, and its folder holds the weights, not the code" in told
    assert "--net mine.py:make_network" in told
    assert "prediction" in call(table, "predict", "run", "new.csv", "--net", "mine.py:make_network").stdout
    call(table, "explain", "run", "new.csv", "--net", "mine.py:make_network", "--explain-seconds", 0)
    with pytest.raises(shoal.errors.UserError, match=r"network must be a torch.nn.Module; got int"):
        shoal.load(table / "run", network=3)


def test_probabilities_are_of_cross_entropy_alone(table, call):
    call(table, "train", "ways.csv", "--target", "y", "--loss", "mse", *TRAIN_QUICKLY, "--out", "run")
    assert "prediction" in call(table, "predict", "run", "new.csv").stdout
    told = call(table, "predict", "run", "new.csv", "--proba", code=2).stderr
    assert "--proba needs a network trained with --loss cross_entropy; this one was trained with mse" in told


def test_a_killed_training_is_listed_resumed_and_cleaned(table, call):
    with RunFolder(TRAIN, table / "shoal-runs" / "sums-1", "sums", {"data": "a"}, say=lambda text: None) as folder:
        folder.progress(0.25)
        folder.resumes = True  # as after a kill: what is there stays
    (listed,) = json.loads(call(table, "runs", "--json").stdout)
    assert (listed["kind"], listed["state"], listed["share"]) == ("train", "interrupted", 0.25)
    told = call(table, "train", "sums.csv", "--target", "y", "--out", "shoal-runs/sums-1", *TRAIN_QUICKLY, code=2)
    assert "holds the beginning of a run that differs" in told.stderr
    assert "--fresh" not in told.stderr
    call(table, "runs", "clean", "--unfinished", "--yes")
    assert not (table / "shoal-runs" / "sums-1").exists()

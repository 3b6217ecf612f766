"""Models on disk: safetensors and JSON, whole or refused."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor


@pytest.fixture(scope="module")
def iris_model():
    return ShoalClassifier(recipes=9, seeds=1).fit(*load_iris(return_X_y=True))


def mixed():
    generator = np.random.default_rng(0)
    words = ["good film", "bad film", "fine story", "poor story", "long and dull", "short and sharp"]
    frame = pd.DataFrame({
        "size": generator.normal(size=120), "colour": generator.choice(["red", "blue", None], 120),
        "when": pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(120), unit="D"),
        "review": [" ".join(generator.choice(words, 4)) + f" number {k}" for k in range(120)],
    })  # fmt: skip
    return frame, np.where(frame["size"] > 0, "up", "down")


def test_a_model_comes_back_with_all_its_results(iris_model, tmp_path):
    X, y = load_iris(return_X_y=True)
    shoal.save(iris_model, tmp_path / "model")
    assert {file.name for file in (tmp_path / "model").iterdir()} == {"model.json", "weights.safetensors"}
    other = shoal.load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict_proba(X), iris_model.predict_proba(X))
    assert other.score(X, y) == iris_model.score(X, y)
    assert other._board.columns == iris_model._board.columns
    assert other.best_member_ == iris_model.best_member_
    assert other.honest_score_ == iris_model.honest_score_
    np.testing.assert_array_equal(other.cv_results_["mean_test_score"], iris_model.cv_results_["mean_test_score"])


def test_tables_with_categories_dates_and_texts(tmp_path):
    frame, y = mixed()
    model = ShoalClassifier(recipes=5, seeds=1, cv=3).fit(frame, y)
    assert {column.kind for column in model.schema_.columns} == {"number", "category", "date", "text"}
    shoal.save(model, tmp_path / "model")
    other = shoal.load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict_proba(frame), model.predict_proba(frame))
    assert list(other.predict(frame)) == list(model.predict(frame))


def test_several_numbers(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    model = ShoalRegressor(recipes=5, seeds=1, cv=3).fit(X, np.column_stack([y, -y]))
    shoal.save(model, tmp_path / "m")
    np.testing.assert_array_equal(shoal.load(tmp_path / "m").predict(X), model.predict(X))


def test_loading_needs_neither_torch_nor_pandas_nor_pickle(iris_model, tmp_path):
    shoal.save(iris_model, tmp_path / "model")
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('torch', 'pandas', 'polars'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import pickle\n"
        "def refuse(*a, **k): raise AssertionError('unpickled')\n"
        "pickle.load = pickle.loads = refuse\n"
        "import shoal\n"
        "model = shoal.load(sys.argv[1])\n"
        "print(model.predict([[5.1, 3.5, 1.4, 0.2]])[0])"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "model")]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "0"


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "empty"])
def test_damaged_files_are_refused(iris_model, tmp_path, name, damage):
    folder = tmp_path / "model"
    shoal.save(iris_model, folder)
    file = folder / name
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "flip":
        place = content.rindex(b"0.") + 2 if name == "model.json" else len(content) - 50
        content[place] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises((ValueError, FileNotFoundError), match=r"truncated|altered|has no") as caught:
        shoal.load(folder)
    assert "\n" not in str(caught.value)


def test_other_versions_and_other_folders_are_refused(iris_model, tmp_path):
    shoal.save(iris_model, tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({**whole, "version": 99}))
    with pytest.raises(ValueError, match="version 99"):
        shoal.load(tmp_path / "model")
    file.write_text("{}")
    with pytest.raises(ValueError, match="does not describe a Shoal model"):
        shoal.load(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        shoal.load(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="save takes"):
        shoal.save(3, tmp_path / "x")


def test_nothing_but_a_model_is_ever_replaced(iris_model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="holds other files"):
        shoal.save(iris_model, tmp_path / "mine")
    shoal.save(iris_model, tmp_path / "model")
    shoal.save(iris_model, tmp_path / "model")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine", "model"]


def test_500_networks_save_and_load_fast(tmp_path):
    X, y = load_iris(return_X_y=True)
    members = [Member(hidden=64, seed=k, epochs=1) for k in range(50)]
    model = ShoalClassifier(members, strategy="grid", cv=10, seeds=1).fit(X, y)
    from shoal.search.model import make_model

    search = model._run.search
    units = search.best_units()
    model.model_ = make_model(search.problem, units, [1 / 50] * 50, {u.number: 0 for u in units}, 1.0)
    assert len(model.model_) == 500
    begun = time.monotonic()
    shoal.save(model, tmp_path / "model")
    other = shoal.load(tmp_path / "model")
    assert time.monotonic() - begun < 10, "a lax limit: it takes a tenth of a second on an idle machine"
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))

"""Models on disk: safetensors and JSON, whole or refused."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor
from shoal.encoders.column import ColumnEncoder


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
    assert {file.name for file in (tmp_path / "model").iterdir()} == {
        "model.json", "weights.safetensors", "explanation.json"
    }  # fmt: skip
    other = shoal.load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict_proba(X), iris_model.predict_proba(X))
    assert other.score(X, y) == iris_model.score(X, y)
    assert list(other.board_.columns) == list(iris_model.board_.columns)
    for name, column in iris_model.board_.columns.items():
        assert other.board_.columns[name] == column or name == "seconds"
    assert np.isnan(other.leaderboard_["seconds"]).all(), "equal models are equal files"
    assert other.best_member_ == iris_model.best_member_
    assert other.honest_score_ == iris_model.honest_score_
    assert other.cv_results_.keys() == iris_model.cv_results_.keys()
    for name, column in iris_model.cv_results_.items():
        if isinstance(column, np.ndarray):
            if name != "mean_fit_time":
                np.testing.assert_array_equal(other.cv_results_[name], column)
            assert other.cv_results_[name].dtype == column.dtype, name


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


def test_500_networks_are_one_array_on_disk(tmp_path):
    """An array for each network would make saving and loading slow."""
    X, y = load_iris(return_X_y=True)
    members = [Member(hidden=64, seed=k, epochs=1) for k in range(50)]
    model = ShoalClassifier(members, strategy="grid", cv=10, seeds=1).fit(X, y)
    from safetensors.numpy import load_file

    from shoal.search.results.conclude import make_model

    search = model.result_.search
    candidates = search.best_candidates()
    model.model_ = make_model(search.problem, candidates, [1 / 50] * 50, {u.number: 0 for u in candidates}, 1.0)
    assert len(model.model_) == 500
    shoal.save(model, tmp_path / "model")
    arrays = load_file(tmp_path / "model" / "weights.safetensors")
    networks = [array for name, array in arrays.items() if name.startswith("networks.")]
    assert len(networks) == 1
    assert networks[0].size >= 500 * (4 * 64 + 64 + 64 * 3 + 3)
    other = shoal.load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))


# ---- files that were altered and sealed again ----


def alter(folder, path, value):
    """Give a field of model.json another value, and the file the checksum that fits it."""
    whole = json.loads((folder / "model.json").read_text())
    *outer, last = path
    place = whole["body"]
    for key in outer:
        place = place[key]
    place[last] = value
    reseal(folder, whole)


def reseal(folder, whole):
    text = json.dumps(whole["body"], sort_keys=True, separators=(",", ":"))
    whole["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(whole))


ALTERED = [
    *((("temperature",), value) for value in (0, -1.0, 1e300, float("nan"), float("inf"), "1", None, True)),
    (("parts", 0, "weight"), -0.5),
    (("parts", 0, "weight"), float("nan")),
    (("parts", 0, "weight"), 0.9),
    (("parts", 0, "encoding"), "round"),
    (("parts", 0, "member"), {"hidden": [10**12]}),
    (("parts",), []),
    (("networks", "plain", "width"), 10**9),
    (("networks", "plain", "width"), 0),
    (("task", "n_outputs"), 4),
    (("task", "kind"), "regression"),
    (("classes", "values"), [0, 1]),
    (("classes", "dtype"), "V8"),
    (("folds",), []),
    (("folds", 0), {"nothing": {}}),
    (("schema", "columns", 0, "kind"), "drop table"),
    (("schema", "columns", 0, "kind"), "category"),
    (("schema", "columns", 0, "kind"), "constant"),
    (("fold_scores", 0), ["high"] * 9),
    (("fold_scores", 0), [1.0]),
    (("params",), []),
    (("parameters", "verbosity"), 1),
    (("kind",), "oracle"),
    (("reading",), {"missing": "NA"}),
]


@pytest.mark.parametrize(("path", "value"), ALTERED, ids=lambda part: str(part)[:30])
def test_numbers_out_of_range_are_refused_though_the_checksum_fits(iris_model, tmp_path, path, value):
    folder = tmp_path / "model"
    shoal.save(iris_model, folder)
    alter(folder, path, value)
    with pytest.raises(ValueError, match=r"model\.json cannot be read as a model: .*use an unchanged copy") as caught:
        shoal.load(folder)
    assert "\n" not in str(caught.value)
    if path == ("temperature",):
        assert "temperature must be a" in str(caught.value)
        assert f"got {value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("folds.0.target.scale", np.nan), ("folds.1.target.centre", np.inf),
     ("folds.0.encoder.scaling.centre", np.nan), ("networks.plain", np.inf)],
)  # fmt: skip
def test_weights_that_no_training_gives_are_refused_though_the_checksum_fits(tmp_path, name, value):
    from safetensors.numpy import load_file, save_file

    folder = Path(tmp_path) / "model"
    X, y = load_diabetes(return_X_y=True)
    members = [Member(hidden=2, epochs=1)]
    shoal.save(ShoalRegressor(members, strategy="grid", cv=2, seeds=1).fit(X, y), folder)
    arrays = load_file(folder / "weights.safetensors")
    arrays[name].ravel()[0] = value
    save_file(arrays, folder / "weights.safetensors")
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    alter(folder, ("weights_sha256",), digest)
    with pytest.raises(ValueError, match=r"weights\.safetensors cannot be read as a model: .*unchanged") as caught:
        shoal.load(folder)
    assert name in str(caught.value)


@pytest.fixture(scope="module")
def diabetes_model():
    X, y = load_diabetes(return_X_y=True)
    return ShoalRegressor([Member(hidden=2, epochs=1)], strategy="grid", cv=2, seeds=1).fit(X, y)


def test_certainty_comes_back(diabetes_model, tmp_path):
    shoal.save(diabetes_model, tmp_path / "model")
    X, loaded = load_diabetes().data, shoal.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(X, 0.9), diabetes_model.predict_interval(X, 0.9))
    np.testing.assert_array_equal(loaded.strange(X).p_values, diabetes_model.strange(X).p_values)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("certainty.spread.coefficients", lambda values: values[:, :, :-1]),
        ("certainty.strangeness.combination.inverse", lambda values: values[:3, :3]),
    ],
)
def test_certainty_that_does_not_fit_is_refused(diabetes_model, tmp_path, name, change):
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "model"
    shoal.save(diabetes_model, folder)
    arrays = load_file(folder / "weights.safetensors")
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays, folder / "weights.safetensors")
    alter(folder, ("weights_sha256",), hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest())
    with pytest.raises(ValueError, match=r"cannot be read as a model: .*must fit each other"):
        shoal.load(folder)


@pytest.mark.parametrize("compact", [{"parts": [99]}, {"folds": 0}])
def test_a_compact_form_that_does_not_fit_is_refused(iris_model, tmp_path, compact):
    folder = tmp_path / "model"
    shoal.save(iris_model, folder)
    known = json.loads((folder / "model.json").read_text())["body"]["compact"]
    alter(folder, ("compact",), known | compact | {"whole_networks": 10_000})
    with pytest.raises(ValueError, match="cannot be read as a model"):
        shoal.load(folder)


@pytest.mark.parametrize("depth", [200_000, 900])
def test_json_nested_without_end_is_refused_in_a_sentence(iris_model, tmp_path, depth):
    """200,000 brackets are too many to be read; 900 are read, and are too many for whoever walks through them."""
    folder = tmp_path / "model"
    shoal.save(iris_model, folder)
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text("[" * depth + "]" * depth)
    with pytest.raises(ValueError, match=r"model\.json.*(nested too deeply|does not describe)") as caught:
        shoal.load(folder)
    assert "\n" not in str(caught.value)
    deep = json.loads("[" * min(depth, 900) + "]" * min(depth, 900))
    whole = json.loads(text)
    reseal(folder, {**whole, "body": {**whole["body"], "temperature": deep}})
    with pytest.raises(ValueError, match=r"model\.json cannot be read as a model"):
        shoal.load(folder)


class Circle(ColumnEncoder):
    """Degrees as a point on a circle."""

    kind = "number"

    @classmethod
    def fit(cls, cells, weight):
        return cls()

    def input_names(self, column):
        return [f"{column}: sine", f"{column}: cosine"]

    def write_inputs(self, cells, out):
        out[:, 0], out[:, 1] = np.sin(np.radians(cells.values)), np.cos(np.radians(cells.values))


def test_a_model_with_an_encoder_of_the_users_own_predicts_and_is_not_saved(tmp_path):
    wind = np.random.default_rng(0).uniform(0, 3600, 150)
    y = np.cos(np.radians(wind))
    space = {"hidden": [()], "learning_rate": [0.05]}
    model = ShoalRegressor(space=space, strategy="grid", epochs=10, cv=3, seeds=1, kinds={"wind": Circle()})
    model.fit({"wind": wind}, y)
    assert model.score({"wind": wind[::-1]}, y[::-1]) > 0.99, "a line in the circle's coordinates"
    with pytest.raises(ValueError, match=r"cannot be saved, since its file holds no code: 'wind' \(Circle\)"):
        shoal.save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())

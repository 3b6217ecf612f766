"""Populations on disk."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import shoal
from shoal import Member, Population
from shoal.files import tensors
from shoal.population import rows

X = np.random.default_rng(1).normal(size=(80, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
MEMBERS = [
    Member(hidden=(5, 3), dropout=0.2, patience=4),
    Member(hidden=(), optimizer="sgd", momentum=0.5, features=(0, 2)),
    Member(hidden=9, schedule="cosine", epochs=8, seed=(1 << 62) + 1),
]


@pytest.fixture
def saved(tmp_path):
    population = Population(MEMBERS, 4, 2, class_weight=[1.0, 2.0])
    population.fit(X, Y, epochs=3, rows=rows.holdout(80))
    path = tmp_path / "population.safetensors"
    population.save(path)
    return population, path


def test_a_loaded_population_trains_on_to_the_same_bits(saved):
    population, path = saved
    loaded = Population.load(path)
    assert loaded.members == population.members
    assert repr(loaded) == repr(population)
    assert np.array_equal(loaded.history.loss, population.history.loss)
    for each in (population, loaded):
        each.fit(X, Y, epochs=4, rows=rows.holdout(80))
    assert np.array_equal(loaded.predict(X), population.predict(X))
    assert np.array_equal(loaded.state.slots, population.state.slots)
    assert loaded.status == population.status


def test_saving_replaces_the_old_file_and_leaves_nothing_behind(saved):
    population, path = saved
    population.fit(X, Y, epochs=1, rows=rows.holdout(80))
    population.save(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert Population.load(path).epochs.tolist() == [4, 4, 4]


@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, 0.99])
def test_truncated_files_are_refused(saved, keep):
    _, path = saved
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    with pytest.raises(ValueError, match="is damaged, was altered or is not a Shoal population"):
        Population.load(path)


def test_files_that_are_not_populations_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        Population.load(tmp_path / "nothing")
    (tmp_path / "junk").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match="is damaged, was altered or is not a Shoal population"):
        Population.load(tmp_path / "junk")
    save_file({"a": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match="is not a Shoal population"):
        Population.load(tmp_path / "other")


def altered(path, change_header=None, change_arrays=None):
    labels, arrays, header = tensors.read_sealed(path)
    if change_header:
        change_header(header)
    if change_arrays:
        change_arrays(arrays)
    version = str(header.pop("version", labels["version"]))
    arrays = {name: np.array(array) for name, array in arrays.items()}
    tensors.write_sealed(
        path, arrays, header, {"format": labels["format"], "version": version}
    )  # by somebody who knows it


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        (lambda h: h.update(version=99), None, "format version 99; this Shoal reads 3"),
        (lambda h: h["members"].pop(), None, "damaged or was altered"),
        (lambda h: h["members"][0].update(activation="evil"), None, "activation must be one of"),
        (lambda h: h["members"][0].update(code="x"), None, "damaged or was altered"),
        (lambda h: h.update(n_features=-1), None, "n_features must be"),
        (None, lambda a: a.update(parameters=a["parameters"][:-16]), "parameters has"),
        (None, lambda a: a.update(steps=a["steps"].astype(np.int32)), "steps has int32"),
        (None, lambda a: a.pop("slots"), "damaged or was altered"),
        (None, lambda a: a.update(status=a["status"] + 9), "status must be below 4"),
        (None, lambda a: a.update(epochs=a["epochs"] - 50), "epochs must not be negative"),
        (None, lambda a: a.update(best_epoch=a["epochs"] + 1), "a best epoch is later"),
        (None, lambda a: a.update({"history.loss": np.zeros((1, 1))}), "history does not fit"),
    ],
)
def test_altered_files_are_refused(saved, header, arrays, message):
    _, path = saved
    altered(path, header, arrays)
    with pytest.raises(ValueError, match=message):
        Population.load(path)


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_flipped_bit_anywhere_is_noticed(saved, tmp_path, place, bit):
    content = bytearray(saved[1].read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (tmp_path / "flipped.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"is damaged|is not a Shoal|format version"):
        Population.load(tmp_path / "flipped.safetensors")


def test_a_missing_folder_is_named(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere to save into"):
        saved[0].save(tmp_path / "nowhere" / "file")


def test_ten_thousand_members_keep_their_recipes(tmp_path):
    members = shoal.grid(hidden=list(range(1, 101)), activation=list(shoal.ACTIVATIONS), repeats=10)
    population = Population(members, 2, 2)
    population.save(tmp_path / "many")
    assert Population.load(tmp_path / "many").members == tuple(members)

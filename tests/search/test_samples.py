"""Predictions of all candidates, in memory and beyond it: the same numbers, and the same search."""

import os
import tempfile
import tracemalloc

import numpy as np
import pytest
from scipy.stats import loguniform

from shoal import ShoalClassifier
from shoal.errors import UserError
from shoal.search.budget import model as time_model
from shoal.search.results import conclude
from shoal.search.scoring import evidence as samples
from shoal.search.scoring import picks
from shoal.search.scoring.evidence import Sampled, Samples

ROWS, OUTPUTS = np.array([1, 4, 5, 8]), 3
BYTES = 4 * len(ROWS) * OUTPUTS  # of a sample


def predictions(count, seed=0):
    return np.random.default_rng(seed).random((count, 10, OUTPUTS)).astype(np.float32)


@pytest.mark.parametrize("in_memory", [0, 3, 100])
def test_what_was_put_in_comes_out_whoever_is_asked_for(in_memory, tmp_path):
    given = predictions(40)
    store = Samples(ROWS, OUTPUTS, tmp_path, limit=in_memory * BYTES)
    for number in (*range(0, 40, 2), *range(1, 40, 2)):
        store.put(number, given[number, ROWS])
    assert store.in_memory == (in_memory == 100)
    for numbers in (range(40), [7], [3, 4, 5, 20, 21, 2, 2], []):
        np.testing.assert_array_equal(store.read(numbers), given[list(numbers)][:, ROWS])


@pytest.mark.parametrize("in_memory", [0, 100])
def test_a_later_assessment_takes_the_place_of_the_earlier_one(in_memory):
    store = Samples(ROWS, OUTPUTS, limit=in_memory * BYTES)
    for seed in (0, 1):
        for number, prediction in enumerate(predictions(5, seed)):
            store.put(number, prediction[ROWS])
    np.testing.assert_array_equal(store.read([0, 4]), predictions(5, seed=1)[[0, 4]][:, ROWS])


def test_some_rows_of_some_candidates_are_read_as_from_an_array():
    given = predictions(20)
    store = Samples(ROWS, OUTPUTS, limit=0)
    for number, prediction in enumerate(given):
        store.put(number, prediction[ROWS])
    numbers, places = [1, 3, 4, 5, 19], np.array([0, 2, 3])
    sampled, wanted = Sampled(store, numbers, places), given[numbers][:, ROWS[places]]
    assert (len(sampled), sampled.shape) == (5, wanted.shape)
    for key in (slice(None), slice(1, 3), np.array([4, 0, 0]), 2):
        np.testing.assert_array_equal(sampled[key], wanted[key])


@pytest.mark.skipif(os.name != "posix", reason="elsewhere the file has a name until it is closed")
def test_the_file_has_no_name_so_that_it_goes_away_with_the_process(tmp_path):
    store = Samples(ROWS, OUTPUTS, tmp_path, limit=0)
    store.put(0, predictions(1)[0, ROWS])
    assert not store.in_memory
    assert list(tmp_path.iterdir()) == []


def test_beyond_the_limit_nothing_stays_in_memory():
    rows, limit = np.arange(1000), 1 << 20
    store = Samples(rows, 2, limit=limit)
    prediction = np.zeros((1000, 2), np.float32)
    tracemalloc.start()
    try:
        for number in range(1000):  # 8 MB
            store.put(number, prediction)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not store.in_memory
    assert kept < limit / 10
    assert peak < 1.5 * limit


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux: a disk that is always full")
def test_a_full_disk_is_one_clear_sentence(monkeypatch):
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        with pytest.raises(UserError, match=r"^the disk of .* is full: predictions of 1 recipes take 48 B there; make"):
            Samples(ROWS, OUTPUTS, limit=0).put(0, predictions(1)[0, ROWS])


def numbers(honest):
    return [value for value in honest.as_dict().values() if not isinstance(value, str)]


@pytest.mark.parametrize("strategy", ["random", "halving"])
def test_a_search_beyond_memory_gives_the_same_result(strategy, monkeypatch):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 3))
    y = (X[:, 0] + 0.5 * generator.normal(size=120) > 0).astype(int)
    space = {"hidden": [1, 2], "learning_rate": loguniform(1e-3, 1e-1), "batch_size": [32], "epochs": [3]}

    def fit():
        how = {"strategy": strategy, "scoring": "neg_log_loss", "recipes": 500, "cv": 2, "seeds": 1}
        return ShoalClassifier(space, **how).fit(X, y)

    monkeypatch.setattr(time_model, "BOOTSTRAPS", 40)
    plain = fit()
    assert plain.result_.search.samples.in_memory
    monkeypatch.setattr(samples, "IN_MEMORY", 10_000)
    monkeypatch.setattr(conclude, "CELLS_IN_MEMORY", 0)
    monkeypatch.setattr(picks, "BLOCK_CELLS", 50 * 240)
    spilled = fit()
    assert not spilled.result_.search.samples.in_memory
    np.testing.assert_array_equal(spilled.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_allclose(numbers(spilled.honest_score_), numbers(plain.honest_score_), rtol=1e-6)

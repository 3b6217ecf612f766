"""A model predicts with all folds at once what its folds say one by one."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.harness.models import untrained_model
from shoal.metrics.tasks import CLASSIFICATION, MULTILABEL, REGRESSION, Task
from shoal.models import model as module
from shoal.tables.table import Table
from tests.support.tables import UNSEEN, columns

TASKS = [Task(CLASSIFICATION, 2), Task(CLASSIFICATION, 9), Task(MULTILABEL, 3), Task(REGRESSION, 1)]


def fold_by_fold(model, table):
    """(n_folds, n, n_outputs): each fold encodes the table anew, and each encoding is a call of its own."""
    found = []
    for k, fold in enumerate(model.folds):
        total = 0.0
        inputs = fold.encoder.transform(table, list(model.networks))
        for encoding, population in model.networks.items():
            weights = np.array([part.weight for part in model.parts if part.encoding == encoding])
            wide = np.zeros((len(table), population.n_features), dtype=np.float32)
            wide[:, : inputs[encoding].shape[1]] = inputs[encoding]
            raw = population.predict(wide, np.arange(len(weights)) * len(model.folds) + k)
            total = total + np.tensordot(weights, fold.target.back(model.task, raw), axes=1)
        found.append(total)
    return np.array(found)


def new_rows(n, seed):
    """Other rows than those of the training: some cells missing, some values never seen."""
    cells = columns(seed + 1, n=max(n, 4))
    rng = np.random.default_rng(seed)
    for name, kind in (("size", "number"), ("colour", "category"), ("told", "text")):
        for j in rng.integers(0, len(cells[name]), 2):
            cells[name][j] = UNSEEN[kind] if rng.random() < 0.5 and kind != "number" else None
    return Table.of(cells).take(np.arange(n))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kind}-{task.n_outputs}")
@settings(max_examples=6, deadline=None)
@given(folds=st.integers(1, 5), parts=st.integers(1, 5), n=st.integers(1, 40), seed=st.integers(0, 1000))
def test_all_folds_at_once_are_each_fold_alone(task, folds, parts, n, seed):
    model = untrained_model(Table.of(columns(seed)), task, max(folds, 2), parts, seed)
    table = new_rows(n, seed)
    expected = fold_by_fold(model, table)
    assert np.allclose(model.predict_folds(table), expected, rtol=1e-13, atol=1e-13)
    mean = expected.mean(axis=0)
    if task.kind == CLASSIFICATION:
        mean /= mean.sum(axis=1, keepdims=True)
    assert np.allclose(model.predict(table), task.temper(mean, model.temperature), rtol=1e-12, atol=1e-12)


def test_folds_have_different_inputs():
    """Else the tests above would pass with the encoder of one fold for all."""
    model = untrained_model(Table.of(columns(0)), TASKS[3], 3, 2)
    found = model.predict_folds(new_rows(20, 0))
    assert not np.allclose(found[0], found[1])


def test_it_does_not_matter_how_many_rows_are_predicted_at_a_time(monkeypatch):
    model = untrained_model(Table.of(columns(0)), TASKS[0], 3, 4)
    table = new_rows(50, 1)
    expected = model.predict(table)
    monkeypatch.setattr(module, "MOST_ROWS", 7)
    model.__dict__.pop("folding")
    assert model.folding.most_rows == 7
    assert np.allclose(model.predict(table), expected, rtol=1e-14)
    alone = np.concatenate([model.predict(table.take(np.array([j]))) for j in range(50)])
    assert np.allclose(alone, expected, rtol=1e-14)


def test_a_pickled_model_predicts_the_same():
    model = untrained_model(Table.of(columns(0)), TASKS[1], 2, 1)
    expected = model.predict(new_rows(5, 0))
    again = pickle.loads(pickle.dumps(model))
    assert "folding" in vars(model)
    assert "folding" not in vars(again)
    assert np.array_equal(again.predict(new_rows(5, 0)), expected)


def test_only_categories():
    table = Table.of({"colour": ["red", "blue", "red", "green"] * 9, "sex": ["m", "f", None] * 12})
    model = untrained_model(table, TASKS[0], 3, 2)
    assert np.allclose(model.predict_folds(table), fold_by_fold(model, table), rtol=1e-13)

"""Fewer networks out of a model, in search and in exports, with what they cost."""

import json
from dataclasses import replace

import numpy as np
import pytest

import shoal
from benchmarks.harness.models import untrained_model
from shoal.errors import UserError
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.models.compact import Compact, compact_model, reduced
from shoal.models.export.writing import export_model
from shoal.tables.table import Table
from tests.support.tables import columns, small_table

QUICK = {"recipes": 6, "epochs": 6, "seeds": 1, "cv": 4, "n_jobs": 1}


@pytest.fixture(scope="module")
def searched():
    X, y = small_table()
    return shoal.ShoalClassifier(**QUICK).fit(X, y), X, y


@pytest.mark.parametrize("task", [Task(CLASSIFICATION, 3), Task(REGRESSION, 1)], ids=lambda task: task.kind)
def test_a_reduced_model_is_the_mean_of_the_networks_that_it_keeps(task):
    table = Table.of(columns(0))
    model = untrained_model(table, task, 4, 5)
    for parts, folds in (((2,), 1), ((0, 3), 2), ((4, 1, 2), 4)):
        small = reduced(model, Compact(parts, folds, 1.0, 0.5, 0.5, 0.1, 20))
        alone = [reduced(model, Compact((part,), 4, 1.0, 0.5, 0.5, 0.1, 20)).predict_folds(table) for part in parts]
        expected = np.mean([one[:folds] for one in alone], axis=(0, 1))
        assert len(small) == len(parts) * folds
        assert np.allclose(small.predict(table), expected, rtol=1e-6)


def test_a_search_knows_its_compact_form(searched, tmp_path):
    estimator, X, _ = searched
    compact = estimator.model_.compact
    assert compact.networks < compact.whole_networks == len(estimator.model_)
    assert compact.loss <= compact.whole_loss + compact.error
    shoal.save(estimator, tmp_path / "m")
    again = shoal.load(tmp_path / "m").model_
    assert again.compact == compact
    assert np.array_equal(
        compact_model(again).predict(Table.of(X)), compact_model(estimator.model_).predict(Table.of(X))
    )


def test_a_compact_search_delivers_it_with_a_score_of_its_own(searched):
    whole, X, y = searched
    small = shoal.ShoalClassifier(**QUICK, model="compact").fit(X, y)
    found = small.result_.outcome.compact
    assert len(small.model_) == found.networks == whole.model_.compact.networks
    assert small.model_.compact.networks == small.model_.compact.whole_networks  # it is compact already
    assert len(compact_model(small.model_)) == found.networks
    expected = compact_model(whole.model_).predict(Table.of(X))
    assert np.allclose(small.predict_proba(X), expected, rtol=1e-6)
    assert small.honest_score_.averaging < whole.honest_score_.averaging  # it averages fewer folds
    assert f"{found.networks} of {found.whole_networks} networks" in found.describe()


def test_models_that_do_not_know_say_so():
    old = untrained_model(Table.of(small_table()[0]), Task(CLASSIFICATION, 2), 2, 2)
    with pytest.raises(UserError, match=r"has no compact form.*use a model from .shoal search."):
        compact_model(old)


def test_export_of_the_compact_form(searched, tmp_path):
    pytest.importorskip("onnxruntime")
    import onnx

    estimator, X, _ = searched
    compared = export_model(estimator, "onnx", tmp_path / "m.onnx", X, compact=True)
    assert compared.relative < 1e-5
    found = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert found["networks"] == estimator.model_.compact.networks


def test_where_none_can_be_spared_the_model_stays_as_it_is():
    table = Table.of(columns(0))
    model = untrained_model(table, Task(REGRESSION, 1), 2, 3)
    whole = replace(model, compact=Compact((0, 1, 2), 2, 1.0, 0.5, 0.5, 0.1, 6))
    assert np.array_equal(compact_model(whole).predict(table), model.predict(table))
    assert "6 networks, and fewer would cost more" in whole.compact.describe()

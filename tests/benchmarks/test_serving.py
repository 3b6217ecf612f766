"""The benchmarks of models in use measure what they say."""

import numpy as np
import pytest

from benchmarks.harness.models import LEVELS, adult_like, measure, save_small
from benchmarks.search.serving import compacting, predicting
from shoal.errors import MissingFile
from shoal.models.predictor import Predictor
from shoal.tables.files import read_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table


def test_the_table_is_of_six_numbers_and_eight_categories():
    kinds = [column.kind for column in Schema.of(Table.of(adult_like(2000, 0))).columns]
    assert (kinds.count("number"), kinds.count("category")) == (6, len(LEVELS))


@pytest.mark.parametrize("texts", [False, True])
def test_a_measurement_has_all_figures(texts, monkeypatch):
    monkeypatch.setattr("benchmarks.harness.models.FITTED_ROWS", 200)
    found = measure(2, 2, 30, 1, texts)
    assert found["microseconds"] > 0
    assert found["one_row_milliseconds"] > 0


def test_the_saved_model_predicts_its_row(tmp_path):
    save_small(str(tmp_path))
    table, _ = read_table(tmp_path / "one.csv")
    assert Predictor.load(tmp_path / "model").predict_proba(table).shape == (1, 2)


def test_figures_of_two_versions_stand_beside_each_other():
    one = {"microseconds": 10.0, "one_row_milliseconds": 2.0, "memory_megabytes": 3.0, "rows": 100}
    names = [*predicting.MODELS, predicting.TEXTS]
    now = dict.fromkeys(names, one) | {"cold": 0.5}
    old = dict.fromkeys(names, one | {"microseconds": 30.0}) | {"cold": 2.0}
    table = predicting.table({"now": now, "before": old})
    assert all(len(row) == len(table.header) for row in table.rows)
    assert table.rows[0][-2:] == ["3.0x", "1.0x"]
    assert table.rows[-1][-1] == "4.0x"
    assert [target.met for target in predicting.targets(predicting.ROWS, now)] == [True, True, True]


def test_losses_of_all_ways_on_rows_set_aside():
    try:
        found = compacting.measure("penguins", 0, 3)
    except (MissingFile, FileNotFoundError) as error:
        pytest.skip(str(error))
    assert found["loss"].keys() == set(compacting.WAYS)
    assert all(np.isfinite(loss) and loss < 1.2 for loss in found["loss"].values())  # guessing has 1.06
    assert 1 <= found["compact"] <= found["networks"]

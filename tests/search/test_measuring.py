"""Short trials that the plan of a budget is made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import small_table

from shoal import ShoalClassifier
from shoal.metrics.find import find_metric
from shoal.metrics.tasks import Task
from shoal.search.budget import trial
from shoal.search.budget.clock import Clock
from shoal.search.budget.model import TimeModel
from shoal.search.budget.trial import draw_rows
from shoal.search.options import SearchOptions
from shoal.search.problem.data import TrainingData
from shoal.search.scoring.ensemble import weigh
from shoal.tables.schema import Schema
from shoal.tables.table import Table


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(60, 400), st.integers(0, 5))
def test_rows_that_are_drawn_leave_no_class_out(classes: int, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    y = np.where(random.random(2000) < 0.99, 0, random.integers(classes, size=2000))
    rows = draw_rows(y, Task("classification", classes), count, seed)
    assert len(np.unique(rows)) == len(rows) == count
    assert (np.diff(rows) > 0).all()
    for k in range(classes):
        assert (y[rows] == k).sum() >= min(10, (y == k).sum())


def test_an_encoding_of_numbers_is_left_out_only_where_there_are_two() -> None:
    def spare(X: dict[str, Any], encodings: list[str] | None = None) -> bool:
        table, y = Table.of(X), np.arange(300) % 2
        task, schema = Task("classification", 2), Schema.of(table)
        options = SearchOptions(threads=1, epochs=1, space=None if encodings is None else {"encoding": encodings})
        data = TrainingData(task, schema, table, y, np.ones(300))
        return TimeModel(Clock(1.0), options).measured(data, find_metric(None, task)).pace.spare

    numbers = {f"x{j}": column for j, column in enumerate(small_table(columns=90)[0].T)}
    few = {name: numbers[name] for name in ("x0", "x1")}
    assert spare(few)
    assert not spare(few, ["plain", "piecewise"])  # the user asked for them
    assert not spare(numbers)  # too many for a second encoding
    assert not spare({"word": np.array(["a", "b", "c"] * 100, dtype=object)})


def test_weighing_is_measured_on_many_numbers_also_for_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few numbers, what is measured is a call of a function: 128 recipes seem to take seconds."""
    model = ShoalClassifier(recipes=40, strategy="random", seeds=1, epochs=1, cv=2).fit(*small_table())
    sizes = []

    def recorded(task: Task, loss_inputs: np.ndarray, *others: Any) -> np.ndarray:
        sizes.append(loss_inputs.shape[:2])
        return weigh(task, loss_inputs, *others)

    monkeypatch.setattr(trial, "weigh", recorded)
    assert trial.measure_passes(model.result_.search, report=False) is not None
    assert set(sizes) == {(len(model.result_.search.best_candidates()), 300)}
    assert sizes[0][0] > 20

"""The table that `shoal plan` prints: terminals of any width, what is not known."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from shoal.cli.plan import _columns, _score, _show, fitting
from shoal.planner.options import PlanOptions
from shoal.planner.planning import Row
from shoal.report.plan.rows import quantities


def row(nodes: int, **more) -> Row:
    return Row("allreduce", "all-reduce, exact", nodes, 1.5, 15.0, 1.0, -43669.2, 1.0, 0.0, 1e6, 1e9, **more)


def plan(*rows: Row, **options):
    machine = {
        "cpu": "cpu",
        "cores": 2,
        "backend": "mpi",
        "own_machines": True,
        "link": {"name": "1 Gbit/s"},
        "check": None,
    }
    return SimpleNamespace(rows=list(rows), metric="accuracy", options=PlanOptions(**options), machine=machine,
                           noise=None, notes=[], verdict=SimpleNamespace(text="One node is best."))  # fmt: skip


def printed(found, width: int) -> str:
    to = io.StringIO()
    _show(found, Console(file=to, width=width, force_terminal=True, soft_wrap=True, color_system=None))
    return to.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_columns_that_do_not_fit_are_left_out_and_named(width):
    text = printed(plan(row(1, accuracy=0.9, cost=0.1), row(64, accuracy=0.9, cost=0.1)), width)
    assert "…" not in text
    assert "speed-up" in text
    assert "15" in text
    assert ("the report also has: " in text) == (width < 200)


def test_all_columns_where_there_is_room():
    columns = _columns(plan(row(1)))
    assert fitting(columns, [row(1)], 200) == columns
    assert [name for name, _ in fitting(columns, [row(1)], 10)] == ["strategy", "nodes", "s in all", "speed-up"]


def test_a_goal_is_never_reached_only_where_it_was_tried():
    found = plan(row(1, accuracy=0.5), row(2), row(4, diverged=True), goal="accuracy=0.9")
    cell = dict(_columns(found))["s to the goal"]
    assert [cell(one) for one in found.rows] == ["never", "", "never"]


def test_an_interval_that_ends_at_one_is_as_wide_as_it_was():
    assert _score(row(1, accuracy=0.99, accuracy_low=0.95, accuracy_high=1.0)) == "0.9900 ± 0.0400"


def test_other_hardware_is_not_a_machine_like_this_one():
    assert "like this one" in printed(plan(row(1)), 200)
    assert "like this one" not in printed(plan(row(1), node="4tflops,200gb/s"), 200)


@given(st.floats(1e-6, 1e3))
def test_what_takes_longer_is_not_a_negative_saving(speedup):
    slow = replace(row(4), speedup=speedup, improvement_percent=100 * (1 - 1 / speedup))
    cell = dict(_columns(plan(slow)))
    page = {key: formatted for key, _, formatted in quantities("accuracy")}["improvement_percent"]
    for text in (cell["saved"](slow), page(slow.improvement_percent)):
        assert "-" not in text
        assert ("long" in text) == (speedup < 0.995) or 0.995 <= speedup < 1
    assert float(cell["speed-up"](slow).rstrip("x")) == pytest.approx(speedup, rel=0.1, abs=5e-6)

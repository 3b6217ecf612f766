"""Strange rows: as few as stated among rows from the same source, and named columns for those that are strange."""

import numpy as np
import pytest

from shoal.conformal.strangeness import Strangeness, Tails, Values
from shoal.encoders.encoder import Encoder
from shoal.tables.schema import Schema
from shoal.tables.table import Table


def source(generator, rows):
    height = generator.normal(170, 10, rows)
    return Table.of({
        "height": height,
        "weight": height - 100 + generator.normal(0, 3, rows),
        "income": np.exp(generator.normal(0, 1.5, rows)),
        "children": generator.poisson(1.0, rows).astype(float),
        "colour": generator.choice(["red", "green", "blue"], rows, p=[0.6, 0.3, 0.1]).astype(object),
        "town": np.array([f"t{k}" for k in generator.zipf(1.6, rows)], dtype=object),
    })  # fmt: skip


def fitted(table, weight=None):
    weight = np.ones(len(table)) if weight is None else weight
    schema = Schema.of(table)
    encoder = Encoder.fit(schema, table, weight)
    kinds = {column.name: column.kind for column in schema.used}
    rows = np.flatnonzero(weight)
    return Strangeness.fit(table, weight, kinds, rows, weight[rows], encoder.numbers(table)[rows]), encoder


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_of_rows_from_the_same_source_no_more_are_marked_than_stated(share):
    generator = np.random.default_rng(0)
    marked, control = [], []
    for _ in range(25):
        strangeness, encoder = fitted(source(generator, 200))
        new = source(generator, 200)
        marked.append(strangeness.judge(new, encoder, share).marked.mean())
        calmer = Strangeness(**{**vars(strangeness), "scores": 0.7 * strangeness.scores})
        control.append(calmer.judge(new, encoder, share).marked.mean())
    assert share / 4 < np.mean(marked) < 1.2 * share  # 5,000 rows: a standard error of 0.2 to 0.4 points
    assert np.mean(control) > 1.5 * share, "the control: training rows that are taken for more usual than they are"


def odd(**cells):
    usual = {"height": 170.0, "weight": 70.0, "income": 1.0, "children": 1.0, "colour": "red", "town": "t1"}
    return Table.of({name: [value] for name, value in (usual | cells).items()})


@pytest.mark.parametrize(
    ("cells", "guilty"),
    [
        ({"height": 260.0, "weight": 160.0}, {"height", "weight"}),
        ({"income": 1e7}, {"income"}),
        ({"income": -1e3}, {"income"}),
        ({"children": 30.0}, {"children"}),
        ({"colour": "mauve"}, {"colour"}),
        ({"colour": None}, {"colour"}),
        ({"height": np.nan}, {"height"}),
        ({"height": 185.0, "weight": 55.0}, {"height", "weight"}),
    ],
    ids=["tall", "rich", "in debt", "children", "unseen", "missing", "missing number", "combination"],
)
def test_strange_rows_are_marked_with_their_columns(cells, guilty):
    strangeness, encoder = fitted(source(np.random.default_rng(1), 1_000))
    usual = strangeness.judge(odd(), encoder)
    assert usual.p_values[0] > 0.2
    assert usual.columns == [[]]
    found = strangeness.judge(odd(**cells), encoder)
    assert found.marked[0]
    assert set(found.columns[0]) & guilty
    assert set(found.columns[0]) <= guilty


def test_a_new_value_is_nothing_strange_where_values_are_often_new():
    strangeness, encoder = fitted(source(np.random.default_rng(1), 1_000))
    assert not strangeness.judge(odd(town="t999999"), encoder).marked[0]


def test_nothing_is_marked_by_too_few_rows():
    strangeness, encoder = fitted(source(np.random.default_rng(2), 30))
    assert not strangeness.judge(odd(height=1e6), encoder).marked[0], "30 rows cannot tell 1 in 100"
    assert strangeness.judge(odd(height=1e6), encoder, 0.05).marked[0]


def test_a_weight_of_two_is_the_row_twice_and_zero_is_none():
    generator = np.random.default_rng(3)
    values, times = generator.normal(size=60), generator.integers(0, 3, 60)
    once, often = Tails.fit(values, times.astype(float)), Tails.fit(np.repeat(values, times), np.ones(times.sum()))
    np.testing.assert_allclose(once.strangeness(values + 1), often.strangeness(values + 1))
    codes = generator.integers(0, 5, 60)
    names = list("abcde")
    few = Values.fit(codes, names, times.astype(float), 10)
    many = Values.fit(np.repeat(codes, times), names, np.ones(times.sum()), 10)
    np.testing.assert_allclose(few.strangeness(codes, names), many.strangeness(codes, names))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_columns_of_any_unit_and_without_spread(scale):
    for values in (np.zeros(50), np.r_[np.zeros(49), scale], np.full(50, np.nan), scale * np.arange(50.0)):
        tails = Tails.fit(values, np.ones(50))
        found = tails.strangeness(np.array([0.0, scale, -scale, np.nan]))
        assert np.isfinite(found).all()
        assert np.isfinite(tails.strangeness(values, np.ones(50))).all()

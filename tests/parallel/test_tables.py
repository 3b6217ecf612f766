"""How the rows of a table are shared out between training, validation and test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from shoal.parallel.data.tables import _split, hold_back
from shoal.tables.table import Table
from shoal.tables.target import TASKS, LabelledTable


@given(copies=st.lists(st.integers(0, 30), min_size=40, max_size=120), seed=st.integers(0, 2**31),
       shares=st.tuples(st.floats(0.05, 0.5), st.floats(0.05, 0.5)), kind=st.sampled_from(TASKS))  # fmt: skip
def test_copies_of_a_row_are_never_in_two_parts(copies, seed, shares, kind):
    sets = np.array([*copies, *range(31, 41)])
    question = LabelledTable("y", kind, "", Table.of({"x": np.arange(len(sets))}), sets % 3)
    parts = _split(question, sets, shares, None, seed)
    assert sorted(np.concatenate(parts)) == list(range(len(sets)))
    assert sum(len(np.unique(sets[part])) for part in parts) == len(np.unique(sets))


@given(labels=st.lists(st.sampled_from("abcd"), min_size=2, max_size=60), share=st.floats(0.01, 0.99),
       seed=st.integers(0, 2**31))  # fmt: skip
def test_every_row_is_in_one_part_and_classes_have_their_share(labels, share, seed):
    held_back = max(1, round(share * len(labels)))
    kept, held = hold_back(len(labels), held_back, seed, np.array(labels))
    assert len(held) == held_back
    assert sorted([*kept, *held]) == list(range(len(labels)))
    for name in set(labels):
        expected = labels.count(name) * held_back / len(labels)
        found = sum(labels[row] == name for row in held)
        assert math.floor(expected) - 1 < found < math.ceil(expected) + 1


def test_rows_are_drawn_by_the_seed_and_in_a_random_order():
    first, again, other = (hold_back(1000, 200, seed) for seed in (3, 3, 4))
    for part in (0, 1):
        assert first[part].tolist() == again[part].tolist() != other[part].tolist()
        assert abs(np.corrcoef(first[part], np.arange(len(first[part])))[0, 1]) < 0.3
    often = np.zeros(40)
    for seed in range(500):
        often[hold_back(40, 10, seed, np.arange(40) % 3)[1]] += 1
    assert often.min() > 80  # each row is held back in about a quarter of 500 draws
    assert often.max() < 170

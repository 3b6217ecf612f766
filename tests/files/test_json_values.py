"""Text of JSON, a part at a time."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.files import json_values
from shoal.files.json_values import pieces

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner))


@pytest.fixture(scope="module", autouse=True)
def short_pieces():
    before, json_values.PIECE = json_values.PIECE, 2
    yield
    json_values.PIECE = before


@given(VALUES, st.sampled_from([{}, {"sort_keys": True, "separators": (",", ":")}]))
@settings(max_examples=60, deadline=None)
def test_the_pieces_are_the_whole(value, how):
    assert "".join(pieces(value, **how)) == json.dumps(value, **how)


def test_long_lists_are_cut():
    assert len(list(pieces({"a": [0] * 9}))) > 5

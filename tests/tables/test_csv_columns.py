"""Large files are read by blocks, with the same result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.tables import csv_columns, files

cell = st.sampled_from(["1", "2.5", "-1e3", "", "NA", "?", "x", " 7 ", '"3"', "1_2", "nan", "0x1", "\u0661", "-0"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(cell, min_size=3, max_size=3), min_size=2, max_size=30), st.sampled_from([1, 3, 1200]))
@example([["1", "x", ""], ["2.5", "y", "-0"], ["NA", " 7 ", "3"]], 3)
def test_a_file_read_by_blocks_is_the_table_that_it_was(rows: list[list[str]], head: int) -> None:
    """Files that need more care, with quotes or underscores, are not read by blocks."""
    text = "a,b,c\n" + "\n".join(",".join(row) for row in rows) + "\n"
    _, decoded, understood = files._begin(text.encode(), Path("t.csv"), ",", '"')
    before = files.HEAD, csv_columns.BLOCK
    try:
        files.HEAD, csv_columns.BLOCK = head + 1, 2
        quick = files._read_columns(text.encode(), "_" in text, understood, True, frozenset())
    finally:
        files.HEAD, csv_columns.BLOCK = before
    names, plain = files._read_rows(decoded, True, understood)
    if quick is None:
        assert '"' in text or "_" in text
        return
    assert quick[0] == names
    for one, other in zip(quick[1], zip(*plain, strict=True), strict=True):
        expected = csv_columns.typed(other, frozenset())
        assert one.dtype == expected.dtype
        assert one.tolist() == expected.tolist() or np.array_equal(one, expected, equal_nan=True)

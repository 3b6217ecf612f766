"""The layout: offsets and counts of parameters."""

from itertools import pairwise

import numpy as np
import pytest

from shoal.population.layout import ALIGNMENT, Layout
from shoal.population.members import Member

MEMBERS = [Member(hidden=()), Member(hidden=1), Member(hidden=(5, 3)), Member(hidden=7, features=(0, 2))]


def count(member: Member, n_features: int, n_outputs: int) -> int:
    widths = [len(member.features) if member.features else n_features, *member.hidden, n_outputs]
    return sum((a + 1) * b for a, b in pairwise(widths))


def test_counts_match_a_count_by_hand_for_every_member():
    layout = Layout(MEMBERS, 4, 2)
    assert layout.counts.tolist() == [count(member, 4, 2) for member in MEMBERS]


def test_regions_are_aligned_and_do_not_overlap():
    layout = Layout(MEMBERS * 5, 3, 4)
    assert np.all(layout.offsets % ALIGNMENT == 0)
    assert np.all(layout.offsets[1:] >= layout.offsets[:-1] + layout.counts[:-1])
    assert layout.total >= layout.offsets[-1] + layout.counts[-1]


def test_views_cover_a_region_once_and_keep_the_bias_last():
    layout = Layout(MEMBERS, 4, 2)
    buffer = np.zeros(layout.total, np.float32)
    for i in range(len(layout)):
        for view in layout.views(i, buffer):
            view += 1
    used = np.zeros(layout.total)
    for offset, size in zip(layout.offsets, layout.counts, strict=True):
        used[offset : offset + size] = 1
    assert np.array_equal(buffer, used)
    assert [view.shape for view in layout.views(2, buffer)] == [(5, 5), (6, 3), (4, 2)]


def test_the_layout_depends_on_members_and_shape_alone():
    offsets = Layout(MEMBERS, 4, 2).offsets.tolist()
    wide, turned = Layout(MEMBERS, 40, 2).offsets.tolist(), Layout(MEMBERS[::-1], 4, 2).offsets.tolist()
    assert offsets not in (wide, turned)
    assert Layout(tuple(MEMBERS), 4, 2).offsets.tolist() == offsets


def test_flops_count_forward_and_both_backward_products_but_no_input_gradient():
    layout = Layout([Member(hidden=50), Member(hidden=()), Member(hidden=(8, 4))], 100, 2)
    assert layout.flops_per_row.tolist() == [4 * 100 * 50 + 6 * 50 * 2, 4 * 100 * 2, 4 * 800 + 6 * 32 + 6 * 8]


def test_sizes_that_would_overflow_are_refused():
    with pytest.raises(ValueError, match="too large for one population"):
        Layout([Member(hidden=(1 << 20, 1 << 20))] * 100_000, 10, 2)

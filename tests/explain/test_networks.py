"""Inputs of networks and the columns that they belong to: mixing encoded rows is encoding mixed rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as draw
from support.tables import columns

from shoal.encoders.encoder import ENCODINGS, Encoder
from shoal.explain.networks import FoldNetworks, chunks, finished, owners, with_none
from shoal.tables.schema import Schema
from shoal.tables.table import Table


@settings(max_examples=15, deadline=None)
@given(draw.integers(8, 60), draw.integers(0, 99), draw.data())
def test_a_column_changes_its_own_inputs_and_no_others(rows, seed, data):
    cells = columns(seed, rows)
    names = data.draw(draw.lists(draw.sampled_from(list(cells)), min_size=1, max_size=7, unique=True))
    names = names if {"size", "count"} & set(names) else ["size", *names]
    table = Table.of({name: cells[name] for name in names})
    schema = Schema.of(table)
    target = np.random.default_rng(seed).normal(size=(rows, 1))
    (encoder,) = Encoder.fit_many(schema, table, [np.ones(rows)], [target])
    checked = schema.check(table)
    for encoding in filter(encoder.has, ENCODINGS):
        usual = encoder.transform(table)[encoding]
        owner = owners(encoder, encoding, usual.shape[1] + 1)
        assert owner[-1] == -1
        assert (owner[:-1] >= 0).all()
        for j, column in enumerate(schema.used):
            moved = list(checked.columns)
            moved[j] = moved[j][::-1].copy()
            turned = encoder.transform(Table(checked.names, moved))[encoding]
            mine = owner[:-1] == j
            assert mine.any(), column
            assert (turned[:, mine] == usual[::-1][:, mine]).all()
            assert (turned[:, ~mine] == usual[:, ~mine]).all()


def test_all_folds_together_are_the_model(mixed):
    table = Table.of(columns(1, 30))
    folds = [FoldNetworks(mixed.model_, k, 1) for k in range(3)]
    total = sum(fold.predict(fold.encode(table)) for fold in folds) / 3
    assert np.allclose(finished(mixed.model_, total), mixed.model_.predict(table, threads=1), atol=1e-12)


def test_inputs_of_no_column_never_come_from_elsewhere():
    assert with_none(np.ones((2, 3), dtype=bool))[:, -1].tolist() == [False, False]


@given(draw.integers(0, 50), draw.integers(0, 20), draw.integers(1, 30))
def test_chunks_are_everything_once_and_small_enough(count, cells, most):
    found = chunks(count, cells, most)
    assert [k for part in found for k in range(part.start, part.stop)] == list(range(count))
    assert all((part.stop - part.start) * cells <= max(most, cells) for part in found)

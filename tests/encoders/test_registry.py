"""What every encoder of a column promises, for each kind in the table of encoders; and encoders of the user's own."""

import json

import numpy as np
import pytest
from support.tables import EXAMPLES, ROWS, UNSEEN, columns

from shoal.encoders.column import ColumnEncoder
from shoal.encoders.encoder import ENCODERS, Encoder
from shoal.encoders.states import describe
from shoal.tables.kinds import KINDS
from shoal.tables.schema import Schema
from shoal.tables.table import Table


def cells_of(kind, seed=0):
    """Cells of a kind, every seventh of them missing."""
    return [None if i % 7 == 5 else cell for i, cell in enumerate(columns(seed)[EXAMPLES[kind]])]


def fitted(kind, cells, weight=None):
    """The encoder of one column, and a function from cells to its matrices."""
    table = Table.of({"c": cells})
    schema = Schema.of(table, kinds={"c": kind})
    encoder = Encoder.fit(schema, table, np.ones(len(cells)) if weight is None else weight)
    return encoder, lambda new: encoder.transform(Table.of({"c": new}))


def same_state(one, two):
    arrays, others = {}, {}
    described, other = describe(one.columns, "", arrays), describe(two.columns, "", others)
    return described == other and all(arrays[key].tobytes() == others[key].tobytes() for key in arrays | others)


def test_every_kind_has_an_encoder_and_an_example():
    assert set(ENCODERS) == set(KINDS) == set(EXAMPLES) == set(UNSEEN)


@pytest.mark.parametrize("kind", ENCODERS)
def test_names_match_what_is_made(kind):
    encoder, transform = fitted(kind, cells_of(kind))
    part, cells = encoder.columns["c"], encoder.schema.check(Table.of({"c": cells_of(kind)})).cells("c")
    assert type(part) is ENCODERS[kind]
    assert part.numbers(cells).shape == (ROWS, len(part.number_names("c")))
    assert part.width == len(part.input_names("c"))
    names = encoder.feature_names
    assert len(set(names)) == len(names) == transform(cells_of(kind))["plain"].shape[1] > 0
    assert all(name.startswith("c") for name in names)


@pytest.mark.parametrize("kind", ENCODERS)
def test_only_weights_count(kind):
    cells = cells_of(kind)
    weight = np.arange(ROWS) % 3 * 1.0
    weighted, transform = fitted(kind, cells, weight)
    twice, _ = fitted(kind, [cell for i, cell in enumerate(cells) for _ in range(i % 3)])
    other, _ = fitted(kind, [UNSEEN[kind] if i % 3 == 0 else cell for i, cell in enumerate(cells)], weight)
    turned, again = fitted(kind, cells[::-1], weight[::-1])
    assert same_state(weighted, twice)
    assert same_state(weighted, other)
    assert same_state(weighted, turned)
    assert transform(cells)["plain"].tobytes() == again(cells)["plain"].tobytes()
    known = [cell if cell is not None else cells[0] for cell in cells]
    gaps = [None if i % 3 == 0 else cell for i, cell in enumerate(known)]
    assert same_state(fitted(kind, known, weight)[0], fitted(kind, gaps, weight)[0]), (
        "nor do gaps in rows of weight zero"
    )


@pytest.mark.parametrize("kind", ENCODERS)
def test_state_gives_the_same_bits(kind):
    encoder, transform = fitted(kind, cells_of(kind))
    described, arrays = encoder.state()
    loaded = Encoder.from_state(
        encoder.schema, json.loads(json.dumps(described)), {name: array.copy() for name, array in arrays.items()}
    )
    assert same_state(loaded, encoder)
    new = [*cells_of(kind, seed=4), UNSEEN[kind]]
    for encoding, matrix in transform(new).items():
        assert matrix.std() > 0
        assert matrix.tobytes() == loaded.transform(Table.of({"c": new}))[encoding].tobytes()


@pytest.mark.parametrize("kind", ENCODERS)
def test_unseen_and_missing_cells_become_finite_numbers(kind):
    cells = cells_of(kind)
    _, transform = fitted(kind, cells)
    together, alone = transform([UNSEEN[kind], None, cells[0]]), transform([cells[0]])
    for encoding, matrix in together.items():
        assert np.isfinite(matrix).all()
        assert matrix[2].tobytes() == alone[encoding][0].tobytes(), "other rows do not matter"
        assert matrix[1].tobytes() != matrix[2].tobytes(), "a missing cell is told from another"


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_fold_without_a_known_cell(kind):
    cells = cells_of(kind)
    weight = np.array([float(cell is None) for cell in cells])
    encoder, transform = fitted(kind, cells, weight)
    assert all(np.isfinite(matrix).all() for matrix in transform(cells).values())
    assert same_state(Encoder.from_state(encoder.schema, *encoder.state()), encoder)


def test_files_that_describe_other_columns_are_refused():
    encoder = fitted("category", cells_of("category"))[0]
    described, arrays = encoder.state()
    with pytest.raises(KeyError, match="c"):
        Encoder.from_state(encoder.schema, {}, arrays)
    with pytest.raises(KeyError, match=r"columns\.0\.values"):
        Encoder.from_state(encoder.schema, {"c": {"missing": True}}, arrays)
    with pytest.raises(TypeError, match=r"columns.0.values must be a list; got 'red'"):
        Encoder.from_state(encoder.schema, {"c": described["c"] | {"values": "red"}}, arrays)


# ---- an encoder of the user's own ----


class Angle(ColumnEncoder):
    """Degrees as a point on a circle; and how far they are from their mean, as a number."""

    kind = "number"

    def __init__(self, turn=360.0):
        self.turn, self.mean = turn, None

    def fit(self, cells, weight):
        assert self.mean is None, "each fold has its own copy"
        known = np.nan_to_num(cells.values)
        self.mean = float((weight * known).sum() / weight.sum())
        return self

    def number_names(self, column):
        return [f"{column}: from mean"]

    def numbers(self, cells):
        return cells.values[:, None] - self.mean

    def input_names(self, column):
        return [f"{column}: sine", f"{column}: cosine"]

    def write_inputs(self, cells, out):
        angle = np.nan_to_num(cells.values) / self.turn * 2 * np.pi
        out[:, 0], out[:, 1] = np.sin(angle), np.cos(angle)


def with_angle(encoder):
    table = Table.of({"wind": ["0", "90", "180", "270"] * 5, "size": [0.5, 1.0, 2.0, 3.5] * 5, "side": ["l", "r"] * 10})
    return table, Schema.of(table, kinds={"wind": encoder})


def encoded(table, schema):
    return Encoder.fit(schema, table, np.ones(len(table))).transform(table)


def test_an_encoder_of_the_users_own_is_taken_where_a_kind_is():
    table, schema = with_angle(Angle())
    assert "wind: number, encoded by Angle, as asked" in schema.describe()
    halves = np.arange(20) < 10
    one, two = Encoder.fit_many(schema, table, [halves * 1.0, 1.0 + halves * (np.arange(20) % 4)])
    assert one.feature_names == ["size", "wind: from mean", "side = r, not l", "wind: sine", "wind: cosine"]
    made = one.transform(table)
    assert made["plain"][:4, 3:] == pytest.approx(np.array([[0, 1], [1, 0], [0, -1], [-1, 0]]), abs=1e-6)
    assert set(made) == {"plain", "piecewise", "quantile"}
    assert one.columns["wind"].mean != two.columns["wind"].mean
    with pytest.raises(ValueError, match=r"cannot be saved, since its file holds no code: 'wind' \(Angle\)"):
        one.state()


def test_mistakes_in_such_an_encoder_are_named():
    class Wide(Angle):
        def numbers(self, cells):
            return np.zeros((len(cells), 3))

    class Endless(Angle):
        def write_inputs(self, cells, out):
            out[:] = np.inf

    class Forgetful(Angle):
        def fit(self, cells, weight):
            return None

    class Kindless(Angle):
        kind = "angle"

    for encoder, error, words in (
        (Wide(), ValueError, r"numbers of Wide must have the shape \(20, 1\).*'wind' gave \(20, 3\)"),
        (Endless(), ValueError, "inputs must be finite; Endless of column 'wind'"),
        (Forgetful(), TypeError, "fit of Forgetful must return a ColumnEncoder; got None"),
        (Kindless(), ValueError, "say in `kind` how cells are read: number, .*Kindless for 'wind' has 'angle'"),
    ):
        with pytest.raises(error, match=words):
            encoded(*with_angle(encoder))

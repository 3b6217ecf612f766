"""How tables become matrices: numbers, categories, dates and texts, fitted on weighted rows."""

import datetime
import json

import numpy as np
import pytest
from support.tables import ROWS, columns

from shoal.encoders.categories import CategoryEncoder
from shoal.encoders.encoder import Encoder
from shoal.encoders.states import describe
from shoal.tables.schema import Schema
from shoal.tables.table import Cells, Table


def same(one, two):
    """Equal state of two encoders, to the bit."""
    (described, arrays), (other, others) = one.state(), two.state()
    return json.dumps(described) == json.dumps(other) and all(
        arrays[key].tobytes() == others[key].tobytes() for key in arrays.keys() | others.keys()
    )


# ---- Encoder ----


def fitted(given=None, weight=None):
    table = Table.of(given or columns())
    schema = Schema.of(Table.of(columns()))
    weight = np.ones(len(table)) if weight is None else weight
    return Encoder.fit_many(schema, table, [weight], [_target(table)])[0], table


def _target(table):
    """Numbers that thresholds of the columns tell apart, the same for equal rows."""
    size, count = (np.nan_to_num(table.cells(name).values) for name in ("size", "count"))
    return ((size > 0.3) + 0.5 * (count > 3)).astype(float)[:, None]


def test_matrices_are_dense_finite_and_named():
    encoder, table = fitted()
    made = encoder.transform(table)
    assert list(made) == ["plain", "piecewise", "quantile", "steps"]
    for matrix in made.values():
        assert matrix.dtype == np.float32
        assert matrix.flags.c_contiguous
        assert np.isfinite(matrix).all()
    assert made["plain"].shape == (ROWS, len(encoder.feature_names))
    assert len(set(encoder.feature_names)) == len(encoder.feature_names)
    rest = len(encoder.feature_names) - len(encoder.number_names)
    for matrix in made.values():
        assert np.array_equal(made["plain"][:, -rest:], matrix[:, -rest:])
    assert list(encoder.transform(table, encodings=("plain",))) == ["plain"]


def test_rows_of_weight_zero_leave_no_trace():
    """The test in which leakage would show: what was left out becomes monstrous, and nothing changes."""
    given, weight = columns(), np.ones(ROWS)
    weight[::4] = 0
    monstrous = {name: list(cells) for name, cells in given.items()}
    for row in range(0, ROWS, 4):
        monstrous["size"][row] = 1e12
        monstrous["count"][row] = None
        monstrous["open"][row] = True
        monstrous["colour"][row] = f"colour {row}"
        monstrous["sex"][row] = None
        monstrous["day"][row] = datetime.datetime(1850, 1, 1, 13, 37)
        monstrous["told"][row] = f"unheard of {row} unheard of"
    before, table = fitted(given, weight)
    after, _ = fitted(monstrous, weight)
    assert same(before, after)
    for encoding, matrix in before.transform(table).items():
        assert np.array_equal(matrix[weight > 0], after.transform(Table.of(monstrous))[encoding][weight > 0])
    weight[4] = 1e-3  # the control: with the least weight every kind of column shows it
    one, _ = fitted(given, weight)
    two, _ = fitted(monstrous, weight)
    for column in ("count", "colour", "sex", "day"):
        assert one.columns[column] != two.columns[column]
    assert one.scaling.edges.tobytes() != two.scaling.edges.tobytes()
    assert one.columns["told"].directions.tobytes() != two.columns["told"].directions.tobytes()


def test_weight_two_is_the_row_twice():
    given = columns()
    weight = np.random.default_rng(1).integers(0, 4, ROWS).astype(float)
    repeated = {
        name: [c for c, w in zip(cells, weight, strict=True) for _ in range(int(w))] for name, cells in given.items()
    }
    weighted, table = fitted(given, weight)
    twice, _ = fitted(repeated)
    for name, part in weighted.columns.items():
        arrays, other_arrays = {}, {}
        assert describe(part, name, arrays) == describe(twice.columns[name], name, other_arrays), name
        assert all(arrays[key].tobytes() == other_arrays[key].tobytes() for key in arrays), name
    assert np.array_equal(weighted.transform(table)["plain"], twice.transform(table)["plain"])


def test_the_order_of_rows_does_not_matter():
    given, order = columns(), np.random.default_rng(0).permutation(ROWS)
    straight, table = fitted(given)
    shuffled, _ = fitted({name: [cells[i] for i in order] for name, cells in given.items()})
    assert np.array_equal(straight.transform(table)["plain"], shuffled.transform(table)["plain"])


def test_folds_together_equal_folds_alone():
    table, rng = Table.of(columns()), np.random.default_rng(0)
    schema = Schema.of(table)
    weights = [(rng.random(ROWS) < 0.7).astype(float) for _ in range(3)]
    together = Encoder.fit_many(schema, table, weights)
    for weight, encoder in zip(weights, together, strict=True):
        assert same(encoder, Encoder.fit(schema, Table.of(columns()), weight))
    assert not same(together[0], together[1])


def test_state_gives_the_same_bits():
    encoder, table = fitted()
    described, arrays = encoder.state()
    loaded = Encoder.from_state(
        encoder.schema, json.loads(json.dumps(described)), {key: array.copy() for key, array in arrays.items()}
    )
    new = Table.of(columns(seed=5))
    for one in (table, new):
        for encoding, matrix in encoder.transform(one).items():
            assert matrix.tobytes() == loaded.transform(Table.of(one))[encoding].tobytes()
    assert loaded.feature_names == encoder.feature_names


def test_a_row_alone_equals_the_row_among_others():
    encoder, _ = fitted()
    new = Table.of(columns(seed=5))
    together = encoder.transform(new)
    for row in (0, 3, 100):
        alone = encoder.transform(Table.of({name: cells[row : row + 1] for name, cells in columns(seed=5).items()}))
        for encoding, matrix in together.items():
            assert matrix[row].tobytes() == alone[encoding][0].tobytes()


def category(cells, weight=None, new=None):
    """Names and rows of a one-hot encoded column."""
    table = Table.of({"c": cells, "x": np.arange(len(cells)) % 7 * 0.5})
    schema = Schema.of(table, kinds={"c": "category"})
    encoder = Encoder.fit(schema, table, np.ones(len(cells)) if weight is None else np.array(weight))
    at = [j for j, name in enumerate(encoder.feature_names) if name.startswith("c = ")]
    shown = table if new is None else Table.of({"c": new, "x": [0.0] * len(new)})
    return [encoder.feature_names[j] for j in at], encoder.transform(shown)["plain"][:, at].tolist()


def test_two_values_are_one_column():
    names, rows = category(["a", "b"] * 5, new=["a", "b", "never seen", None])
    assert names == ["c = b, not a"]
    assert rows == [[-1], [1], [0], [0]]


def test_missing_is_a_value_if_it_was_seen():
    names, rows = category(["a", "b", None] * 5, new=["a", None, "never seen", " "])
    assert names == ["c = a", "c = b", "c = missing"]
    assert rows == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 1]]


def test_rare_values_and_unseen_ones_share_a_column():
    names, rows = category(
        ["a"] * 200 + ["b"] * 200 + ["rare", "rarer", "rarer"], new=["rarer", "never seen", "b", None]
    )
    assert names == ["c = a", "c = b", "c = other"]
    assert rows == [[0, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_weights_far_below_one_do_not_make_values_rare():
    assert category(["a", "b", "c"] * 20, weight=[1e-6] * 60)[0] == ["c = a", "c = b", "c = c"]


def test_very_many_values_are_cut_off_and_counted():
    rng = np.random.default_rng(0)
    cells = [f"city {int(i)}" for i in rng.geometric(0.01, 4000)]
    table = Table.of({"city": cells, "x": rng.normal(size=4000)})
    encoder = Encoder.fit(Schema.of(table), table, np.ones(4000))
    part = encoder.columns["city"]
    assert part.width == 51
    assert "city 1" in part.values
    frequencies = part.numbers(table.cells("city"))[:, 0]
    assert frequencies[cells.index("city 1")] == pytest.approx(np.log1p(cells.count("city 1")))
    assert "city: frequency" in encoder.number_names
    unseen = encoder.transform(Table.of({"city": ["Atlantis"], "x": [0.0]}))["plain"]
    assert np.isfinite(unseen).all()


def test_ties_of_frequency_do_not_depend_on_rows():
    values = [f"v{i:03d}" for i in range(80)]
    cells = np.repeat(np.array(values, dtype=object), 5)
    one = CategoryEncoder.fit(Cells.of(cells), np.ones(400))
    two = CategoryEncoder.fit(Cells.of(cells[::-1]), np.ones(400))
    assert one == two
    assert one.values == tuple(values[:50])


def test_dates_become_numbers():
    table = Table.of({"when": ["2024-01-01 06:00", "2024-03-01 18:00", None]})
    encoder = Encoder.fit(Schema.of(table), table, np.array([1.0, 1.0, 1.0]))
    numbers = encoder.columns["when"].numbers(encoder.schema.check(table).cells("when"))
    values = dict(zip(encoder.number_names, numbers.T.tolist(), strict=True))
    assert values["when: days"][:2] == [0.0, 60.5]
    assert values["when: weekday"][:2] == [0.0, 4.0]  # a Monday and a Friday
    assert values["when: month"][:2] == [1.0, 3.0]
    assert values["when: hour"][:2] == [6.0, 18.0]
    assert values["when: day sine"][:2] == pytest.approx([1.0, -1.0])
    assert all(np.isnan(part[2]) for part in values.values())
    assert "when is missing" in encoder.feature_names


def test_columns_that_are_missing_in_all_training_rows():
    table = Table.of(
        {"a": [1.0, 2.0, None, None], "b": [None, None, 1.0, 2.0], "d": ["2020-01-01", "2020-01-02", None, None]}
    )
    schema = Schema.of(table)
    encoder = Encoder.fit(schema, table, np.array([0.0, 0.0, 1.0, 1.0]))
    assert not any(part.missing for part in encoder.columns.values())
    assert all(np.isfinite(matrix).all() for matrix in encoder.transform(table).values())


def test_weights_are_checked():
    table = Table.of(np.eye(3))
    schema = Schema.of(table, plain=True)
    for weight, words in ((np.ones(2), r"shape \(3,\)"), (np.zeros(3), "not all zero"), ([1, -1, 1], "not negative")):
        with pytest.raises(ValueError, match=words):
            Encoder.fit(schema, table, weight)


# ---- Text ----


def reviews(n=300, seed=0):
    """Half of them praise: the words, not their number or order, tell which."""
    rng = np.random.default_rng(seed)
    praise, blame = ["fine", "lovely", "great", "superb"], ["dull", "awful", "boring", "bad"]
    common = ["the", "film", "was", "actors", "and", "music", "story", "with", "long", "short"]
    y = rng.integers(0, 2, n)
    return [" ".join(rng.choice(common + (praise if k else blame), 14)) for k in y], y


def test_text_keeps_what_tells_the_classes_apart():
    from sklearn.linear_model import LogisticRegression

    texts, y = reviews()
    table = Table.of({"review": texts})
    weight = (np.arange(len(y)) < 200).astype(float)
    encoder = Encoder.fit(Schema.of(table), table, weight)
    made = encoder.transform(table)
    assert list(made) == ["plain"]
    X = made["plain"]
    assert X[:200].std(axis=0) == pytest.approx(np.ones(X.shape[1]), abs=1e-3)
    assert LogisticRegression().fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.9


@pytest.mark.parametrize(
    "texts", [["! ? ..."] * 9, ["a b c"] * 9, [None] * 8 + ["so it goes"], ["same words here"] * 9]
)
def test_texts_without_words_or_difference(texts):
    table = Table.of({"t": texts, "x": np.arange(9) % 4 * 0.5})
    encoder = Encoder.fit(Schema.of(table, kinds={"t": "text"}), table, np.ones(9))
    new = Table.of({"t": ["so it goes on", None, ""], "x": [1.0, 2.0, 3.0]})
    assert np.isfinite(encoder.transform(new)["plain"]).all()
    described, arrays = encoder.state()
    again = Encoder.from_state(encoder.schema, json.loads(json.dumps(described)), arrays)
    assert np.array_equal(again.transform(new)["plain"], encoder.transform(new)["plain"])


def test_weights_of_documents_count_in_rarities_and_directions():
    """Against plain arithmetic: the singular vectors of the matrix in which a document is there weight times."""
    texts, _ = reviews(40)
    weight = np.arange(40) % 3 + 1.0
    table = Table.of({"t": texts})
    text = Encoder.fit(Schema.of(table), table, weight).columns["t"]
    padded = [f" {t} ".replace(" ", "  ") for t in texts]  # so that neighbours do not share a blank
    counts = np.array([[t.count(f" {word.replace(' ', '  ')} ") for word in text.words] for t in padded])
    expected = np.log((1 + weight.sum()) / (1 + weight @ (counts > 0))) + 1
    assert text.rarity == pytest.approx(expected, rel=1e-5)
    matrix = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * expected
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    _, _, vectors = np.linalg.svd(np.repeat(matrix, weight.astype(int), axis=0), full_matrices=False)
    assert np.abs(vectors[: text.width] @ text.directions) == pytest.approx(np.eye(text.width), abs=2e-3)


def test_many_documents_are_thinned_out_by_their_own_characters(monkeypatch):
    from shoal.encoders import texts as text

    monkeypatch.setattr(text, "MOST_DOCUMENTS", 50)
    texts, _ = reviews()
    table, turned = Table.of({"t": texts, "x": [0.5, 1.5] * 150}), Table.of({"t": texts[::-1], "x": [1.5, 0.5] * 150})
    schema = Schema.of(table)
    one, two = (Encoder.fit(schema, t, np.ones(300)) for t in (table, turned))
    assert one.columns["t"].width == 6
    assert np.array_equal(one.transform(table)["plain"], two.transform(table)["plain"])


def test_words_and_pairs_are_counted_as_scikit_learn_counts_them(monkeypatch):
    from sklearn.feature_extraction.text import CountVectorizer

    from shoal.encoders import texts as text

    texts = [
        *reviews(60)[0],
        "",
        "a",
        "Word",
        "word WORD word",
        "\u00c4rger, Stra\u00dfe 12 and snake_case; don't 3.14",
    ]
    for longest in (1, 2):
        vectorizer = CountVectorizer(ngram_range=(1, longest))
        expected = vectorizer.fit_transform(texts).toarray()
        for portion in (1, 100, 4_000_000):
            monkeypatch.setattr(text, "PORTION", portion)
            counts = text._count(texts, longest)
            names = counts.names(np.arange(len(counts.codes)))
            assert sorted(names) == vectorizer.get_feature_names_out().tolist()
            order = [names.index(name) for name in vectorizer.get_feature_names_out()]
            assert np.array_equal(counts.matrix.toarray()[:, order], expected)
            assert counts.matrix.has_sorted_indices


def test_pairs_of_very_many_words_keep_their_numbers():
    """Cells are numbers of 63 bits; documents are counted in portions small enough for that."""
    from shoal.encoders import texts as text

    found = [np.arange(3)] * 5
    assert text._portions(found, 1_000) == [slice(0, 5)]
    assert text._portions(found, 1 << 30) == [slice(0, 3), slice(3, 5)]


def test_words_are_found_in_other_tables_wherever_they_stand_there():
    from shoal.encoders import texts as text

    counts = text._count(["old house", "new house old house", "unknown"], 2)
    names = ["house", "nothing", "old house", "house old", "house unknown", "unknown house"]
    places = counts.places_of(names)
    many = [*names, *(f"other{j}" for j in range(20))]  # more than there are columns: these are looked up then
    assert counts.places_of(many, {name: j for j, name in enumerate(many)}).tolist() == places.tolist()
    found = {
        name: place for name, place in zip(counts.names(np.arange(len(places))), places, strict=True) if place >= 0
    }
    assert found == {"house": 0, "old house": 2, "house old": 3}
    assert text._count([""], 2).places_of(["house"]).tolist() == []
    assert text._count(["one"], 2).places_of([]).tolist() == [-1]


def test_rows_left_out_add_no_words_to_a_vocabulary():
    """Words of the rows that a fold is scored on, however often they are there, are none of its own."""
    texts, _ = reviews(80)
    table = Table.of({"t": [*texts, *[f"{text} secret sauce" for text in texts[:40]]]})
    weight = np.repeat([1.0, 0.0], [80, 40])
    fold, everything = (Encoder.fit(Schema.of(table), table, w).columns["t"] for w in (weight, np.ones(120)))
    assert {"secret", "secret sauce"} <= set(everything.words)
    assert not {"secret", "sauce", "secret sauce"} & set(fold.words)
    assert set(fold.words) < set(everything.words)

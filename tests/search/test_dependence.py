"""Rows that depend on each other are found, and independent ones are not."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold

import shoal
from shoal import Member, datasets
from shoal.search.problem.column_notes import notes_on_columns
from shoal.search.problem.data import classes_of, numbers_of
from shoal.search.problem.dependence import repeated_rows
from shoal.tables.files import read_table
from shoal.tables.schema import Schema
from shoal.tables.table import Table
from shoal.tables.target import find_target

REPEATED = {"segment": 446, "concrete": 57}  # rows of shared tables that really are there twice, with the same target


def look(table, y, kind="classification"):
    """Groups of repeated rows or None, and the notes on columns."""
    schema = Schema.of(table)
    task, target = classes_of(np.asarray(y))[:2] if kind == "classification" else numbers_of(np.asarray(y, float), "y")
    used = schema.check(table)
    found = repeated_rows(used, task, target)
    notes = notes_on_columns(used, schema, task, target, table)
    return None if found is None else found[0], [note.for_command_line() for note in notes]


def shared_tables():
    try:
        index = datasets.find("tables/index.json")
    except FileNotFoundError:
        return []
    return [(about["name"], index.parent / f"{about['name']}.csv.gz") for about in json.loads(index.read_text())]


def test_shared_tables_have_no_false_notes():
    tables = shared_tables()
    if not tables:
        pytest.skip("the shared tables are nowhere to be found")
    found = {}
    for name, path in tables:
        table, _ = read_table(path)
        question = find_target(table, table.names[-1])
        groups, notes = look(question.X, question.y, question.kind)
        assert notes == [], name
        if groups is not None:
            found[name] = int((np.bincount(groups)[groups] > 1).sum())
    assert found == REPEATED


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(20, 150),
    columns=st.integers(2, 8),
    copies=st.integers(2, 6),
    noise=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6]),
    kind=st.sampled_from(["classification", "regression"]),
)
def test_copies_with_tiny_noise_are_one_group_in_any_order(seed, rows, columns, copies, noise, kind):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns))
    apart = np.abs(X[:, None] - X).max(axis=2)[np.triu_indices(rows, 1)]
    assume(apart.min() > 0.01)  # rows that nearly coincide could be noisy copies
    X *= 10.0 ** random.integers(-5, 6, size=columns)
    of_row = random.permutation(np.repeat(np.arange(rows), copies))
    near = X[of_row] + noise * X.std(axis=0) * random.normal(size=(len(of_row), columns))
    y = random.permutation(np.arange(rows) % 2) if kind == "classification" else random.normal(size=rows)
    groups, _ = look(Table.of(near), y[of_row], kind)
    assert groups is not None
    assert len({*zip(groups.tolist(), of_row.tolist(), strict=True)}) == rows == len(np.unique(groups))


@settings(max_examples=40, deadline=None, derandomize=True)  # a claim about most tables
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(30, 600),
    columns=st.integers(1, 6),
    values=st.sampled_from([2, 4, 10, 0]),
    noise=st.sampled_from([0.3, 1.0]),
    kind=st.sampled_from(["classification", "regression"]),
)
def test_independent_rows_are_no_copies_however_few_different_inputs_they_have(
    seed, rows, columns, values, noise, kind
):
    """Tables of rounded numbers have many rows with equal inputs; their targets follow the inputs, with noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns))
    X = np.floor(values * random.random((rows, columns))) if values else X
    y = (X - X.mean(axis=0)).sum(axis=1) / max(X.std() * columns**0.5, 1e-9) + noise * random.normal(size=rows)
    y[:2] = -9, 9
    groups, _ = look(Table.of(X), y > np.median(y) if kind == "classification" else y, kind)
    assert groups is None


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 30), rows=st.integers(40, 1500), latent=st.integers(1, 3), columns=st.integers(3, 14),
    noise=st.sampled_from([0.0, 0.01, 0.1]),
)  # fmt: skip
def test_independent_rows_along_a_curve_are_no_copies(seed, rows, latent, columns, noise):
    """Columns that nearly follow from each other, and a target that follows from them: neighbours are alike."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=(rows, latent))
    X = np.tanh(hidden @ random.normal(size=(latent, columns))) + noise * random.normal(size=(rows, columns))
    assert look(Table.of(X), np.sin(2 * hidden[:, 0]) + noise * random.normal(size=rows), "regression")[0] is None


def test_copies_with_noise_of_a_hundredth_are_found_in_several_columns():
    random = np.random.default_rng(0)
    of_row = np.repeat(np.arange(100), 5)
    for columns in (5, 20, 80):
        X = random.normal(size=(100, columns))[of_row] + 0.01 * random.normal(size=(500, columns))
        groups, _ = look(Table.of(X), random.integers(2, size=100)[of_row])
        assert 100 <= len(np.unique(groups)) < 120
        assert len({*zip(groups.tolist(), of_row.tolist(), strict=True)}) == len(np.unique(groups)), "none is mixed"


def test_a_target_without_noise_makes_no_copies():
    random = np.random.default_rng(0)
    X = random.integers(6, size=(300, 3)).astype(float)
    assert len(np.unique(X, axis=0)) < 200
    assert look(Table.of(X), X.sum(axis=1) + 0.1 * X[:, 0] ** 2, "regression")[0] is None


def test_copies_in_a_table_of_categories_are_found_by_their_targets():
    random = np.random.default_rng(0)
    cells = random.integers(3, size=(100, 5)).astype(str).astype(object)
    labels = random.integers(2, size=100)
    of_row = np.repeat(np.arange(100), 5)
    table = Table([f"c{j}" for j in range(5)], list(cells[of_row].T))
    assert look(table, labels[of_row])[0] is not None
    assert look(table, random.integers(2, size=500))[0] is None, "the same inputs with independent targets"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 30), rows=st.integers(50, 150), columns=st.integers(4, 7), copies=st.integers(3, 5),
    broken=st.sampled_from(["visit", "noise", "when", "visit and when", "one missing", "some missing", "part"]),
    kind=st.sampled_from(["classification", "regression"]),
)  # fmt: skip
def test_copies_that_differ_in_a_column_or_miss_cells_are_found(seed, rows, columns, copies, broken, kind):
    random = np.random.default_rng(seed)
    of_row = np.repeat(np.arange(rows), copies)
    X = random.normal(size=(rows, columns)).round(3)[of_row]
    y = random.permutation(np.arange(rows) % 2) if kind == "classification" else random.normal(size=rows)
    if broken == "one missing":
        X[::copies, 0] = np.nan
    elif broken == "some missing":
        hit = np.flatnonzero(random.random(len(X)) < 0.3)
        X[hit, random.integers(columns, size=len(hit))] = np.nan
    elif broken == "part":
        X[: len(X) // 3, 1] = random.normal(size=len(X) // 3)
    cells = list(X.T)
    cells += [np.tile(np.arange(copies) + 1.0, rows)] if "visit" in broken else []
    cells += [random.normal(size=len(X))] if broken == "noise" else []
    seconds = random.integers(10**7, size=len(X)).astype("timedelta64[s]")
    cells += [(np.datetime64("2024-01-01") + seconds).astype("datetime64[us]")] if "when" in broken else []
    mixed = random.permutation(len(X))
    table = Table([f"c{j}" for j in range(len(cells))], [cell[mixed] for cell in cells])
    groups, _ = look(table, y[of_row][mixed], kind)
    assert groups is not None
    assert len(np.unique(groups)) <= (1.4 if broken == "some missing" else 1.1) * rows
    free = random.integers(2, size=len(X)) if kind == "classification" else random.normal(size=len(X))
    assert look(table, free, kind)[0] is None, "independent targets"


def test_numbered_copies_are_found_where_other_rows_tell_of_the_target():
    X = np.random.default_rng(0).normal(size=(80, 3))
    numbered = np.column_stack([np.repeat(X, 3, axis=0), np.tile(np.arange(3.0), 80)])
    assert len(np.unique(look(Table.of(numbered), np.repeat(X.sum(axis=1), 3), "regression")[0])) == 80
    assert look(Table.of(X), X.sum(axis=1), "regression")[0] is None


def test_rows_of_a_wide_table_are_compared_in_all_columns():
    random = np.random.default_rng(0)
    of_row = np.repeat(np.arange(60), 4)
    X = np.column_stack([random.normal(size=(60, 150))[of_row], np.tile(np.arange(4.0), 60)])
    labels = (np.arange(60) % 2)[of_row]
    assert len(np.unique(look(Table.of(X), labels)[0])) == 60
    X[:, 1:150:3] = random.normal(size=(240, 50))
    X[:, 2:150:3] = random.normal(size=(240, 50))
    assert look(Table.of(X), labels)[0] is None, "two thirds of the columns differ"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 30), levels=st.lists(st.integers(2, 8), min_size=2, max_size=4),
    replicates=st.integers(1, 3), covariate=st.booleans(), kind=st.sampled_from(["classification", "regression"]),
)  # fmt: skip
def test_designed_experiments_have_no_copies(seed, levels, replicates, covariate, kind):
    """All combinations of a few levels: without one column most rows are equal, and many have the same target."""
    random = np.random.default_rng(seed)
    X = np.stack(np.meshgrid(*[np.arange(n) for n in levels]), axis=-1).reshape(-1, len(levels)).astype(float)
    X = np.repeat(X, replicates, axis=0)
    y = X[:, 0] * 2.0 + X[:, 1] + 0.5 * random.normal(size=len(X)) * (replicates > 1)
    X = np.column_stack([X, random.normal(size=len(X))]) if covariate else X
    if len(X) >= 20 and (covariate or replicates == 1 or kind == "regression"):  # else each row may be there twice
        assert look(Table.of(X), y > np.median(y) if kind == "classification" else y, kind)[0] is None


def test_a_rule_in_a_table_of_few_categories_makes_no_copies():
    random = np.random.default_rng(0)
    for values, columns in ((3, 3), (2, 4), (2, 5), (5, 2), (4, 3)):
        cells = random.integers(values, size=(300, columns))
        table = Table([f"c{j}" for j in range(columns)], list(cells.astype(str).astype(object).T))
        assert look(table, cells.sum(axis=1) % 2)[0] is None


def test_shared_tables_with_every_row_three_times_are_copies():
    """Also those with few categories, in which many rows are equal by coincidence."""
    tables = shared_tables()
    if not tables:
        pytest.skip("the shared tables are nowhere to be found")
    for name, path in tables:
        table, _ = read_table(path)
        question = find_target(table, table.names[-1])
        rows = np.repeat(np.arange(len(question.y)), 3)
        assert look(question.X.take(rows), question.y[rows], question.kind)[0] is not None, name


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_random_labels_of_repeated_rows_cannot_be_predicted(noise):
    random = np.random.default_rng(0)
    of_row = np.repeat(np.arange(100), 5)
    X = random.normal(size=(100, 5))[of_row] + noise * random.normal(size=(500, 5))
    y = random.integers(2, size=100)[of_row]
    model = shoal.ShoalClassifier([Member(hidden=32, learning_rate=0.03)], epochs=60, seeds=1, explain_seconds=0)
    with pytest.warns(UserWarning, match=r"500 of 500 rows repeat.*pass group_repeats=False"):
        honest = model.fit(X, y).honest_score_
    assert honest.low < 0.5 < honest.high
    assert honest.high - honest.low > 0.15, "as wide as for 100 rows: of 500 it would be 0.11"
    assert "repeat" in model.notes_[0]
    assert model.set_params(group_repeats=False).fit(X, y).honest_score_.low > 0.8
    own = KFold(4, shuffle=True, random_state=0)
    assert model.set_params(cv=own, group_repeats=True).fit(X, y).honest_score_.low > 0.8, "as the user says"


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_an_id_that_repeats_is_named(words, kind):
    random = np.random.default_rng(0)
    patient = random.permutation(np.repeat(np.arange(60), 5))
    effect = random.normal(size=60)[patient]
    ids = np.array([f"p{k}" for k in patient], dtype=object) if words else patient.astype(float)
    table = Table(["the patient", "dose"], [ids, random.normal(size=300)])
    y = effect > 0 if kind == "classification" else effect + 0.3 * random.normal(size=300)
    _, notes = look(table, y, kind)
    assert len(notes) == 1
    assert "column 'the patient' repeats" in notes[0]
    assert "pass --groups 'the patient'" in notes[0]
    _, notes = look(table, random.permutation(y), kind)
    assert notes == [], "the target has nothing to do with it"


def test_a_quantity_that_predicts_the_target_is_no_id():
    random = np.random.default_rng(0)
    age = np.floor(random.uniform(0, 60, size=300))
    assert look(Table(["age", "dose"], [age, random.normal(size=300)]), age**2, "regression")[1] == []


def test_a_quantity_with_rare_values_at_its_ends_is_no_id():
    """Its usual values have one class, the many rare ones another: next values that are rare tell nothing of an id."""
    named = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        usual = np.clip(random.normal(9, 2, size=150), 1, 40)
        height = np.floor(np.where(random.random(150) < 0.9, usual, random.uniform(1, 60, size=150)))
        y = np.where(random.random(150) < 0.02, 3, (height < 4) + 2 * (height > 20))
        named += len(look(Table(["height", "dose"], [height, random.normal(size=150)]), y)[1])
    assert named <= 2  # it was 14


@pytest.mark.parametrize("name", ["day", "when"])
def test_a_date_that_the_target_follows_is_named(name):
    random = np.random.default_rng(0)
    order = random.permutation(400)
    day = (np.datetime64("2020-01-01") + order).astype("datetime64[us]")
    walk = np.cumsum(random.normal(size=400))[order]
    _, notes = look(Table([name, "a"], [day, random.normal(size=400)]), walk, "regression")
    assert len(notes) == 1
    assert f"the target follows column '{name}'" in notes[0]
    assert f"pass --time {name}" in notes[0]
    _, notes = look(Table([name, "a"], [day, random.normal(size=400)]), random.permutation(walk), "regression")
    assert notes == []
    _, notes = look(Table([name, "a"], [order + 0.0, random.normal(size=400)]), walk, "regression")
    assert bool(notes) == (name == "day"), "shuffled numbers are times where their name says so"


@pytest.mark.parametrize("name", ["year", "t", "yyyymmdd", "business days"])
def test_evenly_spaced_numbers_in_the_order_of_the_rows_are_times(name):
    random = np.random.default_rng(0)
    days = np.datetime64("2019-03-05") + np.arange(0, 2800, 7)
    if name == "business days":
        days = np.busday_offset("2019-03-05", np.arange(400), roll="forward")
    whole = np.array([int(str(day).replace("-", "")) for day in days], dtype=float)
    cells = {"year": np.round(1950 + np.arange(400) / 12, 2), "t": np.arange(400.0)}.get(name, whole)
    table = Table([name, "a"], [cells, random.normal(size=400)])
    walk = np.cumsum(random.normal(size=400))
    for values, kind in ((walk, "regression"), (walk > np.median(walk) + random.normal(size=400), "classification")):
        assert "the target follows column" in look(table, values, kind)[1][0]
    assert look(table, 0.1 * np.arange(400) + random.normal(size=400), "regression")[1] == [], "a straight trend"
    assert look(table, np.sort(walk), "regression")[1] == [], "sorted by the target"
    assert look(table, np.repeat([0, 1, 2, 3], 100))[1] == [], "one class after the other"
    mixed = random.permutation(400)
    assert look(Table(["x", "a"], [cells[mixed], table["a"]]), walk[mixed], "regression")[1] == [], "shuffled"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1 << 30), rows=st.integers(60, 500), ordered=st.booleans(),
    name=st.sampled_from(["time_spent", "response_time", "time", "day rate", "x"]),
)  # fmt: skip
def test_durations_are_no_dates(seed, rows, ordered, name):
    random = np.random.default_rng(seed)
    spent = random.gamma(2, 30, size=rows)
    spent = np.sort(spent) if ordered else spent
    table = Table([name, "pages"], [spent, random.normal(size=rows)])
    assert look(table, 3 * spent + 20 * random.normal(size=rows), "regression")[1] == []
    assert look(table, spent > np.median(spent))[1] == []


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_any_table_can_be_looked_at(seed):
    """Few rows, missing cells, huge numbers, columns of all kinds, several targets."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(2, 100))
    different = int(random.integers(1, rows + 1))
    of_row = random.integers(different, size=rows)
    words = np.array([f"w{k}" for k in random.integers(5, size=different)], dtype=object)
    words[random.random(different) < 0.2] = None
    numbers = random.normal(size=(3, different)) * np.array([[1.0], [1e-300], [1e300]])
    numbers[random.random((3, different)) < 0.2] = np.nan
    dates = (np.datetime64("2020-01-01") + random.integers(500, size=different)).astype("datetime64[us]")
    columns = [*numbers, words, dates, random.random(different) > 0.5]
    columns = [*(column[of_row] for column in columns), np.arange(rows) % 2.0]
    table = Table([f"c{j}" for j in range(len(columns))], columns)
    labels = np.concatenate([random.integers(3, size=different)[of_row[2:]], [0, 1]])
    look(table, labels)
    look(table, np.stack([labels, labels[::-1]], axis=1) % 2)
    look(table, random.normal(size=(different, 2))[of_row] + labels[:, None], "regression")

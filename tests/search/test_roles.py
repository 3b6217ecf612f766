"""Weights, groups and times of rows: as arrays or by the name of a column, and what they change."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

import shoal
from shoal import Member
from shoal.errors import UserError
from shoal.metrics.metric import METRICS
from shoal.search.problem import data as search_data
from shoal.search.problem.roles import Roles
from shoal.tables.table import Table

QUICK = {"space": [Member(hidden=8, learning_rate=0.02)], "epochs": 10, "seeds": 1, "n_jobs": 1}
GROUPS, ROWS = 60, 5


def repeated(seed=0):
    """Sixty people measured five times each: nearly the same inputs, and the same label of theirs."""
    random = np.random.default_rng(seed)
    person = np.repeat(np.arange(GROUPS), ROWS)
    X = random.normal(size=(GROUPS, 3))[person] + 0.02 * random.normal(size=(len(person), 3))
    y = ((X[:, 0] + random.normal(size=GROUPS)[person]) > 0).astype(int)
    return X, y, person


def same_folds(person, folds=6):
    """Folds by person that do not say so."""
    held_out = np.random.default_rng(0).permutation(GROUPS)[person] % folds
    return [(np.flatnonzero(held_out != k), np.flatnonzero(held_out == k)) for k in range(folds)]


@pytest.fixture(scope="module")
def both():
    """The same folds, with the groups and without."""
    X, y, person = repeated()
    model = shoal.ShoalClassifier(**QUICK, cv=same_folds(person), group_repeats=False)
    alone = model.fit(X, y)
    return shoal.ShoalClassifier(**QUICK, cv=same_folds(person), group_repeats=False).fit(X, y, groups=person), alone


def test_rows_of_a_group_count_once_in_the_interval_of_the_score(both):
    grouped, alone = (model.honest_score_ for model in both)
    assert grouped.raw == alone.raw, "the folds are the same, and so are the networks"
    assert grouped.high - grouped.low > 1.2 * (alone.high - alone.low)
    X, y, _ = repeated()
    few = shoal.ShoalClassifier(**QUICK).fit(X[::ROWS], y[::ROWS]).honest_score_
    assert grouped.high - grouped.low > 0.7 * (few.high - few.low), "about as wide as with one row of each"


def test_rows_of_a_group_count_once_in_the_intervals_of_importances(both):
    grouped, alone = (model.importance_["x0"] for model in both)
    assert grouped.importance == alone.importance
    assert grouped.high - grouped.low > alone.high - alone.low, "that of whole folds is about as wide, and counts too"


def test_rows_of_a_group_count_once_in_prediction_sets(both):
    grouped, alone = (model.model_.certainty.calibration.rows for model in both)
    assert (grouped, alone) == (GROUPS, GROUPS * ROWS)


def test_columns_by_name_are_the_same_as_arrays_and_no_inputs():
    pandas = pytest.importorskip("pandas")
    X, y, person = repeated()
    weight = np.random.default_rng(1).integers(1, 4, size=len(y)).astype(float)
    inputs = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame = inputs.assign(who=[f"p{k:02}" for k in person], heavy=weight)
    named = shoal.ShoalClassifier(**QUICK).fit(frame, y, sample_weight="heavy", groups="who")
    given = shoal.ShoalClassifier(**QUICK).fit(inputs, y, sample_weight=weight, groups=person)
    assert named.honest_score_ == given.honest_score_
    assert [column.name for column in named.schema_.used] == ["a", "b", "c"]
    np.testing.assert_array_equal(named.predict_proba(inputs), given.predict_proba(inputs))
    again = shoal.ShoalClassifier(**QUICK).repeat(frame, y, named.result_, sample_weight="heavy", groups="who")
    assert again.honest_score_ == named.honest_score_


def walk(rows=200, seed=0):
    random = np.random.default_rng(seed)
    day = np.datetime64("2021-03-01") + np.arange(rows)
    return {"day": day, "a": random.normal(size=rows)}, np.cumsum(random.normal(size=rows))


def test_a_random_walk_is_scored_on_later_rows(monkeypatch):
    X, y = walk()
    settings = {**QUICK, "epochs": 40}
    with pytest.warns(UserWarning, match=r"the target follows column 'day'.*pass time='day'"):
        leaky = shoal.ShoalRegressor(**settings).fit(X, y)
    forward = shoal.ShoalRegressor(**settings).fit(X, y, time="day")
    assert leaky.honest_score_.corrected > 0.7
    assert forward.honest_score_.corrected < 0.3
    assert len(forward.model_.folds) == 1, "trained again on all rows"
    assert forward.result_.search.metric is not METRICS["r2"], "compared with the mean of each stretch"
    widths = [np.ptp(model.predict_interval(X, 0.8), axis=1).mean() for model in (leaky, forward)]
    assert widths[1] > 2 * widths[0], "intervals know how wrong forecasts were"
    rows = X["day"].astype(str).tolist()
    assert shoal.ShoalRegressor(**settings).fit(X, y, time=rows).honest_score_ == forward.honest_score_
    monkeypatch.setattr(search_data, "blocks_in_time", lambda time: time)
    narrow = shoal.ShoalRegressor(**settings).fit(X, y, time="day").honest_score_
    wide = forward.honest_score_
    assert wide.raw == narrow.raw
    assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low), "neighbours in time are drawn together"


def test_time_orders_rows_wherever_they_are_in_the_table():
    X, y = walk(80)
    order = np.random.default_rng(3).permutation(80)
    mixed = {name: column[order] for name, column in X.items()}
    folds = [
        [(np.sort(given["day"][train]), np.sort(given["day"][valid])) for train, valid in _folds(given, target)]
        for given, target in ((X, y), (mixed, y[order]))
    ]
    for one, other in zip(*folds, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))


def _folds(X, y):
    from shoal.search.problem.problem import make_folds

    data = shoal.ShoalRegressor()._data(X, y, {"time": "day"})
    return make_folds(None, data.task, None, data.target, data.groups, 0, (8, 1), data.time)[0]


@pytest.mark.parametrize("folds", [2, 3])
def test_few_stretches_are_trained_again_on_all_rows_too(folds):
    X, y = walk(80)
    model = shoal.ShoalRegressor(**QUICK, cv=folds, explain_seconds=0).fit(X, y, time="day")
    assert (len(model.result_.problem.folds), len(model.model_.folds)) == (folds, 1)


def test_some_of_the_rows_keep_their_groups_and_times():
    X, y, person = repeated()
    data = shoal.ShoalClassifier()._data(X, y, {"groups": person})
    assert data.take(np.array([3, 250])).groups.tolist() == [0, 50]
    data = shoal.ShoalClassifier()._data(X, y, {"time": np.arange(len(y))[::-1]})
    assert data.take(np.array([0, 299])).time.tolist() == [299, 0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"groups": "who is"}, "there is no column 'who is' to take the groups from; did you mean 'who'"),
        ({"groups": "gaps"}, "'gaps' must be known in every row, .*missing in 1 of 40 rows, first in row 8: fill in"),
        ({"groups": "same"}, "'same' must name at least 2 different groups"),
        ({"groups": np.ones(40)}, "groups must name at least 2 different groups"),
        ({"groups": np.arange(39)}, "groups must be as many as the rows, 40; got 39"),
        ({"groups": np.ones((40, 2))}, r"groups must be one value for each row, .*got shape \(40, 2\)"),
        ({"groups": ["a", None] * 20}, "groups must be known in every row, .*missing in 20 of 40 rows"),
        ({"time": "who"}, "'who' must hold dates or numbers, since it holds the times; it has 'w0'"),
        ({"time": "gaps"}, "'gaps' must be known in every row"),
        ({"time": "same"}, "'same' must have at least 2 different times"),
        ({"time": "who", "groups": "who"}, "give groups or time, not both"),
        ({"sample_weight": "x"}, "'x' holds the weights, which must not be negative; row 1 has -1"),
        ({"sample_weight": "none"}, "'none' holds the weights, and all are zero"),
        ({"sample_weight": "who"}, "'who' must hold numbers, since it holds the weights; it has 'w0'"),
        ({"sample_weight": "gaps"}, "'gaps' must be known in every row, since it holds the weights"),
    ],
)
def test_mistakes_are_named_with_their_remedy(rows, words):
    X = {
        "x": np.arange(40.0) - 1, "who": np.array([f"w{k % 5}" for k in range(40)], dtype=object),
        "gaps": np.where(np.arange(40) == 7, np.nan, np.arange(40.0)), "same": np.full(40, 3.0), "none": np.zeros(40),
    }  # fmt: skip
    with pytest.raises(UserError, match=words):
        shoal.ShoalRegressor(**QUICK).fit(X, np.arange(40.0), **rows)


def test_times_and_folds_of_ones_own_contradict_each_other():
    with pytest.raises(UserError, match="give time or custom folds, not both"):
        shoal.ShoalRegressor(**QUICK, cv=KFold(3)).fit({"x": np.arange(40.0)}, np.arange(40.0), time="x")


def test_weights_and_times_have_the_decimal_sign_of_their_table():
    """ "1,234" is between one and two where another column has "0,5"; alone, it would be more than a thousand."""
    cells = {"x": [f"0,{k + 1}" for k in range(8)], "w": ["1,234", "2,500"] * 4}
    table = Table.of({name: np.array(column, dtype=object) for name, column in cells.items()})
    assert Roles.of(table, None, sample_weight="w").weight.tolist() == [1.234, 2.5] * 4
    table = Table.of({"x": np.array(["1,5", "2"] * 4, dtype=object), "t": np.array(["0,995", "1"] * 4, dtype=object)})
    assert Roles.of(table, None, time="t").time.tolist() == [0, 1] * 4


@pytest.mark.parametrize("role", ["time", "sample_weight"])
def test_a_word_for_a_missing_time_or_weight_is_no_last_time_and_no_weight(role):
    table = Table.of({"x": [1.0, 2.0, 3.0], "r": np.array(["1", "-", "3"], dtype=object)})
    with pytest.raises(UserError, match=r"column 'r' must be known in every row.* first in row 2"):
        Roles.of(table, None, **{role: "r"})


@pytest.mark.parametrize("kind", ["datetime64[D]", "timedelta64[h]"])
def test_dates_and_times_are_not_predicted_as_microseconds(kind):
    with pytest.raises(UserError, match="holds dates or times: give days or seconds"):
        shoal.ShoalRegressor(recipes=1).fit(np.arange(40.0)[:, None], np.arange(40).astype(kind))

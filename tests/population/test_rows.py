"""Rows: splits, their assignment to members, and functions that make them."""

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, StratifiedKFold, TimeSeriesSplit

from shoal.population import rows
from shoal.population.members import Member


def test_split_takes_masks_and_lists_and_drops_rows_of_weight_zero():
    split = rows.Split(train=[True, False, True, True], valid=[1], weight=[2.0, 0.0, 1.0])
    assert split.train.tolist() == [0, 3]
    assert split.weight.tolist() == [2.0, 1.0]
    assert rows.Split([0, 1], weight=[1, 1]).weight is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train": []}, ValueError, "at least one training row"),
        ({"train": [0.5]}, TypeError, "train must be a list of row numbers"),
        ({"train": [[0], [1]]}, TypeError, "train must be a list"),
        ({"train": [0, 1], "weight": [1]}, ValueError, "one weight per training row"),
        ({"train": [0, 1], "weight": [1, -1]}, ValueError, "not negative"),
        ({"train": [0, 1], "weight": [1, np.nan]}, ValueError, "finite"),
        ({"train": [0, 1], "weight": [0, 0]}, ValueError, "above zero"),
        ({"train": [0, 1], "weight": [1, 1e-40]}, ValueError, "at least 1e-30"),
    ],
)
def test_bad_splits_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        rows.Split(**arguments)


def test_as_rows_checks_members_and_row_numbers():
    assert rows.as_rows(None, 3, 5).member.tolist() == [0, 0, 0]
    assert rows.as_rows([rows.Split([0]), rows.Split([1])], 2, 5).member.tolist() == [0, 1]
    with pytest.raises(ValueError, match="split 0 names valid row 9, but the data has rows 0 to 4"):
        rows.as_rows(rows.Split([0], [9]), 1, 5)
    with pytest.raises(ValueError, match="split 0 names train row -1"):
        rows.as_rows(rows.Split([-1]), 1, 5)
    with pytest.raises(ValueError, match="rows are given for 2 members, but the population has 3"):
        rows.as_rows([rows.Split([0])] * 2, 3, 5)
    with pytest.raises(TypeError, match="one Split per member"):
        rows.as_rows([[0, 1]], 1, 5)
    with pytest.raises(ValueError, match="indices from 0 to 0"):
        rows.Rows((rows.Split([0]),), [1])


def test_a_table_stands_for_its_number_of_rows_and_a_share_for_a_holdout():
    pd = pytest.importorskip("pandas")
    array = np.zeros((20, 3))
    expected = rows.holdout(20)
    for table in (array, pd.DataFrame(array), array.tolist(), {"a": [0.0] * 20, "b": [1] * 20}, np.int64(20)):
        assert rows.holdout(table).valid.tolist() == expected.valid.tolist()
    assert [len(split.valid) for split in rows.kfold(array, 5)] == [4] * 5
    assert len(rows.bootstrap(array, 3)) == len(rows.shards(array, 3)) == 3
    assert rows.as_rows(0.25, 2, 20).splits[0].valid.tolist() == rows.holdout(20, 0.25).valid.tolist()
    for wrong in (20.0, "20", None, True, np.array(20.0)):
        with pytest.raises(TypeError, match="number of rows must be a whole number, or the table itself; got "):
            rows.holdout(wrong)
    with pytest.raises(ValueError, match="fraction must be a positive number below 1; got a ndarray"):
        rows.holdout(array, array[:, 0])
    with pytest.raises(TypeError, match="folds must be a whole number; got a ndarray"):
        rows.kfold(array, array[:, 0])
    for wrong in (5, True, "0.2", np.arange(5)):
        with pytest.raises(TypeError, match=r"rows must be None, a share to hold out \(0.2\), a Split"):
            rows.as_rows(wrong, 2, 20)
    with pytest.raises(ValueError, match="fraction must be"):
        rows.as_rows(1.5, 2, 20)


def test_kfold_scores_every_row_once_on_members_that_did_not_see_it():
    splits = rows.kfold(23, 4, seed=1)
    assert sorted(np.concatenate([s.valid for s in splits])) == list(range(23))
    for split in splits:
        assert sorted(np.concatenate([split.train, split.valid])) == list(range(23))


def test_bootstrap_weights_are_draws_with_replacement_and_the_rest_is_out_of_bag():
    for split in rows.bootstrap(50, 3, seed=2):
        weight = np.ones(len(split.train)) if split.weight is None else split.weight
        assert weight.sum() == 50
        assert sorted(np.concatenate([split.train, split.valid])) == list(range(50))


def test_shards_put_every_row_into_exactly_one_split():
    parts = rows.shards(11, 3)
    assert sorted(np.concatenate([p.train for p in parts])) == list(range(11))
    assert [len(p.train) for p in parts] == [4, 4, 3]


def test_holdout_keeps_both_sides_non_empty():
    split = rows.holdout(2, 0.01)
    assert len(split.train) == len(split.valid) == 1
    with pytest.raises(ValueError, match="fraction"):
        rows.holdout(10, 1.0)
    with pytest.raises(ValueError, match="at least 2 rows"):
        rows.holdout(1)
    with pytest.raises(ValueError, match="folds must be from 2"):
        rows.kfold(3, 4)
    with pytest.raises(ValueError, match="count must be from 1"):
        rows.shards(3, 0)


@pytest.mark.parametrize("splitter", [StratifiedKFold(3), GroupKFold(3), TimeSeriesSplit(3)])
def test_any_scikit_learn_splitter_works(splitter):
    X, y = np.zeros((12, 1)), np.tile([0, 1], 6)
    groups = np.repeat([0, 1, 2], 4) if isinstance(splitter, GroupKFold) else None
    made = rows.from_splitter(splitter, X, y, groups)
    expected = list(splitter.split(X, y, groups))
    assert [(s.train.tolist(), s.valid.tolist()) for s in made] == [(a.tolist(), b.tolist()) for a, b in expected]


def test_cross_puts_every_member_on_every_split():
    members, assignment = rows.cross([Member(seed=0), Member(seed=1)], rows.kfold(9, 3))
    assert [m.seed for m in members] == [0, 0, 0, 1, 1, 1]
    assert assignment.select(np.array([1, 3])).member.tolist() == [1, 0]
    assert "6 members over 3 splits" in repr(assignment)

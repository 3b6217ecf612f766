"""Members: normalising, refusing, printing; grids and samples."""

import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import shoal
from shoal.population.members import FIELDS, Member, grid, sample


def test_equal_recipes_are_equal_and_hash_alike():
    assert Member(hidden=50) == Member(hidden=[50]) == Member(hidden=np.array([50]))
    assert len({Member(hidden=50), Member(hidden=(50,)), Member(hidden=51)}) == 2
    assert pickle.loads(pickle.dumps(Member(hidden=(3, 4), seed=9))) == Member(hidden=(3, 4), seed=9)


def test_members_are_frozen():
    with pytest.raises(AttributeError):
        Member().hidden = (3,)


def test_numpy_scalars_become_plain_numbers():
    member = Member(hidden=np.int64(7), learning_rate=np.float32(0.5), batch_size=np.int32(8), seed=np.uint8(3))
    assert [type(getattr(member, name)) for name in ("learning_rate", "batch_size", "seed")] == [float, int, int]
    assert type(member.hidden[0]) is int


def test_repr_is_one_line_and_names_what_differs_from_the_defaults():
    text = repr(Member(hidden=(32, 16), activation="mish", dropout=0.1, features=(1, 2, 3)))
    assert text == "Member(32x16 mish, adam lr=0.001, dropout=0.1, features=3 columns)"
    assert repr(Member(hidden=())) == "Member(linear, adam lr=0.001)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"activation": "rleu"}, ValueError, "did you mean 'relu'"),
        ({"activation": "leaky-relu"}, ValueError, "did you mean 'leaky_relu'"),
        ({"activation": None}, ValueError, "activation must be one of"),
        ({"optimizer": "adamx"}, ValueError, "did you mean 'adam"),
        ({"init": "xavier"}, ValueError, "init must be one of torch, glorot"),
        ({"schedule": "cos"}, ValueError, "did you mean 'cosine'"),
        ({"learning_rate": -0.1}, ValueError, r"learning_rate must be a number of at least 0; got -0\.1"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate"),
        ({"learning_rate": math.inf}, ValueError, "learning_rate"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate must be a number of at least 0; got 'fast'"),
        ({"learning_rate": True}, TypeError, "learning_rate must be a number"),
        ({"weight_decay": -1}, ValueError, "weight_decay"),
        ({"momentum": 1.0}, ValueError, "momentum must be a number of at least 0 and below 1"),
        ({"dropout": 1}, ValueError, "dropout must be a number of at least 0 and below 1"),
        ({"label_smoothing": 1.5}, ValueError, "label_smoothing"),
        ({"beta2": 1.0}, ValueError, "beta2"),
        ({"clip": -1}, ValueError, "clip"),
        ({"warmup": math.inf}, ValueError, "warmup"),
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number from 1"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be a whole number from 1 to 1073741824; got 2.0"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 1 << 63}, ValueError, "seed"),
        ({"epochs": 0}, ValueError, "epochs must be a whole number from 1"),
        ({"patience": -1}, ValueError, "patience"),
        ({"hidden": 0}, ValueError, "a hidden width must be a whole number from 1"),
        ({"hidden": (8, -1)}, ValueError, "a hidden width"),
        ({"hidden": 1 << 40}, ValueError, "a hidden width must be a whole number from 1 to 1048576"),
        ({"hidden": "64"}, TypeError, "hidden must be a width or a tuple of widths; got '64'"),
        ({"hidden": (8.5,)}, TypeError, "a hidden width must be a whole number"),
        ({"optimizer": "momentum"}, ValueError, "use optimizer='sgd' with momentum=0.9"),
        ({"warmup": 1e10}, ValueError, "warmup must be a number of at least 0 and below 1e\\+06"),
        ({"features": 3}, TypeError, "features must be a tuple of column numbers"),
        ({"features": ()}, ValueError, "features must name at least one column"),
        ({"features": (1, 1)}, ValueError, "each column once"),
        ({"features": (-1,)}, ValueError, "feature index"),
    ],
)
def test_bad_values_are_refused_by_name(change, error, message):
    with pytest.raises(error, match=message):
        Member(**change)


def test_grid_is_every_combination_with_consecutive_seeds():
    members = grid(hidden=[8, (4, 4)], activation=["relu", "tanh"], seed=5, repeats=3)
    assert len(members) == 12
    assert [m.hidden for m in members[:6]] == [(8,)] * 6
    assert [m.activation for m in members[:6]] == ["relu"] * 3 + ["tanh"] * 3
    assert [m.seed for m in members[:3]] == [5, 6, 7]
    assert len(set(members)) == 12
    assert members[2] == Member(hidden=8, activation="relu", seed=7)
    with pytest.raises(ValueError, match="seed must be a whole number from 0"):
        grid(seed=(1 << 63) - 2, repeats=3)


def test_grid_takes_a_tuple_as_one_architecture_and_ranges_and_arrays_as_alternatives():
    assert [m.hidden for m in grid(hidden=(8, 16))] == [(8, 16)]
    assert [m.hidden for m in grid(hidden=range(1, 4))] == [(1,), (2,), (3,)]
    assert [m.learning_rate for m in grid(learning_rate=np.array([0.1, 0.2]))] == [0.1, 0.2]


def test_anything_that_holds_several_values_holds_alternatives():
    pd = pytest.importorskip("pandas")
    assert [m.activation for m in grid(activation=shoal.ACTIVATIONS)] == list(shoal.ACTIVATIONS)
    rates = [1e-3, 1e-2]
    for value in (tuple(rates), set(rates), pd.Series(rates), pd.Index(rates), np.array(rates), iter(rates)):
        assert [m.learning_rate for m in grid(learning_rate=value)] == rates
    assert [m.seed for m in grid(seed=range(2, 5))] == [2, 3, 4]
    assert [m.learning_rate for m in grid(learning_rate=np.array(0.5))] == [0.5]
    assert [m.features for m in grid(features=(0, 1))] == [(0, 1)]
    assert [m.features for m in grid(features=[(0, 1), None])] == [(0, 1), None]
    assert [m.hidden for m in grid(hidden={16, (4, 4), 8, ()})] == [(8,), (16,), (), (4, 4)]
    drawn = sample(40, learning_rate=iter(rates), activation=("relu", "tanh"), hidden=(8, 16))
    assert {(m.learning_rate, m.activation, m.hidden) for m in drawn} == {
        (rate, activation, (8, 16)) for rate in rates for activation in ("relu", "tanh")
    }


def test_a_set_has_the_same_order_in_every_process():
    code = "import shoal; print([m.activation for m in shoal.grid(activation=set(shoal.ACTIVATIONS))])"
    said = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("1", "2")
    ]
    assert said[0].stdout == said[1].stdout == f"{sorted(shoal.ACTIVATIONS)}\n"


@pytest.mark.parametrize("make", [grid, lambda **k: sample(3, **k)])
def test_unknown_fields_and_empty_lists_are_refused(make):
    with pytest.raises(TypeError, match="no field 'activations'; did you mean 'activation'"):
        make(activations=["relu"])
    with pytest.raises(ValueError, match=r"hidden has no alternatives: .* a linear model, .* is hidden=\(\)"):
        make(hidden=[])


def test_sample_draws_from_lists_and_distributions_and_repeats_with_its_seed():
    space = {
        "hidden": [8, 16, (4, 4)],
        "learning_rate": stats.loguniform(1e-4, 1e-1),
        "batch_size": stats.randint(8, 64),
        "momentum": 0.9,
        "optimizer": "sgd",
    }
    members = sample(200, seed=3, **space)
    assert members == sample(200, seed=3, **space)
    assert members != sample(200, seed=4, **space)
    assert {m.hidden for m in members} == {(8,), (16,), (4, 4)}
    assert all(1e-4 <= m.learning_rate <= 1e-1 and 8 <= m.batch_size < 64 and m.momentum == 0.9 for m in members)
    assert len({m.seed for m in members}) > 190
    assert {type(m.batch_size) for m in sample(5, batch_size=stats.loguniform(16, 256))} == {int}


def test_replace_and_as_dict_round_trip():
    member = Member(hidden=(3,), patience=2)
    assert tuple(member.as_dict()) == FIELDS
    assert Member(**member.as_dict()) == member
    with pytest.raises(TypeError, match="no field"):
        member.replace(lr=1)


def test_activations_and_the_first_fields_of_members_are_those_of_the_design():
    # More may follow; these stay, in this order.
    assert shoal.ACTIVATIONS[:10] == (
        "identity", "sigmoid", "tanh", "relu", "elu", "selu", "gelu", "leaky_relu", "hardshrink", "mish",
    )  # fmt: skip
    fixed = FIELDS[:10]
    assert fixed == (
        "hidden", "activation", "optimizer", "learning_rate", "weight_decay", "momentum", "dropout", "batch_size",
        "init", "seed",
    )  # fmt: skip

"""The compiled kernel from outside: accuracy of its functions, its random numbers, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx
from support.kernel import activation, dropout_mask

import shoal
from shoal import _native
from shoal.population.engines.native import CODES, NativeEngine, check_kernel, networks, predict_own_rows
from shoal.population.engines.program import MEMBER_RECORD, Data, Resources, Selection, Training, flatten_rows
from shoal.population.history import History
from shoal.population.rows import as_rows

INSTRUCTION_SETS = _native.instruction_sets()


def exact(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and derivative in float64, by formulas that do not cancel."""
    one, zero, negative = np.ones_like(x), np.zeros_like(x), np.minimum(x, 0)
    small = np.exp(-np.abs(x))
    if name == "identity":
        return x, one
    if name == "relu":
        return np.maximum(x, 0), (x > 0).astype(float)
    if name == "leaky_relu":
        return np.where(x > 0, x, 0.01 * x), np.where(x > 0, 1, 0.01)
    if name == "hardshrink":
        outside = np.abs(x) > 0.5
        return np.where(outside, x, 0), outside.astype(float)
    if name == "sigmoid":
        return np.where(x < 0, small, one) / (1 + small), small / (1 + small) ** 2
    if name == "tanh":
        return np.tanh(x), 4 * small**2 / (1 + small**2) ** 2
    if name == "elu":
        return np.where(x > 0, x, np.expm1(negative)), np.where(x > 0, 1, np.exp(negative))
    if name == "selu":
        scale, alpha = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
        return scale * np.where(x > 0, x, alpha * np.expm1(negative)), scale * np.where(
            x > 0, 1, alpha * np.exp(negative)
        )
    density = np.exp(-x * x / 2)
    if name == "gelu":
        tail = 0.5 * density * erfcx(np.abs(x) / np.sqrt(2))
        cdf = np.where(x < 0, tail, 1 - tail)
        return x * cdf, cdf + x * density / np.sqrt(2 * np.pi)
    assert name == "mish", f"{name} has no formula in {__file__}: add value and derivative"
    e = np.exp(np.minimum(x, 40))
    n = e * (e + 2)
    t = n / (n + 2)
    return x * t, t + x * 4 * e * (1 + e) / (n + 2) ** 2 + zero


# Dense near zero and over the range that matters, then every magnitude. Beyond -80, results are below float32's normal
# numbers, which the kernel treats as zero.
INPUTS = np.concatenate(
    [
        np.linspace(-30, 30, 60_001),
        np.linspace(-1, 1, 20_001),
        np.geomspace(1e-30, 80, 4001),
        -np.geomspace(1e-30, 80, 4001),
    ]
).astype(np.float32)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", shoal.ACTIVATIONS)
def test_activations_are_right_to_a_millionth(monkeypatch, isa, name):
    monkeypatch.setenv("SHOAL_ISA", isa)
    got = activation(name, INPUTS)
    for what, mine, truth in zip(("value", "derivative"), got, exact(name, INPUTS.astype(np.float64)), strict=True):
        # Relative to the result; where a derivative crosses zero (gelu at -0.75, mish at -1.19), to what cancels there.
        scale = np.maximum(np.abs(truth), 1e-30)
        if what == "derivative" and name in ("gelu", "mish"):
            scale = np.where((INPUTS > -1.6) & (INPUTS < -0.4), np.maximum(scale, 0.25), scale)
        error = np.abs(mine - truth) / scale
        normal = np.abs(truth) > 1e-37
        worst = np.argmax(np.where(normal, error, 0))
        assert error[worst] < 1e-6, (name, what, INPUTS[worst], mine[worst], truth[worst])
        assert np.all(np.abs(mine[~normal]) <= 2e-37)


def outputs_of(name: str, x: np.ndarray) -> np.ndarray:
    """What a network of one neuron makes of its input, which may be NaN here."""
    population = shoal.Population([shoal.Member(hidden=1, activation=name)], 1, 1, "mse")
    population.set_weights(0, [(np.ones((1, 1)), np.zeros(1))] * 2)
    out = np.empty((1, len(x), 1), np.float32)
    selection = Selection(population.program, population.state, np.zeros(1, np.int64), Resources())
    NativeEngine().predict(selection, x[:, None].copy(), out)
    return out[0, :, 0]


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", shoal.ACTIVATIONS)
def test_activations_pass_nan_on_and_survive_extremes(monkeypatch, isa, name):
    monkeypatch.setenv("SHOAL_ISA", isa)
    x = np.array([1e20, -1e20, 88.0, -88.0, 1e-45], dtype=np.float32)
    value, derivative = activation(name, x)
    assert np.all(np.isfinite(derivative))
    expected = exact(name, x[:2].astype(np.float64))[0]
    assert np.allclose(value[:2], expected, rtol=1e-6, atol=1e-30)
    extremes = np.array([1e30, -1e30, 3e38, -3e38, np.nan], dtype=np.float32)
    predicted = outputs_of(name, extremes)
    assert np.allclose(predicted[:4], exact(name, extremes[:4].astype(np.float64))[0], rtol=1e-6, atol=1e-30)
    assert np.isnan(predicted[4])


def test_unknown_instruction_set_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("SHOAL_ISA", "avx9")
    with pytest.raises(ValueError, match=r"SHOAL_ISA must be one of .*baseline.*; got 'avx9'"):
        _native.instruction_set()


def test_permutations_are_permutations_and_depend_on_key_and_epoch_alone():
    orders = {(key, epoch): _native.permutation(key, epoch, 100) for key in (0, 1, 2**63) for epoch in (0, 1, 7)}
    for order in orders.values():
        assert sorted(order) == list(range(100))
    assert len({tuple(order) for order in orders.values()}) == 9
    assert np.array_equal(_native.permutation(1, 7, 100), orders[1, 7])
    # Every row is about equally often first, middle or last.
    means = np.mean([np.argsort(_native.permutation(5, epoch, 10)) for epoch in range(4000)], axis=0)
    assert np.all(np.abs(means - 4.5) < 0.2)


def test_dropout_keeps_the_right_share_independently():
    masks = np.stack([dropout_mask(3, step, 0, (40, 50), 0.3) for step in range(50)])
    assert abs(masks.mean() - 0.7) < 0.005
    assert np.all(np.abs(masks.mean(axis=(0, 1)) - 0.7) < 0.05)
    assert np.all(np.abs(masks.mean(axis=(0, 2)) - 0.7) < 0.05)
    flat = masks.reshape(50, -1).astype(float) - 0.7
    assert abs(np.mean(flat[1:] * flat[:-1])) < 0.005
    assert not np.array_equal(dropout_mask(3, 0, 1, (40, 50), 0.3), masks[0])
    assert not np.array_equal(dropout_mask(4, 0, 0, (40, 50), 0.3), masks[0])


def swapped(record: np.dtype, first: str, second: str) -> np.dtype:
    """The record with two fields in each other's place."""
    places = {first: second, second: first}
    fields = [(places.get(name, name), record[places.get(name, name)]) for name in record.names]
    return np.dtype(fields, align=True)


def test_records_are_compared_with_the_kernels_by_name_type_and_offset():
    check_kernel(MEMBER_RECORD, CODES)
    for first, second in [("epochs", "patience"), ("activation", "optimizer"), ("dropout", "warmup")]:
        other = swapped(MEMBER_RECORD, first, second)
        assert other.itemsize == MEMBER_RECORD.itemsize  # sizes alone would not tell
        with pytest.raises(ImportError, match=r"fields of a record are .*install shoal again"):
            check_kernel(other, CODES)
    for name, kind in [("seed", np.int64), ("learning_rate", np.int64)]:
        fields = [(field, kind if field == name else MEMBER_RECORD[field]) for field in MEMBER_RECORD.names]
        with pytest.raises(ImportError, match="fields of a record"):
            check_kernel(np.dtype(fields, align=True), CODES)


@pytest.mark.parametrize("kind", CODES)
def test_words_are_compared_with_the_kernels_codes(kind):
    first, second, *others = CODES[kind]
    for words in [(second, first, *others), (first, second, *others, "one more")]:
        with pytest.raises(ImportError, match=rf"words for {kind} are .*install shoal again"):
            check_kernel(MEMBER_RECORD, {**CODES, kind: words})
    with pytest.raises(ImportError, match=f"words for {kind}"):
        check_kernel(MEMBER_RECORD, {name: words for name, words in CODES.items() if name != kind})


def test_sizes_that_overflow_are_refused():
    with pytest.raises(ValueError, match="count is out of range"):
        _native.permutation(0, 0, 1 << 60)


def call(**changes):
    """A good call of the kernel's training, with some arguments changed."""
    population = shoal.Population([shoal.Member(hidden=3, patience=1), shoal.Member(hidden=(), features=(0,))], 2, 2)
    program, state = population.program, population.state
    rows = flatten_rows(
        as_rows(shoal.population.rows.Split([0, 1, 2], [3]), 2, 4),
        True,
        np.zeros(2, np.uint64),
        np.full(2, 5, np.int64),
    )
    log = History.empty(2, 1)
    arguments = networks(program) | {
        "loss": 0, "class_weight": program.class_weight, "X": np.ones((4, 2), np.float32),
        "labels": np.array([0, 1, 0, 1], np.int32), "targets": np.empty((0, 2), np.float32),
        "train_rows": rows.train, "train_start": rows.train_start, "weight": rows.weight, "valid_rows": rows.valid,
        "valid_start": rows.valid_start, "split": rows.split, "shuffle": True, "order": rows.order,
        "horizon": rows.horizon, "parameters": state.parameters, "slots": state.slots, "steps": state.steps,
        "epochs": state.epochs, "best_epoch": state.best_epoch, "best_loss": state.best_loss, "status": state.status,
        "which": np.arange(2), "until": np.ones(2, np.int64), "log_loss": log.loss, "log_valid_loss": log.valid_loss,
        "log_valid_score": log.valid_score, "threads": 1, "progress": None,
    }  # fmt: skip
    for name, change in changes.items():
        arguments[name] = change(arguments[name].copy()) if callable(change) else change
    return _native.train(**arguments)


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def record(field, value):
    def change(raw):
        records = raw.view(MEMBER_RECORD)
        records[field][0] = value
        return raw

    return change


def test_the_good_call_is_good():
    assert call() is True


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"labels": put(0, 2)}, "a label is out of range"),
        ({"labels": put(0, -1)}, "a label is out of range"),
        ({"labels": np.zeros(3, np.int32)}, "one label per row"),
        ({"train_rows": put(0, 4)}, "a training row is out of range"),
        ({"train_rows": put(0, -1)}, "a training row is out of range"),
        ({"valid_rows": put(0, 4)}, "a validation row is out of range"),
        ({"train_start": put(1, 9)}, "train_start does not fit"),
        ({"train_start": np.array([0, 2, 1, 3])}, "train_start does not fit"),
        ({"valid_start": np.array([0, 0, 1])}, "as many splits"),
        ({"weight": np.ones(2, np.float32)}, "one weight per training row"),
        ({"weight": np.zeros(3, np.float32)}, "above zero"),
        ({"split": put(0, 1)}, "a split is out of range"),
        ({"which": np.array([0, 2])}, "which is out of range"),
        ({"which": np.array([0, 0])}, "a member is named twice"),
        ({"until": put(0, 5)}, "a target does not fit the log"),
        ({"until": put(0, 0)}, "a target does not fit the log"),
        ({"status": put(0, 2)}, "a member is not active"),
        ({"log_loss": np.zeros((1, 1))}, "the log has the wrong shape"),
        ({"steps": np.zeros(1, np.int64)}, "one entry per member"),
        ({"X": np.ones((4, 3), np.float32)}, "wrong number of inputs"),
        ({"class_weight": np.ones(3, np.float32)}, "one weight per class"),
        ({"n_outputs": 3}, "wrong number of outputs"),
        ({"loss": 7}, "unknown loss"),
        ({"threads": 0}, "threads"),
        ({"dims": put(1, 1 << 40)}, "a width is out of range"),
        ({"dims": put(1, 1 << 30)}, "parameters are out of range"),
        ({"features": put(0, 2)}, "a feature is out of range"),
        ({"records": record("dims_start", 100)}, "dims are out of range"),
        ({"records": record("parameters", 1 << 40)}, "parameters are out of range"),
        ({"records": record("parameters", -16)}, "parameters are out of range"),
        ({"records": record("slots", 1 << 40)}, "slots are out of range"),
        ({"records": record("slot_size", 1)}, "a slot is too small"),
        ({"records": record("slot_size", 1 << 62)}, "slots are too large|slots are out of range"),
        ({"records": record("activation", 10)}, "unknown activation"),
        ({"records": record("optimizer", -1)}, "unknown optimizer"),
        ({"records": record("optimizer_slots", 1)}, "optimizer_slots"),
        ({"records": record("n_layers", 0)}, "dims are out of range"),
        ({"records": record("batch_size", 0)}, "batch_size"),
        ({"records": record("dropout", 1.0)}, "dropout"),
        ({"records": record("features_start", 1)}, "features are out of range"),
        ({"valid_start": np.array([0, 0]), "valid_rows": np.empty(0, np.int64)}, "patience needs validation rows"),
    ],
)
def test_the_kernel_checks_everything_it_indexes_with(changes, rule):
    with pytest.raises(ValueError, match=rule):
        call(**changes)


def test_arrays_of_the_wrong_type_or_order_are_refused():
    with pytest.raises(TypeError):
        call(X=np.ones((4, 2)))
    with pytest.raises(TypeError):
        call(X=np.asfortranarray(np.ones((4, 2), np.float32)))
    with pytest.raises(TypeError):
        call(steps=np.zeros(2, np.int32))


def test_an_exception_in_progress_ends_training_cleanly():
    class Boom(Exception):
        pass

    def progress(done):
        raise Boom

    population = shoal.Population([shoal.Member(hidden=200, batch_size=1)] * 8, 50, 2)
    before = population.state.parameters.copy()
    generator = np.random.default_rng(0)
    data = Data(
        generator.normal(size=(20_000, 50)).astype(np.float32), np.zeros(20_000, np.int32), np.empty((0, 2), np.float32)
    )
    rows = flatten_rows(as_rows(None, 8, 20_000), True, np.zeros(8, np.uint64), np.full(8, 9, np.int64))
    with pytest.raises(Boom):
        NativeEngine().train(
            Training(
                population.program, population.state, np.arange(8), Resources(threads=2), data, rows,
                np.full(8, 9, np.int64), progress,
            )
        )  # fmt: skip
    untouched = population.epochs == 0
    assert untouched.any()
    for i in np.flatnonzero(untouched):
        start, size = population.layout.offsets[i], population.layout.counts[i]
        assert np.array_equal(population.state.parameters[start : start + size], before[start : start + size])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 3))
def test_members_with_rows_of_their_own_predict_as_with_all_rows(seed, members, outputs):
    rng = np.random.default_rng(seed)
    population = shoal.Population([shoal.Member(hidden=(5, 3), seed=k) for k in range(members)], 4, outputs, "mse")
    X = rng.normal(size=(int(rng.integers(1, 9000)), 4)).astype(np.float32)
    which = rng.integers(0, members, size=members + 1)
    first = rng.integers(0, len(X), size=len(which))
    count = np.array([rng.integers(0, len(X) - start + 1) for start in first])
    got = predict_own_rows(Selection(population.program, population.state, which, Resources(2)), X, first, count)
    every = population.predict(X)
    expected = [every[k, start : start + n] for k, start, n in zip(which, first, count, strict=True)]
    assert np.array_equal(got, np.concatenate(expected))


def test_rows_out_of_range_are_refused():
    population = shoal.Population([shoal.Member(hidden=2)], 2, 1, "mse")
    X = np.zeros((3, 2), np.float32)
    selection = Selection(population.program, population.state, np.zeros(1, np.int64), Resources())
    for first, count in ((0, 4), (3, 1), (-1, 1)):
        with pytest.raises(ValueError, match="out of range"):
            predict_own_rows(selection, X, np.array([first]), np.array([count]))

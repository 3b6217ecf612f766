"""What every engine promises besides right numbers: independence, the same bits, stopping, resuming, bounded memory."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from support.kernel import dropout_mask
from support.oracle import Trained, train_alone

from shoal import Member, Population
from shoal.population.engines import get_engine
from shoal.population.engines.program import Data, Resources, Training
from shoal.population.fitting import FitProgress, assign
from shoal.population.members import ACTIVATIONS
from shoal.population.rows import Rows, Split, holdout, kfold

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2 + 0.3 * GENERATOR.normal(size=60) > 0.8).astype(np.int64) + (X[:, 2] > 0.5)
SPLIT = holdout(60, 0.3)
STATE = ("parameters", "slots", "steps", "epochs", "best_epoch", "best_loss", "status")


def mixed(count: int, **common: object) -> list[Member]:
    """Members that differ in everything."""
    draw = np.random.default_rng(5)

    def one(*choices: object) -> object:
        return choices[draw.integers(len(choices))]

    members = []
    for seed in range(count):
        fields = {
            "hidden": one((), 1, 5, 8, 13, 33, (7, 3), (9, 12, 4)), "activation": one(*ACTIVATIONS),
            "optimizer": one("sgd", "adam", "adamw"), "momentum": one(0.0, 0.9), "weight_decay": one(0.0, 0.01),
            "learning_rate": one(0.003, 0.01), "dropout": one(0.0, 0.0, 0.3), "clip": one(0.0, 0.5),
            "batch_size": one(5, 16, 32), "label_smoothing": one(0.0, 0.1), "schedule": one("constant", "cosine"),
            "features": one(None, None, (4, 0, 2)), "epochs": 6, "beta2": one(0.95, 0.999),
        }  # fmt: skip
        members.append(Member(**{**fields, **common}, seed=seed))
    return members


def fitted(
    members: Sequence[Member],
    engine: str,
    epochs: int = 3,
    threads: int = 1,
    memory: int | None = None,
    **options: object,
) -> Population:
    population = Population(members, 6, 3, memory_limit=memory)
    population.fit(X, Y, epochs, engine=engine, threads=threads, **{"rows": SPLIT, **options})
    return population


def assert_same(a: Population, b: Population) -> None:
    """The same members in the same state, bit for bit."""
    for name in STATE:
        np.testing.assert_array_equal(getattr(a.state, name), getattr(b.state, name), err_msg=name)
    for name in ("loss", "valid_loss"):
        np.testing.assert_array_equal(getattr(a.history, name), getattr(b.history, name), err_msg=name)


# ---- independence ----


def test_a_member_alone_is_the_member_among_500_others(engine: str) -> None:
    members = mixed(501)
    together = fitted(members, engine, epochs=2)
    for i in range(0, len(members), 40):
        assert_same(together.select([i]), fitted([members[i]], engine, epochs=2))
    third = range(0, len(members), 3)  # and in other company
    assert_same(together.select(third), fitted(members[::3], engine, epochs=2))


@pytest.mark.parametrize("shuffle", [True, "each"])
def test_neighbours_with_other_rows_change_nothing(engine: str, shuffle: bool | str) -> None:
    members = mixed(30, batch_size=16)
    rows = Rows(tuple(kfold(60, 5)), np.arange(30) % 5)
    together = fitted(members, engine, rows=rows, shuffle=shuffle)
    for i in range(0, 30, 7):
        alone = fitted([members[i]], engine, rows=rows.splits[i % 5], shuffle=shuffle)
        assert_same(together.select([i]), alone)


def test_without_shuffling_rows_are_taken_in_the_order_of_the_split(engine: str) -> None:
    """Members with rows in other orders, and with more and fewer of them, each against PyTorch alone."""
    draw = np.random.default_rng(3)
    splits = [Split(draw.permutation(60)[:count]) for count in (60, 60, 41, 7, 3)]
    members = [Member(hidden=9, optimizer="sgd", learning_rate=0.1, batch_size=8, seed=1) for _ in splits]
    population = fitted(members, engine, epochs=2, shuffle=False, rows=splits)
    for i, split in enumerate(splits):
        check_close(population, i, train_alone(members[i], 6, 3, X, Y, "cross_entropy", 2, split, shuffle=False))
    backwards = fitted(members, engine, epochs=2, shuffle=False, rows=[Split(split.train[::-1]) for split in splits])
    apart = [np.abs(population.weights(i)[0][0] - backwards.weights(i)[0][0]).max() for i in range(3)]
    assert min(apart) > 1e-3, "the order matters, or this test would see nothing"


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_the_number_of_threads_changes_nothing(engine: str, threads: int) -> None:
    members = mixed(40)
    assert_same(fitted(members, engine), fitted(members, engine, threads=threads))


def test_torch_keeps_its_number_of_threads(engine: str) -> None:
    def threads_of_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    before = torch.get_num_threads(), threads_of_a_new_thread()
    population = fitted(mixed(3), engine, epochs=1, threads=3)
    population.predict(X, engine=engine, threads=3)
    assert (torch.get_num_threads(), threads_of_a_new_thread()) == before


def test_little_memory_means_parts_not_other_results(engine: str) -> None:
    members = mixed(30)
    small, large = fitted(members, engine, memory=100_000), fitted(members, engine)
    assert_same(small, large)
    np.testing.assert_allclose(
        small.predict(X, engine=engine, threads=1), large.predict(X, engine=engine, threads=1), atol=1e-4
    )


def test_random_generator_of_torch_is_left_alone(engine: str) -> None:
    before = torch.get_rng_state()
    fitted(mixed(5), engine).predict(X, engine=engine)
    assert torch.equal(before, torch.get_rng_state())


# ---- going on ----


@pytest.mark.parametrize("patience", [0, 2])
def test_two_epochs_and_three_are_five(engine: str, patience: int) -> None:
    members = mixed(24, patience=patience)
    whole, parts = fitted(members, engine, epochs=5), fitted(members, engine, epochs=2)
    parts.fit(X, Y, 3, engine=engine, threads=1, rows=SPLIT)
    assert_same(whole, parts)


def test_selected_members_go_on_as_if_nobody_had_left(engine: str) -> None:
    members = mixed(24)
    chosen = [3, 23, 17, 4]
    whole, part = fitted(members, engine, epochs=4), fitted(members, engine, epochs=2).select(chosen)
    part.fit(X, Y, 2, engine=engine, threads=1, rows=SPLIT)
    assert_same(whole.select(chosen), part)


def test_members_at_different_epochs_go_on_together(engine: str) -> None:
    members = mixed(20, schedule="constant", epochs=None)
    population = fitted(members, engine, epochs=1)
    population.stop(range(0, 20, 2))
    population.fit(X, Y, 2, engine=engine, threads=1, rows=SPLIT)
    population.state.status[:] = 0
    population.fit(X, Y, until=4, engine=engine, threads=1, rows=SPLIT)
    other = fitted(members, engine, epochs=4)
    np.testing.assert_array_equal(population.epochs, 4)
    for i in range(20):
        assert_same(population.select([i]), other.select([i]))


# ---- stopping ----


def test_early_stopping_keeps_the_best_weights(engine: str) -> None:
    members = [
        Member(hidden=hidden, optimizer=optimizer, learning_rate=rate, patience=patience, batch_size=8, epochs=epochs)
        for hidden in ((), 20) for optimizer, rate in (("sgd", 0.5), ("adam", 0.05))
        for patience in (1, 3) for epochs in (None, 3)
    ]  # fmt: skip
    population = fitted(members, engine, epochs=30)
    found = [train_alone(m, 6, 3, X, Y, "cross_entropy", 30, SPLIT) for m in members]
    assert {"stopped early", "finished"} <= {one.status for one in found}, "the test wants both"
    for i, one in enumerate(found):
        assert population.status[i] == one.status
        assert population.epochs[i] == len(one.losses)
        assert population.state.best_epoch[i] == one.best_epoch
        assert population.state.best_loss[i] == pytest.approx(one.valid_losses[one.best_epoch - 1], rel=1e-4)
        check_close(population, i, one)


def check_close(population: Population, i: int, one: Trained) -> None:
    for layer, expected in zip(population.weights(i), one.weights, strict=True):
        for values, wanted in zip(layer, expected, strict=True):
            np.testing.assert_allclose(values, wanted, rtol=1e-3, atol=1e-4)


def test_best_weights_are_what_is_predicted_with(engine: str) -> None:
    population = fitted([Member(hidden=20, learning_rate=0.1, patience=2, batch_size=8)], engine, epochs=30)
    assert population.status == ["stopped early"]
    outputs = population.predict(X, engine=engine, threads=1)[0]
    (loss, score), best = (
        population.evaluate(X[SPLIT.valid], Y[SPLIT.valid], engine=engine),
        population.state.best_epoch[0],
    )
    np.testing.assert_allclose(outputs, population.extract(0)(torch.tensor(X)).detach(), atol=1e-5)
    assert loss[0] == pytest.approx(population.history.valid_loss[0, best - 1])
    assert score[0] == pytest.approx(population.history.valid_score[0, best - 1])


def test_a_diverging_member_harms_nobody(engine: str) -> None:
    calm = [Member(hidden=9, optimizer="sgd", learning_rate=0.05, activation="identity", seed=s) for s in range(8)]
    wild = [member.replace(learning_rate=1e30) for member in calm[:3]]
    population = fitted([*calm[:4], *wild, *calm[4:]], engine)
    assert population.status[4:7] == ["diverged"] * 3
    assert (population.epochs[4:7] < 3).all()
    assert np.isfinite(population.history.loss[:4]).all()
    rest = population.select([0, 1, 2, 3, 7, 8, 9, 10])
    assert_same(rest, fitted(calm, engine))


@pytest.mark.parametrize("loss", ["bce", "mse"])
def test_a_member_diverges_with_every_loss(engine: str, loss: str) -> None:
    members = [Member(hidden=hidden, optimizer="sgd", learning_rate=1e38) for hidden in (5, (4, 4))]
    population = Population(members, 6, 2, loss)
    population.fit(X, (X[:, :2] > 0).astype(float), 20, engine=engine, threads=1, rows=SPLIT)
    assert population.status == ["diverged"] * 2


def test_weights_that_break_in_the_last_update_are_seen_and_rank_last(engine: str) -> None:
    """The loss of the only epoch was still finite. Whoever takes the best by the history must not get this member."""
    wild = Member(hidden=5, optimizer="sgd", learning_rate=1e39, batch_size=60, epochs=1)
    for rows in (None, SPLIT):
        population = Population([wild, Member(hidden=5, epochs=1)], 6, 3)
        history = population.fit(X, Y, 1, engine=engine, rows=rows)
        assert population.status == ["diverged", "finished"]
        assert history.last("loss")[0] == np.inf
        assert np.argmin(history.last("loss")) == 1
    assert np.argmin(history.last("valid_loss")) == 1
    assert np.argmax(history.last("valid_score")) == 1


class Broken(Exception):
    """Raised by a progress function."""


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def fail() -> None:
    raise Broken


@pytest.mark.parametrize(("how", "error"), [(interrupt, KeyboardInterrupt), (fail, Broken)])
def test_whatever_ends_training_every_member_is_at_the_end_of_an_epoch(
    engine: str, how: Callable[[], None], error: type[BaseException]
) -> None:
    """Ctrl-C, or an error; then `until=`: the same bits as without the interruption."""

    class Ends:
        def progress(self, event: FitProgress) -> None:
            if event.done >= 8:
                how()

    members = mixed(8, epochs=None, schedule="constant", batch_size=8)
    population, whole = Population(members, 6, 3), Population(members, 6, 3)
    options = {"engine": engine, "threads": 2, "rows": SPLIT}
    with pytest.raises(error):
        population.fit(X, Y, until=100_000, callbacks=[Ends()], **options)
    reached = int(population.epochs.max())
    assert 0 < reached < 100_000
    assert population.history.n_epochs == reached
    for one in (population, whole):
        one.fit(X, Y, until=reached + 1, **options)
    assert_same(population, whole)


def test_told_to_stop_at_once(engine: str) -> None:
    """The contract itself: `progress` answers True, `train` answers False, and nothing has been half done."""
    members = mixed(8, epochs=None, schedule="constant")
    population, fresh = Population(members, 6, 3), Population(members, 6, 3)
    until, which = np.full(8, 50_000), np.arange(8)
    plan = assign(population.program, Rows((SPLIT,), np.zeros(8, np.int64)), True, 0, until)
    data = Data(X, Y.astype(np.int32), np.empty((0, 3), np.float32))
    calls = []
    training = Training(
        population.program, population.state, which, Resources(), data, plan, until,
        lambda done: not calls.append(done),
    )  # fmt: skip
    assert get_engine(engine).train(training) is False
    assert len(calls) >= 1
    assert np.array_equal(np.isfinite(training.log.loss).sum(1), population.epochs)
    last = int(population.epochs.max()) + 1
    for one in (population, fresh):
        one.fit(X, Y, until=last, engine=engine, threads=1, rows=SPLIT)
    np.testing.assert_array_equal(population.state.parameters, fresh.state.parameters)


# ---- results ----


@pytest.mark.parametrize("loss", ["cross_entropy", "bce", "mse"])
def test_predict_and_evaluate_agree_with_extracted_networks(engine: str, loss: str) -> None:
    members = mixed(12, label_smoothing=0.0)
    population = Population(members, 6, 3, loss)
    many = np.concatenate([X] * 5)[:271]  # more than one block of rows, and an odd number
    y: np.ndarray = np.concatenate([Y] * 5)[:271]
    if loss != "cross_entropy":
        y = np.eye(3, dtype=np.float32)[y]
    population.fit(many, y, 2, engine=engine, threads=1)
    chosen = [11, 3, 3, 10, 0, 8]
    outputs = population.predict(many, chosen, engine=engine, threads=1)
    assert outputs.shape == (6, 271, 3)
    losses, scores = population.evaluate(many, y, chosen, engine=engine, threads=1)
    for k, i in enumerate(chosen):
        expected = population.extract(i).double()(torch.tensor(many).double()).detach()
        np.testing.assert_allclose(outputs[k], expected, rtol=1e-4, atol=1e-5)
        wanted_loss, wanted_score = loss_and_score(loss, expected, torch.tensor(y))
        assert losses[k] == pytest.approx(wanted_loss, rel=1e-5)
        assert scores[k] == pytest.approx(wanted_score, abs=1.1 / 271)


def loss_and_score(loss: str, outputs: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    if loss == "cross_entropy":
        return float(torch.nn.functional.cross_entropy(outputs, y)), float((outputs.argmax(1) == y).double().mean())
    y = y.double()
    if loss == "bce":
        value = torch.nn.functional.binary_cross_entropy_with_logits(outputs, y)
        return float(value), float(((outputs > 0) == (y > 0.5)).double().mean())
    error, spread = (outputs - y).square(), (y - y.mean(0)).square()
    return float(error.mean()), float(1 - error.sum() / spread.sum())


def test_prediction_does_not_depend_on_company(engine: str) -> None:
    population = fitted(mixed(32), engine, epochs=1)
    together = population.predict(X, engine=engine, threads=2)
    for i in (0, 7, 20, 31):
        alone = population.predict(X, [i], engine=engine, threads=1)[0]
        np.testing.assert_array_equal(together[i], alone)


def test_constant_targets_have_no_r2(engine: str) -> None:
    population = Population(mixed(3, label_smoothing=0.0), 6, 2, "mse")
    loss, score = population.evaluate(X, np.ones((60, 2)), engine=engine)
    assert np.isfinite(loss).all()
    assert np.isnan(score).all()


def test_memory_is_told_beforehand(engine: str) -> None:
    small, large = (Population(mixed(count), 6, 3) for count in (2, 200))
    told: Callable[[Population], int] = lambda population: population.memory(X, engine=engine).workspace  # noqa: E731
    assert 0 < told(small) <= told(large) < 1 << 28


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_of_torch_engines_is_that_of_the_kernel(rate: float) -> None:
    from shoal.population.engines.torch_numbers import dropout_kept, dropout_keys, dropout_thresholds

    members = [Member(dropout=rate, seed=seed) for seed in (0, 1, (1 << 63) - 1)]
    records = Population(members, 2, 2).program.records
    keys = torch.from_numpy(dropout_keys(records, np.array([0, 10, 1 << 40]), count=2, layers=3))
    threshold = torch.from_numpy(dropout_thresholds(records))[:, None, None]
    row, neuron = torch.arange(40)[:, None], torch.arange(70)
    for step in range(2):
        for layer in range(3):
            low, high = keys[:, step, layer, :, None, None]
            kept = dropout_kept(low, high, row, neuron, threshold)
            for i, (member, before) in enumerate(zip(members, (0, 10, 1 << 40), strict=True)):
                expected = dropout_mask(member.seed, before + step, layer, (40, 70), rate)
                np.testing.assert_array_equal(kept[i], expected)


def test_a_split_without_rows_to_score(engine: str) -> None:
    population = fitted(mixed(4), engine, rows=Split(np.arange(30)))
    assert np.isnan(population.history.valid_loss).all()
    assert np.isnan(population.history.valid_score).all()

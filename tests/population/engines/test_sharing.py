"""Several threads that train one large network: the same bits as one thread, whatever the shapes and whoever stops."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal import _native
from shoal.population.members import Member
from shoal.population.population import Population
from shoal.population.rows import Split

STATE = ("parameters", "slots", "steps", "epochs", "best_epoch", "best_loss", "status")
LARGE = Member((300, 270), "tanh", learning_rate=1e-3, batch_size=100)


def fitted(members: list[Member], features: int, outputs: int, rows: int, threads: int, **options: Any) -> Population:
    """A population after two epochs with a fifth of the rows held out."""
    draw = np.random.default_rng(rows)
    X = draw.standard_normal((rows, features), dtype=np.float32)
    y = draw.integers(0, outputs, rows) if outputs > 1 else draw.standard_normal(rows, dtype=np.float32)
    split = Split(np.arange(rows * 4 // 5), np.arange(rows * 4 // 5, rows))
    population = Population(members, features, outputs, "cross_entropy" if outputs > 1 else "mse")
    population.fit(X, y, 2, engine="native", threads=threads, rows=split, **options)
    return population


def assert_same(a: Population, b: Population) -> None:
    for name in STATE:
        np.testing.assert_array_equal(getattr(a.state, name), getattr(b.state, name), err_msg=name)
    for name in ("loss", "valid_loss", "valid_score"):
        np.testing.assert_array_equal(getattr(a.history, name), getattr(b.history, name), err_msg=name)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Member, int, int, int]:
    """Networks around the sizes from which on products are shared: few inputs and many, few outputs and many."""
    hidden = tuple(draw(st.lists(st.integers(60, 700), min_size=1, max_size=3)))
    optimizer = draw(st.sampled_from([{"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.9}, {}]))
    member = Member(
        hidden, draw(st.sampled_from(["relu", "tanh"])), batch_size=draw(st.integers(50, 400)), learning_rate=1e-3,
        dropout=draw(st.sampled_from([0.0, 0.3])), clip=draw(st.sampled_from([0.0, 0.05])),
        patience=draw(st.sampled_from([0, 1])), **optimizer,
    )  # fmt: skip
    return (
        member,
        draw(st.sampled_from([3, 11, 130, 400])),
        draw(st.sampled_from([1, 2, 10, 90])),
        draw(st.integers(60, 500)),
    )


@pytest.mark.parametrize("isa", _native.instruction_sets())
@given(case=shapes(), threads=st.integers(2, 5))
@settings(
    max_examples=6, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
def test_several_threads_train_one_network_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, isa: str, case: tuple[Member, int, int, int], threads: int
) -> None:
    monkeypatch.setenv("SHOAL_ISA", isa)
    member, features, outputs, rows = case
    assert_same(fitted([member], features, outputs, rows, 1), fitted([member], features, outputs, rows, threads))


@pytest.mark.parametrize("members", [1, 3, 5])
def test_company_and_threads_change_nothing(members: int) -> None:
    """Three large networks and two threads: one is shared, then each thread has its own."""
    some = [replace(LARGE, seed=seed) for seed in range(members)] + [Member(5, seed=seed) for seed in range(9)]
    together = fitted(some, 40, 3, 300, 2)
    assert_same(together, fitted(some, 40, 3, 300, 1))
    assert_same(together.select([0]), fitted([some[0]], 40, 3, 300, 2))


def test_stopped_in_an_epoch_and_resumed() -> None:
    """An error in a callback ends all threads, with the member at the end of an epoch; resuming gives the same bits."""
    draw = np.random.default_rng(0)
    X, y = draw.standard_normal((2000, 200), dtype=np.float32), draw.integers(0, 4, 2000)
    whole, broken = (Population([replace(LARGE, hidden=(700, 500))], 200, 4) for _ in range(2))

    class Stop:
        def progress(self, event: Any) -> bool:
            if event.done >= 1:
                raise ArithmeticError
            return False

    with pytest.raises(ArithmeticError):
        broken.fit(X, y, until=1000, engine="native", threads=2, callbacks=[Stop()])
    done = int(broken.epochs[0])
    assert done < 1000  # members are written back every 200 ms, so it may be an epoch before the error
    broken.fit(X, y, until=done + 1, engine="native", threads=2)
    whole.fit(X, y, until=done + 1, engine="native", threads=1)
    np.testing.assert_array_equal(broken.state.parameters, whole.state.parameters)


def test_fits_side_by_side() -> None:
    """More threads than cores that share networks: they wait for each other, and never for ever."""
    found: list[Population] = []
    workers = [
        threading.Thread(target=lambda: found.append(fitted([LARGE], 100, 3, 400, 4))) for _ in range(4)
    ]  # fmt: skip
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    alone = fitted([LARGE], 100, 3, 400, 1)
    assert len(found) == 4
    for population in found:
        assert_same(population, alone)

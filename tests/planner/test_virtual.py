"""Virtual nodes compute what real workers compute: the same code, so the same weights."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from shoal import parallel
from shoal.parallel.divergence import Diverged
from shoal.parallel.networks import make_model
from shoal.parallel.training import make_job
from shoal.planner.simulate.virtual import Timing, Virtual, World, run_nodes

DETERMINISTIC = {
    "every epoch": {"strategy": "local_sgd", "average_every": "epoch"},
    "every 2 steps": {"strategy": "local_sgd", "average_every": 2},
    "at the end": {"strategy": "local_sgd", "average_every": "end"},
    "gossip": {"strategy": "gossip", "average_every": 2},
    "gossip each epoch": {"strategy": "gossip", "average_every": "epoch"},
    "by class": {"strategy": "local_sgd", "average_every": "epoch", "split": "class:0.5"},
    "own starts": {"strategy": "local_sgd", "average_every": "epoch", "start": "own"},
    "until an error": {"strategy": "local_sgd", "average_every": "epoch", "until_error": 0.65},
    "server": {"strategy": "parameter_server"},
    "exact": {"strategy": "allreduce", "exact": True},
}


def data(rows: int = 200, classes: int = 3) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 6, generator=generator)
    return TensorDataset(inputs, inputs[:, :classes].argmax(1))


def network() -> nn.Module:
    return make_model("mlp:6-8-3", activation="tanh")


def common(**more):
    return {"epochs": 3, "batch_size": 16, "optimizer": "adam", "learning_rate": 0.01, "blas_threads": 1,
            "device": "cpu", **more}  # fmt: skip


def real(rows, workers, backend="threads", **more) -> dict[str, torch.Tensor]:
    return parallel.fit(network(), rows, backend=backend, workers=workers, **common(**more)).model.state_dict()


def virtual(rows, workers, timing=None, valid=None, **more):
    job = make_job(backend="threads", workers=workers, **common(**more))
    result, world = run_nodes(job, network(), rows, valid, timing=timing)
    return result, world


def difference(one, other) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_the_bits_of_threads(name, workers):
    more = {**DETERMINISTIC[name], "shards": 5}
    result, _ = virtual(data(), workers, **more)
    assert difference(real(data(), workers, **more), result.model.state_dict()) == 0


@settings(max_examples=12, deadline=None)
@given(rows=st.integers(20, 150), workers=st.integers(1, 9), batch=st.integers(1, 40), seed=st.integers(0, 99),
       name=st.sampled_from(sorted(DETERMINISTIC)))  # fmt: skip
def test_the_bits_of_threads_for_any_sizes(rows, workers, batch, seed, name):
    more = {**DETERMINISTIC[name], "batch_size": batch, "seed": seed, "shards": 9}
    try:
        expected = real(data(rows), workers, **more)
    except parallel.Diverged:
        return
    result, _ = virtual(data(rows), workers, **more)
    assert difference(expected, result.model.state_dict()) == 0


@pytest.mark.parametrize("name", ["exact", "every epoch", "gossip", "server"])
def test_the_weights_of_processes(name):
    """Bit for bit where the real run is exact, else up to the order of a sum."""
    found = virtual(data(), 2, **DETERMINISTIC[name])[0].model.state_dict()
    away = difference(real(data(), 2, "processes", **DETERMINISTIC[name]), found)
    assert away == 0 if name == "exact" else away < 1e-5


def test_the_weights_of_mpi_ranks():
    found = virtual(data(), 2, **DETERMINISTIC["exact"])[0].model.state_dict()
    assert difference(real(data(), 2, "mpi", **DETERMINISTIC["exact"]), found) == 0


@pytest.mark.parametrize("workers", [2, 4])
def test_equal_shards_in_one_step_equal_the_whole_batch(workers):
    rows = data(64)
    more = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 64, "epochs": 1}
    whole = real(rows, 1, **{**more, "strategy": "serial"})
    shared, _ = virtual(rows, workers, **{**more, "strategy": "allreduce", "exact": True, "shards": workers})
    assert difference(whole, shared.model.state_dict()) < 1e-6
    assert difference(whole, network().state_dict()) > 1e-3  # and the step is one


# ---- the asynchronous server: order follows from the clock ----


def speeds(seconds):
    """Workers at given speeds; messages take no time."""
    return Timing(lambda rank: 0.0 if rank == 0 else seconds[rank - 1])


def asynchronous(seconds, **more):
    return virtual(data(), len(seconds), speeds(seconds), strategy="parameter_server", asynchronous=True, **more)


def test_the_asynchronous_server_is_reproducible():
    first, again = (asynchronous((1.0, 1.3, 0.7))[0] for _ in range(2))
    assert difference(first.model.state_dict(), again.model.state_dict()) == 0
    assert first.history[0]["staleness_mean"] > 0


def test_other_speeds_are_another_order():
    even, uneven = (asynchronous(seconds)[0] for seconds in ((1.0, 1.0), (1.0, 5.0)))
    assert difference(even.model.state_dict(), uneven.model.state_dict()) > 1e-6


def test_a_slow_worker_is_stale():
    """While the slow one computes once, the fast one sends five gradients."""
    result, world = asynchronous((1.0, 5.5), epochs=1)
    assert result.history[0]["staleness_max"] == 5
    assert max(world.clocks) == pytest.approx(5.5 * 7)  # 100 rows of the slow worker in batches of 16


def test_one_worker_of_the_asynchronous_server_trains_like_the_plain_loop():
    found = asynchronous((1.0,))[0].model.state_dict()
    assert difference(real(data(), 1, strategy="serial"), found) < 1e-6


# ---- the world ----


def test_messages_arrive_by_time_and_then_in_the_order_of_their_sending():
    world = World(3, speeds((2.0, 1.0)))
    order: list[int] = []
    run_in_turns(world, {
        0: lambda group: [order.append(group.receive(torch.zeros(1))) for _ in range(4)],
        1: lambda group: [group.send(torch.ones(1), 0), group.send(torch.ones(1), 0)],
        2: lambda group: [group.send(torch.ones(1), 0), group.send(torch.ones(1), 0)],
    })  # fmt: skip
    assert order == [2, 1, 2, 1]  # at 1, at 2 (sent first), at 2, at 4


def test_nodes_that_wait_for_each_other_are_an_error():
    world = World(2)
    failures = run_in_turns(world, {k: lambda group: group.receive(torch.zeros(1)) for k in range(2)})
    assert any("wait for each other" in str(error) for error in failures)


def run_in_turns(world, work):
    import threading

    failures = []

    def go(rank):
        try:
            world.begin(rank)
            work[rank](Virtual(world, rank))
            world.end()
        except BaseException as error:
            failures.append(error)
            world.fail(error)

    threads = [threading.Thread(target=go, args=(rank,)) for rank in work]
    for thread in threads:
        thread.start()
    world.start()
    for thread in threads:
        thread.join(20)
    return failures


def broken(output, target):
    return output.sum() * float("nan")


def test_an_error_of_one_node_ends_all():
    with pytest.raises(Diverged):
        virtual(data(), 3, strategy="local_sgd", average_every=1, loss=broken)


def test_the_score_is_that_of_the_average():
    """Not a mean of the scores of nodes, and on all rows."""
    rows = data()
    result, _ = virtual(rows, 4, valid=rows, strategy="local_sgd", average_every="end", start="own")
    model = copy.deepcopy(result.model).eval()
    right = float((model(rows.tensors[0]).argmax(1) == rows.tensors[1]).float().mean())
    assert result.history[-1]["valid_accuracy"] == pytest.approx(right)

"""One network over many workers equals the plain loop; in exact mode, for any number of workers, to the bit."""

from __future__ import annotations

import copy
import operator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.parallel_cases import BATCH, ROWS, SETTINGS, data, far, flat, network, order_of, plain_loop, run_ranks
from torch import nn

from shoal import parallel
from shoal.parallel.events import silent
from shoal.parallel.exact.tree_sum import combine, cover, shares
from shoal.parallel.groups import Alone
from shoal.parallel.job import Job
from shoal.parallel.training import run_threads

KINDS = ("plain", "random", "stateful")
WORKERS = (2, 3, 4, 8)
RANKS = (2, 3, 4)  # eight processes on two cores take long to start; threads have them
CLOSE = 1e-6  # relative, after 20 steps


@pytest.fixture(scope="module")
def exact_alone():
    """Exact all-reduce and pipeline on one worker, for each kind of network."""
    found = {}
    for kind in KINDS:
        for strategy in ("allreduce", "pipeline"):
            backend = "threads" if strategy == "allreduce" else "processes"
            job = {**SETTINGS, "strategy": strategy, "workers": 1, "backend": backend, "exact": True}
            found[strategy, kind] = parallel.fit(network(kind), data(), data(40, 2), **job)
    return found


@pytest.fixture(scope="module")
def plain():
    model = network()
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    plain_loop(model, data(), SETTINGS["epochs"])
    torch.set_num_threads(torch_threads)
    return model


def same_bits(one, other) -> bool:
    return torch.equal(flat(one), flat(other))


# ---- the order of sums ----


@given(st.integers(1, 40), st.integers(1, 40))
def test_workers_hold_whole_nodes_that_together_are_all_shards(shards, workers):
    held = [node for part in shares(shards, workers) for node in cover(part, (0, shards))]
    assert [k for start, end in held for k in range(start, end)] == list(range(shards))


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 24))
def test_a_sum_is_the_same_however_its_shards_are_dealt_out(shards, workers, empty):
    values = torch.randn(shards, generator=torch.Generator().manual_seed(shards)).tolist()
    filled = max(1, shards - empty)
    leaves = {(k, k + 1): values[k] for k in range(filled)}
    alone = combine((0, shards), leaves.get, filled, operator.add)
    known = {node: combine(node, leaves.get, filled, operator.add)
             for part in shares(shards, workers) for node in cover(part, (0, shards))}  # fmt: skip
    assert combine((0, shards), known.get, filled, operator.add) == alone


# ---- exact ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", WORKERS)
def test_threads_give_the_same_bits(workers, kind, exact_alone):
    job = {**SETTINGS, "strategy": "allreduce", "backend": "threads", "workers": workers, "exact": True}
    result = parallel.fit(network(kind), data(), data(40, 2), **job)
    assert same_bits(result.model, exact_alone["allreduce", kind].model)
    assert result.history[-1]["train_loss"] == exact_alone["allreduce", kind].history[-1]["train_loss"]


@pytest.mark.parametrize("launcher", ["processes", "mpi"])
def test_processes_and_ranks_give_the_same_bits_or_are_close(launcher, exact_alone, plain, tmp_path):
    """All in one test, since starting ranks takes longer than their work."""
    exact = {workers: exact_jobs(launcher, workers) for workers in RANKS}
    close = {workers: CLOSE_MODES.get((launcher, workers), {}) for workers in exact}
    results = run_ranks(tmp_path, launcher, {workers: jobs | close[workers] for workers, jobs in exact.items()})
    for workers, jobs in exact.items():
        for name in jobs:
            found, alone = results[workers][name], exact_alone[tuple(name.split("-"))]
            assert same_bits(found["model"], alone.model), (workers, name)
            assert found["history"][-1]["valid_loss"] == pytest.approx(alone.history[-1]["valid_loss"], rel=1e-6)
    for workers, jobs in close.items():
        for name in jobs:
            check_close(results[workers][name], name, workers, plain)
            assert launcher != "mpi" or 0 < results[workers][name]["metrics"]["communicating"] <= 1


def exact_jobs(launcher: str, workers: int) -> dict:
    strategies = ("allreduce", "pipeline") if launcher == "processes" else ("allreduce",)
    return {
        f"{strategy}-{kind}": {"strategy": strategy, "exact": True, "network": kind}
        for strategy in strategies
        for kind in KINDS
    }


CLOSE_JOBS = {
    "tensor": {"strategy": "tensor", "exact": False},
    "sharded": {"strategy": "sharded", "exact": False},
    "allreduce": {"strategy": "allreduce", "exact": False},
    "parameter_server": {"strategy": "parameter_server", "exact": False},
    "local_sgd": {"strategy": "local_sgd"},
    "local_sgd, dealt": {"strategy": "local_sgd", "split": "class:0.5", "average_every": 1, "start": "own"},
    "gossip": {"strategy": "gossip"},
    "gossip, dealt": {
        "strategy": "gossip",
        "split": "class:0.5",
        "average_every": 1,
        "until_error": 1.35,
        "epochs": 20,
    },
    "asynchronous": {"strategy": "parameter_server", "asynchronous": True, "epochs": 12},
}
OWN_ROWS = ("local_sgd", "local_sgd, dealt", "gossip", "gossip, dealt")
RING = {"gossip": CLOSE_JOBS["gossip"], "gossip, wide": {"strategy": "gossip", "network": "wide", "epochs": 1}}
CLOSE_MODES = {
    ("processes", 2): CLOSE_JOBS,
    ("processes", 3): CLOSE_JOBS,
    ("processes", 4): {**{name: {"strategy": name} for name in ("data+tensor", "data+pipeline")}, **RING},
    ("mpi", 2): {"gossip": CLOSE_JOBS["gossip"]},
    ("mpi", 3): {name: CLOSE_JOBS[name] for name in ("allreduce", "parameter_server", *OWN_ROWS)},
    ("mpi", 4): RING,
}


def check_close(found: dict, name: str, workers: int, plain: nn.Module) -> None:
    history = found["history"]
    if name == "asynchronous":  # another algorithm: it learns, and says how stale its gradients were
        assert history[-1]["train_loss"] < 0.8 * history[0]["train_loss"]
        assert max(record["staleness_max"] for record in history) >= (1 if workers > 2 else 0)
        assert all(0 <= record["staleness_mean"] <= record["staleness_max"] for record in history)
        return
    if name in (*OWN_ROWS, *RING):  # over threads they are compared with the same by hand
        threads = over_threads({**CLOSE_JOBS, **RING}[name], workers)
        assert far(found["model"], threads.model) < CLOSE, (workers, name)
        assert [record["valid_loss"] for record in history] == pytest.approx(
            [record["valid_loss"] for record in threads.history], rel=1e-5
        )
        return
    assert far(found["model"], plain) < CLOSE, (workers, name)
    assert history[-1]["valid_accuracy"] > 0.4, (workers, name)


def over_threads(job: dict, workers: int) -> parallel.Result:
    job = {**SETTINGS, **job, "backend": "threads", "workers": workers}
    return parallel.fit(network(job.pop("network", "plain")), data(), data(40, 2), **job)


def test_batches_are_counted_alike_where_a_worker_has_no_rows_in_the_last_one():
    """The last batch has 3 rows, enough for one shard only, and running means without momentum depend on the count."""
    job = Job(**SETTINGS, strategy="allreduce", exact=True, blas_threads=1, backend="processes", workers=3)
    ends = []
    for workers in (1, 3):
        model = network("stateful")
        model[2].momentum, model[3] = None, nn.Identity()
        run_threads(replace(job, workers=workers), model, data(), None, silent)
        ends.append(model)
    assert ends[0][2].num_batches_tracked == 20
    assert same_bits(*ends)


class Odd(nn.Module):
    """Gradients that two parameters share, or that repeat one number; in double precision."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = (nn.Parameter(torch.randn(4, dtype=torch.float64)) for _ in range(2))
        self.level = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.linear = nn.Linear(12, 4, dtype=torch.float64)

    def forward(self, inputs):
        return self.linear(inputs.double()) + (self.one + self.other) + self.level.sum()


def test_gradients_that_share_memory_are_summed_once_and_double_precision_is_kept():
    found = []
    for workers in (1, 2, 4):
        job = {**SETTINGS, "strategy": "allreduce", "backend": "threads", "workers": workers, "exact": True}
        found.append(parallel.fit(Odd(), data(), **job).model)
    model = Odd()
    plain_loop(model, data(), SETTINGS["epochs"])
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])
    assert far(found[0], model) < 1e-10  # single precision would be at 1e-7


def test_another_seed_gives_other_bits(exact_alone):
    job = {**SETTINGS, "strategy": "allreduce", "backend": "threads", "workers": 2, "exact": True, "seed": 1}
    assert not same_bits(parallel.fit(network(), data(), **job).model, exact_alone["allreduce", "plain"].model)


# ---- close to the plain loop ----


@pytest.mark.parametrize("strategy", ["serial", "blas"])
def test_one_worker_is_the_plain_loop(strategy, plain):
    assert far(parallel.fit(network(), data(), strategy=strategy, **SETTINGS).model, plain) < CLOSE


@pytest.mark.parametrize("strategy", ["allreduce", "pipeline"])
def test_exact_mode_is_close_to_the_plain_loop(strategy, exact_alone, plain):
    assert far(exact_alone[strategy, "plain"].model, plain) < CLOSE


def test_threads_without_exactness_are_close_too(plain):
    job = {**SETTINGS, "strategy": "allreduce", "backend": "threads", "workers": 3, "exact": False}
    assert far(parallel.fit(network(), data(), **job).model, plain) < CLOSE


# ---- other algorithms, against the same by hand ----


def by_hand(workers: int, every: int | str, epochs: int) -> nn.Module:
    """Local SGD by hand: copies of the model are trained separately, and averaged now and then."""
    rows = data()
    X, y = rows.tensors
    models = [network() for _ in range(workers)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in models]
    owner = torch.empty(ROWS, dtype=torch.int64)
    for worker, (start, end) in enumerate(shares(ROWS, workers)):
        owner[order_of(ROWS, 0, -1)[start:end]] = worker
    seen = [0] * workers

    def average(counts):
        with torch.no_grad():
            for parts in zip(*(model.parameters() for model in models), strict=True):
                mean = sum(part * (count / sum(counts)) for part, count in zip(parts, counts, strict=True))
                for part in parts:
                    part.copy_(mean)

    for epoch in range(epochs):
        order = order_of(ROWS, 0, epoch)
        size = ROWS if isinstance(every, str) else every * BATCH * workers
        for begin in range(0, ROWS, size):
            rows_now = order[begin : begin + size]
            seen = [0] * workers
            for worker, (start, end) in enumerate(shares(len(rows_now), workers)):
                mine = rows_now[owner[rows_now] == worker] if isinstance(every, str) else rows_now[start:end]
                for batch in mine.split(BATCH):
                    optimizers[worker].zero_grad()
                    nn.functional.cross_entropy(models[worker](X[batch]), y[batch]).backward()
                    optimizers[worker].step()
                    seen[worker] += len(batch)
            if every != "end":
                average(seen)
    if every == "end":
        average(seen)
    return models[0]


@pytest.mark.parametrize("every", ["epoch", "end", 1, 2])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_local_sgd_is_what_one_would_write_by_hand(workers, every):
    job = {**SETTINGS, "epochs": 3, "optimizer": "sgd", "learning_rate": 0.05, "backend": "threads"}
    result = parallel.fit(network(), data(), strategy="local_sgd", workers=workers, average_every=every, **job)
    assert far(result.model, by_hand(workers, every, 3)) < CLOSE


def test_an_asynchronous_server_with_one_worker_is_the_plain_loop_and_never_stale(plain):
    job = {**SETTINGS, "strategy": "parameter_server", "backend": "threads", "workers": 1, "asynchronous": True}
    result = parallel.fit(network(), data(), **job)
    assert far(result.model, plain) < CLOSE
    assert [record["staleness_max"] for record in result.history] == [0.0] * SETTINGS["epochs"]


# ---- folds ----


def test_folds_are_separate_fits_on_the_rest_of_the_rows():
    from shoal.parallel.data.loader import epoch_order

    result = parallel.fit(network(), data(), strategy="kfold", backend="threads", workers=2, folds=4, **SETTINGS)
    assert len(result.folds) == 4
    order = epoch_order(ROWS, 0, -2, True)
    start, end = shares(ROWS, 4)[2]
    rest = torch.utils.data.TensorDataset(*(t[torch.cat([order[:start], order[end:]])] for t in data().tensors))
    kept = torch.utils.data.TensorDataset(*(t[order[start:end]] for t in data().tensors))
    alone = parallel.fit(network(), rest, kept, strategy="serial", **SETTINGS)
    assert far(result.folds[2].model, alone.model) < CLOSE
    assert result.metrics["valid_loss"] == pytest.approx(
        sum(fold.metrics["valid_loss"] for fold in result.folds) / 4, rel=1e-9
    )
    best = min(range(4), key=lambda k: result.folds[k].metrics["valid_loss"])
    assert same_bits(result.model, result.folds[best].model)


def test_folds_with_more_workers_than_folds_are_data_parallel():
    job = {**SETTINGS, "strategy": "kfold", "backend": "threads", "folds": 2}
    many = parallel.fit(network(), data(), workers=4, **job)
    few = parallel.fit(network(), data(), workers=1, **job)
    assert [fold.metrics["workers"] for fold in many.folds] == [2, 2]
    assert [fold.metrics["strategy"] for fold in many.folds] == ["allreduce", "allreduce"]
    for one, other in zip(many.folds, few.folds, strict=True):
        assert far(one.model, other.model) < CLOSE


# ---- what cannot change the caller's world ----


def test_the_callers_generator_and_threads_are_left_alone():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    parallel.fit(network("random"), data(), strategy="allreduce", backend="threads", workers=2, **SETTINGS)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_a_group_of_one_sums_what_it_has():
    vector = torch.arange(6.0)
    assert torch.equal(Alone().tree_sum({(0, 4): vector}, 4, 4, vector), vector)


def test_the_model_given_is_the_model_trained():
    model = network()
    before = copy.deepcopy(model)
    result = parallel.fit(model, data(), strategy="serial", **SETTINGS)
    assert result.model is model
    assert far(model, before) > 1e-3

"""Links, curves, options, events, the noise scale: each part of the planner by itself."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.planner import network
from torch import nn
from torch.utils.data import TensorDataset

from shoal.errors import UserError
from shoal.parallel.cost import buckets_of
from shoal.parallel.data.loader import Loader
from shoal.parallel.job import Job
from shoal.parallel.networks import make_model
from shoal.parallel.strategies.parameter_server import serve
from shoal.planner.cost.cluster import Cluster, Hardware, NodeLink
from shoal.planner.cost.curves import Curve
from shoal.planner.cost.times import slowest_of
from shoal.planner.measure.calibration import _contention, row_sizes
from shoal.planner.measure.facts import facts_of
from shoal.planner.measure.measuring import needed_sizes
from shoal.planner.options import PlanOptions
from shoal.planner.planning import trace_of
from shoal.planner.simulate.accuracy import Scores
from shoal.planner.simulate.noise import estimate, noise_scale
from shoal.planner.variants import VARIANTS, find_variants

# ---- links ----


@pytest.mark.parametrize(
    ("text", "bandwidth", "latency"),
    [("1gbit,0.1ms", 125e6, 1e-4), ("100 Mbit/s, 50us", 12.5e6, 5e-5), ("10gbps", 1.25e9, 0.0),
     ("200mbyte,1s", 200e6, 1.0), ("1.5gbit,0", 187.5e6, 0.0)],
)  # fmt: skip
def test_links_as_people_write_them(text, bandwidth, latency):
    assert NodeLink.parse(text) == NodeLink(pytest.approx(bandwidth), pytest.approx(latency))


@pytest.mark.parametrize(
    ("text", "says"),
    [("1000", "has no unit"), ("1gbit,5", "has no unit"), ("fast", "a number with a unit"),
     ("1gbit,1ms,2", "as in --link 1gbit,0.1ms"),
     ("1gibt", "did you mean 'gbit'"), ("-1gbit", "a number with a unit"), ("1gbit,", "as in --link 1gbit,0.1ms"),
     ("1..5gbit", "a number with a unit")],
)  # fmt: skip
def test_links_that_are_none_end_in_a_sentence(text, says):
    with pytest.raises(UserError, match="--link") as caught:
        NodeLink.parse(text)
    assert says in str(caught.value)


def test_a_message_takes_latency_and_bytes():
    assert Cluster(NodeLink(1e6, 0.5)).wire(0.95 * 2e6) == pytest.approx(2.5)  # the rest is for headers
    assert Cluster(NodeLink(0.0, 0.0)).wire(1) == math.inf


@pytest.mark.parametrize("text", ["4tflops", "4tflops,200", "x,y", "0gflops,1gb/s"])
def test_hardware_that_is_none(text):
    with pytest.raises(UserError, match="as in --node 4tflops,200gb/s"):
        Hardware.parse(text)


# ---- curves ----


@given(fixed=st.floats(1e-6, 1), slope=st.floats(1e-9, 1e-2), size=st.floats(0.1, 1e5))
def test_a_curve_finds_the_line_it_was_made_of(fixed, slope, size):
    curve = Curve(tuple((x, fixed + slope * x) for x in (3.0, 24.0, 384.0, 3072.0)))
    assert curve.fixed == pytest.approx(fixed, rel=1e-3, abs=1e-9)
    assert curve(size) == pytest.approx(fixed + slope * size, rel=1e-3)


def test_a_curve_goes_through_its_points_and_never_falls_beyond_them():
    curve = Curve(((10.0, 2.0), (20.0, 5.0), (40.0, 4.0)))
    assert [curve(x) for x in (10, 15, 20, 40)] == [2.0, 3.5, 5.0, 4.0]
    assert curve(400) == 4.0


def test_a_curve_takes_the_best_and_says_how_far_they_spread():
    curve = Curve.of({10.0: [1.0, 1.1, 9.0, 1.0, 1.2]})
    assert curve.points == ((10.0, 1.0),)
    assert curve.spread > 0


@given(needed=st.lists(st.floats(1, 5000), min_size=1, max_size=6), rows=st.integers(1, 100_000))
def test_calibration_does_not_see_usual_batch_sizes_but_those_beside_them(needed, rows):
    sizes = row_sizes(needed, rows)
    assert len(sizes) > 1 or rows == 1
    for size in needed:
        if size >= 3 and 2 * size <= rows:
            below, above = max(s for s in sizes if s <= size), min(s for s in sizes if s >= size)
            assert above <= 2 * below
    assert sizes == sorted(set(sizes))
    assert all(size <= rows for size in sizes)
    if rows >= 3:
        assert not set(sizes) & {1 << k for k in range(2, 20)} or rows < 6


@given(
    nodes=st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True), batch=st.integers(1, 5000),
    rows=st.integers(20, 50_000), each=st.booleans(),
)  # fmt: skip
def test_what_a_plan_needs_is_measured_beside(nodes, batch, rows, each):
    """Steps of the whole batch, or of all rows if they are fewer, lie between measured ones or close above them."""
    options = PlanOptions(nodes=tuple(sorted({1, *nodes})), batch_size=batch, batch_per_node=each)
    needed = needed_sizes(options, rows)
    sizes = row_sizes(needed, rows)
    assert len(sizes) <= 16
    for count in options.nodes:
        for size in (min(rows, batch * (count if each else 1)), min(batch, rows / count)):
            assert size in needed
            assert size <= 2 * sizes[-1]


def test_contention_is_a_ratio_smoothed_over_neighbours():
    measured = {"alone 6": 1.0, "together 6": 1.1, "alone 12": 2.0, "together 12": 6.0, "alone 24": 4.0,
                "together 24": 4.8, "alone 48": 8.0, "together 48": 7.0, "step gossip 8": 3.0}  # fmt: skip
    assert _contention(measured) == ((6, pytest.approx(2.05)), (12, pytest.approx(1.2)), (24, pytest.approx(1.2)),
                                     (48, pytest.approx(1.1)))  # fmt: skip
    assert _contention({}) == ()


# ---- options ----


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"nodes": "0"}, "from 1 to 4096"), ({"nodes": "2-x"}, "as in 1,2,4-8"), ({"nodes": "8-2"}, "write 2-8"),
     ({"goal": "accuracy"}, "as in accuracy=0.97"), ({"goal": "loss=3"}, "accuracy, r2"),
     ({"goal": "accuracy=97"}, "below 1"), ({"strategy": ("ring",)}, "strategy must be"),
     ({"node_speed": "1,0"}, "positive"), ({"split": "class:0"}, "positive"), ({"price": -1}, "price"),
     ({"backend": "threads", "link": "1gbit"}, "threads of one machine"),
     ({"shares": (2, 1), "nodes": (2, 4)}, "nodes 2"),
     ({"rate_rule": "cube"}, "none, linear, sqrt"), ({"link": "1000"}, "no unit")],
)  # fmt: skip
def test_options_that_make_no_sense_end_in_a_sentence(settings, says):
    with pytest.raises(UserError) as caught:
        PlanOptions(**settings)
    assert says in str(caught.value)


def test_nodes_always_have_one_to_compare_with():
    assert PlanOptions(nodes="4,2").nodes == (1, 2, 4)
    assert PlanOptions(nodes="1-64").nodes == tuple(range(1, 65))


def test_with_a_link_nodes_are_machines_of_their_own():
    assert PlanOptions(link="1gbit").own_machines
    assert not PlanOptions().own_machines
    assert not PlanOptions(link="1gbit", share_machine=True).own_machines


def test_strategies_by_name():
    assert [variant.name for variant in find_variants("allreduce,local_sgd:5,gossip:3")] == [
        "allreduce", "local_sgd:5", "gossip:3"
    ]  # fmt: skip
    assert {variant.name for variant in find_variants("all")} == set(VARIANTS)
    with pytest.raises(UserError, match="did you mean 'pipeline'"):
        find_variants("pipelin")


# ---- facts ----


def test_linear_layers_are_split_in_the_pairs_of_the_tensor_strategy():
    """However they are nested: a sum of each pair's outputs, and of its inputs unless it is the first."""
    flat = make_model("mlp:6-8-10-12-3")
    nested = nn.Sequential(flat[:3], nn.ReLU(), flat[4:])
    rows = TensorDataset(torch.randn(8, 6), torch.arange(8) % 3)
    one, other = (facts_of(model, Loader(rows, torch.device("cpu")), Job(strategy="blas", workers=1))
                  for model in (flat, nested))  # fmt: skip
    assert one.pairs == other.pairs
    assert [pair.sums for pair in one.pairs] == [(10,), (3, 10)]
    assert sum(pair.flops for pair in one.pairs) == one.flops == other.flops  # as torch counts them
    assert [layer.kind for layer in other.layers] == ["Sequential", "ReLU", "Sequential"]


def test_linear_layers_behind_others_and_over_sequences():
    """Behind a convolution the gradient of inputs is summed too; every place of a sequence counts."""
    images = TensorDataset(torch.randn(4, 1, 6, 6), torch.arange(4) % 3)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 3))
    job = Job(strategy="blas", workers=1)
    (pair,) = facts_of(model, Loader(images, torch.device("cpu")), job).pairs
    assert pair.sums == (3, 32)
    assert pair.flops == 6 * (32 * 5 + 5 * 3)
    sequences = TensorDataset(torch.randn(4, 7, 6), torch.arange(4) % 3)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2), nn.Flatten(), nn.Linear(14, 3))
    found = facts_of(model, Loader(sequences, torch.device("cpu")), job)
    assert [pair.sums for pair in found.pairs] == [(14,), (3, 14)]
    assert sum(pair.flops for pair in found.pairs) == found.flops


def test_facts_of_a_perceptron():
    rows = TensorDataset(torch.zeros(8, 64), torch.zeros(8, dtype=torch.int64))
    model = make_model("mlp:64-256-256-256-10")
    job = Job(strategy="blas", workers=1, optimizer="sgd")
    found, expected = facts_of(model, Loader(rows, torch.device("cpu")), job), network()
    assert found.parameters == expected.parameters == sum(p.numel() for p in model.parameters())
    assert sorted(found.tensors) == sorted(expected.tensors)
    assert found.width == 4 * (found.parameters + 1)
    assert found.state == 0
    assert found.row == 4 * 64 + 8
    assert [layer.kind for layer in found.layers] == [layer.kind for layer in expected.layers]
    adam = facts_of(model, Loader(rows, torch.device("cpu")), Job(strategy="blas", workers=1, optimizer="adam"))
    assert adam.state == pytest.approx(8 * found.parameters, rel=0.01)
    assert adam.averaged == sum(adam.tensors) + adam.state


def test_buckets_are_those_of_ddp():
    """784-1024-1024-10: the last two matrices fill the first bucket, the first matrix is the second one."""
    tensors = [4 * 784 * 1024, 4 * 1024, 4 * 1024 * 1024, 4 * 1024, 4 * 1024 * 10, 40]
    found = buckets_of(tensors)
    assert len(found) == 2
    assert sum(found) == sum(tensors)
    assert found[0] == 40 + 4 * 10240 + 4 * 1024 + 4 * 1024 * 1024


# ---- events ----


def test_one_worker_of_a_server_waits_for_every_answer():
    found = serve([5], [2.0], message=0.5, occupied=0.5, service=1.0)
    assert found.seconds == pytest.approx(5 * (2.0 + 0.5 + 1.0 + 0.5))
    assert found.staleness == 0


@given(workers=st.integers(1, 12), steps=st.integers(1, 9), work=st.floats(0.01, 10), service=st.floats(0.001, 10))
def test_a_server_is_bounded_by_its_own_work_and_by_the_slowest_worker(workers, steps, work, service):
    found = serve([steps] * workers, [work] * workers, 0.0, 0.0, service)
    assert found.seconds >= max(workers * steps * service, steps * (work + service)) * (1 - 1e-9)
    assert found.seconds <= steps * (work + workers * service) * (1 + 1e-9)
    assert 0 <= found.staleness <= workers - 1 + 1e-9


def test_the_server_is_the_same_in_every_run():
    jitter = (0.9, 1.0, 1.3)
    first, again = (serve([20, 20], [1.0, 1.2], 0.1, 0.1, 0.2, jitter, seed=3) for _ in range(2))
    assert first == again
    assert serve([20, 20], [1.0, 1.2], 0.1, 0.1, 0.2, jitter, seed=4).seconds != first.seconds


def test_the_slowest_of_many_steps():
    """Of n draws from one and two, the largest is two unless all are one."""
    assert slowest_of(1, [1.0, 2.0]) == 1
    for nodes in (2, 4):
        assert slowest_of(nodes, [1.0, 2.0]) * 1.5 == pytest.approx(2 - 0.5**nodes, abs=0.08)
    assert slowest_of(64, [1.0, 2.0]) * 1.5 == pytest.approx(2)


# ---- the noise scale ----


def test_the_noise_scale_of_gradients_with_known_noise():
    """Gradients of rows: a vector of squared length 4, and noise of total variance 100: the ratio is 25."""
    chance = random.Random(0)
    true = [2.0] + [0.0] * 24

    def gradient(rows):
        return [g + chance.gauss(0, 2 / math.sqrt(rows)) for g in true]

    norms = [tuple(sum(x * x for x in gradient(rows)) for rows in (8, 64)) for _ in range(4000)]
    found = estimate(norms, 8, 64)
    assert found.critical_batch == pytest.approx(25, rel=0.1)
    assert found.low < 25 < found.high


def test_a_network_without_noise_has_a_small_critical_batch():
    """All rows are equal: one is as good as many."""
    torch.manual_seed(0)
    equal = TensorDataset(torch.ones(200, 5), torch.zeros(200, dtype=torch.int64))
    mixed = TensorDataset(torch.randn(200, 5), torch.randint(0, 3, (200,)))
    job = Job(strategy="blas", workers=1, optimizer="sgd", learning_rate=0.01, batch_size=8)
    model = nn.Linear(5, 3)
    assert noise_scale(job, model, equal).critical_batch < 0.01
    assert noise_scale(job, model, mixed).critical_batch > 20


# ---- scores, traces ----


def test_the_interval_is_students():
    scores = Scores(((0.5, 0.90), (0.5, 0.92), (0.5, 0.94)))
    low, high = scores.interval()
    half = 4.30265 * 0.02 / math.sqrt(3)
    assert (low, high) == (pytest.approx(0.92 - half), pytest.approx(0.92 + half))
    assert Scores(((0.5, 0.9),)).interval() is None


def test_epochs_to_a_goal_lie_between_two_epochs():
    scores = Scores(((0.5, 0.7, 0.9),))
    assert scores.epochs_to(0.8) == pytest.approx(2.5)
    assert scores.epochs_to(0.4) == 1
    assert scores.epochs_to(0.95) is None


def test_a_trace_has_a_process_for_each_node_and_a_thread_for_each_lane():
    spans = [{"node": 1, "lane": "link", "name": "all-reduce", "start": 0.5, "seconds": 0.25},
             {"node": 0, "lane": "compute", "name": "forward", "start": 0.0, "seconds": 0.5}]  # fmt: skip
    found = trace_of(spans, "a step")
    events = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in events] == [
        (1, 1, "all-reduce", 500_000.0, 250_000.0), (0, 0, "forward", 0.0, 500_000.0)
    ]  # fmt: skip
    names = {(e["pid"], e["args"]["name"]) for e in found["traceEvents"] if e["name"] == "process_name"}
    assert names == {(0, "node 0"), (1, "node 1")}

"""Laws of the cost model: they hold for any network, machine and link."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planner import cost_model, machine, network

from shoal.parallel.cost import SHORTEST, overlapped
from shoal.planner.cost.cluster import PAYLOAD_SHARE, Cluster, Hardware, NodeLink
from shoal.planner.cost.curves import Curve
from shoal.planner.measure.calibration import between_two
from shoal.planner.variants import VARIANTS
from shoal.planner.verdict import bandwidth_from, batch_from, speedup

PERFECT = NodeLink(math.inf, 0.0)
NAMES = [name for name in VARIANTS if name != "kfold"]
PAIRS = ("data+tensor", "data+pipeline")  # these need an even number of nodes
SHARED = ["allreduce", "allreduce-exact", "parameter_server", "local_sgd:8", "local_sgd:epoch", "gossip"]


def round_of(model, name, rows, nodes):
    return VARIANTS[name].strategy.round_cost(model, VARIANTS[name], rows, nodes)


@pytest.mark.parametrize("name", NAMES)
@given(rows=st.integers(1, 5000), batch=st.integers(1, 600))
def test_one_node_costs_what_training_alone_costs(name, rows, batch):
    model = cost_model(NodeLink(1e6, 1e-3), rows=rows, batch_size=batch)
    found = model.estimate(VARIANTS[name], 1)
    whole, rest = divmod(rows, batch)
    alone = whole * model.plain(batch) + (model.plain(rest) if rest else 0.0)
    assert found.seconds == pytest.approx(alone)
    assert found.communicating == found.sent == 0


@pytest.mark.parametrize("name", [name for name in NAMES if "async" not in name])
@given(nodes=st.sampled_from([2, 4, 6]), batch=st.integers(16, 600))
def test_a_perfect_link_gives_the_compute_bound(name, nodes, batch):
    """No time on the link, none in software: what is left is computing."""
    model = cost_model(PERFECT, batch_size=batch)
    found = model.estimate(VARIANTS[name], nodes)
    assert found.communicating == 0
    slow = cost_model(NodeLink(1e6, 1e-3), batch_size=batch).estimate(VARIANTS[name], nodes)
    assert slow.seconds + slow.finish > found.seconds + found.finish
    if name == "allreduce":
        whole, rest = divmod(model.rows, batch)
        bound = whole * model.plain(-(-batch // nodes)) + (model.plain(-(-rest // nodes)) if rest else 0.0)
        assert found.seconds == pytest.approx(bound)


@pytest.mark.parametrize("name", ["allreduce", "allreduce-exact", "parameter_server", "sharded", "local_sgd:epoch"])
@given(nodes=st.integers(2, 40), fixed=st.floats(1e-6, 1e-2), slope=st.floats(1e-8, 1e-3), batch=st.integers(64, 2048))
def test_more_nodes_never_raise_the_compute_part(name, nodes, fixed, slope, batch):
    model = cost_model(PERFECT, batch_size=batch, calibration=machine(fixed, slope), rows=64 * 2048, shards=64)
    few, many = (model.estimate(VARIANTS[name], count) for count in (nodes - 1, nodes))
    if nodes == 2 and name == "allreduce-exact":  # one node does not cut its batches into shards
        return
    assert many.seconds - many.communicating <= (few.seconds - few.communicating) * (1 + 1e-9)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("shards", [1, 4, 8, 16])
def test_the_bubble_of_a_pipeline(stages, shards):
    """(p - 1) / (m + p - 1) of the turns."""
    equal = replace(machine(), facts=network((256,) * (stages + 1)))
    model = cost_model(PERFECT, batch_size=128, shards=shards, calibration=equal)
    phases = {phase.name: phase.seconds for phase in round_of(model, "pipeline", 128, stages).phases}
    busy = phases["forward"] + phases["backward"]
    assert phases["bubble"] / (phases["bubble"] + busy) == pytest.approx((stages - 1) / (shards + stages - 1))


def test_stages_of_a_pipeline_hinder_each_other_while_both_are_busy():
    """Equal stages: as if all computed at the same time. One that has all the work: as if it were alone."""
    slowed = machine(contention=((1.0, 2.0), (512.0, 2.0)))
    equal, lopsided = network((256, 256, 256)), network((256, 256, 1))

    def turn(facts, calibration):
        model = cost_model(None, own_machines=False, batch_size=128, calibration=replace(calibration, facts=facts))
        phases = {phase.name: phase.seconds for phase in round_of(model, "pipeline", 128, 2).phases}
        return phases["forward"] + phases["backward"] + 8 * model.apply(2) * max_part(facts)

    def max_part(facts):
        flops = [layer.flops for layer in facts.layers if layer.flops]
        return max(flops) / sum(flops)

    assert turn(equal, slowed) == pytest.approx(2 * turn(equal, machine()))
    assert turn(lopsided, slowed) == pytest.approx(turn(lopsided, machine()), rel=0.01)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "local_sgd:end"])
def test_a_link_of_no_bandwidth_never_pays(name):
    for rows, batch in ((10_000, 128), (100, 128), (10, 4)):  # whole rounds; less than one
        model = cost_model(NodeLink(0.0, 0.0), rows=rows, batch_size=batch)
        assert speedup(model, VARIANTS[name], 4 if name in PAIRS else 2) == 0


@given(folds=st.integers(2, 12), rows=st.integers(4, 400), batch=st.integers(1, 600), nodes=st.integers(2, 6))
def test_folds_of_nodes_whose_last_steps_are_short_take_time(folds, rows, batch, nodes):
    """However much steps vary, and however few rows the last one has."""
    shaky = machine(fixed=1e-6, slope=1e-5, jitter=(0.1, 0.1, 2.8))
    model = replace(cost_model(PERFECT, rows=nodes * rows, batch_size=batch, calibration=shaky), node_folds=folds)
    found = model.estimate(VARIANTS["local_sgd:epoch"], nodes)
    own = rows - rows // folds
    assert found.seconds >= folds * own * 1e-5 / 2 * (1 - 1e-9)  # two cores


@pytest.mark.parametrize("name", SHARED)
@given(rate=st.floats(1e5, 1e10), faster=st.floats(1.01, 100), latency=st.floats(0, 1e-2), nodes=st.integers(2, 64))
def test_a_faster_link_is_never_slower(name, rate, faster, latency, nodes):
    slow = cost_model(NodeLink(rate, latency), shards=64).estimate(VARIANTS[name], nodes)
    fast = cost_model(NodeLink(rate * faster, latency), shards=64).estimate(VARIANTS[name], nodes)
    late = cost_model(NodeLink(rate, latency + 1e-3), shards=64).estimate(VARIANTS[name], nodes)
    assert fast.seconds <= slow.seconds <= late.seconds


def test_a_ring_sends_two_times_n_minus_one_nths():
    model = cost_model(NodeLink(1e9, 0.0), rows=128)
    for nodes in (2, 3, 8):
        found = model.estimate(VARIANTS["allreduce"], nodes)
        assert found.sent == pytest.approx(2 * (nodes - 1) / nodes * model.calibration.facts.width)


def test_software_costs_the_same_per_byte_for_any_number_of_nodes_of_a_ring():
    """Measured between two: a ring of n moves 2 (n - 1) / n of the vector, two move the whole of it."""
    model = cost_model(None, calibration=machine(software=1e-9))
    two = model.messages(2).all_reduce(1e6, 2)
    assert two == pytest.approx(1e-3)
    assert model.messages(8).all_reduce(1e6, 8) == pytest.approx(2 * 7 / 8 * 1e-3)


def test_a_tree_has_fewer_steps_than_a_ring_for_the_same_bytes():
    late, wide = NodeLink(math.inf, 1e-3), NodeLink(1e6, 0.0)
    for nodes, steps in ((2, 2), (4, 4), (5, 6), (8, 6)):
        tree, ring = (cost_model(late, backend=backend).messages(nodes) for backend in ("mpi", "processes"))
        assert tree.all_reduce(1e6, nodes) == pytest.approx(steps * 1e-3)
        assert ring.all_reduce(1e6, nodes) == pytest.approx(2 * (nodes - 1) * 1e-3)
        same = [cost_model(wide, backend=backend).messages(nodes).all_reduce(1e6, nodes) for backend in
                ("mpi", "processes")]  # fmt: skip
        assert same[0] == pytest.approx(same[1] / 1.08) == pytest.approx(2 * (nodes - 1) / nodes / PAYLOAD_SHARE)


def test_two_nodes_take_what_was_measured_between_two():
    measured = machine(software=1e-9)
    for backend in ("mpi", "processes"):
        model = cost_model(None, calibration=measured, backend=backend)
        assert model.messages(2).all_reduce(3e6, 2) == pytest.approx(measured.messages["all_reduce"](3e6))


def test_nodes_that_share_a_machine_share_its_cores():
    """With more nodes than cores each gets its turn: computing does not get faster."""
    model = cost_model(None, own_machines=False, batch_size=256)
    two, four, eight = (model.estimate(VARIANTS["local_sgd:end"], nodes).seconds for nodes in (2, 4, 8))
    assert four == pytest.approx(two, rel=0.1)
    assert eight == pytest.approx(two, rel=0.1)
    own = cost_model(PERFECT, batch_size=256)
    assert own.estimate(VARIANTS["local_sgd:end"], 8).seconds < two / 3


def test_contention_for_memory_is_measured_and_counted():
    slowed = machine(contention=((32.0, 1.2), (96.0, 1.8)))  # halfway between, at 64 rows: 1.5
    model = cost_model(None, own_machines=False)
    busy = replace(model, calibration=slowed)
    assert busy.vector(64, 2) == pytest.approx(1.5 * model.vector(64, 2))
    assert busy.vector(64, 1) == model.vector(64, 1)


def test_the_slowest_node_counts():
    model = cost_model(PERFECT, speeds=(1, 1, 0.5))
    even = cost_model(PERFECT)
    for name in ("allreduce", "allreduce-exact", "local_sgd:epoch"):
        slow, fast = (m.estimate(VARIANTS[name], 3).seconds for m in (model, even))
        assert 1.4 * fast < slow <= 2 * fast  # the update is not slower where it was measured apart
        assert model.estimate(VARIANTS[name], 2).seconds == pytest.approx(even.estimate(VARIANTS[name], 2).seconds)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 0.99))
def test_overlap_lies_between_the_sum_and_the_larger(backward, summed, share):
    both = overlapped(backward, summed, share)
    assert max(backward, summed) * (1 - 1e-9) <= both <= (backward + summed) * (1 + 1e-9)


@given(rate=st.floats(1e6, 1e9), latency=st.floats(0, 1e-3))
def test_the_break_even_bandwidth_is_where_it_begins_to_pay(rate, latency):
    model = cost_model(NodeLink(rate, latency), batch_size=512, calibration=machine(slope=1e-4))
    found = bandwidth_from(model, VARIANTS["allreduce"], 2)
    assert found is not None

    def at(bandwidth):
        cluster = replace(model.cluster, link=NodeLink(bandwidth, latency))
        return speedup(replace(model, cluster=cluster), VARIANTS["allreduce"], 2)

    assert at(found) > 1 >= at(found / 1.02)


def test_the_break_even_batch_is_where_it_begins_to_pay():
    model = cost_model(NodeLink(12.5e6, 1e-4), batch_size=16, calibration=machine(slope=2e-4))
    found = batch_from(model, VARIANTS["allreduce"], 2)
    assert found is not None
    at = {size: speedup(replace(model, job=replace(model.job, batch_size=size)), VARIANTS["allreduce"], 2)
          for size in (found // 2, found)}  # fmt: skip
    assert at[found] > 1 >= at[found // 2]


@pytest.mark.parametrize("name", ["allreduce", "local_sgd:8", "gossip", "parameter_server"])
def test_what_working_together_takes_beyond_the_model_does_not_wait_for_the_link(name):
    here = machine()
    model = cost_model(None, own_machines=False, calibration=here, rows=1024, batch_size=32)
    slower = replace(model, calibration=replace(here, overhead={VARIANTS[name].small_name: 0.01}))
    before, after = (one.estimate(VARIANTS[name], 2) for one in (model, slower))
    assert after.seconds > before.seconds + 0.009
    assert after.communicating == pytest.approx(before.communicating)


def test_small_steps_that_were_measured_correct_the_model():
    """What a step of few rows takes beyond the model is taken to be the same for every step."""
    plain = cost_model(None, own_machines=False)
    rows = 16
    explained = round_of(plain, "allreduce", rows, 2).seconds
    corrected = replace(plain, calibration=replace(plain.calibration, small={"allreduce": (rows, explained + 1e-3)}))
    rounds = -(-plain.rows // plain.job.batch_size)
    difference = corrected.estimate(VARIANTS["allreduce"], 2).seconds - plain.estimate(VARIANTS["allreduce"], 2).seconds
    assert difference == pytest.approx(rounds * 1e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PAIRS])
@given(less=st.floats(0.01, 5), batch=st.integers(1, 600), rows=st.integers(1, 5000))
def test_small_steps_that_took_less_than_the_model_says_make_all_steps_shorter(name, less, batch, rows):
    """By the same seconds of each round, down to a part of what the model says."""
    plain = cost_model(None, own_machines=False, batch_size=batch, rows=rows)
    variant, small = VARIANTS[name], 16
    inside = replace(plain, job=replace(plain.job, batch_size=small))
    known = round_of(inside, name, small, 2).seconds if "async" not in name else 1e-3
    measured = {variant.small_name: (small, known / (1 + less))}
    corrected = replace(plain, calibration=replace(plain.calibration, small=measured))
    before, after = (model.estimate(variant, 2) for model in (plain, corrected))
    assert 0 < SHORTEST * before.seconds * (1 - 1e-9) <= after.seconds
    assert 0 <= after.communicating <= after.seconds * (1 + 1e-9)
    if name == "local_sgd:end":  # nothing is sent in an epoch
        assert after.seconds == before.seconds
    elif "async" not in name:
        assert after.seconds < before.seconds
    elsewhere = replace(corrected, cluster=replace(plain.cluster, own_machines=True))
    assert elsewhere.unexplained(variant) == max(0.0, elsewhere._beyond(variant))
    if name in ("allreduce", "parameter_server", "tensor", "sharded") and rows % batch == 0:
        rounds, difference = rows // batch, known - known / (1 + less)
        assert after.seconds == pytest.approx(max(before.seconds - rounds * difference, SHORTEST * before.seconds))


def test_nodes_that_wait_rarely_wait_less():
    """The slowest of n sums of many steps is nearer to their mean than the slowest of n steps."""
    model = cost_model(PERFECT, calibration=machine(jitter=(0.5, 1.0, 1.5)))
    each, rarely = model.vector(64, 8, 1), model.vector(64, 8, 100)
    still = cost_model(PERFECT).vector(64, 8)
    assert each > 1.3 * still
    assert rarely - still == pytest.approx((each - still) / 10)


def test_who_trains_alone_takes_the_fastest_node():
    even, slow_first = cost_model(PERFECT), cost_model(PERFECT, speeds=(0.25, 1))
    assert slow_first.estimate(VARIANTS["allreduce"], 1).seconds == even.estimate(VARIANTS["allreduce"], 1).seconds
    assert slow_first.plain(64, 2) == pytest.approx(4 * even.plain(64, 2))


def test_gloo_is_hindered_by_bytes_both_ways_and_a_ring_in_segments_hardly():
    link = NodeLink(1e6, 0.0)
    gloo, mpi = (cost_model(link, backend=backend).messages(2) for backend in ("processes", "mpi"))
    assert mpi.tree_sum(1e6, 2, 8) == pytest.approx(1 / PAYLOAD_SHARE)
    assert gloo.tree_sum(1e6, 2, 8) == pytest.approx((1.7 + 1.3) / 2 / PAYLOAD_SHARE)
    assert gloo.all_reduce(1e6, 2) == pytest.approx(1.08 / PAYLOAD_SHARE)


def test_folds_are_spread_over_nodes():
    model = cost_model(PERFECT, calibration=machine(cores=1), folds=10)
    one, two, four, ten = (model.estimate(VARIANTS["kfold"], nodes).seconds for nodes in (1, 2, 4, 10))
    assert one / two == pytest.approx(2)
    assert one / four == pytest.approx(10 / 3)
    assert one / ten == pytest.approx(10)


def test_other_hardware_scales_products_and_copies_apart():
    """Twice the operations a second: what each row costs is halved, the fixed part follows the memory."""
    here = machine(fixed=1e-3, slope=1e-5)
    same = Hardware(here.peak_flops, here.peak_bytes)
    faster = Hardware(2 * here.peak_flops, here.peak_bytes)
    wider = Hardware(here.peak_flops, 2 * here.peak_bytes)
    seconds = {name: replace(cost_model(calibration=here), cluster=Cluster(hardware=hardware)).plain(400)
               for name, hardware in (("same", same), ("faster", faster), ("wider", wider))}  # fmt: skip
    assert seconds["same"] == pytest.approx(1e-3 + 400 * 1e-5 / 2)
    assert seconds["faster"] == pytest.approx(1e-3 + 400 * 1e-5 / 4)
    assert seconds["wider"] == pytest.approx(1e-3 / 2 + 400 * 1e-5 / 2)


def test_uneven_shares_take_the_time_of_the_largest():
    model = cost_model(PERFECT, rows=1000, batch_size=10)
    uneven = replace(model, shares=(8, 1, 1))
    for name in ("local_sgd:epoch", "gossip"):
        even, most = (one.estimate(VARIANTS[name], 3).seconds for one in (model, uneven))
        assert most / even == pytest.approx(0.8 * 3, rel=0.02)
        assert uneven.estimate(VARIANTS[name], 2).seconds == model.estimate(VARIANTS[name], 2).seconds


@given(folds=st.integers(2, 10), nodes=st.integers(2, 9), batch=st.integers(1, 40))
def test_folds_on_each_node_take_the_time_of_their_networks(folds, nodes, batch):
    """Each node trains a network without each fold of its rows, one after the other, and averages once."""
    model = cost_model(PERFECT, rows=720 * nodes, batch_size=batch)
    for name in ("local_sgd:epoch", "local_sgd:end"):
        folded = replace(model, node_folds=folds).estimate(VARIANTS[name], nodes)
        part = replace(model, rows=nodes * (720 - 720 // folds)).estimate(VARIANTS[name], nodes)
        computing = part.seconds - part.communicating
        assert folded.seconds == pytest.approx(folds * computing + part.communicating)
        alone = replace(model, rows=720, node_folds=folds).estimate(VARIANTS[name], 1)
        assert alone.seconds == pytest.approx(folds * replace(model, rows=720 - 720 // folds).estimate(
            VARIANTS[name], 1).seconds)  # fmt: skip


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_what_many_workers_measured_is_what_the_model_says_of_many(workers):
    measured = Curve(((1e4, 2e-4), (1e6, 5e-3), (4e6, 2e-2)))
    told = replace(machine(), messages={"all_reduce": between_two(measured, workers)})
    model = cost_model(None, calibration=told)
    for size, seconds in measured.points:
        assert model.messages(workers).all_reduce(size, workers) == pytest.approx(seconds)


def test_two_nodes_on_eight_cores_have_four_threads_each():
    model = cost_model(None, own_machines=False, calibration=machine(cores=8))
    one, two = model.plain(512, 1), model.plain(512, 2)
    assert one < two < 2.2 * one

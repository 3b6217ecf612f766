"""Plans of networks and data that are less usual: few rows, data sets of one's own, other losses, links of no use."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.planner import cost_model, machine
from torch import nn
from torch.utils.data import Subset, TensorDataset

from shoal import planner
from shoal.errors import UserError
from shoal.parallel.cost import Facts
from shoal.parallel.data.loader import Loader
from shoal.parallel.job import Job
from shoal.planner import planning
from shoal.planner.measure.facts import facts_of
from shoal.planner.options import PlanOptions
from shoal.planner.planning import Row
from shoal.planner.simulate.accuracy import metric_of
from shoal.planner.simulate.noise import noise_scale
from shoal.planner.variants import VARIANTS
from shoal.planner.verdict import bandwidth_from, epochs_from, judge, speedup

COMMON = {"epochs": 2, "batch_size": 8, "seeds": 1, "nodes": (1, 2), "strategy": "allreduce,local_sgd:epoch"}


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch):
    monkeypatch.setattr(planning, "measure", lambda *_: (machine(), None, ""))


def classes(count: int = 60) -> TensorDataset:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


def numbers(count: int = 60) -> TensorDataset:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def network(outputs: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def accuracies(found: planner.Plan) -> list[float | None]:
    return [row.accuracy for row in found.rows]


# ---- networks ----


class Last(nn.Module):
    def forward(self, value):
        return value[0][:, -1]


def facts(model: nn.Module) -> Facts:
    return facts_of(model, Loader(classes(), torch.device("cpu")), Job(strategy="blas", workers=1))


def test_layers_may_work_in_place():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    assert [layer.flops for layer in facts(model).layers] == [layer.flops for layer in facts(network()).layers]


def test_layers_may_give_something_else_than_a_tensor():
    model = nn.Sequential(nn.Unflatten(1, (4, 1)), nn.LSTM(1, 8, batch_first=True), Last(), nn.Linear(8, 2))
    assert facts(model).layers == ()


# ---- rows and scores ----


def test_test_rows_need_not_be_tensors():
    """The engine cannot evaluate them, so the slow path trains."""
    test = classes(20)
    whole = accuracies(planner.plan(network(), classes(), test, **COMMON))
    assert accuracies(planner.plan(network(), classes(), Subset(test, range(20)), **COMMON)) == pytest.approx(whole)


def test_images_are_flattened_for_the_engine_in_the_test_rows_as_well():
    flat = [accuracies(planner.plan(network(), classes(), classes(20), **COMMON))]
    train, test = (
        TensorDataset(rows.tensors[0].view(-1, 1, 2, 2), rows.tensors[1]) for rows in (classes(), classes(20))
    )
    model = nn.Sequential(nn.Flatten(), *network())
    flat.append(accuracies(planner.plan(model, train, test, **COMMON)))
    assert flat[0] == pytest.approx(flat[1])


def test_squared_errors_of_classes_are_scored_by_accuracy():
    found = planner.plan(network(), classes(), classes(20), loss="mse", **COMMON)
    assert found.metric == "accuracy"
    assert all(20 * value == pytest.approx(round(20 * value)) for value in accuracies(found))


def test_numbers_of_any_data_set_are_scored_by_r2():
    settings = {**COMMON, "loss": "mse", "learning_rate": 0.01}
    tensors = planner.plan(network(1), numbers(), numbers(20), **settings)
    others = planner.plan(network(1), numbers(), Subset(numbers(20), range(20)), **settings)
    assert tensors.metric == others.metric == "r2"
    assert accuracies(others) == pytest.approx(accuracies(tensors), abs=1e-4)


def test_a_loss_without_a_score_needs_no_accuracy():
    job = Job(strategy="blas", workers=1, loss=nn.functional.l1_loss)
    assert metric_of(job, network(1), numbers(20)) == ""
    with pytest.raises(UserError, match="Add --no-accuracy"):
        planner.plan(network(1), numbers(), numbers(20), loss=nn.functional.l1_loss, **COMMON)
    assert planner.plan(network(1), numbers(), numbers(20), loss=nn.functional.l1_loss, accuracy=False, **COMMON).rows


def test_nodes_without_rows_are_left_out():
    found = planner.plan(network(), classes(5), classes(20), **{**COMMON, "nodes": (2, 8)})
    assert [(row.strategy, row.nodes) for row in found.rows if row.nodes > 2] == [("allreduce", 8)]
    assert any("needs at least 8 rows, and there are 5" in note for note in found.notes)


def test_the_noise_of_few_rows():
    job = Job(strategy="blas", workers=1, batch_size=4)
    normalised = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    assert noise_scale(job, normalised, classes(12)) is not None  # parts of two rows, not of one
    assert noise_scale(job, normalised, classes(3)) is None
    assert noise_scale(job, network(), classes(1)) is None


# ---- settings ----


@pytest.mark.parametrize(("settings", "words"), [
    ({"nodes": 2.0}, "whole numbers of nodes"),
    ({"nodes": "1-99999999999"}, "from 1 to 4096"),
    ({"goal": 0.9}, "a score and a number"),
    ({"goal": ("accuracy",)}, "a score and a number"),
    ({"shares": (3, 1), "nodes": 2, "split": "class:0.3"}, "give only one of them"),
])  # fmt: skip
def test_what_is_refused_at_once(settings, words):
    with pytest.raises((UserError, TypeError), match=words):
        PlanOptions(**settings)


def test_numbers_are_not_split_by_class():
    with pytest.raises(UserError, match="needs a target of classes"):
        planner.plan(network(1), numbers(), numbers(20), loss="mse", split="class:0.3", **COMMON)


def test_folds_of_nodes_need_the_engine():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    with pytest.raises(UserError, match="--node-folds"):
        planner.plan(model, classes(), classes(20), node_folds=3, **COMMON)
    assert planner.plan(network(), classes(), classes(20), node_folds=3, **{**COMMON, "strategy": "gossip"}).rows


def test_folds_of_nodes_with_shares_and_one_node_that_has_all_rows():
    """One node trains its folds too, so that both are the same task; shares are those of two nodes."""
    found = planner.plan(network(), classes(), classes(20), node_folds=3, shares=(3, 1), split="order",
                         **{**COMMON, "strategy": "local_sgd:epoch,allreduce", "nodes": (1, 2)})  # fmt: skip
    alone, folded = found.row("allreduce", 1), found.row("local_sgd:epoch", 1)
    assert folded.seconds == pytest.approx(2 * alone.seconds, rel=0.2)  # three networks, each on two thirds
    assert folded.accuracy is not None
    assert found.verdict.strategy == "local_sgd:epoch"  # what was asked for, not another task


def test_batches_grow_only_where_nodes_share_them():
    model = replace(cost_model(batch_size=32), batch_per_node=True)
    for name, variant in VARIANTS.items():
        grown = 32 if variant.own_algorithm else 128
        assert model.settled(variant, 4).job.batch_size == grown, name


def test_break_evens_are_those_of_growing_batches():
    model = cost_model(planner_link(), batch_size=32)
    variant = VARIANTS["allreduce"]
    growing = replace(model, batch_per_node=True)
    more = speedup(growing, variant, 4)
    grown = replace(model, job=replace(model.job, batch_size=128))
    assert more == pytest.approx(model.estimate(variant, 1).seconds / grown.estimate(variant, 4).seconds)
    assert bandwidth_from(growing, variant, 4) < (bandwidth_from(model, variant, 4) or float("inf"))


def test_break_evens_of_folds_on_nodes_count_their_networks():
    model, variant = (
        cost_model(planner_link(), batch_size=32, calibration=machine(start=2.0)),
        VARIANTS["local_sgd:end"],
    )
    once, tenfold = (epochs_from(replace(model, node_folds=folds), variant, 4) for folds in (1, 10))
    assert tenfold < once  # ten times as much to compute


def planner_link():
    return PlanOptions(link="1gbit,0.1ms").link


# ---- verdict and trace ----


def row(strategy: str, nodes: int, seconds: float) -> Row:
    return Row(strategy, VARIANTS[strategy].label, nodes, seconds, seconds, 1.0, 0.0, 1.0, 0.0, 0.0, 1e9)


def test_folds_are_not_compared_with_training_one_network():
    """Of five folds on five nodes each has fewer rows than the whole data, and so takes less time."""
    made = [row("allreduce", 1, 10.0), row("allreduce", 4, 12.0), row("kfold", 1, 40.0), row("kfold", 4, 8.0)]
    assert not judge(made, cost_model(planner_link()), None).pays
    alone = judge(made[2:], cost_model(planner_link()), None)
    assert (alone.pays, alone.strategy, alone.nodes) == (True, "kfold", 4)


def test_a_slow_link_has_a_break_even():
    found = planner.plan(network(), classes(), classes(20), link="1kbit", accuracy=False,
                         **{**COMMON, "strategy": "local_sgd:end"})  # fmt: skip
    assert found.verdict.break_even["bandwidth"] > 0
    assert "Two would pay from" in str(found)

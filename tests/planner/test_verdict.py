"""The verdict of a plan: one number decides, the text says the same, and nothing is compared that cannot be."""

from __future__ import annotations

import io
import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.planner import cost_model, machine
from torch import nn
from torch.utils.data import TensorDataset

from shoal import planner
from shoal.cli.plan import _show
from shoal.errors import UserError
from shoal.planner import planning
from shoal.planner.cost.cluster import NodeLink
from shoal.planner.options import PlanOptions
from shoal.planner.planning import Row
from shoal.planner.simulate.accuracy import Scores
from shoal.planner.variants import VARIANTS
from shoal.planner.verdict import LARGEST_STABLE_SPREAD, epochs_from, judge, speedup

NAMES = sorted(set(VARIANTS) - {"kfold", "data+tensor", "data+pipeline"})
AVERAGING = ("local_sgd:8", "local_sgd:epoch", "local_sgd:end", "gossip", "parameter_server-async")


def classes(count: int = 60) -> TensorDataset:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(count))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


NETWORK, TRAIN, TEST = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), classes(600), classes(20)


def plan_on(here, **options) -> planner.Plan:
    """A plan on a machine whose speeds are given."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "measure", lambda *_: (here, None, ""))
        return planner.plan(NETWORK, TRAIN, TEST, **options)


def printed(found: planner.Plan) -> str:
    to = io.StringIO()
    _show(found, Console(file=to, width=300, force_terminal=True, soft_wrap=True, color_system=None))
    return to.getvalue()


PLANS = {
    "start": st.sampled_from([0.0, 0.02, 1.9]) | st.floats(0, 100),
    "slope": st.floats(1e-7, 1e-2),
    "epochs": st.integers(1, 1000),
    "batch_size": st.integers(1, 4096),
    "nodes": st.sets(st.integers(1, 64), min_size=1, max_size=4),
    "strategy": st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
    "link": st.none() | st.builds("{:g}mbit,{:g}ms".format, st.floats(0.001, 1e6), st.floats(0, 1000)),
    "node_speed": st.none() | st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=3).map(tuple),
    "price": st.none() | st.floats(0, 1e6),
    "batch_per_node": st.booleans(),
}


@settings(deadline=None, max_examples=80)
@given(**PLANS)
def test_what_is_waited_for_decides_and_the_text_says_the_same(start, slope, nodes, strategy, **options):
    """Pays, exactly where the best row's seconds in all are fewer than those of one node; and no number is endless."""
    here = machine(slope=slope, start=start, workers=2)
    found = plan_on(
        here, nodes=tuple(nodes), strategy=("allreduce-close", *strategy), accuracy=False, shards=64, **options
    )
    for row in found.rows:
        own = row.nodes == 1 or options["link"] is not None
        ranks = row.nodes + row.strategy.startswith("parameter_server")
        assert row.start_seconds == pytest.approx((row.nodes > 1) * start * (1 if own else max(1, ranks / 2)))
        assert row.seconds >= row.start_seconds + options["epochs"] * row.seconds_per_epoch * (1 - 1e-9)
    one = min(row.seconds for row in found.rows if row.nodes == 1)
    many = [row.seconds for row in found.rows if row.nodes > 1]
    verdict, text = found.verdict, found.verdict.text
    assert verdict.pays == (min(many, default=one) < one)
    assert ("pay:" in text or "pay, but barely:" in text) == verdict.pays
    assert ("One node is best" in text) == (not verdict.pays)
    if verdict.pays:
        best = found.row(verdict.strategy, verdict.nodes)
        assert best.seconds == min(many)
        assert f"{one / best.seconds:.3g}"[:3] in text
        assert ("to start the workers" in text) == (best.start_seconds > 0)
        named = verdict.strategy in AVERAGING or options["batch_per_node"]
        assert ("different algorithm" in text) == named
    everything = printed(found) + json.dumps(found.as_dict()) + json.dumps(found.trace(), allow_nan=False)
    assert not re.search(r"\b(inf|nan|infinity)\b", everything, re.IGNORECASE)


def rows_of(link: NodeLink | None, start: float, scores: dict[tuple[str, int], Scores], epochs: int = 3, **more):
    model = cost_model(link, calibration=machine(start=start, workers=2, **more), epochs=epochs)
    options = PlanOptions(epochs=epochs, link=link)
    names = dict.fromkeys(name for name, _ in scores)
    estimates = {(name, n): model.estimate(VARIANTS[name], n) for name in names for n in (1, 2, 4)}
    made = [planning._row(VARIANTS[name], n, estimates, scores, options) for name, n in scores]
    return made, model, options


def same(value: float) -> Scores:
    return Scores(((0.1, 0.1, value),) * 3)


UNSURE = Scores(((0.8, 0.8, 0.88), (0.8, 0.8, 0.5), (0.8, 0.8, 0.62)))  # 67% give or take 48


def test_workers_that_start_longer_than_they_save_do_not_pay():
    """The case of the trial: eight nodes were called 3.04 times as fast, of a training of a tenth of a second."""
    scores = {("allreduce", 1): same(0.9), ("allreduce", 2): same(0.9), ("allreduce", 4): same(0.9)}
    fast, short = NodeLink(1.25e9, 1e-5), 1.9
    rows, model, _ = rows_of(fast, 0.0, scores, slope=1e-4)
    assert judge(rows, model, None).pays
    rows, model, _ = rows_of(fast, short, scores, slope=2e-5)
    found = judge(rows, model, None)
    assert not found.pays
    assert "1.9 s of it to start the workers" in found.text
    needed = found.break_even["epochs"]
    assert f"from {needed:,} epochs with all-reduce" in found.text
    for epochs, pays in ((needed, True), (needed - 1, False)):
        rows, model, _ = rows_of(fast, short, scores, epochs, slope=2e-5)
        two = [row for row in rows if row.nodes < 4]
        assert judge(two, model, None).pays == pays


@settings(deadline=None)
@given(st.floats(0, 10), st.floats(1e-6, 1e-3), st.integers(2, 8))
def test_epochs_from_which_on_it_pays(start, slope, nodes):
    model = cost_model(NodeLink(1e9, 1e-5), calibration=machine(slope=slope, start=start, workers=2), batch_size=512)
    found = epochs_from(model, VARIANTS["allreduce"], nodes)
    if found is not None:
        assert speedup(model, VARIANTS["allreduce"], nodes, epochs=(found, found)) > 1
        if found > 1:
            assert speedup(model, VARIANTS["allreduce"], nodes, epochs=(found - 1, found - 1)) <= 1 + 1e-9


def test_scores_that_depend_on_the_seed_are_not_compared():
    scores = {("local_sgd:epoch", 1): same(0.83), ("local_sgd:epoch", 2): UNSURE, ("local_sgd:epoch", 4): UNSURE}
    rows, model, options = rows_of(NodeLink(1.25e9, 1e-5), 0.0, scores, slope=1e-4)
    [note] = planning.unstable_note(rows, options)
    assert "averaging each epoch on 2 nodes (and of 1 other setting) differs from seed to seed by 19 points" in note
    assert "unstable at learning rate 0.001" in note
    assert "Give a lower --learning-rate, such as 0.0001" in note
    found = judge(rows, model, None)
    assert not found.pays  # a mean within the noise is no proof that it is as good
    assert "accuracies were not compared" in found.text
    assert "points of the score" not in found.text
    calm = {key: same(0.83) for key in scores}
    rows, model, options = rows_of(NodeLink(1.25e9, 1e-5), 0.0, calm, slope=1e-4)
    assert planning.unstable_note(rows, options) == []
    assert judge(rows, model, None).pays


ROWS = st.builds(
    lambda strategy, nodes, seconds, accuracy, spread: Row(
        strategy, VARIANTS[strategy].label, nodes, seconds, seconds, 1.0, 0.0, 1.0, 0.0, 0.0, 1e9, accuracy,
        spread=spread),
    st.sampled_from(sorted({"allreduce", *AVERAGING})), st.integers(2, 8), st.floats(0.01, 100),
    st.none() | st.sampled_from([0.8, 0.83, 0.9]), st.sampled_from([0.0, 0.01, 0.2]),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=6), ROWS)
def test_an_unstable_training_is_never_called_better_or_worse(many, one):
    one = Row(one.strategy, one.label, 1, one.seconds, one.seconds, 1.0, 0.0, 1.0, 0.0, 0.0, 1e9, one.accuracy,
              spread=one.spread)  # fmt: skip
    found = judge([one, *many], cost_model(NodeLink(1e9, 1e-5)), None)
    shaky = [row for row in [one, *many] if row.accuracy is not None and row.spread > LARGEST_STABLE_SPREAD]
    assert ("accuracies were not compared" in found.text) == bool(shaky)
    best = next((row for row in many if (row.strategy, row.nodes) == (found.strategy, found.nodes)), None)
    if found.pays and best in shaky and one.accuracy is not None:
        assert any(row.accuracy == one.accuracy for row in many if row.strategy == found.strategy)
    assert found.pays == (found.nodes > 1)


# ---- refused at once ----


@pytest.mark.parametrize("text", ["0gbit", "0mbit,1ms", "-1gbit", "inf gbit", "nangbit", "1e400gbit", "1e-9kbit",
                                  "1gbit,-1ms", "1gbit,inf s", "1gbit,nan", "1gbit,1e9s"])  # fmt: skip
def test_a_link_without_a_rate_is_refused(text):
    with pytest.raises(UserError, match="link") as caught:
        PlanOptions.from_flags({"link": text})
    assert text in str(caught.value)
    assert "as in --link 1gbit,0.1ms" in str(caught.value)


@pytest.mark.parametrize("link", [NodeLink(0.0), NodeLink(float("nan")), NodeLink(float("inf")), NodeLink(1e9, -1.0)])
def test_a_link_of_python_follows_the_same_rule(link):
    with pytest.raises(UserError, match="must be from"):
        PlanOptions(link=link)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["epochs", "batch_size", "shards", "folds", "node_folds", "nodes", "seeds", "price",
                        "node_speed", "learning_rate", "until_error"]),
       st.sampled_from(["0", "-1", "nan", "inf", "1e400", "1e-400", "9" * 400]))  # fmt: skip
def test_numbers_without_end_are_refused(name, text):
    value = float(text) if name in ("price", "learning_rate", "until_error") else text
    value = int(text) if name not in ("price", "learning_rate", "until_error", "node_speed") and text.lstrip(
        "-").isdecimal() else value  # fmt: skip
    accepted = name in ("price", "until_error") and float(text) == 0
    if accepted:
        return
    with pytest.raises(UserError):
        PlanOptions(**{name: value})


def test_a_goal_without_accuracies_is_refused_by_the_options_alone():
    with pytest.raises(UserError, match="--goal needs the accuracy of each plan, which --no-accuracy skips"):
        PlanOptions.from_flags({"goal": "accuracy=0.9", "accuracy": False})


def test_folds_of_nodes_that_the_engine_cannot_train_are_refused_before_measuring(monkeypatch):
    monkeypatch.setattr(planning, "measure", lambda *_: pytest.fail("measured first"))
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
    with pytest.raises(UserError, match="--node-folds"):
        planner.plan(model, TRAIN, TEST, node_folds=3, strategy="local_sgd:epoch", nodes=2)

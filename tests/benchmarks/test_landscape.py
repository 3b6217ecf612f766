"""The landscape: in parts or at once the same, its statistics right, and luck told from merit."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bench import bench

from benchmarks.engine.landscape import statistics
from benchmarks.engine.landscape.question import BUNDLED, Question, load
from benchmarks.engine.landscape.training import Grid, parts, train
from shoal import Population
from shoal.errors import UserError
from shoal.population.rows import Split


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def question() -> Question:
    return load("iris", None)


GRID = Grid((1, 3), ("relu", "tanh"), (0.01, 0.1), seeds=2)


# ---- training ----


@pytest.mark.parametrize("memory", [1, 3000, 10**9])
def test_parts_give_what_everything_at_once_gives(question, memory):
    whole = train(question, GRID, 2, 10**9, silent)
    found = train(question, GRID, 2, memory, silent)
    assert found.parts == {1: len(GRID), 3000: 2, 10**9: 1}[memory]
    np.testing.assert_array_equal(found.picking, whole.picking)
    np.testing.assert_array_equal(found.fresh, whole.fresh)


@settings(max_examples=20, deadline=None)
@given(memory=st.integers(1, 20_000), seeds=st.integers(1, 5))
def test_parts_hold_every_network_once_and_keep_to_the_memory(question, memory, seeds):
    grid = Grid((1, 4), ("relu",), (0.01, 0.1, 1.0), seeds)
    pieces = list(parts(grid, question, 2, memory))
    members = [member for _, piece in pieces for member in piece]
    assert len(members) == len(set(members)) == len(grid)
    assert [start for start, _ in pieces] == np.cumsum([0, *(len(piece) for _, piece in pieces[:-1])]).tolist()
    for _, piece in pieces:
        state = Population(piece, 4, 3).state
        assert len(piece) == 1 or state.parameters.nbytes + state.slots.nbytes <= memory


def test_scores_are_those_of_each_network_alone_in_the_order_of_the_grid(question):
    scores = train(question, GRID, 2, 3000, silent)
    split = Split(np.arange(question.n_train), np.arange(question.n_train, len(question.y)))
    recipes = GRID.recipes()
    for w, a, r, seed in product(*map(range, GRID.shape)):
        member = recipes[(w * 2 + a) * 2 + r].replace(seed=seed)
        assert (member.hidden, member.activation, member.learning_rate) == (
            (GRID.widths[w],), GRID.activations[a], GRID.rates[r],
        )  # fmt: skip
        alone = Population([member], 4, 3)
        history = alone.fit(question.X, question.y, 2, rows=split, engine="native")
        right = history.valid_score[0] * question.n_pick
        np.testing.assert_allclose(scores.picking[w, a, r, seed], right, atol=1e-6)
        fresh = alone.evaluate(question.X_fresh, question.y_fresh).score[0] * len(question.y_fresh)
        assert scores.fresh[w, a, r, seed] == pytest.approx(fresh)


def test_networks_that_diverged_count_as_zero_on_fresh_rows_too(question):
    huge = question._replace(X=1e18 * question.X, X_fresh=1e18 * question.X_fresh)
    found = train(huge, Grid((8,), ("relu",), (1e30,), 3), 3, 10**9, silent)
    assert found.diverged == 3
    assert not found.fresh.any()
    assert not found.picking.any()


def test_rows_are_shared_out_and_scaled_on_the_training_rows(question):
    assert (question.n_train, question.n_pick, len(question.y_fresh)) == (90, 30, 30)
    together = np.concatenate([question.X, question.X_fresh])
    assert len(np.unique(together, axis=0)) >= 145  # iris has a few equal rows, and none is used twice
    other = load("iris", None)
    np.testing.assert_array_equal(question.X, other.X)


# ---- statistics ----


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 4)] * 4),
    effects=st.tuples(*[st.sampled_from([0.0, 0.01, 1.0, 5.0])] * 4),
    seed=st.integers(0, 99),
)
def test_shares_of_the_variance_add_up_and_find_who_did_it(shape, effects, seed):
    draws = np.random.default_rng(seed)
    scores = np.zeros(shape)
    for axis, effect in enumerate(effects[:3]):
        line = [1] * 4
        line[axis] = shape[axis]
        scores = scores + effect * draws.normal(size=line)
    additive = statistics.variance_shares(scores)
    assert additive["combination"] == pytest.approx(0, abs=1e-9)  # nothing was combined
    assert additive["seed"] == pytest.approx(0, abs=1e-9)
    noisy = statistics.variance_shares(scores + effects[3] * draws.normal(size=shape))
    assert sum(noisy.values()) == pytest.approx(1 if any(noisy.values()) else 0)
    assert min(noisy.values()) >= -1e-9


def test_scores_that_only_the_seed_decides_are_its_share():
    scores = np.random.default_rng(0).normal(size=(4, 5, 6, 200))
    assert statistics.variance_shares(scores)["seed"] > 0.98
    assert statistics.seed_share_at_the_top(scores)["share"] > 0.9
    fixed = np.broadcast_to(scores[..., :1], scores.shape)
    assert statistics.seed_share_at_the_top(fixed)["share"] == pytest.approx(0, abs=1e-12)


def test_the_best_of_k_is_the_mean_over_all_draws():
    picking, fresh = np.array([0.5, 0.2, 0.5, 0.9]), np.array([0.4, 0.3, 0.6, 0.5])
    for count in (1, 2, 3):
        draws = [max(picking[list(one)]) for one in product(range(4), repeat=count)]
        outcome = {0.2: 0.3, 0.5: 0.5, 0.9: 0.5}  # ties are drawn by lot
        (found,) = statistics.best_of(picking, fresh, [count])
        assert found["picked"] == pytest.approx(np.mean(draws))
        assert found["fresh"] == pytest.approx(np.mean([outcome[best] for best in draws]))


def test_picking_by_luck_alone_gains_nothing_on_fresh_rows():
    """The negative control: scores that say nothing about each other."""
    draws = np.random.default_rng(0)
    picking, fresh = draws.binomial(200, 0.8, 50_000) / 200, draws.binomial(200, 0.8, 50_000) / 200
    found = statistics.best_of(picking, fresh, [1, 1000])
    assert found[1]["picked"] - found[0]["picked"] > 0.08
    assert abs(found[1]["fresh"] - found[0]["fresh"]) < 0.005


# ---- the command ----


def test_bench_landscape(tmp_path):
    result = bench(tmp_path, "landscape --table wine --members 900 --epochs 3 --quick")
    assert result["networks"] == 960 == 240 * result["seeds"]
    assert result["table"]["name"] == result["settings"]["table"] == "wine"
    assert sum(result["histogram"]["counts"]) == 960
    assert len(result["recipes"]) == 240
    page = (tmp_path / "landscape.html").read_text()
    assert "960 networks on <em>wine</em>" in page
    assert str(tmp_path) not in page
    networks = json.loads((tmp_path / "landscape-networks.json").read_text())
    fresh = np.array(networks["fresh_rows_right"]) / networks["table"]["fresh_rows"]
    assert fresh.shape == (6, 10, 4, 4)
    means = [one["fresh"] for one in result["recipes"]]
    np.testing.assert_allclose(fresh.mean(-1).ravel(), means, atol=1e-5)
    assert max(means) > 0.9


def test_a_table_of_ones_own_and_what_is_wrong_with_others(tmp_path):
    draws = np.random.default_rng(0)
    lines = [f"{x:.3f},{'bc'[int(x > 0)]},{'yes' if x > 0 else 'no'}" for x in draws.normal(size=60)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["a,b,answer", *lines]) + "\n")
    found = load(str(path), None)
    assert (found.name, found.classes, found.X.shape[0], len(found.y_fresh)) == ("mine", 2, 48, 12)
    assert load(str(path), "b").classes == 2
    with pytest.raises(UserError, match="shows accuracies, but a has"):
        load(str(path), "a")
    with pytest.raises(UserError, match=r"--table must be a file or one of digits.*got 'digit'; did you mean 'digits'"):
        load("digit", None)
    with pytest.raises(UserError, match="--target is for files"):
        load("wine", "alcohol")
    path.write_text("\n".join(["a,b,answer", *lines[:12]]) + "\n")
    with pytest.raises(UserError, match="at least 30 rows"):
        load(str(path), None)
    with pytest.raises(UserError, match="nothing"):
        load(str(tmp_path / "mine.csv"), "nothing")
    assert all(load(name, None).classes >= 2 for name in BUNDLED)

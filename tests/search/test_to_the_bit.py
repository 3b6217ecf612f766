"""Equal work gives equal bits, in whatever company and whenever it is done; and equal models are equal files."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_iris
from threadpoolctl import threadpool_limits

import shoal
from shoal import Member, ShoalRegressor
from shoal.metrics.metric import METRICS
from shoal.metrics.tasks import CLASSIFICATION, REGRESSION, Task
from shoal.search.problem.data import TrainingData
from shoal.search.problem.problem import make_folds, make_problem
from shoal.search.rounds.candidates import Candidate, Pool
from shoal.search.rounds.training import Workload, train
from shoal.search.scoring.evidence import Samples
from shoal.search.space import Recipe
from shoal.tables.schema import Schema
from shoal.tables.table import Table

CANDIDATES, FOLDS = 7, 3


@functools.cache
def pool_of(kind):
    """Trained candidates on three folds of unequal rows and weights."""
    X, y = (load_diabetes if kind == REGRESSION else load_iris)(return_X_y=True)
    if kind != CLASSIFICATION:
        y = y[:, None] if kind == REGRESSION else np.eye(3, dtype=np.float32)[y]
    task = Task(kind, 1 if kind == REGRESSION else 3)
    table = Table.of(X)
    schema = Schema.of(table, plain=True)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    pairs, _ = make_folds(FOLDS, task, X, y, None, 0)
    problem = make_problem(TrainingData(task, schema, schema.check(table), y, weight), pairs)
    candidates = [Candidate(k, Recipe(Member(hidden=4 + k, epochs=2, seed=k), "plain")) for k in range(CANDIDATES)]
    work = Workload("plain", tuple(one.recipe.member for one in candidates), np.full((CANDIDATES, FOLDS), 2), seed=0)
    return Pool(problem, "plain", candidates, train(problem, None, work, 2).networks)


def noted(candidate):
    return (
        candidate.loss,
        candidate.score,
        candidate.fold_scores.tolist(),
        candidate.fold_losses.tolist(),
        candidate.prediction.tobytes(),
    )


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for name in METRICS for kind in METRICS[name].kinds])
@settings(max_examples=10, deadline=None)
@given(
    order=st.permutations(range(CANDIDATES)),
    ends=st.sets(st.integers(1, CANDIDATES - 1)),
    threads=st.sampled_from([1, 2]),
)
def test_scores_do_not_depend_on_who_is_scored_together(kind, name, order, ends, threads):
    """A search that was ended early scores some candidates at another time, and with others, than its repetition."""
    pool = pool_of(kind)
    samples = Samples(np.arange(3), pool.problem.task.n_outputs)
    pool.assess(pool.candidates, METRICS[name], samples, 2)
    together = [noted(candidate) for candidate in pool.candidates]
    cuts = [0, *sorted(ends), CANDIDATES]
    for start, end in itertools.pairwise(cuts):
        pool.assess([pool.candidates[k] for k in order[start:end]], METRICS[name], samples, threads)
    assert [noted(candidate) for candidate in pool.candidates] == together


def test_the_model_does_not_depend_on_the_threads_of_blas(tmp_path):
    """Long sums over several threads are cut at other places."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(12_000, 2))
    members = [Member(hidden=2, epochs=1, learning_rate=rate) for rate in (0.003, 0.01, 0.03)]
    files = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            model = ShoalRegressor(members, strategy="grid", cv=2, seeds=1)
            shoal.save(model.fit(X, X[:, 0] * X[:, 1]), tmp_path / str(threads))
        files.append((tmp_path / str(threads) / "model.json").read_bytes())
    assert files[0] == files[1]

"""The one call that trains: it needs nothing but its arguments."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from shoal import Member, ShoalClassifier
from shoal.encoders.encoder import ENCODINGS
from shoal.search.rounds.training import Control, Workload, epochs_done, train

MEMBERS = tuple(Member(hidden=width, learning_rate=0.01, batch_size=16, seed=width) for width in (3, 5, 8))


@pytest.fixture(scope="module")
def searched():
    return (
        ShoalClassifier(Member(hidden=2), strategy="grid", cv=3, epochs=1, seeds=1)
        .fit(*load_iris(return_X_y=True))
        .result_.search
    )


def work_of(problem, epochs, networks=None):
    return Workload("plain", MEMBERS, np.full((len(MEMBERS), len(problem.folds)), epochs), seed=7, networks=networks)


def same(one, other):
    assert one.assessments.keys() == other.assessments.keys()
    for place, found in one.assessments.items():
        np.testing.assert_array_equal(found.prediction, other.assessments[place].prediction)
        np.testing.assert_array_equal(found.valid_curve, other.assessments[place].valid_curve)
        assert (found.score, found.loss) == (other.assessments[place].score, other.assessments[place].loss)
    np.testing.assert_array_equal(one.networks.state.parameters, other.networks.state.parameters)


def test_another_process_gives_the_same_bits_and_they_go_on_from_there(searched):
    """All that it needs is pickled, sent to a process that knows nothing, and what comes back is trained further."""
    search, problem = searched, searched.problem
    here = train(problem, search.metric, work_of(problem, 3), threads=1)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere:
        there = elsewhere.submit(train, problem, search.metric, work_of(problem, 3), 1).result()
        same(here, there)
        further = elsewhere.submit(train, problem, search.metric, work_of(problem, 5, there.networks), 1).result()
    same(train(problem, search.metric, work_of(problem, 5, here.networks), threads=1), further)
    same(train(problem, search.metric, work_of(problem, 5), threads=1), further)


def test_candidates_that_are_not_asked_for_are_left_alone(searched):
    work = work_of(searched.problem, 2)
    work.until[1] = 0
    trained = train(searched.problem, searched.metric, work, threads=1)
    assert set(trained.assessments) == {0, 2}
    assert epochs_done(trained.networks, 3).tolist() == [[2] * 3, [0] * 3, [2] * 3]


def test_candidates_that_were_trained_far_enough_before_are_assessed_again(searched):
    first = train(searched.problem, searched.metric, work_of(searched.problem, 2), threads=1)
    again = train(searched.problem, searched.metric, work_of(searched.problem, 1, first.networks), threads=1)
    same(first, again)


def test_who_was_stopped_before_the_end_is_not_assessed(searched):
    trained = train(searched.problem, searched.metric, work_of(searched.problem, 10**6), 1, Control(stop=lambda: True))
    assert trained.assessments == {}
    assert (epochs_done(trained.networks, 3) < 10**6).all()


def test_assessing_ends_where_it_is_late_but_not_before_the_first(searched, monkeypatch):
    monkeypatch.setattr("shoal.search.rounds.training.ASSESSED_CELLS", 1)  # one candidate at a time
    trained = train(searched.problem, searched.metric, work_of(searched.problem, 1), 1, Control(late=lambda: True))
    assert list(trained.assessments) == [0]


def test_without_a_metric_nobody_is_assessed(searched):
    trained = train(searched.problem, None, replace(work_of(searched.problem, 1)), threads=1)
    assert trained.assessments == {}
    assert (epochs_done(trained.networks, 3) == 1).all()


@settings(max_examples=12, deadline=None)
@given(
    widths=st.lists(st.sampled_from([(), (3,), (8,), (5, 4)]), min_size=1, max_size=5),
    stages=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    cut=st.integers(0, 5),
    threads=st.sampled_from([1, 2]),
    encoding=st.sampled_from(ENCODINGS),
)
def test_any_stages_and_any_sharing_out_of_candidates_give_the_same_bits(
    searched, widths, stages, cut, threads, encoding
):
    """A rung at a time or all at once, all candidates in one call or in two: the same predictions and weights."""
    problem, folds = searched.problem, len(searched.problem.folds)
    members = tuple(Member(hidden=hidden, learning_rate=0.02, batch_size=8, seed=k) for k, hidden in enumerate(widths))

    def trained(some, epochs, threads, networks=None):
        work = Workload(encoding, some, np.full((len(some), folds), epochs), seed=3, networks=networks)
        return train(problem, searched.metric, work, threads)

    whole = trained(members, sum(stages), 1)
    found = []
    for part in (members[:cut], members[cut:]):
        networks, done = None, 0
        for stage in stages if part else ():
            done += stage
            result = trained(part, done, threads, networks)
            networks = result.networks
        found += list(result.assessments.values()) if part else []
    assert len(found) == len(members)
    for one, other in zip(whole.assessments.values(), found, strict=True):
        np.testing.assert_array_equal(one.prediction, other.prediction)
        assert (one.score, one.loss, one.train_curve.tolist()) == (other.score, other.loss, other.train_curve.tolist())


def test_candidates_whose_patience_ends_are_assessed(searched):
    """They never do all epochs that were asked for."""
    members = (Member(hidden=4, epochs=40, patience=1, learning_rate=0.3), Member(hidden=4, epochs=40))
    trained = train(
        searched.problem, searched.metric, Workload("plain", members, np.full((2, 3), 40), seed=7), threads=1
    )
    assert "stopped early" in trained.networks.status
    assert list(trained.assessments) == [0, 1]
    assert all(found.ended for found in trained.assessments.values())
    assert trained.assessments[0].fold_epochs.min() < 40

"""Callbacks of `parallel.fit`: what they see, and how they stop a training."""

from __future__ import annotations

import pytest
import torch
from support.parallel_cases import SETTINGS, data, flat, network
from support.watching import Seen

from shoal import parallel
from shoal.errors import UserError
from shoal.parallel.events import EpochEnded, FoldEnded, TrainingStarted, as_message, pass_on

JOB = {**SETTINGS, "strategy": "allreduce", "exact": True, "epochs": 5}
PLACES = [("threads", 1), ("threads", 2), ("processes", 2), ("mpi", 2)]


@pytest.mark.parametrize(("backend", "workers"), PLACES)
def test_a_callback_sees_the_training_and_stops_it_after_the_same_epoch_everywhere(backend, workers):
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    seen = Seen(stop_after=2)
    result = parallel.fit(network(), data(), data(40, 2), backend=backend, workers=workers, callbacks=[seen], **JOB)
    two = parallel.fit(network(), data(), data(40, 2), backend="threads", workers=1, **{**JOB, "epochs": 2})
    assert torch.equal(flat(result.model), flat(two.model))
    assert [record["epoch"] for record in result.history] == [0, 1]
    parameters = sum(parameter.numel() for parameter in network().parameters())
    assert seen.beginnings == [TrainingStarted("allreduce", backend, workers, 5, len(data()), parameters)]
    assert [(event.epoch, event.epochs) for event in seen.steps] == [(0, 5), (1, 5)]
    assert [event.record["valid_loss"] for event in seen.steps] == [record["valid_loss"] for record in two.history]
    assert seen.shares == sorted(seen.shares)
    assert 0 < seen.shares[0] <= seen.shares[-1] <= 0.4
    assert seen.results == [result]


@pytest.mark.parametrize(("backend", "workers"), PLACES[:3])
def test_progress_stops_a_training_at_the_end_of_an_epoch(backend, workers):
    class Stop:
        def progress(self, event):
            return True

    result = parallel.fit(network(), data(), backend=backend, workers=workers, callbacks=[Stop()], **JOB)
    assert len(result.history) == 1


def test_a_training_that_a_callback_stopped_can_be_resumed(tmp_path):
    job = {**JOB, "backend": "threads", "workers": 2, "checkpoint": tmp_path}
    parallel.fit(network(), data(), callbacks=[Seen(stop_after=2)], **job)
    whole = parallel.fit(network(), data(), backend="threads", **JOB)
    assert torch.equal(flat(parallel.fit(network(), data(), **job).model), flat(whole.model))


def test_no_fold_starts_after_a_callback_has_asked_to_stop():
    seen = Seen(stop_after=2)
    job = {**SETTINGS, "strategy": "kfold", "folds": 4, "workers": 1, "backend": "threads"}
    result = parallel.fit(network(), data(), callbacks=[seen], **job)
    assert [event.fold for event in seen.steps] == [0, 1]
    assert len(result.folds) == 2


def test_what_is_no_callback_is_refused_before_training():
    with pytest.raises(UserError, match="a callback has at least one of the methods started, progress"):
        parallel.fit(network(), data(), callbacks=[print], **JOB)


@pytest.mark.parametrize("content", [
    EpochEnded(3, 5, {"epoch": 3, "train_loss": 0.5}), FoldEnded(1, 5, {"valid_loss": float("inf")}),
])  # fmt: skip
def test_events_arrive_as_they_were_sent(content):
    heard = []
    assert pass_on(as_message("step_ended", content), lambda event, said: not heard.append((event, said)))
    assert heard == [("step_ended", content)]

"""Local SGD and gossip, with rows, starts and ends of each worker's own, against the same by hand."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.own_rows_oracle import by_hand, dealt, own_starts
from support.parallel_cases import SETTINGS, data, far, flat, network
from support.watching import Seen
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from shoal import parallel
from shoal.parallel import checkpoint
from shoal.parallel.data.ownership import owners
from shoal.parallel.events import EpochProgress
from shoal.parallel.job import Job

CLOSE = 1e-5
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
ADAM = partial(torch.optim.Adam, lr=0.01)
THREADS = {**SETTINGS, "backend": "threads"}


def owner_of(rows: TensorDataset, job: dict) -> torch.Tensor:
    """By the oracle's own rule where that has one; `owners` is tested by itself."""
    if job.get("split", "random").startswith("class"):
        return owners(rows.tensors[1], len(rows), job["workers"], Job(**{**SETTINGS, **job}))
    return dealt(len(rows), job["workers"], job.get("split", "random"), job.get("shares"))


def expected(rows: TensorDataset, job: dict) -> dict:
    same = [network() for _ in range(job["workers"])]
    models = own_starts(network(), job["workers"]) if job.get("start") == "own" else same
    return by_hand(models, rows, owner_of(rows, job), {**SETTINGS, "average_every": "epoch", **job})


def fit(rows: TensorDataset, job: dict, **more) -> parallel.Result:
    return parallel.fit(network(), rows, data(40, 2), **{**THREADS, **job, **more})


# ---- against the same by hand ----


@st.composite
def jobs(draw) -> dict:
    """Workers and rows of any number, and any options. Local SGD with equal shares at random is in test_exact.py."""
    strategy = draw(st.sampled_from(["local_sgd", "gossip"]))
    workers = draw(st.integers(1, 5))
    every: list[int | str] = [1, 2, 3, "epoch"]
    split = draw(st.sampled_from(["random", "order", "class:0.3", "class:10"]))
    job = {
        "strategy": strategy, "workers": workers, "split": split,
        "average_every": draw(st.sampled_from(every if strategy == "gossip" else [*every, "end"])),
        "optimizer": draw(st.sampled_from([MOMENTUM, ADAM])), "batch_size": draw(st.integers(3, 40)),
        "start": draw(st.sampled_from(["same", "own"])), "epochs": 3,
    }  # fmt: skip
    if not split.startswith("class") and (draw(st.booleans()) or (strategy, split) == ("local_sgd", "random")):
        job["shares"] = draw(st.lists(st.integers(1, 4), min_size=workers, max_size=workers).map(tuple))
    return job


RING = {"strategy": "gossip", "average_every": 1, "optimizer": MOMENTUM, "epochs": 3}


@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(st.integers(30, 90), jobs())
@example(50, {**RING, "workers": 4, "start": "own"})
@example(50, {**RING, "workers": 5, "shares": (1, 2, 3, 4, 5)})
@example(50, {**RING, "workers": 2, "optimizer": ADAM})
@example(90, {**RING, "strategy": "local_sgd", "workers": 2, "shares": (4, 1), "average_every": 2, "batch_size": 8})
def test_training_is_what_one_would_write_by_hand(count, job):
    rows = data(count)
    found, hand = fit(rows, job), expected(rows, job)
    assert far(found.model, hand["model"]) < CLOSE
    assert far(found.model, network()) > 1e-3
    with torch.no_grad():
        loss = nn.functional.cross_entropy(hand["model"](data(40, 2).tensors[0]), data(40, 2).tensors[1])
    assert found.history[-1]["valid_loss"] == pytest.approx(float(loss), rel=1e-4)  # of the mean, not of a worker


def test_gossip_mixes_with_neighbours_only_and_delivers_the_mean():
    """One round of four workers that begin apart: each has then heard of two others."""
    job = {**RING, "workers": 4, "start": "own", "epochs": 1, "average_every": "epoch"}
    hand = expected(data(), job)
    assert far(hand["apart"][0], hand["apart"][2]) > 1e-2
    mean = {name: torch.stack([model.state_dict()[name] for model in hand["apart"]]).mean(0)
            for name in hand["model"].state_dict()}  # fmt: skip
    assert far(fit(data(), job).model, mean) < CLOSE


def test_one_worker_is_the_plain_loop_with_any_strategy():
    ends = [fit(data(), {"strategy": strategy, "workers": 1}).model for strategy in ("gossip", "local_sgd", "serial")]
    assert far(ends[0], ends[2]) < 1e-6
    assert torch.equal(flat(ends[0]), flat(ends[1]))


def test_local_sgd_of_equal_shares_has_the_same_bits_as_without_any():
    for every in ("epoch", "end"):
        job = {"strategy": "local_sgd", "workers": 3, "average_every": every}
        plain, equal = fit(data(), job), fit(data(), {**job, "shares": (2, 2, 2), "split": "random"})
        assert torch.equal(flat(plain.model), flat(equal.model))


class Looked(Dataset):
    """Rows that are made one by one."""

    def __init__(self, rows: TensorDataset) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int):
        return self.rows[row]


def test_rows_that_are_not_in_memory_are_dealt_by_class_too():
    job = {"strategy": "gossip", "workers": 3, "split": "class:0.5", "average_every": 2, "until_error": 1.2}
    assert torch.equal(flat(fit(data(), job).model), flat(fit(Looked(data()), job).model))


@pytest.mark.parametrize("strategy", ["local_sgd", "gossip"])
@pytest.mark.parametrize("every", [2, "epoch"])
def test_batch_normalisation_gets_two_rows_from_a_worker_with_few(strategy, every):
    """64 rows of two classes, nearly all of each on one of four workers; batches of 7."""
    rows = TensorDataset(data(64).tensors[0], torch.arange(64) % 2)
    job = {"strategy": strategy, "workers": 4, "split": "class:0.01", "batch_size": 7, "average_every": every}
    settings = {**THREADS, **job}
    counts = torch.bincount(owners(rows.tensors[1], 64, 4, Job(**settings), least=2), minlength=4)
    assert int(counts.min()) == 2
    assert len(parallel.fit(network("stateful"), rows, **settings).history) == SETTINGS["epochs"]


def test_the_schedule_follows_the_worker_with_most_rows():
    """Six steps of the larger of two workers: the rate of step k is that of k/6 of the way."""
    seen: list[list[float]] = []

    class Noting(torch.optim.SGD):
        def __init__(self, parameters) -> None:
            super().__init__(parameters, lr=1.0)
            self.rates: list[float] = []
            seen.append(self.rates)

        def step(self, closure=None):
            self.rates.append(self.param_groups[0]["lr"])

    for every in ("end", 2):
        seen.clear()
        job = {"strategy": "local_sgd", "workers": 2, "shares": (3, 1), "average_every": every, "batch_size": 10}
        fit(data(40), {**job, "optimizer": Noting, "schedule": "cosine", "epochs": 2})
        rates = [0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * k / 6)))) for k in range(6)]
        by_steps = sorted((own for own in seen if own), key=len)
        assert by_steps[-1][:2] == pytest.approx(rates[:2])
        assert set(map(partial(round, ndigits=5), by_steps[-1])) >= set(map(partial(round, ndigits=5), rates))


# ---- starts ----


class Level(nn.Module):
    """A layer that cannot initialise itself."""

    def __init__(self) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.full((4,), 0.25))
        self.linear = nn.Linear(12, 4)

    def forward(self, inputs):
        return self.linear(inputs) + self.level


def kept_models(folder: Path) -> list[dict[str, torch.Tensor]]:
    """The weights of each worker in a checkpoint."""
    content = torch.load(folder / checkpoint.NAME, weights_only=True)
    return [worker["model"] for worker in content["state"]["workers"]]


def started(folder: Path, strategy: str = "local_sgd", **more) -> list[dict[str, torch.Tensor]]:
    """The weights with which each of three workers begins: a checkpoint after steps of next to no size."""
    torch.manual_seed(0)
    still = {"optimizer": "sgd", "learning_rate": 1e-30, "average_every": "end", "epochs": 1, "workers": 3}
    parallel.fit(Level(), data(), strategy=strategy, **{**THREADS, **still, **more}, checkpoint=str(folder))
    return kept_models(folder)


def test_own_starts_differ_and_are_drawn_again_the_same(tmp_path):
    torch.manual_seed(0)
    expect = own_starts(Level(), 3)
    first = started(tmp_path / "a", start="own")
    for mine, hand in zip(first, expect, strict=True):
        assert torch.equal(flat(mine), flat(hand))
    assert all(far(first[k], first[j]) > 0.1 for k, j in ((0, 1), (0, 2), (1, 2)))
    assert all(torch.equal(mine["level"], torch.full((4,), 0.25)) for mine in first)
    again, other = started(tmp_path / "b", start="own"), started(tmp_path / "c", start="own", seed=1)
    assert all(torch.equal(flat(one), flat(two)) for one, two in zip(first, again, strict=True))
    assert torch.equal(flat(first[0]), flat(other[0]))  # the first keeps what was given
    assert far(first[1], other[1]) > 0.1
    same = started(tmp_path / "d")
    assert all(torch.equal(flat(mine), flat(expect[0])) for mine in same)


# ---- ends ----


@pytest.mark.parametrize("job", [
    {"strategy": "local_sgd", "average_every": "end", "split": "class:0.5"},
    {"strategy": "local_sgd", "average_every": "epoch", "shares": (5, 2, 1)},
    {"strategy": "local_sgd", "average_every": 2},
    {"strategy": "gossip", "average_every": "epoch", "split": "class:0.5", "start": "own"},
    {"strategy": "gossip", "average_every": 1, "split": "order"},
], ids=str)  # fmt: skip
def test_workers_stop_at_an_error_and_then_the_run_ends(job):
    job = {"workers": 3, "optimizer": ADAM, "epochs": 60, "until_error": 0.75, **job}
    seen = Seen()
    found, hand = fit(data(), job, callbacks=[seen]), expected(data(), job)
    assert 1 < len(found.history) == hand["epochs"] < 60
    assert far(found.model, hand["model"]) < CLOSE
    assert far(found.model, fit(data(), {**job, "until_error": None}).model) > 1e-2
    assert seen.notes[-1] == f"ended after epoch {hand['epochs']}: no worker needs another one"
    assert len(seen.steps) == hand["epochs"]


def test_a_worker_stops_before_others_and_counts_with_its_rows():
    job = {"strategy": "local_sgd", "average_every": "epoch", "split": "class:0.1", "workers": 3, "optimizer": ADAM}
    job |= {"epochs": 60, "until_error": 0.5}
    hand = expected(data(), job)
    assert hand["first_stop"] < hand["epochs"] < 60
    assert far(fit(data(), job).model, hand["model"]) < CLOSE


def test_an_error_that_is_never_reached_changes_nothing():
    job = {"strategy": "gossip", "workers": 3, "average_every": 2}
    never = fit(data(), {**job, "until_error": 0.0})
    assert torch.equal(flat(never.model), flat(fit(data(), job).model))
    assert len(never.history) == SETTINGS["epochs"]


# ---- checkpoints ----


class Killed(Exception):
    """In the place of a crash."""


class KillAfter:
    def __init__(self, share: float) -> None:
        self.share = share

    def progress(self, event: EpochProgress) -> None:
        if event.share >= self.share:
            raise Killed

    def note(self, text: str) -> None:
        if text.startswith("ended after epoch"):
            raise Killed


THREE = {"workers": 3, "batch_size": 8, "epochs": 8}
RESUMED = [
    {"strategy": "gossip", "average_every": 1, "start": "own"},
    {"strategy": "gossip", "average_every": "epoch", "split": "class:0.5"},
    {"strategy": "gossip", "average_every": 1, "split": "class:0.3", "until_error": 1.25},
    {"strategy": "local_sgd", "average_every": 1, "shares": (3, 1, 2)},
    {"strategy": "local_sgd", "average_every": "end", "split": "order", "until_error": 1.25},
    {"strategy": "local_sgd", "average_every": 1, "split": "class:0.3", "until_error": 1.25},
]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.55])
@pytest.mark.parametrize("job", RESUMED, ids=str)
def test_a_run_goes_on_from_any_round_to_the_same_bits(job, share, tmp_path):
    job = {**job, **THREE}
    whole = parallel.fit(network("random"), data(), data(40, 2), **{**THREADS, **job})
    kept = {**THREADS, **job, "checkpoint": str(tmp_path), "checkpoint_every": 1}
    with pytest.raises(Killed):
        parallel.fit(network("random"), data(), data(40, 2), **kept, callbacks=[KillAfter(share)])
    resumed = parallel.fit(network("random"), data(), data(40, 2), **kept)
    assert torch.equal(flat(resumed.model), flat(whole.model))
    assert [record["valid_loss"] for record in resumed.history] == [record["valid_loss"] for record in whole.history]


@pytest.mark.parametrize("job", [job for job in RESUMED if "until_error" in job], ids=str)
def test_some_of_the_runs_that_go_on_end_early(job):
    found = parallel.fit(network("random"), data(), **{**THREADS, **job, **THREE})
    assert 3 < len(found.history) < THREE["epochs"]


def test_a_run_that_has_ended_stays_ended(tmp_path):
    job = {"strategy": "local_sgd", "workers": 2, "optimizer": "adam", "learning_rate": 0.01, "until_error": 1.2}
    job |= {"epochs": 40, "checkpoint": str(tmp_path)}
    first = fit(data(), job)
    again = fit(data(), {**job, "epochs": 80})
    assert len(first.history) == len(again.history) < 40
    assert torch.equal(flat(first.model), flat(again.model))


@pytest.mark.parametrize(("job", "what"), [
    ({"strategy": "gossip"}, "that have not been averaged yet"),
    ({"strategy": "local_sgd", "average_every": 1, "split": "order"}, "with rows of their own"),
    ({"strategy": "local_sgd", "until_error": 0.1}, "with rows of their own"),
])  # fmt: skip
def test_workers_that_differ_cannot_become_more_or_fewer(job, what, tmp_path):
    kept = {**job, "epochs": 1, "checkpoint": str(tmp_path)}
    fit(data(), {**kept, "workers": 3})
    with pytest.raises(ValueError, match=rf"holds 3 workers {what}; resume with workers=3, not 2"):
        fit(data(), {**kept, "workers": 2})
    assert not Job(**job).method.can_lose_workers(Job(**job))


def test_averaged_workers_may_become_fewer_after_an_epoch(tmp_path):
    job = {"strategy": "local_sgd", "split": "class:0.5", "checkpoint": str(tmp_path)}
    fit(data(), {**job, "workers": 3, "epochs": 1})
    assert len(fit(data(), {**job, "workers": 2, "epochs": 2}).history) == 2
    assert Job(strategy="local_sgd", split="order").method.can_lose_workers(Job(strategy="local_sgd", split="order"))


@pytest.mark.parametrize(("option", "value"), [("split", "order"), ("shares", (1, 2)), ("start", "own"),
                                               ("until_error", 0.5)])  # fmt: skip
def test_a_checkpoint_remembers_each_option(option, value, tmp_path):
    job = {"strategy": "local_sgd", "workers": 2, "epochs": 1}
    fit(data(), job, checkpoint=str(tmp_path / "plain"))
    with pytest.raises(ValueError, match=rf"that differs: {option} was .* and is "):
        fit(data(), {**job, option: value}, checkpoint=str(tmp_path / "plain"))
    fit(data(), {**job, option: value}, checkpoint=str(tmp_path / "given"))
    with pytest.raises(ValueError, match=rf"that differs: {option} was .* and is "):
        fit(data(), job, checkpoint=str(tmp_path / "given"))


# ---- mistakes ----


@pytest.mark.parametrize(("job", "sentence"), [
    ({"split": "shuffled"}, r"split must be one of random, order, class:ALPHA; got 'shuffled'"),
    ({"split": 3}, r"split must be one of random, order, class:ALPHA; got 3"),
    ({"split": "class:0"}, r"the number in split must be positive and below 1e9, as in class:0.5; got 'class:0'"),
    ({"split": "class:-1"}, r"the number in split must be positive .*; got 'class:-1'"),
    ({"split": "class:many"}, r"the number in split must be positive .*; got 'class:many'"),
    ({"split": "class:nan"}, r"the number in split must be positive .*; got 'class:nan'"),
    ({"shares": (1, -2)}, r"each number of shares must be a positive number .*; got -2"),
    ({"shares": "3,x"}, r"shares must be numbers, one for each worker, as in 3,1; got '3,x'"),
    ({"shares": 3}, r"shares must be numbers, one for each worker, as in 3,1; got 3"),
    ({"shares": (1, 2, 3)}, r"shares must be one number for each of the 2 workers; got 3"),
    ({"shares": (1, 2), "split": "class:1"}, r"shares and split='class:1' both say how many rows a worker has"),
    ({"start": "other"}, r"start must be one of same, own; got 'other'"),
    ({"until_error": -0.5}, r"until_error must be a number of at least 0; got -0.5"),
    ({"strategy": "gossip", "average_every": "end"}, r"'gossip' averages neighbours during the run; got .*'end'"),
    ({"strategy": "allreduce", "split": "order"}, r"split needs one of the strategies local_sgd, gossip; got 'allr"),
    ({"strategy": "serial", "workers": 1, "until_error": 1}, r"until_error needs one of the strategies .*'serial'"),
])  # fmt: skip
def test_impossible_settings_are_refused_in_one_sentence(job, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(data(), {"strategy": "local_sgd", "workers": 2, **job})


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_targets_that_are_no_classes_are_refused_before_anything_is_started(backend):
    rows = TensorDataset(data().tensors[0], torch.zeros(131, 4))
    with pytest.raises(ValueError, match=r"split='class:1' needs targets that are class numbers"):
        fit(rows, {"strategy": "gossip", "workers": 2, "split": "class:1", "loss": "mse", "backend": backend})


def test_the_command_line_has_the_options(call, tmp_path):
    said = call(tmp_path, "train", "--data", "iris", "--strategy", "gossip", "--backend", "threads", "--workers", 2,
                "--shares", "3,1", "--start", "own", "--until-error", "1.0", "--average-every", "2", "--epochs", 40,
                "--lr", "0.01", "--batch-size", "8", "--out", "run")  # fmt: skip
    assert "no worker needs another one" in said.stdout + said.stderr
    wrong = call(tmp_path, "train", "--data", "iris", "--strategy", "gossip", "--split", "class:x", code=2)
    assert "the number in --split must be positive" in wrong.stdout + wrong.stderr


def test_models_are_not_shared_between_workers_of_the_oracle():
    """The oracle itself: without mixing, workers end apart."""
    models = [network() for _ in range(2)]
    job = {**SETTINGS, "strategy": "local_sgd", "average_every": "end", "optimizer": MOMENTUM}
    hand = by_hand(models, data(), dealt(131, 2, "order", None), copy.deepcopy(job))
    assert far(hand["apart"][0], hand["apart"][1]) > 1e-2

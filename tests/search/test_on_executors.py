"""A search gives the same bytes on every executor, in whatever shards, and from its journal after a crash."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from support import search_work
from support.callbacks import Crash, CrashAfter
from support.executors import KINDS, dask, named

from shoal.population.members import Member
from shoal.runs.journal import Journal
from shoal.search.estimators import ShoalClassifier, ShoalRegressor
from shoal.search.remote import on_workers, shards
from shoal.search.rounds import candidates

SPACE = {
    "hidden": [4, 8, 12], "learning_rate": [3e-3, 1e-2, 3e-2], "patience": [0, 2], "optimizer": ["adam", "sgd"],
    "encoding": ["plain", "piecewise"],
}  # fmt: skip
EXECUTORS = KINDS | {"local:3": named("local:3"), "dask, 4 workers": dask(4)}


def searching(**more):
    return ShoalClassifier(SPACE, recipes=14, cv=3, epochs=9, seeds=2, **more)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The bytes of the search in one process."""
    from sklearn.datasets import load_iris

    return search_work.files_of_model(
        searching().fit(*load_iris(return_X_y=True)), tmp_path_factory.mktemp("alone") / "model"
    )


@pytest.fixture
def tiny_shards(monkeypatch):
    """As many shards as there can be: each candidate alone."""
    for module in (on_workers, candidates):
        monkeypatch.setattr(module, "FIRST_COST", 1e3)
    monkeypatch.setattr(on_workers, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(shards, "SHARE", 40)
    monkeypatch.setattr(candidates, "SHARD_SECONDS", 1e-9)


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_gives_the_bytes_of_one_process(name, alone, iris, tmp_path):
    with EXECUTORS[name].make() as workers:
        fitted = searching(executor=workers).fit(*iris)
    assert search_work.files_of_model(fitted, tmp_path / "model") == alone


def test_shards_of_one_candidate_give_the_same_bytes(alone, iris, tmp_path, tiny_shards):
    with EXECUTORS["local:2"].make() as workers:
        fitted = searching(executor=workers).fit(*iris)
    assert search_work.files_of_model(fitted, tmp_path / "model") == alone
    rungs = [rung for entry in fitted.result_.log for rung in entry["rungs"]]
    assert fitted.result_.trained_on["shards"] == sum(len(rung["trained"]) for rung in rungs)


@pytest.mark.parametrize("executor", [None, "serial"])
@pytest.mark.parametrize("rungs", [1, 2, 3, 4])
def test_a_search_goes_on_from_its_journal_with_the_same_bytes(executor, rungs, alone, iris, tmp_path, tiny_shards):
    journal = tmp_path / "journal"
    with pytest.raises(Crash):
        searching(executor=executor, journal=journal, callbacks=[CrashAfter(rungs)]).fit(*iris)
    fitted = searching(executor=executor, journal=journal).fit(*iris)
    assert search_work.files_of_model(fitted, tmp_path / "model") == alone
    assert fitted.result_.search.trainer.recalled >= 14


def test_a_finished_journal_needs_no_training_at_all(alone, iris, tmp_path, monkeypatch):
    searching(journal=tmp_path / "journal").fit(*iris)
    monkeypatch.setattr(candidates, "train", None)
    assert search_work.files_of_model(searching(journal=tmp_path / "journal").fit(*iris), tmp_path / "model") == alone


@pytest.mark.parametrize("kind", ["networks", "shard"])
def test_what_is_missing_from_the_journal_is_computed_again(kind, alone, iris, tmp_path, tiny_shards):
    """All networks are gone, or all assessments: the recipes say how to get them back."""
    journal = tmp_path / "journal"
    searching(journal=journal).fit(*iris)
    for file in journal.glob(f"{kind}-*"):
        file.unlink()
    assert search_work.files_of_model(searching(journal=journal).fit(*iris), tmp_path / "model") == alone


@pytest.mark.filterwarnings("ignore:.*moved to damaged")
def test_damaged_files_never_change_the_result(alone, iris, tmp_path, tiny_shards):
    journal = tmp_path / "journal"
    with pytest.raises(Crash):
        searching(journal=journal, callbacks=[CrashAfter(3)]).fit(*iris)
    generator = np.random.default_rng(0)
    for number, file in enumerate(sorted(journal.glob("*.safetensors"))):
        content = bytearray(file.read_bytes())
        if number % 3 == 0:
            content[generator.integers(len(content))] ^= 1 << generator.integers(8)
        elif number % 3 == 1:
            del content[generator.integers(len(content)) :]
        file.write_bytes(bytes(content))
    assert search_work.files_of_model(searching(journal=journal).fit(*iris), tmp_path / "model") == alone
    assert list((journal / "damaged").iterdir())


def test_a_journal_of_other_data_or_parameters_is_not_used(iris, tmp_path):
    X, y = iris
    journal = tmp_path / "journal"
    searching(journal=journal).fit(X, y)
    for other, more in ((X + 0.5, {}), (X, {"cv": 4}), (X, {"scoring": "roc_auc"}), (X, {"random_state": 1})):
        fitted = searching(journal=journal).set_params(**more).fit(other, y)
        assert fitted.result_.search.trainer.recalled == 0


def test_a_journal_keeps_no_networks_that_nobody_needs(iris, tmp_path, tiny_shards):
    journal = tmp_path / "journal"
    fitted = searching(journal=journal).fit(*iris)
    opened = Journal(journal)
    kept = [one for one in fitted.result_.candidates if one.pool is not None]
    assert opened.count("networks") == len(kept)
    assert opened.count("shard") > 14


def test_a_regression_with_a_scorer_of_ones_own(tmp_path):
    """What a scorer is given travels too: units of the target, and the scorer itself."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    members = [Member(hidden=k, epochs=3) for k in (2, 3, 4)]
    found = []
    for executor in (None, "local:1"):
        model = ShoalRegressor(members, cv=3, seeds=1, scoring=search_work.median_error, executor=executor)
        found.append(search_work.files_of_model(model.fit(X, y), tmp_path / str(executor)))
    assert found[0] == found[1]


@contextmanager
def poisoned(monkeypatch, folder):
    monkeypatch.setattr(on_workers, "WORK", f"{search_work.__name__}:poisoned")
    monkeypatch.setenv(search_work.KILLS, str(folder))
    yield


def test_a_recipe_that_ends_every_worker_is_set_aside_and_the_rest_is_finished(iris, tmp_path, monkeypatch):
    members = [Member(hidden=k, epochs=4) for k in range(2, 12)]
    with poisoned(monkeypatch, tmp_path):
        model = ShoalClassifier(members, strategy="random", cv=3, seeds=1, recipes=10, executor="local:2")
        with pytest.warns(UserWarning, match=r"skipped, because it ended \d+ workers in a row.*: recipe 5: .*7"):
            model.fit(*iris)
    aside = [one for one in model.result_.candidates if one.skip_reason]
    assert [one.recipe.member.hidden for one in aside] == [(7,)]
    assert all(one.finished for one in model.result_.candidates if one not in aside)
    assert len(list(tmp_path.iterdir())) >= 3

"""A worker that fails whatever it gets costs time, never a recipe; what fails everywhere is skipped, and said to be."""

from __future__ import annotations

import json
import re
import warnings

import pytest
from support import search_work
from support.callbacks import Crash, CrashAfter
from support.dask_cluster import Cluster

from shoal.cli.search_run import Watching
from shoal.population.members import Member
from shoal.search.estimators import ShoalClassifier
from shoal.search.remote import on_workers, shards

SPACE = {"hidden": [4, 8, 12], "learning_rate": [3e-3, 1e-2, 3e-2], "patience": [0, 2]}
IRIS = "sepal,species\n" + "".join(f"{k % 3 + k / 1000},{'abc'[k % 3]}\n" for k in range(60))
SEARCH = ("search", "iris.csv", "--target", "species", "--recipes", 12, "--seeds", 1, "--epochs", 3, "--out", "out")
NAMED = r"worker tcp://\S+ on \S+ gets no more tasks: it failed 2 tasks that other workers completed \((.*)\); (.*)"


def searching(**more):
    return ShoalClassifier(SPACE, recipes=14, cv=3, epochs=9, seeds=2, **more)


@pytest.fixture(scope="module")
def alone(iris, tmp_path_factory):
    """The bytes of the search in one process."""
    return search_work.files_of_model(searching().fit(*iris), tmp_path_factory.mktemp("alone") / "model")


@pytest.fixture(scope="module")
def fault(tmp_path_factory):
    return tmp_path_factory.mktemp("fault") / "error"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, fault):
    """Two Dask workers. On one of them, every task fails."""
    pytest.importorskip("distributed")
    cluster = Cluster(tmp_path_factory.mktemp("dask"), workers=1)
    try:
        cluster.add(variables={search_work.FAULT: str(fault)})
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def work(monkeypatch):
    def use(name):
        monkeypatch.setattr(on_workers, "WORK", f"{search_work.__name__}:{name}")

    return use


@pytest.mark.parametrize("error", search_work.ERRORS)
def test_the_weights_are_those_of_a_cluster_without_it(error, cluster, fault, work, alone, iris, tmp_path, monkeypatch):
    monkeypatch.setattr(on_workers, "FIRST_COST", 1e3)  # many small shards, so that both workers get some
    monkeypatch.setattr(on_workers, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(shards, "SHARE", 40)
    work("faulty")
    fault.write_text(error)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = searching(executor=cluster.name).fit(*iris)
    assert search_work.files_of_model(fitted, tmp_path / "model") == alone
    assert fitted.result_.skipped == []
    said = [match for one in caught if (match := re.fullmatch(NAMED, str(one.message)))]
    assert len(said) == 1, [str(one.message) for one in caught]
    assert type(search_work.ERRORS[error]()).__name__ in said[0][1]
    if error == "disk":
        assert said[0][2] == "make room on its disk"


def test_where_every_disk_is_full_the_search_stops_and_names_the_first_failure(
    work, call, fault, tmp_path, monkeypatch
):
    work("faulty")
    fault.write_text("disk")
    (tmp_path / "iris.csv").write_text(IRIS)
    with monkeypatch.context() as patched:  # a search that has got some way
        patched.setattr(Watching, "step_ended", CrashAfter(2).step_ended, raising=False)
        call(tmp_path, *SEARCH, code=2)
    with monkeypatch.context() as patched:
        patched.setenv(search_work.FAULT, str(fault))
        said = call(tmp_path, *SEARCH, "--cluster", "local:2", code=2).stderr
    assert re.search(
        r"local:2: workers fail every task, for a reason outside of the recipes\. The first failure: worker \d+ on "
        r"\S+: OSError: \[Errno 28\] No space left on device; make room on its disk, and run the same command again",
        said,
    )
    assert said.rstrip().endswith("What was finished is kept in out; run the same command again to continue.")
    call(tmp_path, *SEARCH, "--cluster", "local:2")
    call(tmp_path, *SEARCH[:-1], "undisturbed")
    weights = [(tmp_path / name / "model/weights.safetensors").read_bytes() for name in ("out", "undisturbed")]
    assert weights[0] == weights[1]


def test_a_search_that_skipped_a_recipe_says_so_and_has_an_exit_code_of_its_own(work, call, tmp_path):
    work("refused")
    (tmp_path / "iris.csv").write_text(IRIS)
    words = [*SEARCH, "--cluster", "local:2"]
    searched, shown = (call(tmp_path, *words, code=3).stdout for _ in range(2))
    skipped = json.loads((tmp_path / "out/settings.json").read_text())["result"]["skipped"]
    reason = "it failed on 2 workers, for an error of its own (ArithmeticError: mish is not allowed)"
    assert skipped
    assert all("mish" in one["label"] for one in skipped)
    assert {one["reason"] for one in skipped} == {reason}
    for said in (searched, shown):
        assert f"skipped {len(skipped)} recipe" in said
        assert f"  recipe {skipped[0]['recipe']}: {reason}" in said
    report = (tmp_path / "out/report.html").read_text()
    assert "skipped.</strong> No worker could complete the training." in report
    assert reason in report


@pytest.mark.filterwarnings("ignore:skipped, because")
def test_a_search_that_is_resumed_with_nothing_left_but_recipes_that_fail_is_finished(work, iris, tmp_path):
    """Nothing is done by then in this attempt, but there are results of an earlier one: it is the recipes."""
    work("refused")
    members = [Member(hidden=k, epochs=3, activation="mish" if k % 2 else "relu") for k in range(2, 10)]
    model = ShoalClassifier(
        members, strategy="random", cv=3, seeds=1, recipes=8, executor="local:2", journal=tmp_path / "journal"
    )
    with pytest.raises(Crash):
        model.set_params(callbacks=[CrashAfter(1)]).fit(*iris)
    model.set_params(callbacks=None).fit(*iris)
    assert [one.recipe.member.activation for one in model.result_.skipped] == ["mish"] * 4
    assert model.result_.search.trainer.recalled == 4

"""The benchmarks of the search: peers are strong and on time, ranks and losses are told, a killed run goes on."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from shoal.bench import gridsearch, startup, tabular, tabular_data, tabular_fit, tabular_peers, tabular_report
from shoal.bench.cli import app
from shoal.bench.tabular_search import TimedSearch, log_loss, outputs, r_squared

pandas = pytest.importorskip("pandas")
SEARCHES = ("mlp", "forest", "boosting", "linear")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs tests has other things to do."""
    monkeypatch.setenv("SHOAL_THREADS", "1")


def load(name: str) -> tabular_data.Dataset:
    try:
        return tabular_data.load(name)
    except FileNotFoundError:
        pytest.skip(f"the file of {name} is not on this machine")


# ---- the tables ----


@pytest.mark.parametrize("name", tabular_data.SOURCES)
def test_tables_are_numbers_and_categories(name: str) -> None:
    data = load(name)
    kinds = {str(kind) for kind in data.X.dtypes}
    assert kinds <= {"float64", "category"}
    assert len(data.X) == len(data.y) > 100
    assert not pandas.isna(data.y).any()
    if data.task == "regression":
        assert data.y.dtype == float
    assert not any(data.X[column].equals(pandas.Series(data.y)) for column in data.X)  # the target is not among them


def test_tables_are_what_their_description_says() -> None:
    shapes = {"german": (1000, 20), "pima": (768, 8), "breast-cancer": (286, 9), "winequality-red": (1599, 11)}
    for name, shape in shapes.items():
        assert load(name).X.shape == shape
    assert load("breast-cancer").categories == 8
    assert load("german").categories == 13
    assert set(np.unique(load("breast-cancer").y)) == {"no-recurrence-events", "recurrence-events"}  # quotes are gone
    assert load("pima").missing > 0.1  # zeros stand for missing


def test_horse_colic_has_no_column_that_gives_the_answer_away() -> None:
    data = load("horse-colic")
    assert data.X.shape == (300, 22)
    assert 0.2 < data.missing < 0.4
    assert sorted(np.unique(data.y, return_counts=True)[1]) == [109, 191]
    for column in ("column 3", "column 23", "column 24", "column 25", "column 26", "column 27"):
        assert column not in data.X


def test_outer_folds_are_the_same_for_all_and_stratified() -> None:
    y = np.repeat([0, 1, 2], [60, 30, 9])
    folds = tabular_data.folds("classification", y, 3, seed=0)
    again = tabular_data.folds("classification", y, 3, seed=0)
    for (train, test), (_, same) in zip(folds, again, strict=True):
        assert not set(train) & set(test)
        assert np.bincount(y[test]).tolist() == [20, 10, 3]
        np.testing.assert_array_equal(test, same)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(99))
    assert np.any(np.diff(tabular_data.folds("regression", np.arange(9.0), 3, seed=0)[0][1]) != 1)  # shuffled


# ---- scores ----


def test_log_loss_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import log_loss as expected
    from sklearn.metrics import r2_score

    generator = np.random.default_rng(0)
    found, y = generator.dirichlet(np.ones(3), 50), generator.integers(0, 3, 50)
    assert log_loss(found, y, np.arange(3)) == pytest.approx(expected(y, found), abs=1e-5)
    assert log_loss(np.eye(2)[[0]], np.array([1]), np.arange(2)) == pytest.approx(-np.log(1e-7), abs=1e-6)
    assert r_squared(found[:, 0], found[:, 1]) == pytest.approx(r2_score(found[:, 1], found[:, 0]))


def test_outputs_have_a_column_for_each_class() -> None:
    class Model:
        classes_ = np.array(["a", "c"])

        def predict_proba(self, X: Any) -> np.ndarray:
            return np.array([[0.3, 0.7]])

    np.testing.assert_array_equal(outputs(Model(), None, np.array(["a", "b", "c"])), [[0.3, 0.0, 0.7]])


def test_predictions_that_are_no_numbers_are_a_failure() -> None:
    with pytest.raises(ValueError, match="1 of 2 predictions are not finite"):
        tabular_fit.scores(np.array([np.nan, 1.0]), np.zeros(2), None)


# ---- the search of the peers ----


class Constant(BaseEstimator):
    """Predicts one value, after a while; or fails."""

    def __init__(self, value: float = 0.0, seconds: float = 0.0, fails: bool = False) -> None:
        self.value, self.seconds, self.fails = value, seconds, fails

    def fit(self, X: Any, y: np.ndarray) -> Constant:
        time.sleep(self.seconds)
        if self.fails:
            raise ValueError("diverged")
        self.fitted_rows_ = len(y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), self.value)


def search(candidates: list[Constant], seconds: float) -> tuple[TimedSearch, float]:
    X, y = pandas.DataFrame({"a": np.arange(40.0)}), np.random.default_rng(0).normal(5.0, 1.0, 40)
    timed = TimedSearch(((model, {"value": model.value}) for model in candidates), "regression", seconds, threads=2)
    timed.warm_up()
    begun = time.perf_counter()
    timed.fit(X, y)
    return timed, time.perf_counter() - begun


def test_the_search_of_peers_picks_the_best_and_fits_it_on_all_rows() -> None:
    timed, seconds = search([Constant(0), Constant(9), Constant(5), Constant(5.0, fails=True), Constant(3)], 30)
    assert timed.model_.value == 5
    assert timed.model_.fitted_rows_ == 40
    assert timed.details_["candidates"] == 5
    assert timed.details_["best_candidate"] == 2
    assert timed.details_["best_parameters"] == {"value": "5"}
    assert timed.details_["first_score"] < timed.details_["best_score"]
    assert seconds < 15  # it ends when there is nothing left to try


def test_a_slow_candidate_does_not_make_a_peer_late() -> None:
    timed, seconds = search([Constant(0), Constant(4), Constant(5, seconds=60)], 2.0)
    assert timed.model_.value == 4
    assert 1.5 < seconds < 5


def test_a_default_that_is_too_slow_to_be_tried_is_fitted_all_the_same() -> None:
    timed, seconds = search([Constant(1, seconds=1.5), Constant(5)], 1.0)
    assert timed.model_.fitted_rows_ == 40
    assert timed.details_["candidates"] in (0, 1)
    assert seconds < 6


def test_the_refit_is_part_of_the_time() -> None:
    timed, seconds = search([Constant(k, seconds=0.8) for k in range(100)], 5.0)
    assert timed.details_["candidates"] >= 1
    assert 4.0 < seconds < 5.4


def mixed_table(rows: int = 90, seed: int = 0) -> tuple[Any, np.ndarray]:
    generator = np.random.default_rng(seed)
    number = generator.normal(size=rows)
    category = generator.choice(["a", "b", "c"], rows)
    X = pandas.DataFrame({"number": number, "other": generator.normal(size=rows), "category": category})
    X.loc[generator.random(rows) < 0.2, ["other", "category"]] = np.nan
    X["category"] = X["category"].astype(pandas.CategoricalDtype(["a", "b", "c", "never seen before"]))
    return X, number + (category == "a")


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", SEARCHES)
def test_candidates_take_categories_and_missing_values(name: str, task: str) -> None:
    X, target = mixed_table()
    classes = np.array([0, 1]) if task == "classification" else None
    y = (target > 0.3).astype(int) if task == "classification" else target
    new = X[:3].copy()
    new["category"] = pandas.Categorical(["never seen before"] * 3, dtype=X["category"].dtype)
    scores = []
    for model, _ in itertools.islice(getattr(tabular_peers, name)(task, 0), 5):
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # some of the drawn ones do not converge
            found = outputs(model.fit(X, y), X, classes)
            assert np.isfinite(outputs(model, new, classes)).all()
        scores.append(r_squared(found, y) if classes is None else (found.argmax(1) == y).mean())
    assert max(scores) > 0.75  # of the rows it was fitted on


@pytest.mark.parametrize("name", SEARCHES)
def test_the_first_candidate_is_the_default_of_the_library(name: str) -> None:
    from sklearn.base import clone

    (model, parameters), *others = itertools.islice(getattr(tabular_peers, name)("classification", 3), 4)
    final = model.named_steps["model"]
    defaults = type(final)().get_params()
    changed = {key for key, value in final.get_params().items() if value != defaults[key]}
    assert parameters == {}
    assert changed <= {"random_state", "n_jobs", "max_iter" if name == "linear" else "random_state"}
    for other, drawn in others:
        assert {key: clone(other).get_params()[key] for key in drawn if not key.startswith("columns")} == {
            key: value for key, value in drawn.items() if not key.startswith("columns")
        }


def test_all_peers_but_the_threaded_ones_have_a_thread_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    class Popen:
        returncode = 0

        def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
            seen[json.loads(command[-1])["contender"]] = env["OMP_NUM_THREADS"] + env["SHOAL_THREADS"]

        def communicate(self, timeout: float) -> tuple[str, str]:
            return f"noise\n{tabular_fit.LAST_LINE}" + '{"r2": 0.5}\n', ""

    monkeypatch.setattr(tabular_fit.subprocess, "Popen", Popen)
    for name in tabular_peers.CONTENDERS:
        assert tabular_fit.run({"contender": name, "threads": 2}, 1) == {"r2": 0.5}
    assert seen == {**dict.fromkeys(SEARCHES, "11"), "shoal": "22", "realmlp": "22"}


def test_a_fit_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular_fit.sys, "executable", "/bin/sh")
    monkeypatch.setattr(tabular_fit.json, "dumps", lambda job: "")
    real = subprocess.Popen
    monkeypatch.setattr(
        tabular_fit.subprocess, "Popen", lambda command, **options: real(["sleep", "60"], **options)
    )  # fmt: skip
    begun = time.perf_counter()
    assert tabular_fit.run({"contender": "mlp", "threads": 1}, 0.2) == {"error": "did not end within 0 s"}
    assert time.perf_counter() - begun < 5


def test_a_fit_ends_with_the_benchmark_that_started_it(tmp_path: Path) -> None:
    """The child of a process that is killed ends itself."""
    child = "from shoal.bench.tabular_fit import end_with_parent; end_with_parent(); import time; "
    child += f"open({str(tmp_path / 'started')!r}, 'w').close(); time.sleep(120)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    while not (tmp_path / "started").exists():
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=30)  # ends when nobody holds the pipe any more: neither the parent nor the child


# ---- ranks and verdicts ----

TABLES = [{"name": "iris", "task": "classification"}, {"name": "housing", "task": "regression"}]


def made_up_entries(**scores: tuple[float, float, float]) -> list[dict[str, Any]]:
    """Log-loss, accuracy and R2 of each contender, on two folds that differ by 0.02."""
    found = []
    for name, (loss, accuracy, r2) in scores.items():
        for fold, shift in enumerate((-0.01, 0.01)):
            common = {"fold": fold, "contender": name, "fit_seconds": 1.0, "predict_seconds": 1.0, "test_rows": 9}
            common["details"] = {"candidates": 3}
            found.append({**common, "data": "iris", "log_loss": loss + shift, "accuracy": accuracy + shift})
            found.append({**common, "data": "housing", "r2": r2 + shift})
    return found


def ranks_of(entries: list[dict[str, Any]]) -> tuple[dict[tuple[str, str], dict[str, float]], dict[str, Any]]:
    contenders = list(dict.fromkeys(entry["contender"] for entry in entries))
    cells = tabular_report.averages(TABLES, contenders, entries)
    pairs = dict.fromkeys((table, measure) for table, measure, _ in cells)
    places = {pair: tabular_report.rank(cells, pair, contenders) for pair in pairs}
    return places, tabular_report.mean_ranks(places, contenders)


def test_ranks() -> None:
    places, means = ranks_of(made_up_entries(shoal=(0.3, 0.9, 0.7), mlp=(0.2, 0.9, 0.8), forest=(0.4, 0.8, 0.6)))
    assert places["iris", "log_loss"] == {"shoal": 2, "mlp": 1, "forest": 3}  # lower is better
    assert places["iris", "accuracy"] == {"shoal": 1.5, "mlp": 1.5, "forest": 3}
    assert places["housing", "r2"] == {"shoal": 2, "mlp": 1, "forest": 3}
    assert means["all"] == {"shoal": (1.75 + 2) / 2, "mlp": (1.25 + 1) / 2, "forest": 3}  # every table counts once


def test_who_fails_on_one_fold_is_last() -> None:
    entries = made_up_entries(shoal=(0.1, 0.9, 0.9), mlp=(0.2, 0.8, 0.8))
    del entries[0]["log_loss"], entries[0]["accuracy"]
    places, _ = ranks_of(entries)
    assert places["iris", "log_loss"] == {"shoal": 2, "mlp": 1}
    assert places["housing", "r2"] == {"shoal": 1, "mlp": 2}


def test_targets_of_the_tables_can_be_met_and_missed() -> None:
    _, means = ranks_of(made_up_entries(shoal=(0.1, 0.9, 0.9), mlp=(0.2, 0.8, 0.8)))
    assert [target.met for target in tabular_report.targets(means, True)] == [True] * 4
    _, means = ranks_of(made_up_entries(shoal=(0.3, 0.9, 0.7), mlp=(0.2, 0.8, 0.8), forest=(0.1, 0.7, 0.6)))
    targets = tabular_report.targets(means, True)
    assert [target.met for target in targets] == [False, True, False, False]
    assert targets[0].note == "shoal 3.00, forest 1.00"
    _, means = ranks_of(made_up_entries(mlp=(0.2, 0.8, 0.8)))
    assert [target.met for target in tabular_report.targets(means, True)] == [None] * 4


def test_losses_are_told() -> None:
    assert tabular_report._outcome({"shoal": 1.0, "mlp": 2.0}) == "first"
    assert tabular_report._outcome({"shoal": 1.5, "mlp": 1.5}) == "first, shared"
    assert tabular_report._outcome({"shoal": 3.0, "mlp": 2.0, "forest": 1.0}) == "LOST to forest, mlp"
    assert tabular_report._outcome({"mlp": 1.0}) == "-"


# ---- the journal ----

COMMON = {"seconds": 5.0, "folds": 2, "seed": 0, "threads": 2}


def test_the_journal_keeps_what_was_done_under_the_same_settings(tmp_path: Path) -> None:
    job = {"data": "iris", "fold": 0, "contender": "mlp"}
    path = tmp_path / "new" / "journal.jsonl"
    journal = tabular.Journal(path, COMMON)
    journal.add(job, {"log_loss": 0.1})
    journal.add({**job, "fold": 1}, {"error": "no luck"})
    again = tabular.Journal(path, COMMON)
    assert again.has(job)
    assert again.entry(job)["log_loss"] == 0.1
    assert not again.has({**job, "fold": 1})  # what failed is tried again
    assert not tabular.Journal(path, {**COMMON, "seconds": 60.0}).has(job)


def test_a_line_that_was_cut_short_is_no_line(tmp_path: Path) -> None:
    job = {"data": "iris", "fold": 0, "contender": "mlp"}
    path = tmp_path / "journal.jsonl"
    tabular.Journal(path, COMMON).add(job, {"log_loss": 0.1})
    path.write_text(path.read_text() + '{"data": "iris", "fold": 1, "cont')
    journal = tabular.Journal(path, COMMON)
    journal.add({**job, "fold": 1}, {"log_loss": 0.2})
    again = tabular.Journal(path, COMMON)
    assert [again.entry({**job, "fold": fold})["log_loss"] for fold in (0, 1)] == [0.1, 0.2]


def test_contenders_that_changed_are_forgotten(tmp_path: Path) -> None:
    job = {"data": "iris", "fold": 0}
    path = tmp_path / "journal.jsonl"
    tabular.Journal(path, {**COMMON, "seconds": 60.0}).add({**job, "contender": "shoal"}, {"log_loss": 0.3})
    journal = tabular.Journal(path, COMMON)
    for name in ("shoal", "mlp"):
        journal.add({**job, "contender": name}, {"log_loss": 0.1})
    journal.forget(["shoal"])
    for one in (journal, tabular.Journal(path, COMMON)):
        assert [one.has({**job, "contender": name}) for name in ("shoal", "mlp")] == [False, True]
    assert tabular.Journal(path, {**COMMON, "seconds": 60.0}).has({**job, "contender": "shoal"})  # not asked for


# ---- the commands ----


def bench(tmp_path: Path, command: str) -> dict[str, Any]:
    """Run a command; check what every result must have."""
    name = command.split()[0]
    outcome = CliRunner().invoke(app, [*command.split(), "--out", str(tmp_path)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    for ending in ("json", "md", "png"):
        assert (tmp_path / f"{name}.{ending}").stat().st_size > 200
    text = (tmp_path / f"{name}.json").read_text() + (tmp_path / f"{name}.md").read_text()
    for path in (str(tmp_path), str(Path.home()), str(Path.cwd()), sys.prefix):
        assert path not in text
    result: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
    assert result["command"] == f"shoal bench {command}"
    assert {"date", "cpu", "cores", "versions"} <= set(result["machine"])
    return result


def made_up_fit(job: dict[str, Any], patience: float) -> dict[str, Any]:
    """What a fit would say, without one; the linear one fails on the second fold."""
    if (job["contender"], job["fold"]) == ("linear", 1):
        return {"error": "ValueError: no luck"}
    quality = 0.01 * (tabular_peers.CONTENDERS.index(job["contender"]) + job["fold"])
    scores = {"r2": 0.9 - quality} if job["data"] == "diabetes" else {"log_loss": quality, "accuracy": 1 - quality}
    return {**scores, "fit_seconds": 5.0, "predict_seconds": 0.1, "test_rows": 50, "details": {"candidates": 7}}


def test_tabular_tells_ranks_losses_and_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular_fit, "run", made_up_fit)
    monkeypatch.setattr(tabular_peers, "installed", lambda name: False)
    result = bench(tmp_path, "tabular --only wine --only diabetes --seconds 5.0 --folds 2")
    assert result["contenders"] == ["shoal", "mlp", "forest", "boosting", "linear"]
    assert len(result["fits"]) == 2 * 2 * 5
    assert result["mean_ranks"]["log_loss"] == {"shoal": 1, "mlp": 2, "forest": 3, "boosting": 4, "linear": 5}
    assert [target["met"] for target in result["targets"]] == [True] * 4
    assert not any(target["complete"] for target in result["targets"])  # two tables, and one peer is not here
    text = (tmp_path / "tabular.md").read_text()
    assert "realmlp did not take part: pytabkit is not installed: pip install 'shoal[peers]'." in text
    assert "Failed, and ranked last: linear on wine, fold 2: ValueError: no luck." in text
    assert "| wine | 0.0050 * | 0.0150 | 0.0250 | 0.0350 | failed | first |" in text
    assert "| forest: random forest, random search | 3.00 | 3.00 | 3.00 | 3.00 |" in text
    assert {"scikit-learn", "pytabkit"} <= set(result["machine"]["versions"])


def test_tabular_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int, str]] = []

    def fit(job: dict[str, Any], patience: float) -> dict[str, Any]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((job["data"], job["fold"], job["contender"]))
        assert job["seconds"] == 5
        return made_up_fit(job, patience)

    monkeypatch.setattr(tabular_fit, "run", fit)
    command = "tabular --only iris --contender shoal --contender mlp --seconds 5.0 --folds 2"
    outcome = CliRunner().invoke(app, [*command.split(), "--out", str(tmp_path)])
    assert outcome.exit_code != 0
    first, done[:] = list(done), []
    result = bench(tmp_path, command)
    assert first + done == [("iris", fold, name) for fold in (0, 1) for name in ("shoal", "mlp")]  # they take turns
    done.clear()
    assert bench(tmp_path, command)["fits"] == result["fits"]
    assert done == []
    bench(tmp_path, f"{command} --again shoal")
    assert done == [("iris", 0, "shoal"), ("iris", 1, "shoal")]


def test_tabular_without_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(path: str) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr(tabular_fit, "run", made_up_fit)
    monkeypatch.setattr(tabular_data, "find", find)
    result = bench(tmp_path, "tabular --only german --only iris --contender shoal --contender mlp")
    assert [table["name"] for table in result["tables"]] == ["iris"]
    assert any(note.startswith("german did not take part: its file was not found") for note in result["notes"])
    with pytest.raises(FileNotFoundError, match="none of the tables asked for is here: german"):
        bench(tmp_path, "tabular --only german")


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [("--only", "digit", "digits"), ("--contender", "forrest", "forest"), ("--again", "Shoal", "shoal")],
)
def test_tabular_refuses_what_it_does_not_know(tmp_path: Path, option: str, value: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"got '{value}'; did you mean '{hint}'"):
        bench(tmp_path, f"tabular {option} {value}")


def test_tabular_for_real(tmp_path: Path) -> None:
    result = bench(tmp_path, "tabular --only iris --contender shoal --contender linear --seconds 2.0 --folds 2")
    assert len(result["fits"]) == 4
    for fit in result["fits"]:
        assert "error" not in fit, fit
        assert fit["accuracy"] > 0.8
        assert 0 < fit["log_loss"] < 0.7
        assert fit["fit_seconds"] < 8
        assert fit["test_rows"] == 75


# ---- the grid search ----


def test_the_grid_has_a_hundred_recipes_and_parts_of_it_have_every_value() -> None:
    work = gridsearch.make_work(gridsearch.Settings())
    assert (len(work.recipes), len(work.folds), work.epochs) == (100, 10, 20)
    members = [gridsearch.member(recipe, 20) for recipe in work.recipes]
    assert len(set(members)) == 100
    assert {member.batch_size for member in members} == {32}
    for count in (10, 20, 30, 50):
        part = gridsearch.spaced(work.recipes, count)
        assert len({tuple(recipe.values()) for recipe in part}) == count
        for name, values in gridsearch.GRID.items():
            assert {recipe[name] for recipe in part} == set(values)
    with pytest.raises(ValueError, match="--recipes must be from 1 to 100; got 101"):
        gridsearch.spaced(work.recipes, 101)


def test_all_three_searches_do_the_same_work() -> None:
    work = gridsearch.make_work(gridsearch.Settings(recipes=100, folds=3, epochs=10))
    chosen = [recipe for recipe in work.recipes if recipe["hidden_layer_sizes"] == (32,) and recipe["alpha"] == 1e-4]
    work = work._replace(recipes=[recipe for recipe in chosen if recipe["activation"] == "tanh"])
    theirs = gridsearch.by_scikit_learn(work)
    assert np.ptp(theirs) > 0.02  # recipes differ by more than what is allowed below
    for method in (gridsearch.by_population, gridsearch.by_estimator):
        ours = method(work)
        assert ours.shape == theirs.shape == (5,)
        np.testing.assert_allclose(ours, theirs, atol=0.035)


def test_scikit_learn_trains_for_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.neural_network import MLPClassifier

    epochs = []
    fit = MLPClassifier.fit

    def watched(self: Any, X: Any, y: Any) -> Any:
        fitted = fit(self, X, y)
        epochs.append(fitted.n_iter_)
        return fitted

    monkeypatch.setattr(MLPClassifier, "fit", watched)
    work = gridsearch.make_work(gridsearch.Settings(recipes=100, folds=2, epochs=15))
    gridsearch.by_scikit_learn(work._replace(recipes=work.recipes[-1:]))  # the largest learning rate: it jumps about
    assert epochs == [15, 15]


def test_gridsearch(tmp_path: Path) -> None:
    result = bench(tmp_path, "gridsearch --recipes 4 --share 0.5 --folds 2 --epochs 2 --repeats 1")
    contenders = result["contenders"]
    assert list(contenders) == list(gridsearch.NAMES)
    assert [contenders[name]["networks"] for name in gridsearch.NAMES] == [8, 8, 4]
    theirs = contenders["gridsearchcv"]
    assert theirs["scaled"]
    assert theirs["measured_on"] == "2 of 4 recipes"
    assert theirs["seconds"] == pytest.approx(2 * theirs["raw_seconds"]["only"][0], rel=1e-4)
    assert theirs["faster_than_gridsearchcv"] == 1
    for name in ("estimator", "population"):
        numbers = contenders[name]
        assert numbers["faster_than_gridsearchcv"] == pytest.approx(theirs["seconds"] / numbers["seconds"], rel=1e-4)
        assert len(numbers["accuracy"]) == 4
    assert [target["complete"] for target in result["targets"]] == [False, False]
    assert "~ GridSearchCV: measured on 2 of 4 recipes" in (tmp_path / "gridsearch.md").read_text()


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--share must be above 0 and at most 1; got 1\.5"):
        gridsearch.run(gridsearch.Settings(share=1.5))


def test_the_target_of_the_grid_search_can_be_missed() -> None:
    data = {"contenders": {name: {"faster_than_gridsearchcv": ratio} for name, ratio in
                           (("estimator", 19.0), ("population", 30.0))}}  # fmt: skip
    targets = gridsearch.targets(gridsearch.Settings(repeats=1), data)
    assert [(target.met, target.complete) for target in targets] == [(False, True), (True, True)]
    assert not gridsearch.targets(gridsearch.Settings(share=0.1), data)[0].complete


# ---- waiting ----


def test_report(tmp_path: Path) -> None:
    result = bench(tmp_path, "report --members 40 --repeats 1")
    assert set(result["seconds"]) == {"import shoal", "shoal --help", "python", "report"}
    assert min(result["seconds"].values()) > 0
    assert result["report_bytes"] > 1000
    assert [target["complete"] for target in result["targets"]] == [True, True, False]


def test_targets_of_waiting_can_be_missed() -> None:
    best = {"import shoal": 0.31, "shoal --help": 0.4, "report": 11.0}
    assert [target.met for target in startup.targets(startup.Settings(), best)] == [False, True, False]


def test_the_made_up_search_has_a_row_for_each_member() -> None:
    data = startup.made_up_search(25)
    board = data["leaderboard"]
    assert len(board["rows"]) == 25
    assert all(len(row) == len(board["columns"]) for row in board["rows"])
    json.dumps(data, allow_nan=False)


def test_these_benchmarks_load_nothing_heavy() -> None:
    modules = ("tabular", "tabular_fit", "tabular_report", "gridsearch", "startup")
    code = f"import sys, {', '.join(f'shoal.bench.{name}' for name in modules)}; "
    code += "heavy = ('torch', 'matplotlib', 'pandas', 'sklearn', 'scipy', 'pytabkit'); "
    code += "print([name for name in heavy if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"

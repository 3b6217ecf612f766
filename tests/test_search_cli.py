"""`shoal search` and `shoal predict`, run as users run them: real commands on small files of real data."""

import csv
import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.search import rundir
from shoal.search.estimators import Hooks
from shoal.search.question import ask
from shoal.search.table import Table
from shoal.search.tasks import METRICS
from shoal.search_cli import predict

FILES = {"report.html", "leaderboard.csv", "model", "settings.json"}


def command(*arguments):
    return [sys.executable, "-m", "shoal", *map(str, arguments)]


def run(folder, *arguments, code=0):
    result = subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def start(folder, *arguments):
    return subprocess.Popen(command(*arguments), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process, words):
    """Read what the process says until it says this: no guess at how long that takes."""
    for line in process.stderr:
        if re.search(words, line):
            return
    pytest.fail(f"the process ended without saying {words!r}: {process.communicate()}")


def answers(model, file, **flags):
    """What `shoal predict` writes, without the seconds that a new process takes to start."""
    out = file.with_suffix(".answers")
    predict(model, file, out, **flags)
    return out.read_text()


def write(path, names, columns):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        if names:
            writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))
    return path


def iris_table():
    names, columns = iris_columns()
    return Table.of(dict(zip(names[:-1], columns[:-1], strict=True))), np.array(columns[-1])


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def iris_columns():
    """Measurements of flowers, one of them as a category, and their species."""
    from sklearn.datasets import load_iris

    found = load_iris()
    width = np.array(["narrow", "middling", "wide"])[np.digitize(found.data[:, 3], [0.6, 1.7])]
    names = ["sepal length", "sepal width", "petal length", "petal width", "species"]
    return names, [*found.data.T[:3].tolist(), width.tolist(), found.target_names[found.target].tolist()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the data, and one search of it in `first`."""
    folder = tmp_path_factory.mktemp("cli")
    write(folder / "iris.csv", *iris_columns())
    result = run(folder, "search", "iris.csv", "--target", "species", "--recipes", 6, "--out", "first", "--seeds", 2)
    (folder / "said.txt").write_text(result.stdout)
    return folder


# ---- a search ----


def test_a_search_tells_what_it_understood_planned_and_found(place):
    said = (place / "said.txt").read_text()
    assert "150 rows, 5 columns" in said
    assert "3 numbers, 1 category" in said
    assert "species, 3 classes: setosa (33%)" in said
    assert "task: classification" in said
    assert "--task regression to change" in said
    assert re.search(r"plan: 6 recipes x 8 folds \(stratified 8-fold\) = 48 networks, up to \d+ epochs", said)
    assert re.search(r"time: about [\d:]+ (s|min); memory: about [\d.]+ MB", said)
    assert re.search(r"expect about [\d.]+ right answers in 100 \(95% confidence", said)
    assert said.strip().splitlines()[-1] == str(Path("first/report.html"))


def test_the_run_folder_holds_everything_and_nothing_else(place):
    assert {file.name for file in (place / "first").iterdir()} == FILES
    assert not list(place.glob(".*.part"))
    board = read(place / "first" / "leaderboard.csv")
    assert [int(row["rank"]) for row in board] == [1, 2, 3, 4, 5, 6]
    page = (place / "first" / "report.html").read_text()
    assert "Predicting <em>species</em>" in page
    settings = json.loads((place / "first" / "settings.json").read_text())
    assert settings["data"]["sha256"] == rundir.file_hash(place / "iris.csv")
    assert settings["search"]["recipes"] == 6
    assert settings["result"]["score"]["corrected"] > 0.85


def test_a_finished_run_is_never_overwritten(place):
    before = (place / "first" / "settings.json").read_bytes()
    result = run(place, "search", "iris.csv", "--target", "-1", "--recipes", 2, "--out", "first", code=2)
    assert "finished run" in result.stderr
    assert (place / "first" / "settings.json").read_bytes() == before


def test_a_repetition_has_the_same_bits(place):
    run(place, "search", "--repeat", "first/settings.json", "--out", "again", "--threads", 1)
    one, other = (answers(place / name, place / "iris.csv", proba=True) for name in ("first", "again"))
    assert one == other
    first, again = (read(place / name / "leaderboard.csv") for name in ("first", "again"))
    for one, other in zip(first, again, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"} == {k: v for k, v in other.items() if k != "seconds"}
    scores = [json.loads((place / n / "settings.json").read_text())["result"]["score"] for n in ("first", "again")]
    assert {**scores[0], "bootstraps": 0} == {**scores[1], "bootstraps": 0}


def test_the_command_gives_what_the_library_gives_and_another_seed_other_bits(place):
    saved = shoal.load(place / "first" / "model")
    X, y = iris_table()
    same, other = (shoal.ShoalClassifier(recipes=6, seeds=2, random_state=seed).fit(X, y) for seed in (0, 1))
    np.testing.assert_array_equal(same.predict_proba(X), saved.predict_proba(X))
    assert not np.array_equal(other.predict_proba(X), saved.predict_proba(X))


def test_a_repetition_of_another_file_is_refused(place, tmp_path):
    changed = (place / "iris.csv").read_text().replace("5.1", "5.2", 1)
    (tmp_path / "iris.csv").write_text(changed)
    settings = place / "first" / "settings.json"
    error = run(tmp_path, "search", "iris.csv", "--repeat", settings, code=2).stderr
    assert "iris.csv has changed since (another checksum)" in error
    assert f"shoal search PLACE --repeat {settings}" in error
    assert "leave out --seed" in run(tmp_path, "search", "--repeat", settings, "--seed", 3, code=2).stderr


def test_a_dry_run_plans_and_leaves_nothing_behind(tmp_path):
    write(tmp_path / "iris.csv", *iris_columns())
    result = run(tmp_path, "search", "iris.csv", "--target", "species", "--budget", 30, "--dry-run", "--drop", "0")
    assert re.search(r"plan: about [\d,]+ recipes", result.stdout)
    assert "2 numbers, 1 category" in result.stdout
    assert "30 s, as asked" in result.stdout
    assert {file.name for file in tmp_path.iterdir()} == {"iris.csv"}


def test_numbers_are_predicted_within_a_budget_and_get_a_folder_of_their_own(tmp_path):
    names, columns = iris_columns()
    write(tmp_path / "flowers.csv", names, columns)
    result = run(tmp_path, "search", "flowers.csv", "--target", "petal length", "--budget", 2, "--no-ensemble")
    assert "task: regression" in result.stdout
    assert "of the differences in petal length to be explained" in result.stdout
    assert (tmp_path / "shoal-runs" / "flowers-1" / "report.html").is_file()
    said = answers(tmp_path / "shoal-runs" / "flowers-1", tmp_path / "flowers.csv").split()[1:]
    error = np.abs(np.array(said, dtype=float) - np.array(columns[2])).mean()
    assert error < 0.4  # always answering the mean is off by 1.56
    with pytest.raises(ValueError, match="leave it out"):
        answers(tmp_path / "shoal-runs" / "flowers-1", tmp_path / "flowers.csv", proba=True)


def test_the_demo_needs_no_file_and_ends_with_the_path_of_its_report(tmp_path):
    result = run(tmp_path, "search", "--demo", "--recipes", 2, "--seeds", 1)
    last = result.stdout.strip().splitlines()[-1]
    assert (tmp_path / last).name == "report.html"
    assert (tmp_path / last).is_file()
    assert "benign" in result.stdout


# ---- predictions ----


def test_predictions_are_those_of_the_estimator(place):
    rows = list(csv.reader(run(place, "predict", "first", "iris.csv", "--proba").stdout.splitlines()))
    estimator = shoal.load(place / "first" / "model")
    table, species = iris_table()
    assert rows[0] == ["prediction", *(f"probability of {name}" for name in ("setosa", "versicolor", "virginica"))]
    assert [row[0] for row in rows[1:]] == estimator.predict(table).tolist()
    np.testing.assert_array_equal(np.array([row[1:] for row in rows[1:]], float), estimator.predict_proba(table))
    assert np.mean([row[0] == name for row, name in zip(rows[1:], species, strict=True)]) > 0.9


def test_columns_may_come_in_any_order_without_the_target_and_with_new_categories(place):
    names, columns = iris_columns()
    expected = answers(place / "first" / "model", place / "iris.csv")
    write(place / "turned.csv", names[3::-1], columns[3::-1])
    assert answers(place / "first", place / "turned.csv") == expected
    write(place / "unseen.csv", names, [*columns[:3], ["enormous"] * 150, columns[4]])
    said = answers(place / "first", place / "unseen.csv").split()
    assert len(said) == 151
    assert set(said[1:]) <= {"setosa", "versicolor", "virginica"}


def test_a_file_without_names_is_known_by_the_places_of_its_columns(tmp_path):
    """The target comes first: where it is left out, every other column is one place to the left."""
    _, columns = iris_columns()
    turned = [columns[-1], *columns[:-1]]
    write(tmp_path / "all.csv", None, turned)
    write(tmp_path / "new.csv", None, turned[1:])
    run(tmp_path, "search", "all.csv", "--no-header", "--target", 0, "--recipes", 2, "--seeds", 1, "--out", "run")
    with_target = answers(tmp_path / "run", tmp_path / "all.csv")
    assert answers(tmp_path / "run", tmp_path / "new.csv") == with_target
    assert len(with_target.split()) == 151


def test_missing_and_unknown_columns_are_named_with_the_nearest_match(place):
    names, columns = iris_columns()
    write(place / "renamed.csv", ["sepal_length", *names[1:]], columns)
    error = run(place, "predict", "first", "renamed.csv", code=2).stderr
    assert "'sepal_length'" in error
    assert "did you mean 'sepal length'?" in error
    write(place / "fewer.csv", names[1:], columns[1:])
    with pytest.raises(ValueError, match="'sepal length' is missing"):
        answers(place / "first", place / "fewer.csv")


# ---- Ctrl-C and worse ----


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_ctrl_c_keeps_the_best_so_far_and_the_run_can_be_repeated(place, number, name):
    cut = place / f"cut-{name}"
    process = start(place, "search", "iris.csv", "--target", "species", "--recipes", 100_000, "--out", cut.name)
    wait_for(process, "recipes, best")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert "ending the search, keeping the best so far" in err
    assert f"ended early by {name}" in out
    assert {file.name for file in cut.iterdir()} == FILES
    settings = json.loads((cut / "settings.json").read_text())
    assert settings["result"]["ended"] == "interrupted"
    assert "was interrupted" in (cut / "report.html").read_text()
    X, y = iris_table()
    again = shoal.ShoalClassifier()
    again._hooks = Hooks(repeat=settings["log"])
    saved = shoal.load(cut / "model")
    np.testing.assert_array_equal(again.fit(X, y).predict_proba(X), saved.predict_proba(X))


def test_a_second_ctrl_c_quits_at_once_and_leaves_nothing(place):
    process = start(place, "search", "iris.csv", "--target", "species", "--recipes", 100_000, "--out", "quit")
    wait_for(process, "recipes, best")
    process.send_signal(signal.SIGINT)
    wait_for(process, "Ctrl-C again")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert not (place / "quit").exists()
    assert not list(place.glob(".quit*"))


def test_what_kill_leaves_does_not_look_like_a_run(place):
    process = start(place, "search", "iris.csv", "--target", "species", "--recipes", 100_000, "--out", "dead")
    wait_for(process, "recipes, best")
    process.kill()
    process.communicate(timeout=20)
    assert not (place / "dead").exists()
    assert [file.name for file in place.glob(".dead*/*")] == ["running.json"]
    with rundir.RunFolder(place / "dead", "data") as folder:
        assert [file.name for file in place.glob(".dead*")] == [folder.path.name], "the next run has removed it"
    with pytest.raises(FileNotFoundError, match="no folder"):
        answers(place / "dead", place / "iris.csv")


# ---- bad input ----

SMALL = "a,b,y\n" + "".join(f"{i / 3},{i * 3 % 7},{'no' if i < 10 else 'yes'}\n" for i in range(20))
BAD = {
    "no such file": (None, (), "there is no file"),
    "an empty file": ("", (), "is empty"),
    "a header alone": ("a,b,y\n", (), "no rows"),
    "one class": (SMALL.replace("no", "yes"), (), "at least 2 classes"),
    "no such column": (SMALL, ("--target", "yy"), "did you mean 'y'?"),
    "a position beyond": (SMALL, ("--target", "7"), "from -3 to 2"),
    "a target without values": ("a,y\n" + "1,\n2,\n" * 9, (), "all 18 are missing"),
    "a target named twice": ("y,a,y\n" + "1,2,3\n4,5,6\n" * 9, (), "--target 0 or --target 2"),
    "only empty columns": ("a,y\n" + ",no\n,yes\n" * 9, (), "all values are missing"),
    "few rows": ("a,y\n1,no\n2,yes\n3,no\n", (), "at least 8 rows"),
    "no other column": ("y\n" + "no\nyes\n" * 9, (), "beside the target"),
    "a target of one number": ("a,y\n" + "1,3.5\n2,3.5\n" * 9, (), "always 3.5"),
    "binary junk": (bytes(range(256)) * 20, (), "not a text file"),
    "no time": (SMALL, ("--budget", "0"), "above zero"),
    "time in words": (SMALL, ("--budget", "long"), "--budget"),
    "time and work": (SMALL, ("--budget", "3", "--recipes", "3"), "not both"),
    "a task mistyped": (SMALL, ("--task", "clasification"), "did you mean 'classification'?"),
    "words as numbers": (SMALL, ("--task", "regression"), "'no'"),
    "the target dropped": (SMALL, ("--drop", "y"), "must not name the target"),
    "a strategy mistyped": (SMALL, ("--strategy", "halvin"), "did you mean 'halving'?"),
    "a score mistyped": (SMALL, ("--scoring", "acuracy"), "did you mean 'accuracy'?"),
    "a place that cannot be": (SMALL, ("--out", "data.csv/run", "--recipes", "2"), "cannot be written"),
    "no flag of ours": (SMALL, ("--budgt", "3"), "--budget"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_one_sentence_and_exit_code_2(name, tmp_path):
    content, flags, words = BAD[name]
    if content is not None:
        (tmp_path / "data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    target = () if "--target" in flags else ("--target", "y")
    result = run(tmp_path, "search", "data.csv", *target, *flags, code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert {file.name for file in tmp_path.iterdir()} <= {"data.csv"}


def test_a_folder_is_not_a_table(tmp_path):
    assert "is a folder" in run(tmp_path, "search", ".", "--target", "y", code=2).stderr


def test_ten_rows_or_an_empty_column_are_refused_with_a_remedy(tmp_path):
    rows = "".join(f"{i / 3},{'no' if i < 5 else 'yes'}\n" for i in range(10))
    (tmp_path / "ten.csv").write_text("a,y\n" + rows)
    result = run(tmp_path, "search", "ten.csv", "--target", "y", code=2)
    assert "at least 20 rows" in result.stderr
    rows = "".join(f"{i / 3},,{'no' if i % 2 else 'yes'}\n" for i in range(40))
    (tmp_path / "empty.csv").write_text("a,b,y\n" + rows)
    result = run(tmp_path, "search", "empty.csv", "--target", "y", code=2)
    assert "--drop 'b'" in result.stderr
    run(tmp_path, "search", "empty.csv", "--target", "y", "--drop", "b", "--recipes", 2, "--seeds", 1)


def test_a_run_with_a_budget_and_repeated_folds_repeats_to_the_bit(tmp_path):
    generator = np.random.default_rng(0)
    lines = [f"{a:.4f},{b:.4f},{'yes' if a * b > 0 else 'no'}" for a, b in generator.normal(size=(120, 2))]
    (tmp_path / "small.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    first = run(tmp_path, "search", "small.csv", "--target", "y", "--budget", 4, "--out", "one")
    assert "3 times" in first.stdout
    run(tmp_path, "search", "--repeat", "one/settings.json", "--out", "two")
    weights = [(tmp_path / name / "model" / "weights.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


# ---- parts ----


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([0, 1] * 30, "classification"),
        ([0, 1] * 5, "classification"),
        ([1, 2, 3] * 40, "classification"),
        ([1, 2, 3] * 4, "regression"),  # three values in twelve rows may be anything
        ([0.5, 1.5] * 50, "regression"),
        (list(range(30)) * 30, "regression"),
        (["good", "bad"] * 20, "classification"),
        ([True, False] * 10, "classification"),
        (["$1,200", "$950"] * 20, "classification"),
        ([f"${k},{k}00" for k in range(100, 140)], "regression"),
    ],
)
def test_the_task_is_guessed_from_the_target(cells, kind):
    table = Table.of({"x": list(range(len(cells))), "y": cells})
    assert ask(table, "y").kind == kind


def test_rows_without_a_target_are_left_out_and_said_so():
    table = Table.of({"x": list(range(20)), "y": ["a", "b", None, "a"] * 5})
    question = ask(table, "y")
    assert len(question.y) == len(question.X) == 15
    assert "5 rows left out: the target is missing there" in question.notes
    assert 2.0 not in question.X["x"]


def test_whole_numbers_as_classes_are_written_without_a_point():
    table = Table.of({"x": list(range(20)), "y": [1.0, 2.0] * 10})
    assert ask(table, "y").y.dtype == np.int64


def test_free_text_is_no_target():
    table = Table.of({"x": list(range(40)), "y": [f"remark {k}" for k in range(40)]})
    with pytest.raises(ValueError, match="40 different strings in 40 rows"):
        ask(table, "y")


def test_a_run_folder_appears_whole_under_the_next_free_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        with rundir.RunFolder(None, "data") as folder:
            (folder.path / "file").write_text("x")
            assert not Path(f"shoal-runs/data-{number}").exists()
            assert folder.finish() == Path(f"shoal-runs/data-{number}")
    assert sorted(os.listdir("shoal-runs")) == ["data-1", "data-2"]


def test_a_name_taken_during_the_search_is_left_alone(tmp_path):
    with rundir.RunFolder(tmp_path / "run", "data") as folder:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "settings.json").write_text("somebody else's")
        assert folder.finish() == tmp_path / "run-1"
    assert (tmp_path / "run" / "settings.json").read_text() == "somebody else's"


def test_a_run_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError), rundir.RunFolder(None, "data"):
        raise RuntimeError
    assert os.listdir() == []


def left_behind(folder, name, content):
    path = folder / name
    path.mkdir()
    (path / "weights").write_text("x")
    if content is not None:
        (path / "running.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_only_what_dead_processes_of_that_name_have_left_is_removed(tmp_path):
    here = platform.node()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    gone = process.pid
    dead = left_behind(tmp_path, f".run.{gone}.part", {"pid": gone, "host": here})
    ours = left_behind(tmp_path, f".run.{os.getpid()}.part", {"pid": os.getpid(), "host": here})  # a number used again
    kept = [
        left_behind(tmp_path, f".run.{os.getppid()}.part", {"pid": os.getppid(), "host": here}),  # alive
        left_behind(tmp_path, f".run.{gone}-2.part", {"pid": gone, "host": "another"}),
        left_behind(tmp_path, f".run.{gone}-3.part", None),
        left_behind(tmp_path, f".run.{gone}-4.part", "{"),
        left_behind(tmp_path, f".run-1.{gone}.part", {"pid": gone, "host": here}),  # another name
        left_behind(tmp_path, f"run.{gone}.part", {"pid": gone, "host": here}),
    ]
    with rundir.RunFolder(tmp_path / "run", "data") as first, rundir.RunFolder(tmp_path / "run", "data") as second:
        assert not dead.exists()
        assert first.path == ours, "made anew"
        assert not (ours / "weights").exists()
        assert all((path / "weights").exists() for path in kept)
        assert first.path != second.path
        assert second.finish() == tmp_path / "run"
    assert os.listdir(tmp_path / "run") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["run", *(path.name for path in kept)])


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "shoal-run", "version": 9}', '{"format": "shoal-run", "version": 1}']
)
def test_settings_that_are_not_whole_are_refused(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json"):
        rundir.read_settings(tmp_path)


# ---- the report's data ----


def fitted(kind, y, X, **settings):
    estimator = kind(recipes=3, seeds=2, epochs=4, cv=3, n_jobs=1, **settings)
    return estimator.fit(X, y)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_report_data_are_complete_and_agree_with_the_estimator(task):
    from sklearn.datasets import load_iris

    from shoal.report import search_page
    from shoal.search.summary import Context, chance, report_data

    found = load_iris()
    X = Table.of(found.data, [f"x{k}" for k in range(4)])
    y = {
        "classification": found.target,
        "regression": found.data[:, 0] + found.data[:, 2] ** 2,
        "multilabel": np.column_stack([found.target > 0, found.target == 1]).astype(int),
    }[task]
    kind = shoal.ShoalRegressor if task == "regression" else shoal.ShoalClassifier
    estimator = fitted(kind, y, X)
    data = report_data(estimator, X, Context("iris", "species", ["a note"], None, 3.0, {"reading": 0.1}))
    assert data["task"] == task
    assert data["search"]["networks"] == estimator.n_networks_
    assert data["score"]["corrected"] == estimator.honest_score_.corrected
    assert sum(part["weight"] for part in data["ensemble"]["parts"]) == pytest.approx(1)
    assert len(data["leaderboard"]["rows"]) == len(estimator.leaderboard_)
    assert data["curves"][0]["label"] == "best"
    assert len(data["curves"][0]["train"]) == len(data["curves"][0]["valid"]) == 4
    if task == "classification":
        counts = np.array(data["confusion"]["counts"])
        assert counts.sum(axis=1).tolist() == [50, 50, 50]  # every row once, equal ones too
        assert counts.trace() / 150 == pytest.approx(data["score"]["raw"], abs=1e-6)
        assert data["score"]["chance"] == pytest.approx(1 / 3)
        always = chance(estimator._run.search.problem, METRICS["neg_log_loss"])
        assert always == pytest.approx(-np.log(3), abs=1e-3)
    if task == "regression":
        assert data["score"]["chance"] == pytest.approx(0, abs=1e-9)
        true, predicted = (np.array(data["residuals"][name]) for name in ("true", "predicted"))
        assert 1 - ((true - predicted) ** 2).mean() / true.var() > 0.5
        assert data["calibration"] is None
    else:
        bins = data["calibration"]["bins"]
        assert sum(one["count"] for one in bins) == (300 if task == "multilabel" else 150)
        assert all(0 <= one["observed"] <= 1 for one in bins)
    json.dumps(data, allow_nan=True)
    assert "iris" in search_page(data)

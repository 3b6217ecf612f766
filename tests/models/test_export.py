"""Exported models predict what Shoal predicts, in programs that have no Shoal; other models are refused in words."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import typer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from support.exports import CLOSE, QUICK, agrees, module_agrees, run_onnx
from typer.testing import CliRunner

import shoal
from shoal.cli.export import export as export_command
from shoal.encoders.column import ColumnEncoder
from shoal.encoders.encoder import ENCODINGS
from shoal.models.export.comparison import compare, made_up_rows
from shoal.models.export.plan import make_plan
from shoal.models.export.registry import EXPORTERS, Exporter
from shoal.models.export.writing import default_place, export_model
from shoal.search.results.conclude import make_model
from shoal.tables.schema import Schema
from shoal.tables.table import Table

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from shoal.models.export import onnx as export_onnx  # noqa: E402  (they need the packages)

RECIPE_OF = dict.fromkeys(range(len(shoal.ACTIVATIONS)), 0)  # of each candidate of `every_activation`


def with_gaps(X, seed=0, share=0.1):
    X = np.array(X, dtype=float)
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    X = with_gaps(X)
    X[:, 2] = np.nan_to_num(X[:, 2])  # one column without gaps
    estimator = shoal.ShoalClassifier(**QUICK).fit(X, np.array(["setosa", "versicolor", "virginica"])[y])
    estimator.model_ = replace(estimator.model_, temperature=0.7)
    return estimator, X


@pytest.fixture(scope="module")
def every_activation():
    """One search over all activations: (its problem, its candidates by activation, X)."""
    X, y = load_diabetes(return_X_y=True)
    members = [shoal.Member(hidden=(12, 9), activation=name, learning_rate=3e-3) for name in shoal.ACTIVATIONS]
    estimator = shoal.ShoalRegressor(space=members, strategy="random", seeds=1, epochs=4, cv=2, n_jobs=1).fit(X, y)
    search = estimator.result_.search
    return search.problem, {candidate.recipe.member.activation: candidate for candidate in search.candidates}, X


# ---- agreement ----


@pytest.fixture(scope="module")
def exported(iris, tmp_path_factory):
    """A folder with the classifier in both formats, checked: an export to PyTorch takes seconds, so it is made once."""
    estimator, X = iris
    folder = tmp_path_factory.mktemp("exported")
    for to in ("torch", "onnx"):
        agrees(estimator, to, folder / f"m{EXPORTERS[to].suffix}", X)
    return folder


def test_classifier_with_missing_values(exported):
    assert {file.name for file in exported.iterdir()} == {"m.pt2", "m.onnx"}, "only the exports stay"


def answered_elsewhere(iris, exported, folder, name, code):
    """What `code` says of the model in a process without Shoal: it prints answers for all rows and for the first one.

    They are compared with Shoal's; the rest of what it prints comes back.
    """
    estimator, X = iris
    shutil.copy(exported / name, folder)
    np.save(folder / "X.npy", X)
    code = f"import sys; sys.modules['shoal'] = None\nimport json, numpy as np\nX = np.load('X.npy')\n{code}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder)
    assert result.returncode == 0, result.stderr
    every, one, *rest = json.loads(result.stdout)
    np.testing.assert_allclose(every, estimator.predict_proba(X), atol=CLOSE)
    np.testing.assert_allclose(one, estimator.predict_proba(X[:1]), atol=CLOSE)
    return rest


def test_onnx_runs_without_shoal(iris, exported, tmp_path):
    code = (
        "sys.modules['torch'] = None\n"
        "import onnxruntime\n"
        "session = onnxruntime.InferenceSession('m.onnx', providers=['CPUExecutionProvider'])\n"
        "p, label = session.run(['probabilities', 'label'], {'numbers': X})\n"
        "one = session.run(['probabilities'], {'numbers': X[:1]})[0]\n"
        "about = session.get_modelmeta().custom_metadata_map\n"
        "print(json.dumps([p.tolist(), one.tolist(), label.tolist(), about]))\n"
    )
    label, about = answered_elsewhere(iris, exported, tmp_path, "m.onnx", code)
    estimator, X = iris
    assert [json.loads(about["classes"])[k] for k in label] == estimator.predict(X).tolist()
    assert json.loads(about["numbers"]) == ["x0", "x1", "x2", "x3"]


def test_torch_runs_without_shoal(iris, exported, tmp_path):
    code = (
        "import torch\n"
        "extra = {'shoal.json': ''}\n"
        "module = torch.export.load('m.pt2', extra_files=extra).module()\n"
        "X = torch.from_numpy(X)\n"
        "print(json.dumps([module(X).tolist(), module(X[:1]).tolist(), json.loads(extra['shoal.json'])]))\n"
    )
    (about,) = answered_elsewhere(iris, exported, tmp_path, "m.pt2", code)
    assert about["classes"] == ["setosa", "versicolor", "virginica"]
    assert about["numbers"] == ["x0", "x1", "x2", "x3"]


@pytest.mark.parametrize("activation", shoal.ACTIVATIONS)
def test_every_activation(every_activation, tmp_path, activation):
    problem, candidates, X = every_activation
    model = make_model(problem, [candidates[activation]], [1.0], RECIPE_OF, 1.0)
    alone = shoal.ShoalRegressor()
    alone.model_ = model
    agrees(alone, "onnx", tmp_path / "m.onnx", X)
    module_agrees(model, X)


def test_all_activations_in_one_file(every_activation, tmp_path):
    problem, candidates, X = every_activation
    weights = np.arange(1.0, 1 + len(candidates))
    weights /= weights.sum()
    ensemble = shoal.ShoalRegressor()
    ensemble.model_ = make_model(problem, list(candidates.values()), weights, RECIPE_OF, 1.0)
    assert len(ensemble.model_) == 2 * len(shoal.ACTIVATIONS)
    agrees(ensemble, "torch", tmp_path / "m.pt2", X)
    agrees(ensemble, "onnx", tmp_path / "m.onnx", X)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_views_of_numbers(tmp_path, encoding):
    X, y = load_breast_cancer(return_X_y=True)
    space = {"hidden": [(), (8,)], "encoding": [encoding], "learning_rate": [1e-2]}
    estimator = shoal.ShoalClassifier(space=space, strategy="grid", epochs=4, cv=3, seeds=1, n_jobs=1).fit(X, y)
    assert set(estimator.model_.networks) == {encoding}
    agrees(estimator, "onnx", tmp_path / "m.onnx", X)
    graph = export_onnx.build(make_plan(estimator.model_), {}).graph
    unused = {entry.name for entry in graph.initializer} - {name for node in graph.node for name in node.input}
    assert not unused, "runtimes print a warning about these"
    module_agrees(estimator.model_, X)


def test_both_views_in_one_model(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    space = {"hidden": [(6,)], "encoding": ["plain", "piecewise"], "learning_rate": [1e-2]}
    estimator = shoal.ShoalRegressor(space=space, strategy="grid", epochs=4, cv=3, seeds=1, n_jobs=1).fit(X, y)
    search = estimator.result_.search
    candidates = sorted(search.candidates, key=lambda candidate: candidate.recipe.encoding)
    mixed = [
        candidates[0],
        candidates[-1],
        candidates[0],
    ]  # of both encodings, in an order that is not that of the populations
    estimator.model_ = make_model(search.problem, mixed, [0.2, 0.5, 0.3], dict.fromkeys(range(9), 0), 1.0)
    assert [part.encoding for part in estimator.model_.parts] == ["piecewise", "plain", "piecewise"]
    agrees(estimator, "onnx", tmp_path / "m.onnx", X)
    module_agrees(estimator.model_, X)


def test_regression_of_several_outputs_far_from_zero(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    targets = np.column_stack([y, -1e-3 * y, 1e7 + 10 * y])
    estimator = shoal.ShoalRegressor(**QUICK).fit(with_gaps(X), targets)
    agrees(estimator, "onnx", tmp_path / "m.onnx", X)
    prediction = run_onnx(tmp_path / "m.onnx", numbers=50 * X)
    assert list(prediction) == ["prediction"]
    high = max(float(fold.target.high[0]) for fold in estimator.model_.folds)
    assert prediction["prediction"][:, 0].max() <= high, "far rows are cut off as Shoal does"
    difference = np.abs(prediction["prediction"] - estimator.predict(50 * X)) / targets.std(axis=0)
    assert difference.max() < CLOSE


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_several_labels(tmp_path, temperature):
    X, y = load_iris(return_X_y=True)
    labels = np.column_stack([y > 0, X[:, 0] > 5.8]).astype(int)
    estimator = shoal.ShoalClassifier(**QUICK).fit(X, labels)
    estimator.model_ = replace(estimator.model_, temperature=temperature)
    agrees(estimator, "onnx", tmp_path / "m.onnx", X)
    assert (run_onnx(tmp_path / "m.onnx", numbers=X)["label"] == estimator.predict(X)).all()
    module_agrees(estimator.model_, X)


def test_networks_that_see_some_columns(tmp_path):
    X, y = load_iris(return_X_y=True)
    members = [
        shoal.Member(hidden=hidden, features=features, learning_rate=3e-2)
        for hidden, features in (((5,), (2, 0)), ((), (3,)))
    ]
    estimator = shoal.ShoalClassifier(space=members, epochs=10, cv=3, seeds=1, n_jobs=1).fit(X, y)
    agrees(estimator, "onnx", tmp_path / "m.onnx", X)
    module_agrees(estimator.model_, X)


def test_folds_that_encode_differently(tmp_path):
    """Indicators, pieces and spread that one fold has and the other has not."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(120, 4))
    y = (X[:, 0] + X[:, 3] > 0).astype(int)
    X[::5, 0] = np.nan
    X[:60, 1] = 2.0  # no spread in one half
    X[60:, 2] = np.round(X[60:, 2])  # few pieces in the other
    X[60::3, 3] = np.nan  # an indicator in one half only
    halves = [(np.arange(60), np.arange(60, 120)), (np.arange(60, 120), np.arange(60))]
    space = {"hidden": [(6,)], "encoding": list(ENCODINGS), "learning_rate": [1e-2]}
    estimator = shoal.ShoalClassifier(space, strategy="grid", cv=halves, refit=False, seeds=1, epochs=4).fit(X, y)
    one, two = (fold.encoder.columns for fold in estimator.model_.folds)
    assert (one["x3"].missing, two["x3"].missing) == (False, True)
    for encoding in ENCODINGS:
        search = estimator.result_.search
        candidate = next(candidate for candidate in search.candidates if candidate.recipe.encoding == encoding)
        estimator.model_ = make_model(search.problem, [candidate], [1.0], {candidate.number: 0}, 1.3)
        agrees(estimator, "onnx", tmp_path / f"{encoding}.onnx", X)
        module_agrees(estimator.model_, X)


@pytest.mark.parametrize("cells", [[-1.7976931348623157e308, 0.5, 1.5], [-1.7e308, 1.7e308, 0.0]])
def test_numbers_whose_differences_overflow(tmp_path, cells):
    """Some programs write the lowest number there is for a missing one."""
    generator = np.random.default_rng(3)
    X = np.stack([generator.choice(cells, 240), generator.normal(size=240)], axis=1)
    y = ((X[:, 0] > 0.1) ^ (X[:, 1] > 0)).astype(int)
    space = {"hidden": [(6,)], "encoding": list(ENCODINGS), "learning_rate": [1e-2]}
    estimator = shoal.ShoalClassifier(space, strategy="grid", cv=3, seeds=1, epochs=4, n_jobs=1, explain_seconds=0)
    estimator.fit(X, y)
    shoal.save(estimator, tmp_path / "model")
    assert np.array_equal(shoal.load(tmp_path / "model").predict_proba(X), estimator.predict_proba(X))
    for candidate in (search := estimator.result_.search).candidates:
        estimator.model_ = make_model(search.problem, [candidate], [1.0], {candidate.number: 0}, 1.0)
        agrees(estimator, "onnx", tmp_path / f"{candidate.number}.onnx", X)
        module_agrees(estimator.model_, X)


def test_numbers_that_are_nearly_zero(tmp_path):
    """As p-values are. Their differences have no inverse, in Shoal and in an exported file."""
    generator = np.random.default_rng(2)
    p = 10.0 ** -generator.uniform(0, 322, size=300)
    X = np.stack([p, p * 1e-10, generator.normal(size=300)], axis=1)
    y = ((p < 1e-20) ^ (X[:, 2] > 0)).astype(int)
    space = {"hidden": [(6,)], "encoding": list(ENCODINGS), "learning_rate": [1e-2]}
    estimator = shoal.ShoalClassifier(space, strategy="grid", cv=3, seeds=1, epochs=4, n_jobs=1).fit(X, y)
    for candidate in (search := estimator.result_.search).candidates:
        estimator.model_ = make_model(search.problem, [candidate], [1.0], {candidate.number: 0}, 1.0)
        agrees(estimator, "onnx", tmp_path / f"{candidate.number}.onnx", X)
        module_agrees(estimator.model_, X)


# ---- encoders of one's own ----


class Circle(ColumnEncoder):
    kind = "number"

    @classmethod
    def fit(cls, cells, weight):
        return cls()


def test_encoders_of_the_users_own_are_refused_by_name(iris):
    estimator, X = iris
    schema = Schema.of(Table.of(X), kinds={"x1": Circle()})
    with pytest.raises(ValueError, match=r"cannot be exported, .*not part of the file: 'x1' \(Circle\)"):
        make_plan(replace(estimator.model_, schema=schema))


# ---- the table of exporters ----


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_is_in_the_help_and_the_error(iris, tmp_path, command, name):
    exporter = EXPORTERS[name]
    assert exporter.name == name
    shown = " ".join(command("--help").output.replace("\u2502", " ").split())
    assert f"{name} (a {exporter.suffix} file)" in shown
    with pytest.raises(ValueError, match=f"a model is exported to .*{name}.*; got 'nothing'"):
        export_model(iris[0], "nothing", tmp_path / "m.onnx")


class Answers(Exporter):
    """Keeps the model beside the file: enough to see what is called with what."""

    name, suffix, refused = "answers", ".json", {"category": "it has no strings"}

    def __init__(self, model, error=0.0):
        self.model, self.error = model, error

    def write(self, plan, metadata, path):
        path.write_text(json.dumps({"networks": len(plan.networks), **metadata}))

    def run(self, path, inputs):
        assert path.is_file()
        return self.model.predict(Table.of(inputs["numbers"])) + self.error


def test_an_exporter_of_the_users_own(iris, tmp_path):
    estimator, X = iris
    place = tmp_path / "m.json"
    found = export_model(estimator, Answers(estimator.model_), place, X)
    assert (found.rows, found.largest) == (len(X), 0.0)
    assert json.loads(place.read_text())["classes"] == ["setosa", "versicolor", "virginica"]
    assert default_place(tmp_path / "run", Answers(None)) == tmp_path / "run.json"
    place.unlink()
    with pytest.raises(ValueError, match="nothing was kept"):
        export_model(estimator, Answers(estimator.model_, error=0.1), place, X)
    with pytest.raises(ValueError, match=r"an export to answers must end in \.json"):
        export_model(estimator, Answers(None), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="torch or onnx; got 3: give a name or an Exporter object"):
        export_model(estimator, 3, place)
    assert not list(tmp_path.iterdir())


# ---- the check itself ----


def test_a_wrong_export_is_not_kept(iris, tmp_path, monkeypatch):
    estimator, _ = iris
    place = tmp_path / "m.onnx"
    place.write_bytes(b"an earlier export")
    temper = export_onnx._temper
    monkeypatch.setattr(
        export_onnx, "_temper", lambda graph, plan, p: temper(graph, replace(plan, temperature=0.71), p)
    )
    with pytest.raises(ValueError, match="nothing was kept"):
        export_model(estimator, "onnx", place)
    assert place.read_bytes() == b"an earlier export"
    assert list(tmp_path.iterdir()) == [place]


def test_rare_jumps_are_forgiven_in_hardshrink_only(every_activation):
    problem, candidates, X = every_activation

    class Runner:
        def __init__(self, model, wrong):
            self.model, self.wrong = model, wrong

        def run(self, path, inputs):
            prediction = self.model.predict(Table.of(inputs["numbers"]))
            prediction[: self.wrong] += 1.0
            return prediction

    def compared(activation, wrong):
        model = make_model(problem, [candidates[activation]], [1.0], RECIPE_OF, 1.0)
        return compare(model, make_plan(model), Runner(model, wrong), None, Table.of(X), False)

    found = compared("hardshrink", 2)
    assert (found.beyond, found.largest) == (2, pytest.approx(1.0))
    assert "2 of the rows" in found.describe()
    for activation, wrong in (("hardshrink", 50), ("relu", 1), ("hardshrink", len(X))):
        with pytest.raises(ValueError, match=f"in {wrong} of {len(X)} rows"):
            compared(activation, wrong)


def test_a_prediction_that_is_not_a_number_is_a_difference(every_activation):
    problem, candidates, X = every_activation
    model = make_model(problem, [candidates["relu"]], [1.0], RECIPE_OF, 1.0)

    class Runner:
        @staticmethod
        def run(path, inputs):
            return np.full((len(X), 1), np.nan)

    with pytest.raises(ValueError, match="nothing was kept"):
        compare(model, make_plan(model), Runner, None, Table.of(X), False)


def test_made_up_rows_reach_what_matters(iris):
    estimator, X = iris
    table = made_up_rows(estimator.model_, make_plan(estimator.model_))
    for j, name in enumerate(table.names):
        column = table[name]
        known = column[~np.isnan(column)]
        assert 0.02 < np.isnan(column).mean() < 0.2
        assert known.min() < np.nanmin(X[:, j]) < np.nanmax(X[:, j]) < known.max()
        assert np.isin(estimator.model_.folds[0].encoder.scaling.edges[j], column).mean() > 0.8


# ---- errors and the command ----


def test_missing_packages_are_named_with_the_command(iris, tmp_path, monkeypatch):
    estimator, _ = iris
    for to, package in (("onnx", "onnx"), ("onnx", "onnxruntime"), ("torch", "torch")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(ModuleNotFoundError, match=f"package {package}.*pip install {to}"):
                export_model(estimator, to, tmp_path / f"m{EXPORTERS[to].suffix}")


@pytest.mark.parametrize(
    ("to", "name", "message"),
    [
        ("onxx", "m.onnx", "torch or onnx; got 'onxx'.*onnx"),
        ("onnx", "data.csv", "must end in .onnx; got .*data.csv"),
        ("torch", "m.onnx", "must end in .pt2"),
        ("onnx", ".", "is a folder"),
        ("onnx", "file/m.onnx", "cannot be written"),
    ],
)
def test_bad_places(iris, tmp_path, to, name, message):
    estimator, _ = iris
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=message):
        export_model(estimator, to, tmp_path / name)


@pytest.fixture(scope="module")
def command():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(export_command)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_command(iris, tmp_path, command):
    estimator, X = iris
    shoal.save(estimator, tmp_path / "run" / "model")
    np.savetxt(tmp_path / "X.csv", X[:40], delimiter=",", header="x3,x1,x2,x0", comments="")
    done = command(tmp_path / "run", "--to", "onnx")
    assert done.exit_code == 0, done.output
    assert f"wrote {tmp_path / 'run' / 'model.onnx'}" in done.output
    assert "checked on 1,000 made-up rows: the largest difference" in done.output
    done = command(tmp_path / "run" / "model", "--to", "onnx", "--out", tmp_path / "to" / "my.onnx",
                   "--data", tmp_path / "X.csv")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "checked on 40 rows" in done.output
    got = run_onnx(tmp_path / "to" / "my.onnx", numbers=X)["probabilities"]
    np.testing.assert_allclose(got, estimator.predict_proba(X), atol=CLOSE)


def test_command_on_no_model(tmp_path, command):
    done = command(tmp_path, "--to", "onnx")
    assert isinstance(done.exception, FileNotFoundError)
    assert "model.json" in str(done.exception)
    assert command(tmp_path).exit_code == 2

"""The examples run as their first lines say."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import shoal
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[1] / "examples"


SCRIPTS = [
    ("table", "expected on new patients: r2"), ("pipeline", "three outer folds"), ("strategy", "recipes; accuracy"),
    ("module", "bit for bit"), ("resume", "the same bytes"), ("dask_cluster", "found the same model"),
    ("plan_and_run", "measured:"), ("features_and_forests", "out-of-bag R2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said"), SCRIPTS, ids=[name for name, _ in SCRIPTS])
def test_an_example_runs_and_says_what_it_promises(name, said, tmp_path):
    script = EXAMPLES / f"{name}.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 60
    words = [sys.executable, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


NOTEBOOKS = [
    ("table", "new patients lie in their 90% interval"), ("population", "of the held-out rows right"),
    ("notebook", "of the new patients lie in the interval"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said"), NOTEBOOKS, ids=[name for name, _ in NOTEBOOKS])
def test_a_notebook_runs_and_is_stored_with_its_results(name, said, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    assert said in printed(notebook)
    for cell in notebook.cells:
        cell.pop("outputs", None)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert said in printed(notebook)


def printed(notebook):
    return "".join(part.get("text", "") for cell in notebook.cells for part in cell.get("outputs", []))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A server process with a model, and its address."""
    for package in ("fastapi", "uvicorn"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("service")
    rng = np.random.default_rng(0)
    size, colour = rng.normal(size=120), rng.choice(["red", "blue", "green"], 120)
    y = np.where(size + (colour == "red") > 0.4, "yes", "no")
    quick = {"recipes": 2, "epochs": 5, "seeds": 1, "cv": 2, "n_jobs": 1}
    model = shoal.ShoalClassifier(**quick).fit({"size": size, "colour": colour}, y)
    shoal.save(model, folder / "model")
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "serve:app", "--app-dir", str(EXAMPLES), "--port", str(port)]
    environment = os.environ | {"MODEL": str(folder / "model")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: server.poll() is not None or answers(f"http://127.0.0.1:{port}/openapi.json"))
            assert server.poll() is None, "the server has ended"
            yield model, f"http://127.0.0.1:{port}/predict"
        finally:
            server.terminate()


def answers(address):
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def ask(address, body):
    """Status and content of the answer, to something or to bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = urllib.request.Request(address, content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_service_answers_rows(service):
    model, address = service
    rows = [{"size": 1.5, "colour": "red"}, {"size": -2, "colour": None}, {"colour": "violet", "size": None}]
    status, content = ask(address, rows)
    assert status == 200
    assert content == {"predictions": model.predict(rows).tolist()}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "at least one row"),
        ([{"size": 1.0}], "row 1 has no 'colour'"),
        ([{}], "row 1 has no 'size', 'colour'"),
        ([{"size": 1.0, "colour": "red"}, {}], "row 2 has no 'size', 'colour'"),
        ({}, "list"),
        (None, "list"),
        ([{"size": "large", "colour": "red"}], "'size' must hold a number"),
        ([{"size": [1, 2], "colour": "red"}], "size"),
        ({"size": 1.0}, "list"),
    ],
    ids=["none", "no column", "nothing", "nothing among others", "no rows", "null", "a word", "a list", "no list"],
)
def test_bad_rows_are_refused_in_words_and_the_service_goes_on(service, rows, words):
    _, address = service
    status, content = ask(address, rows)
    assert status == 422
    assert words in json.dumps(content["detail"])
    assert ask(address, [{"size": 0.0, "colour": "blue"}])[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"size,colour", 422),
        (b'[{"size": 1.0, "colour": "red"}', 422),
        (b"\xff\xfe", 422),
        (b"[" * 100_000, 422),
        (b'[{"size": [NaN, 1e999], "colour": "red"}]', 422),
        (b'[{"size": Infinity, "colour": "red"}]', 422),
        (b'[{"size": NaN, "colour": "red"}]', 200),  # a missing number
        (b'[{"size": 1, "colour": "red"}, 7]', 422),
    ],
    ids=["empty", "CSV", "cut", "no text", "deep", "NaN in a list", "infinite", "NaN", "no object"],
)
def test_whatever_is_sent_is_answered_with_a_status_of_the_caller(service, body, status):
    _, address = service
    found, content = ask(address, body)
    assert found == status or {found, status} == {400, 422}, content  # versions of FastAPI differ
    assert status == 200 or content["detail"]
    assert ask(address, [{"size": 0.0, "colour": "blue"}])[0] == 200


@pytest.mark.parametrize(
    ("header", "status"), [("content-length: 10000001", b"413"), ("transfer-encoding: chunked", b"411")]
)
def test_a_body_that_is_too_long_is_refused_before_it_is_read(service, header, status):
    _, address = service
    place = urllib.parse.urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        lines = ["POST /predict HTTP/1.1", "host: localhost", "content-type: application/json", header, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(1000).split()[1] == status

"""`shoal plan` as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FEW = ["--data", "iris", "--net", "mlp:4-8-3", "--epochs", "2", "--seeds", "2", "--batch-size", "16"]


def shoal_plan(*words, cwd, timeout=180, **more):
    environment = {**os.environ, "HOME": str(cwd), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run([sys.executable, "-m", "shoal", "plan", *words], cwd=cwd, env=environment, text=True,
                          capture_output=True, timeout=timeout, check=False, **more)  # fmt: skip


def test_a_plan_with_a_link(tmp_path):
    result = shoal_plan(*FEW, "--nodes", "1,2", "--link", "1gbit,0.1ms", "--price", "0.4", "--json", "plan.json",
                        "--trace", "step.json", "--strategy", "allreduce-close,local_sgd:epoch",
                        cwd=tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "plan.json").read_text())
    assert [(row["strategy"], row["nodes"]) for row in found["rows"]] == [
        ("allreduce", 1), ("allreduce", 2), ("local_sgd:epoch", 1), ("local_sgd:epoch", 2)
    ]  # fmt: skip
    assert found["verdict"]["text"] in result.stdout
    assert "check on this machine" in result.stdout
    assert found["command"].startswith("shoal plan --data iris")
    trace = json.loads((tmp_path / "step.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} <= {0, 1}
    assert any(event["ph"] == "X" for event in trace["traceEvents"])
    page = (tmp_path / "shoal-plan.html").read_text()
    assert found["verdict"]["text"].split(".")[0] in page


def test_a_table_of_ones_own_and_a_goal_out_of_reach(tmp_path):
    lines = ["a,b,y"] + [f"{k % 7},{k % 5},{'yes' if (k % 7) > 3 else 'no'}" for k in range(120)]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    result = shoal_plan("mine.csv", "--target", "y", "--nodes", "2", "--epochs", "1", "--backend", "threads", "--seeds",
                        "1", "--goal", "accuracy=0.999", "--strategy", "local_sgd:epoch", "--out", "p.html",
                        "--learning-rate", "1e-6", cwd=tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "No plan reaches accuracy 0.999 in these epochs; the best is" in result.stdout
    assert (tmp_path / "p.html").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--net", "mpl:3-3"], "did you mean 'mlp'"), (["--data", "mnits"], "did you mean 'mnist'"),
     (["--data", "iris", "--nodes", "0"], "--nodes must be"), (["--data", "iris", "--link", "1000"], "has no unit"),
     (["nothing.csv", "--target", "y"], "nothing.csv"), (["--target", "y"], "a column of a file"),
     (["--data", "iris", "--strategy", "ringg"], "--strategy must be"),
     (["--data", "iris", "--goal", "accuracy=97"], "--goal"), (["--data", "iris", "--node", "fast"], "--node"),
     (["--data", "iris", "--split", "clas:1"], "--split"), (["mine.csv"], "--target"),
     (["--data", "iris", "--link", "0gbit"], "from 1 kbit to 1000 tbit"),
     (["--data", "iris", "--rows", "0"], "rows must be"),
     # Options are checked before the file is read, and files to write before anything is measured.
     (["nothing.csv", "--target", "y", "--goal", "accuracy=0.9"], "which --no-accuracy skips"),
     (["nothing.csv", "--target", "y", "--json", "."], "is a folder: give the name of a file"),
     (["nothing.csv", "--target", "y", "--out", "/dev/null/page.html"], "its folder is a file")],
)  # fmt: skip
def test_mistakes_end_in_one_sentence(words, says, tmp_path, call):
    result = call(tmp_path, "plan", *words, "--no-accuracy", code=2)
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_csv_without_the_target_is_named(tmp_path, call):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    result = call(tmp_path, "plan", "mine.csv", "--target", "price", code=2)
    assert "price" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1

"""`shoal plan` plans what `shoal train` runs: the same options, defaults and training; and runs it from its file."""

from __future__ import annotations

import contextlib
import importlib
import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import damage
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from shoal import parallel, planner
from shoal.cli.subjects import train_arguments
from shoal.cli.train import PREDICTED, _read_plan, compared
from shoal.errors import UserError
from shoal.options import options_of
from shoal.parallel import networks
from shoal.parallel.events import silent
from shoal.parallel.job import Job, TrainingOptions
from shoal.parallel.options import NetworkOptions, TableOptions
from shoal.parallel.strategies import TABLE
from shoal.parallel.training import make_job
from shoal.planner.options import PlanOptions

train_command, plan_command = (importlib.import_module(f"shoal.cli.{name}") for name in ("train", "plan"))
TWO = ["--strategy", "allreduce", "--workers", "2"]
LOCAL = ["--strategy", "local_sgd", "--workers", "2"]
FILE = ["t.csv", "--target", "y", *TWO]
# For every option of `shoal train`: a value that is not its default, and what else must be given.
TYPED: dict[str, tuple[list[str], list[str]]] = {
    "loss": (["--loss", "mse"], TWO), "optimizer": (["--optimizer", "sgd"], TWO),
    "learning_rate": (["--learning-rate", "0.03"], TWO), "momentum": (["--momentum", "0.9"], TWO),
    "weight_decay": (["--weight-decay", "0.1"], TWO), "schedule": (["--schedule", "cosine"], TWO),
    "epochs": (["--epochs", "3"], TWO), "batch_size": (["--batch-size", "7"], TWO),
    "backend": (["--backend", "threads"], TWO), "blas_threads": (["--blas-threads", "3"], TWO),
    "exact": (["--close"], TWO), "shards": (["--shards", "16"], TWO), "device": (["--device", "cpu"], TWO),
    "checkpoint": (["--checkpoint", "a folder"], TWO), "checkpoint_every": (["--checkpoint-every", "5"], TWO),
    "restarts": (["--restarts", "0"], TWO), "allow_fewer": (["--allow-fewer"], TWO),
    "timeout": (["--timeout", "30"], TWO), "seed": (["--seed", "4"], TWO),
    "strategy": (["--strategy", "gossip"], ["--workers", "3"]), "workers": (["--workers", "3"], []),
    "average_every": (["--average-every", "4"], LOCAL), "split": (["--split", "class:0.5"], LOCAL),
    "shares": (["--shares", "3,1"], LOCAL), "start": (["--start", "own"], LOCAL),
    "until_error": (["--until-error", "0.5"], LOCAL),
    "asynchronous": (["--asynchronous"], ["--strategy", "parameter_server", "--workers", "2"]),
    "folds": (["--folds", "3"], ["--strategy", "kfold", "--workers", "2"]),
    "data": (["--data", "wine"], TWO), "rows": (["--rows", "50"], TWO), "valid": (["--valid", "0.3"], TWO),
    "net": (["--net", "mlp:4-9-3"], TWO), "activation": (["--activation", "tanh"], TWO),
    "output": (["--output-activation", "tanh"], TWO), "init": (["--init", "glorot"], TWO),
    "dropout": (["--dropout", "0.2"], TWO), "test": (["--test", "0.3"], FILE),
    "task": (["--task", "regression"], FILE), "target": (["--target", "the target"], ["t.csv", *TWO]),
    "sep": (["--sep", ";"], FILE), "header": (["--no-header"], FILE),
    "missing": (["--missing", "-1", "--missing", "?"], FILE),
    "drop": (["--drop", "a b", "--drop", "c"], FILE), "kinds": (["--kind", "zip=category"], FILE),
}  # fmt: skip


class Captured(Exception):
    """What a command has understood, in place of the work."""


def understood(command: Any, words: list[str], monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The options of a command line, from the command itself, which loads and trains nothing."""
    found: dict[str, Any] = {}

    def load(file, asked, table, seed):
        found.update(file=file, asked=asked, table=table)
        return SimpleNamespace(loss=lambda loss, typed: loss, net="mlp:4-3", network={}, words=[])

    def stop(first: Any, *others: Any) -> Any:
        found["options"] = first
        raise Captured

    monkeypatch.setattr(command, "load_subject", load)
    monkeypatch.setattr(command, "_train" if command is train_command else "_found", stop)
    app = typer.Typer()
    app.command()(command.train if command is train_command else command.plan)
    result = CliRunner().invoke(app, words)
    if not isinstance(result.exception, Captured):
        raise result.exception or AssertionError(result.output)
    return SimpleNamespace(**found)


def settled(job: Job) -> Job:
    """With what a run decides by itself."""
    exact = job.method.exact_by_default(job, silent) if job.exact is None else job.exact
    return replace(job, exact=exact, about=None)


def flags(kind: type) -> set[str]:
    return {name for name, known in options_of(kind).items() if known.on_command_line}


def test_every_option_of_train_is_covered_here_and_is_one_of_plan():
    assert set(TYPED) == flags(Job) | flags(NetworkOptions) | flags(TableOptions)
    assert flags(Job) <= flags(PlanOptions)


def names_of(command: Any) -> set[str]:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return {str(parameter.name) for parameter in typer.main.get_command(app).params}


SHOWN = {"live", "address", "port", "log"}  # how a training is shown: a plan only passes them on


def test_the_commands_have_no_other_options():
    train, plan = names_of(train_command.train), names_of(plan_command.plan)
    assert train - set(TYPED) == SHOWN | {"file", "out", "plan"}
    assert train - plan == {"plan"}


def test_a_prediction_that_is_far_off_is_a_factor_and_no_absurd_percentage():
    predicted = {"start_seconds": 0.0, "seconds_per_epoch": 50.0, "seconds": 100.0, "metric": "accuracy"}
    lines = train_command.compared(predicted, {"seconds_per_epoch": 0.01, "seconds": 110.0}, 120.0)
    assert lines[1:] == ["  s an epoch: 50 predicted, 0.01 measured (5,000 times too long)",
                         "  s in all: 100 predicted, 110 measured (-9%)"]  # fmt: skip


@pytest.mark.parametrize("name", TYPED)
def test_plan_understands_each_option_as_train_does_and_plans_that_training(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    value, others = TYPED[name]
    words = [*others, *value]
    run, planned = (understood(command, words, monkeypatch) for command in (train_command, plan_command))
    assert (run.file, run.asked, run.table) == (planned.file, planned.asked, planned.table)
    options = planned.options
    assert not hasattr(TrainingOptions, name) or getattr(options, name) == getattr(run.options, name)
    source = next((one for one in (run.options, run.asked, run.table) if name in options_of(type(one))), None)
    assert getattr(source, name) != options_of(type(source))[name].default, "the test tests nothing"
    training = options.training(options.variants[0], options.nodes[-1])
    assert settled(training) == settled(run.options)
    again = understood(train_command, train_arguments(run.file, run.asked, run.table, training), monkeypatch)
    assert (again.file, again.asked, again.table) == (run.file, run.asked, run.table)
    assert settled(again.options) == settled(training)


@pytest.mark.parametrize("strategy", [name for name in TABLE if name != "auto"])
@pytest.mark.parametrize("exact", [[], ["--close"]])
def test_each_strategy_of_train_can_be_planned_by_its_name(strategy, exact, monkeypatch):
    words = ["--strategy", strategy, *exact, *([] if TABLE[strategy].one_worker else ["--workers", "4"])]
    run, planned = (understood(command, words, monkeypatch) for command in (train_command, plan_command))
    options = planned.options
    assert settled(options.training(options.variants[0], options.nodes[-1])) == settled(run.options)


def test_the_defaults_are_the_same_everywhere(monkeypatch):
    run, planned = (understood(command, ["--workers", "2"], monkeypatch) for command in (train_command, plan_command))
    shared = set(options_of(TrainingOptions))
    expected = {name: getattr(TrainingOptions(), name) for name in shared}
    for options in (run.options, planned.options, make_job(), PlanOptions()):
        assert {name: getattr(options, name) for name in shared} == expected
    assert (expected["optimizer"], expected["learning_rate"], expected["batch_size"]) == ("adam", 0.001, 128)


def test_nodes_and_workers_are_not_given_together():
    assert PlanOptions(workers=4).nodes == PlanOptions(nodes=4).nodes == (1, 4)
    assert PlanOptions(strategy="serial").nodes == (1,)
    assert replace(PlanOptions(workers=4), seed=2).nodes == (1, 4)
    with pytest.raises(UserError, match="nodes and workers both set the number of nodes; give only one of them"):
        PlanOptions(workers=4, nodes=(2,))
    with pytest.raises(UserError, match="nodes and strategy serial both set the number of nodes"):
        PlanOptions(strategy="serial", nodes=(2,))
    with pytest.raises(UserError, match="a plan is for CPUs; got device cuda"):
        PlanOptions(device="cuda")


def test_a_plan_ends_with_a_command_and_train_runs_its_file(tmp_path, call):
    (tmp_path / "my table.csv").write_text(
        "a,b,the target\n" + "".join(f"{k % 7},{k % 5},{'yes' if k % 7 > 3 else 'no'}\n" for k in range(120))
    )
    few = ["my table.csv", "--target", "the target", "--epochs", "2", "--seeds", "1", "--batch-size", "16"]
    planned = call(tmp_path, "plan", *few, "--workers", "2", "--backend", "threads", "--json", "plan.json")
    command = planned.stdout.strip().splitlines()[-1]
    assert command.startswith("shoal train 'my table.csv' --target 'the target'")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert shlex.split(command) == ["shoal", "train", *content["train"]]
    first, again = call(tmp_path, *shlex.split(command)[1:]), call(tmp_path, "train", "--plan", "plan.json")
    for line in ("training loss", "test:"):
        shown = [one.rpartition(",")[0] for done in (first, again) for one in done.stdout.splitlines() if line in one]
        assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    text = again.stdout.split("predicted and measured:")[1]
    assert text.count("predicted") == 3
    assert f"accuracy on the test rows: {content['predicted']['accuracy']:.4f}" in text
    refused = call(tmp_path, "train", "--plan", "plan.json", "--epochs", "3", code=2)
    assert "plan.json has all options of the training; omit --epochs, or --plan" in refused.stderr
    assert "is not a plan" in call(tmp_path, "train", "--plan", "my table.csv", code=2).stderr


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_plan_that_is_damaged_is_refused_before_anything_is_trained(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    predicted = {**dict.fromkeys(PREDICTED, 1.5), "metric": "r2", "link": "loopback", "own_machines": False}
    file.write_text(json.dumps({"train": ["houses.csv", "--epochs", "3"], "predicted": predicted}))
    damage(file, data)
    with contextlib.suppress(UserError):
        arguments, found = _read_plan(file)
        assert all(isinstance(word, str) for word in arguments)
        compared(found, {"seconds": 1.0, "seconds_per_epoch": 0.1, "test_r2": 0.5}, 2.0)


def test_in_python_the_best_plan_is_what_fit_runs():
    import torch

    rows = TensorDataset(torch.randn(64, 4), torch.arange(64) % 2)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    found = planner.plan(model, rows, rows, workers=2, backend="threads", accuracy=False, epochs=2, batch_size=16)
    result = parallel.fit(model, rows, **vars(found.training()))
    assert (len(result.history), result.metrics["workers"]) == (2, found.best.nodes)


@pytest.mark.parametrize("command", [["train", "--strategy", "serial"], ["plan", "--seeds", "1", "--nodes", "1"]])
def test_the_network_is_built_once(command, tmp_path, monkeypatch):
    from shoal.cli import app

    built: list[str] = []
    make = networks.make_model
    monkeypatch.setattr(networks, "make_model", lambda net, **more: built.append(net) or make(net, **more))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*command, "--data", "iris", "--net", "mlp:4-8-3", "--epochs", "1"])
    assert result.exit_code == 0, result.output
    assert built == ["mlp:4-8-3"]
    assert Path("shoal-plan.html").exists() == (command[0] == "plan")

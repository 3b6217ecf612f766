"""`shoal train`: one network, many workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.atomic import new_file, write_text
from shoal.cli.parameters import given, with_options
from shoal.cli.subjects import (
    Activation,
    DataName,
    File,
    Net,
    RowCount,
    Subject,
    check_network,
    check_source,
    loss_of,
    model_of,
    named_data,
    need_torch,
    own_table,
)
from shoal.json_values import plain
from shoal.parallel.job import Job
from shoal.parallel.options import TableOptions
from shoal.plain_files import PRIVATE, open_file
from shoal.progress import Screen
from shoal.runs.changes import WEIGHTS
from shoal.runs.folder import refuse_taken
from shoal.runs.lock import take

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.datasets import Data
    from shoal.parallel.worker import Result

TRAIN_EXAMPLES = """Examples:

shoal train --data mnist --net mlp:784-1024-10 --strategy allreduce --workers 2

shoal train houses.csv --target price --epochs 30 --out my-run

shoal train houses.csv --target price --net mine.py:make_network --workers 2

shoal train --data fashion-mnist --net mlp:784-256-128-10 --activation sigmoid --backend mpi --workers 4

mpiexec -n 4 shoal train --data mnist --checkpoint kept

torchrun --nproc-per-node 2 --max-restarts 3 -m shoal train --data mnist --checkpoint kept"""


COMMAND_DEFAULTS = {"epochs": 5, "batch_size": 128, "loss": None, "strategy": None, "workers": None}


@with_options(
    defaults=COMMAND_DEFAULTS,
    moved={"target": "file", "test": "valid", "checkpoint": "kinds"},
    headed={"table": "FILE: "},
)
def train(
    command_line: typer.Context,
    file: File = None,
    *,
    data: DataName = None,
    net: Net = None,
    activation: Activation = "relu",
    output: Annotated[str, typer.Option("--output-activation", help="Of the last layer.")] = "identity",
    init: Annotated[str, typer.Option(help="torch or glorot.")] = "torch",
    dropout: Annotated[float, typer.Option(help="Share of hidden units left out in training.")] = 0.0,
    job: Job,
    rows: RowCount = None,
    valid: Annotated[float, typer.Option(help="Share of the training rows kept for validation.")] = 1 / 6,
    table: TableOptions,
    out: Annotated[Path | None, typer.Option(help="Folder for model.safetensors, history.json, settings.json.")] = None,
) -> None:
    """Train one network over many workers: threads, processes or MPI ranks; torchrun and mpiexec are detected.

    A worker that is lost is noticed within ten seconds, and the run resumes from its last checkpoint. Under torchrun it
    does with --max-restarts; under mpiexec the run ends, and the same command resumes it. Both need --checkpoint.
    """
    need_torch("train")
    typed = given(command_line)
    check_source("train", file, data, table, typed)
    job = _complete(job, typed)
    if out is not None:
        refuse_taken(out)
    network = {"activation": activation, "output": output, "init": init, "dropout": dropout, "seed": job.seed}
    check_network(net, network)
    wanted = (valid, rows, job.seed)
    if file is None:
        subject = named_data(data or "mnist", net, wanted)
    else:
        subject = own_table(file, table, net, wanted)
        job = replace(job, loss=loss_of(subject, job.loss if "loss" in typed else None))
    bound = {} if ".py" in subject.net else {"net": subject.net, **network}  # of a custom one, its code is compared
    about = {"file": str(file or data or "mnist"), "checksum": _checksum(file) if job.checkpoint else ""}
    _train(replace(job, about=bound | about), subject, network, out)


def _checksum(file: Path | None) -> str:
    if file is None or not file.is_file():
        return ""
    with open(open_file(file), "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _complete(job: Job, typed: Mapping[str, str]) -> Job:
    """The job with the strategy and the number of workers that follow from what was typed."""
    from shoal.parallel.training import make_job

    workers = job.workers if "workers" in typed else None
    strategy = job.strategy if "strategy" in typed else _strategy(workers, job.checkpoint, job.exact)
    return make_job(**{**vars(job), "workers": workers, "strategy": strategy})


@contextmanager
def _own_place(out: Path | None, first: bool) -> Iterator[None]:
    """Make the folder for the results before training, which shows whether it can be written, and keep others out."""
    if out is None:
        yield
        return
    out.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if not first:  # one of many processes of torchrun or mpiexec: it writes nothing
        yield
        return
    lock = take(out)
    try:
        refuse_taken(out)
        yield
    finally:
        lock.release()


def _train(job: Job, subject: Subject, network: dict[str, Any], out: Path | None) -> None:
    """Show what is trained on what, train, show and save the results."""
    from shoal.parallel.checks import check_fit
    from shoal.parallel.environment import world
    from shoal.parallel.identity import weights_hash

    model, sets = model_of(subject, network), subject.sets
    if job.checkpoint and ".py" in subject.net:
        job = replace(job, about={**(job.about or {}), WEIGHTS: weights_hash(model)})
    check_fit(job, model, sets.train, sets.valid, sets.classes, sets.classes if subject.prepared else None)
    screen = Screen(_epoch_line, quiet=world()[0] != 0)
    with _own_place(out, not screen.quiet):
        _train_into(out, job, subject, network, model, screen)


def _train_into(
    out: Path | None, job: Job, subject: Subject, network: dict[str, Any], model: nn.Module, screen: Screen
) -> None:
    sets, net = subject.sets, subject.net
    parameters = sum(p.numel() for p in model.parameters())
    for line in subject.words:
        screen.say(f"  {line}")
    screen.say(
        f"{subject.name}: {len(sets.train):,} rows to train on, {len(sets.valid):,} to validate, "
        f"{len(sets.test):,} to test"
    )
    screen.say(f"{net}: {parameters:,} parameters; {_plan(job)}")
    with screen:
        result = _run(job, model, sets, screen)
    _conclude(screen, result, subject, job)
    if out is not None and not screen.quiet:
        _save(out, result, job, {"net": net, **network}, sets)
        if subject.prepared is not None:
            subject.prepared.save(out)
        screen.say(f"saved to {out}")


def _strategy(workers: int | None, checkpoint: str | None, exact: bool | None) -> str:
    """That of the run that is resumed; else all-reduce for any number of workers that is given, also for one."""
    from shoal.parallel.checkpoint import peek

    earlier = {} if checkpoint is None else peek(checkpoint)
    if workers is None:
        return "auto"
    if earlier.get("strategy") == "plain":  # older versions took the plain loop for one worker
        return "blas" if workers == 1 and not exact else "allreduce"
    return str(earlier.get("strategy", "allreduce"))


def _run(job: Job, model: nn.Module, sets: Data, screen: Screen) -> Result:
    from shoal.parallel.failures import as_user_errors
    from shoal.parallel.training import run

    try:
        with as_user_errors():
            return run(job, model, sets.train, None if job.method.holds_out_rows else sets.valid, screen.tell)
    except KeyboardInterrupt:
        if job.checkpoint:
            screen.say(f"stopped; the same command resumes from {job.checkpoint}")
        raise


def _plan(job: Job) -> str:
    if job.strategy == "auto":
        return "strategy auto: measuring what is fastest here"
    many = f"{job.workers} worker{'s' * (job.workers > 1)}"
    return f"{job.method.name}, {many}" + (f" ({job.backend})" if job.workers > 1 else "")


def _test(result: Result, subject: Subject, job: Job) -> str:
    """The score on the test rows, in words."""
    import torch

    from shoal.parallel.evaluation import chunks_of, measures
    from shoal.parallel.learner import make_loss
    from shoal.parallel.loader import Loader

    model = result.model.cpu().eval()
    if subject.prepared is not None:
        from shoal.parallel.tables import score

        numbers, words = score(subject.prepared, model, subject.sets.test)
        result.metrics |= numbers
        return words
    with torch.no_grad():
        loader = Loader(subject.sets.test, torch.device("cpu"))
        parts = [measures(model, make_loss(job.loss), *loader.take(rows)) for rows in chunks_of(loader)]
    result.metrics["test_accuracy"] = sum(part[1] for part in parts) / len(loader)
    return f"test: {result.metrics['test_accuracy']:.2%} right"


def _conclude(screen: Screen, result: Result, subject: Subject, job: Job) -> None:
    """Show speed and scores."""
    metrics, words = result.metrics, _test(result, subject, job)
    speed = f"{metrics['seconds_per_epoch']:.3g} s an epoch, {metrics['samples_per_second']:,.0f} rows a second"
    if "gflops" in metrics:
        speed += f", {metrics['gflops']:.3g} GFLOPS"
    if metrics["workers"] > 1 and not result.folds:
        speed += f", {metrics['communicating']:.0%} of the time communicating"
    screen.say(speed)
    if "valid_accuracy_spread" in metrics:
        screen.say(f"over {job.folds} folds: {metrics['valid_accuracy']:.2%} right, "
                   f"give or take {metrics['valid_accuracy_spread']:.2%}")  # fmt: skip
    screen.say(words)


def _save(out: Path, result: Result, job: Job, network: dict[str, Any], sets: Data) -> None:
    from safetensors.torch import save_file

    # Cloned: safetensors refuses tied tensors, which are one in memory; each name has its numbers in the file.
    state = {name: value.cpu().clone().contiguous() for name, value in result.model.state_dict().items()}
    with new_file(out / "model.safetensors") as partial:
        save_file(state, partial)
    history = {"history": result.history, "metrics": result.metrics}
    write_text(out / "history.json", json.dumps(plain(history), indent=1) + "\n")
    settings = {name: value if not callable(value) else str(value) for name, value in job.as_dict().items()}
    settings |= {"network": network, "inputs": sets.features, "outputs": sets.classes}
    write_text(out / "settings.json", json.dumps(plain(settings), indent=1) + "\n")


def _epoch_line(record: dict[str, Any]) -> str:
    line = f"epoch {record['epoch'] + 1}: training loss {record['train_loss']:.4f}"
    if "valid_accuracy" in record:
        line += f", validation loss {record['valid_loss']:.4f}, {record['valid_accuracy']:.2%} right"
    elif "valid_loss" in record:
        line += f", validation loss {record['valid_loss']:.4f}"
    if "staleness_mean" in record:
        line += f", staleness {record['staleness_mean']:.2f} (most {record['staleness_max']:.0f})"
    return line + f", {record['seconds']:.2f} s"

"""`shoal train`: one network, many workers."""

from __future__ import annotations

import json
import math
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.members import ACTIVATIONS
from shoal.progress import Screen

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.data import Data
    from shoal.parallel.job import Job
    from shoal.parallel.tables import Prepared
    from shoal.parallel.worker import Result

TEST = 0.2  # share of the rows of a file

TRAIN_EXAMPLES = """Examples:

shoal train --data mnist --net mlp:784-1024-10 --strategy allreduce --workers 2

shoal train houses.csv --target price --epochs 30 --out my-run

shoal train houses.csv --target price --net mine.py:make_network --workers 2

shoal train --data fashion-mnist --net mlp:784-256-128-10 --activation sigmoid --backend mpi --workers 4

mpiexec -n 4 shoal train --data mnist --checkpoint kept

torchrun --nproc-per-node 2 --max-restarts 3 -m shoal train --data mnist --checkpoint kept"""


def train(
    file: Annotated[Path | None, typer.Argument(help="A table of your own: CSV, TSV (also gzipped), Parquet.")] = None,
    target: Annotated[
        str | None, typer.Option(help="FILE: column to predict, its name or number (-1 is last).")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="mnist (default), fashion-mnist, iris, wine, digits or breast-cancer.")
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(
            help="mlp:784-256-10 (layer sizes), cnn, or file.py:make_network, a function that returns an nn.Module, "
            "called with (inputs, outputs) if it takes two. (default: an mlp that fits the data)"
        ),
    ] = None,
    activation: Annotated[str, typer.Option(help=f"Of hidden layers: {', '.join(ACTIVATIONS)}.")] = "relu",
    output: Annotated[str, typer.Option("--output-activation", help="Of the last layer.")] = "identity",
    init: Annotated[str, typer.Option(help="torch or glorot.")] = "torch",
    dropout: Annotated[float, typer.Option(help="Share of hidden units left out in training.")] = 0.0,
    loss: Annotated[str | None, typer.Option(help="cross_entropy, mse or bce. (default: by the target)")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "adam",
    learning_rate: Annotated[float, typer.Option("--learning-rate", "--lr", help="Size of the steps.")] = 1e-3,
    momentum: Annotated[float, typer.Option(help="For sgd.")] = 0.0,
    weight_decay: Annotated[float, typer.Option(help="Pulls weights towards zero.")] = 0.0,
    schedule: Annotated[str, typer.Option(help="constant or cosine.")] = "constant",
    epochs: Annotated[int, typer.Option(help="Passes over the rows.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Rows in a step (local_sgd, asynchronous: of each worker).")] = 128,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="serial, blas, allreduce, local_sgd, parameter_server, tensor, pipeline, data+tensor, data+pipeline, "
            "sharded, kfold, or auto: measure and take the fastest, which may differ from run to run in the last "
            "digits. (default: allreduce if --workers is given, or auto)"
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="threads, processes or mpi.")] = "processes",
    workers: Annotated[int | None, typer.Option(help="How many. (default: one a core)")] = None,
    blas_threads: Annotated[int | None, typer.Option(help="Threads of each worker. (default: cores / workers)")] = None,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--close",
            help="The same bits for any number of workers. (default: --exact for allreduce and pipeline on CPUs)",
        ),
    ] = None,
    shards: Annotated[int, typer.Option(help="--exact: parts of a batch; at least as many as workers.")] = 8,
    average_every: Annotated[str, typer.Option(help="local_sgd: steps, epoch or end.")] = "epoch",
    asynchronous: Annotated[bool, typer.Option("--asynchronous", help="parameter_server: wait for nobody.")] = False,
    folds: Annotated[int, typer.Option(help="kfold: how many.")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    rows: Annotated[int | None, typer.Option(help="Use only so many training rows.")] = None,
    valid: Annotated[float, typer.Option(help="Share of the training rows kept for validation.")] = 1 / 6,
    test: Annotated[
        float | None, typer.Option(help="FILE: share of the rows held back for the score at the end. (default: 0.2)")
    ] = None,
    task: Annotated[str | None, typer.Option(help="FILE: classification or regression. (default: guessed)")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="FILE: leave this column out; repeatable.")] = None,
    sep: Annotated[str | None, typer.Option(help="FILE: separator. (default: guessed)")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="FILE: whether it has names.")] = None,
    missing: Annotated[list[str] | None, typer.Option(help="FILE: a cell that means 'not known'; repeatable.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder to save the state in, and to go on from if it has one.")
    ] = None,
    checkpoint_every: Annotated[str, typer.Option(help="epoch, or a number of rounds.")] = "epoch",
    restarts: Annotated[int, typer.Option(help="How often to start again when a worker is lost.")] = 3,
    allow_fewer: Annotated[bool, typer.Option("--allow-fewer", help="Start again without the lost worker.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that a worker may wait for a slower one.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Seed of all that is drawn at random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for model.safetensors, history.json, settings.json.")] = None,
) -> None:
    """Train one network over many workers: threads, processes or MPI ranks; found by itself under torchrun and mpiexec.

    A worker that is lost is noticed within ten seconds, and the run goes on from its last checkpoint. Under torchrun it
    does with --max-restarts; under mpiexec the run ends, and the same command goes on. Both need --checkpoint.
    """
    _need_torch()
    from shoal.parallel.models import make_model
    from shoal.parallel.training import make_job

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    strategy = strategy or _strategy(workers, checkpoint, exact)
    whole = {"average_every": _count(average_every), "checkpoint_every": _count(checkpoint_every)}
    of_file = {"target": target, "test": test, "task": task, "drop": drop, "sep": sep, "header": header,
               "missing": missing}  # fmt: skip
    _check_source(file, data, of_file)
    job = make_job(
        workers=workers, loss=loss or "cross_entropy", optimizer=optimizer, learning_rate=learning_rate,
        momentum=momentum, weight_decay=weight_decay, schedule=schedule, epochs=epochs, batch_size=batch_size,
        strategy=strategy, backend=backend, blas_threads=blas_threads, exact=exact, shards=shards,
        asynchronous=asynchronous, folds=folds, device=device,
        checkpoint=None if checkpoint is None else str(checkpoint), restarts=restarts,
        allow_fewer=allow_fewer, timeout=timeout, seed=seed, **whole,
    )  # fmt: skip
    _refuse_taken(out)
    asked: dict[str, Any] = {"activation": activation, "output": output, "init": init, "dropout": dropout, "seed": seed}
    if net is not None and ".py" not in net:
        make_model(net, **asked)  # a name that is none is told before data are loaded
    reading = (task, tuple(drop or ()), sep, header, tuple(missing or ()))
    subject = _subject(file, target, reading, data or "mnist", net, (valid, TEST if test is None else test, rows, seed))
    if subject.prepared is not None:
        from shoal.parallel.tables import default_loss

        job = replace(job, loss=default_loss(subject.prepared.kind, loss))
    _train(job, subject, asked, out)


@dataclass
class Subject:
    """What is trained on what."""

    name: str
    net: str
    sets: Data
    prepared: Prepared | None = None  # of a table of the user's own
    words: list[str] = field(default_factory=list)  # what was understood of it


def _check_source(file: Path | None, data: str | None, of_file: dict[str, Any]) -> None:
    """A file or --data; `of_file`: options that only a file has, with their values."""
    if file is not None and data is not None:
        raise ValueError("give a file of your own or --data, not both")
    if file is not None and of_file["target"] is None:
        raise ValueError("say which column to predict: --target with a name or a number (-1 is the last column)")
    given = [f"--{name}" for name, value in of_file.items() if value not in (None, [])]
    if file is None and given == ["--target"]:
        raise ValueError("--target names a column of a file of your own, as in 'shoal train data.csv --target price'")
    if file is None and given:
        names = ", ".join("--header/--no-header" if name == "--header" else name for name in given)
        raise ValueError(
            f"{names}: only for a file of your own, as in 'shoal train data.csv --target price', and no file is given"
        )


def _subject(
    file: Path | None, target: str | None, reading: tuple[Any, ...], data: str, net: str | None,
    shares: tuple[float, float, int | None, int],
) -> Subject:  # fmt: skip
    """The data, and the name of a network that fits them unless one is given."""
    valid, test, rows, seed = shares
    if file is None:
        from shoal.parallel.data import load_data

        sets = load_data(data, valid, rows, seed=seed)
        return Subject(data, net or f"mlp:{sets.features}-256-{sets.classes}", sets)
    from shoal.parallel.tables import Source, check_sizes, load_table

    assert target is not None
    sets, prepared, words = load_table(Source(file, target, *reading), valid, test, rows, seed)
    net = net or f"mlp:{sets.features}-64-64-{sets.classes}"
    check_sizes(net, sets, f"{len(prepared.classes)} classes" if prepared.classes else "a number")
    return Subject(file.name, net, sets, prepared, words)


def _network(subject: Subject, asked: dict[str, Any]) -> nn.Module:
    from shoal.parallel.models import make_model, own_network

    if ".py" in subject.net:
        return own_network(subject.net, subject.sets.features, subject.sets.classes, asked["seed"])
    return make_model(subject.net, **asked)


def _refuse_taken(out: Path | None) -> None:
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} is there already; give another folder, nothing is overwritten")


def _make_place(out: Path | None) -> None:
    """A folder for the results, found out before training."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)


def _train(job: Job, subject: Subject, asked: dict[str, Any], out: Path | None) -> None:
    """Say what there is to do, do it, and say what came of it."""
    from shoal.parallel.environment import world
    from shoal.parallel.training import check_fit

    model, sets, net = _network(subject, asked), subject.sets, subject.net
    check_fit(job, model, sets.train, sets.valid, sets.classes, sets.classes if subject.prepared else None)
    _make_place(out)
    screen = Screen(_epoch_line, quiet=world()[0] != 0)
    parameters = sum(p.numel() for p in model.parameters())
    for line in subject.words:
        screen.say(f"  {line}")
    screen.say(
        f"{subject.name}: {len(sets.train):,} rows to train on, {len(sets.valid):,} to validate, "
        f"{len(sets.test):,} to test"
    )
    screen.say(f"{net}: {parameters:,} parameters; {_way(job)}")
    with screen:
        result = _run(job, model, sets, screen)
    _conclude(screen, result, subject, job)
    if out is not None and not screen.quiet:
        _save(out, result, job, {"net": net, **asked}, sets)
        if subject.prepared is not None:
            subject.prepared.save(out)
        screen.say(f"saved to {out}")


def _strategy(workers: int | None, checkpoint: Path | None, exact: bool | None) -> str:
    """What a run that goes on was; else all-reduce for any number of workers that is given, one as well."""
    from shoal.parallel.checkpoint import peek

    earlier = {} if checkpoint is None else peek(checkpoint)
    if workers is None:
        return "auto"
    if earlier.get("strategy") == "plain":  # older versions took the plain loop for one worker
        return "blas" if workers == 1 and not exact else "allreduce"
    return str(earlier.get("strategy", "allreduce"))


def _run(job: Job, model: nn.Module, sets: Data, screen: Screen) -> Result:
    from shoal.parallel.launch import in_words
    from shoal.parallel.training import run

    try:
        with in_words():
            return run(job, model, sets.train, None if job.strategy == "kfold" else sets.valid, screen.tell)
    except KeyboardInterrupt:
        if job.checkpoint:
            screen.say(f"stopped; the same command goes on from {job.checkpoint}")
        raise


def _way(job: Job) -> str:
    if job.strategy == "auto":
        return "strategy auto: measuring what is fastest here"
    many = f"{job.workers} worker{'s' * (job.workers > 1)}"
    return f"{job.strategy}, {many}" + (f" ({job.backend})" if job.workers > 1 else "")


def _test(result: Result, subject: Subject, job: Job) -> str:
    """The score on rows that nobody has seen before, in words."""
    import torch

    from shoal.parallel.feed import Feed
    from shoal.parallel.learner import make_loss
    from shoal.parallel.worker import measures

    model = result.model.cpu().eval()
    if subject.prepared is not None:
        from shoal.parallel.tables import score

        numbers, words = score(subject.prepared, model, subject.sets.test)
        result.metrics |= numbers
        return words
    with torch.no_grad():
        feed = Feed(subject.sets.test, torch.device("cpu"))
        parts = [measures(model, make_loss(job.loss), *feed.take(rows)) for rows in torch.arange(len(feed)).split(2048)]
    result.metrics["test_accuracy"] = sum(part[1] for part in parts) / len(feed)
    return f"test: {result.metrics['test_accuracy']:.2%} right"


def _conclude(screen: Screen, result: Result, subject: Subject, job: Job) -> None:
    """What came of it."""
    metrics, words = result.metrics, _test(result, subject, job)
    speed = f"{metrics['seconds_per_epoch']:.3g} s an epoch, {metrics['samples_per_second']:,.0f} rows a second"
    if "gflops" in metrics:
        speed += f", {metrics['gflops']:.3g} GFLOPS"
    if metrics["workers"] > 1 and metrics["strategy"] != "kfold":
        speed += f", {metrics['communicating']:.0%} of the time communicating"
    screen.say(speed)
    if "valid_accuracy_spread" in metrics:
        screen.say(f"over {job.folds} folds: {metrics['valid_accuracy']:.2%} right, "
                   f"give or take {metrics['valid_accuracy_spread']:.2%}")  # fmt: skip
    screen.say(words)


def _save(out: Path, result: Result, job: Job, network: dict[str, Any], sets: Data) -> None:
    from dataclasses import asdict

    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    state = {name: value.contiguous().cpu() for name, value in result.model.state_dict().items()}
    save_file(state, out / "model.safetensors")
    history = {"history": result.history, "metrics": result.metrics}
    (out / "history.json").write_text(json.dumps(_without_nan(history), indent=1) + "\n")
    settings = {name: value if not callable(value) else str(value) for name, value in asdict(job).items()}
    settings |= {"network": network, "inputs": sets.features, "outputs": sets.classes}
    (out / "settings.json").write_text(json.dumps(settings, indent=1) + "\n")


def _without_nan(value: Any) -> Any:
    """JSON knows no numbers that are none."""
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _count(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _need_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("cloudpickle") is None:
        raise ModuleNotFoundError("shoal train needs PyTorch: pip install 'shoal[torch]'")


def _epoch_line(record: dict[str, Any]) -> str:
    line = f"epoch {record['epoch'] + 1}: training loss {record['train_loss']:.4f}"
    if "valid_accuracy" in record:
        line += f", validation loss {record['valid_loss']:.4f}, {record['valid_accuracy']:.2%} right"
    elif "valid_loss" in record:
        line += f", validation loss {record['valid_loss']:.4f}"
    if "staleness_mean" in record:
        line += f", staleness {record['staleness_mean']:.2f} (most {record['staleness_max']:.0f})"
    return line + f", {record['seconds']:.2f} s"

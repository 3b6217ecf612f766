"""`shoal train`: one network, many workers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli.parameters import given, with_options
from shoal.cli.subjects import (
    DATA,
    DEFAULT_DATA,
    RESUMING,
    STRATEGIES,
    TRAINING,
    File,
    NetworkAndData,
    check_source,
    load_subject,
    need_torch,
)
from shoal.console.progress import Screen
from shoal.console.terminal import say
from shoal.errors import UserError
from shoal.files.atomic import new_file, write_text
from shoal.files.json_values import plain
from shoal.files.plain_files import read_bytes
from shoal.live.options import LiveOptions
from shoal.live.recorders import TrainingRecorder
from shoal.live.watching import live_server
from shoal.parallel.events import EpochEnded, EpochProgress, FoldEnded
from shoal.parallel.job import Job
from shoal.parallel.options import NetworkOptions, TableOptions
from shoal.report.shell.words import predicted_error
from shoal.runs.changes import TEST, WEIGHTS
from shoal.runs.folder import RunFolder, refuse_finished
from shoal.runs.kinds import HISTORY, MODEL, SETTINGS, STATE_DICT, TRAIN
from shoal.runs.versions import file_hash
from shoal.trackers.find import LogOptions

if TYPE_CHECKING:
    from torch import nn

    from shoal.parallel.data.datasets import LoadedData
    from shoal.parallel.worker import Result

TRAIN_EXAMPLES = """\b
Examples:
  shoal train --data mnist --net mlp:784-1024-10 --strategy allreduce --workers 2
  shoal train houses.csv --target price --epochs 30 --out my-run
  shoal train houses.csv --target price --live  (shows the training in a browser)
  shoal train --plan plan.json                  (what 'shoal plan ... --json plan.json' found best)
  shoal train houses.csv --target price --net mine.py:make_network --workers 2
  shoal train --data fashion-mnist --net mlp:784-256-128-10 --activation sigmoid --backend mpi --workers 4
  mpiexec -n 4 shoal train --data mnist --checkpoint kept
  torchrun --nproc-per-node 2 --max-restarts 3 -m shoal train --data mnist --checkpoint kept"""


HEADINGS = {
    "Data": DATA,
    "Network and training": TRAINING,
    "Workers": f"strategy workers backend {STRATEGIES}",
    "Output": f"out log plan {RESUMING} live address port",
}
# Options that may stand beside --plan: they change nothing that was planned.
BESIDE_PLAN = {"plan", "out", "log", "live", "address", "port", *RESUMING.split()}
PREDICTED = ("seconds", "seconds_per_epoch", "start_seconds", "nodes", "accuracy", "accuracy_low", "accuracy_high")


@with_options(defaults={"loss": None, "strategy": None, "workers": None}, groups=HEADINGS)
def train(
    command_line: typer.Context,
    file: File = None,
    *,
    asked: NetworkOptions,
    job: Job,
    table: TableOptions,
    page: LiveOptions,
    logs: LogOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder. (default: ./shoal-runs/<file>-<n>; with --data only if --live)"),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Run the best plan in a file from shoal plan --json; compare predicted with measured."),
    ] = None,
) -> None:
    """Train one network on many workers.

    Workers are threads, processes or MPI ranks. Detects torchrun and mpiexec.

    Shoal notices a lost worker within ten seconds and resumes the run from its last checkpoint. Under torchrun, this
    needs --checkpoint and --max-restarts. Under mpiexec, the run ends; with --checkpoint, the same command resumes it.
    """
    need_torch("train")
    typed = given(command_line)
    if plan is not None:
        _train_planned(plan, command_line, typed)
        return
    check_source("train", file, asked, table, typed)
    job = complete(job, typed)
    if out is not None:
        refuse_finished(out)
    subject = load_subject(file, asked, table, job.seed)
    job = replace(job, loss=subject.loss(job.loss, "loss" in typed))
    bound = {} if ".py" in subject.net else {"net": subject.net, **subject.network}  # of a custom one, its code counts
    checksum = file_hash(file) if file is not None and file.is_file() else ""
    about = {"file": str(file or asked.data or DEFAULT_DATA), "checksum": checksum}
    _train(replace(job, about=bound | about), subject, Destinations(out, page, logs), command_line.obj)


def _train_planned(file: Path, command_line: typer.Context, typed: Mapping[str, str]) -> None:
    """Train as a plan says, as if its command had been typed."""
    refused = [flag for name, flag in typed.items() if name not in BESIDE_PLAN]
    if refused:
        raise UserError(f"{file} has all options of the training; omit {', '.join(refused)}, or --plan")
    arguments, predicted = _read_plan(file)
    for name, flag in typed.items():
        if name != "plan":
            value = command_line.params[name]
            several = value if isinstance(value, (list, tuple)) else [value]
            arguments += [flag] if value is True else [word for one in several for word in (flag, str(one))]
    with command_line.command.make_context(command_line.info_name, arguments, parent=command_line.parent) as inner:
        inner.obj = predicted
        command_line.command.invoke(inner)


def _read_plan(file: Path) -> tuple[list[str], dict[str, Any]]:
    """The options of the best training of a plan, and what is predicted of it: checked before anything is trained."""
    try:
        content = json.loads(read_bytes(file))
        arguments, predicted = content["train"], {"link": "", **content["predicted"]}
        texts = [*arguments, predicted["metric"], predicted["link"] or ""]
        right = isinstance(arguments, list) and all(isinstance(one, str) for one in texts)
        numbers = [predicted[name] for name in PREDICTED if predicted[name] is not None]
        right &= all(isinstance(one, (int, float)) and math.isfinite(one) for one in numbers)
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        right = False
    if not right:
        raise UserError(f"{file} is not a plan; give a file that 'shoal plan --json FILE' wrote")
    return arguments, predicted


def complete(job: Job, typed: Mapping[str, str]) -> Job:
    """The job with the strategy and the number of workers that follow from what was typed."""
    from shoal.parallel.checkpoint import peek
    from shoal.parallel.training import make_job

    workers = job.workers if "workers" in typed else None
    strategy = job.strategy
    if "strategy" not in typed and workers is not None:  # that of the run that is resumed, else all-reduce
        earlier = "" if job.checkpoint is None else str(peek(job.checkpoint).get("strategy", ""))
        plain = "blas" if workers == 1 and not job.exact else ""  # the plain loop has one worker
        strategy = (plain if earlier == "plain" else earlier) or "allreduce"
    return make_job(**{**vars(job), "workers": workers, "strategy": strategy})


class Destinations(NamedTuple):
    """The folder that was asked for, the page and the logs."""

    out: Path | None
    page: LiveOptions
    logs: LogOptions


@contextmanager
def _run_folder(output: Destinations, job: Job, subject: NetworkAndData, first: bool) -> Iterator[RunFolder | None]:
    """The folder of the run, ours until the end. None: nothing is saved, or by the first of many processes only."""
    out = output.out
    if not first or (out is None and subject.prepared is None and not output.page.live):
        yield None
        return
    decides = {name: _plain(value) for name, value in job.fingerprint().items() if name not in ("about", "epochs")}
    about = {name: value for name, value in (job.about or {}).items() if name != "file"}
    marks = {"data": about.pop("checksum", ""), **about, **decides}
    stem = subject.name.partition(".")[0] or "train"
    with RunFolder(TRAIN, out, stem, marks, again=True, file=str((job.about or {}).get("file", ""))) as folder:
        yield folder
        folder.finish()


def _train(job: Job, subject: NetworkAndData, output: Destinations, predicted: Mapping[str, Any] | None) -> None:
    """Show what is trained on what, train, show and save the results."""
    from shoal.parallel.checks import check_fit
    from shoal.parallel.identity import data_hash, weights_hash
    from shoal.parallel.launch.environment import world
    from shoal.parallel.launch.failures import as_user_errors

    model, sets = subject.model(), subject.sets
    if job.checkpoint:
        weights = {WEIGHTS: weights_hash(model)} if ".py" in subject.net else {}
        job = replace(job, about={**(job.about or {}), TEST: data_hash(sets.test), **weights})
    check_fit(job, model, sets.train, sets.valid, sets.classes, sets.classes if subject.prepared else None)
    screen = Screen(lambda record: None, quiet=world()[0] != 0)
    about = {"title": subject.name, "net": subject.net, "predicted": predicted}
    logs = LogOptions() if screen.quiet else output.logs  # of several processes the first logs
    with (
        _run_folder(output, job, subject, not screen.quiet) as folder,
        _recorded(folder, output.page, about) as recorders,
        logs.trackers(screen.say) as trackers,
    ):
        _introduce(job, subject, model, screen)
        begun = time.perf_counter()
        with as_user_errors(subject.net if ".py" in subject.net else ""):
            with screen:
                result = _run(job, model, sets, screen, [TrainingScreen(screen, folder), *recorders, trackers])
            waited = time.perf_counter() - begun
            _conclude(screen, result, subject, job)
        for recorder in recorders:
            recorder.tested(result.metrics, waited)
        if predicted is not None:
            for line in compared(predicted, result.metrics, waited):
                screen.say(line)
        if folder is not None:
            _save(folder.path, result, job, {"net": subject.net, **subject.network}, subject)
            screen.say(f"saved to {folder.path}")
        trackers.finish(result, None if folder is None else folder.path)


@contextmanager
def _recorded(folder: RunFolder | None, page: LiveOptions, about: dict[str, Any]) -> Iterator[list[TrainingRecorder]]:
    """What records the training for its page, which is served while inside if that was asked for."""
    if folder is None:
        yield []
        return
    with TrainingRecorder(folder.path, about, partial(say, error=True)) as recorder, live_server(folder.path, page):
        yield [recorder]


def _introduce(job: Job, subject: NetworkAndData, model: nn.Module, screen: Screen) -> None:
    sets = subject.sets
    parameters = sum(p.numel() for p in model.parameters())
    for line in subject.words:
        screen.say(f"  {line}")
    screen.say(
        f"{subject.name}: {len(sets.train):,} rows to train on, {len(sets.valid):,} to validate, "
        f"{len(sets.test):,} to test"
    )
    screen.say(f"{subject.net}: {parameters:,} parameters; {_plan(job)}")


def compared(predicted: Mapping[str, Any], metrics: Mapping[str, Any], waited: float) -> list[str]:
    """What a plan has predicted next to what was measured, line by line; `waited`: from the start of the workers."""
    seconds = waited if predicted["start_seconds"] else metrics["seconds"]
    found = [("s an epoch", predicted["seconds_per_epoch"], metrics.get("seconds_per_epoch")),
             ("s in all", predicted["seconds"], seconds)]  # fmt: skip
    lines = [f"{name}: {before:.3g} predicted, {now:.3g} measured ({predicted_error(before, now)})"
             for name, before, now in found if before and now]  # fmt: skip
    if predicted.get("own_machines") and predicted.get("nodes", 1) > 1:
        lines.append(f"the prediction is for {predicted['nodes']} machines: {predicted['link']}")
    score = metrics.get(f"test_{predicted['metric']}")
    if predicted.get("accuracy") is not None and score is not None:
        name = "R2" if predicted["metric"] == "r2" else predicted["metric"]
        low, high = predicted.get("accuracy_low"), predicted.get("accuracy_high")
        interval = "" if low is None or high is None else f" ({low:.4f} to {high:.4f})"
        lines.append(f"{name} on the test rows: {predicted['accuracy']:.4f}{interval} predicted, {score:.4f} measured")
    return ["predicted and measured:", *(f"  {line}" for line in lines)]


def _run(job: Job, model: nn.Module, sets: LoadedData, screen: Screen, callbacks: list[Any]) -> Result:
    from shoal.parallel.training import run

    try:
        valid = None if job.method.holds_out_rows else sets.valid
        return run(job, model, sets.train, valid, callbacks)
    except KeyboardInterrupt:
        if job.checkpoint:
            callbacks[0].note(f"stopped; the same command resumes from {job.checkpoint}")
        raise


def _plan(job: Job) -> str:
    if job.strategy == "auto":
        return "strategy auto: measuring what is fastest here"
    many = f"{job.workers} worker{'s' * (job.workers > 1)}"
    return f"{job.method.name}, {many}" + (f" ({job.backend})" if job.workers > 1 else "")


def _test(result: Result, subject: NetworkAndData, job: Job) -> str:
    """The score on the test rows, in words."""
    import torch

    from shoal.parallel.data.loader import Loader
    from shoal.parallel.evaluation import chunks_of, measures
    from shoal.parallel.learner import make_loss

    model = result.model.cpu().eval()
    if subject.prepared is not None:
        from shoal.parallel.data.tables import score

        numbers, words = score(subject.prepared, model, subject.sets.test)
        result.metrics |= numbers
        return words
    with torch.no_grad():
        loader = Loader(subject.sets.test, torch.device("cpu"))
        parts = [measures(model, make_loss(job.loss), *loader.take(rows)) for rows in chunks_of(loader)]
    if not math.isfinite(sum(part[0] for part in parts)):
        raise UserError("the loss on the test rows is not finite, so there is no score: the network returns NaN there")
    result.metrics["test_accuracy"] = sum(part[1] for part in parts) / len(loader)
    return f"test: {result.metrics['test_accuracy']:.2%} right"


def _conclude(screen: Screen, result: Result, subject: NetworkAndData, job: Job) -> None:
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
                   f"spread {metrics['valid_accuracy_spread']:.2%}")  # fmt: skip
    screen.say(words)


def _save(out: Path, result: Result, job: Job, network: dict[str, Any], subject: NetworkAndData) -> None:
    """The model of a table, or the weights of a network for a data set by name; then history and settings."""
    from safetensors.torch import save_file

    from shoal.models.saving import save
    from shoal.parallel.saving import trained_model

    if subject.prepared is not None:
        save(trained_model(result.model, subject.prepared, network, str(job.loss)), out / MODEL)
    else:
        # Cloned: safetensors refuses tied tensors, which are one in memory; each name has its numbers in the file.
        state = {name: value.cpu().clone().contiguous() for name, value in result.model.state_dict().items()}
        with new_file(out / STATE_DICT) as partial:
            save_file(state, partial)
    sets = subject.sets
    history = {"history": result.history, "metrics": result.metrics}
    write_text(out / HISTORY, json.dumps(plain(history), indent=1) + "\n")
    settings = {name: _plain(value) for name, value in job.as_dict().items()}
    settings |= {"network": network, "inputs": sets.features, "outputs": sets.classes}
    write_text(out / SETTINGS, json.dumps(plain(settings), indent=1) + "\n")


def _plain(value: Any) -> Any:
    """JSON has no functions and no custom strategies."""
    return value if value is None or isinstance(value, (str, int, float, list)) else str(value)


class TrainingScreen:
    """Shows a training as it runs."""

    def __init__(self, screen: Screen, folder: RunFolder | None = None) -> None:
        self.screen, self.folder = screen, folder

    def note(self, text: str) -> None:
        self.screen.say(text)

    def progress(self, event: EpochProgress) -> None:
        self.screen.bar.update(event.share, words=f"loss {event.loss:.4f}")
        if self.folder is not None:  # for `shoal runs`
            self.folder.progress(event.share)

    def step_ended(self, event: EpochEnded | FoldEnded) -> None:
        if isinstance(event, FoldEnded):
            self.screen.say(_fold_line(event))
            self.screen.bar.update((event.fold + 1) / event.folds)
        else:
            self.screen.say(_epoch_line(event.record))


def _fold_line(event: FoldEnded) -> str:
    right = event.metrics.get("valid_accuracy")
    loss = f"fold {event.fold + 1} of {event.folds}: loss {event.metrics['valid_loss']:.4f}"
    return loss if right is None else f"{loss}, {right:.2%} right"


def _epoch_line(record: Mapping[str, Any]) -> str:
    line = f"epoch {record['epoch'] + 1}: training loss {record['train_loss']:.4f}"
    if "valid_accuracy" in record:
        line += f", validation loss {record['valid_loss']:.4f}, {record['valid_accuracy']:.2%} right"
    elif "valid_loss" in record:
        line += f", validation loss {record['valid_loss']:.4f}"
    if "staleness_mean" in record:
        line += f", staleness {record['staleness_mean']:.2f} (most {record['staleness_max']:.0f})"
    return line + f", {record['seconds']:.2f} s"

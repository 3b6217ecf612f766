"""`shoal finetune`: fine-tune a language model on your texts."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.parameters import RunFolderOptions, given, with_options
from shoal.console.interrupts import Interrupt, interruptible
from shoal.console.progress import Screen, steady_output
from shoal.console.terminal import quoted, say
from shoal.errors import MissingPackage, UserError
from shoal.finetune.events import Evaluated, FinetuneProgress, FinetuneResult, FinetuneStarted
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.plan import job_of
from shoal.finetune.run import FinetuneRun, open_run
from shoal.finetune.texts import Texts, join, read
from shoal.live.options import LiveOptions
from shoal.live.recorders import FinetuneRecorder
from shoal.live.watching import live_server
from shoal.parallel.launch.environment import launcher
from shoal.runs.kinds import MODEL, REPORT
from shoal.trackers.find import LogOptions

FINETUNE_EXAMPLES = """\b
Examples:
  shoal finetune --demo
  shoal finetune --demo --live                  (shows the run in a browser)
  shoal finetune problems.csv --columns statement,solution --model gpt2 --workers 2
  shoal finetune letters.csv --model ./my-model --epochs 1 --lora 8 --out letters-run"""

DEMO_PHRASE = "Write a function `count_words` that returns the number of words in a text."  # in the form of its texts

DEMO: dict[str, Any] = {"model": "tiny", "epochs": 8, "batch_size": 8, "learning_rate": 3e-3, "dropout": 0.0}
DEMO_COLUMNS = ("statement", "solution")
NEEDED = ("torch", "cloudpickle", "transformers", "tokenizers", "accelerate")


HEADINGS = {
    "Data": "columns test sep header demo",
    "Model and training": "model lora epochs batch_size learning_rate schedule warmup weight_decay dropout context "
    "seed",
    "Output": "out fresh log dry_run samples eval_every log_every save_every tensorboard live address port",
    "Execution": "workers device threads restarts timeout",
}


@with_options(groups=HEADINGS)
def finetune(
    command_line: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="CSV, TSV (also gzipped) or Parquet file with texts.")] = None,
    *,
    settings: FinetuneOptions,
    sep: Annotated[str | None, typer.Option("--sep", help="Column separator. (default: detected)")] = None,
    header: Annotated[
        bool, typer.Option("--header/--no-header", help="Whether the first line holds column names.")
    ] = True,
    folder: RunFolderOptions,
    page: LiveOptions,
    logs: LogOptions,
    demo: Annotated[bool, typer.Option("--demo", help="Train a tiny model on bundled texts; no download.")] = False,
) -> None:
    """Fine-tune a language model on texts from a table.

    Ctrl-C saves a checkpoint. The same command resumes there, also after a power failure.
    The results are one folder: report.html, metrics.jsonl, samples.json, settings.json and model/.
    """
    need_libraries(settings.tensorboard, settings.lora)
    typed = given(command_line)
    if demo and (file is not None or not typed.keys().isdisjoint(("columns", "model"))):
        raise UserError("--demo brings its own texts and model; omit the file, --columns and --model")
    if not demo and file is None:
        raise UserError("give the file with texts, as in 'shoal finetune texts.csv --columns a,b', or try --demo")
    _refuse_launchers()
    if demo:
        settings = replace(settings, **{name: value for name, value in DEMO.items() if name not in typed})
        with as_file(files("shoal.finetune").joinpath("problems.csv")) as path:
            found = read(path, DEMO_COLUMNS)
    else:
        assert file is not None
        found = read(file, settings.columns, sep, header)
    steady_output()
    _introduce(found)
    screen = FinetuneScreen()
    trackers = logs.trackers(screen.note)
    with open_run(found, settings, folder.out, folder.fresh, [screen, trackers]) as run:
        _show_plan(run)
        if folder.dry_run:
            return
        from shoal.parallel.launch.failures import as_user_errors  # imports torch

        about = {"title": found.file, "model": settings.model, "workers": settings.workers, "steps": run.plan.steps}
        with FinetuneRecorder(run.path, about, screen.note) as recorder, live_server(run.path, page):
            run.callbacks.callbacks.append(recorder)
            with as_user_errors(), interruptible() as screen.interrupt, screen.screen, trackers:
                result = run.train()
                trackers.finish(result, result.folder if result.finished else None)
    _conclude(result, run.plan.steps, demo)


def need_libraries(tensorboard: bool, lora: int) -> None:
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise MissingPackage(f"shoal finetune needs {', '.join(lacking)}: pip install 'shoal-ml[llm]'")
    if tensorboard and find_spec("tensorboard") is None:
        raise MissingPackage("--tensorboard needs one more library: pip install tensorboard")
    if lora and find_spec("peft") is None:
        raise MissingPackage("--lora needs one more library: pip install peft")


def _refuse_launchers() -> None:
    if launcher() is not None:
        raise UserError("shoal finetune starts its workers itself: call it without torchrun or mpiexec, with --workers")


def _introduce(found: Texts) -> None:
    say(f"{found.file}: {found.read:,} rows, column{'s' * (len(found.columns) > 1)} {', '.join(found.columns)}")
    for text in found.notes:
        say(f"  {text}")
    say("each text looks like the first:")
    lines = join(found.columns, found.rows[0]).splitlines()
    for text in lines[:12]:
        say(f"  | {text[:100]}{' ...' * (len(text) > 100)}")
    if len(lines) > 12:
        say("  | ...")


def _show_plan(run: FinetuneRun) -> None:
    from shoal.parallel.exact.threads import threads_per_worker
    from shoal.report.shell.words import count

    plan, settings = run.plan, run.plan.settings
    say(f"{count(len(run.train_rows), 'text')} to train on, {len(run.test_rows):,} to test with")
    threads = threads_per_worker(job_of(settings))
    workers = f"{count(settings.workers, 'worker')} with {count(threads, 'thread')}"
    small = f", LoRA of rank {settings.lora}" if settings.lora else ""
    say(f"{settings.model}: {run.parameters / 1e6:.3g} million parameters{small}; {count(plan.steps, 'step')} "
        f"({count(settings.epochs, 'epoch')}, batches of {settings.batch_size}); {workers}")  # fmt: skip
    if run.resumes:
        say(f"resuming {run.path.name} from step {run.step:,} (--fresh starts over)")


class FinetuneScreen:
    """A callback that shows a run, and stops it after Ctrl-C."""

    def __init__(self) -> None:
        self.screen = Screen(lambda record: None)
        self.interrupt = Interrupt()
        self.stopping = False

    def note(self, text: str) -> None:
        self.screen.say(text)

    def started(self, event: FinetuneStarted) -> None:
        self.note(f"{event.tokens:,} tokens, {event.tokens / event.texts:.0f} per text")
        if event.cut:
            many = "texts are" if event.cut > 1 else "text is"
            self.note(f"  {event.cut:,} {many} longer than {event.context:,} tokens and cut there")

    def progress(self, event: FinetuneProgress) -> bool:
        if self.interrupt.requested and not self.stopping:
            self.stopping = True
            self.note("saving a checkpoint after this step, then stopping; Ctrl-C again stops at once")
        if event.share:
            self.screen.bar.update(event.share, words="" if event.loss is None else f"loss {event.loss:.4f}")
        return self.stopping

    def step_ended(self, event: Evaluated) -> None:
        self.note(f"step {event.step:,} (epoch {event.epoch:.2f}): test loss {event.loss:.3f}")


def _conclude(result: FinetuneResult, steps: int, demo: bool) -> None:
    from shoal.report.finetune.result import perplexity

    folder = result.folder
    if not result.finished:
        say(f"stopped at step {result.step:,} of {steps:,}; the same command resumes there")
        raise KeyboardInterrupt
    before, after, lowest = result.loss_before, result.loss_after, result.loss_lowest
    if before is not None and after is not None and lowest is not None:
        say(f"test loss {before:.3f} -> {after:.3f} (perplexity {perplexity(before)} -> {perplexity(after)})")
        if lowest < after - 0.01:
            advice = "use fewer epochs" if result.step_lowest else "use a smaller --learning-rate"
            say(f"  it was lowest, {lowest:.3f}, at step {result.step_lowest:,}: {advice}")
    phrase = quoted(DEMO_PHRASE) if demo else '"..."'
    say(f"the model is in {folder / MODEL}; try it: shoal generate {quoted(folder)} {phrase}")
    if demo:
        say("  so small a model learns what a solution looks like, not how to solve a problem")
    say(f"report: {folder / REPORT}")

"""`shoal finetune`: a language model, trained further on your texts.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.parameters import given, with_options
from shoal.errors import MissingPackage, UserError
from shoal.finetune.options import FinetuneOptions
from shoal.interrupts import interruptible
from shoal.progress import Screen
from shoal.terminal import quoted

if TYPE_CHECKING:
    from shoal.finetune.session import Ready
    from shoal.finetune.texts import Texts

FINETUNE_EXAMPLES = """Examples:

shoal finetune --demo

shoal finetune problems.csv --columns statement,solution --model gpt2 --workers 2

shoal finetune letters.csv --model ./my-model --epochs 1 --lora 8 --out letters-run"""

DEMO_PHRASE = "Write a function `count_words` that returns the number of words in a text."  # in the form of its texts

DEMO: dict[str, Any] = {"model": "tiny", "epochs": 8, "batch_size": 8, "learning_rate": 3e-3, "dropout": 0.0}
DEMO_COLUMNS = ("statement", "solution")
NEEDED = ("torch", "cloudpickle", "transformers", "tokenizers", "accelerate")


@with_options(moved={"restarts": "header"})
def finetune(
    command_line: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="CSV, TSV (also gzipped) or Parquet file with texts.")] = None,
    *,
    settings: FinetuneOptions,
    sep: Annotated[str | None, typer.Option("--sep", help="Separator of the columns. (default: guessed)")] = None,
    header: Annotated[bool, typer.Option("--header/--no-header", help="Whether the first line holds names.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: ./shoal-runs/<file>-<model>-<n>)")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, also where a run could go on.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is understood and planned, then stop.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Train a tiny model on problems that come with Shoal; no download.")
    ] = False,
) -> None:
    """Train a language model further on texts from a table, over one or more workers.

    Ctrl-C saves a checkpoint; the same command goes on from there, also after the power failed.
    The results are one folder: report.html, metrics.jsonl, samples.json, settings.json and model/.
    """
    need_libraries(settings.tensorboard, settings.lora)
    typed = given(command_line)
    if demo and (file is not None or not typed.keys().isdisjoint(("columns", "model"))):
        raise UserError("--demo brings its own texts and model; leave out the file, --columns and --model")
    if not demo and file is None:
        raise UserError("give the file with texts, as in 'shoal finetune texts.csv --columns a,b', or try --demo")
    _refuse_launchers()
    if demo:
        settings = replace(settings, **{name: value for name, value in DEMO.items() if name not in typed})
        with as_file(files("shoal.finetune").joinpath("problems.csv")) as path:
            found = _read(path, DEMO_COLUMNS, None, True)
    else:
        assert file is not None
        found = _read(file, settings.columns, sep, header)
    Session(settings, found, out, fresh, demo).run(dry_run)


def _read(path: Path, columns: tuple[str, ...], sep: str | None, header: bool) -> Texts:
    from shoal.finetune.texts import read

    return read(path, columns, sep, header)


def need_libraries(tensorboard: bool, lora: int) -> None:
    from importlib.util import find_spec

    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise MissingPackage(f"shoal finetune needs {', '.join(lacking)}: pip install 'shoal[llm]'")
    if tensorboard and find_spec("tensorboard") is None:
        raise MissingPackage("--tensorboard needs one more library: pip install tensorboard")
    if lora and find_spec("peft") is None:
        raise MissingPackage("--lora needs one more library: pip install peft")


def _refuse_launchers() -> None:
    from shoal.parallel.environment import launcher

    if launcher() is not None:
        raise UserError("shoal finetune starts its workers itself: call it without torchrun or mpiexec, with --workers")


class Session:
    """One call of the command."""

    def __init__(self, settings: FinetuneOptions, found: Texts, out: Path | None, fresh: bool, demo: bool) -> None:
        self.settings, self.found, self.out, self.fresh = settings, found, out, fresh
        self.demo = demo
        self.screen = Screen(_line)
        self.counted = False  # whether the tokens have been told

    def run(self, dry_run: bool) -> None:
        from shoal.finetune import place, session
        from shoal.finetune.checkpoints import check_space
        from shoal.parallel.devices import find_device

        find_device(self.settings.device)
        self._say_texts()
        start = session.find_start(self.settings, self.screen.say)
        marks = session.fingerprint(self.settings, self.found, start)
        name = place.stem(self.found.file, self.settings.model)
        with place.opened(self.out, name, marks, self.fresh, self.found.file) as (run, resumes):
            ready = session.prepare(self.settings, self.found, start, run, resumes)
            self._say_plan(ready)
            if dry_run:
                return
            check_space(run, ready.parameters, self.settings.lora)
            session.begin(ready, marks)
            result = self._train(ready)
            self._write_page(run)
        self._conclude(ready, result)

    def _say_texts(self) -> None:
        from shoal.finetune.texts import join

        say, found = self.screen.say, self.found
        say(f"{found.file}: {found.read:,} rows, column{'s' * (len(found.columns) > 1)} {', '.join(found.columns)}")
        for text in found.notes:
            say(f"  {text}")
        say("each text looks like the first:")
        lines = join(found.columns, found.rows[0]).splitlines()
        for text in lines[:12]:
            say(f"  | {text[:100]}{' ...' * (len(text) > 100)}")
        if len(lines) > 12:
            say("  | ...")

    def _say_plan(self, ready: Ready) -> None:
        from shoal.finetune.plan import job_of
        from shoal.parallel.threads import threads_per_worker
        from shoal.report.shell.words import count

        say, plan, settings = self.screen.say, ready.plan, self.settings
        say(f"{count(len(ready.train), 'text')} to train on, {len(ready.test):,} to test with")
        threads = threads_per_worker(job_of(settings))
        who = f"{count(settings.workers, 'worker')} with {count(threads, 'thread')}"
        small = f", LoRA of rank {settings.lora}" if settings.lora else ""
        say(f"{settings.model}: {ready.parameters / 1e6:.3g} million parameters{small}; {count(plan.steps, 'step')} "
            f"({count(settings.epochs, 'epoch')}, batches of {settings.batch_size}); {who}")  # fmt: skip
        if ready.resumes:
            say(f"going on with {ready.run.name} from step {ready.step:,} (--fresh begins anew)")

    def _say_tokens(self, ready: Ready, about: dict[str, Any], context: int) -> None:
        rows = len(ready.train) + len(ready.test)
        self.screen.say(f"{about['tokens']:,} tokens, {about['tokens'] / rows:.0f} a text")
        if about["cut"]:
            many = "texts are" if about["cut"] > 1 else "text is"
            self.screen.say(f"  {about['cut']:,} {many} longer than {context:,} tokens and cut there")

    def _train(self, ready: Ready) -> dict[str, Any]:
        """Until the end, or until a first Ctrl-C has been heard."""
        from shoal.finetune import session
        from shoal.parallel.failures import as_user_errors

        told = False
        with as_user_errors(), interruptible() as interrupt, self.screen:

            def pause() -> bool:
                nonlocal told
                if interrupt.requested and not told:
                    told = True
                    self.screen.say("saving a checkpoint after this step, then ending; Ctrl-C again ends at once")
                return bool(interrupt.requested)

            return session.train(ready, lambda content: self._tell(ready, content), pause)

    def _tell(self, ready: Ready, content: dict[str, Any]) -> None:
        from shoal.finetune.session import note

        if "begun" in content:
            note(ready.run, content["begun"])
            if "data" in content["begun"] and not self.counted:
                self.counted = True
                self._say_tokens(ready, content["begun"]["data"], content["begun"]["run"]["context"])
        self.screen.tell(content)
        if "record" in content:
            self._write_page(ready.run, running=True)

    def _write_page(self, run: Path, running: bool = False) -> None:
        from shoal.finetune.checkpoints import cannot_write
        from shoal.finetune.place import REPORT
        from shoal.finetune.session import page_data
        from shoal.report import write_finetune_page

        try:
            write_finetune_page(page_data(run, running), run / REPORT)
        except OSError as error:
            raise cannot_write(run, error) from None

    def _conclude(self, ready: Ready, result: dict[str, Any]) -> None:
        from shoal.finetune.place import REPORT
        from shoal.finetune.session import page_data, perplexity

        say, run = self.screen.say, _shown(ready.run)
        if not result["finished"]:
            say(f"stopped at step {result['step']:,} of {ready.plan.steps:,}; the same command goes on from there")
            raise KeyboardInterrupt
        scores = page_data(ready.run)["result"]
        before, after = scores["loss_before"], scores["loss_after"]
        say(f"test loss {before:.3f} -> {after:.3f} (perplexity {perplexity(before)} -> {perplexity(after)})")
        if scores["loss_lowest"] < after - 0.01:
            advice = "fewer epochs would have done" if scores["step_lowest"] else "try a smaller --learning-rate"
            say(f"  it was lowest, {scores['loss_lowest']:.3f}, at step {scores['step_lowest']:,}: {advice}")
        phrase = quoted(DEMO_PHRASE) if self.demo else '"..."'
        say(f"the model is in {run / 'model'}; try it: shoal generate {quoted(run)} {phrase}")
        if self.demo:
            say("  so small a model learns what a solution looks like, not how to solve a problem")
        say(f"report: {run / REPORT}")


def _shown(path: Path) -> Path:
    """As the user would type it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def _line(record: dict[str, Any]) -> str | None:
    if record.get("eval_loss") is None:
        return None
    return f"step {record['step']:,} (epoch {record.get('epoch') or 0:.2f}): test loss {record['eval_loss']:.3f}"

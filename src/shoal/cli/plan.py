"""`shoal plan`: what n nodes would cost, what they would do to accuracy, and whether they pay."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shoal.cli.parameters import given, with_options
from shoal.cli.subjects import (
    DATA,
    RESUMING,
    STRATEGIES,
    TRAINING,
    File,
    NetworkAndData,
    check_source,
    load_subject,
    need_torch,
    train_arguments,
)
from shoal.console import terminal
from shoal.console.progress import Bar, steady_output
from shoal.console.terminal import visible
from shoal.files.atomic import check_target, write_text
from shoal.live.options import LOOPBACK, LiveOptions
from shoal.machine import size_text
from shoal.options import Options, option
from shoal.parallel.options import NetworkOptions, TableOptions
from shoal.planner.events import PlanProgress
from shoal.planner.options import PlanOptions
from shoal.report.shell.words import saved
from shoal.trackers.find import LogOptions

if TYPE_CHECKING:
    from rich.console import Console

    from shoal.planner.planning import Plan, Row

# Columns that a narrow terminal does not show, the least important first.
HIDDEN_FIRST = ("memory a node", "sent a node", "efficiency", "saved", "s an epoch", "communicating", "s to start")
WIDTH_IN_FILES = 180  # characters of a line
PLAN_EXAMPLES = """\b
Examples:
  shoal plan --data mnist --net mlp:784-1024-1024-10 --nodes 1,2,4,8 --link 1gbit,0.1ms --epochs 10
  shoal plan my.csv --target y --nodes 1-64 --goal accuracy=0.97 --json plan.json --trace step.json --price 0.40
  shoal plan --data mnist --net cnn --nodes 2,4 --strategy all --no-accuracy
  shoal plan my.csv --target y --link 100mbit,1ms --split class:0.3 --strategy local_sgd:epoch,gossip"""


HEADINGS = {
    "Data": DATA,
    "Network and training": TRAINING,
    "Nodes": f"nodes strategy workers link share_machine backend node node_speed price batch_per_node rate_rule "
    f"node_folds {STRATEGIES}",
    "Plan": "goal accuracy seeds remeasure",
    "Output": f"out json_file trace log {RESUMING} live address port",
}


@dataclass(frozen=True)
class PlanFiles(Options):
    """The files of a plan."""

    out: Path = option(Path("shoal-plan.html"), "The report, with figures.")
    json_file: Path | None = option(None, "Write the plan to this file, for shoal train --plan.", flags="--json")
    trace: Path | None = option(None, "Write a step of each node as a trace for Chrome or Perfetto.")

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.out, self.json_file, self.trace) if path is not None]


@with_options(defaults={"loss": None, "nodes": None, "strategy": None}, groups=HEADINGS)
def plan(
    command_line: typer.Context,
    file: File = None,
    *,
    asked: NetworkOptions,
    options: PlanOptions,
    table: TableOptions,
    files: PlanFiles,
    page: LiveOptions,
    logs: LogOptions,
) -> None:
    """Predict the time, accuracy and cost of a training on n nodes.

    Takes every option of shoal train, predicts that training, and ends with the command that runs the best plan. Time
    comes from a cost model that is calibrated on this machine, accuracy from running each strategy on virtual nodes.
    With --link each node is a machine like this one; without, nodes share this machine's cores.
    """
    need_torch("plan")
    typed = given(command_line)
    check_source("plan", file, asked, table, typed)
    for path in files.paths:
        check_target(path)
    subject = load_subject(file, asked, table, options.seed)
    options = replace(options, loss=subject.loss(options.loss, "loss" in typed))
    console = _console(subject)
    found = _found(options, subject, console)
    _show(found, console)
    arguments = [*train_arguments(file, asked, table, found.training()), *_shown(page, logs)]
    content = {**found.as_dict(), "command": shlex.join(["shoal", *sys.argv[1:]]), "train": arguments}
    _write(found, content, files, console)
    for line in run_with(found, arguments):
        console.print(visible(line))
    if found.interrupted:
        raise KeyboardInterrupt


def _shown(page: LiveOptions, logs: LogOptions) -> list[str]:
    """The options of a training that say where it is shown."""
    address = [] if page.address == LOOPBACK else ["--address", page.address]
    port = [] if page.port is None else ["--port", str(page.port)]
    return [*(["--live", *address, *port] if page.live else []), *(word for log in logs.log for word in ("--log", log))]


def _console(subject: NetworkAndData) -> Console:
    steady_output()
    console = terminal.console(soft_wrap=True)
    for line in subject.words:
        console.print(visible(f"  {line}"))
    return console


def _found(options: PlanOptions, subject: NetworkAndData, console: Console) -> Plan:
    """Make the plan, and show how far it is."""
    from shoal.planner.planning import plan as make_plan

    model, sets = subject.model(), subject.sets
    what = f"{subject.net} on {subject.name}"
    parameters = sum(p.numel() for p in model.parameters())
    sizes = f"{parameters:,} parameters, {len(sets.train):,} rows to train on, {len(sets.test):,} to test"
    console.print(visible(f"{what}: {sizes}"))
    screen = PlanScreen(console)
    screen.bar.start()
    try:
        return make_plan(
            model, sets.train, sets.test, what=what, callbacks=[screen], redraw=subject.model, **vars(options)
        )
    except KeyboardInterrupt:
        screen.bar.stop()
        console.print("Interrupted while this machine was measured: nothing is known yet.")
        raise
    finally:
        screen.bar.stop()


class PlanScreen:
    """Shows how far a plan is."""

    def __init__(self, console: Console) -> None:
        self.bar = Bar(1.0, amount="percent", words="measuring", clock="left", console=console,
                       show=console.is_terminal, transient=True)  # fmt: skip

    def progress(self, event: PlanProgress) -> None:
        self.bar.update(event.share, event.doing)


def _write(found: Plan, content: dict[str, Any], files: PlanFiles, console: Console) -> None:
    from shoal.report import write_plan_page

    if files.json_file is not None:
        write_text(files.json_file, json.dumps(content, indent=1) + "\n")
    if files.trace is not None:
        write_text(files.trace, json.dumps(found.trace()) + "\n")
    write_plan_page(files.out, content)
    console.print(visible(f"wrote {', '.join(map(str, files.paths))}"))


def run_with(found: Plan, arguments: list[str]) -> tuple[str, str]:
    """How to run the best plan, and the command."""
    nodes, backend = found.best.nodes, found.options.backend
    words, where = ["shoal", "train", *arguments], ""
    if found.options.own_machines and nodes > 1:
        where = f" on {nodes} machines"
        if backend == "mpi":
            words = ["mpiexec", "-n", str(nodes), *words]
        else:
            start = ["torchrun", f"--nnodes={nodes}", "--nproc-per-node=1", "--rdzv-backend=c10d"]
            words = [*start, "--rdzv-endpoint=HOST:29500", "-m", *words]
            where = f" on {nodes} machines, on each of them (HOST: the first one)"
    return f"To run the best plan{where}:", shlex.join(words)


def _show(found: Plan, console: Console) -> None:
    """The table, what it was found from, and the verdict."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = console if console.is_terminal else terminal.console(width=WIDTH_IN_FILES)
    every = _columns(found)
    columns = fitting(every, found.rows, wide.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, (name, _) in enumerate(columns):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    last = None
    for row in found.rows:
        if last not in (None, row.strategy):
            table.add_section()
        last = row.strategy
        table.add_row(*(Text(visible(cell(row))) for _, cell in columns))
    wide.print(table)
    if len(columns) < len(every):
        console.print(f"(the report also has: {', '.join(name for name, _ in every if name not in dict(columns))})")
    machine = found.machine
    where = f"nodes share this machine's {machine['cores']} cores ({machine['backend']})"
    if machine["own_machines"]:
        each = "a machine by itself" if found.options.node or found.options.node_speed else "a machine like this one"
        where = f"each node {each}, {machine['link']['name']}"
    console.print(f"{machine['cpu']}, {machine['cores']} cores; {where}")
    if machine["check"] is not None:
        console.print(visible(f"check on this machine: {machine['check']['text']}"))
    if found.noise is not None:
        console.print(visible(found.noise.text))
    for note in found.notes:
        console.print(visible(note))
    console.print(visible(found.verdict.text), style="bold")


def fitting(columns: list[tuple[str, Any]], rows: list[Row], width: int) -> list[tuple[str, Any]]:
    """Columns that fit into a line, without those that matter least."""
    sizes = {name: max(len(name), *(len(cell(row)) for row in rows)) + 3 for name, cell in columns}
    for name in HIDDEN_FIRST:
        if sum(sizes.values()) > width:
            sizes.pop(name, None)
    return [(name, cell) for name, cell in columns if name in sizes]


def _columns(found: Plan) -> list[tuple[str, Any]]:
    """Names of columns, and what a row has there; without those that no row has a value for."""
    score = "R2" if found.metric == "r2" else "accuracy"
    every: list[tuple[str, str, Any]] = [
        ("strategy", "label", lambda row: row.label),
        ("nodes", "nodes", lambda row: f"{row.nodes}"),
        ("s to start", "start_seconds", lambda row: _significant(row.start_seconds)),
        ("s an epoch", "seconds_per_epoch", lambda row: _significant(row.seconds_per_epoch)),
        ("s in all", "seconds", lambda row: _significant(row.seconds)),
        ("speed-up", "speedup", lambda row: f"{row.speedup:.{2 if row.speedup >= 0.1 else 5}f}x"),
        ("saved", "improvement_percent", lambda row: saved(row.improvement_percent)),
        ("efficiency", "efficiency", lambda row: f"{row.efficiency:.0%}"),
        ("communicating", "communication_share", lambda row: f"{row.communication_share:.0%}"),
        ("sent a node", "bytes_per_node", lambda row: size_text(row.bytes_per_node)),
        ("memory a node", "memory_bytes", lambda row: size_text(row.memory_bytes)),
        (score, "accuracy", _score),
        ("s to the goal", "seconds_to_goal",
         lambda row: _significant(row.seconds_to_goal) if row.seconds_to_goal is not None
         else "" if row.accuracy is None and not row.diverged else "never"),
        ("cost", "cost", lambda row: "" if row.cost is None else f"{row.cost:.4g}"),
    ]  # fmt: skip
    wanted = {name for name in ("accuracy", "cost") if any(getattr(row, name) is not None for row in found.rows)}
    wanted |= {"start_seconds"} if any(row.start_seconds for row in found.rows) else set()
    if found.options.goal is not None and "accuracy" in wanted:
        wanted.add("seconds_to_goal")
    optional = {"accuracy", "cost", "seconds_to_goal", "start_seconds"}
    return [(title, cell) for title, name, cell in every if name not in optional or name in wanted]


def _score(row: Row) -> str:
    if row.accuracy is None:
        return row.note if row.diverged else ""
    if row.accuracy_low is None or row.accuracy_high is None:
        return f"{row.accuracy:.4f}"
    half = max(row.accuracy_high - row.accuracy, row.accuracy - row.accuracy_low)  # one end may be cut off
    return f"{row.accuracy:.4f} ± {half:.4f}"


def _significant(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"

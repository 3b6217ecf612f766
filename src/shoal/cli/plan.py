"""`shoal plan`: what n nodes would cost, what they would do to accuracy, and whether they pay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal import terminal
from shoal.atomic import check_target, write_text
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
from shoal.machine import size_text
from shoal.parallel.options import TableOptions
from shoal.planner.options import PlanOptions
from shoal.progress import Bar, steady_output
from shoal.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console

    from shoal.planner.planning import Plan, Row

PAGE = Path("shoal-plan.html")
# Columns that are left out where a line is short, the first one first.
LEFT_OUT = ("memory a node", "sent a node", "efficiency", "saved", "s an epoch", "communicating", "s to start")
WIDE = 180  # characters of a line where nobody looks on
PLAN_EXAMPLES = """Examples:

shoal plan --data mnist --net mlp:784-1024-1024-10 --nodes 1,2,4,8 --link 1gbit,0.1ms --epochs 10

shoal plan my.csv --target y --nodes 1-64 --goal accuracy=0.97 --json plan.json --trace step.json --price 0.40

shoal plan --data mnist --net cnn --nodes 2,4 --strategy all --no-accuracy

shoal plan my.csv --target y --link 100mbit,1ms --split class:0.3 --strategy local_sgd:epoch,gossip"""


@with_options(
    defaults={"loss": None, "nodes": None, "strategy": None},
    moved={"target": "file", "test": "rows"},
    headed={"table": "FILE: "},
)
def plan(
    command_line: typer.Context,
    file: File = None,
    *,
    data: DataName = None,
    net: Net = None,
    activation: Activation = "relu",
    options: PlanOptions,
    rows: RowCount = None,
    table: TableOptions,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all numbers to this file.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write a step of each node as a trace for Chrome or Perfetto.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page with figures.")] = PAGE,
) -> None:
    """Say beforehand what training on n nodes would cost, what it would do to accuracy, and whether it pays.

    Time follows from a cost model that is calibrated on this machine, accuracy from running each strategy on virtual
    nodes. With --link each node is a machine like this one; without, nodes share this machine's cores.
    """
    need_torch("plan")
    typed = given(command_line)
    check_source("plan", file, data, table, typed)
    network = {"activation": activation, "output": "identity", "init": "torch", "dropout": 0.0, "seed": options.seed}
    check_network(net, network)
    for path in (json_file, trace, out):
        if path is not None:
            check_target(path)
    wanted = (1 / 6, rows, options.seed)
    if file is None:
        subject = named_data(data or "mnist", net, wanted)
    else:
        subject = own_table(file, table, net, wanted)
        options = replace(options, loss=loss_of(subject, options.loss if "loss" in typed else None))
    _plan(options, subject, network, (json_file, trace, out), _words())


def _words() -> str:
    """The command as it was typed."""
    import shlex
    import sys

    return shlex.join(["shoal", *sys.argv[1:]])


def _plan(
    options: PlanOptions,
    subject: Subject,
    network: dict[str, Any],
    files: tuple[Path | None, Path | None, Path],
    command: str,
) -> None:
    from shoal.planner.planning import make_plan
    from shoal.report import write_plan_page

    steady_output()
    console = terminal.console(soft_wrap=True)
    for line in subject.words:
        console.print(visible(f"  {line}"))
    model, sets = model_of(subject, network), subject.sets
    what = f"{subject.net} on {subject.name}"
    parameters = sum(p.numel() for p in model.parameters())
    sizes = f"{parameters:,} parameters, {len(sets.train):,} rows to train on, {len(sets.test):,} to test"
    console.print(visible(f"{what}: {sizes}"))
    bar = Bar(1.0, amount="percent", words="measuring", clock="left", console=console, show=console.is_terminal,
              transient=True)  # fmt: skip
    bar.start()
    try:
        found = make_plan(
            options, model, sets.train, sets.test, what=what, tell=lambda share, words: bar.update(share, words),
            redraw=lambda seed: model_of(subject, {**network, "seed": seed}),
        )  # fmt: skip
    except KeyboardInterrupt:
        bar.stop()
        console.print("Interrupted while this machine was measured: nothing is known yet.")
        raise
    finally:
        bar.stop()
    _show(found, console)
    content = {**found.as_dict(), "command": command}
    json_file, trace, page = files
    if json_file is not None:
        write_text(json_file, json.dumps(content, indent=1) + "\n")
    if trace is not None:
        write_text(trace, json.dumps(found.trace()) + "\n")
    write_plan_page(page, content)
    names = [str(path) for path in (page, json_file, trace) if path is not None]
    console.print(visible(f"wrote {', '.join(names)}"))
    if found.interrupted:
        raise KeyboardInterrupt


def _show(found: Plan, console: Console) -> None:
    """The table, what it was found from, and the verdict."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = console if console.is_terminal else terminal.console(width=WIDE)
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
        console.print(f"(the page also has: {', '.join(name for name, _ in every if name not in dict(columns))})")
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
    for name in LEFT_OUT:
        if sum(sizes.values()) > width:
            sizes.pop(name, None)
    return [(name, cell) for name, cell in columns if name in sizes]


def _columns(found: Plan) -> list[tuple[str, Any]]:
    """Names of columns, and what a row has there; those that are known for no row are left out."""
    score = "R2" if found.metric == "r2" else "accuracy"
    every: list[tuple[str, str, Any]] = [
        ("strategy", "label", lambda row: row.label),
        ("nodes", "nodes", lambda row: f"{row.nodes}"),
        ("s to start", "start_seconds", lambda row: _significant(row.start_seconds)),
        ("s an epoch", "seconds_per_epoch", lambda row: _significant(row.seconds_per_epoch)),
        ("s in all", "seconds", lambda row: _significant(row.seconds)),
        ("speed-up", "speedup", lambda row: f"{row.speedup:.2f}x"),
        ("saved", "improvement_percent", lambda row: f"{row.improvement_percent:.1f}%"),
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

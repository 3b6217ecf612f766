"""`shoal bench`: each command measures, prints a table, and writes JSON, Markdown and a plot."""

from __future__ import annotations

import typer

from shoal.cli.bench import parallel, populations, search
from shoal.cli.bench.common import Out, Quick, Repeats

COMMANDS = (
    populations.table1, populations.shapes, populations.scaling, populations.kernel, populations.limits,
    populations.mnist,
    search.tabular, search.gridsearch, search.report, search.honest, search.small, search.explain, search.coverage,
    search.predict, search.compact, search.budget, search.scale, search.cluster, search.faults,
    parallel.descent, parallel.pays, parallel.averaging, parallel.ranks, parallel.planner, parallel.nodes,
    populations.landscape, populations.heads, populations.stack, populations.tools,
)  # fmt: skip
app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
for command in COMMANDS:
    app.command()(command)


@app.command(name="all")
def everything(context: typer.Context, repeats: Repeats = None, quick: Quick = False, out: Out = None) -> None:
    """The engine's benchmarks, one after the other: table1, shapes, scaling, mnist."""
    for command in (populations.table1, populations.shapes, populations.scaling, populations.mnist):
        context.info_name = command.__name__
        command(context, repeats=repeats, quick=quick, out=out)

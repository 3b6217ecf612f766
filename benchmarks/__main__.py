"""`python -m benchmarks NAME`, from a checkout: measures, prints tables, writes JSON, Markdown and a plot."""

from __future__ import annotations

import importlib
import sys

from benchmarks.harness.benchmark import Benchmark
from shoal.console.terminal import say
from shoal.errors import UserError
from shoal.validate import one_of

MODULES = {
    "table1": "papers.parallel_mlps.table1",
    "mnist": "papers.parallel_mlps.mnist",
    "descent": "papers.parallel_gradient_descent.descent",
    "pays": "papers.what_pays.pays",
    "iris": "papers.what_pays.iris",
    "averaging": "papers.node_simulator.averaging",
    "nodes": "papers.node_simulator.nodes",
    "sharing": "parallel.sharing",
    "killed": "parallel.killed",
    "ranks": "papers.mpi_fashion_mnist.ranks",
    "shapes": "peers.shapes",
    "tabular": "peers.tabular.tabular",
    "tabular-budgets": "peers.tabular.budgets",
    "gridsearch": "peers.gridsearch",
    "kernel": "engine.kernel",
    "limits": "engine.limits",
    "scaling": "engine.scaling",
    "landscape": "engine.landscape.landscape",
    "heads": "engine.heads",
    "stack": "engine.stack",
    "tools-forest": "engine.tools.forest",
    "tools-selection": "engine.tools.selection",
    "tools-growing": "papers.parallel_mlps.growing",
    "tools-lottery": "papers.parallel_mlps.lottery",
    "report": "search.startup",
    "honest": "search.honest",
    "small": "search.small",
    "explain": "search.explain",
    "live": "search.live",
    "coverage": "search.coverage",
    "ingredients": "search.ingredients",
    "predict": "search.serving.predicting",
    "compact": "search.serving.compacting",
    "budget": "search.budget",
    "scale": "search.scale",
    "cluster": "search.cluster",
    "faults": "search.faults.faults",
    "planner": "planner.validation",
    "planner-typed": "planner.typed",
}
ALL = ("table1", "shapes", "scaling", "mnist")  # what `all` runs


def find(name: str) -> Benchmark:
    module = importlib.import_module(f"benchmarks.{MODULES[one_of('the benchmark', name, MODULES)]}")
    return next(one for one in vars(module).values() if isinstance(one, Benchmark) and one.name == name)


def main(arguments: list[str]) -> None:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("--help", "-h"):
        say("usage: python -m benchmarks NAME [--quick] [--out FOLDER] [OPTIONS]     (NAME --help lists the options)")
        for known in MODULES:
            say(f"  {known:<16} {(find(known).function.__doc__ or '').splitlines()[0]}")
        say(f"  {'all':<16} {', '.join(ALL)}, with the same options")
        return
    for one in ALL if name == "all" else (name,):
        find(one).main(rest)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        say(f"error: {error}", error=True)
        sys.exit(2)

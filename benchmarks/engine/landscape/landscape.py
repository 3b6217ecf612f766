"""The landscape of models for one table: 100,000 networks, how their scores depend on what was chosen, and on luck."""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.landscape import statistics
from benchmarks.engine.landscape.page import write_landscape_page
from benchmarks.engine.landscape.question import Question, load
from benchmarks.engine.landscape.training import BATCH, Grid, Scores, count_parts, train
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.measure import progress_bar
from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable
from shoal.files import atomic
from shoal.population.members import ACTIVATIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@benchmark(quick={"members": 2000, "epochs": 5, "widths": (1, 2, 4, 8, 16, 32), "rates": (0.0003, 0.003, 0.03, 0.3)})
def landscape(
    *,
    table: str = "digits",
    target: str | None = None,
    members: int = 100_000,
    epochs: int = 20,
    memory: int = 256,
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
    rates: tuple[float, ...] = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
) -> Result:
    """100,000 networks on one table: how the score depends on width, activation, learning rate and seed.

    Writes landscape.html beside the other results: a page to look at.

    table: A file with a header line, or breast-cancer-wisconsin, digits, wine, iris.
    target: The column to predict, of a file.
    members: Networks, about.
    epochs: Epochs of each.
    widths: Hidden neurons.
    rates: Learning rates.
    memory: Megabytes that networks may occupy.
    """
    question = load(table, target)
    grid = Grid.of(members, widths, ACTIVATIONS, rates)
    most = memory * 1_000_000
    with progress_bar("landscape", count_parts(grid, question, epochs, most)) as tick:
        started = time.perf_counter()
        scores = train(question, grid, epochs, most, tick)
        seconds = time.perf_counter() - started
    found = findings(question, grid, scores)
    found["training_seconds"] = seconds
    found["largest_part"] = scores.largest_part
    title = f"The landscape of {len(grid):,} networks on {question.name}"
    kept = {"table": question.name, "batch": BATCH}
    return Result(
        title=title, settings=kept, data=found, tables=[summary_table(found), factor_table(found), best_table(found)],
        notes=notes(found), draw=lambda: draw(found),
        also=lambda result, folder: write_more(result, grid, scores, folder),
    )  # fmt: skip


def findings(question: Question, grid: Grid, scores: Scores) -> dict[str, Any]:
    """Everything that is said about the scores, as plain values."""
    by_epoch = scores.picking / question.n_pick
    picked, fresh = by_epoch[..., -1], scores.fresh / len(question.y_fresh)
    best = np.unravel_index(int(np.argmax(picked)), picked.shape)
    recipe = np.unravel_index(int(np.argmax(picked.mean(-1))), picked.shape[:3])
    return {
        "table": question.as_dict(), "networks": len(grid), "diverged": scores.diverged, "parts": scores.parts,
        "widths": list(grid.widths), "activations": list(grid.activations), "rates": list(grid.rates),
        "seeds": grid.seeds, "epochs": by_epoch.shape[-1],
        "median": float(np.median(fresh)), "median_picking": float(np.median(picked)),
        "best": {**_named(grid, best), "picked": float(picked[best]), "fresh": float(fresh[best]),
                 "ties": int((picked == picked.max()).sum())},
        "best_recipe": {**_named(grid, recipe), "picked": float(picked[recipe].mean()),
                        "fresh": float(fresh[recipe].mean()), "lowest": float(fresh[recipe].min()),
                        "highest": float(fresh[recipe].max())},
        "variance": statistics.variance_shares(picked), "top": statistics.seed_share_at_the_top(picked),
        "by": {name: statistics.spread(picked, axis) for axis, name in enumerate(("width", "activation", "rate"))},
        "histogram": statistics.histogram(picked),
        "more": statistics.best_of(picked.ravel(), fresh.ravel(), statistics.powers(len(grid))),
        "recipes": cells(grid, by_epoch, fresh),
    }  # fmt: skip


def _named(grid: Grid, place: tuple[Any, ...]) -> dict[str, Any]:
    return {"width": grid.widths[place[0]], "activation": grid.activations[place[1]], "rate": grid.rates[place[2]]}


def cells(grid: Grid, by_epoch: np.ndarray, fresh: np.ndarray) -> list[dict[str, Any]]:
    """Each recipe over its seeds: on the rows to pick by after each epoch, its spread at the end, and fresh rows."""
    found = []
    for place in product(*(range(length) for length in grid.shape[:3])):
        own = by_epoch[place][:, -1]
        found.append({
            **_named(grid, place), "mean": float(own.mean()), "deviation": float(own.std()),
            "lowest": float(own.min()), "highest": float(own.max()), "fresh": float(fresh[place].mean()),
            "by_epoch": " ".join(f"{value:.4f}" for value in by_epoch[place].mean(0)),
        })  # fmt: skip
    return found


def write_more(result: Result, grid: Grid, scores: Scores, folder: Path) -> list[Path]:
    """The page, and every network's rows as compact JSON."""
    networks = {
        "command": result.command, "table": result.data["table"], "order": ["width", "activation", "rate", "seed"],
        "widths": list(grid.widths), "activations": list(grid.activations), "rates": list(grid.rates),
        "seeds": grid.seeds, "picking_rows_right": scores.picking[..., -1].tolist(),
        "fresh_rows_right": scores.fresh.tolist(),
    }  # fmt: skip
    path = folder / "landscape-networks.json"
    atomic.write_text(path, json.dumps(networks, separators=(",", ":")) + "\n")
    machine = {name: result.machine[name] for name in ("cpu", "cores", "instruction_set")}
    data = {
        **result.data, "title": result.data["table"]["name"], "command": result.command, "machine": machine,
        "created": result.machine["date"][:10], "version": result.machine["versions"]["shoal"], "batch": BATCH,
    }  # fmt: skip
    return [write_landscape_page(folder / "landscape.html", data), path]


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def summary_table(found: dict[str, Any]) -> ResultTable:
    best, recipe, table = found["best"], found["best_recipe"], found["table"]
    rows = [
        ["always the most frequent class", "", percent(table["guessing"])],
        ["the median network", percent(found["median_picking"]), percent(found["median"])],
        [f"the best network: {_words(best)}", percent(best["picked"]), percent(best["fresh"])],
        [f"the best recipe, mean of its seeds: {_words(recipe)}", percent(recipe["picked"]), percent(recipe["fresh"])],
    ]
    return ResultTable("Accuracy", ["what", "rows to pick by", "fresh rows"], rows)


def _words(one: dict[str, Any]) -> str:
    return f"{one['width']} {one['activation']}, learning rate {one['rate']:g}"


def factor_table(found: dict[str, Any]) -> ResultTable:
    rows = [[name, percent(share)] for name, share in found["variance"].items()]
    top = found["top"]
    rows.append([f"seed, among the best {top['recipes']} recipes", percent(top["share"])])
    return ResultTable("What the differences between networks come from", ["choice", "share of the variance"], rows)


def best_table(found: dict[str, Any]) -> ResultTable:
    rows = [[f"{one['networks']:,}", percent(one["picked"]), percent(one["fresh"])] for one in found["more"]]
    header = ["the best of", "where it was picked", "on fresh rows"]
    return ResultTable("What picking among more networks is worth, on average", header, rows)


def notes(found: dict[str, Any]) -> list[str]:
    table, best = found["table"], found["best"]
    each = 1e6 * found["training_seconds"] / found["networks"] / found["epochs"]
    return [
        f"{found['networks']:,} networks: {len(found['widths'])} widths x {len(found['activations'])} activations x "
        f"{len(found['rates'])} learning rates x {found['seeds']} seeds; Adam, batch {BATCH}, {found['epochs']} "
        "epochs; "
        f"{table['training_rows']:,} rows to train on, {table['picking_rows']:,} to pick by, {table['fresh_rows']:,} "
        "fresh ones. A seed draws the initial weights; the order of rows is the same for all.",
        f"Training took {found['training_seconds']:.0f} s in {found['parts']} parts of at most "
        f"{found['largest_part']:,} networks: {each:.0f} microseconds for an epoch of a network.",
        f"The best by the rows to pick by (the first of {best['ties']} with this score) has {percent(best['picked'])} "
        f"there and {percent(best['fresh'])} on fresh rows. {found['diverged']} networks diverged, and count as zero.",
    ]


def draw(found: dict[str, Any]) -> Figure:
    """What picking buys, and the mean score of each recipe."""
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.4, height=3.8)
    counts = [one["networks"] for one in found["more"]]
    for key, name, color in (("picked", "where it was picked", "vmap"), ("fresh", "on fresh rows", "native")):
        left.plot(counts, [100 * one[key] for one in found["more"]], "o-", color=COLORS[color], label=name)
    left.set(xscale="log", xlabel="networks to pick from", ylabel="accuracy of the best, %")
    left.legend(frameon=False)
    shape = len(found["widths"]), len(found["activations"]), len(found["rates"])
    means = 100 * np.array([cell["mean"] for cell in found["recipes"]]).reshape(shape).max(1)
    image = right.imshow(means.T, origin="lower", aspect="auto", cmap="viridis")
    right.set_xticks(range(shape[0]), found["widths"])
    right.set_yticks(range(shape[2]), [f"{rate:g}" for rate in found["rates"]])
    right.set(xlabel="width", ylabel="learning rate")
    right.grid(False)
    figure.colorbar(image, ax=right, label="accuracy of the best activation, %")
    return figure

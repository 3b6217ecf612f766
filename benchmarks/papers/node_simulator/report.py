"""Tables and notes: ours beside the paper's, table by table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.harness.tables import ResultTable, significant
from benchmarks.papers.node_simulator.cnn import BATCH, EPOCHS, RATE
from benchmarks.papers.node_simulator.conclusions import conclusions
from benchmarks.papers.node_simulator.curve import KINDS, PATHS
from benchmarks.papers.node_simulator.lookup import Entry, find, improvement, points, shares
from benchmarks.papers.node_simulator.printed import NOT_PUBLISHED, correction, improvement_cell, seconds_cell
from benchmarks.papers.node_simulator.start import CELLS, cause, losses
from benchmarks.papers.node_simulator.text import ERROR, WIDTH
from benchmarks.papers.node_simulator.text import RATE as TEXT_RATE
from benchmarks.papers.node_simulator.times import PLACES
from benchmarks.parallel.workers import percent
from shoal.machine import thread_count

if TYPE_CHECKING:
    from benchmarks.papers.node_simulator.study import Study

TIMES = [head for words in PLACES.values() for head in (f"s, {words}", "PI")]
THEIRS = ["the paper's s", "the paper's PI"]


def tables(study: Study, data: dict[str, Any]) -> list[ResultTable]:
    made = []
    if "text" in data:
        made += text_tables(study, data["text"])
    if "cnn" in data:
        made += cnn_tables(study, data["cnn"])
    if data.get("start"):
        made.append(start_table(data["start"]))
    if "curve" in data:
        made += curve_tables(data["curve"])
    return made


def times(entries: Sequence[Entry], nodes: int, part: str = "seconds", **wanted: Any) -> list[str]:
    """Predicted seconds and PI, for each of PLACES."""
    found = []
    for place in PLACES:
        seconds = find(entries, nodes=nodes, **wanted)["predicted"][place][part]
        change = "-" if nodes == 1 else f"{improvement(entries, nodes, place, part, **wanted):.2f}"
        found += [significant(seconds), change]
    return found


def paper(table: int, nodes: int) -> list[str]:
    return [seconds_cell(table, nodes), improvement_cell(table, nodes)]


# ---- text ----


def text_tables(study: Study, text: list[Entry]) -> list[ResultTable]:
    titles = {
        2: "Table 2: MLP, 1 hidden layer, rows split over nodes",
        3: f"Table 3: the same with {study.folds}-fold cross-validation on each node, without the time of averaging",
        4: "Table 4: MLP, 3 hidden layers, rows split over nodes",
    }
    made = []
    for table, title in titles.items():
        wanted = {"layers": 3 if table == 4 else 1, "variant": "split, folds" if table == 3 else "split, end"}
        part = "computing" if table == 3 else "seconds"
        rows = []
        for nodes in study.nodes:
            entry = find(text, nodes=nodes, **wanted)
            rows.append([str(nodes), shares(entry["accuracies"]), epochs(entry),
                         *times(text, nodes, part, **wanted), *paper(table, nodes)])  # fmt: skip
        made.append(ResultTable(title, ["nodes", "accuracy", "epochs", *TIMES, *THEIRS], rows))
    return [*made, overview(study, text)]


def epochs(entry: Entry) -> str:
    """The mean over seeds, of the network of each that needed most."""
    return f"{entry['epochs']:.0f}{'' if entry['stopped'] else ', cap'}"


def overview(study: Study, text: list[Entry]) -> ResultTable:
    """Each way over numbers of nodes."""
    columns = {
        "split, end": "split", "split, epoch": "split, averaged each epoch",
        "split, folds": f"split, {study.folds} folds on each node", "whole, end": "not split",
        "whole, folds": f"not split, {study.folds} folds over nodes",
    }  # fmt: skip
    rows = []
    for layers in sorted({entry["layers"] for entry in text}):
        for nodes in study.nodes:
            cells = []
            for variant in columns:
                wanted = {"layers": layers, "variant": variant}
                seconds = find(text, nodes=nodes, **wanted)["predicted"]["own"]["seconds"]
                accuracies = find(text, nodes=nodes, **wanted)["accuracies"]
                cells.append(f"{shares(accuracies)}, {significant(seconds)} s")
            rows.append([str(layers), str(nodes), *cells])
    title = "With and without splits and folds: accuracy, and seconds on machines of their own, averaging included"
    return ResultTable(title, ["hidden layers", "nodes", *columns.values()], rows)


# ---- images ----


def cnn_tables(study: Study, cnn: dict[str, Any]) -> list[ResultTable]:
    ways = [1, *study.cnn_folds]
    names = ["no folds" if folds == 1 else f"k = {folds}" for folds in ways]
    rows = []
    for nodes in study.nodes:
        found = [find(cnn["accuracy"], nodes=nodes, folds=folds)["train_accuracy"] for folds in ways]
        rows.append([str(nodes), *(percent(value, 1) for value in found), NOT_PUBLISHED, "no GPU here", NOT_PUBLISHED])
    header = ["nodes", *(f"CPU, {name}" for name in names), "the paper's CPU", "GPU", "the paper's GPU"]
    made = [ResultTable("Tables 5 and 6: CNN, training accuracy, rows split over nodes, k folds on each", header, rows)]
    folds = max(study.cnn_folds)
    for table, split in ((7, False), (8, True)):
        rows = []
        for nodes in study.nodes:
            entry = find(cnn["accuracy"], nodes=nodes if split else 1, folds=folds)
            seconds = times(cnn["times"], nodes, folds=folds, split=split)
            rows.append([str(nodes), percent(entry["accuracy"], 1), *seconds, *paper(table, nodes)])
        title = f"Table {table}: CNN, {folds}-fold cross-validation {'with' if split else 'without'} data splitting"
        made.append(ResultTable(title, ["nodes", "accuracy", *TIMES, *THEIRS], rows))
    return [*made, without_folds(study, cnn)]


def without_folds(study: Study, cnn: dict[str, Any]) -> ResultTable:
    rows = []
    for nodes in study.nodes:
        end = find(cnn["accuracy"], nodes=nodes, folds=1, every="end")
        each = end if nodes == 1 else find(cnn["accuracy"], nodes=nodes, folds=1, every="epoch")
        rows.append([str(nodes), percent(end["accuracy"], 1), percent(each["accuracy"], 1),
                     *times(cnn["times"], nodes, folds=1, split=True)])  # fmt: skip
    header = ["nodes", "accuracy, averaged at the end", "accuracy, averaged each epoch", *TIMES]
    return ResultTable("CNN without cross-validation, rows split over nodes", header, rows)


# ---- starts, costs ----


def start_table(entries: Sequence[Entry]) -> ResultTable:
    rows = [
        [str(entry["layers"]), str(entry["nodes"]), shares(entry["alone"]),
         *(shares(entry["cells"][cell]) for cell in CELLS), points(losses(entry).less_data),
         points(losses(entry).starts), cause(entry)]
        for entry in entries
    ]  # fmt: skip
    header = ["hidden layers", "n", "one node, all rows", *CELLS.values(), "lost by less data", "lost by own starts",
              "cause"]  # fmt: skip
    return ResultTable("Less data or different starts? Accuracy of text, averaged at the end", header, rows)


def curve_tables(curve: dict[str, Any]) -> list[ResultTable]:
    rows = [
        [PATHS[entry["path"]], entry["kind"], str(entry["nodes"]), f"{entry['rows']:,}", f"{entry['steps']:,}",
         significant(entry["seconds"]), significant(1e6 * entry["seconds"] / entry["steps"])]
        for entry in curve["points"]
    ]  # fmt: skip
    header = ["path", "rows are", "nodes", "rows", "steps of all nodes", "wall s", "us a step"]
    made = [ResultTable("What a simulation costs", header, rows)]
    rows = []
    for path, line in curve["lines"].items():
        if line is not None:
            rows.append([PATHS[path], significant(line["fixed"]), significant(1e6 * line["each"]),
                         f"{line['r_squared']:.4f}", f"{line['exponent']:.2f}"])  # fmt: skip
    if rows:
        header = ["path", "fixed s", "us a step", "R2", "exponent"]
        title = "Lines through it, where rows grow with the nodes: wall s = fixed + each x steps"
        made.append(ResultTable(title, header, rows))
    if curve.get("dlmp"):
        rows = [
            [str(entry["nodes"]), str(entry["steps"]), significant(entry["dlmp_seconds"]),
             significant(entry["seconds"]), f"{entry['dlmp_seconds'] / entry['seconds']:.1f}x"]
            for entry in curve["dlmp"]
        ]  # fmt: skip
        header = ["nodes", "steps of all nodes", "DLMP, wall s", "run_nodes, wall s", "DLMP / run_nodes"]
        title = "The same LeNet on the same rows, simulated by DLMP and by virtual nodes"
        made.append(ResultTable(title, header, rows))
    return made


# ---- notes ----


def notes(study: Study, data: dict[str, Any]) -> list[str]:
    found = [*conclusions(study, data), correction()]
    found.append(
        "PI = (t1 - tn) / t1 x 100. Seconds are predicted by the planner's cost model, calibrated here once for each "
        f"network: nodes on machines of their own like this one ({thread_count()} cores), over {study.link}, and "
        "nodes that share this machine. With k folds a node trains k networks, one after the other, on (k - 1)/k of "
        "its rows; without data splitting, folds are dealt to nodes."
    )
    if "text" in data or "start" in data:
        found.append(text_note(study))
    if "cnn" in data:
        found.append(cnn_note(study, data["cnn"]))
    if data.get("start"):
        found.append(
            "One node on 1/n of the rows: the mean of all n nodes' own networks, before they are averaged. Own start: "
            "each node but the first draws its weights itself."
        )
    if "curve" in data:
        found += curve_notes(data["curve"])
    return found


def text_note(study: Study) -> str:
    return (
        f"Text: {study.text_rows:,} film reviews, a fifth to test, TF-IDF of {study.features:,} words fitted on "
        f"the rows to train on; hidden layers of {WIDTH} tanh neurons, SGD with rate {TEXT_RATE} and batches of "
        f"{study.text_batch}, until the mean cross entropy of a node's rows is {ERROR}, or {study.text_epochs} "
        "epochs (cap). Epochs are those of the network that needs most, and times follow from them. The paper's "
        f"tweets are not at hand. Intervals: 95% over {study.seeds} seeds; the rows to test are always the same."
    )


def cnn_note(study: Study, cnn: dict[str, Any]) -> str:
    chance = 196 * (0.5 / cnn["test_rows"]) ** 0.5
    return (
        f"CNN: accuracy is that of {study.cnn_epochs} epochs on {cnn['training_rows']:,} of the "
        f"{cnn['predicted_rows']:,} rows of MNIST, with batches of {cnn['batch']} (as many steps in an epoch as "
        f"batches of {BATCH:,} have on all of them), rate {RATE}, one seed, {cnn['test_rows']:,} rows to test: chance "
        f"alone makes up to about {chance:.0f} points. Seconds are those of {EPOCHS} epochs on all rows with batches "
        f"of {BATCH:,}; steps of up to {max(study.cnn_sizes)} rows were measured, larger ones follow the line."
    )


def curve_notes(curve: dict[str, Any]) -> list[str]:
    found = ["Rows: " + "; ".join(f"{name}: {words}" for name, words in KINDS.items()) + "."]
    for path, line in curve["lines"].items():
        mine = [entry for entry in curve["points"] if entry["path"] == path]
        most = max(entry["nodes"] for entry in mine)
        first, last = (find(mine, nodes=nodes, kind="dealt") for nodes in (1, most))
        fitted = "" if line is None else f"; cost is linear in nodes x steps with R2 = {line['r_squared']:.4f}"
        found.append(
            f"{PATHS[path][0].upper()}{PATHS[path][1:]}: with all rows dealt, {most:,} nodes cost "
            f"{last['seconds'] / first['seconds']:.1f} times what one node costs{fitted}."
        )
    if not curve.get("dlmp"):
        found.append("DLMP was not run: give --dlmp and --dlmp-python.")
    elif not all(entry["dlmp_averages"] for entry in curve["dlmp"]):
        found.append("This version of DLMP sends weights around a ring and does not average them.")
    return found

"""Ranks, tables and the plot of the tabular benchmark. Losses stay in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.peers.tabular.data import SOURCES
from benchmarks.peers.tabular.peers import CONTENDERS, TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIGHER_IS_BETTER = {"log_loss": False, "accuracy": True, "r2": True}
MEASURES = {"classification": ("log_loss", "accuracy"), "regression": ("r2",)}
LABELS = {"log_loss": "log-loss", "accuracy": "accuracy", "r2": "R2"}
OURS = "shoal"
MEANT = {"seconds": 60.0, "folds": 3}  # what the target speaks of

Cells = dict[tuple[str, str, str], float]  # (table, measure, contender) -> mean over folds; not a number if one failed


def build_result(
    settings: dict[str, Any], tables: list[dict[str, Any]], contenders: list[str], entries: list[dict[str, Any]],
    notes: list[str],
) -> Result:  # fmt: skip
    """Everything that follows from the raw entries."""
    cells = averages(tables, contenders, entries)
    places = {pair: rank(cells, pair, contenders) for pair in dict.fromkeys((t, m) for t, m, _ in cells)}
    means = mean_ranks(places, contenders)
    whole = set(contenders) == set(CONTENDERS) and {table["name"] for table in tables} == set(SOURCES)
    whole = whole and all(settings[name] >= value for name, value in MEANT.items())
    data = {
        "tables": tables, "contenders": contenders, "fits": entries, "mean_ranks": means,
        "ranks": [{"table": t, "measure": m, "ranks": place} for (t, m), place in places.items()],
        "means": [{"table": t, "measure": m, "contender": c, "mean": v} for (t, m, c), v in cells.items()],
    }  # fmt: skip
    measures = [measure for measure in LABELS if any(m == measure for _, m in places)]
    shown = [rank_table(means, contenders)] + [
        score_table(measure, tables, contenders, cells, places) for measure in measures
    ]
    shown += [time_table(contenders, entries, settings["seconds"]), tables_table(tables)]
    return Result(
        title=f"Real tables: {settings['seconds']:g} seconds a fit, {settings['threads']} threads",
        data=data, tables=shown, targets=targets(means, whole),
        notes=[*notes, *explanations(settings, entries)], draw=lambda: draw(places, means, contenders),
    )  # fmt: skip


def averages(tables: list[dict[str, Any]], contenders: Sequence[str], entries: Iterable[dict[str, Any]]) -> Cells:
    """Mean over the outer folds; not a number where a contender failed on one of them."""
    values: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        values.setdefault((entry["data"], entry["contender"]), []).append(entry)
    return {
        (table["name"], measure, contender): float(
            np.mean([entry.get(measure, np.nan) for entry in values[table["name"], contender]])
        )
        for table in tables for measure in MEASURES[table["task"]] for contender in contenders
    }  # fmt: skip


def rank(cells: Cells, pair: tuple[str, str], contenders: Sequence[str]) -> dict[str, float]:
    """1 is the best; equals share the mean of their places, and those that failed are last.

    >>> cells = {("t", "accuracy", "a"): 0.9, ("t", "accuracy", "b"): 0.9, ("t", "accuracy", "c"): 0.8}
    >>> rank(cells, ("t", "accuracy"), ["a", "b", "c"])
    {'a': 1.5, 'b': 1.5, 'c': 3.0}
    """
    sign = 1.0 if HIGHER_IS_BETTER[pair[1]] else -1.0
    values = np.array([sign * cells[(*pair, contender)] for contender in contenders])
    values = np.round(np.where(np.isnan(values), -np.inf, values), 9)  # sums in another order are no difference
    return {
        contender: float((values > value).sum() + ((values == value).sum() + 1) / 2)
        for contender, value in zip(contenders, values, strict=True)
    }


def mean_ranks(places: dict[tuple[str, str], dict[str, float]], contenders: Sequence[str]) -> dict[str, Any]:
    """By each measure, and over all: every table counts once, be it measured in one way or in two."""
    found: dict[str, dict[str, float]] = {}
    for measure in LABELS:
        chosen = [place for (_, m), place in places.items() if m == measure]
        if chosen:
            found[measure] = {c: float(np.mean([place[c] for place in chosen])) for c in contenders}
    tables = dict.fromkeys(table for table, _ in places)
    found["all"] = {
        c: float(np.mean([np.mean([place[c] for (t, _), place in places.items() if t == table]) for table in tables]))
        for c in contenders
    }
    return found


def targets(means: dict[str, Any], whole: bool) -> list[Target]:
    """Ahead means: a smaller mean rank than the best of the others."""
    found = []
    for measure in (*LABELS, "all"):
        ranks = means.get(measure, {})
        others = {name: value for name, value in ranks.items() if name != OURS}
        what = f"mean rank {'over all' if measure == 'all' else 'by ' + LABELS[measure]}: ahead of the best other by"
        if OURS not in ranks or not others:
            found.append(Target(what, None, 0.0, complete=whole))
            continue
        best = min(others, key=lambda name: others[name])
        note = f"{OURS} {ranks[OURS]:.2f}, {best} {others[best]:.2f}"
        found.append(Target(what, others[best] - ranks[OURS], 0.0, note=note, complete=whole))
    return found


def rank_table(means: dict[str, Any], contenders: Sequence[str]) -> ResultTable:
    header = ["contender", *(f"by {LABELS[m]}" for m in means if m != "all"), "over all"]
    order = sorted(contenders, key=lambda name: means["all"][name])
    rows = []
    for name in order:
        cells = [f"{ranks[name]:.2f}{' *' if ranks[name] == min(ranks.values()) else ''}" for ranks in means.values()]
        rows.append([f"{name}: {TITLES[name]}", *cells])
    return ResultTable("Mean rank (1 is the best; * best of all)", header, rows)


def score_table(
    measure: str, tables: list[dict[str, Any]], contenders: Sequence[str], cells: Cells,
    places: dict[tuple[str, str], dict[str, float]],
) -> ResultTable:  # fmt: skip
    """A row for each table; the best value has a star, and the last column says where Shoal came."""
    rows = []
    for table in tables:
        pair = (table["name"], measure)
        if pair not in places:
            continue
        best = min(places[pair].values())
        row = [table["name"]]
        for name in contenders:
            value = cells[(*pair, name)]
            text = "failed" if np.isnan(value) else f"{value:.4f}"
            row.append(text + (" *" if places[pair][name] == best else ""))
        rows.append([*row, _outcome(places[pair])])
    direction = "higher" if HIGHER_IS_BETTER[measure] else "lower"
    title = f"{LABELS[measure]}, {direction} is better (mean over the outer folds; * best)"
    return ResultTable(title[0].upper() + title[1:], ["table", *contenders, "Shoal came"], rows)


def _outcome(place: dict[str, float]) -> str:
    """Where Shoal came; a loss says to whom."""
    if OURS not in place:
        return "-"
    ahead = sorted((name for name in place if place[name] < place[OURS]), key=lambda name: place[name])
    if not ahead:
        return "first" if place[OURS] == 1 else "first, shared"
    return f"LOST to {', '.join(ahead)}"


def time_table(contenders: Sequence[str], entries: list[dict[str, Any]], seconds: float) -> ResultTable:
    rows = []
    for name in contenders:
        done = [entry for entry in entries if entry["contender"] == name and "error" not in entry]
        failed = sum(entry["contender"] == name for entry in entries) - len(done)
        fit = [entry["fit_seconds"] for entry in done] or [float("nan")]
        per_row = [1e6 * entry["predict_seconds"] / entry["test_rows"] for entry in done] or [float("nan")]
        tried = [entry["details"]["candidates"] for entry in done if entry["details"].get("candidates")]
        rows.append([
            name, significant(float(np.mean(fit))), significant(float(np.max(fit))),
            significant(float(np.median(per_row))), f"{np.median(tried):.0f}" if tried else "-", str(failed),
        ])  # fmt: skip
    header = ["contender", "mean", "longest", "microseconds to predict a row", "recipes tried (median)", "failed"]
    return ResultTable(f"Seconds of a fit (given: {seconds:g})", header, rows)


def tables_table(tables: list[dict[str, Any]]) -> ResultTable:
    rows = [
        [
            table["name"], table["task"], f"{table['rows']:,}", str(table["columns"]), str(table["categories"]),
            f"{100 * table['missing']:.0f}%", str(table["classes"] or "-"),
        ]
        for table in tables
    ]  # fmt: skip
    return ResultTable("Tables", ["table", "task", "rows", "columns", "of them categories", "missing", "classes"], rows)


def explanations(settings: dict[str, Any], entries: list[dict[str, Any]]) -> list[str]:
    notes = [
        f"{settings['folds']} outer folds, shuffled, stratified by class, the same for all; contenders take turns "
        "within a fold, each in a process of its own that may use the same number of threads.",
        "mlp, forest and boosting: random search that starts with the library's defaults, 5 inner folds on all cores, "
        "selected by log-loss or R2, then fitted again on all rows within the same time. linear: a grid of 22 values.",
        "realmlp: tuned defaults; as many bagged folds, up to 8, as fit into the time; chosen by cross-entropy and "
        "without label smoothing, as its documentation advises for log-loss. Its fits may end early or overrun.",
        "Log-loss clips probabilities at 1e-7. Ranks are those of the means over the folds; equals share a rank.",
    ]
    failed = [f"{e['contender']} on {e['data']}, fold {e['fold'] + 1}: {e['error']}" for e in entries if "error" in e]
    return notes + [f"Failed, and ranked last: {text}." for text in failed]


def draw(places: dict[tuple[str, str], dict[str, float]], means: dict[str, Any], contenders: Sequence[str]) -> Figure:
    order = sorted(contenders, key=lambda name: means["all"][name])
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.4, height=max(3.2, 0.27 * len(places) + 1.2))
    ranks = [means["all"][name] for name in order]
    colors = [COLORS["native"] if name == OURS else "0.65" for name in order]
    bars = left.barh(order[::-1], ranks[::-1], color=colors[::-1], height=0.6)
    left.bar_label(bars, fmt="%.2f", padding=3)
    left.set(xlabel="mean rank over all tables (1 is the best)", xlim=(0, 1.12 * max(ranks)))
    right.grid(False)
    values = np.array([[place[name] for name in order] for place in places.values()])
    right.imshow(values, cmap="RdYlGn_r", aspect="auto", vmin=1, vmax=max(2, len(order)), alpha=0.7)
    for (row, column), value in np.ndenumerate(values):
        right.text(column, row, f"{value:g}", ha="center", va="center", fontsize=8)
    right.set_xticks(range(len(order)), order, rotation=30, ha="right")
    right.set_yticks(range(len(places)), [f"{table}, {LABELS[m]}" for table, m in places], fontsize=8)
    right.set_title("rank on each table", fontsize=10)
    return figure

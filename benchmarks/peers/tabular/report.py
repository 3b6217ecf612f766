"""Tables, targets and the plot of the tabular benchmark. Losses and failures stay in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.plots import COLORS, grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable, significant
from benchmarks.harness.verdict import Target
from benchmarks.peers.tabular.contenders import ENTRANTS, OURS
from benchmarks.peers.tabular.standing import FAR_BEHIND, HIGHER_IS_BETTER, Standing, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {"loss": "loss", "score": "accuracy or R2"}
LEAST_INSIDE, MOST_INSIDE = 0.92, 0.98
ABOVE_ZERO = 1e-3  # ranks
PLACED = 0.8  # of the tables Shoal is to be first or second on


@dataclass(frozen=True)
class Report:
    """All entries of a run, and what follows from them for all tables, for those of the choices, and for the others."""

    tables: list[dict[str, Any]]
    contenders: list[str]
    entries: list[dict[str, Any]]

    def groups(self) -> Iterator[tuple[str, Standing]]:
        """Each group that has a table."""
        rules = {"all tables": (True, False), "tables of the choices": (False,), "held out": (True,)}
        for title, held_out in rules.items():
            names = [table["name"] for table in self.tables if table["held_out"] in held_out]
            if names:
                yield title, self.standing(names)

    def standing(self, names: Sequence[str]) -> Standing:
        return Standing.of(names, self.contenders, self.entries)

    @property
    def peers(self) -> list[str]:
        return [name for name in self.contenders if name != OURS]

    @property
    def is_race(self) -> bool:
        """Whether Shoal met anybody."""
        return OURS in self.contenders and bool(self.peers)

    def summary(self, standing: Standing) -> dict[str, Any]:
        """Everything about a group, for JSON and for the tables."""
        ranks = {measure: standing.ranks(measure) for measure in MEASURES}
        means = {m: dict(zip(self.contenders, r.mean(axis=0).tolist(), strict=True)) for m, r in ranks.items()}
        found: dict[str, Any] = {"tables": list(standing.tables), "mean_ranks": means}
        if not self.is_race:
            return found
        for peer in self.peers:
            found.setdefault("against", {})[peer] = {"loss_ratio": standing.ratio(OURS, peer)} | {
                measure: self._against(standing, measure, peer) for measure in MEASURES
            }
        behind = dict(zip(standing.tables, standing.behind(OURS).tolist(), strict=True))
        mine = {measure: r[:, standing.column(OURS)] for measure, r in ranks.items()}
        return found | {
            "first_or_second": {measure: float((own <= 2).mean()) for measure, own in mine.items()},
            "worst_ratio": max(behind.values()),
            "far_behind": {name: ratio for name, ratio in behind.items() if ratio > FAR_BEHIND},
            "honest": self._honest(set(standing.tables)),
        }

    def _against(self, standing: Standing, measure: str, peer: str) -> dict[str, Any]:
        lead = standing.lead(measure, OURS, peer)
        won, lost = standing.wins(measure, OURS, peer)
        return {"lead": float(lead.mean()), "interval": interval(lead), "won": won, "lost": lost}

    def _honest(self, names: set[str]) -> dict[str, Any]:
        """Of the table-split pairs with an honest interval."""
        judged = [e for e in self.entries if e["contender"] == OURS and e["table"] in names and "inside" in e]
        if not judged:
            return {}
        return {"pairs": len(judged)} | {
            what: float(np.mean([entry[what] for entry in judged])) for what in ("inside", "covered")
        }


def build_result(title: str, report: Report, complete: bool, notes: list[str]) -> Result:
    """Everything that follows from the raw entries."""
    groups = dict(report.groups())
    summaries = {name: report.summary(standing) for name, standing in groups.items()}
    whole = groups["all tables"]
    shown = [rank_table(name, summary, report) for name, summary in summaries.items()]
    if report.is_race:
        shown.append(standing_table(summaries))
    shown += [value_table(measure, whole) for measure in MEASURES]
    shown += [time_table(report), tables_table(report.tables)]
    for one in report.entries:
        if "error" in one:
            where = f"{one['contender']} on {one['table']}, split {one['split']}, {one['seconds']:g} s"
            notes = [*notes, f"Failed, and ranked last: {where}: {one['error']}."]
    data = {"tables": report.tables, "contenders": report.contenders, "groups": summaries, "fits": report.entries}
    return Result(
        title=title, data=data, tables=shown, targets=targets(summaries["all tables"], complete), notes=notes,
        draw=lambda: draw(groups),
    )  # fmt: skip


def targets(summary: dict[str, Any], complete: bool) -> list[Target]:
    found = []
    against, placed = summary.get("against", {}), summary.get("first_or_second", {})
    for measure, words in MEASURES.items():
        leads = {peer: one[measure] for peer, one in against.items()}
        best = min(leads, key=lambda peer: leads[peer]["lead"], default="")
        least = min(leads, key=lambda peer: leads[peer]["interval"][0], default="")
        found += [
            Target(f"mean rank by {words}: ahead of the best peer by",
                   leads[best]["lead"] if best else None, ABOVE_ZERO, note=best, complete=complete),
            Target(f"mean rank by {words}: least lead over a peer, lower end of its 95% interval",
                   leads[least]["interval"][0] if least else None, ABOVE_ZERO, note=least, complete=complete),
        ]  # fmt: skip
    found += [
        Target("share of tables with first or second place by loss", placed.get("loss"), PLACED, complete=complete),
        Target("worst table: loss over that of the best peer", summary.get("worst_ratio"), FAR_BEHIND,
               at_least=False, note=", ".join(summary.get("far_behind", {})), complete=complete),
    ]  # fmt: skip
    honest = summary.get("honest", {})
    inside, note = honest.get("inside"), f"{honest['covered']:.3f} with the error of the test score" if honest else ""
    what = "share of honest intervals with the test score inside"
    return [
        *found,
        Target(what, inside, LEAST_INSIDE, note=note, complete=complete),
        Target(what, inside, MOST_INSIDE + 1e-9, at_least=False, complete=complete),
    ]


def rank_table(title: str, summary: dict[str, Any], report: Report) -> ResultTable:
    means = summary["mean_ranks"]
    rows = []
    for name in sorted(report.contenders, key=lambda name: means["loss"][name]):
        row = [f"{name}: {ENTRANTS[name].title}"]
        against = summary.get("against", {}).get(name)
        for measure in MEASURES:
            row.append(f"{means[measure][name]:.2f}")
            row += _lead_cells(against[measure]) if against else ["-", "-"]
        rows.append([*row, f"{against['loss_ratio']:.3f}" if against else "-"])
    header = ["contender"]
    for words in MEASURES.values():
        header += [f"mean rank by {words}", "Shoal's lead (95% interval)", "Shoal won, lost"]
    count = len(summary["tables"])
    return ResultTable(f"Mean rank, {title} ({count})", [*header, "Shoal's loss over its"], rows)


def _lead_cells(one: dict[str, Any]) -> list[str]:
    low, high = one["interval"]
    return [f"{one['lead']:+.2f} ({low:+.2f} to {high:+.2f})", f"{one['won']}, {one['lost']}"]


def standing_table(summaries: dict[str, dict[str, Any]]) -> ResultTable:
    rows = []
    for name, one in summaries.items():
        far = ", ".join(f"{table} {ratio:.2f}" for table, ratio in one["far_behind"].items()) or "none"
        honest, placed = one["honest"], one["first_or_second"]
        shares = [f"{honest[what]:.1%} of {honest['pairs']}" if honest else "-" for what in ("inside", "covered")]
        rows.append([name, f"{placed['loss']:.0%}", f"{placed['score']:.0%}", far, *shares])
    header = ["tables", "first or second by loss", "by accuracy or R2", "over 15% behind the best peer",
              "test score inside the honest interval", "the same, with the error of the test score"]  # fmt: skip
    return ResultTable("Where Shoal stands", header, rows)


def value_table(measure: str, standing: Standing) -> ResultTable:
    """A row for each table; the best value has a star, and the last column is Shoal's place."""
    ranks, values = standing.ranks(measure), standing.values[measure]
    rows = []
    for k, name in enumerate(standing.tables):
        cells = [
            ("failed" if np.isnan(value) else f"{value:.4f}") + (" *" if rank == ranks[k].min() else "")
            for value, rank in zip(values[k], ranks[k], strict=True)
        ]
        place = f"{ranks[k][standing.column(OURS)]:g}" if OURS in standing.contenders else "-"
        rows.append([name, *cells, place])
    direction = "higher" if HIGHER_IS_BETTER[measure] else "lower"
    words = MEASURES[measure]
    title = f"{words[0].upper()}{words[1:]}, {direction} is better (mean over splits; * best)"
    return ResultTable(title, ["table", *standing.contenders, "Shoal's place"], rows)


def time_table(report: Report) -> ResultTable:
    rows = []
    for name in report.contenders:
        mine = [entry for entry in report.entries if entry["contender"] == name]
        done = [entry for entry in mine if "error" not in entry]
        seconds = [entry["fit_seconds"] for entry in done] or [float("nan")]
        per_row = [1e6 * entry["predict_seconds"] / entry["test_rows"] for entry in done] or [float("nan")]
        tried = [entry["details"]["candidates"] for entry in done if entry["details"].get("candidates")]
        rows.append([
            name, significant(float(np.mean(seconds))), significant(float(np.max(seconds))),
            significant(float(np.median(per_row))), f"{np.median(tried):.0f}" if tried else "-",
            str(len(mine) - len(done)),
        ])  # fmt: skip
    header = ["contender", "mean", "longest", "microseconds to predict a row", "models tried (median)", "failed"]
    return ResultTable("Seconds of a fit", header, rows)


def tables_table(tables: list[dict[str, Any]]) -> ResultTable:
    rows = [
        [
            table["name"], table["task"], f"{table['rows']:,}", str(table["columns"]), str(table["words"]),
            f"{100 * table['missing']:.0f}%", str(table["classes"] or "-"), "yes" if table["held_out"] else "no",
        ]
        for table in tables
    ]  # fmt: skip
    header = ["table", "task", "rows", "columns", "of them words", "missing", "classes", "held out"]
    return ResultTable("Tables", header, rows)


def draw(groups: dict[str, Standing]) -> Figure:
    """Mean ranks of each group, and the rank by loss on each table."""
    whole = groups["all tables"]
    ranks = whole.ranks("loss")
    order = np.argsort(ranks.mean(axis=0), kind="stable")
    names = [whole.contenders[k] for k in order]
    figure, ((left, right),) = grid_of_axes(1, 2, width=5.4, height=max(3.2, 0.27 * len(ranks) + 1.2))
    places = np.arange(len(names))[::-1]
    colors = [COLORS["native"] if name == OURS else "0.65" for name in names]
    for (title, standing), marker in zip(groups.items(), "os^", strict=False):
        left.scatter(standing.ranks("loss").mean(axis=0)[order], places, c=colors, marker=marker, label=title)
    left.set_yticks(places, names)
    left.set(xlabel="mean rank by loss (1 is the best)", xlim=(0, len(names) + 0.5))
    left.legend(frameon=False, fontsize=8)
    right.grid(False)
    right.imshow(ranks[:, order], cmap="RdYlGn_r", aspect="auto", vmin=1, vmax=max(2, len(names)), alpha=0.7)
    for (row, column), value in np.ndenumerate(ranks[:, order]):
        right.text(column, row, f"{value:g}", ha="center", va="center", fontsize=7)
    right.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
    right.set_yticks(range(len(ranks)), whole.tables, fontsize=8)
    right.set_title("rank by loss on each table", fontsize=10)
    return figure

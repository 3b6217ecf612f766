"""The screen of a search: a bar on a terminal, a line now and then elsewhere; and its results as text."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from shoal.console import terminal
from shoal.console.progress import Bar
from shoal.executors.interface import Status
from shoal.explain.results import Explanation, decimals, importance_lines
from shoal.report.shell.words import count
from shoal.search.events import Progress, Started
from shoal.search.results.leaderboard import Leaderboard

LINE_EVERY = 5.0  # seconds, where there is no terminal
QUIET_AFTER = 1.5  # seconds without news from training: something else is going on
TOP = 10
COLUMNS, GROUPS = 8, 3  # that matter, at the end
SKIPPED = 5  # recipes that are named


class SearchScreen:
    """A callback that draws at once. Where a thread searches, another callback calls `watch`, and who waits draws."""

    def __init__(self, metric: str, budget: float | None, show_bar: bool | None = None) -> None:
        self.metric, self.budget = metric, budget
        self.begun = time.monotonic()
        self.latest: Progress | None = None
        self.told = self.begun
        self._next_line = 0.0
        self._recipes = 0
        self.shows = sys.stderr.isatty() if show_bar is None else show_bar
        self._console: Any = None
        if self.shows:
            self._console = terminal.console(stderr=True)
        self._bar = Bar(1.0, words="encoding the table", console=self._console, transient=True, show=self.shows)

    def started(self, event: Started) -> None:
        self.metric = event.metric

    def progress(self, event: Progress) -> None:
        self.watch(event)
        self.draw()

    def watch(self, progress: Progress) -> None:
        self.latest, self.told = progress, time.monotonic()

    def share(self) -> float:
        """How much is done: of the time, if that is limited, else of the work."""
        share = 0.0 if self.latest is None else self.latest.share
        if self.budget is not None:
            share = (time.monotonic() - self.begun) / self.budget
        return min(share, 1.0)

    def draw(self) -> None:
        progress, now = self.latest, time.monotonic()
        if self.shows:
            self._bar.update(self.share(), words=self.words(now))
        elif progress is not None and ((progress.recipes and not self._recipes) or now >= self._next_line):
            self._recipes = progress.recipes
            self._next_line = now + LINE_EVERY
            self.say(self.words(now))

    def words(self, now: float) -> str:
        """Time left, recipes done, best so far."""
        progress = self.latest
        if progress is None:
            return "encoding the table"
        best = "" if progress.best is None else f", best {self.metric} {progress.best.score:.4f}"
        stage = progress.stage if now - self.told < QUIET_AFTER else "scoring and combining"
        seconds = self._left(progress, now)
        left = "" if seconds is None else f", {time_words(seconds)} left"
        workers = "" if progress.workers is None else f", {workers_words(progress.workers)}"
        return f"{stage}: {count(progress.recipes, 'recipe')}{best}{workers}{left}"

    def _left(self, progress: Progress, now: float) -> float | None:
        """Seconds left, by the budget or by what the share done so far took."""
        elapsed = now - self.begun
        if self.budget is not None:
            return max(self.budget - elapsed, 0.0)
        return elapsed * (1 / progress.share - 1) if progress.share > 0.02 else None

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self.shows:
            self._console.print(terminal.visible(text))
        else:
            terminal.say(text, error=True)

    def __enter__(self) -> SearchScreen:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def workers_words(status: Status) -> str:
    """
    >>> workers_words(Status(workers=4, busy=3, done=12, waiting=5, lost=1, repeated=2))
    '3 of 4 workers busy, 12 shards done, 5 waiting, 1 worker lost, 2 shards computed again'
    """
    words = [f"{status.busy} of {status.workers} workers busy", f"{count(status.done, 'shard')} done"]
    words += [f"{status.waiting:,} waiting"] if status.waiting else []
    words += [f"{status.lost} worker{'s' * (status.lost > 1)} lost"] if status.lost else []
    words += [f"{status.repeated} shard{'s' * (status.repeated > 1)} computed again"] if status.repeated else []
    return ", ".join(words)


def time_words(seconds: float) -> str:
    """
    >>> time_words(8.2), time_words(75), time_words(7500)
    ('8 s', '1:15 min', '2:05 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def skipped_words(skipped: Sequence[dict[str, Any]]) -> list[str]:
    """Recipes that nobody could train, as lines of text.

    >>> skipped_words([{"recipe": 5, "label": "", "reason": "it failed on 2 workers"}])[1]
    'skipped 1 recipe, so the result may differ from that of the whole search (--fresh starts over):'
    """
    if not skipped:
        return []
    many = count(len(skipped), "recipe")
    lines = ["", f"skipped {many}, so the result may differ from that of the whole search (--fresh starts over):"]
    lines += [f"  recipe {one['recipe']}: {one['reason']}" for one in skipped[:SKIPPED]]
    return [*lines, f"  and {len(skipped) - SKIPPED:,} more: see the report"] if len(skipped) > SKIPPED else lines


def matter_words(explanation: Explanation | None, target: str) -> list[str]:
    """Which columns matter, as lines of text; none where that is not known."""
    if explanation is None or not len(explanation.importance):
        return []
    found = explanation.importance
    lines = ["", f"What matters for {target}: how much {found.metric} falls when a column is shuffled (95% interval)"]
    lines += ["  " + line for line in importance_lines(found, COLUMNS)]
    rest = len(found) - COLUMNS
    lines += [f"  and {rest} more column{'s' * (rest > 1)}: see the report"] if rest > 0 else []
    digits = decimals(found)
    for group in found.groups[:GROUPS]:
        names = " and ".join(group.columns) if len(group.columns) == 2 else ", ".join(group.columns)
        lines.append(f"  the same information is in {names}: shuffled together {group.importance:.{digits}f}")
    return lines


def top_table(board: Leaderboard, metric: str) -> list[str]:
    """The best recipes as lines of text that fit into 100 columns."""
    head = ("rank", metric, "folds", "seeds", "network", "activation", "encoding", "rate", "drop", "decay", "epochs")
    rows = [head]
    for row in board[:TOP]:
        seeds = "" if row["seed_spread"] is None else f"±{row['seed_spread']:.4f}"
        rows.append((
            str(row["rank"]), f"{row['score']:.4f}", f"±{row['fold_spread']:.4f}", seeds, row["hidden"],
            row["activation"], row["encoding"], f"{row['learning_rate']:.2g}", f"{row['dropout']:g}",
            f"{row['weight_decay']:g}", f"{row['epochs']}{'*' if row['stopped'] else ' '}",
        ))  # fmt: skip
    widths = [max(len(row[j]) for row in rows) for j in range(len(head))]
    left = {4, 5, 6}  # words; numbers stand to the right
    align = [str.ljust if j in left else str.rjust for j in range(len(head))]
    lines = ["  ".join(put(cell, w) for put, cell, w in zip(align, row, widths, strict=True)) for row in rows]
    if any(row["stopped"] for row in board[:TOP]):
        lines.append("* stopped early, because others were ahead or time was up; ranked below fully trained recipes")
    return lines

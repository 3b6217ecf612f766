"""How the seconds of a budget are shared out, and what is left out where they are too few.

Reading is measured. What encoding and a first look at the networks will take is predicted from a trial on some rows
(`Pace`), and folds, encodings and rows are given up until the search has more than half of the time (`begin`). What
the end will take is predicted from what one pass over the predictions takes, measured during the search (`Passes`),
and kept back. When the search is over, ensemble and honest score get what there is (`finish`): also after Ctrl-C, which
is a budget of a few more seconds. All that was left out is an `Effort`, which is written down for `--repeat`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shoal.search.honest import FEWEST_BOOTSTRAPS
from shoal.search.picks import ENSEMBLE_CANDIDATES

AFTER_INTERRUPT = 1.5  # seconds from Ctrl-C to the end
SEARCH_SHARE = 0.6  # of the time after reading that is the search's, if anything else can give way
FIRST_LOOK = 0.25  # of that time, for one epoch of the first recipes
FEWEST_ROWS = 2_000
PASSES_TO_FINISH = 12  # over all predictions of a recipe: combining, scores
PASSES_TO_REPORT = 25  # the same for the tables and figures of a report
CHOOSING, SCORING = 0.3, 0.45  # shares of the time for the end: ensemble, honest score; the rest is for surprises
FEWEST_CANDIDATES = 16
FEWEST_ENSEMBLE_ROWS = 500  # rows that an ensemble is chosen on
FEWEST_SCORED = 1_000  # rows of the honest score
CHOOSING_STEPS, CHOOSING_PASSES = 30, 10  # of weighing and over predictions
AVERAGING_PASSES = 250  # over predictions: the temperature tries many
SCORING_STEPS, SCORING_PASSES = 14, 8  # of weighing and over predictions, in a bootstrap sample
LEAST_WATCHED, MOST_BUSY = 0.1, 4.0  # seconds of work that say how busy a machine is; times longer that it may be
SURPRISES = 1.5  # times what cannot be left out is kept back
LEAST_END, MOST_END = 0.03, 0.08  # of the budget, for ensemble and honest score


@dataclass
class Clock:
    """Seconds since the start, and when training has to end."""

    budget: float | None = None
    start: float = field(default_factory=time.monotonic)
    reserve: float = 0.0  # for what comes after training
    now: Callable[[], float] = time.monotonic
    computed: float = field(default_factory=time.process_time)  # seconds by this process, at the start
    advised: float = 0.0  # the budget that the user was told would be enough
    hurried: bool = False
    busy: float = 1.0  # how many times longer work takes than it computes, since others use the machine as well

    def elapsed(self) -> float:
        return self.now() - self.start

    def left(self) -> float:
        """Seconds of searching left."""
        return self.time_left() - self.reserve

    def time_left(self) -> float:
        """Seconds left in all."""
        return float("inf") if self.budget is None else self.budget - self.elapsed()

    def watch(self, seconds: float, computed: float) -> None:
        """Learn how busy the machine is: one thread has computed so long in so many seconds.

        Short trials do not show it: they are over before others get their turn.
        """
        if self.now is time.monotonic and seconds > LEAST_WATCHED:
            self.busy = max(self.busy, min(seconds / max(computed, 1e-9), MOST_BUSY))

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds that some work of this thread takes, or would take if it were longer."""
        begun, computed = self.now(), time.thread_time()
        work()
        seconds = self.now() - begun
        return max(seconds, self.busy * (time.thread_time() - computed)) if self.busy > 1 else seconds

    def hurry(self, seconds: float = AFTER_INTERRUPT) -> None:
        """The user wants it to end: that is a budget."""
        self.hurried = True
        if seconds < self.time_left():
            self.budget = self.elapsed() + seconds
            self.reserve = seconds


EARLIER_NAMES = {"forms": "encodings", "judged": "ensemble_rows"}


@dataclass(frozen=True)
class Effort:
    """What was left out for want of time. None: nothing."""

    folds: int | None = None  # in place of the usual number
    encodings: tuple[str, ...] | None = None  # of numbers
    rows: int | None = None  # of the table, drawn by the seed
    candidates: int | None = None  # of the ensemble
    ensemble_rows: int | None = None  # rows that the ensemble and its temperature were chosen on
    sampled: int | None = None  # rows of the honest score

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_dict(known: Mapping[str, Any]) -> Effort:
        known = present_names(known)
        encodings = known.get("encodings")
        return Effort(**{**known, "encodings": None if encodings is None else tuple(encodings)})

    def describe(self, rows: int) -> str:
        """What the search goes without, in words; nothing, if it goes without nothing."""
        parts = [] if self.folds is None else [f"{self.folds} folds"]
        parts += [] if self.encodings is None else ["numbers in one encoding only"]
        parts += [] if self.rows is None else [f"{self.rows:,} of the {rows:,} rows"]
        return f"short of time: {', '.join(parts)}" if parts else ""


def present_names(known: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an effort by the names that they have now; earlier settings have other names for two of them."""
    return {EARLIER_NAMES.get(name, name): value for name, value in known.items()}


@dataclass(frozen=True)
class Pace:
    """Seconds of encoding a fold (fixed, and for each row), of an epoch of the first recipes, and of the end."""

    fixed: float
    row: float
    epoch: float  # of one row, in all encodings
    end: float  # of what comes after the search and cannot be left out, for each row
    spare: bool = True  # numbers have a second encoding that may be left out

    def encoding(self, rows: int, folds: int, share: float) -> float:
        """`share` of the encodings of numbers that are made."""
        return folds * (self.fixed + self.row * rows) * (0.3 + 0.7 * share)

    def look(self, rows: int, folds: int, share: float) -> float:
        return self.epoch * rows * folds * share


def begin(pace: Pace, left: float, rows: int, folds: Sequence[int], fewer_rows: bool) -> Effort:
    """What to go without so that the search gets its share of the seconds left.

    `folds`: the numbers that there may be, the usual one first. Rows go last, and only where they may.
    """

    def fits(rows: int, folds: int, share: float) -> bool:
        other = pace.encoding(rows, folds, share) + pace.end * rows
        return other <= (1 - SEARCH_SHARE) * left and pace.look(rows, folds, share) <= FIRST_LOOK * left

    shares = (1.0, 0.5) if pace.spare else (1.0,)
    for k, share in ((k, share) for k in folds for share in shares):
        if fits(rows, k, share):
            return _effort(k, share, folds[0])
    least, total = folds[-1], rows
    while fewer_rows and rows > FEWEST_ROWS and not fits(rows, least, shares[-1]):
        rows = max(FEWEST_ROWS, int(rows * 0.8))
    return replace(_effort(least, shares[-1], folds[0]), rows=rows if rows < total else None)


def _effort(folds: int, share: float, usual: int) -> Effort:
    return Effort(folds=folds if folds < usual else None, encodings=None if share == 1.0 else ("plain",))


def needed(elapsed: float, pace: Pace, rows: int, folds: int) -> float:
    """The budget that would do without leaving anything out: reading, encoding, a first look and a search."""
    rest = pace.encoding(rows, folds, 1.0) + pace.end * rows
    return elapsed + max(rest / (1 - SEARCH_SHARE), pace.look(rows, folds, 1.0) / FIRST_LOOK)


@dataclass(frozen=True)
class Passes:
    """Seconds of one pass over a recipe's predictions of all rows, of weighing one number of one, and of saving."""

    rows: int
    whole: float
    cell: float
    saving: float = 0.0
    forward: float = 0.0  # of all networks of an ensemble, for one row
    wide: float = 0.0  # of what is done for each column after the search

    def fixed(self, report: bool) -> float:
        """Seconds of what cannot be left out."""
        return (PASSES_TO_FINISH + PASSES_TO_REPORT * report) * self.whole + self.saving * report + self.wide

    def choosing(self, candidates: int) -> float:
        """Seconds of choosing an ensemble and its temperature, for each row."""
        return CHOOSING_STEPS * candidates * self.cell + CHOOSING_PASSES * self.whole / self.rows

    def scoring(self, candidates: int) -> float:
        """Seconds of the fewest bootstrap samples and of what averaging adds, for each row."""
        samples = FEWEST_BOOTSTRAPS * (SCORING_STEPS * candidates * self.cell + SCORING_PASSES * self.whole / self.rows)
        return samples + self.forward + AVERAGING_PASSES * self.whole / self.rows

    def reserve(self, budget: float, report: bool, candidates: int, sampled: int) -> float:
        """To be kept back for the end: what cannot be left out, and as much of the rest as is worth its time."""
        known = min(candidates, ENSEMBLE_CANDIDATES)
        least = self.choosing(min(known, FEWEST_CANDIDATES)) * min(self.rows, FEWEST_ENSEMBLE_ROWS)
        least += self.scoring(known) * min(sampled, FEWEST_SCORED)
        wanted = (self.choosing(known) * self.rows + self.scoring(known) * sampled) / (CHOOSING + SCORING)
        more = min(max(wanted, LEAST_END * budget), MOST_END * budget)
        return SURPRISES * self.fixed(report) + max(SURPRISES * least, more)


def finish(passes: Passes, left: float, report: bool, candidates: int, rows: int, sampled: int) -> tuple[Effort, float]:
    """What to go without at the end, and the seconds that the honest score may take.

    `candidates` of the ensemble, `rows` to choose it on, `sampled` rows of the honest score.
    """
    there = max(left - passes.fixed(report), 0.1)
    known = min(candidates, ENSEMBLE_CANDIDATES)
    each = CHOOSING_STEPS * passes.cell * rows
    few = int(min(known, max(FEWEST_CANDIDATES, CHOOSING * there / each)))
    ensemble_rows = int(min(rows, max(FEWEST_ENSEMBLE_ROWS, CHOOSING * there / passes.choosing(few))))
    seconds = SCORING * there
    scored = int(min(sampled, max(FEWEST_SCORED, seconds / passes.scoring(known))))
    effort = Effort(
        candidates=few if few < known else None,
        ensemble_rows=ensemble_rows if ensemble_rows < rows else None,
        sampled=scored if scored < sampled else None,
    )
    return effort, seconds

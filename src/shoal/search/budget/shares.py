"""Divides the seconds of a budget, and reduces work if they are too few. Pure arithmetic.

`Pace` predicts encoding and the first epoch from a trial on some rows. `Pace.reduced` gives up folds, encodings and
rows until the search has more than half of the time. `Passes` predicts what follows the search, from what one pass
over the predictions takes. That time is kept back; when the search is over, ensemble and honest score get what is left
(`Passes.finish`), also after Ctrl-C, which is a budget of a few seconds. An `Effort` records what was reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from shoal.search.scoring.honest import FEWEST_BOOTSTRAPS
from shoal.search.scoring.picks import ENSEMBLE_CANDIDATES

SEARCH_SHARE = 0.6  # of the time after reading that is the search's, if anything else can give way
FIRST_EPOCH_SHARE = 0.25  # of that time, for one epoch of the first recipes
FEWEST_ROWS_AFTER_REDUCTION = 2_000
PASSES_TO_FINISH = 12  # over all predictions of a recipe: combining, scores
PASSES_TO_REPORT = 25  # the same for the tables and figures of a report
CHOOSING_SHARE, SCORING_SHARE = 0.3, 0.45  # of the time for the end: ensemble, honest score; the rest is a margin
FEWEST_CANDIDATES = 16
FEWEST_ENSEMBLE_ROWS = 500  # rows that an ensemble is chosen on
FEWEST_SCORED = 1_000  # rows of the honest score
CHOOSING_STEPS, CHOOSING_PASSES = 30, 10  # of weighing and over predictions
AVERAGING_PASSES = 250  # over predictions: the temperature tries many
SCORING_STEPS, SCORING_PASSES = 14, 8  # of weighing and over predictions, in a bootstrap sample
SAFETY_FACTOR = 1.5  # of the time kept back for what cannot be left out
LEAST_END_SHARE, MOST_END_SHARE = 0.03, 0.08  # of the budget, for ensemble and honest score


@dataclass(frozen=True)
class Effort:
    """What was reduced to save time. None: nothing."""

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
        encodings = known.get("encodings")
        return Effort(**{**known, "encodings": None if encodings is None else tuple(encodings)})

    def describe(self, rows: int) -> str:
        """What is reduced before the search begins, in words."""
        parts = [] if self.folds is None else [f"{self.folds} folds"]
        parts += [] if self.encodings is None else ["numbers in one encoding only"]
        parts += [] if self.rows is None else [f"{self.rows:,} of the {rows:,} rows"]
        return f"short of time: {', '.join(parts)}" if parts else ""


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

    def first_epoch(self, rows: int, folds: int, share: float) -> float:
        return self.epoch * rows * folds * share

    def reduced(self, left: float, rows: int, folds: Sequence[int], fewer_rows: bool) -> Effort:
        """What to reduce so that the search gets its share of the seconds left.

        `folds`: the numbers that there may be, the usual one first. Rows go last, and only where they may.
        """

        def fits(rows: int, folds: int, share: float) -> bool:
            other = self.encoding(rows, folds, share) + self.end * rows
            first = self.first_epoch(rows, folds, share)
            return other <= (1 - SEARCH_SHARE) * left and first <= FIRST_EPOCH_SHARE * left

        shares = (1.0, 0.5) if self.spare else (1.0,)
        for k, share in ((k, share) for k in folds for share in shares):
            if fits(rows, k, share):
                return _effort(k, share, folds[0])
        least, total = folds[-1], rows
        while fewer_rows and rows > FEWEST_ROWS_AFTER_REDUCTION and not fits(rows, least, shares[-1]):
            rows = max(FEWEST_ROWS_AFTER_REDUCTION, int(rows * 0.8))
        return replace(_effort(least, shares[-1], folds[0]), rows=rows if rows < total else None)

    def enough(self, rows: int, folds: int) -> float:
        """Seconds with which nothing would be reduced: encoding, a first epoch and a search."""
        rest = self.encoding(rows, folds, 1.0) + self.end * rows
        return max(rest / (1 - SEARCH_SHARE), self.first_epoch(rows, folds, 1.0) / FIRST_EPOCH_SHARE)


def _effort(folds: int, share: float, usual: int) -> Effort:
    return Effort(folds=folds if folds < usual else None, encodings=None if share == 1.0 else ("plain",))


@dataclass(frozen=True)
class Passes:
    """Seconds of one pass over a recipe's predictions of all rows, of weighing one number of one, and of saving."""

    rows: int
    whole: float
    cell: float
    report: bool = False  # whether files are written after the search
    saving: float = 0.0
    forward: float = 0.0  # of all networks of an ensemble, for one row
    wide: float = 0.0  # of what is done for each column after the search

    @property
    def fixed(self) -> float:
        """Seconds of what cannot be left out."""
        passes = PASSES_TO_FINISH + PASSES_TO_REPORT * self.report
        return passes * self.whole + self.saving * self.report + self.wide

    def choosing(self, candidates: int) -> float:
        """Seconds of choosing an ensemble and its temperature, for each row."""
        return CHOOSING_STEPS * candidates * self.cell + CHOOSING_PASSES * self.whole / self.rows

    def scoring(self, candidates: int) -> float:
        """Seconds of the fewest bootstrap samples and of what averaging adds, for each row."""
        samples = FEWEST_BOOTSTRAPS * (SCORING_STEPS * candidates * self.cell + SCORING_PASSES * self.whole / self.rows)
        return samples + self.forward + AVERAGING_PASSES * self.whole / self.rows

    def reserve(self, budget: float, candidates: int, sampled: int) -> float:
        """Seconds to keep back for the end: what cannot be left out, and as much of the rest as is worth its time."""
        known = min(candidates, ENSEMBLE_CANDIDATES)
        least = self.choosing(min(known, FEWEST_CANDIDATES)) * min(self.rows, FEWEST_ENSEMBLE_ROWS)
        least += self.scoring(known) * min(sampled, FEWEST_SCORED)
        wanted = (self.choosing(known) * self.rows + self.scoring(known) * sampled) / (CHOOSING_SHARE + SCORING_SHARE)
        more = min(max(wanted, LEAST_END_SHARE * budget), MOST_END_SHARE * budget)
        return SAFETY_FACTOR * self.fixed + max(SAFETY_FACTOR * least, more)

    def finish(self, left: float, candidates: int, rows: int, sampled: int) -> tuple[Effort, float]:
        """What to reduce at the end, and the seconds that the honest score may take.

        `candidates` of the ensemble, `rows` to choose it on, `sampled` rows of the honest score.
        """
        there = max(left - self.fixed, 0.1)
        known = min(candidates, ENSEMBLE_CANDIDATES)
        each = CHOOSING_STEPS * self.cell * rows
        few = int(min(known, max(FEWEST_CANDIDATES, CHOOSING_SHARE * there / each)))
        ensemble_rows = int(min(rows, max(FEWEST_ENSEMBLE_ROWS, CHOOSING_SHARE * there / self.choosing(few))))
        seconds = SCORING_SHARE * there
        scored = int(min(sampled, max(FEWEST_SCORED, seconds / self.scoring(known))))
        effort = Effort(
            candidates=few if few < known else None,
            ensemble_rows=ensemble_rows if ensemble_rows < rows else None,
            sampled=scored if scored < sampled else None,
        )
        return effort, seconds

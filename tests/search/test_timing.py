"""How the seconds of a budget are shared out, and what is left out where they are too few."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.search.budget.clock import SECONDS_AFTER_INTERRUPT, Clock
from shoal.search.budget.shares import FIRST_EPOCH_SHARE, SEARCH_SHARE, Effort, Pace, Passes
from shoal.search.scoring.picks import ENSEMBLE_CANDIDATES

FOLDS = (8, 3, 2)


seconds_a_row = st.floats(1e-8, 1e-3)


paces = st.builds(Pace, fixed=st.floats(0, 1), row=seconds_a_row, epoch=seconds_a_row, end=st.floats(1e-9, 1e-5))


class Slowing:
    """A computer that becomes slower at some moment; its time passes with its work."""

    def __init__(self, slow_at: float, slower: float) -> None:
        self.time, self.slow_at, self.slower = 0.0, slow_at, slower

    def now(self) -> float:
        return self.time

    def speed(self) -> float:
        return self.slower if self.time >= self.slow_at else 1.0

    def work(self, seconds: float) -> None:
        fast = max(0.0, min(seconds, self.slow_at - self.time))
        self.time += fast + (seconds - fast) * self.slower


@settings(deadline=None)
@given(paces, st.floats(1, 1000), st.integers(20, 10_000_000))
def test_most_of_the_time_is_for_the_search_or_all_that_may_be_is_left_out(pace: Pace, left: float, rows: int) -> None:
    effort = pace.reduced(left, rows, FOLDS, fewer_rows=True)
    kept, folds, encodings = effort.rows or rows, effort.folds or FOLDS[0], 0.5 if effort.encodings else 1.0
    other = pace.encoding(kept, folds, encodings) + pace.end * kept
    fits = other <= (1 - SEARCH_SHARE) * left and pace.first_epoch(kept, folds, encodings) <= FIRST_EPOCH_SHARE * left
    assert fits or (kept == min(rows, 2000) and folds == FOLDS[-1] and encodings == 0.5)
    if effort.rows is not None:
        assert folds == FOLDS[-1]  # rows go last
    assert replace(pace, spare=False).reduced(left, rows, FOLDS, fewer_rows=True).encodings is None
    again = pace.reduced(1e9, rows, FOLDS, fewer_rows=True)
    assert again == Effort()
    assert pace.reduced(left, rows, FOLDS, fewer_rows=False).rows is None


@settings(max_examples=200, deadline=None)
@given(
    paces, st.integers(1000, 1_000_000), st.floats(10, 300), st.floats(0.1, 0.5), st.floats(0, 400), st.floats(1, 2),
    st.floats(1e-9, 1e-7), st.floats(1e-9, 2e-8), st.integers(1, 400),
)  # fmt: skip
def test_a_run_ends_in_time_on_any_machine_that_may_become_twice_as_slow(
    pace: Pace, rows: int, budget: float, reading: float, slow_at: float, slower: float, whole: float, cell: float,
    candidates: int,
) -> None:  # fmt: skip
    """All phases on a clock of its own: each takes what was predicted, times what the machine has become slower by."""
    machine = Slowing(slow_at, slower)
    clock = Clock(budget, machine.now(), now=machine.now)
    machine.work(reading * budget / slower)
    now = machine.speed()
    pace = Pace(pace.fixed, pace.row, pace.epoch, 37 * whole)
    told = Pace(now * pace.fixed, now * pace.row, now * pace.epoch, now * pace.end)
    effort = told.reduced(clock.time_left(), rows, FOLDS, fewer_rows=True)
    rows, folds = effort.rows or rows, effort.folds or FOLDS[0]
    encodings = 0.5 if effort.encodings else 1.0
    machine.work(pace.encoding(rows, folds, encodings))
    while clock.left() > 0:  # training is stopped by the clock, a tenth of a second late at most
        passes = measured(machine, rows, whole, cell)
        clock.reserve = passes.reserve(budget, candidates, min(rows, 16_000))
        machine.time += max(min(clock.left(), budget / 10), 0.1)
    passes = measured(machine, rows, whole, cell)
    last, seconds = passes.finish(clock.time_left(), candidates, rows, min(rows, 16_000))
    known = min(candidates, ENSEMBLE_CANDIDATES)
    machine.work(passes.choosing(last.candidates or known) * (last.ensemble_rows or rows) / machine.speed())
    sampled = last.sampled or min(rows, 16_000)
    at_least = machine.now() + seconds  # more samples than the fewest are drawn until the clock says so
    machine.work(passes.scoring(known) * sampled / machine.speed())
    machine.time = max(machine.time, at_least)
    machine.work(passes.fixed / machine.speed())
    if told.encoding(rows, folds, encodings) + told.end * rows <= (1 - SEARCH_SHARE) * budget * (1 - reading):
        assert machine.now() <= budget + max(2.0, 0.05 * budget)


def measured(machine: Slowing, rows: int, whole: float, cell: float) -> Passes:
    """What a trial says now, if a row of a pass takes `whole` and a number of it `cell` on a fast machine."""
    return Passes(rows, whole * rows * machine.speed(), cell * machine.speed(), True, 0.3 * machine.speed())


def test_an_interrupt_is_a_budget_of_its_own() -> None:
    machine = Slowing(1e9, 1.0)
    endless, short = Clock(None, 0.0, now=machine.now), Clock(10.0, 0.0, now=machine.now)
    machine.work(9.5)
    for clock, left in ((endless, SECONDS_AFTER_INTERRUPT), (short, 0.5)):
        clock.hurry()
        assert clock.time_left() == pytest.approx(left)
        assert clock.left() <= left

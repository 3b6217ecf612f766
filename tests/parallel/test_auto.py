"""Strategy `auto`: what it measures, what it chooses, and how long that takes on a clock that the tests control."""

from __future__ import annotations

import pytest
from support.parallel_cases import data, network

from shoal.parallel.job import Job
from shoal.parallel.strategies import TABLE, auto
from shoal.parallel.strategies.auto import TimedJob, _pick, choose


def test_another_way_than_the_plain_loop_is_chosen_only_where_it_is_clearly_faster():
    def candidate(strategy, seconds):
        return TimedJob(strategy, Job(strategy=strategy, workers=1 + (strategy == "allreduce")), seconds)

    plain = candidate("blas", 1.0)
    for strategy in ("serial", "allreduce"):
        faster, even = candidate(strategy, 0.5), candidate(strategy, 0.97)
        assert _pick([plain, faster]) is _pick([faster, plain]) is faster
        assert _pick([even, plain]) is plain


class Counted:
    """Real training steps on a simulated clock; making an updater takes a third of a plain step."""

    def __init__(self, monkeypatch, **seconds: float) -> None:
        self.seconds, self.now, self.steps = seconds, 0.0, 0
        for name in ("blas", "allreduce", "serial"):
            monkeypatch.setattr(TABLE[name], "updater", self._counted(TABLE[name].updater), raising=False)
        monkeypatch.setattr(auto, "thread_count", lambda: 4)

    def _counted(self, make):
        def counted(job, *arguments):
            self.now += self.seconds["blas"] / 3
            updater = make(job, *arguments)
            take = updater.round

            def step(*given):
                self.now += self.seconds[job.strategy]
                self.steps += 1
                return take(*given)

            updater.round = step
            return updater

        return counted

    def choose(self, steps: int, kind: str = "plain") -> tuple[str, str]:
        notes: list[str] = []

        def notify(event: str, text: str) -> bool:
            notes.append(text)
            return False

        self.now = self.steps = 0
        job = Job(epochs=steps, batch_size=32)
        chosen = choose(job, network(kind), data(32), notify, lambda: self.now)
        first, *others = notes
        if "measured beside it" in first:
            assert "chosen by the clock" in others[0]
            assert f"--strategy {chosen.strategy}" in others[0]
        else:
            assert not others
        return chosen.strategy, first


def test_auto_measures_within_a_hundredth_of_the_run_or_not_at_all(monkeypatch):
    counted = Counted(monkeypatch, blas=0.002, allreduce=0.001, serial=0.006)
    small = ("serial", "one process with 1 thread: 30 steps are too few to measure other ways, and a step is too small "
             "to gain by more threads")  # fmt: skip
    assert counted.choose(30) == small
    assert counted.steps == 0
    for steps in (900, 1500, 3000, 10_000):
        strategy, note = counted.choose(steps)
        assert 0 < counted.now <= 0.01 * steps * 0.002, steps
        assert strategy == ("serial" if "too few" in note else "allreduce")
    assert note.startswith("chosen: 4 threads that share each batch: 1 ms a step (measured beside it: one process with")
    assert counted.steps > 20
    counted.seconds = {"blas": 0.2, "allreduce": 0.1, "serial": 0.6}
    counted.choose(4000)
    assert counted.now <= 5.0, "more would tell nothing new"


def test_what_is_not_measured_has_all_threads_where_a_step_is_large_enough(monkeypatch):
    counted = Counted(monkeypatch, blas=0.002, allreduce=0.001, serial=0.006)
    monkeypatch.setattr(auto, "SMALL_STEP_FLOPS", 1e5)  # a step of 32 rows has 2e5
    assert counted.choose(30) == ("blas", "one process with 4 BLAS threads: 30 steps are too few to measure other ways")
    monkeypatch.setattr(auto, "thread_count", lambda: 1)
    assert counted.choose(30) == ("blas", "one process with 1 BLAS thread: there is one core")


def test_the_time_of_imports_is_not_taken_from_that_of_measuring(monkeypatch):
    """The first trial of a network in a process takes a second, as long as many steps."""
    counted = Counted(monkeypatch, blas=0.002, allreduce=0.001, serial=0.006)
    look = auto._can_share_batches

    def slow(*given):
        counted.now += 1.35
        return look(*given)

    monkeypatch.setattr(auto, "_can_share_batches", slow)
    assert counted.choose(10_000)[0] == "allreduce"


def test_auto_stays_with_the_plain_loop_where_others_are_slower(monkeypatch):
    counted = Counted(monkeypatch, blas=0.002, allreduce=0.003, serial=0.1)
    strategy, note = counted.choose(20_000)
    assert strategy == "blas"
    assert "chosen: one process with 4 BLAS threads: 2 ms a step" in note


@pytest.mark.parametrize(("kind", "chosen"), [("plain", "allreduce"), ("random", "blas"), ("stateful", "blas")])
def test_auto_measures_only_what_ends_alike_but_for_rounding(kind, chosen, monkeypatch):
    """With dropout or batch normalisation, workers that share a batch compute something else than the plain loop."""
    counted = Counted(monkeypatch, blas=0.002, allreduce=0.001, serial=0.006)
    strategy, note = counted.choose(5_000, kind)
    assert strategy == chosen
    assert ("threads that share each batch" in note) == (chosen == "allreduce")

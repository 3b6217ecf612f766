"""The search: propose recipes, train them to a rung, assess them, drop the worse, continue.

`Search.run` is a generator: it gives back control after each rung, so that anyone can watch it, step it or end it.
What was done is written down as it happens (`Search.log`), so that a run that was ended by the clock can be repeated
to the bit without one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from shoal.callbacks import Callbacks
from shoal.metrics.metric import Metric
from shoal.search.budget.clock import Clock, Decisions
from shoal.search.budget.costs import (
    Costs,
    Limits,
    choose_sample,
    shortened,
)
from shoal.search.events import Progress, RungEnded
from shoal.search.problem.problem import Problem
from shoal.search.rounds.candidates import (
    Batch,
    Candidate,
    LocalTrainer,
    LogEntry,
    Order,
    Trainer,
    pools_of,
    read_recipes,
)
from shoal.search.rounds.proposals import (
    MEASURING,
    MORE_SEEDS,
    ONE_EPOCH,
    REPEATING,
    SEARCHING,
    Round,
    best_of,
    rounds_of,
)
from shoal.search.rounds.training import Control
from shoal.search.scoring.evidence import Samples
from shoal.search.space import Recipe
from shoal.search.strategies import Rung, SearchStrategy

KEPT_CANDIDATES = 128  # finished candidates whose weights and whole predictions are kept for the ensemble
LATE_SHARE = 0.3  # of the time kept back that assessing may use up
INTERRUPTED, BUDGET = "interrupted", "budget"  # why a search ended early

Rungs = Generator[RungEnded, None, None]


class Search:
    """What has been tried on a problem, and how to continue. Time comes from the clock that it is given."""

    def __init__(
        self,
        problem: Problem,
        metric: Metric,
        limits: Limits,
        clock: Clock,
        callbacks: Callbacks | None = None,
        trainer: Trainer | None = None,
        decisions: Decisions | None = None,
        after_round: Callable[[Search], None] | None = None,
    ) -> None:
        """`after_round` may set the clock's reserve."""
        self.problem, self.metric, self.limits, self.clock = problem, metric, limits, clock
        self.callbacks = callbacks or Callbacks()
        self.trainer = trainer or LocalTrainer(problem, metric, limits.seed, limits.threads, now=clock.now)
        self.decisions = decisions or Decisions()
        self.after_round = after_round
        self.candidates: list[Candidate] = []
        self._recipes: set[Recipe] = set()  # those of all candidates, whatever their seeds
        self._kept: list[Candidate] = []  # those that may still be in the model: few, however many were tried
        self.log: list[dict[str, Any]] = []
        self.costs = Costs(problem, limits)
        self.ended = ""  # why it ended early
        self._notes_said = 0
        self._recalling = True  # nothing was trained yet but what is in the journal
        self.sample_rows = choose_sample(problem, limits.seed)
        self.samples = Samples(self.sample_rows, problem.task.n_outputs)

    # ---- the whole ----

    def run(self, strategy: SearchStrategy) -> Rungs:
        """All rounds of a strategy, then more seeds of the best; again, while these leave time."""
        return self._execute(rounds_of(self, strategy))

    def warm_up(self, recipes: Sequence[Recipe]) -> Rungs:
        """One epoch of a few recipes to learn the speed; of the first, whatever the clock says, to have a result."""
        first = [Round(recipes[:1], ONE_EPOCH, MEASURING, must=True)]
        return self._execute([*first, Round(recipes[1:], ONE_EPOCH, MEASURING)] if len(recipes) > 1 else first)

    def _execute(self, rounds: Iterable[Round]) -> Rungs:
        """Train the recipes of each round rung by rung; after each, the better share continues from where it stands."""
        with self._early_end():
            for one in rounds:
                with self._new_round(one.recipes) as (candidates, entry):
                    if one.stage != MORE_SEEDS:  # known to come, and counted, since the first round
                        self.costs.plan(candidates, one.rungs)
                    going = candidates
                    for k, (share, kept) in enumerate(one.rungs):
                        must, last = one.must and k == 0, k + 1 == len(one.rungs)
                        until = {each.number: [each.epochs_at(share)] * len(self.problem.folds) for each in going}
                        trained = self._train(going, until, one.stage, must, until.keys() if last else ())
                        self._check_end(must)
                        going = trained if last else best_of(trained, max(1, round(kept * len(going))))
                        yield self._rung_ended(candidates, entry, one.stage, trained, going)
                        if not going:
                            break
                        self._check_end(must=True)

    def repeat(self, log: Iterable[dict[str, Any]]) -> Rungs:
        """Do again what an earlier search has written down."""
        with self._early_end():
            for earlier in log:
                with self._new_round(read_recipes(earlier)) as (candidates, entry):
                    for place, rung in enumerate(earlier["rungs"]):
                        going = [candidates[k] for k in rung["trained"]]
                        until = {one.number: epochs for one, epochs in zip(going, rung["epochs"], strict=True)}
                        later = {k for other in earlier["rungs"][place + 1 :] for k in other["trained"]}
                        last = {candidates[k].number for k in rung["trained"] if k not in later}
                        trained = self._train(going, until, REPEATING, must=True, last=last)
                        self._check_end(must=True)
                        kept = [candidates[k] for k in rung["kept"]]
                        yield self._rung_ended(candidates, entry, REPEATING, trained, kept)
            self.restore()

    def end(self) -> None:
        """End it soon, with the best so far."""
        self.ended = INTERRUPTED
        self.clock.hurry()

    def fitting_epochs(self, epochs: int, rungs: Sequence[Rung]) -> int:
        """As many of these epochs as leave time for enough recipes; known after a warm-up."""
        earlier = self.decisions.earlier("epochs")
        if earlier is not None or not self.costs.rate or self.ended:
            return epochs if earlier is None else int(earlier)
        each = self.costs.epoch_seconds([candidate.recipe for candidate in self.candidates])
        return int(self.decisions.note("epochs", shortened(epochs, rungs, self.clock.left() / max(each, 1e-12))))

    @contextmanager
    def _early_end(self) -> Iterator[None]:
        """The clock, a callback or Ctrl-C may end what is inside; Ctrl-C is passed on to the caller."""
        try:
            yield
        except _EndedEarly as end:
            self.ended = str(end)
            self.restore()
        except KeyboardInterrupt:
            self.ended = INTERRUPTED
            raise
        if self.clock.hurried:  # between two rounds, perhaps
            self.ended = INTERRUPTED

    # ---- one round ----

    @contextmanager
    def _new_round(self, recipes: Sequence[Recipe]) -> Iterator[tuple[list[Candidate], LogEntry]]:
        """Candidates of new recipes, and the entry of the log that says what was done, however it ends."""
        candidates = self._new_candidates(recipes)
        entry = LogEntry(candidates)
        self.log.append(entry.content)
        try:
            yield candidates, entry
        except BaseException as error:
            self._settle(candidates)
            if isinstance(error, _EndedEarly):
                self._leave_out_lost(candidates)
            entry.write_end([candidate for candidate in candidates if candidate.pool is not None])
            self._keep_best()
            raise
        else:
            self._keep_best()
            self.trainer.keep(self._kept)  # not after an early end: a later attempt goes on with all that there was
        finally:
            if self.after_round is not None and not self.ended:
                self.after_round(self)

    def _new_candidates(self, recipes: Sequence[Recipe]) -> list[Candidate]:
        default = self.limits.default_epochs
        candidates: list[Candidate] = []
        for recipe in recipes:
            if recipe.member.epochs is None:
                recipe = Recipe(recipe.member.replace(epochs=default), recipe.encoding)
            candidates.append(Candidate(len(self.candidates) + len(candidates), recipe))
        self.candidates.extend(candidates)
        self._recipes.update(candidate.key for candidate in candidates)
        self._kept.extend(candidates)
        return candidates

    def _train(
        self,
        candidates: Sequence[Candidate],
        until: dict[int, list[int]],
        stage: str,
        must: bool,
        last: Collection[int] = (),
    ) -> list[Candidate]:
        """Train candidates and assess them; those that were trained as far as asked, in order.

        `last`: numbers of those that are not trained further after it.
        """
        orders = [Order.of(self.problem, one, until[one.number], one.number in last) for one in candidates]
        before = {candidate.number: candidate.epochs for candidate in candidates}
        done: list[Candidate] = []
        begun, work, recalled = self.clock.now(), 0.0, 0.0
        with closing(self.trainer.train(orders, self._control(stage, must))) as batches:
            for batch in batches:
                trained = batch.hand_over(self.problem, self.samples)
                self._report(batch)
                if trained:
                    if not batch.found and self.callbacks.notify("progress", self._progress(stage, trained)):
                        self.end()
                    work += self.costs.account(trained, before, batch.seconds)
                    recalled += batch.seconds * batch.found
                done.extend(trained)
                self._recalling &= batch.found
                if self.ended or (self._time_is_up() and not must):
                    break
        self._say_notes()
        self.costs.measured(work, self.clock.now() - begun + recalled / self.trainer.slots())
        return sorted(done, key=lambda candidate: candidate.number)

    def _report(self, batch: Batch) -> None:
        """Say so where nobody could train candidates."""
        if batch.skip_reason:
            named = "; ".join(f"{one.number}: {one.recipe}" for one in batch.candidates)
            self.say(f"skipped, because {batch.skip_reason}: recipe {named}")

    def _say_notes(self) -> None:
        """What the user should know of the workers, once each."""
        notes = [] if self.trainer.status is None else self.trainer.status.notes
        while len(notes) > self._notes_said:
            self._notes_said += 1
            self.say(notes[self._notes_said - 1])

    def say(self, text: str) -> None:
        """Something that the user should know."""
        if self.callbacks.listens("note"):
            self.callbacks.notify("note", text)
        else:
            warnings.warn(text, stacklevel=2)

    def _control(self, stage: str, must: bool) -> Control:
        """Training ends when a callback says so or the time is up; with `must`, only the former."""
        needed = must or not self.best_candidates()
        latest = -LATE_SHARE * self.clock.reserve

        def stop() -> bool:
            self._say_notes()
            if self.callbacks.notify("progress", self._progress(stage)):
                self.end()
                return True
            return self.clock.left() <= 0 and not must

        return Control(stop, lambda: not needed and self.clock.left() < latest)

    def _rung_ended(
        self,
        candidates: Sequence[Candidate],
        entry: LogEntry,
        stage: str,
        trained: list[Candidate],
        kept: list[Candidate],
    ) -> RungEnded:
        """Write the rung down, and drop the weights of those that do not continue."""
        entry.write(trained, kept)
        staying = {candidate.number for candidate in kept}
        for candidate in candidates:
            if candidate.number not in staying:
                candidate.prediction = None
        for pool in pools_of(candidates):
            pool.keep(kept)
        for candidate in candidates:
            candidate.dropped = candidate.number not in staying
        return RungEnded(stage, trained, kept)

    def _settle(self, candidates: Sequence[Candidate]) -> None:
        """After an early end: where nothing else is there to give, take networks as they stand; else leave them out."""
        pools = pools_of(candidates)
        stale = {candidate.number for pool in pools for candidate in pool.moved_on()}
        stale |= {candidate.number for candidate in candidates if candidate.pool is None}
        needed = not any(candidate.number not in stale for candidate in self.best_candidates())
        for pool in pools:
            moved = [candidate for candidate in pool.moved_on() if needed and (pool.epochs_of(candidate) > 0).all()]
            unknown = [one for one in pool.candidates if needed and one not in moved and one.predictions_missing]
            if moved or unknown:
                pool.assess([*moved, *unknown], self.metric, self.samples, self.limits.threads)
            left_out = {candidate.number for candidate in pool.moved_on()}
            pool.keep([candidate for candidate in pool.candidates if candidate.number not in left_out])

    def _leave_out_lost(self, candidates: Sequence[Candidate]) -> None:
        """After an early end: those whose weights are not here, but for the best where there is nothing else."""
        lost = [candidate for candidate in candidates if candidate.pool is None and not candidate.dropped]
        others = {candidate.number for candidate in self.best_candidates()} - {candidate.number for candidate in lost}
        if not others:
            self._train_anew(best_of(lost, 1))
        for candidate in [one for one in lost if one.pool is None]:
            candidate.forget()

    def _keep_best(self) -> None:
        """Keep weights of the best finished candidates over all rounds, by loss and by score; forget all others."""
        by_loss = self.best_candidates()
        by_score = sorted(by_loss, key=lambda candidate: (-candidate.score, candidate.loss))
        best = by_loss[:KEPT_CANDIDATES] + by_score[: KEPT_CANDIDATES // 4]
        staying = {candidate.number for candidate in best}
        pools = pools_of(self._kept)
        for candidate in self._kept:
            if candidate.number not in staying and not candidate.dropped:
                candidate.prediction = None
                candidate.dropped = True
        for pool in pools:
            pool.keep(best)
        self._kept = [candidate for candidate in self._kept if candidate.number in staying]

    def restore(self) -> None:
        """Train again those of the best whose weights got lost with a worker or a damaged file: the same bits."""
        lost = [candidate for candidate in self.best_candidates() if candidate.pool is None]
        self._train_anew(lost)
        for candidate in [one for one in lost if one.pool is None]:  # nobody could
            candidate.forget()

    def _train_anew(self, lost: Sequence[Candidate]) -> None:
        """Train candidates to where they were assessed. Nothing ends it: networks on the way there are of no use."""

        def stop() -> bool:
            self._say_notes()
            self.callbacks.notify("progress", self._progress(SEARCHING))
            return False

        orders = [Order.of(self.problem, one, one.fold_epochs.tolist(), last=True) for one in lost]
        if orders:
            with closing(self.trainer.train(orders, Control(stop), anew=True)) as batches:
                for batch in batches:
                    batch.hand_over(self.problem, self.samples)
                    self._report(batch)

    # ---- questions ----

    def best_candidates(self) -> list[Candidate]:
        """Candidates for the model, best first: finished ones; if there are none, all that have weights."""
        known = [one for one in self._kept if one.prediction is not None and not one.dropped]
        finished = [candidate for candidate in known if candidate.finished] or known
        return best_of(finished, len(finished))

    def _progress(self, stage: str, trained: Sequence[Candidate] = ()) -> Progress:
        known = len(self.candidates) - sum(not candidate.epochs for candidate in self._kept)
        best = max(best_of(self._kept, len(self._kept)), key=lambda one: (one.finished, one.score), default=None)
        budget = self.clock.budget
        share = self.costs.share_done() if budget is None else self.clock.elapsed() / budget
        recipes = min(known, len(self._recipes))  # more seeds of a recipe are no more recipes
        return Progress(stage, share, recipes, best, self.trainer.status, trained)

    def _time_is_up(self) -> bool:
        """Not while an earlier attempt is done again from its journal: then there was time for it."""
        return self.clock.left() <= 0 and not self._recalling

    def _check_end(self, must: bool) -> None:
        if self.ended or (self._time_is_up() and not must):
            raise _EndedEarly(self.ended or (INTERRUPTED if self.clock.hurried else BUDGET))


class _EndedEarly(Exception):
    """The clock or the user has ended the search."""

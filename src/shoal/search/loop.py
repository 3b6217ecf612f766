"""The search itself: rounds of recipes, trained rung by rung as one population, until the work or the time is done.

What was done is written down as it happens (`Search.log`), so that a run that was ended by the clock can be repeated to
the bit without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.metrics.metric import Metric
from shoal.search.candidates import Candidate, Pool, candidate_cost
from shoal.search.log import LogEntry, read_recipes
from shoal.search.problem import Problem
from shoal.search.space import Recipe
from shoal.search.strategies import TO_THE_END, Listed, Rung, Strategy
from shoal.search.timing import Clock

LARGEST_ROUND = 1 << 31  # bytes of weights and moments that a round may take
FEWEST_PER_ROUND = 4
MOST_PER_ROUND = 400
ONE_EPOCH: tuple[Rung, ...] = ((0.0, 1.0),)
WANTED_RECIPES = 60  # that should fit into a budget; recipes are made shorter for it
ROUNDS = 5  # aimed at, with a budget
KEPT_CANDIDATES = 128  # finished candidates whose weights and whole predictions are kept for the ensemble
SAMPLE_CELLS = 1 << 15  # rows times outputs of each candidate's predictions kept for honest estimates
SEEDS_SHARE = 0.15  # of the time, for more seeds of the best
MORE_SEEDS = "more seeds"
FINALISTS = 6  # recipes that get more seeds
ASSESSED_CELLS = 1 << 24  # rows times outputs times candidates that are assessed at a time
LATE_SHARE = 0.3  # of the time kept back that assessing may use up


@dataclass
class Progress:
    """What a watcher is told, several times a second."""

    stage: str
    share: float  # of the whole search, 0 to 1
    candidates: int  # recipes with a result
    best: Candidate | None


Watcher = Callable[[Progress], bool]  # True: end the search now, with the best so far


@dataclass
class Limits:
    """How much is to be done, where the clock does not decide."""

    recipes: int
    seeds: int
    finalists: int
    default_epochs: int
    threads: int | None
    seed: int


class Search:
    """Runs a strategy on a problem."""

    def __init__(
        self,
        problem: Problem,
        metric: Metric,
        limits: Limits,
        clock: Clock,
        watcher: Watcher | None = None,
        keep_on_interrupt: bool = False,
    ) -> None:
        self.problem, self.metric, self.limits, self.clock = problem, metric, limits, clock
        self.watcher, self.keep_on_interrupt = watcher, keep_on_interrupt
        self.keep_back: Callable[[], None] | None = None  # asked after each round to set the clock's reserve
        self.candidates: list[Candidate] = []
        self.log: list[dict[str, Any]] = []
        self.rate = 0.0  # seconds per unit of cost, as measured last
        self.spent = 0.0  # cost of all training so far
        self.planned = 0.0  # cost of all rounds begun so far, and of the seeds to come
        self.network_epochs = 0
        self.ended = ""  # why it ended early: "budget" or "interrupted"
        self.training_seconds = 0.0
        self.sample_rows = self._choose_sample()

    # ---- the whole ----

    def warm_up(self, recipes: Sequence[Recipe]) -> None:
        """One epoch of a few recipes to learn the speed; of the first, whatever the clock says, to have a result."""
        with self._early_end():
            self.round(recipes[:1], ONE_EPOCH, "measuring", must=True)
            if len(recipes) > 1:
                self.round(recipes[1:], ONE_EPOCH, "measuring")

    def fitting_epochs(self, epochs: int, rungs: Sequence[Rung]) -> int:
        """As many of these epochs as leave time for enough recipes; known after a warm-up."""
        if not self.rate or self.ended:
            return epochs
        each = self.rate * float(
            np.mean([candidate_cost(self.problem, candidate.recipe) for candidate in self.candidates])
        )
        return shortened(epochs, rungs, self.clock.left() / max(each, 1e-12))

    def run(self, strategy: Strategy) -> None:
        """All rounds, then more seeds of the best."""
        if self.ended:
            return
        with self._early_end():
            if self.clock.budget is None:
                self._rounds_by_count(strategy)
            else:
                self._rounds_by_time(strategy)
            self._more_seeds()

    @contextmanager
    def _early_end(self) -> Iterator[None]:
        """The clock ends the search here; so does Ctrl-C, if what is known is to be kept."""
        try:
            yield
        except _EndedEarly as end:
            self.ended = str(end)
        except KeyboardInterrupt:
            self.ended = "interrupted"
            if not self.keep_on_interrupt:
                raise
        if self.clock.hurried:  # between two rounds, perhaps
            self.ended = "interrupted"

    def repeat(self, log: Iterable[dict[str, Any]]) -> None:
        """Do again what an earlier search has written down."""
        with self._early_end():
            for earlier in log:
                with self._new_round(read_recipes(earlier)) as (candidates, pools, entry):
                    for rung in earlier["rungs"]:
                        numbers = [candidates[k].number for k in rung["trained"]]
                        until = dict(zip(numbers, rung["epochs"], strict=True))
                        done = self._train(pools, until, "repeating", must=True)
                        self._check_end(must=True)
                        kept = [candidates[k] for k in rung["kept"]]
                        entry.write(done, kept)
                        self._drop(pools, kept)

    def _rounds_by_count(self, strategy: Strategy) -> None:
        left = self.limits.recipes
        known_list = isinstance(strategy, Listed)
        while left > 0 or known_list:
            recipes = strategy.propose(
                self._round_limit() if known_list else min(left, self._round_limit()), self.candidates
            )
            if not recipes:
                break
            strategy.learn(self.round(recipes, strategy.rungs, "searching"))
            left -= len(recipes)

    def _rounds_by_time(self, strategy: Strategy) -> None:
        """Rounds until the time is up, but for the share kept for more seeds."""
        rounds = 0
        kept = SEEDS_SHARE * self.clock.left() if self.limits.seeds > 1 else 0.0
        while True:
            left = self.clock.left() - kept
            recipes = self._propose_for(strategy, left / max(1, ROUNDS - rounds))
            if not recipes or (rounds and self.seconds(recipes, strategy.rungs) > 1.5 * left):
                return
            rungs = strategy.rungs if self.rate else (*ONE_EPOCH, *strategy.rungs)
            strategy.learn(self.round(recipes, rungs, "searching", must=not self.rate))
            rounds += 1

    def _propose_for(self, strategy: Strategy, seconds: float) -> list[Recipe]:
        """Recipes that take about so long, at the speed measured last; a few, while it is not known."""
        recipes: list[Recipe] = []
        most = min(MOST_PER_ROUND, self._round_limit())
        while len(recipes) < most:
            more = strategy.propose(min(FEWEST_PER_ROUND, most - len(recipes)), self.candidates)
            recipes += more
            if not more or not self.rate or self.seconds(recipes, strategy.rungs) >= seconds:
                break
        return recipes

    def _more_seeds(self) -> None:
        """The best recipes again with other seeds: what is left of their lead is not luck."""
        best = self.best_candidates()
        while True:
            chosen = self._without_enough_seeds(best)[: self.limits.finalists]
            if not chosen:
                return
            if self.clock.budget is not None:
                each = self.seconds([candidate.recipe for candidate in chosen], TO_THE_END) / len(chosen)
                chosen = chosen[: max(0, int(self.clock.left() / each))]
                if not chosen:
                    return
            recipes = [self._with_new_seed(candidate.recipe) for candidate in chosen]
            self.round(recipes, TO_THE_END, MORE_SEEDS)
            best = best[: self.limits.finalists] if self.clock.budget is None else self.best_candidates()

    def _without_enough_seeds(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        counts: dict[Recipe, int] = {}
        for candidate in self.candidates:
            counts[candidate.key] = counts.get(candidate.key, 0) + candidate.finished
        found, seen = [], set()
        for candidate in candidates[: self.limits.finalists]:
            if counts[candidate.key] < self.limits.seeds and candidate.key not in seen:
                seen.add(candidate.key)
                found.append(candidate)
        return found

    def _with_new_seed(self, recipe: Recipe) -> Recipe:
        taken = {candidate.recipe.member.seed for candidate in self.candidates if candidate.key == recipe.key}
        seed = max(taken) + 1
        return Recipe(recipe.member.replace(seed=seed if seed < 1 << 62 else 0), recipe.encoding)

    # ---- one round ----

    def round(
        self, recipes: Sequence[Recipe], rungs: Sequence[Rung], stage: str, must: bool = False
    ) -> list[Candidate]:
        """Train new recipes rung by rung; after each, the better share goes on from where it stands."""
        with self._new_round(recipes) as (candidates, pools, entry):
            work = sum(candidate_cost(self.problem, candidate.recipe) * candidate.target for candidate in candidates)
            if stage != MORE_SEEDS:  # known to come, and counted, since the first round
                seeds = 0.0 if self.planned else (self.limits.seeds - 1) * self.limits.finalists / len(candidates)
                self.planned += work * (work_share(rungs) + seeds)
            going = candidates
            for k, (share, kept) in enumerate(rungs):
                until = {
                    candidate.number: [_epochs_at(share, candidate)] * len(self.problem.folds) for candidate in going
                }
                last = k + 1 == len(rungs)
                done = self._train(pools, until, stage, must=must and k == 0)
                self._check_end(must and k == 0)
                going = done if last else self._best(done, max(1, round(kept * len(going))))
                entry.write(done, going)
                self._drop(pools, going)
                if not going:
                    break
        return candidates

    @contextmanager
    def _new_round(self, recipes: Sequence[Recipe]) -> Iterator[tuple[list[Candidate], list[Pool], LogEntry]]:
        """Candidates of new recipes, their pools, and the entry of the log that says what was done, however it ends."""
        candidates = self._new_candidates(recipes)
        pools = self._pools(candidates)
        entry = LogEntry(candidates)
        self.log.append(entry.content)
        try:
            yield candidates, pools, entry
        except BaseException:
            self._settle(pools)
            entry.write_end([candidate for pool in pools for candidate in pool.candidates])
            raise
        finally:
            self._end_round()
            if self.keep_back is not None and not self.ended:
                self.keep_back()

    def _settle(self, pools: Sequence[Pool]) -> None:
        """After an early end: where nothing else is there to give, take networks as they stand; else leave them out."""
        stale = {candidate.number for pool in pools for candidate in pool.moved_on()}
        needed = not any(candidate.number not in stale for candidate in self.best_candidates())
        for pool in pools:
            moved = [candidate for candidate in pool.moved_on() if needed and (pool.epochs_of(candidate) > 0).all()]
            if moved:
                pool.assess(moved, self.metric, self.limits.threads)
                for candidate in moved:
                    candidate.sample = None if candidate.prediction is None else candidate.prediction[self.sample_rows]
            left_out = {candidate.number for candidate in pool.moved_on()}
            pool.keep([candidate for candidate in pool.candidates if candidate.number not in left_out])

    def _new_candidates(self, recipes: Sequence[Recipe]) -> list[Candidate]:
        default = self.limits.default_epochs
        candidates: list[Candidate] = []
        for recipe in recipes:
            if recipe.member.epochs is None:
                recipe = Recipe(recipe.member.replace(epochs=default), recipe.encoding)
            candidates.append(Candidate(len(self.candidates) + len(candidates), recipe))
        self.candidates.extend(candidates)
        return candidates

    def _pools(self, candidates: Sequence[Candidate]) -> list[Pool]:
        encodings = [
            encoding
            for encoding in self.problem.inputs
            if any(candidate.recipe.encoding == encoding for candidate in candidates)
        ]
        return [
            Pool(self.problem, encoding, [u for u in candidates if u.recipe.encoding == encoding])
            for encoding in encodings
        ]

    def _train(self, pools: Sequence[Pool], until: dict[int, list[int]], stage: str, must: bool) -> list[Candidate]:
        """Train candidates of several pools and assess them; those that were trained as far as asked, in order."""
        done: list[Candidate] = []
        for pool in pools:
            mine = {
                candidate.number: until[candidate.number] for candidate in pool.candidates if candidate.number in until
            }
            if not mine:
                continue
            begun = self.clock.now()
            before = {candidate.number: candidate.epochs for candidate in pool.candidates}
            ended = pool.train(mine, self.limits.threads, self.limits.seed, lambda: self._ask(stage, must))
            ended = self._assess(pool, ended, must or not self.best_candidates())
            if ended:
                self._account(ended, before, self.clock.now() - begun)
            done.extend(ended)
            if self.ended or (self.clock.left() <= 0 and not must):
                break
        return sorted(done, key=lambda candidate: candidate.number)

    def _assess(self, pool: Pool, candidates: Sequence[Candidate], must: bool) -> list[Candidate]:
        """Assess candidates, a few at a time, for they take memory and time; some are left out when that is up."""
        rows = self.problem.n * self.problem.task.n_outputs
        step = max(1, ASSESSED_CELLS // rows)
        late = -LATE_SHARE * self.clock.reserve
        for start in range(0, len(candidates), step):
            if start and not must and self.clock.left() < late:
                return list(candidates[:start])
            pool.assess(candidates[start : start + step], self.metric, self.limits.threads)
        return list(candidates)

    def _account(self, candidates: Sequence[Candidate], before: dict[int, int], seconds: float) -> None:
        """Share out the time by work: an engine trains many networks at a time and cannot say what each one took."""
        costs = np.array(
            [candidate_cost(self.problem, u.recipe) * max(u.epochs - before[u.number], 0) for u in candidates]
        )
        total = max(float(costs.sum()), 1e-300)
        for candidate, cost in zip(candidates, costs, strict=True):
            candidate.seconds += seconds * cost / total
            if candidate.prediction is not None:
                candidate.sample = candidate.prediction[self.sample_rows]
            self.network_epochs += (candidate.epochs - before[candidate.number]) * len(self.problem.folds)
        self.rate = seconds / total
        self.spent += total
        self.training_seconds += seconds

    def _drop(self, pools: Sequence[Pool], going: Sequence[Candidate]) -> None:
        staying = {candidate.number for candidate in going}
        for pool in pools:
            for candidate in pool.candidates:
                if candidate.number not in staying:
                    candidate.prediction = None
            pool.keep(going)

    def _end_round(self) -> None:
        """Keep weights of the best finished candidates over all rounds, by loss and by score; forget all others."""
        by_loss = self.best_candidates()
        by_score = sorted(by_loss, key=lambda candidate: (-candidate.score, candidate.loss))
        best = by_loss[:KEPT_CANDIDATES] + by_score[: KEPT_CANDIDATES // 4]
        staying = {candidate.number for candidate in best}
        for candidate in self.candidates:
            if candidate.number not in staying:
                candidate.prediction = None
        for pool in {id(u.pool): u.pool for u in self.candidates if u.pool is not None}.values():
            pool.keep(best)

    # ---- questions ----

    def best_candidates(self) -> list[Candidate]:
        """Candidates for the model, best first: finished ones; if there are none, all that have weights."""
        alive = [
            candidate
            for candidate in self.candidates
            if candidate.pool is not None and candidate.prediction is not None
        ]
        finished = [candidate for candidate in alive if candidate.finished] or alive
        return self._best(finished, len(finished))

    @staticmethod
    def _best(candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        usable = [candidate for candidate in candidates if np.isfinite(candidate.loss)]
        return sorted(usable, key=lambda candidate: (candidate.loss, candidate.number))[:count]

    def _ask(self, stage: str, must: bool) -> bool:
        """Asked by the engine: should training end? Tells the watcher how far things are."""
        if self.watcher is not None and self.watcher(self._progress(stage)):
            self.ended = "interrupted"
            self.clock.hurry()
            return True
        return self.clock.left() <= 0 and not must

    def _progress(self, stage: str) -> Progress:
        known = [candidate for candidate in self.candidates if np.isfinite(candidate.loss)]
        best = max(known, key=lambda candidate: (candidate.finished, candidate.score), default=None)
        if self.clock.budget is not None:
            share = self.clock.elapsed() / self.clock.budget
        else:
            share = min(0.99, self.spent / max(self.planned, 1e-300))
        return Progress(stage, share, len(known), best)

    def _check_end(self, must: bool) -> None:
        if self.ended or (self.clock.left() <= 0 and not must):
            raise _EndedEarly(self.ended or ("interrupted" if self.clock.hurried else "budget"))

    def _round_limit(self) -> int:
        """Recipes whose weights and moments fit into LARGEST_ROUND, for networks of middling size."""
        width = max(encoding.shape[1] for encoding in self.problem.inputs.values())
        parameters = 128 * (width + 128 + self.problem.task.n_outputs)
        return max(FEWEST_PER_ROUND, int(LARGEST_ROUND / (16 * parameters * len(self.problem.folds))))

    def seconds(self, recipes: Sequence[Recipe], rungs: Sequence[Rung]) -> float:
        """Seconds that these recipes would take, at the speed measured last."""
        work = sum(
            candidate_cost(self.problem, recipe) * (recipe.member.epochs or self.limits.default_epochs)
            for recipe in recipes
        )
        return max(self.rate * work * work_share(rungs), 1e-9)

    def _choose_sample(self) -> np.ndarray:
        """Rows whose predictions are kept for every candidate: all of them, or a random part of a long table."""
        weight = self.problem.valid_weight
        scored = np.flatnonzero(weight > 0)
        most = max(500, SAMPLE_CELLS // self.problem.task.n_outputs)
        if len(scored) <= most:
            return scored
        return np.sort(np.random.default_rng(self.limits.seed).choice(scored, most, replace=False))


def shortened(epochs: int, rungs: Sequence[Rung], affordable: float) -> int:
    """Epochs of the longest recipes, cut so that WANTED_RECIPES of them fit into so many epochs in all."""
    share = affordable / (WANTED_RECIPES * work_share(rungs) * epochs)
    return int(np.clip(epochs * share, min(epochs, max(4, epochs // 8)), epochs))


def work_share(rungs: Sequence[Rung]) -> float:
    """Work of these rungs, as a share of training every candidate to the end."""
    total, going, before = 0.0, 1.0, 0.0
    for share, kept in rungs:
        total += going * (share - before)
        going, before = going * kept, share
    return total


def _epochs_at(share: float, candidate: Candidate) -> int:
    """Epochs of a candidate at a rung, rounded up; at least one."""
    return max(1, math.ceil(share * candidate.target - 1e-9))


class _EndedEarly(Exception):
    """The clock or the user has ended the search."""

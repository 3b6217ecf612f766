"""A custom search strategy: start with random recipes, then vary the best one: `python examples/strategy.py`."""

from __future__ import annotations

from typing import Any

from sklearn.datasets import load_wine

from shoal import ShoalClassifier
from shoal.search.space import Recipe
from shoal.search.strategies import Random


class VaryTheBest(Random):
    """Random recipes in the first round. Later rounds change the learning rate of the best recipe so far."""

    def propose(self, count: int, known: Any) -> list[Recipe]:
        if not known:
            return super().propose(min(count, 8), known)
        best = min(known, key=lambda candidate: candidate.loss)
        member = best.recipe.member
        rates = member.learning_rate * 2.0 ** self.generator.uniform(-2, 2, size=count)
        seeds = self.generator.integers(1 << 31, size=count)
        varied = (member.replace(learning_rate=float(r), seed=int(s)) for r, s in zip(rates, seeds, strict=True))
        return [Recipe(one, best.recipe.encoding) for one in varied]


X, y = load_wine(return_X_y=True)
model = ShoalClassifier(strategy=VaryTheBest(), recipes=24, seeds=1, epochs=20, random_state=0).fit(X, y)
print(f"{len(model.leaderboard_)} recipes; {model.honest_score_}")
print("best recipe:", model.best_member_)

"""The leaderboard: how much of the differences is luck."""

import numpy as np

from shoal import Member
from shoal.search.results.leaderboard import variance_shares
from shoal.search.rounds.candidates import Candidate
from shoal.search.space import Recipe


def test_shares_of_luck_are_found_in_made_up_scores():
    generator = np.random.default_rng(0)

    def candidates(architecture, seed, fold):
        folds = fold * generator.normal(size=6)
        groups = []
        for r in range(60):
            effect = architecture * generator.normal()
            group = []
            for _ in range(3):
                candidate = Candidate(0, Recipe(Member(hidden=r + 1, epochs=1)))
                candidate.fold_scores = effect + seed * generator.normal() + folds
                candidate.score, candidate.finished = float(candidate.fold_scores.mean()), True
                group.append(candidate)
            groups.append(group)
        return variance_shares(groups)

    assert candidates(1.0, 0.01, 0.01)["architecture"] > 0.98
    assert candidates(0.01, 1.0, 0.01)["seeds"] > 0.9
    assert candidates(0.01, 0.01, 1.0)["folds"] > 0.98

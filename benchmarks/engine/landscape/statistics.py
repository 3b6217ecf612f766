"""What 100,000 scores say: what matters, what is luck, and what picking the best of many is worth."""

from __future__ import annotations

from typing import Any

import numpy as np

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 60
ROUNDING = 1e-12  # of the largest score
TOP = 0.1  # the best recipes, where all reasonable choices are made


def variance_shares(scores: np.ndarray) -> dict[str, float]:
    """How much of the variance of scores (widths, activations, rates, seeds) each choice explains, alone.

    What the three explain only together is "combination", and what is left within a recipe is "seed". The grid is
    balanced, so the shares add up to one.

    >>> scores = np.zeros((2, 2, 2, 3)) + np.array([0.0, 1.0])[:, None, None, None]
    >>> {name: round(share, 2) for name, share in variance_shares(scores).items() if share}
    {'width': 1.0}
    """
    largest = np.abs(scores).max()
    scores = scores - scores.mean()
    total = scores.var()
    names = ("width", "activation", "learning rate")
    if total <= (ROUNDING * largest) ** 2:  # scores that differ by rounding alone
        return dict.fromkeys((*names, "combination", "seed"), 0.0)
    mains = {
        name: float(scores.mean(axis=tuple(other for other in range(4) if other != axis)).var() / total)
        for axis, name in enumerate(names)
    }
    recipes = float(scores.mean(-1).var() / total)
    return {**mains, "combination": max(0.0, recipes - sum(mains.values())), "seed": max(0.0, 1.0 - recipes)}


def seed_share_at_the_top(scores: np.ndarray, share: float = TOP) -> dict[str, float]:
    """Among the best recipes by their mean: how much of the variance is the seed's, and its standard deviation."""
    flat = scores.reshape(-1, scores.shape[-1])
    count = max(1, round(share * len(flat)))
    best = flat[np.argsort(-flat.mean(1), kind="stable")[:count]]
    within, between = float(best.var(1).mean()), float(best.mean(1).var())
    total = within + between
    return {"recipes": count, "share": within / total if total else 0.0, "deviation": within**0.5}


def best_of(picking: np.ndarray, fresh: np.ndarray, counts: list[int]) -> list[dict[str, float]]:
    """What the best of k networks, drawn at random and picked by `picking`, has there and on fresh rows, on average.

    >>> found = best_of(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.1, 0.2, 0.2, 0.2]), [1, 1000])
    >>> [(round(one["picked"], 3), round(one["fresh"], 3)) for one in found]
    [(0.25, 0.175), (0.4, 0.2)]
    """
    values, which = np.unique(picking, return_inverse=True)
    counted = np.bincount(which)
    outcome = np.bincount(which, weights=fresh) / counted
    below = np.concatenate([[0.0], np.cumsum(counted) / len(which)])
    found = []
    for count in counts:
        chance = np.diff(below**count)  # that the best of them has this value
        found.append({"networks": count, "picked": float(chance @ values), "fresh": float(chance @ outcome)})
    return found


def spread(scores: np.ndarray, axis: int) -> list[list[float]]:
    """The quantiles of all scores for each choice along an axis."""
    lines = np.moveaxis(scores, axis, 0).reshape(scores.shape[axis], -1)
    return np.quantile(lines, QUANTILES, axis=1).T.tolist()


def histogram(scores: np.ndarray) -> dict[str, Any]:
    """Bins on whole rows would show gaps where none are: their edges lie between the scores that can occur."""
    counts, edges = np.histogram(scores, bins=min(BINS, max(len(np.unique(scores)), 1)))
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def powers(networks: int) -> list[int]:
    """1, 2, 5, 10, ... up to the number of networks, and that number.

    >>> powers(30)
    [1, 2, 5, 10, 20, 30]
    """
    found = [head * 10**power for power in range(len(str(networks))) for head in (1, 2, 5)]
    return [*(count for count in found if count < networks), networks]

"""The card of each kind of object that shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.report.notebook.columns import explanation_card, importances_card, rows_card
from shoal.report.notebook.models import board_card, forest_card, frame_card, score_card, search_card, selector_card
from shoal.report.notebook.networks import history_card, population_card
from shoal.report.notebook.plans import plan_card
from shoal.report.shell.markup import Html

CARDS: dict[str, Callable[[Any], Html]] = {
    "Explanation": explanation_card,
    "FeatureSelector": selector_card,
    "History": history_card,
    "HonestScore": score_card,
    "Importances": importances_card,
    "Leaderboard": board_card,
    "LeaderboardFrame": frame_card,
    "Plan": plan_card,
    "Population": population_card,
    "RowExplanations": rows_card,
    "SearchEstimator": search_card,
    "ToolEstimator": forest_card,
}


def card_of(shown: Any) -> Html:
    """By the name of its class: higher layers have some of these classes."""
    return next(CARDS[kind.__name__] for kind in type(shown).__mro__ if kind.__name__ in CARDS)(shown)

"""Cards of fitted estimators, of honest scores, and of a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.explain.results import SHOWN, Importance, Importances
from shoal.files.json_values import plain
from shoal.report.notebook.card import card, facts, heading, small
from shoal.report.notebook.columns import bars_of_columns
from shoal.report.search.sections import quality_words, score_figure
from shoal.report.shell import words
from shoal.report.shell.markup import EMPTY, NUMBER, TEXT, Html, data_table, details, large_figure, tag

COLUMNS_SHOWN = 5
RECIPES_SHOWN = 10
BOARD_COLUMNS = ("rank", "score", "fold_spread", "label")


def score_parts(score: Any, target: str) -> list[Html]:
    """The score to expect in large type, what it means, and its interval beside the score as measured."""
    found = plain(score.as_dict()) | {"chance": None}
    if found["problem"]:
        return [large_figure("?", f"{words.capitalised(found['problem'])}.")]
    shown = words.score(found["corrected"], found["metric"])
    picture = score_figure(found)
    return [large_figure(shown, quality_words(found, target)), tag("figure", picture) if picture else EMPTY]


def score_card(score: Any) -> Html:
    """An `HonestScore`."""
    gap = score.raw - (score.corrected - score.averaging)
    parts = score_parts(score, "the target")
    if not score.problem and gap > 0:
        lower = words.difference(gap, score.metric)
        parts.append(small(f"Selecting the best of many recipes raised the measured score by about {lower}."))
    return card(heading("Honest score", words.metric_name(score.metric)), *parts)


def search_card(model: Any) -> Html:
    """A fitted `ShoalClassifier` or `ShoalRegressor`."""
    target = words.short(getattr(model, "target_name_", None) or "the target")
    member, board, parts = model.best_member_, model.board_, model.model_.parts
    recipes = len({part.recipe for part in parts})
    explained, matters = getattr(model, "explanation_", None), EMPTY
    if explained is not None and len(explained.importance):
        caption = "What matters: how much the score falls when a column is shuffled"
        matters = bars_of_columns(explained.importance, COLUMNS_SHOWN, caption)
    said = f"fitted on {words.count(model.n_features_in_, 'column')}"
    best, shape = "x".join(map(str, member.hidden)) or "linear", f" {member.activation}" if member.hidden else ""
    found = facts(
        recipes_tried=words.count(len(board)),
        networks_trained=words.count(model.n_networks_),
        delivered=f"an ensemble of {words.count(recipes)} recipes" if recipes > 1 else "one recipe",
        best_recipe=f"{best}{shape}, {words.score(model.best_score_, model.honest_score_.metric)}",
    )
    more = details("Parameters and more", tag("pre", repr(model)), small(*SEE))
    return card(
        heading(type(model).__name__, said), *score_parts(model.honest_score_, target), found, matters, notes(model),
        more,
    )  # fmt: skip


SEE = (
    tag("code", "leaderboard_"), " has every recipe, ", tag("code", "importance_"), " every column, ",
    tag("code", "report(path)"), " writes the whole report, ",
    tag("code", "sklearn.utils.estimator_html_repr"), " draws the diagram of scikit-learn.",
)  # fmt: skip


def notes(model: Any) -> Html:
    """What the user should know of the rows."""
    found = getattr(model, "notes_", None) or []
    return details(words.count(len(found), "note") + " on the data", *map(small, found)) if found else EMPTY


def forest_card(model: Any) -> Html:
    """A fitted forest."""
    said = f"fitted on {words.count(model.n_features_in_, 'column')}"
    oob = getattr(model, "oob_score_", None)
    found = facts(
        networks=words.count(model.n_networks_),
        out_of_bag_score=words.significant(oob, 4) if words.known(oob) else None,
    )
    return card(heading(type(model).__name__, said), found, details("Parameters", tag("pre", repr(model))))


def selector_card(model: Any) -> Html:
    """A fitted `FeatureSelector`: the columns, the most important first."""
    names = getattr(model, "feature_names_in_", None)
    names = [f"column {k}" for k in range(model.n_features_in_)] if names is None else [str(name) for name in names]
    found = [
        Importance((name,), *map(float, (value, *interval)))
        for name, value, interval in zip(names, model.importances_, model.intervals_, strict=True)
    ]
    columns = Importances("loss", 1 - model.level, tuple(sorted(found, key=lambda one: -one.importance)))
    said = f"{words.count(int(model.support_.sum()))} of {words.count(len(names), 'column')} selected"
    table = bars_of_columns(columns, SHOWN, "How much higher the loss is without a column")
    return card(heading("FeatureSelector", said), table, details("Parameters", tag("pre", repr(model))))


def board_card(board: Any) -> Html:
    """The first recipes of a `Leaderboard`, which is what there is without pandas."""
    rows = [[row[name] for name in BOARD_COLUMNS] for row in board[:RECIPES_SHOWN]]
    return card(heading("Leaderboard", words.count(len(board), "recipe")), _first_recipes(rows))


def frame_card(frame: Any) -> Html:
    """The first recipes of a `LeaderboardFrame`, as they are now: the user may have changed them."""
    rows = list(frame[list(BOARD_COLUMNS)].head(RECIPES_SHOWN).itertuples(index=False, name=None))
    more = small(tag("code", "leaderboard_.head(20)"), f" is a plain frame with all {frame.shape[1]} columns.")
    return card(heading("Leaderboard", words.count(len(frame), "recipe")), _first_recipes(rows), more)


def _first_recipes(rows: Sequence[Sequence[Any]]) -> Html:
    heads = [("Rank", NUMBER), ("Score", NUMBER), ("Spread over folds", NUMBER), ("Recipe", TEXT)]
    cells = [
        [words.count(rank), _significant(score, 4), _significant(spread, 2), words.short(label, 80)]
        for rank, score, spread, label in rows
    ]
    caption = f"The first {words.count(len(rows))}. Recipes that stopped early come last, whatever their score."
    return data_table("board", caption, heads, cells)


def _significant(value: Any, digits: int) -> str:
    """A recipe that diverged has no finite score."""
    return words.significant(value, digits) if words.known(value) else words.NOTHING

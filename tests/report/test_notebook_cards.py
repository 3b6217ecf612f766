"""Cards of notebooks: complete, escaped whatever names there are, without scripts, legible in light and dark."""

from __future__ import annotations

import pickle
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import FeatureSelector, Member, Population, ShoalClassifier, ShoalForestRegressor, ShoalRegressor, grid
from shoal.explain.results import Importance, Importances
from shoal.explain.rows import RowExplanations
from shoal.population.history import History
from shoal.report.notebook import card_of
from shoal.report.notebook.plans import plan_card
from shoal.report.notebook.progress import SearchDots, progress_card
from shoal.search.results.leaderboard import Leaderboard
from shoal.search.scoring.honest import HonestScore

HOSTILE = [
    '<script>alert("x")</script>',
    "a & b",
    "' onload='x",
    "</style><b>",
    "\x00\ud800",
    'id="x" class="shoal"',
    "",
]
NAMES = st.sampled_from(HOSTILE) | st.text(max_size=30)
FINITE = st.floats(-1e9, 1e9)
QUICK = {"recipes": 2, "epochs": 5, "seeds": 1, "cv": 2, "n_jobs": 1}
ALLOWED = {
    "div", "style", "p", "span", "strong", "em", "code", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "svg", "title", "desc", "path", "rect", "line", "circle", "text", "figure", "figcaption", "dl", "dt", "dd",
    "details", "summary", "small", "ul", "li",
}  # fmt: skip


class Elements(HTMLParser):
    """The elements of a card, which must close in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.names, self.attributes, self.text = [], set(), [], ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.names.add(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(html):
    """A card that only has elements and attributes which Shoal writes."""
    found = Elements(str(html))
    assert found.names <= ALLOWED, found.names - ALLOWED
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("href", "src")]
    assert len(str(html)) < 60_000
    str(html).encode("utf-8")
    return found


@given(st.lists(st.tuples(NAMES, FINITE, FINITE, FINITE), max_size=25), st.sampled_from(["accuracy", "r2", "<b>"]))
@settings(max_examples=60, deadline=None)
def test_importances_of_any_columns(columns, metric):
    found = tuple(Importance((name,), *sorted(values)) for name, *values in columns)
    text = read(card_of(Importances(metric, 0.95, found))).text
    for one in found[:20]:
        assert (
            one.name.encode("utf-8", "replace").decode()[:30].strip() in text or "\x00" in one.name or "\r" in one.name
        )


@given(st.lists(NAMES, min_size=1, max_size=9), st.integers(0, 5), st.integers(0, 3), st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_explanations_of_any_rows(columns, rows, outputs, seed):
    rng, last = np.random.default_rng(seed), (outputs,) if outputs else ()
    values = rng.normal(size=(rows, len(columns), *last)) * 10.0 ** rng.integers(-9, 9)
    names = tuple(HOSTILE[:outputs]) if outputs else None
    one = RowExplanations(
        tuple(columns), values, np.abs(values), rng.normal(size=(rows, *last)), rng.normal(size=last), names, 7
    )
    assert "Why these predictions" in read(card_of(one)).text


@given(st.integers(0, 4), st.integers(0, 6), st.integers(0, 1 << 30))
@settings(max_examples=30, deadline=None)
def test_histories_with_gaps(members, epochs, seed):
    rng = np.random.default_rng(seed)
    curves = [rng.choice([np.nan, np.inf, -np.inf, 0.1, 1e30, -5.0], (members, epochs)) for _ in range(3)]
    read(card_of(History(*curves)))


@given(FINITE, FINITE, FINITE, st.sampled_from(["", "there are <b>too few</b> rows"]))
@settings(max_examples=40, deadline=None)
def test_honest_scores(raw, low, high, problem):
    score = HonestScore(
        "accuracy", raw, float("nan") if problem else (low + high) / 2, low, high, 0.95, 9, 0.0, problem
    )
    text = read(card_of(score)).text
    assert ("There are <b>too few</b> rows" in text) == bool(problem)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e12, 1e12)), max_size=40), st.floats(0, 2))
@settings(max_examples=40, deadline=None)
def test_progress_with_any_dots(points, share):
    dots = SearchDots("r2", 5.0, points[::2], points[1::2], points[:1])
    assert "<b> said" in read(progress_card("<b> said", share, dots)).text


def test_a_hundred_times_as_many_dots_are_not_a_hundred_times_as_large():
    rng = np.random.default_rng(0)
    few, many = ([(float(x), float(x)) for x in rng.uniform(size=n)] for n in (2_000, 200_000))
    sizes = [len(progress_card("", 0.5, SearchDots("accuracy", 1.0, dots, dots))) for dots in (few, many)]
    assert sizes[1] < 2 * sizes[0]
    assert sizes[1] < 60_000


@pytest.fixture(scope="module")
def fitted():
    """A model of each kind on columns and classes with hostile names."""
    rng = np.random.default_rng(0)
    table = {name: rng.normal(size=60) for name in HOSTILE[:4]}
    first = next(iter(table.values()))
    classes = np.where(first > 0, HOSTILE[0], HOSTILE[3])
    return [
        ShoalClassifier(**QUICK).fit(table, classes),
        ShoalRegressor(**QUICK).fit(table, first),
        ShoalForestRegressor(30, n_jobs=1).fit(table, first),
        FeatureSelector(max_masks=64, n_jobs=1).fit(table, first),
    ]


@pytest.mark.parametrize("place", range(4))
def test_a_fitted_estimator_is_a_card(fitted, place):
    model = fitted[place]
    bundle = model._repr_mimebundle_()
    text = read(bundle["text/html"]).text
    assert type(model).__name__ in text
    assert model._repr_html_() == bundle["text/html"]
    assert bundle["text/plain"] == repr(model)
    if hasattr(model, "honest_score_"):
        assert "Expect" in text or "too few" in text


@pytest.mark.parametrize("place", range(4))
def test_the_diagram_of_scikit_learn_stays_available(fitted, place):
    from sklearn import clone, config_context
    from sklearn.pipeline import make_pipeline
    from sklearn.utils import estimator_html_repr

    assert "sk-top-container" in estimator_html_repr(fitted[place])
    assert "sk-top-container" in clone(fitted[place])._repr_mimebundle_()["text/html"]
    assert "sk-top-container" in make_pipeline(fitted[place])._repr_mimebundle_()["text/html"]
    with config_context(display="text"):
        assert "text/html" not in fitted[place]._repr_mimebundle_()
        assert not hasattr(fitted[place], "_repr_html_")


def test_populations_and_leaderboards(fitted):
    population = Population([*grid(hidden=[3, (4, 4)]), Member(hidden=())], 2, 2)
    assert "3 networks" in read(population._repr_html_()).text
    population.fit(np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2, epochs=3, rows=0.3)
    text = read(population._repr_html_()).text
    assert "3 active" in text
    assert "validation loss" in text
    assert "2 recipes" in read(fitted[0].board_._repr_html_()).text
    assert read(fitted[0].explanation_._repr_html_()).text


def test_a_leaderboard_is_a_card_and_what_is_made_from_it_a_plain_frame(fitted):
    pd = pytest.importorskip("pandas")
    board = fitted[0].leaderboard_
    text = read(board._repr_html_()).text
    assert "2 recipes" in text
    assert board["label"][0][:20] in text
    assert f"all {board.shape[1]} columns" in text
    plain = pd.DataFrame(board)
    for made in (board.head(20), board[["score"]], board.sort_values("seconds"), pickle.loads(pickle.dumps(board))):
        assert type(made) is pd.DataFrame
    assert board.head(2)._repr_html_() == plain.head(2)._repr_html_()
    board["rank"] = [7, 8]
    assert re.findall(r'<th scope="row"[^>]*>(\d+)<', board._repr_html_()) == ["7", "8"]
    with pd.option_context("display.notebook_repr_html", False):
        assert board._repr_html_() is None
    del board["label"]
    assert board._repr_html_() == pd.DataFrame(board)._repr_html_()


def test_a_recipe_that_diverged_is_shown_without_a_score():
    columns = {"rank": [1, 2], "score": [0.5, -np.inf], "fold_spread": [0.1, np.nan], "label": ["a", HOSTILE[0]]}
    board = Leaderboard(columns)
    for shown in (board, board.to_pandas()):
        assert read(shown._repr_html_()).text.count("\N{EN DASH}") == 2


def test_the_card_of_a_plan_says_where_its_other_rows_are():
    rows = [SimpleNamespace(label=f"<b>{k}", nodes=k, seconds=9.0 / k, speedup=k, accuracy=None) for k in range(1, 12)]
    verdict = SimpleNamespace(nodes=11, text="Use 11 nodes.")
    plan = SimpleNamespace(what="<i>net", metric="accuracy", rows=rows, best=rows[-1], verdict=verdict)
    assert "3 more rows in rows." in read(plan_card(plan)).text
    assert "<code>rows</code>" in plan_card(plan)


def test_the_ids_of_two_cards_differ():
    """Else a screen reader would read the title of one figure for another."""
    scores = [HonestScore("accuracy", value, value, value - 0.1, value + 0.1, 0.95, 9) for value in (0.5, 0.6)]
    found = [set(re.findall(r' id="([^"]+)"', card_of(score))) for score in scores]
    assert found[0]
    assert not found[0] & found[1]


def contrast(one, other):
    def light(rgb):
        parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05

    first, second = sorted((light(one), light(other)), reverse=True)
    return first / second


THEMES = [
    ("light", "", "light"), ("dark", "", "dark"), ("dark", 'data-jp-theme-light="true"', "light"),
    ("light", 'data-jp-theme-light="false"', "dark"), ("light", 'class="vscode-dark"', "dark"),
]  # fmt: skip


@pytest.mark.parametrize(("system", "attribute", "shown"), THEMES)
def test_cards_follow_the_theme_of_the_notebook_before_that_of_the_system(window, fitted, system, attribute, shown):
    page = window.tab(viewport={"width": 400, "height": 700}, color_scheme=system)
    page.set_content(f"<body {attribute}>{fitted[0]._repr_html_()}</body>")
    ask = "name => getComputedStyle(document.querySelector('.shoal'))[name].match(/[0-9.]+/g).map(Number)"
    paper, ink = ([value / 255 for value in page.evaluate(ask, name)[:3]] for name in ("backgroundColor", "color"))
    assert (sum(paper) > 1.5) == (shown == "light")
    assert contrast(paper, ink) > 7
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert wide <= 400
    assert not window.complaints

"""In a real kernel: one output changes while a search runs, and an interrupt keeps the best so far."""

from __future__ import annotations

import pytest
from support.live import FakeTime
from support.notebook_kernel import html_of, open_kernel

from shoal.search import notebook

BEGIN = """
import numpy as np, shoal
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))
y = np.where(X[:, 0] + X[:, 1] ** 2 > 0.8, "<b>yes</b>", "no")
"""


@pytest.fixture(scope="module")
def kernel():
    with open_kernel() as opened:
        assert opened.printed(BEGIN) == ""
        yield opened


def test_progress_changes_one_output_and_shows_dots(kernel):
    fit = "shoal.ShoalClassifier(recipes=12, seeds=1, epochs=8, n_jobs=1, verbose=True).fit(X, y);"
    shown = [one for one in kernel.run(fit) if html_of(one)]
    assert [one["type"] for one in shown][:1] == ["display_data"]
    assert {one["type"] for one in shown[1:]} == {"update_display_data"}
    assert len({one["transient"]["display_id"] for one in shown}) == 1
    last = html_of(shown[-1])
    assert 'class="chosen"' in last
    assert "12 recipes in" in last
    assert "<script" not in last


def test_an_interrupt_keeps_the_best_so_far(kernel):
    begun = "model = shoal.ShoalClassifier(budget=600, n_jobs=1, verbose=True).fit(X, y)"
    cell = kernel.run(begun, seen=lambda shown: "best" in html_of(shown))
    assert "error" not in {one["type"] for one in cell}, cell
    assert "the model is the best so far" in "".join(one.get("text", "") for one in cell)
    assert kernel.printed("print(model.result_.ended, model.predict(X[:3]).shape)") == "interrupted (3,)\n"


def test_the_interrupt_of_the_next_cell_is_python_s_own(kernel):
    code = "print('begun', flush=True)\nimport time\ntime.sleep(600)"
    cell = kernel.run(code, seen=lambda shown: "begun" in shown.get("text", ""))
    assert cell[-1]["ename"] == "KeyboardInterrupt"


def test_a_fitted_model_is_a_card_and_an_unfitted_one_scikit_learn_s_diagram(kernel):
    fitted = html_of(kernel.run("model")[-1])
    assert 'class="shoal"' in fitted
    assert "sk-top-container" not in fitted
    assert "sk-top-container" in html_of(kernel.run("shoal.ShoalClassifier()")[-1])
    assert "True" in kernel.printed(
        "from sklearn.utils import estimator_html_repr\nprint('sk-top-container' in estimator_html_repr(model))"
    )


def test_the_progress_of_a_population_changes_one_output(kernel):
    code = (
        "population = shoal.Population(shoal.grid(hidden=[4, 8]), 4, 2)\n"
        "population.fit(X, (y == 'no').astype(int), epochs=30, callbacks=[shoal.ProgressBar()]);"
    )
    shown = [one for one in kernel.run(code) if html_of(one)]
    assert len({one["transient"]["display_id"] for one in shown}) == 1
    assert "60 of 60 network-epochs" in html_of(shown[-1])


def test_pictures_that_take_long_are_drawn_less_often(monkeypatch):
    """So that a search with a hundred thousand dots is not held up by them."""
    clock, drawn = FakeTime(), []
    shown = notebook.SearchOutput("accuracy", 60.0)
    monkeypatch.setattr(notebook.time, "monotonic", clock)
    monkeypatch.setattr(shown.screen, "watch", lambda event: None)
    monkeypatch.setattr(shown.screen, "words", lambda now: "")
    monkeypatch.setattr(shown.screen, "share", lambda: 0.5)

    def draw(said, share):
        drawn.append(clock.seconds)
        clock.seconds += 0.2

    monkeypatch.setattr(shown, "_draw", draw)
    while clock.seconds < 100:
        clock.seconds += 0.1
        shown.progress(None)
    assert 5 < len(drawn) < 15

"""Displays draw what the estimators know, and scikit-learn's own displays take these estimators."""

from __future__ import annotations

import numpy as np
import pytest

from shoal import Population, ShoalClassifier, ShoalRegressor, grid
from shoal.errors import UserError
from shoal.explain.results import Effect, Importance

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
plots = pytest.importorskip("shoal.plots")
QUICK = {"recipes": 4, "epochs": 8, "seeds": 1, "cv": 3, "n_jobs": 1, "explain_seconds": 3.0}


@pytest.fixture(autouse=True)
def closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    table = {"size": rng.uniform(50, 200, 200), "rooms": rng.integers(1, 7, 200), "city": rng.choice(["a", "b"], 200)}
    return table, 2 * table["size"] + 50 * (table["city"] == "b") + rng.normal(size=200)


@pytest.fixture(scope="module")
def regressor(rows):
    return ShoalRegressor(**QUICK).fit(*rows)


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return ShoalClassifier(**QUICK).fit(X, np.where(X[:, 0] > 0, "yes", "no")), X


def test_importances_are_drawn_with_the_largest_on_top(regressor):
    display = plots.ImportanceDisplay.from_estimator(regressor, most=3)
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == [one.name for one in regressor.importance_.columns[:3]]
    bars = sorted(display.ax_.patches, key=lambda bar: -bar.get_y())
    assert [bar.get_width() for bar in bars] == [one.importance for one in regressor.importance_.columns[:3]]
    assert display.figure_ is display.ax_.figure


@pytest.mark.parametrize("place", range(2))
def test_an_effect_is_that_of_the_explanation(regressor, place):
    effect = regressor.explanation_.effects[place]
    ax = plots.EffectDisplay.from_estimator(regressor, effect.column).ax_
    assert ax.get_xlabel() == effect.column
    assert np.allclose(ax.lines[0].get_ydata(), effect.mean)


@pytest.mark.parametrize("name", ["price in $ of 2 $", r"$\frac$", r"a\$b$c"])
def test_dollar_signs_in_names_are_no_formulas(name):
    """Drawing would fail, or turn the words into a formula."""
    importance = [Importance((name,), 0.5, 0.4, 0.6)]
    effects = [Effect(name, "category", name, (name, "other"), (0.1, 0.2), (0.0, 0.1), (0.2, 0.3), share=True)] * 2
    drawn = [
        plots.ImportanceDisplay(importance, name, 0.95).plot(),
        plots.EffectDisplay(effects).plot(),
        plots.EffectDisplay(effects[:1]).plot(),
        plots.CalibrationDisplay(np.array([0.5]), np.array([0.5]), np.array([3]), name).plot(),
    ]
    for display in drawn:
        display.figure_.canvas.draw()
        texts = [text for text in display.figure_.findobj(matplotlib.text.Text) if "$" in text.get_text()]
        assert texts
        assert [(words, formula) for text in texts for words, formula in [text._preprocess_math(text.get_text())]
                if formula or name not in words] == []  # fmt: skip


def test_a_column_without_an_effect_is_named(regressor):
    with pytest.raises(UserError, match="the effect of 'nothing' is not known; one of"):
        plots.EffectDisplay.from_estimator(regressor, "nothing")


def test_loss_curves_of_a_search_and_of_a_population(regressor):
    display = plots.LossCurveDisplay.from_estimator(regressor, most=2)
    train, valid = next(iter(display.curves.values()))
    assert len(display.ax_.lines) == 4
    assert np.array_equal(display.ax_.lines[1].get_ydata(), valid)
    assert len(train) == len(valid) > 0
    population = Population(grid(hidden=[2, 4]), 1, 1, "mse")
    history = population.fit(np.ones((8, 1)), np.ones(8), epochs=3)
    assert np.array_equal(plots.LossCurveDisplay.from_history(history, [1]).ax_.lines[0].get_ydata(), history.loss[1])


def test_intervals_say_how_many_rows_they_cover(regressor, rows):
    X, y = rows
    display = plots.IntervalDisplay.from_estimator(regressor, X, y, coverage=0.8)
    low, high = regressor.predict_interval(X, coverage=0.8).T
    assert display.covered_ == ((low <= y) & (y <= high)).mean()
    inside, outside = (line for line in display.ax_.lines if line.get_label() in ("inside", "outside"))
    assert len(inside.get_xdata()) + len(outside.get_xdata()) == len(y)
    assert len(inside.get_xdata()) == round(display.covered_ * len(y))


def test_calibration_of_two_classes_is_that_of_scikit_learn(classifier):
    from sklearn.calibration import calibration_curve

    model, X = classifier
    y = np.where(X[:, 1] > 0, "yes", "no")  # something that it cannot know
    display = plots.CalibrationDisplay.from_estimator(model, X, y, n_bins=5)
    observed, predicted = calibration_curve(y == "yes", model.predict_proba(X)[:, 1], n_bins=5)
    assert np.allclose(display.observed, observed)
    assert np.allclose(display.predicted, predicted)
    assert display.rows.sum() == len(X)
    assert display.ax_.get_xlabel() == "predicted probability of yes"


def test_calibration_of_many_classes_is_about_the_predicted_one():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    y = X.argmax(axis=1)
    model = ShoalClassifier(**QUICK).fit(X[:150], y[:150])
    display = plots.CalibrationDisplay.from_estimator(model, X[150:], y[150:])
    right = (model.predict(X[150:]) == y[150:]).mean()
    assert np.isclose(display.observed @ display.rows / 50, right)
    assert np.isclose(display.predicted @ display.rows / 50, model.predict_proba(X[150:]).max(axis=1).mean())


def test_calibration_needs_probabilities(regressor, rows):
    with pytest.raises(UserError, match="classifier of one target"):
        plots.CalibrationDisplay.from_estimator(regressor, *rows)


def test_displays_draw_again_where_they_are_told(regressor):
    import matplotlib.pyplot as plt

    display, (_, other) = plots.ImportanceDisplay.from_estimator(regressor), plt.subplots()
    assert display.plot(other).ax_ is other


def test_a_loaded_model_has_no_loss_curves(regressor):
    import pickle

    with pytest.raises(UserError, match="files and pickles do not hold"):
        plots.LossCurveDisplay.from_estimator(pickle.loads(pickle.dumps(regressor)))


def test_the_displays_of_scikit_learn_take_these_estimators(classifier, regressor, rows):
    from sklearn.calibration import CalibrationDisplay
    from sklearn.inspection import PartialDependenceDisplay
    from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay, RocCurveDisplay

    model, X = classifier
    y = np.where(X[:, 0] > 0, "yes", "no")
    assert len(CalibrationDisplay.from_estimator(model, X, y, n_bins=4).prob_true) > 1
    assert RocCurveDisplay.from_estimator(model, X, y).roc_auc > 0.5
    assert ConfusionMatrixDisplay.from_estimator(model, X, y).confusion_matrix.sum() == len(X)
    PartialDependenceDisplay.from_estimator(model, X, [0], grid_resolution=5)
    PredictionErrorDisplay.from_estimator(regressor, *rows)

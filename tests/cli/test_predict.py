"""`shoal predict`: columns for intervals and sets, rows that are unlike the training data, mistakes in words."""

import csv
import re

import numpy as np
import pandas as pd
import pytest

import shoal
from shoal import Member, ShoalClassifier, ShoalRegressor
from shoal.cli.predict import predict

QUICK = {"space": [Member(hidden=4, learning_rate=0.03, epochs=8)], "seeds": 1, "cv": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"size": generator.normal(size=300), "colour": generator.choice(["red", "blue"], 300)})
    y = frame["size"].to_numpy() + 0.1 * generator.normal(size=300)
    shoal.save(ShoalRegressor(**QUICK).fit(frame, y), folder / "numbers")
    shoal.save(ShoalRegressor(**QUICK).fit(frame, np.column_stack([y, -y])), folder / "several")
    shoal.save(ShoalClassifier(**QUICK).fit(frame, np.digitize(y, [-0.5, 0.5])), folder / "classes")
    frame[:20].to_csv(folder / "new.csv", index=False)
    odd = frame[:20].copy()
    odd.loc[3, "size"], odd.loc[7, "colour"] = 1e4, "mauve"
    odd.to_csv(folder / "odd.csv", index=False)
    return folder


def answers(place, model, file="new.csv", **flags):
    out = place / "answers.csv"
    predict(place / model, place / file, out, **flags)
    with open(out, newline="") as opened:
        return list(csv.DictReader(opened))


def test_numbers_have_a_low_and_a_high_value(place):
    rows = answers(place, "numbers", coverage=0.9)
    assert list(rows[0]) == ["prediction", "low", "high"]
    assert all(float(row["low"]) <= float(row["prediction"]) <= float(row["high"]) for row in rows)
    found = shoal.load(place / "numbers").predict_interval(pd.read_csv(place / "new.csv"), 0.9)
    np.testing.assert_array_equal([[float(row["low"]), float(row["high"])] for row in rows], found)
    rows = answers(place, "several", coverage=0.9)
    assert list(rows[0]) == ["prediction 1", "low 1", "high 1", "prediction 2", "low 2", "high 2"]


def test_classes_have_a_set(place):
    rows = answers(place, "classes", coverage=0.9, proba=True)
    assert list(rows[0])[:3] == ["prediction", "set", "probability of 0"]
    assert all(row["prediction"] in row["set"].split(" | ") for row in rows)
    inside = shoal.load(place / "classes").predict_set(pd.read_csv(place / "new.csv"), 0.9)
    assert [len(row["set"].split(" | ")) for row in rows] == inside.sum(axis=1).tolist()


def test_strange_rows_are_named_on_the_screen_and_written_if_asked(place, capsys):
    assert list(answers(place, "numbers", "odd.csv")[0]) == ["prediction"], "scripts that read it go on working"
    said = capsys.readouterr().err
    assert re.search(r"odd.csv: 2 of 20 rows are unlike the training data .*: row 4 \(size\); row 8 \(colour\); ", said)
    rows = answers(place, "numbers", "odd.csv", strange=True)
    assert list(rows[0]) == ["prediction", "strangeness p-value", "strange in"]
    assert [row["strange in"] for row in rows if row["strange in"]] == ["size", "colour"]
    assert all(float(row["strangeness p-value"]) <= 0.01 for row in (rows[3], rows[7]))
    capsys.readouterr()
    answers(place, "numbers")
    assert "unlike" not in capsys.readouterr().err


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90.0])
def test_a_coverage_is_a_share(place, coverage):
    with pytest.raises(ValueError, match=rf"--coverage must be a share .* such as 0.9 for 90 in 100; got {coverage}"):
        answers(place, "numbers", coverage=coverage)

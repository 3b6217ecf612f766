"""`shoal search` with --groups, --time and --weight, and its notes on rows that depend on each other."""

import csv
import json

import numpy as np
import pytest

QUICK = ("--recipes", 2, "--epochs", 5, "--seeds", 1, "--threads", 1, "--explain-seconds", 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Sixty patients with five visits each, on days in random order."""
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(0)
    patient = np.repeat(np.arange(60), 5)
    effect = random.normal(size=60)[patient]
    with open(folder / "visits.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "day", "dose", "counts", "empty day", "sick"])
        for k in random.permutation(300):
            day = f"2021-{k % 12 + 1:02}-{k % 28 + 1:02}"
            writer.writerow([f"P{patient[k]}", day, f"{random.normal():.4f}", k % 3 + 1, day if k else "",
                             "yes" if effect[k] > 0 else "no"])  # fmt: skip
    with open(folder / "new.csv", "w") as file:
        file.write("day,dose,empty day\n2022-01-01,0.3,2022-01-01\n")
    return folder


def search(*flags):
    return ("search", "visits.csv", "--target", "sick", *QUICK, *flags)


def test_dependent_rows_are_named_with_the_flag_that_helps(place, call):
    said = call(place, *search("--dry-run")).stdout
    assert "note: column 'patient' repeats: 300 rows have 60 values" in said
    assert "if new rows come from new values of it, pass --groups patient" in said
    assert "note:" not in call(place, *search("--dry-run", "--groups", "patient")).stdout


def test_groups_and_weights_are_no_inputs_and_are_repeated(place, call, tmp_path):
    out = tmp_path / "run"
    said = call(place, *search("--groups", 0, "--weight", "counts", "--out", out)).stdout
    assert "column 'patient' names the groups, so it is no input" in said
    assert "column 'counts' holds the weights of the rows, so it is no input" in said
    assert "by groups" in said
    about = json.loads((out / "settings.json").read_text())
    assert (about["data"]["groups"], about["data"]["weight"], about["data"]["time"]) == ("patient", "counts", None)
    assert "names the groups" in (out / "report.html").read_text()
    assert len(call(place, "predict", out, "new.csv").stdout.splitlines()) == 2, "new rows have no groups and weights"
    assert "the same: every byte" in call(place, "search", "--repeat", out, "--check").stdout
    refused = call(place, *search("--groups", "patient", "--weight", "dose", "--out", out, "--drop", "counts"), code=2)
    assert "weight was counts and is dose" in refused.stderr
    refused = call(place, *search("--groups", "day", "--weight", "counts", "--out", out), code=2).stderr
    assert "groups was patient and is day" in refused


def test_time_is_an_input_unless_it_is_dropped(place, call):
    said = call(place, *search("--time", "day", "--dry-run")).stdout
    assert "5-fold forward in time" in said
    assert "column 'day' gives the order" in said
    assert "not guaranteed to hold for still later rows" in said
    assert "2 dates" in said
    said = call(place, *search("--time", "day", "--drop", "day", "--drop", "empty day", "--dry-run")).stdout
    assert "forward in time" in said
    assert "date" not in said.split("columns:")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--groups", "patiant"), "there is no column 'patiant'; did you mean 'patient'?"),
        (("--time", "empty day"), "column 'empty day' must be known in every row, since it holds the times"),
        (("--groups", "sick"), "--groups must not name the column of --target; 'sick' is both"),
        (("--groups", "day", "--weight", "day"), "--weight must not name the column of --groups; 'day' is both"),
        (("--groups", "patient", "--time", "day"), "give groups or time, not both"),
        (("--weight", "dose"), "column 'dose' holds the weights, which must not be negative"),
        (("--time", "patient"), "column 'patient' must hold dates or numbers"),
    ],
)
def test_mistakes_are_named(place, call, flags, words):
    assert words in call(place, *search("--dry-run", *flags), code=2).stderr


def test_repeated_rows_are_named_with_their_number(place, call):
    lines = (place / "visits.csv").read_text().splitlines()
    (place / "twice.csv").write_text("\n".join([lines[0], *(2 * lines[1:])]) + "\n")
    flags = ("search", "twice.csv", "--target", "sick", "--drop", "patient", *QUICK, "--dry-run")
    said = call(place, *flags).stdout
    assert "note: 600 of 600 rows repeat each other" in said
    assert "pass --no-group-repeats" in said
    assert "by groups" in said
    said = call(place, *flags, "--no-group-repeats").stdout
    assert "repeat each other" not in said
    assert "by groups" not in said

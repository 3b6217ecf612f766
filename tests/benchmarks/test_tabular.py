"""The benchmark of searches itself: ranks and losses are told, and a killed run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.bench import bench

from benchmarks.peers.tabular import data as tabular_data
from benchmarks.peers.tabular import fit as tabular_fit
from benchmarks.peers.tabular import peers as tabular_peers
from benchmarks.peers.tabular import report as tabular_report
from benchmarks.peers.tabular import tabular

pytest.importorskip("pandas")


# ---- ranks and verdicts ----

TABLES = [{"name": "iris", "task": "classification"}, {"name": "housing", "task": "regression"}]


def made_up_entries(**scores: tuple[float, float, float]) -> list[dict[str, Any]]:
    """Log-loss, accuracy and R2 of each contender, on two folds that differ by 0.02."""
    found = []
    for name, (loss, accuracy, r2) in scores.items():
        for fold, shift in enumerate((-0.01, 0.01)):
            common = {"fold": fold, "contender": name, "fit_seconds": 1.0, "predict_seconds": 1.0, "test_rows": 9}
            common["details"] = {"candidates": 3}
            found.append({**common, "data": "iris", "log_loss": loss + shift, "accuracy": accuracy + shift})
            found.append({**common, "data": "housing", "r2": r2 + shift})
    return found


def ranks_of(entries: list[dict[str, Any]]) -> tuple[dict[tuple[str, str], dict[str, float]], dict[str, Any]]:
    contenders = list(dict.fromkeys(entry["contender"] for entry in entries))
    cells = tabular_report.averages(TABLES, contenders, entries)
    pairs = dict.fromkeys((table, measure) for table, measure, _ in cells)
    places = {pair: tabular_report.rank(cells, pair, contenders) for pair in pairs}
    return places, tabular_report.mean_ranks(places, contenders)


def test_ranks() -> None:
    places, means = ranks_of(made_up_entries(shoal=(0.3, 0.9, 0.7), mlp=(0.2, 0.9, 0.8), forest=(0.4, 0.8, 0.6)))
    assert places["iris", "log_loss"] == {"shoal": 2, "mlp": 1, "forest": 3}  # lower is better
    assert places["iris", "accuracy"] == {"shoal": 1.5, "mlp": 1.5, "forest": 3}
    assert places["housing", "r2"] == {"shoal": 2, "mlp": 1, "forest": 3}
    assert means["all"] == {"shoal": (1.75 + 2) / 2, "mlp": (1.25 + 1) / 2, "forest": 3}  # every table counts once


def test_who_fails_on_one_fold_is_last() -> None:
    entries = made_up_entries(shoal=(0.1, 0.9, 0.9), mlp=(0.2, 0.8, 0.8))
    del entries[0]["log_loss"], entries[0]["accuracy"]
    places, _ = ranks_of(entries)
    assert places["iris", "log_loss"] == {"shoal": 2, "mlp": 1}
    assert places["housing", "r2"] == {"shoal": 1, "mlp": 2}


def test_targets_of_the_tables_can_be_met_and_missed() -> None:
    _, means = ranks_of(made_up_entries(shoal=(0.1, 0.9, 0.9), mlp=(0.2, 0.8, 0.8)))
    assert [target.met for target in tabular_report.targets(means, True)] == [True] * 4
    _, means = ranks_of(made_up_entries(shoal=(0.3, 0.9, 0.7), mlp=(0.2, 0.8, 0.8), forest=(0.1, 0.7, 0.6)))
    targets = tabular_report.targets(means, True)
    assert [target.met for target in targets] == [False, True, False, False]
    assert targets[0].note == "shoal 3.00, forest 1.00"
    _, means = ranks_of(made_up_entries(mlp=(0.2, 0.8, 0.8)))
    assert [target.met for target in tabular_report.targets(means, True)] == [None] * 4


def test_losses_are_told() -> None:
    assert tabular_report._outcome({"shoal": 1.0, "mlp": 2.0}) == "first"
    assert tabular_report._outcome({"shoal": 1.5, "mlp": 1.5}) == "first, shared"
    assert tabular_report._outcome({"shoal": 3.0, "mlp": 2.0, "forest": 1.0}) == "LOST to forest, mlp"
    assert tabular_report._outcome({"mlp": 1.0}) == "-"


# ---- the journal ----

COMMON = {"seconds": 5.0, "folds": 2, "seed": 0, "threads": 2}


def test_the_journal_keeps_what_was_done_under_the_same_settings(tmp_path: Path) -> None:
    job = {"data": "iris", "fold": 0, "contender": "mlp"}
    path = tmp_path / "new" / "journal.jsonl"
    journal = tabular.Journal(path, COMMON)
    journal.add(job, {"log_loss": 0.1})
    journal.add({**job, "fold": 1}, {"error": "no luck"})
    again = tabular.Journal(path, COMMON)
    assert again.has(job)
    assert again.entry(job)["log_loss"] == 0.1
    assert not again.has({**job, "fold": 1})  # what failed is tried again
    assert not tabular.Journal(path, {**COMMON, "seconds": 60.0}).has(job)


def test_a_line_that_was_cut_short_is_no_line(tmp_path: Path) -> None:
    job = {"data": "iris", "fold": 0, "contender": "mlp"}
    path = tmp_path / "journal.jsonl"
    tabular.Journal(path, COMMON).add(job, {"log_loss": 0.1})
    path.write_text(path.read_text() + '{"data": "iris", "fold": 1, "cont')
    journal = tabular.Journal(path, COMMON)
    journal.add({**job, "fold": 1}, {"log_loss": 0.2})
    again = tabular.Journal(path, COMMON)
    assert [again.entry({**job, "fold": fold})["log_loss"] for fold in (0, 1)] == [0.1, 0.2]


def test_contenders_that_changed_are_forgotten(tmp_path: Path) -> None:
    job = {"data": "iris", "fold": 0}
    path = tmp_path / "journal.jsonl"
    tabular.Journal(path, {**COMMON, "seconds": 60.0}).add({**job, "contender": "shoal"}, {"log_loss": 0.3})
    journal = tabular.Journal(path, COMMON)
    for name in ("shoal", "mlp"):
        journal.add({**job, "contender": name}, {"log_loss": 0.1})
    journal.forget(["shoal"])
    for one in (journal, tabular.Journal(path, COMMON)):
        assert [one.has({**job, "contender": name}) for name in ("shoal", "mlp")] == [False, True]
    assert tabular.Journal(path, {**COMMON, "seconds": 60.0}).has({**job, "contender": "shoal"})  # not asked for


# ---- the commands ----


def made_up_fit(job: dict[str, Any], patience: float) -> dict[str, Any]:
    """What a fit would say, without one; the linear one fails on the second fold."""
    if (job["contender"], job["fold"]) == ("linear", 1):
        return {"error": "ValueError: no luck"}
    quality = 0.01 * (tabular_peers.CONTENDERS.index(job["contender"]) + job["fold"])
    scores = {"r2": 0.9 - quality} if job["data"] == "diabetes" else {"log_loss": quality, "accuracy": 1 - quality}
    return {**scores, "fit_seconds": 5.0, "predict_seconds": 0.1, "test_rows": 50, "details": {"candidates": 7}}


def test_tabular_tells_ranks_losses_and_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular_fit, "run", made_up_fit)
    monkeypatch.setattr(tabular_peers, "installed", lambda name: False)
    result = bench(tmp_path, "tabular --only wine diabetes --seconds 5.0 --folds 2")
    assert result["contenders"] == ["shoal", "mlp", "forest", "boosting", "linear"]
    assert len(result["fits"]) == 2 * 2 * 5
    assert result["mean_ranks"]["log_loss"] == {"shoal": 1, "mlp": 2, "forest": 3, "boosting": 4, "linear": 5}
    assert [target["met"] for target in result["targets"]] == [True] * 4
    assert not any(target["complete"] for target in result["targets"])  # two tables, and one peer is not here
    text = (tmp_path / "tabular.md").read_text()
    assert "realmlp did not take part: pytabkit is not installed: pip install '.[peers]'." in text
    assert "Failed, and ranked last: linear on wine, fold 2: ValueError: no luck." in text
    assert "| wine | 0.0050 * | 0.0150 | 0.0250 | 0.0350 | failed | first |" in text
    assert "| forest: random forest, random search | 3.00 | 3.00 | 3.00 | 3.00 |" in text
    assert {"scikit-learn", "pytabkit"} <= set(result["machine"]["versions"])


def test_tabular_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int, str]] = []

    def fit(job: dict[str, Any], patience: float) -> dict[str, Any]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((job["data"], job["fold"], job["contender"]))
        assert job["seconds"] == 5
        return made_up_fit(job, patience)

    monkeypatch.setattr(tabular_fit, "run", fit)
    command = "tabular --only iris --contenders shoal mlp --seconds 5.0 --folds 2"
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path, command)
    first, done[:] = list(done), []
    result = bench(tmp_path, command)
    assert first + done == [("iris", fold, name) for fold in (0, 1) for name in ("shoal", "mlp")]  # they take turns
    done.clear()
    assert bench(tmp_path, command)["fits"] == result["fits"]
    assert done == []
    bench(tmp_path, f"{command} --again shoal")
    assert done == [("iris", 0, "shoal"), ("iris", 1, "shoal")]


def test_tabular_without_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(path: str) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr(tabular_fit, "run", made_up_fit)
    monkeypatch.setattr(tabular_data, "find", find)
    result = bench(tmp_path, "tabular --only german iris --contenders shoal mlp")
    assert [table["name"] for table in result["tables"]] == ["iris"]
    assert any(note.startswith("german did not take part: its file was not found") for note in result["notes"])
    with pytest.raises(FileNotFoundError, match="none of the tables asked for is here: german"):
        bench(tmp_path, "tabular --only german")


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [("--only", "digit", "digits"), ("--contenders", "forrest", "forest"), ("--again", "Shoal", "shoal")],
)
def test_tabular_refuses_what_it_does_not_know(tmp_path: Path, option: str, value: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"got '{value}'; did you mean '{hint}'"):
        bench(tmp_path, f"tabular {option} {value}")


@pytest.mark.parametrize("contender", ["shoal", "linear"])
def test_a_fit_for_real(contender: str) -> None:
    """One job of the benchmark, in a process of its own; what the command makes of the answers is tested above."""
    job = {"data": "iris", "fold": 1, "contender": contender, **COMMON, "seconds": 1.5}
    fit = tabular_fit.run(job, patience=60)
    assert "error" not in fit, fit
    assert fit["accuracy"] > 0.8
    assert 0 < fit["log_loss"] < 0.7
    assert fit["fit_seconds"] > 0
    assert fit["test_rows"] == 75

"""The benchmark of searches itself: splits, ranks and intervals are right, and a killed run goes on."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench import bench

from benchmarks.harness.child import CHECKOUT
from benchmarks.peers.tabular import budgets, data, report
from benchmarks.peers.tabular import fit as tabular_fit
from benchmarks.peers.tabular.contenders import ENTRANTS
from benchmarks.peers.tabular.environments import find_environments
from benchmarks.peers.tabular.journal import Journal
from benchmarks.peers.tabular.standing import Standing, interval
from shoal.datasets import find

pandas = pytest.importorskip("pandas")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two small tables, and peers that live in this environment."""
    generator = np.random.default_rng(0)
    number, word = generator.normal(size=90), generator.choice(["a", "b", "NA"], 90)
    sum_ = number + (word == "a") + generator.normal(size=90) / 4
    tables = tmp_path / "data" / "tables"
    tables.mkdir(parents=True)
    write(tables / "car.csv.gz", number, word, np.where(sum_ > 0.3, "yes", "no"))
    write(tables / "wage.csv.gz", number, word, sum_)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SHOAL_PEERS_PYTHON", sys.executable)
    return tables


def write(path: Path, number: np.ndarray, word: np.ndarray, target: np.ndarray) -> None:
    lines = ["a number,[word],target", *(f"{a},{b},{c}" for a, b, c in zip(number, word, target, strict=True))]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


# ---- tables and splits ----


def test_a_table_is_numbers_and_words(folder: Path) -> None:
    found = data.load(folder, "car")
    assert (found.task, found.classes) == ("classification", 2)
    assert list(found.X) == ["a number", "[word]"]
    assert found.described()["words"] == 1
    assert found.X["[word]"].isna().any()
    assert data.load(folder, "wage").task == "regression"
    (folder / "index.json").write_text(json.dumps([{"name": "wage", "task": "classification"}]))
    assert data.load(folder, "wage").classes == 90  # the index decides


def test_names_of_tables(folder: Path) -> None:
    assert data.names(folder) == ["car", "wage"]
    assert data.names(folder, held_out=True) == ["wage"]
    assert data.names(folder, held_out=False) == ["car"]
    with pytest.raises(ValueError, match="did you mean 'car'"):
        data.names(folder, ["cat"])
    with pytest.raises(FileNotFoundError, match="Name another folder with --tables"):
        data.names(folder.parent)


@given(st.lists(st.integers(0, 3), min_size=9, max_size=60), st.integers(0, 1000))
def test_splits_keep_the_shares_of_classes(labels: list[int], seed: int) -> None:
    y = np.unique(labels, return_inverse=True)[1]
    table = data.Dataset("t", "classification", None, y)
    train, test = data.split(table, seed)
    assert sorted([*train, *test]) == list(range(len(y)))
    assert np.array_equal(np.bincount(y[test], minlength=y.max() + 1), np.bincount(y) // 3)
    np.testing.assert_array_equal(data.split(table, seed)[1], test)
    numbers = data.split(data.Dataset("t", "regression", None, y.astype(float)), seed)
    assert len(numbers[1]) == len(y) // 3


def test_splits_differ_and_are_in_random_order() -> None:
    table = data.Dataset("t", "regression", None, np.arange(90.0))
    first, second = (data.split(table, seed)[1] for seed in (0, 1))
    assert set(first) != set(second)
    assert np.any(np.diff(first) < 0)


def test_the_tables_held_out_are_those_that_the_rule_names() -> None:
    assert all(map(data.is_held_out, data.HELD_OUT))
    try:
        entries = json.loads(find("tables/index.json").read_text())
    except FileNotFoundError:
        pytest.skip("the tables are not on this machine")
    assert {entry["name"] for entry in entries if data.is_held_out(entry["name"])} == set(data.HELD_OUT)
    readme = (CHECKOUT / "benchmarks" / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in data.HELD_OUT)


# ---- ranks, leads, ratios ----


def entries(**losses: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Of contenders with two splits on each of the tables a, b, ...; the score is 1 - loss. None: failed."""
    return [
        {"table": table, "split": split, "contender": name, "fit_seconds": 1.0, "predict_seconds": 1.0,
         "seconds": 30.0, "test_rows": 9, "details": {}} | ({"error": "no luck"} if loss is None
                                                            else {"loss": loss, "score": 1 - loss})
        for name, tables in losses.items()
        for table, pair in zip("abcdefgh", tables, strict=False) for split, loss in enumerate(pair)
    ]  # fmt: skip


def standing(**losses: Any) -> Standing:
    tables = "abcdefgh"[: len(next(iter(losses.values())))]
    return Standing.of(tables, list(losses), entries(**losses))


def test_ranks_by_hand() -> None:
    found = standing(
        shoal=[(0.1, 0.3), (0.5, 0.5), (0.2, 0.2)],
        linear=[(0.3, 0.3), (0.4, 0.6), (None, 0.1)],
        forest=[(0.1, 0.1), (0.6, 0.6), (0.1, 0.1)],
    )
    expected = [[2, 3, 1], [1.5, 1.5, 3], [2, 3, 1]]  # means over splits: .2 .3 .1 | .5 .5 .6 | .2 failed .1
    assert found.ranks("loss").tolist() == expected
    assert found.ranks("score").tolist() == expected
    assert found.lead("loss", "shoal", "linear").tolist() == [1, 0, 1]
    assert found.wins("loss", "shoal", "linear") == (2, 0)
    assert found.wins("loss", "shoal", "forest") == (1, 2)
    assert found.ratio("shoal", "forest") == pytest.approx((2 * 5 / 6 * 2) ** (1 / 3))
    assert found.ratio("shoal", "linear") == pytest.approx((2 / 3) ** 0.5)  # without the table where linear failed
    assert found.behind("shoal") == pytest.approx([2, 1, 2])
    assert found.behind("forest") == pytest.approx([0.5, 1.2, 0.5])
    assert found.behind("linear").tolist()[2] == np.inf


def test_tiny_losses_make_no_great_ratios() -> None:
    found = standing(shoal=[(1e-4, 1e-4)], linear=[(1e-7, 1e-7)])
    assert found.ratio("shoal", "linear") == 1
    assert found.ranks("loss").tolist() == [[2, 1]]


def test_intervals_of_means() -> None:
    assert interval(np.array([2.0, 2.0, 2.0])) == (2, 2)
    values = np.random.default_rng(1).normal(1.0, 2.0, 400)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert interval(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


def test_a_report_has_all_groups_and_its_targets_can_be_met_and_missed() -> None:
    tables = [{"name": name, "held_out": name == "c"} for name in "abc"]
    good = entries(shoal=[(0.1, 0.1)] * 3, linear=[(0.2, 0.2)] * 3)
    for entry in good:
        entry |= {"inside": entry["table"] != "a", "covered": True} if entry["contender"] == "shoal" else {}
    made = report.Report(tables, ["shoal", "linear"], good)
    groups = dict(made.groups())
    assert {name: list(one.tables) for name, one in groups.items()} == {
        "all tables": ["a", "b", "c"], "tables of the choices": ["a", "b"], "held out": ["c"],
    }  # fmt: skip
    summary = made.summary(groups["all tables"])
    assert summary["honest"] == {"pairs": 6, "inside": pytest.approx(4 / 6), "covered": 1}
    assert summary["against"]["linear"]["loss"] == {"lead": 1, "interval": (1, 1), "won": 3, "lost": 0}
    assert [target.met for target in report.targets(summary, True)] == [True] * 6 + [False, True]
    bad = entries(shoal=[(0.3, 0.3)] * 2 + [(0.2, 0.2)], linear=[(0.2, 0.2)] * 3)
    summary = report.Report(tables, ["shoal", "linear"], bad).summary(Standing.of("abc", ["shoal", "linear"], bad))
    assert summary["far_behind"] == {"a": pytest.approx(1.5), "b": pytest.approx(1.5)}
    assert [target.met for target in report.targets(summary, True)] == [False] * 4 + [True, False, None, None]
    alone = report.Report(tables, ["linear"], bad).summary(Standing.of("abc", ["linear"], bad))
    assert [target.met for target in report.targets(alone, True)] == [None] * 8


def test_curves_over_budgets() -> None:
    found = [{**entry, "seconds": seconds, "loss": entry["loss"] * factor}
             for seconds, factor in ((30.0, 1.0), (60.0, 0.5), (120.0, 0.5))
             for entry in entries(shoal=[(0.2, 0.4), (0.1, 0.1)])]  # fmt: skip
    curves = budgets.curves_of("ab", ["shoal"], (30.0, 60.0, 120.0), found)
    assert curves["shoal"][:, 0] == pytest.approx([0.3, 0.15, 0.15])
    assert budgets.relative(curves["shoal"]) == pytest.approx([1, 0.5, 0.5])
    better, rises = budgets.targets((30.0, 60.0, 120.0), curves, True)
    assert (better.measured, better.met) == (1, True)
    assert (rises.measured, rises.met) == (1, False)


# ---- the journal ----

JOB = {"table": "car", "split": 0, "contender": "linear", "seconds": 5.0, "cores": 2, "versions": {"scikit-learn": "1"}}


def test_the_journal_keeps_what_was_done_under_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    Journal(path).add(JOB, {"loss": 0.1})
    again = Journal(path)
    assert again.entry(JOB)["loss"] == 0.1
    others = {"table": "wage", "split": 1, "contender": "forest", "seconds": 6.0, "cores": 1, "versions": {}}
    assert not any(again.has({**JOB, name: value}) for name, value in others.items())


def test_a_line_that_was_cut_short_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).add(JOB, {"loss": 0.1})
    path.write_text(path.read_text() + '{"table": "car", "split": 1, "cont')
    Journal(path).add({**JOB, "split": 1}, {"loss": 0.2})
    again = Journal(path)
    assert [again.entry({**JOB, "split": split})["loss"] for split in (0, 1)] == [0.1, 0.2]


def test_what_is_to_be_measured_again_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    failed, other = {**JOB, "contender": "forest"}, {**JOB, "table": "wage"}
    journal.add(JOB, {"loss": 0.1})
    journal.add(other, {"loss": 0.1})
    journal.add(failed, {"error": "no luck"})
    journal.forget([JOB, failed], [])
    assert journal.has(failed)  # a failure counts
    journal.forget([JOB, failed], ["failed"])
    assert [journal.has(job) for job in (JOB, failed)] == [True, False]
    journal.forget([JOB], ["linear"])
    for one in (journal, Journal(path)):
        assert [one.has(job) for job in (JOB, failed, other)] == [False, False, True]


# ---- the commands ----


def made_up_fit(python: str, table: data.Dataset, job: dict[str, Any]) -> dict[str, Any]:
    """What a fit would say, without one."""
    if (job["contender"], job["table"], job["split"]) == ("linear", "wage", 1):
        return {"error": "ValueError: no luck"}
    loss = 1.0 * (1 + list(ENTRANTS).index(job["contender"])) / job["seconds"]
    found = {"loss": loss, "score": 1 - loss, "fit_seconds": 5.0, "predict_seconds": 0.1, "test_rows": 50}
    return (
        found | {"details": {"candidates": 7}} | ({"inside": True, "covered": True} if "shoal" in job.values() else {})
    )


def test_tabular_tells_ranks_and_failures(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular_fit, "run", made_up_fit)
    result = bench(tmp_path, "tabular --contenders shoal linear boosting catboost --seconds 5.0")
    assert result["contenders"][:3] == ["shoal", "linear", "boosting"]
    assert len(result["fits"]) == 2 * 2 * len(result["contenders"])
    assert [entry["contender"] for entry in result["fits"][:2]] == ["shoal", "linear"]  # they take turns
    assert result["groups"]["held out"]["tables"] == ["wage"]
    assert result["groups"]["all tables"]["mean_ranks"]["loss"]["shoal"] == 1
    assert result["groups"]["all tables"]["against"]["linear"]["loss"]["won"] == 2
    assert not any(target["complete"] for target in result["targets"])
    assert "numpy" in result["packages"]["peers"]
    text = (tmp_path / "tabular.md").read_text()
    assert "Failed, and ranked last: linear on wage, split 1, 5 s: ValueError: no luck." in text
    if "catboost" not in result["contenders"]:
        assert "catboost did not take part: catboost is not installed in its environment." in text
    assert "| wage | 0.2000 * | failed |" in text


def test_tabular_goes_on_where_it_was_killed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, str]] = []

    def fit(python: str, table: data.Dataset, job: dict[str, Any]) -> dict[str, Any]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append((job["split"], job["contender"]))
        return made_up_fit(python, table, job)

    monkeypatch.setattr(tabular_fit, "run", fit)
    command = "tabular --only car --contenders shoal linear --seconds 5.0"
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path, command)
    first, done[:] = list(done), []
    bench(tmp_path, command)
    assert first + done == [(split, name) for split in (0, 1) for name in ("shoal", "linear")]
    done.clear()
    bench(tmp_path, command)
    assert done == []
    bench(tmp_path, f"{command} --again shoal")
    assert done == [(0, "shoal"), (1, "shoal")]


def test_budgets_share_the_fits_of_tabular(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular_fit, "run", made_up_fit)
    bench(tmp_path, "tabular --contenders shoal --seconds 30.0")
    result = bench(tmp_path, "tabular-budgets --budgets 120.0 30.0 60.0")
    assert result["tables"] == ["car"]  # without those held out
    assert result["curves"]["shoal"] == pytest.approx([1, 0.5, 0.25])
    assert [target["met"] for target in result["targets"]] == [True, True]
    assert len((tmp_path / "tabular.jsonl").read_text().splitlines()) == 4 + 2 * 2


def test_without_an_environment_of_the_peers_only_shoal_takes_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOAL_PEERS_PYTHON", raising=False)
    monkeypatch.setattr("benchmarks.peers.tabular.environments.BUILT", tmp_path / "nowhere")
    found = find_environments(["shoal", "linear"])
    assert list(found.present) == ["shoal"]
    assert found.absent == {"linear": "the environment of the peers is not built: make peers"}
    monkeypatch.setenv("SHOAL_PEERS_PYTHON", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="Build it with: make peers"):
        find_environments(["linear"])


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [("--only", "cat", "car"), ("--contenders", "forrest", "forest"), ("--again", "Shoal", "shoal")],
)
def test_tabular_refuses_what_it_does_not_know(
    folder: Path, tmp_path: Path, option: str, value: str, hint: str
) -> None:
    with pytest.raises(ValueError, match=f"got '{value}'; did you mean '{hint}'"):
        bench(tmp_path, f"tabular {option} {value}")


def test_fits_for_real(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shoal and a peer, each in a process of its own, on a table of numbers, words and missing cells."""
    monkeypatch.setattr(tabular_fit, "OVERRUN", 100.0)  # tests may run on a busy machine
    result = bench(tmp_path, "tabular --contenders shoal linear --seconds 1.5 --splits 1")
    assert [entry.get("error") for entry in result["fits"]] == [None] * 4
    for entry in result["fits"]:
        assert entry["score"] > (0.6 if entry["contender"] == "linear" else 0.2)  # Shoal had hardly any time
        assert 0 < entry["loss"] < 1.5
        assert entry["test_rows"] == 30 or entry["table"] == "car"
        assert ("inside" in entry) == (entry["contender"] == "shoal")


def test_no_peer_needs_shoal() -> None:
    modules = [f"benchmarks.peers.tabular.{one.maker.split(':')[0]}" for one in ENTRANTS.values()]
    code = "; ".join(f"import {name}" for name in ["benchmarks.peers.tabular.child", *modules])
    code += "; import sys; sys.exit('shoal' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=False).returncode == 0

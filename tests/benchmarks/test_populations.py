"""Benchmarks compare like with like, say what they measured, and never decide beforehand who wins."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bench import bench
from support.mnist import write_mnist

from benchmarks import peers
from benchmarks.__main__ import main
from benchmarks.engine import scaling
from benchmarks.harness import machine, measure
from benchmarks.harness.problems import Problem, group, paper_members, random_data, sample_groups
from benchmarks.harness.verdict import Target, verdict_table
from benchmarks.papers.parallel_mlps import printed as paper
from benchmarks.papers.parallel_mlps import table1, table1_report
from benchmarks.peers import shapes
from shoal import Member, Population
from shoal.population.members import ACTIVATIONS

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
STACKED: list[tuple[str, dict[str, Any]]] = [("vmap", {}), ("vmap", {"chunk": 2}), ("bmm", {}), ("bmm", {"chunk": 2})]


# ---- nobody is fast by doing less ----


def assert_same_training(name: str, members: list[Member], **options: Any) -> None:
    """A peer ends where native ends, from the same weights and with the same batches, the last and smaller included."""
    X, y = random_data(29, 6, classes=3)
    native = Population(members, 6, 3)
    native.fit(X, y, 3, engine="native", threads=1, shuffle=False)
    peer = peers.make(name, Problem(Population(members, 6, 3), X, y), threads=1, **options)
    peer.run(2, shuffle=False)
    peer.run(1, shuffle=False)  # a run goes on from where the last one ended
    start = Population(members, 6, 3)
    for i in range(len(members)):
        for (W, b), (W_peer, b_peer), (W_start, _) in zip(
            native.weights(i), peer.weights(i), start.weights(i), strict=True
        ):
            np.testing.assert_allclose(W_peer, W, atol=1e-4, rtol=1e-4)
            np.testing.assert_allclose(b_peer, b, atol=1e-4, rtol=1e-4)
            assert np.abs(W - W_start).max() > 1e-3  # there was something to learn


@pytest.mark.parametrize("name", ["grouped", "reference", "vmap", "sequential"])
def test_peers_of_table1_do_the_same_work(name: str) -> None:
    members = [
        Member(width, activation, "sgd", 0.1, batch_size=8, seed=seed)
        for width, activation in zip(cycle((1, 3, 4, 5, 7, 2, 6, 9, 8, 5)), ACTIVATIONS, strict=False)
        for seed in range(2)
    ]
    assert_same_training(name, members)


@pytest.mark.parametrize(("name", "options"), STACKED)
@pytest.mark.parametrize(
    ("hidden", "activation", "optimizer"), [((5,), "relu", "sgd"), ((6,), "tanh", "sgd"), ((5, 4), "relu", "adam")]
)
def test_stacked_peers_do_the_same_work(
    name: str, options: dict[str, Any], hidden: tuple[int, ...], activation: str, optimizer: str
) -> None:
    same_shape(name, options, hidden, activation, optimizer)


@needs_jax
@pytest.mark.parametrize("formulation", ["vmap", "einsum", "wide"])
@pytest.mark.parametrize(
    ("hidden", "activation", "optimizer", "chunk"), [((6,), "tanh", "sgd", None), ((5, 4), "relu", "adam", 2)]
)
def test_jax_does_the_same_work(
    formulation: str, hidden: tuple[int, ...], activation: str, optimizer: str, chunk: int | None
) -> None:
    same_shape("jax", {"formulation": formulation, "chunk": chunk}, hidden, activation, optimizer)


def same_shape(name: str, options: dict[str, Any], hidden: tuple[int, ...], activation: str, optimizer: str) -> None:
    rate = 0.1 if optimizer == "sgd" else 0.01
    members = [Member(hidden, activation, optimizer, rate, batch_size=8, seed=seed) for seed in range(3)]
    assert_same_training(name, members, **options)


def test_a_peer_refuses_what_it_cannot_do() -> None:
    X, y = random_data(8, 3)
    with pytest.raises(ValueError, match="relu and tanh; got 'gelu'"):
        peers.make("bmm", Problem(Population([Member(4, "gelu", "sgd")], 3, 2), X, y), threads=1)
    with pytest.raises(ValueError, match="sgd or adam; got 'adamw'"):
        peers.make("sequential", Problem(Population([Member(4, optimizer="adamw")], 3, 2), X, y), threads=1)


# ---- what is trained ----


def test_the_paper_s_population() -> None:
    members = paper_members()
    assert len(set(members)) == 10_000
    widths = np.array([member.hidden[0] for member in members])
    assert np.bincount(widths)[1:].tolist() == [100] * 100
    assert Counter(member.activation for member in members) == dict.fromkeys(ACTIVATIONS[:10], 1000)
    assert {member.optimizer for member in members} == {"sgd"}


@pytest.mark.parametrize("count", [10, 40, 500, 2000])
def test_a_smaller_population_is_spread_evenly(count: int) -> None:
    members = paper_members(count)
    assert len(set(members)) == count
    assert np.mean([member.hidden[0] for member in members]) == pytest.approx(50.5, abs=1.5)


@pytest.mark.parametrize("count", [10, 40, 100])
def test_a_sample_of_groups_does_its_share_of_the_work(count: int) -> None:
    members = paper_members()
    chosen = sample_groups(members, count)
    assert len(chosen) == count
    assert all(len(indices) == 10 for indices in chosen)
    assert len({int(i) for indices in chosen for i in indices}) == 10 * count
    picked = [members[indices[0]] for indices in chosen]
    assert np.mean([member.hidden[0] for member in picked]) == pytest.approx(50.5, abs=2.5)
    assert len({member.activation for member in picked}) == 10


def test_a_sample_larger_than_the_whole_is_the_whole() -> None:
    members = paper_members(40)
    assert len(sample_groups(members, 1000)) == len(group(members))


def test_the_paper_s_numbers_are_transcribed_whole() -> None:
    cells = [
        paper.table1(samples, features, batch)
        for samples in paper.SAMPLES
        for features in paper.FEATURES
        for batch in paper.BATCHES
    ]
    assert all(cell is not None and cell.sequential > 9 * cell.parallel for cell in cells)
    # The paper prints parallel / sequential in percent: 3.91 in its first cell, 10.322 in its last.
    first, last = cells[0], cells[-1]
    assert first is not None
    assert last is not None
    assert 100 / first.ratio == pytest.approx(3.91, abs=0.005)
    assert 100 / last.ratio == pytest.approx(10.322, abs=0.005)
    assert paper.table1(17, 5, 32) is None


def test_a_diverged_network_spoils_the_measurement() -> None:
    X, y = random_data(40, 3)
    problem = Problem(Population([Member(4, "identity", "sgd", 1e30, batch_size=8)], 3, 2), X, y)
    problem.check()
    problem.population.fit(X, y, 5)
    with pytest.raises(RuntimeError, match="1 of 1 networks diverged"):
        problem.check()


# ---- how it is measured ----


class Scripted:
    """A clock that gives out seconds by contender, and remembers who ran when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, list[float]]) -> None:
        self.left = {name: list(values) for name, values in seconds.items()}
        self.order: list[str] = []
        monkeypatch.setattr(measure, "_seconds", lambda action: action())

    def contender(self, name: str, key: str, **options: Any) -> measure.Contender:
        def run() -> float:
            self.order.append(key)
            return self.left[key].pop(0)

        return measure.Contender(name, run, lambda: self.order.append(f"warm {key}"), **options)


def test_engines_take_turns_and_the_best_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, {"a": [3.0, 2.0, 4.0], "b": [1.0, 1.5, 2.0]})
    ticks: list[str] = []
    contenders = [script.contender("a", "a", divisor=2.0), script.contender("b", "b", scale=10.0, scaled="a tenth")]
    timings = measure.race(contenders, 3, ticks.append)
    assert script.order == ["warm a", "warm b", "a", "b", "a", "b", "a", "b"]
    assert timings["a"].seconds == 1.0
    assert timings["b"].seconds == 10.0
    assert timings["b"].as_dict()["scaled"] is True
    assert timings["b"].as_dict()["measured_on"] == "a tenth"
    assert timings["a"].as_dict()["scaled"] is False
    assert timings["a"].raw == {"only": [3.0, 2.0, 4.0]}
    assert len(ticks) == measure.rounds(2, 3)


def test_the_fastest_variant_counts_and_hopeless_ones_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, {"one": [2.0, 1.9], "two": [1.8, 2.1], "nine": [9.0]})
    contenders = [script.contender("torch", key, variant=key) for key in ("one", "two", "nine")]
    timing = measure.race(contenders, 2, lambda _: None)["torch"]
    assert (timing.seconds, timing.variant) == (1.8, "two")
    assert timing.raw == {"one": [2.0, 1.9], "two": [1.8, 2.1], "nine": [9.0]}


def test_torch_is_given_its_best_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_THREADS", "2")
    X, y = random_data(40, 3)
    problem = Problem(Population(paper_members(20, 8), 3, 2), X, y)
    variants = {name: [c.variant for c in table1.enter(name, problem, None)] for name in table1.ENGINES}
    assert variants["sequential"] == variants["vmap"] == ["1 thread", "2 threads"]
    assert variants["native"] == variants["grouped"] == variants["reference"] == ["2 threads"]


def test_what_is_left_out_is_scaled_up() -> None:
    X, y = random_data(3000, 3)
    problem = Problem(Population(paper_members(400, 32), 3, 2), X, y)
    found = {name: table1.enter(name, problem, None)[0] for name in table1.ENGINES}
    assert (found["native"].scale, found["native"].scaled, found["native"].divisor) == (1.0, "", 1.0)
    assert found["sequential"].scaled == "40 of 400 models and 1,024 of 3,000 rows"
    assert found["sequential"].scale == pytest.approx(10 * 3000 / 1024)
    assert found["reference"].scaled == "64 of 3,000 rows"
    # The update that is taken off is not counted either: 256 rows less one batch of 32.
    assert found["grouped"].divisor == pytest.approx(1 - 32 / 256)


def test_long_runs_are_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, {"long": [5.0, 6.0], "short": [1.0] * 4})
    timings = measure.race([script.contender(name, name) for name in ("long", "short")], 4, lambda _: None)
    assert [len(timings[name].raw["only"]) for name in ("long", "short")] == [2, 4]


def test_what_is_not_training_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(monkeypatch, {"grouped": [5.0, 4.0]})
    contender = script.contender("grouped", "grouped", divisor=3.0, idle=lambda: 1.0)
    timing = measure.race([contender], 2, lambda _: None)["grouped"]
    assert timing.seconds == 1.0
    assert timing.as_dict()["raw_seconds_taken_off"] == [1.0, 1.0]


def test_the_fit_sees_what_is_not_linear() -> None:
    sizes = [10.0, 20.0, 50.0, 100.0, 200.0]
    line = measure.fit_line(sizes, [3 + 2 * size for size in sizes])
    assert (line.fixed, line.each, line.r_squared) == pytest.approx((3, 2, 1))
    square = measure.fit_line(sizes, [size**2 for size in sizes])
    assert square.exponent == pytest.approx(2)
    assert square.r_squared < 0.97
    targets = scaling.targets([{"threads": 1, "speed_up": 1.0}], {"rows": {"fit": vars(square)}})
    assert [target.met for target in targets] == [None, False]


# ---- what is concluded ----


@pytest.mark.parametrize(
    ("measured", "at_least", "met"),
    [
        (10.0, True, True),
        (9.99, True, False),
        (0.99, False, True),
        (10.0, False, False),
        (None, True, None),
        (math.nan, True, False),
    ],
)
def test_a_target_is_met_or_not(measured: float | None, at_least: bool, met: bool | None) -> None:
    bound = 10.0 if at_least else 1.0
    assert Target("x", measured, bound, at_least).met is met


def test_a_part_of_the_work_is_no_verdict_on_the_whole() -> None:
    rows = verdict_table([Target("x", 2.0, 1.0, complete=False), Target("y", 2.0, 1.0), Target("z", None, 1.0)]).rows
    assert [row[3] for row in rows] == ["met in this part", "met", "not measured"]


def made_up_cells(sequential: float = 60.0, reference: float = 40.0, share: float = 0.8) -> list[dict[str, Any]]:
    """All cells of the paper, native at one second, the others so many times slower."""
    cells = []
    for samples, features, batch in itertools.product(paper.SAMPLES, paper.FEATURES, paper.BATCHES):
        times = {"native": 1.0, "reference": reference, "sequential": sequential}
        theirs = paper.table1(samples, features, batch)
        assert theirs is not None
        cells.append({
            "samples": samples, "features": features, "batch": batch,
            "engines": {
                name: {
                    "seconds": seconds, "scaled": name != "native", "measured_on": "a part",
                    "gflops": 100 * share / seconds, "native_is_faster_by": seconds, "share_of_peak": share / seconds,
                }
                for name, seconds in times.items()
            },
            "paper": {"parallel": theirs.parallel, "sequential": theirs.sequential, "ratio": theirs.ratio},
        })  # fmt: skip
    return cells


SETUP = {"members_seconds": 0.2, "population_seconds": 0.3, "seconds": 0.5}
MEMORY = {
    "samples": 10_000, "features": 100, "batch": 256, "members": 10_000, "threads": 2,
    "peak_bytes": 300_000_000, "imports_bytes": 50_000_000,
}  # fmt: skip


def test_all_targets_of_table1_can_be_met() -> None:
    targets = table1_report.targets(made_up_cells(), SETUP, MEMORY)
    assert [target.met for target in targets] == [True] * 8
    assert all(target.complete for target in targets)


def test_what_was_scaled_has_a_mark() -> None:
    cells = made_up_cells()
    cells[0]["engines"]["reference"]["scaled"] = False
    first, *_, means = table1_report.ratio_table(cells).rows
    assert (first[3:5], means[3:5]) == (["40.0x", "~60.0x"], ["~40.0x", "~60.0x"])
    shown = [row[2] for row in verdict_table(table1_report.targets(cells, SETUP, MEMORY)).rows]
    assert [text.startswith("~") for text in shown] == [True] * 5 + [False] * 3
    hollow = [line for line in table1_report.draw(cells).axes[0].lines if line.get_markerfacecolor() == "white"]
    assert sorted(len(line.get_xdata()) for line in hollow) == [0, 3, 4]  # the legend, reference, sequential


def test_one_bad_cell_is_seen() -> None:
    cells = made_up_cells()
    cells[7]["engines"]["reference"]["native_is_faster_by"] = 9.0
    cells[8]["engines"]["sequential"]["native_is_faster_by"] = 5.0
    cells[9]["engines"]["native"]["share_of_peak"] = 0.5  # a cell of 100 features
    met = [target.met for target in table1_report.targets(cells, SETUP, MEMORY)]
    assert cells[9]["features"] == 100
    assert met == [False, True, False, True, False, False, True, True]


def test_every_target_of_table1_can_fail() -> None:
    cells = made_up_cells(sequential=9.0, reference=8.0, share=0.3)
    memory, setup = {**MEMORY, "peak_bytes": 1_100_000_000}, {**SETUP, "seconds": 1.2}
    assert [target.met for target in table1_report.targets(cells, setup, memory)] == [False] * 8


def test_a_few_cells_are_no_complete_verdict() -> None:
    targets = table1_report.targets(made_up_cells()[:3], SETUP, {**MEMORY, "samples": 100})
    assert [target.complete for target in targets] == [False] * 7 + [True]
    without = made_up_cells()
    for cell in without:
        del cell["engines"]["sequential"]
    assert [target.met for target in table1_report.targets(without, SETUP, MEMORY)][2:5] == [None] * 3


def test_shapes_targets() -> None:
    def case(vmap: float, jax: float, share: float) -> dict[str, Any]:
        engines = {
            "native": {"share_of_peak": share},
            "vmap": {"native_is_faster_by": vmap},
            "jax": {"native_is_faster_by": jax},
        }
        return {"case": "made up", "hidden": [64, 64], "optimizer": "adam", "engines": engines}

    assert [t.met for t in shapes.targets([case(3.5, 2.6, 0.7), case(3.1, 2.5, 0.6)], whole=True)] == [True] * 3
    assert [t.met for t in shapes.targets([case(3.5, 2.6, 0.7), case(2.9, 2.4, 0.5)], whole=True)] == [False] * 3


# ---- the commands ----


def test_table1(tmp_path: Path) -> None:
    command = "table1 --samples 100 300 --features 5 --batches 32 --repeats 1 --members 400"
    result = bench(tmp_path, command)
    assert [cell["samples"] for cell in result["cells"]] == [100, 300]
    for cell in result["cells"]:
        assert list(cell["engines"]) == list(table1.ENGINES)
        for numbers in cell["engines"].values():
            assert min(numbers[key] for key in ("seconds", "gflops", "share_of_peak", "native_is_faster_by")) > 0
            assert all(seconds > 0 for runs in numbers["raw_seconds"].values() for seconds in runs)
        assert not cell["engines"]["native"]["scaled"]
        assert cell["engines"]["native"]["native_is_faster_by"] == 1
        assert cell["engines"]["sequential"]["measured_on"].startswith("40 of 400 models")
        assert cell["engines"]["vmap"]["measured_on"].startswith("100 of 400 models")
    assert result["cells"][1]["engines"]["reference"]["measured_on"] == "64 of 300 rows"
    assert (result["cells"][0]["paper"]["parallel"], result["cells"][1]["paper"]) == (0.525, None)
    assert 10e6 < result["memory"]["imports_bytes"] <= result["memory"]["peak_bytes"] < 1e9
    assert len(result["targets"]) == 8
    assert not any(target["complete"] for target in result["targets"])
    table = (tmp_path / "table1.md").read_text()
    assert "~ sequential: measured on 40 of 400 models" in table
    assert "met in this part" in table


def test_table1_of_some_engines(tmp_path: Path) -> None:
    command = "table1 --samples 64 --features 3 --batches 16 --engines grouped --epochs 2 --repeats 2 --members 20"
    result = bench(tmp_path, command)
    (cell,) = result["cells"]
    assert list(cell["engines"]) == ["native", "grouped"]
    assert len(cell["engines"]["grouped"]["raw_seconds_taken_off"]) == 2
    assert [target["met"] for target in result["targets"]][:5] == [None] * 5


def test_shapes(tmp_path: Path) -> None:
    command = "shapes --engines grouped vmap bmm --members 12 --rows 40 --features 6 --repeats 1"
    result = bench(tmp_path, command)
    assert len(result["cases"]) == len(shapes.CASES)
    for case in result["cases"]:
        assert list(case["engines"]) == ["native", "grouped", "vmap", "bmm"]
        assert all(numbers["seconds"] > 0 and not numbers["scaled"] for numbers in case["engines"].values())
        assert len(case["engines"]["bmm"]["raw_seconds"]) == 3
    assert [target["met"] is None for target in result["targets"]] == [False, True, False]
    assert "jax was not measured" in (tmp_path / "shapes.md").read_text()


@needs_jax
def test_shapes_with_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes.shapes, "quick", {"cases": shapes.CASES[:1], "repeats": 1})
    result = bench(tmp_path, "shapes --engines jax --members 4 --rows 40 --features 3 --epochs 1 --quick")
    assert len(result["cases"][0]["engines"]["jax"]["raw_seconds"]) == 6
    assert result["targets"][1]["measured"] > 0


def test_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling.scaling, "quick", {"base": (20, 30, 5), "repeats": 1})
    result = bench(tmp_path, "scaling --members 200 --rows 300 --features 60 --quick")
    assert [entry["threads"] for entry in result["threads"]][:2] == [1, 2]
    assert result["threads"][0]["speed_up"] == 1
    for name, largest in (("members", 200), ("rows", 300), ("features", 60)):
        curve = result["curves"][name]
        assert curve["sizes"][-1] == largest
        assert len(curve["sizes"]) == len(curve["seconds"]) == 6
        assert {"fixed", "each", "r_squared", "exponent"} == set(curve["fit"])
    assert not any(target["complete"] for target in result["targets"])


def test_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "data" / "mnist", train=600, test=100)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    command = "mnist --sample 20 --rows 128 --train-members 3 --train-rows 500 --epochs 3 --repeats 1"
    result = bench(tmp_path / "out", command)
    speed, trained = result["speed"], result["trained"]
    assert speed["projected"] is True
    assert speed["measured_on"] == "20 of 10,000 networks, 128 of 600 rows"
    assert speed["seconds_per_epoch"] > speed["seconds_measured"] > 0
    assert (speed["paper_gpu_parallel_seconds"], speed["paper_gpu_sequential_seconds"]) == (118.3, 6348.3)
    assert (trained["training_rows"], trained["held_out_rows"], trained["test_rows"]) == (417, 83, 100)
    assert np.shape(trained["held_out_curves"]) == (3, 3)
    final = [curve[-1] for curve in trained["held_out_curves"]]
    assert trained["best_held_out_accuracy"] == pytest.approx(max(final), abs=1e-5)
    assert trained["best_test_accuracy"] > 0.5  # squares in ten places are easy to tell apart


def test_an_epoch_of_all_networks_and_rows_of_mnist_is_not_projected(tmp_path, monkeypatch) -> None:
    from benchmarks.papers.parallel_mlps import mnist

    write_mnist(tmp_path / "data" / "mnist", train=100, test=50)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(mnist, "PAPER_MEMBERS", 20)
    command = "mnist --sample 20 --rows 100 --train-members 2 --train-rows 100 --epochs 1 --repeats 1"
    speed = bench(tmp_path / "out", command)["speed"]
    assert speed["projected"] is False
    assert speed["seconds_per_epoch"] == speed["seconds_measured"]
    assert "projected" not in (tmp_path / "out" / "mnist.md").read_text()


@pytest.mark.parametrize("command", ["table1", "shapes"])
def test_an_unknown_engine_is_refused_with_the_nearest_one(command: str) -> None:
    with pytest.raises(ValueError, match="got 'vmop'; did you mean 'vmap'"):
        main([command, "--engines", "vmop"])


@pytest.mark.parametrize(("module", "extra"), [("torch", "bench"), ("matplotlib", "bench"), ("jax", "jax")])
def test_a_missing_module_gives_one_sentence(monkeypatch: pytest.MonkeyPatch, module: str, extra: str) -> None:
    monkeypatch.setattr(machine, "installed", lambda name: name != module)
    with pytest.raises(ModuleNotFoundError) as error:
        main(["shapes", "--engines", "jax"])
    assert str(error.value) == f"this benchmark needs {module}: pip install '.[{extra}]'"

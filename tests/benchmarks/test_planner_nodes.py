"""A paper on nodes, repeated: its numbers, what is trained and predicted, causes of losses, the whole command."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.bench import bench
from support.mnist import write_mnist
from support.planner import cost_model, state_of

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from benchmarks.papers.node_simulator import cnn as nodes_cnn  # noqa: E402
from benchmarks.papers.node_simulator import conclusions, nodes, printed, study, times  # noqa: E402
from benchmarks.papers.node_simulator import curve as nodes_curve  # noqa: E402
from benchmarks.papers.node_simulator import start as nodes_start  # noqa: E402
from benchmarks.papers.node_simulator import text as nodes_text  # noqa: E402
from benchmarks.papers.node_simulator.start import Mean  # noqa: E402
from benchmarks.planner import dlmp  # noqa: E402
from benchmarks.planner.dlmp import Prediction  # noqa: E402
from shoal.errors import UserError  # noqa: E402
from shoal.parallel.data.ownership import owners  # noqa: E402
from shoal.parallel.job import Job  # noqa: E402
from shoal.parallel.networks import make_model  # noqa: E402
from shoal.planner.cost.cluster import NodeLink  # noqa: E402
from shoal.planner.simulate.averaged import train_averaged  # noqa: E402

REVIEWS = 250
TINY = replace(study.QUICK, text_rows=REVIEWS, features=30)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Reviews that one word tells apart, each with a word of its own; images; the folder for results."""
    lines = ["review,sentiment"]
    for k in range(REVIEWS):
        words = f'"a film, {"good" if k % 2 else "bad"} {"plot" if k % 3 else "score"} own{k:03}"'
        lines.append(f"{words},{'pos' if k % 2 else 'neg'}")
    file = tmp_path / "data" / nodes_text.FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    write_mnist(tmp_path / "data" / "mnist", train=600, test=50)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    return tmp_path / "out"


def small(rows: int = 61) -> tuple[nn.Sequential, TensorDataset]:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 4, generator=generator)
    return make_model("mlp:4-6-2", activation="tanh"), TensorDataset(X, (X[:, 0] > 0).long())


# ---- the paper ----


def test_the_papers_improvements_are_computed_from_its_seconds() -> None:
    assert printed.printed_by(3) == "previous row"
    assert printed.printed_by(4) == "formula"
    assert "12.98 and 69.41 in place of 9.28 and 64.85" in printed.correction()
    assert [printed.improvement_cell(3, count) for count in (1, 2, 6, 8)] == ["-", "4.08", "-", "64.85 [69.41]"]
    assert [printed.improvement_cell(4, count) for count in (2, 4, 8)] == ["5.97", "-48.08", "-"]
    assert printed.seconds_cell(3, 4) == "8,277.06"
    assert printed.seconds_cell(7, 2) == printed.improvement_cell(7, 2) == "not published"


# ---- times ----


def test_folds_multiply_computing_and_not_averaging() -> None:
    model = cost_model(NodeLink(1e6, 1e-3), rows=12_800, batch_size=32)
    plain, folded = (times.predict(model, 4, 3, "epoch", folds) for folds in (1, 5))
    assert folded.computing == pytest.approx(4 * plain.computing)  # 5 networks on 4 of 5 parts
    assert folded.averaging == pytest.approx(plain.averaging)
    assert plain.averaging > 0
    once = times.predict(model, 4, 3, "end")
    assert once.computing == pytest.approx(plain.computing)
    assert once.averaging == pytest.approx(plain.averaging / 3)


def test_without_splitting_nodes_save_nothing_but_folds() -> None:
    model = cost_model(NodeLink(1e9, 0.0), rows=12_800, batch_size=32)
    one, whole = (times.predict(model, count, 2, split=False).computing for count in (1, 4))
    assert whole == pytest.approx(one)
    assert times.predict(model, 4, 2).computing == pytest.approx(one / 4)
    folds = [times.predict(model, count, 2, folds=5, split=False).computing for count in (1, 2, 5, 8)]
    assert folds == pytest.approx([folds[0], folds[0] * 3 / 5, folds[0] / 5, folds[0] / 5])
    assert folds[0] == pytest.approx(times.predict(model, 1, 2, folds=5).computing)


# ---- what is trained ----


def test_words_are_those_of_the_rows_to_train_on(data: Path) -> None:
    texts = nodes_text.load_texts(1000, REVIEWS)
    trained, tested = len(texts.train), len(texts.test)
    assert (trained, tested) == (200, 50)
    assert texts.features == trained + len({"film", "good", "bad", "plot", "score"})  # own words of other rows are not
    assert (texts.test.tensors[0] > 0).sum(1).tolist() == [3] * tested
    assert torch.bincount(texts.test.tensors[1]).tolist() == [25, 25]


def test_unsplit_nodes_have_all_rows_each(data: Path) -> None:
    texts = nodes_text.load_texts(30, REVIEWS)
    whole = nodes_text.unsplit(texts, 3)
    job = replace(nodes_text.job_of(TINY, 3, 0), split="order")
    owner = owners(whole.train.tensors[1], len(whole.train), 3, job)
    for node in range(3):
        for part, everything in zip(whole.train.tensors, texts.train.tensors, strict=True):
            assert torch.equal(part[owner == node], everything)


@pytest.mark.parametrize("folds", [2, 3])
def test_folds_of_any_network_are_those_of_the_engine(folds: int) -> None:
    """Rows in their order, so that both take the same ones; the number of nodes does not divide that of rows."""
    model, train = small()
    job = Job(strategy="local_sgd", average_every="end", workers=2, backend="threads", device="cpu", optimizer="sgd",
              learning_rate=0.1, batch_size=8, epochs=3, blas_threads=1, shuffle=False)  # fmt: skip
    slow = nodes_cnn.folded(job, model, train, folds).state_dict()
    fast = state_of(model, train_averaged(model, train, job, folds=folds))
    other = state_of(model, train_averaged(model, train, job, folds=5 - folds))
    assert all(torch.allclose(slow[name], fast[name], atol=1e-5) for name in slow)
    assert not all(torch.allclose(slow[name], other[name], atol=1e-4) for name in slow)
    assert not torch.equal(slow["0.weight"], model[0].weight)  # the model itself is left as it was


def test_batches_shrink_with_the_rows(data: Path) -> None:
    images = nodes_cnn.load_images(TINY)
    assert (len(images.train), len(images.test), len(images.everything)) == (60, 100, 480)
    assert images.batch == 128


# ---- starts ----


def test_nodes_by_themselves_begin_as_nodes_that_average() -> None:
    """Steps of no size: the average of own starts is the mean of what single nodes begin with."""
    model, train = small()
    job = Job(strategy="local_sgd", average_every="end", workers=3, start="own", backend="threads", device="cpu",
              optimizer="sgd", learning_rate=1e-9, batch_size=8, epochs=1, seed=5)  # fmt: skip
    begun = [nodes_start.own_start(model, 5, node, "own").state_dict()["0.weight"] for node in range(3)]
    averaged = state_of(model, train_averaged(model, train, job))["0.weight"]
    shares = torch.tensor([21, 20, 20]) / 61
    assert torch.allclose(averaged, torch.einsum("n,nij->ij", shares, torch.stack(begun)), atol=1e-6)
    assert torch.equal(begun[0], model[0].weight)
    assert torch.equal(nodes_start.own_start(model, 5, 2, "same").state_dict()["0.weight"], model[0].weight)


def cells(same: float, own: float, single: float) -> dict[str, Any]:
    def seeds(value: float) -> list[float]:
        return [value - 0.001, value, value + 0.001]

    return {"layers": 1, "nodes": 4, "alone": seeds(0.9), "cells": {
        "averaged, same": seeds(same), "averaged, own": seeds(own), "single, same": seeds(single),
        "single, own": seeds(single),
    }}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (cells(0.9, 0.6, 0.9), "different starts"),
        (cells(0.8, 0.8, 0.8), "less data"),
        (cells(0.8, 0.6, 0.88), "mostly different starts"),
        (cells(0.8, 0.78, 0.8), "mostly less data"),
        (cells(0.8, 0.7, 0.8), "both"),
        (cells(0.9, 0.9, 0.9), "neither for sure"),
    ],
)
def test_the_cause_of_a_loss(found: dict[str, Any], cause: str) -> None:
    assert nodes_start.cause(found) == cause
    parts = nodes_start.losses(found)
    assert parts.altogether.value == pytest.approx(parts.less_data.value + parts.averaging.value + parts.starts.value)


def test_intervals_are_students() -> None:
    found = Mean.of([1.0, 2.0, 3.0])
    assert (found.value, found.high) == (2.0, pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-3))
    assert found.low == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-3)
    assert not found.sure
    assert not Mean.of([1.0]).sure
    assert Mean.of([-1.0, -1.1, -1.2]).sure


# ---- conclusions ----


def trained(layers: int, variant: str, accuracies: dict[int, float], seconds: dict[int, tuple[float, float]]) -> Any:
    return [{
        "layers": layers, "nodes": count, "variant": variant, "epochs": 10.0, "stopped": True,
        "accuracies": [value - 0.01, value, value + 0.01],
        "predicted": {place: dict(zip(("computing", "averaging", "seconds"), (*seconds[count], sum(seconds[count])),
                                      strict=True)) for place in ("own", "shared")},
    } for count, value in accuracies.items()]  # fmt: skip


def test_conclusions_follow_the_numbers() -> None:
    settings = replace(TINY, nodes=(1, 4))
    fast, slow = {1: (8.0, 0.0), 4: (2.0, 0.1)}, {1: (8.0, 0.0), 4: (2.0, 9.0)}
    lower, kept = {1: 0.8, 4: 0.7}, {1: 0.8, 4: 0.8}
    like = conclusions.table2(settings, trained(1, "split, end", lower, slow))
    unlike = conclusions.table2(settings, trained(1, "split, end", kept, fast))
    assert like.count("unlike") == 0
    assert like.count("as in the paper") == 2
    assert "falls by 10.0 points" in like
    assert "averaging takes 81.82%" in like
    assert unlike.count("unlike in the paper") == 2
    assert "does not dominate" in unlike
    both = trained(1, "split, folds", lower, slow) + trained(1, "split, end", {1: 0.8, 4: 0.6}, fast)
    third = conclusions.table3(settings, both)
    assert "PI of 75.0" in third  # averaging does not count
    assert "by its formula 12.98" in third
    assert "folds make the average better" in third
    fourth = [conclusions.table4(settings, trained(3, "split, end", kept, times)) for times in (fast, slow)]
    assert ["unlike" in sentence for sentence in fourth] == [True, False]
    assert "PI is -37.5 on 4 nodes (the paper: -48.08)" in fourth[1]


def test_more_folds_must_be_better_by_more_than_chance() -> None:
    settings = replace(TINY, nodes=(1, 4), cnn_folds=(5, 10))

    def found(gain: float) -> str:
        accuracy = [{"nodes": count, "folds": folds, "train_accuracy": 0.8 + gain * (folds == 10)}
                    for count in (1, 4) for folds in (5, 10)]  # fmt: skip
        return conclusions.table5(settings, {"accuracy": accuracy, "training_rows": 1000})[0]

    assert found(0.1).endswith("always the best, as in the paper.")
    assert "on 2 of 2 numbers of nodes, on 0 of them by more than chance" in found(0.01)
    assert found(0.01).endswith("not always the best, unlike in the paper.")


# ---- what a simulation costs ----


def test_steps_are_those_of_all_nodes() -> None:
    job = Job(strategy="local_sgd", workers=3, batch_size=4, epochs=2)
    assert nodes_curve.steps_of(job, 13) == 2 * (2 + 1 + 1)  # 5, 4 and 4 rows


def test_a_line_needs_three_points() -> None:
    points = [{"path": path, "kind": "grown", "steps": steps, "seconds": 0.5 + 0.1 * steps}
              for path, most in (("fast", 4), ("slow", 2)) for steps in range(1, most + 1)]  # fmt: skip
    found = nodes_curve.lines(points)
    assert found["slow"] is None
    assert found["fast"] is not None
    assert (found["fast"]["each"], found["fast"]["fixed"]) == (pytest.approx(0.1), pytest.approx(0.5))


def test_dlmp_beside_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(case: Any, checkout: Path, python: Path, images: Any) -> Prediction:
        assert (checkout, python) == (Path("secret/checkout"), Path("secret/python"))
        assert len(images.y_train) == case.rows == 16 * case.nodes
        return Prediction("ring", [1.0], [0.5], [0.5], 10, [1.0], wall=1000.0 * case.nodes, process=2000.0)

    monkeypatch.setattr(dlmp, "predict", predict)
    monkeypatch.setattr(nodes, "check_packages", lambda checkout, python: None)
    beside = {"dlmp": Path("secret/checkout"), "dlmp_python": Path("secret/python")}
    result = nodes.nodes(quick=True, study=TINY, parts=("curve",), **beside)
    assert [entry["dlmp_seconds"] for entry in result.data["curve"]["dlmp"]] == [1000, 2000]
    assert [entry["steps"] for entry in result.data["curve"]["dlmp"]] == [1, 2]
    assert result.tables[-1].rows[0][2] == "1,000"
    assert any("does not average them" in note for note in result.notes)
    assert "secret" not in json.dumps(result.as_dict())


# ---- the whole ----


def test_what_is_asked_for_is_checked() -> None:
    with pytest.raises(UserError, match="--parts must be one of text, cnn, start"):
        nodes.nodes(parts=("texts",))
    with pytest.raises(UserError, match="--dlmp and --dlmp-python belong together"):
        nodes.nodes(dlmp=Path("here"))


def test_the_command(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.nodes, "quick", nodes.nodes.quick | {"text_epochs": 30, "study": TINY})
    result = bench(data, "nodes --quick")
    text = {(entry["layers"], entry["nodes"], entry["variant"]): entry for entry in result["text"]}
    assert len(text) == len(result["text"]) == 2 * 2 * 5
    assert text[1, 1, "split, end"]["accuracies"] == text[1, 1, "whole, end"]["accuracies"]
    assert text[1, 2, "whole, folds"]["accuracies"] == text[1, 1, "split, folds"]["accuracies"]
    assert min(text[1, 1, "split, end"]["accuracies"]) > 0.9  # one word tells the classes apart
    for entry in text.values():
        for predicted in entry["predicted"].values():
            assert predicted["seconds"] == pytest.approx(
                sum(predicted[part] for part in ("computing", "averaging")), rel=1e-4
            )
    cnn = {(entry["nodes"], entry["folds"], entry["every"]) for entry in result["cnn"]["accuracy"]}
    assert cnn == {(1, 1, "end"), (2, 1, "end"), (2, 1, "epoch"), *((n, k, "end") for n in (1, 2) for k in (2, 3))}
    assert {(entry["layers"], entry["nodes"]) for entry in result["start"]} == {(1, 2), (3, 2)}
    assert {entry["path"] for entry in result["curve"]["points"]} == {"fast", "slow"}
    assert result["paper"]["3"]["improvement"]["8"] == pytest.approx(69.41, abs=0.01)
    page = (data / "nodes.md").read_text()
    for table in range(2, 9):
        assert f"- Table {table}: " in page
    for words in (
        "| 9,511.66 | - |",
        "| not published | not published |",
        "no GPU here",
        "Less data or different starts",
    ):
        assert words in page

"""Another simulator beside the planner: how it is run and read, without it; and the same case for real."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.planner import dlmp, validation  # noqa: E402
from benchmarks.planner.case import Case, Images, lenet  # noqa: E402
from benchmarks.planner.real import real_run  # noqa: E402
from shoal.errors import MissingFile, MissingPackage, UserError  # noqa: E402

CASE = Case(nodes=2, rows=96, test_rows=40, epochs=2, batch_size=8, bandwidth=8.0, seed=3)
PYTHON = Path(sys.executable)

# Has the attributes that the child reads: two nodes, seconds and right answers of which grow from epoch to epoch.
STAND_IN = """
import random
from types import SimpleNamespace


class ParallelizationModel:
    def __init__(self, X, y, X_test, y_test, device, args):
        assert X.dtype == "float32" and X.shape[1:] == (28, 28), X.shape
        self.args, self.total_comm_cost = args, 0
        self.capacities = [random.uniform(1, args.capacity_max) for _ in range(args.processors)]
        nodes = [SimpleNamespace(
            processing_time=1.0 + k, last_comm_time_s=1e6 / (args.net_bw_mbps * 125e3), correct_classifications=k,
            test_set_size=len(y_test) // args.processors,
        ) for k in range(args.processors)]
        self.schedule = SimpleNamespace(agents=nodes)

    def step(self):
        print("many lines that are no JSON")
        self.total_comm_cost += len(self.schedule.agents)
        for node in self.schedule.agents:
            node.processing_time += 10
            node.correct_classifications += 1

    def run_model(self, epochs):
        for _ in range(epochs):
            self.step()
"""
AVERAGES = "\n    def synchronize_weights(self): ...\n"
QUICK_TORCH = "manual_seed = set_num_threads = device = lambda value: None"  # to import the real one takes seconds


@pytest.fixture
def images() -> Images:
    """Classes that can be told apart: a bright square in the place of the class."""
    generator = np.random.default_rng(0)
    parts: list[np.ndarray] = []
    for rows in (CASE.rows, CASE.test_rows):
        y = np.arange(rows) % 10
        X = 0.1 * generator.standard_normal((rows, 28, 28)).astype(np.float32)
        for image, label in zip(X, y, strict=True):
            image[2 * label : 2 * label + 6, 4:20] += 2
        parts += [X, y]
    return Images(*parts)


def checkout(folder: Path, sync: str, p2p: str) -> Path:
    (folder / "code").mkdir()
    for name, content in zip(dlmp.MODELS, (sync, p2p), strict=True):
        (folder / "code" / name).write_text(content)
    return folder


def test_what_its_nodes_say_is_read(tmp_path: Path, images: Images) -> None:
    place = checkout(tmp_path, STAND_IN + AVERAGES, "raise RuntimeError('the other one')")
    found = dlmp.predict(CASE, place, PYTHON, images)
    assert found.coordination == "average"
    assert found.compute == [12.0, 22.0]  # the slower of two nodes, in both epochs
    assert found.communication == [1.0, 1.0]  # a million bytes at 8 Mbit/s
    assert (found.epochs, found.seconds) == ([13.0, 23.0], 36.0)
    assert found.accuracies == pytest.approx([3 / 40, 5 / 40])
    assert found.accuracy == found.accuracies[-1]
    assert (found.bytes, found.slowness) == (4, [1.0, 1.0])
    assert 0 < found.wall < found.process
    assert not list(tmp_path.rglob("*.pyc"))


def test_what_is_called_synchronous_may_be_a_ring(tmp_path: Path, images: Images) -> None:
    place = checkout(tmp_path, STAND_IN, "")
    (place / "code" / "torch.py").write_text(QUICK_TORCH)
    found = dlmp.predict(CASE, place, PYTHON, images, slowest=2.0, warm=False)
    assert found.coordination == "ring"
    assert 1 < min(found.slowness) < max(found.slowness) < 2


def test_its_failures_are_passed_on(tmp_path: Path, images: Images) -> None:
    place = checkout(tmp_path, "import no_such_module", "raise RuntimeError('too few rows')")
    with pytest.raises(MissingPackage, match=r"DLMP needs no_such_module, which .* lacks: pip install .*mesa"):
        dlmp.predict(CASE, place, PYTHON, images)
    with pytest.raises(RuntimeError, match="DLMP failed: RuntimeError: too few rows"):
        dlmp.predict(CASE, place, PYTHON, images, coordination="p2p")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"no checkout of DLMP: .* has no file code/MASModelCNN\.py; git clone"):
        dlmp.predict(CASE, tmp_path, PYTHON)
    place = checkout(tmp_path, STAND_IN, STAND_IN)
    with pytest.raises(MissingFile, match=r"no Python to run DLMP with: .*nowhere is no file; give one that has torch"):
        dlmp.predict(CASE, place, tmp_path / "nowhere")
    with pytest.raises(UserError, match="coordination must be one of"):
        dlmp.predict(CASE, place, PYTHON, coordination="none")


def test_packages_are_looked_for_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dlmp.check_packages(None, None)
    place = checkout(tmp_path, STAND_IN, STAND_IN)
    monkeypatch.setattr(dlmp, "MODULES", ("json", "no_such_module"))
    monkeypatch.setattr(validation, "progress_bar", None)  # comes before the first measurement
    with pytest.raises(MissingPackage, match=r"DLMP needs no_such_module, which .* lacks: pip install"):
        validation.planner(quick=True, dlmp=place, dlmp_python=PYTHON)
    with pytest.raises(UserError, match="does not run as a Python"):
        dlmp.check_packages(place, Path("/bin/false"))
    with pytest.raises(UserError, match="belong together"):
        dlmp.check_packages(place, None)


def test_no_rows_tested_is_no_accuracy() -> None:
    record = {"compute": 1.0, "communication": 0.0, "right": 0, "tested": 0}
    answer = {"epochs": [record], "bytes": 0, "slowness": [1.0], "averages": True, "wall": 1.0}
    with pytest.raises(UserError, match="as many test rows as nodes"):
        dlmp._prediction(answer, 1.0)


def test_the_network_is_that_of_the_paper() -> None:
    before = torch.get_rng_state()
    model = lenet(0)
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(parameter.numel() for parameter in model.parameters()) == 431_080
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert not torch.equal(model[0].weight, lenet(1)[0].weight)


def test_a_case_for_real(images: Images) -> None:
    found = real_run(CASE, images)
    assert len(found.epochs) == CASE.epochs
    assert found.seconds == sum(found.epochs) > 0
    assert found.accuracy > 0.5

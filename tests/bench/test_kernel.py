"""`shoal bench kernel`: every cell is measured on the kernel it names, and counts what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.bench import bench
from typer.testing import CliRunner

from shoal import _native
from shoal.bench.populations import kernel
from shoal.cli.bench import app
from shoal.machine import using_instruction_set

SHAPE = kernel.Shape((3, 4, 2), 8)


def test_every_cell_is_measured_once_on_each_instruction_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    real = _native.train

    def train(**arrays: object) -> bool:
        ran.append(_native.instruction_set())
        return real(**arrays)

    monkeypatch.setattr(_native, "train", train)
    monkeypatch.setattr(kernel, "QUICK", kernel.Settings(shapes=(SHAPE,), members=2, rows=20, seconds=0.0, repeats=1))
    monkeypatch.delenv("SHOAL_ISA", raising=False)
    result = bench(tmp_path, "kernel --isa all --activation tanh --activation relu --quick")
    sets = [name for name in _native.instruction_sets() if name != "wide"]
    pairs = [("tanh", "sgd"), ("relu", "sgd"), ("relu", "momentum"), ("relu", "adam"), ("relu", "adamw")]
    cells = result["cells"]
    found = [(cell["instruction_set"], cell["activation"], cell["optimizer"]) for cell in cells]
    assert found == [(name, *pair) for name in sets for pair in pairs]
    assert ran == [name for name in sets for _ in range(4 * len(pairs))]  # two to choose epochs, a warm-up, a run
    assert "SHOAL_ISA" not in os.environ
    for cell in cells:
        assert cell["shape"] == "3-4-2, batch 8"
        # 2 networks on 20 rows: forward and two backward products, but no gradient of the inputs.
        assert cell["flops"] == 2 * 20 * 2 * (2 * 3 * 4 + 3 * 4 * 2)
        assert cell["gflops"] == pytest.approx(cell["flops"] / cell["seconds"] / 1e9, rel=1e-4)
    text = (tmp_path / "kernel.md").read_text()
    assert f"load was {result['machine']['load_average_before'][0]:g} before and " in text
    assert all(f"GFLOPS on {name}: optimisers, with relu" in text for name in sets)


def test_the_kernel_in_use_is_measured_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ISA", "baseline")
    with using_instruction_set(_native.instruction_sets()[0]):
        assert _native.instruction_set() == _native.instruction_sets()[0]
    assert _native.instruction_set() == "baseline"
    settings = kernel.Settings(shapes=(SHAPE,), activations=("relu",), optimizers=("sgd",), seconds=0.0, repeats=1)
    assert [cell["instruction_set"] for cell in kernel.run(settings).data["cells"]] == ["baseline"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--isa avx513", "--isa must be one of all, .*; got 'avx513'"),
        ("--activation rely", "--activation must be one of .*; got 'rely'; did you mean 'relu'"),
        ("--optimizer adan", "--optimizer must be one of sgd, momentum, adam, adamw; got 'adan'; did you mean 'adam'"),
    ],
)
def test_unknown_words_are_refused(options: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CliRunner().invoke(app, ["kernel", *options.split()], catch_exceptions=False)

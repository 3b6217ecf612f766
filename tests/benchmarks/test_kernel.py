"""`python -m benchmarks kernel`: every cell is measured on the kernel it names, and counts what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.bench import bench

from benchmarks.__main__ import main
from benchmarks.engine import kernel
from shoal import _native
from shoal.machine import using_instruction_set

SHAPE = kernel.Shape((3, 4, 2), 8)


def test_every_cell_is_measured_once_on_each_instruction_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    real = _native.train

    def train(**arrays: object) -> bool:
        ran.append(_native.instruction_set())
        return real(**arrays)

    monkeypatch.setattr(_native, "train", train)
    quick = {"shapes": (SHAPE,), "members": 2, "rows": 20, "seconds": 0.0, "repeats": 1}
    monkeypatch.setattr(kernel.kernel, "quick", quick)
    monkeypatch.delenv("SHOAL_ISA", raising=False)
    result = bench(tmp_path, "kernel --instruction-sets all --activations tanh relu --quick")
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
    assert all(f"GFLOPS on {name}: optimisers, with relu" in text for name in sets)


def test_the_kernel_in_use_is_measured_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ISA", "baseline")
    with using_instruction_set(_native.instruction_sets()[0]):
        assert _native.instruction_set() == _native.instruction_sets()[0]
    assert _native.instruction_set() == "baseline"
    found = kernel.kernel(shapes=(SHAPE,), activations=("relu",), optimizers=("sgd",), seconds=0.0, repeats=1)
    assert [cell["instruction_set"] for cell in found.data["cells"]] == ["baseline"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--instruction-sets avx513", "--instruction-sets must be one of all, .*; got 'avx513'"),
        ("--activations rely", "--activations must be one of .*; got 'rely'; did you mean 'relu'"),
        (
            "--optimizers adan",
            "--optimizers must be one of sgd, momentum, adam, adamw; got 'adan'; did you mean 'adam'",
        ),
    ],
)
def test_unknown_words_are_refused(options: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        main(["kernel", *options.split()])

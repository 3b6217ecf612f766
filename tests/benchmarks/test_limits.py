"""`python -m benchmarks limits`: shares of the machine's matrix product, and another version beside this one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bench import bench

import shoal
from benchmarks.engine import limits
from shoal.errors import UserError
from shoal.population.layout import Layout
from shoal.population.members import Member


def test_every_case_is_measured_and_shared_out(tmp_path: Path) -> None:
    found = bench(tmp_path, "limits --quick")
    few, predicted, wide = found["cases"]
    for case in (few, predicted, wide):
        seconds = case["timings"]["train, now"]["seconds"]
        assert case["gflops"] == pytest.approx(case["flops"] / seconds / 1e9, rel=1e-4)
        assert case["share_of_peak"] == pytest.approx(case["gflops"] / found["peak"]["gflops"], rel=1e-4)
    for case, layout in (
        (few, Layout(limits.Case(5, 32).members(40, 2), 5, 2)),
        (wide, Layout([Member(512)] * 2, 20, 2)),
    ):
        assert case["flops"] == pytest.approx(128 * layout.flops_per_row.sum(), rel=1e-5)  # written with six digits
    # Of 20-512-2: 2 x 512 x 22 forward; backward 2 x 512 x 22 for the weights, 2 x 512 x 2 for the hidden layer.
    assert wide["forward_share"] == pytest.approx(22 / (22 + 22 + 2), rel=1e-4)
    assert set(few["timings"]) == {"train, now"}
    assert "predict, now" in predicted["timings"]
    assert [target["complete"] for target in found["targets"]] == [False] * 5
    assert [target["measured"] is None for target in found["targets"]] == [True, True, False, True, False]


def test_another_version_beside_it() -> None:
    """Sources elsewhere: here, the same ones. Its times are its own."""
    sources = Path(shoal.__file__).parent.parent
    result = limits.limits(quick=True, cases=limits.limits.quick["cases"][:2], before=sources)
    few, predicted = result.data["cases"]
    timings = few["timings"]
    assert few["times_as_fast"] == timings["train, before"]["seconds"] / timings["train, now"]["seconds"]
    assert timings["train, before"]["raw_seconds"] != timings["train, now"]["raw_seconds"]
    assert predicted["predicts_times_as_fast"] > 0
    assert result.settings["before"] == "..."
    assert str(sources) not in str(result.as_dict())


def test_the_forward_part_has_its_share_of_the_multiplications() -> None:
    """Of 3-4-2: 2 x 20 forward; backward 2 x 20 for the weights, and 2 x 8 for the hidden layer."""
    case = {"flops": 96.0 * 10, "rows": 10, "predicted": 30, "forward_share": 40 / 96,
            "timings": {"train, now": {"seconds": 9.6}, "predict, now": {"seconds": 6.0}}}  # fmt: skip
    limits.complete(case, peak=1e-6)
    assert case["of_forward_share"] == pytest.approx(2.0)  # 30 rows forward would take 12 s at training's speed
    layout = Layout([Member(4)], 3, 2)
    assert layout.flops_per_row.tolist() == [96.0]


def test_a_version_that_cannot_be_run_ends_the_benchmark(tmp_path: Path) -> None:
    (tmp_path / "shoal").mkdir()
    (tmp_path / "shoal" / "__init__.py").write_text("raise SystemExit(1)")
    with pytest.raises(RuntimeError, match="has ended"):
        limits.limits(cases=(limits.Case(5, 32),), members=20, rows=32, before=tmp_path)
    with pytest.raises(UserError, match="--before must be a folder with a folder shoal, its kernel included; got"):
        limits.Version(tmp_path / "mistyped")

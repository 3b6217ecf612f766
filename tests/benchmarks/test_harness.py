"""The harness: options, defaults, help and what a result stores follow from the signature of a function."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import ALL, MODULES, find, main
from benchmarks.harness import benchmark as harness
from benchmarks.harness.benchmark import Benchmark, benchmark
from benchmarks.harness.child import CHECKOUT
from benchmarks.harness.plots import grid_of_axes
from benchmarks.harness.report import Result
from benchmarks.harness.tables import ResultTable


@dataclass(frozen=True)
class Size:
    width: int = 3


@benchmark(quick={"rows": 2, "size": Size(1)})
def speed(
    *, rows: int = 100, rate: float = 0.5, nets: tuple[str, ...] = ("mlp", "cnn"), kind: Literal["a", "b"] = "a",
    linear: bool = True, target: str | None = None, before: Path | None = None, size: Size = Size(), out: Path,
) -> Result:  # fmt: skip
    """How fast is it?

    rows: Rows to train on.
    """
    data = {"found": [rows, rate, list(nets), kind, linear, target, before is not None, size.width, out.name]}
    table = ResultTable("T", ["a"], [["1"]])
    return Result(title="Speed", data=data, tables=[table], draw=lambda: grid_of_axes(1, 1)[0], settings={"rate": 9})


def run(tmp_path: Path, words: str) -> dict[str, Any]:
    speed.main([*words.split(), "--out", str(tmp_path / "results")])
    result: dict[str, Any] = json.loads((tmp_path / "results" / "speed.json").read_text())
    return result


def test_defaults_quick_and_options(tmp_path: Path) -> None:
    assert run(tmp_path, "")["found"] == [100, 0.5, ["mlp", "cnn"], "a", True, None, False, 3, "results"]
    assert run(tmp_path, "--quick")["found"] == [2, 0.5, ["mlp", "cnn"], "a", True, None, False, 1, "results"]
    words = "--quick --rows 7 --rate 2 --nets x --nets y z --kind b --no-linear --target t --before /secret"
    result = run(tmp_path, words)
    assert result["found"] == [7, 2.0, ["x", "y", "z"], "b", False, "t", True, 1, "results"]
    wanted = "speed --rows 7 --rate 2.0 --nets x y z --kind b --no-linear --target t --before ... --quick"
    assert result["command"] == f"python -m benchmarks {wanted}"
    assert result["settings"] == {
        "rows": 7, "rate": 9, "nets": ["x", "y", "z"], "kind": "b", "linear": False, "target": "t", "before": "...",
        "size": {"width": 1},
    }  # fmt: skip


def test_every_result_has_commit_machine_load_and_date(tmp_path: Path) -> None:
    result = run(tmp_path, "--quick")
    assert result["commit"] == harness.commit()
    assert {"date", "cpu", "cores", "load_average_before", "load_average_after"} <= set(result["machine"])
    assert "secret" not in (tmp_path / "results" / "speed.md").read_text()


def test_the_commit_says_whether_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(harness, "CHECKOUT", tmp_path)
    assert harness.commit() is None
    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    clean = harness.commit()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "file").write_text("2")
    assert harness.commit() == f"{clean} + changes"


@pytest.mark.parametrize("words", ["--rows 0", "--rows -3", "--rows x", "--kind c", "--size 3", "--row"])
def test_wrong_options_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        speed.main(words.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_has_the_docstring_and_the_defaults() -> None:
    said = " ".join(speed.parser().format_help().split())
    assert "How fast is it?" in said
    assert "Rows to train on. [100]" in said
    assert "[mlp cnn]" in said


def test_quick_defaults_must_be_of_parameters() -> None:
    with pytest.raises(TypeError, match="quick defaults of speed for no parameter: row"):
        Benchmark(speed.function, "speed", (), {"row": 1})


@given(rows=st.integers(1, 10**9), rate=st.floats(1e-6, 1e6), nets=st.lists(st.text("ab c", min_size=1), min_size=1))
def test_a_command_gives_its_settings_again(rows: int, rate: float, nets: list[str]) -> None:
    import shlex

    nets = [net.strip() or "x" for net in nets]
    given = {"rows": rows, "rate": rate, "nets": tuple(nets)}
    words = shlex.split(speed.command(given, quick=False))[4:]
    found = vars(speed.parser().parse_args(words))
    assert {name: found[name] for name in given} == {**given, "nets": nets}


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_is_found_and_explains_its_options(name: str) -> None:
    one = find(name)
    assert one.parser().format_help()
    assert one.quick, "a quick run must be smaller"
    for parameter in one.parameters:
        assert parameter.kind is None or parameter.help, f"{name} does not explain {parameter.option}"
        assert parameter.default is not parameter.kind


def test_all_runs_some_with_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(Benchmark, "main", lambda self, words: ran.append((self.name, words)))
    main(["all", "--quick"])
    assert ran == [(name, ["--quick"]) for name in ALL]


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from benchmarks.__main__ import main; main(['--help'])\n"
    code += "print([name for name in ('torch', 'jax', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"  {name} " in done.stdout for name in MODULES)

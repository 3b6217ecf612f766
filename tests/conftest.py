"""What tests of several folders share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two test processes share the cores with the processes they start. Threads of OpenMP and BLAS that wait in busy loops
# for each other would cost ten times what the small networks of these tests do. Set before anything loads them.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# Real data beside the repository, where there are some. Tests that need them are left out elsewhere.
_data = Path(__file__).resolve().parents[2] / "shared" / "data"
if _data.is_dir():
    os.environ.setdefault("SHOAL_DATA", str(_data))

import pytest  # noqa: E402
from support.browser import Window, open_window  # noqa: E402

from shoal import _native  # noqa: E402
from shoal.cli import main  # noqa: E402

# What `make check` runs. Of the oracle: some cases, on one instruction set of the native engine and on the others.
CORE = ("population/test_", "test_options", "test_imports")
CORE += ("population/engines/test_native", "tables/", "encoders/", "metrics/")
CORE += tuple(f"search/test_{part}" for part in ("loop", "training", "strategies", "space", "problem", "ensemble"))
ORACLE_CASES = {"cross_entropy, options", "bce, options", "mse, options", "odd widths"}
ORACLE_ENGINES = {f"native-{_native.instruction_set()}", "grouped", "reference"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        file = item.path.relative_to(tests).as_posix() if item.path.is_relative_to(tests) else ""
        given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        oracle = file == "population/engines/test_oracle.py" and given.get("engine") in ORACLE_ENGINES
        if file.startswith(CORE) or (oracle and given.get("name") in ORACLE_CASES):
            item.add_marker("core")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """As `run`, in this process: without the seconds that a new one takes to start."""

    def called(folder: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["shoal", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code == code, said.out + said.err
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return called


@pytest.fixture
def one_thread_and_seed() -> Iterator[None]:
    """Tensors this small are slower on several threads, above all on a busy machine."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def window() -> Iterator[Window]:
    """A real browser."""
    with open_window() as opened:
        yield opened

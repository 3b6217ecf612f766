"""What DLMP (github.com/DLMPsim/DLMP), a simulator of others, predicts for a case. It is run, not copied.

Its nodes train one after the other in one process. Seconds of an epoch are those that the slowest node took to train
and to test, times a slowness drawn at random, plus bytes over bandwidth. Versions of DLMP differ in what they do under
the name of synchronous training: `Prediction.coordination` says what was done.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planner.case import Case, Images, load_images
from shoal.errors import MissingFile, MissingPackage, UserError
from shoal.validate import one_of

COORDINATIONS = ("sync", "p2p")
MODELS = ("MASModelCNN.py", "MASAModelCNN.py")
NEEDS = "torch torchvision mesa==2.3.2 scikit-learn pandas pillow"
MODULES = ("torch", "torchvision", "mesa", "sklearn", "pandas", "PIL")
FIND = "import importlib.util, sys; print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"
CHILD = Path(__file__).with_name("dlmp_child.py")


@dataclass(frozen=True)
class Prediction:
    """What DLMP reports. Accuracies are shares of right answers: each node's network on its own part of the rows."""

    coordination: str  # "average": of all nodes; "ring": each node sends its weights to the next one
    compute: list[float]  # seconds of each epoch, of the slowest node
    communication: list[float]  # likewise
    accuracies: list[float]  # after each epoch
    bytes: int  # said to be sent in all epochs by all nodes
    slowness: list[float]  # of each node: what its measured seconds were multiplied by
    wall: float  # seconds that the simulation took
    process: float  # the same with the start of the interpreter and its imports

    @property
    def epochs(self) -> list[float]:
        """Seconds of each epoch."""
        return [sum(parts) for parts in zip(self.compute, self.communication, strict=True)]

    @property
    def seconds(self) -> float:
        return sum(self.epochs)

    @property
    def accuracy(self) -> float:
        """After the last epoch."""
        return self.accuracies[-1]


def predict(
    case: Case,
    dlmp: Path,
    dlmp_python: Path,
    images: Images | None = None,
    coordination: str = "sync",
    slowest: float = 1.0,
    warm: bool = True,
) -> Prediction:
    """Run DLMP on the rows of a case.

    dlmp, dlmp_python    a checkout of it, and the Python to run it with, which has what it needs
    coordination         which of its two models to run, "sync" or "p2p"
    slowest              seconds of nodes are multiplied by random numbers from 1 to this; its own default is 2
    warm                 whether torch takes a step before, which DLMP by itself does not do: about a second, which it
                         would count as the first node's
    """
    one_of("coordination", coordination, COORDINATIONS)
    check(dlmp, dlmp_python)
    images = images or load_images(case)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.npz"
        np.savez(data, **images._asdict())
        settings = {
            **asdict(case), "dlmp": str(dlmp.resolve()), "data": str(data), "coordination": coordination,
            "slowest": slowest, "warm": warm,
        }  # fmt: skip
        begun = time.perf_counter()
        answer = _run(dlmp_python, settings)
        return _prediction(answer, time.perf_counter() - begun)


def check(dlmp: Path, dlmp_python: Path) -> None:
    """One clear sentence if there is nothing to run, or nothing to run it with."""
    for name in MODELS:
        if not (dlmp / "code" / name).is_file():
            raise MissingFile(
                f"no checkout of DLMP: {dlmp} has no file code/{name}; git clone https://github.com/DLMPsim/DLMP and "
                "give that folder"
            )
    if not dlmp_python.is_file():
        raise MissingFile(f"no Python to run DLMP with: {dlmp_python} is no file; give one that has {NEEDS}")


def check_packages(dlmp: Path | None, dlmp_python: Path | None) -> None:
    """The same, and whether that Python has what DLMP imports: to be asked before hours of measuring, not after."""
    if (dlmp is None) != (dlmp_python is None):
        raise UserError("--dlmp and --dlmp-python belong together: a checkout of DLMP, and a Python that can run it")
    if dlmp is None or dlmp_python is None:
        return
    check(dlmp, dlmp_python)
    command = [str(dlmp_python.absolute()), "-I", "-c", FIND, *MODULES]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{dlmp_python} does not run as a Python: {error}") from None
    if answer.stdout.strip():
        missing = ", ".join(answer.stdout.split())
        raise MissingPackage(f"DLMP needs {missing}, which {dlmp_python} lacks: pip install {NEEDS}")


def _run(python: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Isolated (-I): neither our PYTHONPATH nor the folder of the child is looked at. -B: its folder stays as it is."""
    # The interpreter of a virtual environment is a link that must not be followed: absolute, not resolved.
    command = [str(python.absolute()), "-I", "-B", str(CHILD), json.dumps(settings)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or [f"it ended with exit code {answer.returncode}"]
        raise RuntimeError(f"DLMP failed: {last[0]}")
    result: dict[str, Any] = json.loads(answer.stdout)
    if "missing" in result:
        raise MissingPackage(f"DLMP needs {result['missing']}, which {python} lacks: pip install {NEEDS}")
    return result


def _prediction(answer: dict[str, Any], process: float) -> Prediction:
    records = answer["epochs"]
    if not records or not all(record["tested"] for record in records):
        raise UserError("DLMP tested no rows: the case needs an epoch, and as many test rows as nodes")
    return Prediction(
        "average" if answer["averages"] else "ring", [record["compute"] for record in records],
        [record["communication"] for record in records], [record["right"] / record["tested"] for record in records],
        answer["bytes"], answer["slowness"], answer["wall"], process,
    )  # fmt: skip

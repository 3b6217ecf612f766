"""Lists runs, their progress, and the files that can be removed."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import MissingFile, UserError
from shoal.files.atomic import is_left_over
from shoal.files.plain_files import Removal, is_mount_point, read_text, remove
from shoal.runs.folder import RUNS, Say, remove_files
from shoal.runs.kinds import (
    FINETUNE,
    HISTORY,
    KINDS,
    METRICS,
    PROGRESS,
    SEARCH,
    SETTINGS,
    Run,
    problem_of,
    read_json,
    read_run,
)
from shoal.runs.lock import Owner, is_lease, living, owner_of, take

RUNNING, INTERRUPTED, FINISHED, MALFORMED = "running", "interrupted", "finished", "malformed"


@dataclass(frozen=True)
class RunSummary:
    """A run, as far as its files say."""

    path: Path
    kind: str
    state: str
    share: float | None  # of the work that is done
    score: float | None  # the honest one of a search that has results, the best so far of another, or the test loss
    metric: str
    has_results: bool
    begun: str
    size: int  # bytes
    owner: Owner | None
    problem: str = ""  # what is wrong with its files

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        owner = None if self.owner is None else {part: getattr(self.owner, part) for part in ("host", "pid", "since")}
        return {**self.__dict__, "path": str(self.path), "owner": owner}


def list_runs(folders: Iterable[Path]) -> list[RunSummary]:
    """The runs in some folders, which may be runs themselves; by default those in shoal-runs. The latest last.

    A folder with files that cannot be used is listed with what is wrong with it.
    """
    problems = {path: problem_of(path) or _lease_problem(path) for path in _run_folders(folders)}
    owners = living([path for path, problem in problems.items() if not problem])
    found = []
    for path, problem in problems.items():
        run = None if problem else read_run(path)
        if run is not None:
            found.append(_listed(run, owners.get(path)))
        elif problem:
            found.append(RunSummary(path, "", MALFORMED, None, None, "", False, "", _size(path), None, problem))
    return sorted(found, key=lambda run: (run.begun, run.path))


def cleanable(run: RunSummary, unfinished: bool) -> Removal:
    """What `clean` would remove of a run: what only resuming needs; of one without results, with `unfinished`, all."""
    if run.state in (RUNNING, MALFORMED) or (run.state == INTERRUPTED and not run.has_results and not unfinished):
        return Removal()
    if run.path.is_symlink():
        return Removal(stays={run.path: "a symbolic link; give the folder itself"})
    if is_mount_point(run.path):
        return Removal(stays={run.path: "a mount point"})
    return _sweep(run, act=False)


def clean(path: Path, unfinished: bool, say: Say, planned: Removal) -> Removal:
    """Remove of a run what `planned` has. A folder in use stays as it is, and `say` is told by whom."""
    try:
        lock = take(path, say)
    except UserError as error:  # in use, or its lock is somebody's file
        say(str(error))
        return Removal()
    try:
        run = read_run(path)
        now = None if run is None else _listed(run, None)
        if now is None or not cleanable(now, unfinished).gone.keys() <= planned.gone.keys():
            say(f"{path} has changed meanwhile and stays as it is")
            return Removal()
        found = _sweep(now, act=True)
    finally:
        lock.release()
    if found.gone.pop(path, False):
        with contextlib.suppress(OSError):  # somebody has put something into it meanwhile
            path.rmdir()
            found.gone[path] = True
    return found


def _sweep(run: RunSummary, act: bool) -> Removal:
    """Remove the files of a run; or find out which would go, and whether its folder would be empty then."""
    kind, path = KINDS[run.kind], run.path
    found = remove_files(path, kind.resuming if run.has_results else kind.files, act)
    for file in sorted(path.iterdir()):
        if is_left_over(file) and file not in found.gone:
            remove(file, act=act, into=found)
    if not [file for file in path.iterdir() if file not in found.gone and not is_lease(file)]:
        found.gone[path] = True
    return found


def _run_folders(folders: Iterable[Path]) -> Iterator[Path]:
    """A folder that is a run, else those in it that are one, or have a file of one."""
    given = list(dict.fromkeys(folders))
    for folder in given:
        if not folder.is_dir():
            raise MissingFile(f"there is no folder {folder}; give a run, or a folder that holds some")
    for folder in given or [Path(RUNS)] * Path(RUNS).is_dir():
        if _is_run(folder):
            yield folder
        else:
            yield from (path for path in sorted(folder.iterdir()) if _is_run(path))


def _is_run(path: Path) -> bool:
    try:
        return path.is_dir() and bool(problem_of(path) or read_run(path))
    except OSError:  # no permission to look
        return False


def _lease_problem(path: Path) -> str:
    try:
        owner_of(path)
    except OSError as error:
        return f"its lease cannot be read ({error.strerror or error})"
    return ""


def _listed(run: Run, owner: Owner | None) -> RunSummary:
    score, metric = SCORES[run.kind.name](run.path)
    state = RUNNING if owner is not None else FINISHED if run.finished else INTERRUPTED
    has_results = run.finished or (run.kind is SEARCH and (run.path / SETTINGS).is_file())
    share = 1.0 if state == FINISHED else _share(run)
    return RunSummary(
        run.path, run.kind.name, state, share, score, metric, has_results, run.begun, _size(run.path), owner
    )


def _share(run: Run) -> float | None:
    if run.kind is not FINETUNE:
        return _number(read_json(run.path / PROGRESS).get("share"))
    about = read_json(run.path / SETTINGS).get("run")
    planned = _number(about.get("steps_planned")) if isinstance(about, dict) else None
    steps = [_number(record.get("step")) or 0.0 for record in _records(run.path)]
    return max(steps) / planned if planned and steps else None


def _search_score(path: Path) -> tuple[float | None, str]:
    """Of the results; of a search without any, the best so far."""
    result = read_json(path / SETTINGS).get("result")
    score = result.get("score") if isinstance(result, dict) else None
    if isinstance(score, dict):
        return _number(score.get("corrected")), str(score.get("metric", ""))
    progress = read_json(path / PROGRESS)
    return _number(progress.get("best")), str(progress.get("metric", ""))


def _test_score(path: Path) -> tuple[float | None, str]:
    """Of a training, on the test rows."""
    metrics = read_json(path / HISTORY).get("metrics")
    for name in ("accuracy", "r2"):
        if isinstance(metrics, dict) and f"test_{name}" in metrics:
            return _number(metrics[f"test_{name}"]), name
    return None, ""


def _test_loss(path: Path) -> tuple[float | None, str]:
    losses = [record["eval_loss"] for record in _records(path) if record.get("eval_loss") is not None]
    return (_number(losses[-1]) if losses else None), "test loss"


SCORES = {"search": _search_score, "finetune": _test_loss, "train": _test_score}


def _records(path: Path) -> list[dict[str, Any]]:
    found = []
    try:
        for line in read_text(path / METRICS).splitlines():
            found.append(json.loads(line))
    except (OSError, ValueError, RecursionError):  # none yet, or the last one is being written
        pass
    return [record for record in found if isinstance(record, dict)]


def _number(value: Any) -> float | None:
    """None where it is not one, or too large for one."""
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _size(path: Path) -> int:
    """Bytes of all files in a folder. Locks, and what goes meanwhile, do not count."""
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                file = Path(place, name)
                total += 0 if is_lease(file) else os.lstat(file).st_size
    return total

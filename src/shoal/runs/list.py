"""Which runs there are, how far each is, and what can be removed."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import MissingFile
from shoal.runs.folder import RUNS, Say, remove_files
from shoal.runs.kinds import METRICS, PROGRESS, SEARCH, SETTINGS, Run, read_json, read_run
from shoal.runs.lock import InUse, Owner, is_lock_file, living, take

RUNNING, INTERRUPTED, FINISHED, LEFT_OVER = "running", "interrupted", "finished", "left over"
LEFT = re.compile(r"\..+\.\d+(-\d+)?\.part")  # folders of searches of older versions that were killed


@dataclass(frozen=True)
class Listed:
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
    removable: int  # bytes that only going on needs
    owner: Owner | None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        owner = None if self.owner is None else {part: getattr(self.owner, part) for part in ("host", "pid", "since")}
        return {**self.__dict__, "path": str(self.path), "owner": owner}


def list_runs(folders: Iterable[Path]) -> list[Listed]:
    """The runs in some folders, which may be runs themselves; by default those in shoal-runs. The latest last."""
    paths = list(_run_folders(folders))
    runs = {path: read_run(path) for path in paths}
    owners = living(paths)
    found = [
        _left_over(path, owners.get(path)) if run is None else _listed(run, owners.get(path))
        for path, run in runs.items()
    ]
    return sorted(found, key=lambda run: (run.begun, run.path))


def clean(path: Path, unfinished: bool, say: Say) -> int:
    """Remove what only going on needs; the bytes freed. A folder in use stays as it is, and `say` is told by whom."""
    try:
        lock = take(path, say)
    except InUse as error:
        say(str(error))
        return 0
    try:
        run = read_run(path)
        now = _left_over(path, None) if run is None else _listed(run, None)
        freed = removable(now, unfinished)
        if run is None:
            _remove_all(path)
        elif freed:
            remove_files(path, run.kind.resuming if now.has_results else run.kind.files)
    finally:
        lock.release()
    if not any(path.iterdir()):
        path.rmdir()
    return freed


def removable(run: Listed, unfinished: bool) -> int:
    """Bytes that `clean` would free."""
    if run.state == RUNNING or (run.state == INTERRUPTED and not run.has_results and not unfinished):
        return 0
    return run.removable


def _run_folders(folders: Iterable[Path]) -> Iterator[Path]:
    """A folder that is a run, else those in it that are one or were left by one."""
    given = list(dict.fromkeys(folders))
    for folder in given:
        if not folder.is_dir():
            raise MissingFile(f"there is no folder {folder}; give a run, or a folder that holds some")
    for folder in given or [Path(RUNS)] * Path(RUNS).is_dir():
        if read_run(folder) is not None:
            yield folder
            continue
        for path in sorted(folder.iterdir()):
            if path.is_dir() and (read_run(path) is not None or LEFT.fullmatch(path.name)):
                yield path


def _listed(run: Run, owner: Owner | None) -> Listed:
    score, metric = (_search_score if run.kind is SEARCH else _test_loss)(run.path)
    state = RUNNING if owner is not None else FINISHED if run.finished else INTERRUPTED
    has_results = run.finished or (run.kind is SEARCH and (run.path / SETTINGS).is_file())
    whole = state != FINISHED and not has_results
    size = _size(run.path)
    rest = size if whole else sum(_size(run.path / name) for name in run.kind.resuming)
    share = 1.0 if state == FINISHED else _share(run)
    return Listed(run.path, run.kind.name, state, share, score, metric, has_results, run.begun, size, rest, owner)


def _left_over(path: Path, owner: Owner | None) -> Listed:
    size = _size(path)
    return Listed(path, SEARCH.name, LEFT_OVER, None, None, "", False, "", size, size, owner)


def _share(run: Run) -> float | None:
    if run.kind is SEARCH:
        return _number(read_json(run.path / PROGRESS).get("share"))
    planned = read_json(run.path / SETTINGS).get("run", {}).get("steps_planned")
    steps = [record.get("step", 0) for record in _records(run.path)]
    return max(steps) / planned if planned and steps else None


def _search_score(path: Path) -> tuple[float | None, str]:
    """Of the results; of a search without any, the best so far."""
    result = read_json(path / SETTINGS).get("result")
    score = result.get("score") if isinstance(result, dict) else None
    if isinstance(score, dict):
        return _number(score.get("corrected")), str(score.get("metric", ""))
    progress = read_json(path / PROGRESS)
    return _number(progress.get("best")), str(progress.get("metric", ""))


def _test_loss(path: Path) -> tuple[float | None, str]:
    losses = [record["eval_loss"] for record in _records(path) if record.get("eval_loss") is not None]
    return (_number(losses[-1]) if losses else None), "test loss"


def _records(path: Path) -> list[dict[str, Any]]:
    found = []
    try:
        for line in (path / METRICS).read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line))
    except (OSError, ValueError):  # none yet, or the last one is being written
        pass
    return [record for record in found if isinstance(record, dict)]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder. Locks and what goes meanwhile do not count."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        try:
            total += 0 if file.is_dir() or is_lock_file(file.name) else file.lstat().st_size
        except OSError:
            continue
    return total


def _remove_all(path: Path) -> None:
    """All but the lock, which is ours."""
    for file in path.iterdir():
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        elif not is_lock_file(file.name):
            file.unlink(missing_ok=True)

"""The folder of a run: a new one, or that of a run which was ended and can go on."""

from __future__ import annotations

import contextlib
import glob
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.runs.folder import MODEL, RUNS, SETTINGS, numbered, refuse_taken
from shoal.runs.lock import FolderLock, is_free, take

FORMAT, VERSION = "shoal-finetune", 1
METRICS, SAMPLES, EVENTS, CHECKPOINTS = "metrics.jsonl", "samples.json", "events", "checkpoints"
START = "start"  # the tiny model as it was made
REPORT = "report.html"


def stem(file: str, model: str) -> str:
    """
    >>> stem("problems.csv.gz", "org/some model")
    'problems-some-model'
    """
    name = Path(model).name
    return f"{file.split('.')[0]}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'model'}"


@contextmanager
def opened(
    out: Path | None, name: str, fingerprint: dict[str, Any], fresh: bool = False
) -> Iterator[tuple[Path, bool]]:
    """A folder that is ours while we work in it, and whether it holds the beginning of this very run.

    If nothing comes of a run that begins, what we made goes again.
    """
    taken = None
    while taken is None:
        path, resumes = choose(out, name, fingerprint, fresh)
        taken = _take(path, new=out is None and not resumes)
        if taken is None and out is not None:
            raise UserError(f"{out} is in use by another process, which still runs; wait for it, or give another --out")
    lock, made = taken
    if not resumes:
        _empty(path)
    try:
        yield path, resumes
    finally:
        if not resumes and not (path / METRICS).exists():
            _empty(path)
        else:
            made = []
        lock.release()
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _take(path: Path, new: bool) -> tuple[FolderLock, list[Path]] | None:
    """Make a folder ours; its lock, and which folders had to be made for that. None: somebody else was quicker."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=not new)
        lock = take(path)
    except FileExistsError:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be written to ({error.strerror}); give another folder with --out") from None
    return None if lock is None else (lock, made)


def _empty(path: Path) -> None:
    """Remove what a run writes, and nothing else."""
    for name in (SETTINGS, METRICS, SAMPLES, REPORT):
        (path / name).unlink(missing_ok=True)
    for name in (START, CHECKPOINTS, EVENTS):
        shutil.rmtree(path / name, ignore_errors=True)


def choose(out: Path | None, name: str, fingerprint: dict[str, Any], fresh: bool = False) -> tuple[Path, bool]:
    """A folder, and whether it holds the beginning of this very run."""
    if out is not None:
        return _given(out, fingerprint, fresh)
    pattern = f"{glob.escape(name)}-*"
    found = [] if fresh else [path for path in Path(RUNS).glob(pattern) if _can_go_on(path, fingerprint)]
    if found:
        return max(found, key=lambda path: int(path.name.rpartition("-")[2])), True
    return numbered(Path(RUNS) / name), False


def _given(out: Path, fingerprint: dict[str, Any], fresh: bool) -> tuple[Path, bool]:
    earlier = read(out)
    if earlier is None:
        refuse_taken(out)
        return out, False
    if (out / MODEL).is_dir():
        raise UserError(f"--out must be a new folder; {out} holds a finished run: give another name")
    if fresh:
        return out, False
    for name, value in fingerprint.items():
        before = earlier["fingerprint"].get(name)
        if before != value:
            change = f" (it was {before!r} and is now {value!r})" if name not in ("data", "start") else ""
            raise UserError(
                f"{out} holds the beginning of another run: {name} differs{change}; give another --out, or --fresh"
            )
    return out, True


def _can_go_on(path: Path, fingerprint: dict[str, Any]) -> bool:
    earlier = read(path)
    return (
        earlier is not None
        and path.name.rpartition("-")[2].isdecimal()
        and earlier["fingerprint"] == fingerprint
        and not (path / MODEL).exists()
        and is_free(path)
    )


def read(path: Path) -> dict[str, Any] | None:
    """What a folder says of its run; None if it is not the folder of one."""
    try:
        content = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
        known = (
            content["format"] == FORMAT and content["version"] == VERSION and isinstance(content["fingerprint"], dict)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content if known else None

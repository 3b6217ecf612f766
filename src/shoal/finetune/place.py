"""The folder of a run: a new one, or that of a run which was ended and can go on."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.machine import size_text
from shoal.search.rundir import MODEL, OWNER, RUNS, SETTINGS, abandoned, in_use, numbered, refuse_taken

FORMAT, VERSION = "shoal-finetune", 1
METRICS, SAMPLES, EVENTS, CHECKPOINTS = "metrics.jsonl", "samples.json", "events", "checkpoints"
START = "start"  # the tiny model as it was made
COMPLETE = "complete.json"  # written last into a checkpoint


def stem(file: str, model: str) -> str:
    """
    >>> stem("problems.csv.gz", "org/some model")
    'problems-some-model'
    """
    name = Path(model).name
    return f"{file.split('.')[0]}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'model'}"


def choose(out: Path | None, name: str, fingerprint: dict[str, Any], fresh: bool = False) -> tuple[Path, bool]:
    """A folder, and whether it holds the beginning of this very run."""
    if out is not None:
        return _given(out, fingerprint)
    found = [] if fresh else [path for path in Path(RUNS).glob(f"{name}-*") if _can_go_on(path, fingerprint)]
    if found:
        return max(found, key=lambda path: int(path.name.rpartition("-")[2])), True
    return numbered(Path(RUNS) / name), False


def _given(out: Path, fingerprint: dict[str, Any]) -> tuple[Path, bool]:
    earlier = read(out)
    if earlier is None:
        refuse_taken(out)
        return out, False
    if (out / MODEL).is_dir():
        raise ValueError(f"--out must be a new folder; {out} holds a finished run: give another name")
    for name, value in fingerprint.items():
        before = earlier["fingerprint"].get(name)
        if before != value:
            change = "" if name == "data" else f" (it was {before!r} and is now {value!r})"
            raise ValueError(f"{out} holds the beginning of another run: {name} differs{change}; give another --out")
    if not _free(out):
        raise ValueError(f"{out} is in use by another process, which still runs; wait for it, or give another --out")
    return out, True


def _can_go_on(path: Path, fingerprint: dict[str, Any]) -> bool:
    earlier = read(path)
    return (
        earlier is not None
        and path.name.rpartition("-")[2].isdecimal()
        and earlier["fingerprint"] == fingerprint
        and not (path / MODEL).exists()
        and _free(path)
    )


def _free(path: Path) -> bool:
    return not (path / OWNER).exists() or abandoned(path)


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


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A folder that is ours while we work in it. If nothing came of it, what we made of it goes again."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        in_use.add(path)
        (path / OWNER).write_text(json.dumps({"pid": os.getpid(), "host": platform.node()}), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be written to ({error.strerror}); give another folder with --out") from None
    try:
        yield
    finally:
        in_use.discard(path)
        (path / OWNER).unlink(missing_ok=True)
        if not (path / METRICS).exists():
            for name in (SETTINGS, SAMPLES):
                (path / name).unlink(missing_ok=True)
            for name in (START, CHECKPOINTS, EVENTS):
                shutil.rmtree(path / name, ignore_errors=True)
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def check_space(path: Path, parameters: int, lora: int) -> None:
    """Room for the model and two checkpoints, one being written while the other is kept: found out before training."""
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    whole = 4 * parameters
    needed = whole + (2 * whole // 10 if lora else 2 * 3 * whole) + (1 << 20)
    free = shutil.disk_usage(there).free
    if free < needed:
        raise OSError(
            f"a run of this model needs about {size_text(needed)} in {path} (the model and two checkpoints), and "
            f"{size_text(free)} are free; make room, or give a folder on another disk with --out"
        )


def checkpoints(folder: Path) -> list[Path]:
    """The latest last, complete or not."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def last_checkpoint(run: Path) -> Path | None:
    """The latest that is complete."""
    complete = [path for path in checkpoints(run / CHECKPOINTS) if (path / COMPLETE).is_file()]
    return complete[-1] if complete else None


def write_json(path: Path, content: Any) -> None:
    """Whole or not at all."""
    partial = path.with_suffix(".part")
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def cannot_write(place: Path, error: Exception) -> Exception:
    """An error of writing in one sentence, whichever library had its own words for a full disk; others unchanged."""
    text = (str(error).splitlines() or ["?"])[0][:100]
    torn = re.search(r"inline_container|iostream error|PytorchStreamWriter", str(error)) is not None  # words of torch
    ours = isinstance(error, OSError) or torn or type(error).__name__ == "SafetensorError"
    if not ours:
        return error
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    full = re.search(r"No space left|StorageFull|os error 28", str(error)) or shutil.disk_usage(there).free < 1 << 20
    if full:
        return OSError(f"no space is left in {place}; make some, and the same command goes on from the last checkpoint")
    return OSError(f"{place} cannot be written to: {text}")

"""The folder of a run. It appears under its name when everything in it has been written, and never replaces another."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from shoal.search.saving import DESCRIPTION, TIMINGS, model_folder, read_json
from shoal.search.saving import VERSION as MODEL_VERSION

FORMAT, VERSION = "shoal-run", 1
SETTINGS, MODEL, REPORT, BOARD = "settings.json", "model", "report.html", "leaderboard.csv"
OWNER = "running.json"  # which process writes into a folder; gone when it is finished
RUNS = "shoal-runs"  # folder of runs that were given no name
LIBRARIES = ("shoal", "numpy", "scikit-learn")
in_use: set[Path] = set()  # folders that this process writes into


class RunFolder:
    """`with RunFolder(out, stem) as folder:` write into `folder.path`, then `folder.finish()`.

    Until then it has another, hidden name, and whatever ends the work removes it. What nothing can remove (after
    `kill -9`) does not look like a run; it holds the number of its process, and the next run of that name removes it.
    """

    def __init__(self, out: Path | None, stem: str) -> None:
        self.out, self.stem = out, stem
        self.parent = Path(RUNS) if out is None else out.parent
        self.made_parent = False
        self.finished = False

    def __enter__(self) -> RunFolder:
        """Make the folder now: a place that cannot be written to is found before the search, not after it."""
        if self.out is not None:
            refuse_taken(self.out)
        name = self.stem if self.out is None else self.out.name
        try:
            self.made_parent = not self.parent.exists()
            self.parent.mkdir(parents=True, exist_ok=True)
            sweep(self.parent, name)
            self.path = _new_folder(self.parent / f".{name}.{os.getpid()}")
            in_use.add(self.path)
            owner = {"pid": os.getpid(), "host": platform.node()}
            (self.path / OWNER).write_text(json.dumps(owner), encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"the results cannot be written to {self.parent} ({error.strerror}); give another folder with --out"
            ) from None
        return self

    def finish(self) -> Path:
        """Give the folder its name, at once; if somebody took that name meanwhile, the next free one."""
        target = self.out if self.out is not None else numbered(self.parent / self.stem)
        (self.path / OWNER).unlink()
        while True:
            try:
                os.rename(self.path, target)
                break
            except OSError:
                if not target.exists():
                    raise
                target = numbered(self.parent / (self.stem if self.out is None else self.out.name))
        self.finished = True
        return target

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        in_use.discard(self.path)
        if self.finished:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        if self.made_parent and self.parent.is_dir() and not any(self.parent.iterdir()):
            self.parent.rmdir()


def _new_folder(start: Path) -> Path:
    """`start.part`, or with a number where that is there: somebody else's, on another machine with the same disk."""
    number = 1
    while True:
        path = start.with_name(f"{start.name}{f'-{number}' * (number > 1)}.part")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def sweep(parent: Path, name: str) -> None:
    """Remove what runs of this name have left that could not clean up: those whose process is gone, on this machine."""
    pattern = re.compile(rf"\.{re.escape(name)}\.\d+(-\d+)?\.part")
    for path in parent.iterdir():
        if pattern.fullmatch(path.name) and abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def abandoned(path: Path) -> bool:
    """Whether the process that made a folder is known to be gone; in doubt it is not."""
    try:
        owner = json.loads((path / OWNER).read_text(encoding="utf-8"))
        process, host = int(owner["pid"]), owner["host"]
    except (OSError, ValueError, TypeError, KeyError):
        return False
    if host != platform.node() or os.name != "posix":  # os.kill asks nothing on Windows: it kills
        return False
    if process == os.getpid():  # an earlier process had our number, as the first one in a container always has
        return path not in in_use
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # there, but not ours
        return False
    return False


def numbered(path: Path) -> Path:
    """The first of path-1, path-2, ... that is not there."""
    number = 1
    while (found := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return found


def refuse_taken(out: Path) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if (out / SETTINGS).exists():
        raise ValueError(f"--out must be a new folder; {out} holds a finished run: give another name")
    if out.exists():
        what = "is not empty" if out.is_dir() else "is a file"
        raise ValueError(f"--out must be a new folder; {out} {what}: give another name")


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the bits of a result depend on, beside the settings."""
    from shoal import _native

    found = {name: importlib.metadata.version(name) for name in LIBRARIES}
    machine = f"{platform.system()} {platform.machine()}"
    return found | {
        "python": platform.python_version(), "machine": machine, "instruction set": _native.instruction_set()
    }  # fmt: skip


def different_versions(earlier: dict[str, str]) -> list[str]:
    """What has changed since a run, in words; empty where the same bits can be promised."""
    now = versions()
    return [
        f"{name} is {now[name]} here and was {earlier[name]}"
        for name in now
        if name in earlier and earlier[name] != now[name] and name != "python"
    ]


DATA_KEYS = ("path", "sha256", "demo", "target", "sep", "header")
SEARCH_KEYS = ("task", "seed", "repeats", "strategy", "folds", "scoring", "seeds", "epochs", "ensemble")


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Settings in readable lines; the log, which is long, on one line per round."""
    log = settings.pop("log")
    text = json.dumps({"format": FORMAT, "version": VERSION} | settings, indent=1, ensure_ascii=False)
    rounds = ",\n".join("  " + json.dumps(entry, separators=(",", ":")) for entry in log)
    (folder / SETTINGS).write_text(f'{text[:-2]},\n "log": [\n{rounds}\n ]\n}}\n', encoding="utf-8")
    settings["log"] = log


def settings_file(path: Path) -> Path:
    """That of the folder of a run, or the file itself."""
    return path / SETTINGS if path.is_dir() else path


def read_settings(path: Path) -> dict[str, Any]:
    """From settings.json or the folder of a run."""
    file = settings_file(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; --repeat takes the {SETTINGS} of an earlier run")
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"{file} is truncated or is no JSON; --repeat takes the {SETTINGS} of a run") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise ValueError(f"{file} does not hold the settings of a run; --repeat takes the {SETTINGS} of one")
    if settings.get("version") != VERSION:
        raise ValueError(f"{file} has format version {settings.get('version')}; this Shoal reads version {VERSION}")
    missing = _missing_field(settings)
    if missing:
        raise ValueError(f"{file} was altered: {missing} is missing; repeat from an unchanged copy")
    return settings


def _missing_field(settings: dict[str, Any]) -> str:
    """The first part or field that all runs have and these settings have not; empty where there is none."""
    for part, names in {"data": DATA_KEYS, "search": SEARCH_KEYS, "result": ("score",)}.items():
        if not isinstance(settings.get(part), dict):
            return part
        for name in names:
            if name not in settings[part]:
                return f"{part}.{name}"
    if not isinstance(settings.get("log"), list):
        return "log"
    for k, entry in enumerate(settings["log"]):
        for name in ("recipes", "rungs"):
            if not isinstance(entry, dict) or name not in entry:
                return f"log.{k}.{name}"
    return ""


def find_model(path: Path) -> tuple[Path, dict[str, Any] | None]:
    """The folder of a model, given that or the folder of its run; and the run's settings, where they are beside it."""
    model = model_folder(path)
    beside = model.resolve().parent / SETTINGS
    settings = read_settings(beside) if model.name == MODEL and beside.is_file() else None
    return model, settings


def comparable_model(settings: Path) -> Path:
    """The model of the run with these settings, if it can be compared byte by byte."""
    model = (settings if settings.is_dir() else settings.parent) / MODEL
    file = model / DESCRIPTION
    if not file.is_file():
        raise FileNotFoundError(f"--check needs the model of the earlier run, and there is no file {file}")
    described = read_json(file)
    version = described.get("version") if isinstance(described, dict) else None
    if version != MODEL_VERSION:
        raise ValueError(
            f"--check needs a model of format version {MODEL_VERSION}, and {file} has {version}: repeat the run "
            "without --check, and compare with that"
        )
    return model


def first_difference(one: Path, other: Path) -> str | None:
    """The first file that is not the same in two folders of models, by name; the timings are left out."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()} - {TIMINGS}
    for name in sorted(names):
        contents = [(folder / name).read_bytes() if (folder / name).is_file() else None for folder in (one, other)]
        if contents[0] != contents[1]:
            return name
    return None

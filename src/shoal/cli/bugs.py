"""Bugs of Shoal: the file with the traceback, and the message about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path

import shoal
from shoal.console.terminal import visible_lines

VARIABLE = "SHOAL_TRACEBACK"
WHERE = "the place where you got Shoal from, as a new issue (its template asks for what is needed)"
INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries that are not Python's own


def own_code(error: BaseException) -> str | None:
    """Where in a file of the user's own, such as one given with --net, an error came up; None if in none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.isfile(frame.filename) and not _of_a_library(Path(frame.filename)):
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return None


def _of_a_library(file: Path) -> bool:
    folders = (Path(shoal.__file__).parent, sysconfig.get_path("stdlib"))
    return bool(INSTALLED & set(file.parts)) or any(file.is_relative_to(folder) for folder in folders)


def raised_by(error: BaseException, *packages: str) -> bool:
    """Whether one of these packages raised the error itself."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [spec.origin for name in packages if (spec := importlib.util.find_spec(name)) and spec.origin]
    return bool(frames) and any(Path(frames[-1].filename).is_relative_to(Path(place).parent) for place in places)


def describe(error: BaseException) -> str:
    """
    >>> describe(KeyError("x"))
    "KeyError: 'x'"
    """
    return " ".join("".join(traceback.format_exception_only(error)).split())


def report(error: BaseException) -> str:
    """One line: that this is a bug, where its traceback was written, and how to report it."""
    trace = "".join(traceback.format_exception(error))
    if os.environ.get(VARIABLE, "0") not in ("", "0"):
        print(visible_lines(trace.rstrip()), file=sys.stderr)
    try:
        place = f"the traceback is in {_write(trace)}"
        remedy = f"please report it with that file and the output of `shoal info` to {WHERE}"
    except OSError as failure:
        place = f"the traceback could not be written ({failure.strerror})"
        remedy = f"please report it with what {VARIABLE}=1 shows and the output of `shoal info` to {WHERE}"
    return f"this is a bug in Shoal, not a mistake of yours: {describe(error)}; {place}; {remedy}"


def _write(trace: str) -> str:
    """A new file in the temporary folder, with the command and what it ran on."""
    from shoal.version import __version__

    handle, name = tempfile.mkstemp(prefix="shoal-traceback-", suffix=".txt")
    head = [
        f"shoal {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {sys.argv}",
        f"folder: {os.getcwd()}",
    ]
    with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("\n".join([*head, "", trace]))
    return name

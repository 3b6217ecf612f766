"""A file of JSON lines: the simplest tracker, for programs of the user's own."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.files.json_values import plain
from shoal.trackers.content import Scores, TriedRecipe, Values
from shoal.trackers.tracker import Tracker


@dataclass(eq=False)
class JSONLines(Tracker):
    """A callback that appends a line of JSON to a file for each event.

    Every line has `event` ("started", "resumed", "step", "recipe", "file" or "ended"), `time` (seconds since 1970) and
    what belongs to it: `parameters`, `step` and `scores`, or `status`.

    Parameters
    ----------
    path : path
        The file. Lines are added to a file that is there.

    Examples
    --------
    >>> import json, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from shoal import ShoalClassifier
    >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> model = ShoalClassifier(recipes=2, seeds=1, callbacks=[JSONLines(path)]).fit(*load_iris(return_X_y=True))
    >>> lines = [json.loads(line) for line in path.read_text().splitlines()]
    >>> lines[0]["event"], lines[0]["parameters"]["recipes"], "honest_score" in lines[-1]["scores"]
    ('started', 2, True)
    """

    path: str | os.PathLike[str]

    @property
    def address(self) -> str:
        """Where it writes."""
        return f"jsonl:{os.fspath(self.path)}"

    def begin(self, parameters: Values, run: str) -> str:
        """Begin a run, or continue an earlier one."""
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        self._write("resumed" if run else "started", parameters=parameters)
        return "begun"

    def log(self, step: int, scores: Scores) -> None:
        """Scores of a step."""
        self._write("step", step=step, scores=scores)

    def log_recipe(self, rank: int, recipe: TriedRecipe) -> None:
        """A line for one of the best."""
        self._write("recipe", rank=rank, name=recipe.name, parameters=recipe.parameters, scores=recipe.scores)

    def log_file(self, path: Path) -> None:
        """Where it is."""
        self._write("file", path=str(path))

    def end(self, results: Scores, status: str) -> None:
        """The run is complete, or will not be."""
        self._write("ended", status=status, scores=results)

    def _write(self, event: str, **about: Any) -> None:
        line = json.dumps(plain({"event": event, "time": time.time(), **about}), ensure_ascii=False)
        with open(self.path, "ab+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            broken = end and file.read(1) != b"\n"  # a killed process was writing
            file.write(("\n" if broken else "").encode() + line.encode("utf-8", "replace") + b"\n")

"""What all trackers share: they write in a thread of their own, continue a resumed run, and fail quietly, once."""

from __future__ import annotations

import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from shoal.errors import MissingPackage
from shoal.runs.journal import Journal
from shoal.trackers import content
from shoal.trackers.background import Background
from shoal.trackers.content import Scores, TriedRecipe, Values

MOST_RECIPES = 100
NOTED = "tracker"  # the event of the journal
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


@dataclass
class Kept:
    """Which run of the tracker this is, and how much of it is written: in the run folder, where there is one."""

    address: str  # of the tracker
    journal: Journal | None = None
    run: str = ""
    steps: int = 0

    def read(self) -> None:
        for name, value in [] if self.journal is None else self.journal.events():
            if name == NOTED and value[0] == self.address:
                _, self.run, self.steps = value

    def note(self, run: str, steps: int) -> None:
        self.run, self.steps = run, steps
        if self.journal is not None:
            self.journal.note(NOTED, [self.address, run, steps])


class Tracker(ABC):
    """A callback that writes to a tracker. Subclasses say how; their methods are called in a thread of its own."""

    copies_files: ClassVar[bool] = False  # else it only names those of a run folder
    say: Callable[[str], None] | None = None  # for warnings; None: warnings.warn
    _background: Background | None = None

    # ---- what a tracker must be able to do ----

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it writes, as `--log` takes it."""

    @abstractmethod
    def begin(self, parameters: Values, run: str) -> str:
        """Begin a run, or continue an earlier one; its name there."""

    @abstractmethod
    def log(self, step: int, scores: Scores) -> None:
        """Scores of a step."""

    def forget_recipes(self) -> None:  # noqa: B027, a tracker may keep them
        """Remove those of an earlier attempt at the same search; only called where there was one."""

    @abstractmethod
    def log_recipe(self, rank: int, recipe: TriedRecipe) -> None:
        """One of the best recipes, once they are known."""

    @abstractmethod
    def log_file(self, path: Path) -> None:
        """The report, the model folder, or another file of the run."""

    @abstractmethod
    def end(self, results: Scores, status: str) -> None:
        """The run is complete, or will not be."""

    # ---- events ----

    def started(self, event: Any) -> None:
        """Begin a run, or continue that of a resumed search."""
        self.close()
        self._steps, self._warned = 0, False
        self._kept = Kept(self.address, getattr(event, "journal", None))
        self._background = Background(type(self).__name__)
        self._put(partial(self._begin, content.parameters(event)))

    def step_ended(self, event: Any) -> None:
        """Log the scores of a rung, an epoch or an evaluation."""
        self._steps += 1
        self._put(partial(self._log, self._steps, content.place_of(event) or self._steps, content.scores(event)))

    def finished(self, result: Any, folder: Path | None = None) -> None:
        """Log the results, and end the run. `folder`: where its files are; None: they are written for that."""
        stopped = getattr(result, "ended", "") == "interrupted" or getattr(result, "finished", True) is False
        with self._files(result, folder) as place:
            self._put(self._forget)
            for rank, recipe in enumerate(content.tried(result, MOST_RECIPES), 1):
                self._put(partial(self.log_recipe, rank, recipe))
            for path in [] if place is None else content.files_of(result, place):
                self._put(partial(self.log_file, path))
            self._put(partial(self.end, content.results(result), STOPPED if stopped else FINISHED))
            self._end()

    def close(self) -> None:
        """End a run that will not be finished."""
        if self._background is not None:
            self._put(partial(self.end, {}, FAILED))
            self._end()

    # ---- in the background ----

    def _begin(self, parameters: Values) -> None:
        self._kept.read()
        self._resumes = bool(self._kept.run)
        run = self.begin(parameters, self._kept.run)
        self._kept.note(run, self._kept.steps if run == self._kept.run else 0)

    def _forget(self) -> None:
        if self._resumes:
            self.forget_recipes()

    def _log(self, step: int, place: int, scores: Scores) -> None:
        if step > self._kept.steps:  # a resumed search does its first steps again, from its journal
            if scores:
                self.log(place, scores)
            self._kept.note(self._kept.run, step)

    def _put(self, work: Callable[[], None]) -> None:
        if self._background is not None:
            self._background.put(work)
            self._warn()

    def _end(self) -> None:
        if self._background is not None:
            self._background.end()
            self._warn()
            self._background = None

    @contextmanager
    def _files(self, result: Any, folder: Path | None) -> Iterator[Path | None]:
        """The folder with the files of a run. None: it has none, and they are not wanted or cannot be written."""
        wanted = self.copies_files and self._background is not None and not self._background.problem
        if folder is not None or not wanted or type(result).__name__ != "SearchResult":
            yield folder
            return
        with ExitStack() as stack:
            place = None
            try:
                made = tempfile.TemporaryDirectory(prefix="shoal-", ignore_cleanup_errors=True)
                content.write_files(result, Path(stack.enter_context(made)))
                place = Path(made.name)
            except OSError as error:  # a full disk
                self._tell(f"{self.address} does not get the files of this run: {error}")
            yield place

    def _warn(self) -> None:
        """Once, in the thread of the user."""
        if self._background is not None and self._background.problem and not self._warned:
            self._warned = True
            self._tell(f"{self.address} does not get the rest of this run: {self._background.problem}")

    def _tell(self, text: str) -> None:
        if self.say is not None:
            self.say(f"note: {text}")
        else:
            warnings.warn(text, stacklevel=5)

    def __getstate__(self) -> dict[str, Any]:
        """Copies, such as those of `sklearn.base.clone`, have a run of their own."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def need(package: str, extra: str, asked: str) -> None:
    """Refuse to begin without a package."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingPackage(f"{asked} needs the package {package}: pip install 'shoal-ml[{extra}]'")

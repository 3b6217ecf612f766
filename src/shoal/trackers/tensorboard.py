"""TensorBoard: scores as curves, and the best recipes beside each other."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.trackers.content import Scores, TriedRecipe, Values
from shoal.trackers.tracker import Tracker, need


@dataclass(eq=False)
class TensorBoard(Tracker):
    """A callback that logs to TensorBoard: scores of each rung, learning curves of the best recipes, and the settings.

    The best recipes of a search, at most 100, are runs of their own in its folder `recipes`. TensorBoard stores no
    models; the settings and the honest score are text. Needs `pip install 'shoal-ml[tensorboard]'`, and no PyTorch.

    Parameters
    ----------
    folder : path
        What `tensorboard --logdir` is to show. Use one folder for each search.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from shoal import ShoalClassifier
    >>> tracker = TensorBoard(tempfile.mkdtemp())
    >>> model = ShoalClassifier(recipes=2, seeds=1, callbacks=[tracker])  # `fit` then logs
    """

    folder: str | os.PathLike[str]

    def __post_init__(self) -> None:
        need("tensorboard", "tensorboard", self.address)

    @property
    def address(self) -> str:
        """Where it writes."""
        return f"tensorboard:{os.fspath(self.folder)}"

    def begin(self, parameters: Values, run: str) -> str:
        """Begin a run, or continue an earlier one."""
        self._writer = _writer(Path(self.folder))
        if not run:
            self._text("settings", parameters)
        self._begun = run if run.isdecimal() else str(int(time.time()))
        return self._begun

    def log(self, step: int, scores: Scores) -> None:
        """Scores of a step."""
        _add(self._writer, step, scores)
        self._writer.flush()

    def forget_recipes(self) -> None:
        """Those of an earlier attempt at the same search: files that say in their names that they are as new."""
        for old in Path(self.folder).glob("recipes/*/events.out.tfevents.*"):
            begun = old.name.split(".")[3]
            if begun.isdecimal() and int(begun) >= int(self._begun) and not old.parent.is_symlink():
                old.unlink()

    def log_recipe(self, rank: int, recipe: TriedRecipe) -> None:
        """Learning curves and settings, as a run of its own."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        writer = _writer(Path(self.folder) / "recipes" / f"{rank:03}")
        known = {name: value if isinstance(value, bool | int | float | str) else str(value)
                 for name, value in recipe.parameters.items()}  # fmt: skip
        _add_summary(writer, 0, hparams_pb(known))
        for epoch, losses in recipe.curve:
            _add(writer, epoch, losses)
        _add(writer, 0, {name: recipe.scores[name] for name in ("score", "loss") if name in recipe.scores})
        writer.close()

    def log_file(self, path: Path) -> None:
        """Where it is, as text."""
        self._text(path.name, {"path": path})

    def end(self, results: Scores, status: str) -> None:
        """The run is complete, or will not be."""
        _add(self._writer, 0, results)
        self._text("results", {"status": status, **results})
        self._writer.close()

    def _text(self, name: str, values: Values) -> None:
        """A table in the tab for texts."""
        from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.plugins.text.metadata import create_summary_metadata

        rows = [f"| {key} | {str(value).replace('|', '/')} |" for key, value in values.items() if value is not None]
        text = "\n".join(["| name | value |", "|---|---|", *rows])
        size = tensor_shape_pb2.TensorShapeProto.Dim(size=1)
        shape = tensor_shape_pb2.TensorShapeProto(dim=[size])
        tensor = tensor_pb2.TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
        metadata = create_summary_metadata(display_name=name, description="")
        value = summary_pb2.Summary.Value(tag=name, metadata=metadata, tensor=tensor)
        _add_summary(self._writer, 0, summary_pb2.Summary(value=[value]))
        self._writer.flush()


def _writer(folder: Path) -> Any:
    """Of TensorBoard's own package, which needs neither PyTorch nor TensorFlow."""
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(str(folder))


def _add(writer: Any, step: int, scores: Scores) -> None:
    from tensorboard.compat.proto import summary_pb2

    values = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in scores.items()]
    _add_summary(writer, step, summary_pb2.Summary(value=values))


def _add_summary(writer: Any, step: int, summary: Any) -> None:
    from tensorboard.compat.proto import event_pb2

    writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))

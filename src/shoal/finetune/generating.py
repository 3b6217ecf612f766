"""Generate text with a saved model: `shoal generate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import MissingFile, UserError
from shoal.finetune import models, place, texts
from shoal.finetune.rank import quiet
from shoal.finetune.writing import continue_text, room
from shoal.validate import nearest


class Writer:
    """A saved model and the columns of the texts it was trained on. The model is loaded at the first use."""

    def __init__(self, path: Path, device: str = "auto", say: Callable[[str], None] = print) -> None:
        self.folder, self.columns = _find(path)
        self.device, self.say = device, say
        self.model: Any = None

    def _load(self) -> None:
        quiet()
        from shoal.parallel.devices import find_device

        device = find_device(self.device)
        self.tokenizer = models.load_tokenizer(self.folder)
        self.model = models.load_model(self.folder).to(device)
        self.context = models.longest_context(self.model.config, self.tokenizer)

    def write(
        self, given: Sequence[str], tokens: int = 256, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0
    ) -> str:
        """The text that the model generates after the given columns."""
        if len(given) > 1 and len(self.columns) < 2:
            raise UserError(f"give one text, in quotes if it has blanks; got {len(given)}")
        text = texts.prompt(self.columns, given)
        if self.model is None:
            self._load()
        import torch

        length = len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        if length + room(length, tokens, self.context) > self.context:
            self.say(f"note: the text has {length:,} tokens, the model takes {self.context:,}: its beginning is cut")
        torch.manual_seed(seed)
        return continue_text(self.model, self.tokenizer, text, tokens, self.context, temperature, top_p)


def _find(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder of a model, and the columns of its training texts; none for a model that Shoal did not train."""
    if not path.is_dir():
        if path.is_file():
            raise UserError(f"{path} is a file; give the folder of a run or of a model")
        beside = [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
        raise MissingFile(f"there is no folder {path}{nearest(path.name, beside)}")
    run = place.read(path)
    folder = path
    if run is not None:
        folder = path / place.MODEL
        if not folder.is_dir():
            raise UserError(f"the run in {path} is not finished; repeat its shoal finetune command to resume it")
    elif path.resolve().name == place.MODEL:
        run = place.read(path.resolve().parent)
    lacking = models.missing_files(folder)
    if lacking:
        raise UserError(f"{folder} is not a complete model: {', '.join(lacking)} missing")
    return folder, tuple(run["settings"]["columns"]) if run else ()

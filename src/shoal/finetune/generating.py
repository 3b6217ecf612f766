"""Generate text with a saved model: `shoal generate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.callbacks import Callbacks
from shoal.errors import UserError
from shoal.finetune import folder, models, texts
from shoal.runs.kinds import MODEL, SETTINGS


class TextGenerator:
    """A saved model and the columns of the texts it was trained on. The model is loaded at the first use.

    Callbacks receive notes.
    """

    def __init__(self, path: Path, device: str = "auto", callbacks: Any = None) -> None:
        self.folder, self.columns = _find(path)
        self.device, self.callbacks = device, Callbacks(callbacks)
        self.model: Any = None

    def _load(self) -> None:
        models.silence_libraries()
        from shoal.parallel.data.loader import find_device

        device = find_device(self.device)
        self.tokenizer = models.load_tokenizer(self.folder)
        self.model = models.load_model(self.folder).to(device)
        self.context = models.longest_context(self.model.config, self.tokenizer)

    def generate(
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
            text_size = f"the text has {length:,} tokens, and the model takes {self.context:,}"
            self.callbacks.notify("note", f"{text_size}: its beginning is cut off")
        torch.manual_seed(seed)
        return continue_text(self.model, self.tokenizer, text, tokens, self.context, temperature, top_p)


def _find(path: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder of a model, and the columns of its training texts; none for a model that Shoal did not train."""
    if not path.is_dir():
        if path.is_file():
            raise UserError(f"{path} is a file; give the folder of a run or of a model")
        raise models.no_folder(path)
    run = folder.read_settings(path)
    model = path
    if run is not None:
        model = path / MODEL
        if not model.is_dir():
            raise UserError(f"the run in {path} is not finished; repeat its shoal finetune command to resume it")
    elif path.resolve().name == MODEL:
        run = folder.read_settings(path.resolve().parent)
    lacking = models.missing_files(model)
    if lacking:
        raise UserError(f"{model} is not a complete model: {', '.join(lacking)} missing")
    return model, _columns_of(run) if run else ()


def _columns_of(run: dict[str, Any]) -> tuple[str, ...]:
    """Those that a run was trained on. Without them, texts would have another form than the model has learned."""
    settings = run.get("settings")
    columns = settings.get("columns") if isinstance(settings, dict) else None
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise UserError(f"the {SETTINGS} of this run is damaged: it does not name the columns. Restore it from a copy")
    return tuple(columns)


def continue_text(
    model: Any, tokenizer: Any, text: str, tokens: int, context: int, temperature: float = 0.0, top_p: float = 1.0
) -> str:
    """The continuation of `text`: the most likely token at each step, or sampled with a temperature above 0.

    If the text leaves too little of the context for new tokens, its beginning is cut off.
    """
    import torch

    ids = tokenizer(text, add_special_tokens=False)["input_ids"] or [tokenizer.eos_token_id]
    new = room(len(ids), tokens, context)
    ids = ids[-(context - new) :]
    given = torch.tensor([ids], device=model.device)
    drawn = {"do_sample": True, "temperature": temperature, "top_p": top_p} if temperature > 0 else {"do_sample": False}
    was_training = model.training
    model.eval()
    with torch.no_grad():
        written = model.generate(
            input_ids=given, attention_mask=torch.ones_like(given), max_new_tokens=new,
            pad_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id, **drawn,
        )  # fmt: skip
    model.train(was_training)
    return decode(tokenizer, written[0, len(ids) :].tolist())


def room(length: int, tokens: int, context: int) -> int:
    """How many new tokens fit: the rest of the context, or a quarter of the context if that is more.

    >>> room(10, 256, 64), room(60, 256, 64), room(60, 4, 64)
    (54, 16, 4)
    """
    return max(1, min(tokens, max(context - length, context // 4)))


def decode(tokenizer: Any, ids: list[int]) -> str:
    """The text of tokens; an incomplete character at the end, where generation stopped, is dropped."""
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text).rstrip("\N{REPLACEMENT CHARACTER}")

"""Texts as tokens: the file that the workers read, and batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

FILE = "tokens.safetensors"
IGNORED = -100  # label of tokens that the loss ignores


@dataclass
class Tokens:
    """The tokens of all texts, concatenated; `ends` has the end of each text. `cut` texts were too long, and cut."""

    ids: np.ndarray
    ends: np.ndarray
    cut: int = 0

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.ends[row - 1] if row else 0 : self.ends[row]]


def encode(texts: list[str], tokenizer: Any, context: int) -> Tokens:
    """The tokens of texts, each with an end token, so that the model learns to stop. Long texts are cut."""
    encoded = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
    whole = [[*ids, tokenizer.eos_token_id] for ids in encoded]
    cut = sum(len(ids) > context for ids in whole)
    kept = [ids[:context] for ids in whole]
    return Tokens(
        np.array([token for ids in kept for token in ids], dtype=np.int64), np.cumsum([len(ids) for ids in kept]), cut
    )


def write(folder: Path, train: Tokens, test: Tokens) -> None:
    from safetensors.numpy import save_file

    parts = {"train_ids": train.ids, "train_ends": train.ends, "test_ids": test.ids, "test_ends": test.ends}
    save_file(parts, folder / FILE)


def read(folder: Path) -> tuple[Tokens, Tokens]:
    from safetensors.numpy import load_file

    parts = load_file(folder / FILE)
    return Tokens(parts["train_ids"], parts["train_ends"]), Tokens(parts["test_ids"], parts["test_ends"])


def batch(rows: list[np.ndarray], padding: int) -> dict[str, torch.Tensor]:
    """A batch of texts, padded to the longest; the loss ignores padding.

    A worker without rows in a small last batch gets a row of padding: all workers take part in every step.
    """
    import torch

    rows = rows or [np.array([], dtype=np.int64)]
    length = max(2, *(len(row) for row in rows)) if len(rows) > 1 else max(2, len(rows[0]))
    ids = torch.full((len(rows), length), padding)
    mask = torch.zeros((len(rows), length), dtype=torch.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.from_numpy(row)
        mask[place, : max(1, len(row))] = 1  # attention over no token at all would be NaN
    labels = ids.masked_fill(mask == 0, IGNORED)
    labels[:, 0] = IGNORED  # the first token is never predicted, but the Trainer would count it
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}

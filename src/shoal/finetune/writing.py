"""Generate text: let a model continue a prompt."""

from __future__ import annotations

from typing import Any


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

"""What a model writes for a few test rows before, during and after its training, in one file of the run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from shoal.finetune import models
from shoal.finetune.checkpoints import write_json
from shoal.finetune.folder import read_samples
from shoal.finetune.generating import continue_text
from shoal.finetune.plan import TEXTS, FinetunePlan
from shoal.runs.kinds import SAMPLES

TOKENS = 120
MEANWHILE_TOKENS = 60  # of the first row, after an evaluation
MOST_MEANWHILE = 40  # texts
SHARE = 0.03  # of the seconds so far that writing meanwhile may take: the other workers wait for it


class SampleWriter(TrainerCallback):
    """Adds texts to the file. A resumed run keeps those that are there."""

    def __init__(self, plan: FinetunePlan, folder: Path, trainer: Any, tokenizer: Any) -> None:
        self.trainer, self.tokenizer = trainer, tokenizer
        self.path = Path(plan.run) / SAMPLES
        planned = json.loads((folder / TEXTS).read_text(encoding="utf-8"))["prompts"]
        self.samples = read_samples(Path(plan.run)) or planned
        self.context = models.longest_context(trainer.model.config, tokenizer)
        self.begun, self.spent, self.longest = time.monotonic(), 0.0, 0.0  # `longest`: that one text may take

    def write(self, when: str) -> None:
        """Before or after training: a text for each row."""
        for sample in self.samples:
            if when not in sample:
                begun = time.monotonic()
                sample[when] = self._continue(sample["prompt"], TOKENS)
                self.longest = (time.monotonic() - begun) * MEANWHILE_TOKENS / TOKENS
        write_json(self.path, self.samples)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """During training: a text for the first row, as long as this takes next to no time."""
        if not self.samples or not 0 < state.global_step < state.max_steps:
            return
        written = [one for one in self.samples[0].get("meanwhile", []) if one["step"] < state.global_step]
        now = time.monotonic()
        if len(written) >= MOST_MEANWHILE or self.spent + self.longest > SHARE * (now - self.begun):
            return
        text = self._continue(self.samples[0]["prompt"], MEANWHILE_TOKENS)
        self.samples[0]["meanwhile"] = [*written, {"step": state.global_step, "text": text}]
        write_json(self.path, self.samples)
        took = time.monotonic() - now
        self.spent, self.longest = self.spent + took, max(self.longest, took)

    def _continue(self, prompt: str, tokens: int) -> str:
        return continue_text(self.trainer.model, self.tokenizer, prompt, tokens, self.context)

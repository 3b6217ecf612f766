"""The options of fine-tuning and of writing with a fine-tuned model, each in one place (see `shoal.options`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.errors import UserError
from shoal.options import Options, option
from shoal.parallel.job import DEVICES, LARGEST
from shoal.validate import number

SCHEDULES = ("linear", "cosine", "constant")
FEWEST_TOKENS = 8  # of a context
LARGEST_SEED = (1 << 32) - 1


def _test_share(name: str, value: Any) -> float:
    if value == 0:
        raise UserError(f"{name} must be above 0: test rows are needed to measure what was learned")
    return number(name, value, least=0, below=1, what="a share")


@dataclass(frozen=True)
class FinetuneOptions(Options):
    """Options of a fine-tuning run, in the order of its help."""

    columns: tuple[str, ...] = option((), "Columns to join into a text, in order: a,b,c. (default: all)")
    model: str = option(
        "gpt2", "Model folder, name on the Hugging Face hub, or tiny (a small untrained GPT-2). (default: {default})"
    )
    epochs: int = option(3, "Passes over the texts. (default: {default})", least=1)
    batch_size: int = option(8, "Texts per step, over all workers. (default: {default})", least=1)
    learning_rate: float = option(
        5e-5, "Learning rate. (default: {default})", above=0, below=LARGEST, flags="--learning-rate --lr"
    )
    schedule: str = option("linear", f"Learning rate after the warm-up: {', '.join(SCHEDULES)}.", one_of=SCHEDULES)
    warmup: float = option(0.05, "Share of the steps used to warm up.", least=0, below=1, what="a share")
    weight_decay: float = option(0.01, "Weight decay.", least=0, below=LARGEST)
    dropout: float | None = option(None, "Dropout. (default: that of the model)", least=0, below=1, what="a share")
    context: int | None = option(
        None, "Maximum tokens per text; longer texts are cut. (default: the maximum of the model)", least=FEWEST_TOKENS
    )
    lora: int = option(0, "Rank of LoRA; 0 trains all weights.", least=0)
    test: float = option(0.1, "Share of the texts held out for testing.", check=_test_share)
    workers: int = option(1, "Processes that share each batch.", least=1, changes_result=False)
    device: str = option("auto", "auto, cpu, cuda or mps.", one_of=DEVICES, changes_result=False)
    threads: int | None = option(None, "Threads per worker. (default: cores / workers)", least=1, changes_result=False)
    eval_every: int | None = option(
        None, "Steps between evaluations. (default: 20 evaluations in total)", least=1, changes_result=False
    )
    log_every: int | None = option(
        None, "Steps between log records. (default: 1,000 to 2,000 records)", least=1, changes_result=False
    )
    save_every: int | None = option(
        None, "Steps between checkpoints. (default: one a minute)", least=1, changes_result=False
    )
    samples: int = option(
        3, "Test rows to generate samples for, before and after training.", least=0, changes_result=False
    )
    tensorboard: bool = option(False, "Also write event files for TensorBoard.", changes_result=False)
    restarts: int = option(3, "Maximum restarts after a worker dies.", least=0, changes_result=False)
    timeout: float = option(600.0, "Seconds to wait for a slower worker.", above=0, below=LARGEST, changes_result=False)
    seed: int = option(0, "Random seed.", least=0, most=LARGEST_SEED)


@dataclass(frozen=True)
class WritingOptions(Options):
    """Options of `shoal generate`, in the order of its help."""

    tokens: int = option(256, "Maximum tokens to generate.", least=1)
    temperature: float = option(
        0.0, "0 always picks the most likely token; higher values vary more.", least=0, below=LARGEST
    )
    top_p: float = option(0.95, "Sample from the most likely tokens with this total probability.", above=0, most=1)
    samples: int = option(1, "Number of samples; more than one needs --temperature.", least=1)
    device: str = option("auto", "auto, cpu, cuda or mps.", one_of=DEVICES)
    seed: int = option(0, "Random seed.", least=0)

    def check_together(self, called: Callable[[str], str]) -> None:
        if self.samples > 1 and self.temperature == 0:
            raise UserError(
                f"{called('samples')} {self.samples} would all be equal; set {called('temperature')} above 0, "
                "such as 0.8"
            )

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
        raise UserError(f"{name} must be above 0: without test rows nobody knows what was learned")
    return number(name, value, least=0, below=1, what="a share")


@dataclass(frozen=True)
class FinetuneOptions(Options):
    """Options of a fine-tuning run, in the order of its help."""

    columns: tuple[str, ...] = option((), "Columns that make up a text, in order: a,b,c. (default: all)")
    model: str = option(
        "gpt2", "A folder, a name on the hub, or tiny: a small GPT-2 with random weights. (default: {default})"
    )
    epochs: int = option(3, "Passes over the texts. (default: {default})", least=1)
    batch_size: int = option(8, "Texts in a step, over all workers. (default: {default})", least=1)
    learning_rate: float = option(
        5e-5, "Size of the steps. (default: {default})", above=0, below=LARGEST, flags="--learning-rate --lr"
    )
    schedule: str = option("linear", f"How the rate falls after the warm-up: {', '.join(SCHEDULES)}.", one_of=SCHEDULES)
    warmup: float = option(0.05, "Share of the steps in which the rate grows.", least=0, below=1, what="a share")
    weight_decay: float = option(0.01, "Pulls weights towards zero.", least=0, below=LARGEST)
    dropout: float | None = option(
        None, "Share of units left out. (default: as the model says)", least=0, below=1, what="a share"
    )
    context: int | None = option(
        None, "Tokens of a text, at most; longer ones are cut. (default: what the model can)", least=FEWEST_TOKENS
    )
    lora: int = option(0, "Train small matrices of this rank, not the whole model; 0: all.", least=0)
    test: float = option(0.1, "Share of the texts kept for testing.", check=_test_share)
    workers: int = option(1, "Processes that share each batch.", least=1, changes_result=False)
    device: str = option("auto", "auto, cpu, cuda or mps.", one_of=DEVICES, changes_result=False)
    threads: int | None = option(
        None, "Threads of each worker. (default: cores / workers)", least=1, changes_result=False
    )
    eval_every: int | None = option(
        None, "Steps between two tests. (default: 20 tests in all)", least=1, changes_result=False
    )
    log_every: int | None = option(
        None, "Steps between two records. (default: every step, to 1,000)", least=1, changes_result=False
    )
    save_every: int | None = option(
        None, "Steps between two checkpoints. (default: one a minute)", least=1, changes_result=False
    )
    samples: int = option(3, "Test rows to let the model write, before and after.", least=0, changes_result=False)
    tensorboard: bool = option(False, "Also write event files for TensorBoard.", changes_result=False)
    restarts: int = option(3, "How often to start again when a worker is lost.", least=0, changes_result=False)
    timeout: float = option(
        600.0, "Seconds that a worker may wait for a slower one.", above=0, below=LARGEST, changes_result=False
    )
    seed: int = option(0, "Seed of all that is drawn at random.", least=0, most=LARGEST_SEED)


@dataclass(frozen=True)
class WritingOptions(Options):
    """Options of `shoal generate`, in the order of its help."""

    tokens: int = option(256, "Tokens to write, at most.", least=1)
    temperature: float = option(0.0, "0: the likeliest each time; higher: more surprising.", least=0, below=LARGEST)
    top_p: float = option(0.95, "Draw from the likeliest tokens that make up this share.", above=0, most=1)
    samples: int = option(1, "How many to write; more than one needs --temperature.", least=1)
    device: str = option("auto", "auto, cpu, cuda or mps.", one_of=DEVICES)
    seed: int = option(0, "Seed of what is drawn at random.", least=0)

    def check_together(self, called: Callable[[str], str]) -> None:
        if self.samples > 1 and self.temperature == 0:
            raise UserError(
                f"{called('samples')} {self.samples} would all be the same; give a {called('temperature')} above 0, "
                "such as 0.8"
            )

"""The Trainer of transformers with four changes, so that runs can be compared, interrupted and resumed:

- each batch is drawn for all workers together and then divided, so that the number of workers does not change it;
- the test loss is the mean over all tokens (the Trainer averages the means of batches);
- random numbers (dropout) are seeded by step, so that a resumed run draws the same ones as an uninterrupted run;
- a checkpoint is valid only when it is complete, and the previous one is deleted only then.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from shoal.errors import UserError
from shoal.files.json_values import plain
from shoal.files.plain_files import remove
from shoal.finetune.checkpoints import checkpoints, complete, writing_run
from shoal.finetune.plan import FinetunePlan
from shoal.finetune.tokens import IGNORED, Tokens, batch
from shoal.runs.folder import remove_files
from shoal.runs.kinds import CHECKPOINTS, EVENTS, METRICS

MIN_SECONDS_BETWEEN_CHECKPOINTS = 60.0
MIN_TRAINING_PER_SAVING = 20  # seconds of training between checkpoints for each second that saving takes
# Some weights have no effect (biases of keys in attention), so their gradients are rounding errors. With the
# usual 1e-8, Adam takes full steps from them, different ones for each number of workers.
ADAM_EPSILON = 1e-6
Report = Callable[[dict[str, Any]], None]


class WorkerBatches(Sampler[list[int]]):
    """This worker's rows of each batch of an epoch: of a batch drawn for all workers, every `size`-th row."""

    def __init__(self, rows: int, batch_size: int, seed: int, rank: int, size: int) -> None:
        self.rows, self.batch_size, self.seed, self.rank, self.size = rows, batch_size, seed, rank, size
        self.epoch = 0

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, self.epoch))
        drawn: list[int] = torch.randperm(self.rows, generator=generator).tolist()
        for start in range(0, self.rows, self.batch_size):
            yield drawn[start : start + self.batch_size][self.rank :: self.size]

    def rows_in(self, step: int) -> int:
        """The number of rows in the batch of a step, over all workers."""
        place = step % len(self)
        return min(self.batch_size, self.rows - place * self.batch_size)


def mixed_seed(seed: int, *parts: int) -> int:
    """A seed from several numbers; similar numbers give unrelated seeds."""
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return int.from_bytes(digest[:7], "little")


class StepControl(TrainerCallback):
    """Seeds every step, and decides after it whether to save or to pause: all workers together, never one alone."""

    def __init__(self, trainer: FineTuner, pause_requested: Callable[[], bool], report: Report) -> None:
        self.trainer, self.pause_requested, self.report = trainer, pause_requested, report
        self.paused = False

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.batches.epoch = state.global_step // len(self.trainer.batches)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.step_started = time.monotonic()
        torch.manual_seed(mixed_seed(self.trainer.plan.settings.seed, state.global_step, self.trainer.batches.rank))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer, every = self.trainer, self.trainer.plan.settings.save_every
        trainer.count_step()
        last = state.global_step >= state.max_steps
        # Without `save_every` the clock decides, that of the first worker, which saves.
        due = state.global_step % every == 0 if every else trainer.save_due() and trainer.batches.rank == 0
        pause, save = trainer.any_worker(self.pause_requested(), due)
        if pause and not last:
            control.should_training_stop = self.paused = True
        control.should_save = (save or pause) and not last
        control.should_log = control.should_log or last
        self.report({"share": state.global_step / state.max_steps, **trainer.last})


class FineTuner(Trainer):
    """The Trainer of one worker."""

    def __init__(self, plan: FinetunePlan, model: Any, sets: tuple[Tokens, Tokens], rank: int, padding: int,
                 pause_requested: Callable[[], bool], report: Report, cpu: bool) -> None:  # fmt: skip
        self.plan, self.report = plan, report
        self.train_tokens, self.test_tokens = sets
        settings = plan.settings
        self.batches = WorkerBatches(len(self.train_tokens), settings.batch_size, settings.seed, rank, settings.workers)
        self.padding = padding
        self.step_started = self.saved = time.monotonic()
        self.saving = self.busy = 0.0  # seconds: of the last checkpoint, and of the steps since the last record
        self.steps = self.rows = 0
        self.tokens: Any = 0
        self.seconds_before = 0.0  # seconds of training before the run was resumed
        self.started = time.monotonic()
        self.last: dict[str, float] = {}
        self.events: Any = None  # for TensorBoard
        super().__init__(model=model, args=arguments(plan, cpu), eval_dataset=self.test_tokens)
        self.remove_callback(PrinterCallback)
        self.step_control = StepControl(self, pause_requested, report)
        self.add_callback(self.step_control)

    # --- data ---
    def get_train_dataloader(self) -> DataLoader[Any]:
        padding, tokens = self.padding, self.train_tokens
        indices = range(len(tokens))
        return DataLoader(
            indices,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=lambda rows: batch([tokens[row] for row in rows], padding),
        )

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        if num_items_in_batch is not None:  # of all workers; None for models whose tokens cannot be counted
            self.tokens = self.tokens + num_items_in_batch
        return super().training_step(model, inputs, num_items_in_batch)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The mean loss over all tokens of the test rows; the batches are divided among the workers."""
        started = time.monotonic()
        size = self.plan.settings.batch_size
        rows = sorted(range(len(self.test_tokens)), key=lambda row: len(self.test_tokens[row]))
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        total = torch.zeros(2, dtype=torch.float64)
        model: Any = self.model
        model.eval()
        with torch.no_grad():
            for part in batches[self.batches.rank :: self.batches.size]:
                inputs = self._prepare_inputs(batch([self.test_tokens[row] for row in part], self.padding))
                labels = inputs.pop("labels")
                total += losses(model(**inputs).logits, labels)
        self.all_reduce(total)
        self._check_loss(float(total[0]))
        seconds = time.monotonic() - started
        metrics = {
            "eval_loss": float(total[0] / total[1]), "eval_runtime": seconds,
            "eval_samples_per_second": len(rows) / seconds, "eval_steps_per_second": len(batches) / seconds,
        }  # fmt: skip
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # --- workers ---
    def all_reduce(self, vector: torch.Tensor, largest: bool = False) -> None:
        """The sum over all workers, or with `largest` the maximum, in place."""
        if self.batches.size > 1:
            distributed.all_reduce(vector, distributed.ReduceOp.MAX if largest else distributed.ReduceOp.SUM)

    def any_worker(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is set on at least one worker."""
        flag_vector = torch.tensor(flags, dtype=torch.uint8)
        self.all_reduce(flag_vector, largest=True)
        return [bool(flag) for flag in flag_vector.tolist()]

    # --- records ---
    def count_step(self) -> None:
        self.busy += time.monotonic() - self.step_started
        self.steps += 1
        self.rows += self.batches.rows_in(self.state.global_step - 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the training speed; the first worker writes every record to the log at once."""
        if "loss" in logs:
            self._check_loss(logs["loss"])
            busy = max(self.busy, 1e-9)
            logs |= {
                "samples_per_second": self.rows / busy, "steps_per_second": self.steps / busy,
                "tokens_per_second": float(self.tokens) / busy,
            }  # fmt: skip
            self.busy, self.steps, self.rows, self.tokens = 0.0, 0, 0, 0
            self.last = {"loss": logs["loss"]}
        elif "eval_loss" not in logs:  # the Trainer's summary, which covers only the part since the run was resumed
            return
        logs["seconds"] = self.seconds_before + time.monotonic() - self.started
        super().log(logs, start_time)
        if self.batches.rank == 0:
            record = as_record(self.state.log_history[-1])
            with writing_run(Path(self.plan.run)):
                self.write(record)
            self.report({"record": record})

    def _check_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is no longer a number at step {self.state.global_step}: the steps are too large for this "
                f"model; give a smaller --learning-rate than {self.plan.settings.learning_rate:g}"
            )

    def write(self, record: dict[str, Any]) -> None:
        """Append a record to the log, and to the TensorBoard events if there are any."""
        with open(Path(self.plan.run) / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in record.items() if self.events is not None else ():
            if name != "step":
                shown = f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
                self.events.add_scalar(shown, value, record["step"])

    def begin_log(self, history: list[dict[str, Any]]) -> None:
        """Start the log with the records up to the checkpoint; later steps are trained and logged again."""
        run = Path(self.plan.run)
        (run / METRICS).unlink(missing_ok=True)
        remove_files(run, (EVENTS,))
        if self.plan.settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.events = SummaryWriter(str(run / EVENTS))
        for record in history:
            self.write(as_record(record))

    # --- checkpoints ---
    def save_due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        wait = max(MIN_SECONDS_BETWEEN_CHECKPOINTS, MIN_TRAINING_PER_SAVING * self.saving)
        return time.monotonic() - self.saved > wait

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        if not all(bool(torch.isfinite(parameter).all()) for parameter in trained):
            self._check_loss(math.nan)  # raises, before the last good checkpoint is replaced
        begun = time.monotonic()
        place = Path(self.plan.run) / CHECKPOINTS / f"checkpoint-{self.state.global_step}"
        with writing_run(Path(self.plan.run)):
            super()._save_checkpoint(model, trial)
            if self.batches.rank == 0:
                complete(place)
        if self.batches.rank == 0:
            for other in checkpoints(place.parent):
                if other != place:
                    remove(other)
        self.saved = time.monotonic()
        self.saving = self.saved - begun

    def _save_rng_state(self, output_dir: str) -> None:
        """Nothing to save: random numbers are seeded by step."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Nothing to load, see `_save_rng_state`."""

    def train_from(self, checkpoint: Path | None) -> bool:
        """Train, from a checkpoint if there is one. Returns whether training finished (False: it was paused)."""
        history = []
        if checkpoint is not None:
            history = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
        self.seconds_before = max((record.get("seconds", 0.0) for record in history), default=0.0)
        if self.batches.rank == 0:
            self.begin_log(history)
        self.args.eval_on_start = checkpoint is None
        self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if self.events is not None:
            self.events.close()
        return not self.step_control.paused


def arguments(plan: FinetunePlan, cpu: bool) -> TrainingArguments:
    settings = plan.settings
    return TrainingArguments(
        output_dir=str(Path(plan.run) / CHECKPOINTS), num_train_epochs=settings.epochs,
        per_device_train_batch_size=-(-settings.batch_size // settings.workers), learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        warmup_steps=int(settings.warmup * plan.steps), weight_decay=settings.weight_decay,
        adam_epsilon=ADAM_EPSILON, seed=settings.seed, use_cpu=cpu, logging_steps=plan.log_every,
        logging_first_step=True, logging_nan_inf_filter=False, eval_strategy="steps", eval_steps=plan.eval_every,
        save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
        remove_unused_columns=False, average_tokens_across_devices=True, ddp_find_unused_parameters=False,
        ddp_timeout=int(settings.timeout), log_level="error", log_level_replica="error",
    )  # fmt: skip


def losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum of the losses of all tokens, and their number."""
    targets = labels[:, 1:].reshape(-1)
    flat = logits[:, :-1].reshape(len(targets), -1).float()
    each = torch.nn.functional.cross_entropy(flat, targets, ignore_index=IGNORED, reduction="none")
    return torch.tensor([float(each.cpu().double().sum()), float((targets != IGNORED).sum())], dtype=torch.float64)


def as_record(record: dict[str, Any]) -> dict[str, float | None]:
    """A record for the log: the step first, then numbers; those that are not finite become null."""
    numbers = {name: float(value) for name, value in record.items() if name not in ("step", "total_flos")}
    finite = plain(numbers)
    return {"step": int(record["step"]), **finite}

"""The Trainer of transformers with four things changed, so that runs can be compared, ended and gone on with:

- batches are drawn for all workers together and then shared out: any number of workers sees the same ones;
- the test loss is a mean over all tokens, however they were shared out (the Trainer takes means of means);
- random numbers (dropout) belong to a step, so a run that goes on draws what it would have drawn;
- a checkpoint counts when it is complete, and the one before is deleted only then.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from shoal.errors import UserError
from shoal.finetune.checkpoints import cannot_write, checkpoints, complete
from shoal.finetune.place import CHECKPOINTS, EVENTS, METRICS
from shoal.finetune.plan import Plan
from shoal.finetune.tokens import IGNORED, Tokens, batch
from shoal.json_values import plain

SAVE_AFTER = 60.0  # seconds between two checkpoints, or longer where saving is slow:
SAVE_SHARE = 20  # it may take a 20th of the time
# Of Adam. Some weights have no effect at all (biases of keys in attention), so their gradients are rounding errors;
# with the usual 1e-8 Adam makes full steps of them, different ones for each number of workers.
EPSILON = 1e-6
Tell = Callable[[dict[str, Any]], None]


class Order(Sampler[list[int]]):
    """Rows of each batch of an epoch, as far as they are this worker's: every size-th of a batch drawn for all."""

    def __init__(self, rows: int, batch_size: int, seed: int, rank: int, size: int) -> None:
        self.rows, self.batch_size, self.seed, self.rank, self.size = rows, batch_size, seed, rank, size
        self.epoch = 0

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(key(self.seed, self.epoch))
        drawn: list[int] = torch.randperm(self.rows, generator=generator).tolist()
        for start in range(0, self.rows, self.batch_size):
            yield drawn[start : start + self.batch_size][self.rank :: self.size]

    def rows_in(self, step: int) -> int:
        """Of the whole batch of a step, over all workers."""
        place = step % len(self)
        return min(self.batch_size, self.rows - place * self.batch_size)


def key(seed: int, *parts: int) -> int:
    """One number from several, far from those of its neighbours."""
    import hashlib

    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return int.from_bytes(digest[:7], "little")


class StepControl(TrainerCallback):
    """When to save and when to end. All workers agree in every step: none saves or ends alone."""

    def __init__(self, trainer: FineTuner, wanted: Callable[[], bool], tell: Tell) -> None:
        self.trainer, self.wanted, self.tell = trainer, wanted, tell
        self.paused = False

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.order.epoch = state.global_step // len(self.trainer.order)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.begun = time.monotonic()
        torch.manual_seed(key(self.trainer.plan.settings.seed, state.global_step, self.trainer.order.rank))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer, every = self.trainer, self.trainer.plan.settings.save_every
        trainer.count_step()
        last = state.global_step >= state.max_steps
        due = state.global_step % every == 0 if every else trainer.late() and trainer.order.rank == 0  # who saves
        pause, save = trainer.agree(self.wanted(), due)
        if pause and not last:
            control.should_training_stop = self.paused = True
        control.should_save = (save or pause) and not last
        control.should_log = control.should_log or last
        self.tell({"share": state.global_step / state.max_steps, **trainer.last})


class FineTuner(Trainer):
    """One worker's Trainer."""

    def __init__(self, plan: Plan, model: Any, sets: tuple[Tokens, Tokens], rank: int, padding: int,
                 wanted: Callable[[], bool], tell: Tell, cpu: bool) -> None:  # fmt: skip
        self.plan, self.tell = plan, tell
        self.train_tokens, self.test_tokens = sets
        settings = plan.settings
        self.order = Order(len(self.train_tokens), settings.batch_size, settings.seed, rank, settings.workers)
        self.padding = padding
        self.begun = self.saved = time.monotonic()
        self.saving = self.busy = 0.0
        self.steps = self.rows = 0
        self.tokens: Any = 0
        self.before = 0.0  # seconds of earlier sittings
        self.started = time.monotonic()
        self.last: dict[str, float] = {}
        self.events: Any = None  # for TensorBoard
        super().__init__(model=model, args=arguments(plan, cpu), eval_dataset=self.test_tokens)
        self.remove_callback(PrinterCallback)
        self.step_control = StepControl(self, wanted, tell)
        self.add_callback(self.step_control)

    # --- data ---
    def get_train_dataloader(self) -> DataLoader[Any]:
        padding, tokens = self.padding, self.train_tokens
        indices = range(len(tokens))
        return DataLoader(
            indices,  # type: ignore[arg-type]
            batch_sampler=self.order,
            collate_fn=lambda rows: batch([tokens[row] for row in rows], padding),
        )

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        if num_items_in_batch is not None:  # of all workers; some models do not let it be counted
            self.tokens = self.tokens + num_items_in_batch
        return super().training_step(model, inputs, num_items_in_batch)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The mean loss over all tokens of the test rows; each worker takes its share of the batches."""
        started = time.monotonic()
        size = self.plan.settings.batch_size
        rows = sorted(range(len(self.test_tokens)), key=lambda row: len(self.test_tokens[row]))
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        total = torch.zeros(2, dtype=torch.float64)
        model: Any = self.model
        model.eval()
        with torch.no_grad():
            for part in batches[self.order.rank :: self.order.size]:
                inputs = self._prepare_inputs(batch([self.test_tokens[row] for row in part], self.padding))
                labels = inputs.pop("labels")
                total += losses(model(**inputs).logits, labels)
        self.sum(total)
        self._refuse_nonsense(float(total[0]))
        seconds = time.monotonic() - started
        metrics = {
            "eval_loss": float(total[0] / total[1]), "eval_runtime": seconds,
            "eval_samples_per_second": len(rows) / seconds, "eval_steps_per_second": len(batches) / seconds,
        }  # fmt: skip
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # --- workers ---
    def sum(self, vector: torch.Tensor, largest: bool = False) -> None:
        """Over all workers, in place."""
        if self.order.size > 1:
            import torch.distributed as dist

            dist.all_reduce(vector, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)

    def agree(self, *wishes: bool) -> list[bool]:
        """What at least one worker wants, all do."""
        told = torch.tensor(wishes, dtype=torch.uint8)
        self.sum(told, largest=True)
        return [bool(wish) for wish in told.tolist()]

    # --- records ---
    def count_step(self) -> None:
        self.busy += time.monotonic() - self.begun
        self.steps += 1
        self.rows += self.order.rows_in(self.state.global_step - 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add how fast it went; the first worker writes every record down at once."""
        if "loss" in logs:
            self._refuse_nonsense(logs["loss"])
            busy = max(self.busy, 1e-9)
            logs |= {
                "samples_per_second": self.rows / busy, "steps_per_second": self.steps / busy,
                "tokens_per_second": float(self.tokens) / busy,
            }  # fmt: skip
            self.busy, self.steps, self.rows, self.tokens = 0.0, 0, 0, 0
            self.last = {"loss": logs["loss"]}
        elif "eval_loss" not in logs:  # a summary of this sitting, which says nothing of the run
            return
        logs["seconds"] = self.before + time.monotonic() - self.started
        super().log(logs, start_time)
        if self.order.rank == 0:
            record = tidy(self.state.log_history[-1])
            try:
                self.write(record)
            except OSError as error:
                raise cannot_write(Path(self.plan.run), error) from None
            if "eval_loss" in record:
                self.tell({"record": record})

    def _refuse_nonsense(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is no longer a number at step {self.state.global_step}: the steps are too large for this "
                f"model; give a smaller --learning-rate than {self.plan.settings.learning_rate:g}"
            )

    def write(self, record: dict[str, Any]) -> None:
        """Into the log, and for TensorBoard where that is wanted."""
        with open(Path(self.plan.run) / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in record.items() if self.events is not None else ():
            if name != "step":
                shown = f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
                self.events.add_scalar(shown, value, record["step"])

    def begin_log(self, history: list[dict[str, Any]]) -> None:
        """As it was at the checkpoint that the run goes on from: what came after it will come again."""
        run = Path(self.plan.run)
        (run / METRICS).unlink(missing_ok=True)
        shutil.rmtree(run / EVENTS, ignore_errors=True)
        if self.plan.settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.events = SummaryWriter(str(run / EVENTS))
        for record in history:
            self.write(tidy(record))

    # --- checkpoints ---
    def late(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self.saved > max(SAVE_AFTER, SAVE_SHARE * self.saving)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        if not all(bool(torch.isfinite(parameter).all()) for parameter in trained):
            self._refuse_nonsense(math.nan)  # before the last good checkpoint is replaced
        begun = time.monotonic()
        place = Path(self.plan.run) / CHECKPOINTS / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            if self.order.rank == 0:
                complete(place)
        except Exception as error:
            raise cannot_write(place.parent, error) from None
        if self.order.rank == 0:
            for other in checkpoints(place.parent):
                if other != place:
                    shutil.rmtree(other, ignore_errors=True)
        self.saved = time.monotonic()
        self.saving = self.saved - begun

    def _save_rng_state(self, output_dir: str) -> None:
        """Random numbers belong to steps: there is no state to save."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Nor to load."""

    def go_on(self, checkpoint: Path | None) -> bool:
        """Train, from a checkpoint if there is one; whether it came to its end."""
        history = []
        if checkpoint is not None:
            history = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
        self.before = max((record.get("seconds", 0.0) for record in history), default=0.0)
        if self.order.rank == 0:
            self.begin_log(history)
        self.args.eval_on_start = checkpoint is None
        self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if self.events is not None:
            self.events.close()
        return not self.step_control.paused


def arguments(plan: Plan, cpu: bool) -> TrainingArguments:
    settings = plan.settings
    return TrainingArguments(
        output_dir=str(Path(plan.run) / CHECKPOINTS), num_train_epochs=settings.epochs,
        per_device_train_batch_size=-(-settings.batch_size // settings.workers), learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        warmup_steps=int(settings.warmup * plan.steps), weight_decay=settings.weight_decay,
        adam_epsilon=EPSILON, seed=settings.seed, use_cpu=cpu, logging_steps=plan.log_every, logging_first_step=True,
        logging_nan_inf_filter=False, eval_strategy="steps", eval_steps=plan.eval_every, save_strategy="no",
        report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
        remove_unused_columns=False, average_tokens_across_devices=True, ddp_find_unused_parameters=False,
        ddp_timeout=int(settings.timeout), log_level="error", log_level_replica="error",
    )  # fmt: skip


def losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum of the losses of all tokens, and how many there are."""
    wanted = labels[:, 1:].reshape(-1)
    flat = logits[:, :-1].reshape(len(wanted), -1).float()
    each = torch.nn.functional.cross_entropy(flat, wanted, ignore_index=IGNORED, reduction="none")
    return torch.tensor([float(each.cpu().double().sum()), float((wanted != IGNORED).sum())], dtype=torch.float64)


def tidy(record: dict[str, Any]) -> dict[str, float | None]:
    """A record for people: the step first, everything a number; what is none becomes null."""
    numbers = {name: float(value) for name, value in record.items() if name not in ("step", "total_flos")}
    finite = plain(numbers)
    return {"step": int(record["step"]), **finite}

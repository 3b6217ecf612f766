"""The program of one fine-tuning worker: `python -m shoal.finetune.rank FOLDER`, started by the launcher."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.files import atomic
from shoal.finetune import models, tokens
from shoal.finetune.checkpoints import complete, damaged_files, is_complete, last_checkpoint, writing_run
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.plan import RESULT, TEXTS, FinetunePlan, job_of
from shoal.parallel.events import SECONDS_BETWEEN_PROGRESS
from shoal.parallel.launch.rank import join_group, main
from shoal.runs.folder import remove_files
from shoal.runs.kinds import CHECKPOINTS, MODEL, START


def work(folder: Path, rank: int, heartbeat: Any) -> None:
    """All workers train; the first one also prepares the tokens, generates samples and saves the model."""
    plan = FinetunePlan.read(folder)
    models.silence_libraries()
    group = None
    if plan.settings.workers > 1:
        _set_torchrun_variables(rank, plan.settings.workers)
        group = join_group(job_of(plan.settings), rank)
    if rank == 0:
        heartbeat.send("progress", facts=_read_texts(plan, folder))
    if group is not None:
        group.gather_objects(None)
    trainer, tokenizer = _prepare(plan, folder, rank, heartbeat)
    if rank == 0:
        from shoal.finetune.samples import SampleWriter

        samples = SampleWriter(plan, folder, trainer, tokenizer)
        samples.write("before")
        trainer.add_callback(samples)
    finished = trainer.train_from(last_checkpoint(Path(plan.run)))
    if rank == 0:
        if finished:
            samples.write("after")
            _save(plan, trainer, tokenizer)
        result = {"finished": finished, "step": trainer.state.global_step}
        (folder / RESULT).write_text(json.dumps(result), encoding="utf-8")
    if group is not None:
        group.close()


def _read_texts(plan: FinetunePlan, folder: Path) -> dict[str, dict[str, Any]]:
    """Write the tokens of all texts to a file for all workers, and make the tiny model if --model names it.

    Returns facts about the data and the run for the settings file.
    """
    settings, start = plan.settings, Path(plan.start)
    texts = json.loads((folder / TEXTS).read_text(encoding="utf-8"))
    if settings.model == models.TINY and (not is_complete(start) or damaged_files(start)):
        _make_tiny(Path(plan.run), texts["train"], settings.context or models.TINY_CONTEXT, settings.seed)
    tokenizer, config = models.load_tokenizer(start), models.load_config(start)
    longest = models.longest_context(config, tokenizer)
    if settings.context is not None and settings.context > longest:
        raise UserError(f"--context must be at most {longest:,} tokens for this model; got {settings.context:,}")
    if len(tokenizer) > config.vocab_size:
        raise UserError(f"the tokenizer in {start} has {len(tokenizer):,} tokens, the model {config.vocab_size:,}")
    context = settings.context or longest
    train, test = (tokens.encode(texts[name], tokenizer, context) for name in ("train", "test"))
    tokens.write(folder, train, test)
    about = {"tokens": len(train.ids) + len(test.ids), "cut": train.cut + test.cut}
    return {"data": about, "run": {"context": context, "parameters": models.count_parameters(start)}}


def _make_tiny(run: Path, texts: list[str], context: int, seed: int) -> None:
    """Make the tiny model, in the place of one that is half written or damaged: the same texts give the same one."""
    start = run / START
    stays = remove_files(run, (START,)).stays
    if stays:
        raise UserError(f"{start} holds other things than a model of Shoal's ({next(iter(stays))}): move that away")
    with writing_run(run):
        models.make_tiny(start, texts, context, seed)
        complete(start)


def _set_torchrun_variables(rank: int, size: int) -> None:
    """Set the variables that torchrun sets: the Trainer's library accelerate reads rank and size from them."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ["SHOAL_STORE"].rpartition(":")[2],
    }  # fmt: skip


def _prepare(plan: FinetunePlan, folder: Path, rank: int, heartbeat: Any) -> tuple[Any, Any]:
    """The trainer and the tokenizer of this worker."""
    import torch

    from shoal.finetune.trainer import FineTuner
    from shoal.parallel.data.loader import find_device

    settings = plan.settings
    device = find_device(settings.device, rank)
    tokenizer = models.load_tokenizer(Path(plan.start))
    torch.manual_seed(settings.seed)
    model = models.load_model(Path(plan.start), settings.dropout)
    if settings.lora:
        model = with_lora(model, settings)
    counts = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    send = _limited(heartbeat)
    if rank == 0:
        about = {"trained": sum(counts), "device": device.type, "threads": torch.get_num_threads()}
        heartbeat.send("progress", facts={"run": about})
    trainer = FineTuner(plan, model, tokens.read(folder), rank, tokenizer.eos_token_id, heartbeat.paused.is_set,
                        send if rank == 0 else lambda content: None, cpu=device.type == "cpu")  # fmt: skip
    return trainer, tokenizer


def _limited(heartbeat: Any) -> Callable[[dict[str, Any]], None]:
    """Sends all records and notes to the launcher, but not every step."""
    last = 0.0

    def send(content: dict[str, Any]) -> None:
        nonlocal last
        if "record" in content or "note" in content or time.monotonic() - last > SECONDS_BETWEEN_PROGRESS:
            last = time.monotonic()
            heartbeat.send("progress", **content)

    return send


def with_lora(model: Any, settings: FinetuneOptions) -> Any:
    """The model with LoRA: small added matrices are trained, the model's own weights are frozen."""
    from peft import LoraConfig, get_peft_model

    conv = any(type(part).__name__ == "Conv1D" for part in model.modules())  # GPT-2 stores its weights transposed
    config = LoraConfig(
        task_type="CAUSAL_LM", r=settings.lora, lora_alpha=2 * settings.lora, lora_dropout=settings.dropout or 0.0,
        target_modules="all-linear", fan_in_fan_out=conv,
    )  # fmt: skip
    return get_peft_model(model, config)


def _save(plan: FinetunePlan, trainer: Any, tokenizer: Any) -> None:
    """Save the model under a temporary name, rename it when it is complete, then delete the checkpoints."""
    run = Path(plan.run)
    model = trainer.model.merge_and_unload() if plan.settings.lora else trainer.model
    with writing_run(run), atomic.new_folder(run / MODEL) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    remove_files(run, (CHECKPOINTS,))


if __name__ == "__main__":
    main(Path(sys.argv[1]), work)

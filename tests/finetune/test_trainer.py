"""The trainer against plain PyTorch, its checkpoints and log, in this process; full disks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.disks import small_disk
from support.finetune import ROWS, worker

from shoal.finetune import checkpoints, models, tokens
from shoal.finetune.folder import read_log
from shoal.finetune.options import FinetuneOptions
from shoal.runs.kinds import METRICS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


# ---- the trainer ----


def plain_steps(start: Path, settings: FinetuneOptions, count: int) -> tuple[dict[str, np.ndarray], list[float]]:
    """The same training by hand: AdamW, warm-up and linear decay, gradients cut at a norm of 1."""
    model, tokenizer = models.load_model(start), models.load_tokenizer(start)
    data = tokens.encode(ROWS[:14], tokenizer, 48)
    decayed = [p for n, p in model.named_parameters() if not n.endswith("bias") and "ln_" not in n]
    others = [p for n, p in model.named_parameters() if n.endswith("bias") or "ln_" in n]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1.0, eps=1e-6
    )
    from shoal.finetune.trainer import WorkerBatches

    order, losses = WorkerBatches(14, 5, settings.seed, 0, 1), []
    for step in range(count):
        order.epoch = step // len(order)
        rows = list(order)[step % len(order)]
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * (step / 2 if step < 2 else (count - step) / (count - 2))
        total, number = 0.0, 0
        for row in rows:  # one text at a time, without padding
            ids = torch.from_numpy(data[row])[None]
            logits = model(input_ids=ids).logits[0, :-1]
            total = total + torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
            number += ids.shape[1] - 1
        loss = total / number
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return {name: value.numpy() for name, value in model.state_dict().items()}, losses


def test_it_trains_as_plain_pytorch_does(tmp_path, tiny):
    line = worker(tmp_path / "run", tiny, warmup=0.34)
    expected, losses = plain_steps(tiny, FinetuneOptions(learning_rate=3e-3), 6)
    got = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name in got:
        assert np.linalg.norm(got[name] - expected[name]) <= 1e-5 * np.linalg.norm(expected[name]), name
    records = read_log(tmp_path / "run")
    assert [record["loss"] for record in records if "loss" in record] == pytest.approx(losses, rel=1e-5)
    assert line.told[0]["facts"]["run"]["context"] == 48


def test_the_test_loss_is_a_mean_over_tokens(tmp_path, tiny):
    worker(tmp_path / "run", tiny)
    model = models.load_model(tmp_path / "run" / "model").eval()
    data = tokens.encode(ROWS[14:], models.load_tokenizer(tiny), 48)
    total, count = 0.0, 0
    for row in range(len(data)):
        ids = torch.from_numpy(data[row])[None]
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
        count += ids.shape[1] - 1
    assert read_log(tmp_path / "run")[-1]["eval_loss"] == pytest.approx(total / count, rel=1e-6)


def test_a_resumed_run_draws_the_same_dropout(tmp_path, tiny):
    worker(tmp_path / "whole", tiny, dropout=0.3)
    worker(tmp_path / "parts", tiny, dropout=0.3, save_every=99)
    assert checkpoints.last_checkpoint(tmp_path / "parts").name == "checkpoint-1"
    assert not (tmp_path / "parts" / "model").exists()
    damaged = tmp_path / "parts" / "checkpoints" / "checkpoint-3"
    damaged.mkdir()  # as a process leaves it that is killed while it saves
    (damaged / "model.safetensors").write_bytes(b"half")
    worker(tmp_path / "parts", tiny, dropout=0.3)
    whole, parts = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "parts"))
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name])
    plain = read_log(tmp_path / "whole")
    assert [record.get("loss") for record in plain] == [r.get("loss") for r in read_log(tmp_path / "parts")]
    worker(tmp_path / "none", tiny, dropout=0.0)
    assert plain[1]["loss"] != read_log(tmp_path / "none")[1]["loss"], "there was dropout"


def test_lora_trains_little_and_saves_a_whole_model(tmp_path, tiny):
    pytest.importorskip("peft")
    line = worker(tmp_path / "run", tiny, lora=4)
    trained = next(
        told["facts"]["run"]["trained"] for told in line.told if "trained" in told.get("facts", {}).get("run", {})
    )
    assert 0 < trained < models.count_parameters(tiny) / 5
    before = load_file(tiny / "model.safetensors")
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed, "what was learned is in the saved model"
    assert all("c_" in name for name in changed), "and only matrices were trained"
    records = read_log(tmp_path / "run")
    assert records[-1]["eval_loss"] < records[0]["eval_loss"]


def test_a_loss_that_is_not_finite_ends_the_run_with_a_remedy(tmp_path, tiny):
    with pytest.raises(ValueError, match=r"no longer a number at step \d+.*smaller --learning-rate than 1e\+06"):
        worker(tmp_path / "run", tiny, learning_rate=1e6, epochs=30, warmup=0.0)
    with pytest.raises(ValueError, match=r"no longer a number at step \d+"):  # found by the test at the end
        worker(tmp_path / "unseen", tiny, learning_rate=9e6, epochs=30, warmup=0.0, log_every=1000, eval_every=1000)
    assert not (tmp_path / "unseen" / "model").exists()
    assert checkpoints.last_checkpoint(tmp_path / "unseen") is None


def test_weights_that_are_not_finite_do_not_replace_the_last_good_checkpoint(tmp_path, tiny):
    """NaN weights in a step without a record: no loss is checked before the checkpoint is due."""
    rare = {"log_every": 1000, "eval_every": 1000}
    worker(tmp_path / "run", tiny, save_every=99, **rare)  # pauses after its first step
    earlier = checkpoints.last_checkpoint(tmp_path / "run")
    weights = load_file(earlier / "model.safetensors")
    weights["transformer.wte.weight"][0, 0] = np.nan
    save_file(weights, earlier / "model.safetensors", {"format": "pt"})
    checkpoints.complete(earlier)
    with pytest.raises(ValueError, match=r"no longer a number at step 2"):
        worker(tmp_path / "run", tiny, save_every=2, **rare)
    assert checkpoints.last_checkpoint(tmp_path / "run") == earlier


def test_one_step_is_not_lost_to_the_warm_up(tmp_path, tiny):
    worker(tmp_path / "run", tiny, epochs=1, batch_size=20)
    assert [record["learning_rate"] for record in read_log(tmp_path / "run") if "loss" in record] == [3e-3]


def test_the_last_step_is_always_recorded(tmp_path, tiny):
    worker(tmp_path / "run", tiny, log_every=4)
    assert [record["step"] for record in read_log(tmp_path / "run") if "loss" in record] == [1, 4, 6]


def test_without_a_checkpoint_the_log_starts_empty(tmp_path, tiny):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / METRICS).write_text('{"step": 0, "eval_loss": 9.0}\n{"step": 1, "lo')
    worker(tmp_path / "run", tiny)
    assert [record["step"] for record in read_log(tmp_path / "run")] == [
        0,
        *(s for s in range(1, 7) for _ in "ab"),
    ]


def test_samples_continue_their_own_prompts_in_a_small_context(tiny):
    from shoal.finetune.generating import continue_text

    model, tokenizer = models.load_model(tiny), models.load_tokenizer(tiny)
    looked_at = []
    model.generate = lambda input_ids, **_: looked_at.append(input_ids) or input_ids
    for prompt in ("one two three", "four five six " * 40):
        continue_text(model, tokenizer, prompt, 120, 64)
    assert tokenizer.decode(looked_at[0][0]) == "one two three"
    assert len(looked_at[1][0]) == 48, "a quarter is left to write"


class SlowWriter:
    """What `SampleWriter` needs, and a clock that each text moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        from shoal.finetune import samples as module

        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.models, "longest_context", lambda *_: 64)
        monkeypatch.setattr(module, "continue_text", lambda *given: self.text(seconds * given[3]))
        (folder / "texts.json").write_text('{"prompts": [{"prompt": "one"}, {"prompt": "two"}]}', encoding="utf-8")
        (folder / "samples.json").unlink(missing_ok=True)
        self.folder = folder
        trainer = SimpleNamespace(model=SimpleNamespace(config=None))
        self.samples = module.SampleWriter(SimpleNamespace(run=folder), folder, trainer, None)

    def text(self, seconds: float) -> str:
        self.now += seconds
        return f"text at {self.now:g}"

    def steps(self, steps: range, each: float) -> list[int]:
        """Those after which a text was written, in the file."""
        for step in steps:
            self.now += each
            self.samples.on_evaluate(None, SimpleNamespace(global_step=step, max_steps=1000), None)
        first, second = json.loads((self.folder / "samples.json").read_text(encoding="utf-8"))
        assert set(second) == {"prompt", "before"}
        return [one["step"] for one in first.get("meanwhile", [])]


def test_texts_are_written_meanwhile_as_long_as_they_take_next_to_no_time(tmp_path, monkeypatch):
    quick = SlowWriter(tmp_path, monkeypatch, seconds=1e-4)
    quick.samples.write("before")
    assert quick.steps(range(0, 51, 10), each=10.0) == [10, 20, 30, 40, 50]
    assert quick.steps(range(30, 41, 10), each=10.0) == [10, 20, 30, 40], "a resumed run writes them again"
    assert len(quick.steps(range(41, 200), each=10.0)) == 40, "not more than that"
    assert 1000 not in quick.steps(range(1000, 1001), each=10.0), "after training is another one"
    slow = SlowWriter(tmp_path, monkeypatch, seconds=1.0)
    slow.samples.write("before")
    found = slow.steps(range(1, 101), each=60.0)
    assert 1 <= len(found) <= 3
    assert found[0] >= 30, "60 s are next to no time of 2,000 s"


def test_an_incomplete_checkpoint_is_ignored(tmp_path, tiny):
    worker(tmp_path / "run", tiny, save_every=99)
    checkpoint = checkpoints.last_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    (checkpoint / "optimizer.pt").write_bytes(b"")
    assert checkpoints.last_checkpoint(tmp_path / "run") is None


@pytest.mark.parametrize("seed", range(5))
def test_one_flipped_bit_in_a_checkpoint_is_noticed(tmp_path, seed):
    draws, place = np.random.default_rng(seed), tmp_path / "checkpoints" / "checkpoint-3"
    place.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
        (place / name).write_bytes(draws.bytes(5000))
    checkpoints.complete(place)
    assert checkpoints.last_checkpoint(tmp_path) == place
    file = place / str(draws.choice(["model.safetensors", "optimizer.pt", "trainer_state.json"]))
    content = bytearray(file.read_bytes())
    content[draws.integers(5000)] ^= 1 << draws.integers(8)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file.name} is damaged \(its checksum differs\).*or delete .*checkpoint-3"):
        checkpoints.last_checkpoint(tmp_path)


def test_an_incomplete_last_line_of_the_log_is_ignored(tmp_path):
    (tmp_path / METRICS).write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert read_log(tmp_path) == [{"step": 1, "loss": 2.0}]


# ---- disk space ----


@pytest.fixture
def full_soon(tmp_path: Path) -> Any:
    """A file system of 3 MB."""
    with small_disk(tmp_path / "disk", "size=3m") as folder:
        yield folder


def test_too_little_disk_space_is_reported_before_training(full_soon):
    with pytest.raises(OSError, match=r"needs about 15.* in .*run .*the model and two checkpoints.*free"):
        checkpoints.check_space(full_soon / "run", 500_000, 0)
    checkpoints.check_space(full_soon / "run", 10_000, 0)


def test_a_disk_that_fills_up_gives_an_error_of_one_sentence(full_soon, tiny):
    words = (
        r"the run cannot be written to .*run: No space left on device; make room in .*, and run the same command again"
    )
    with pytest.raises(OSError, match=words) as caught:
        worker(full_soon / "run", tiny, save_every=2)
    assert "\n" not in str(caught.value)

"""The parts of fine-tuning: texts, batches, the trainer against plain PyTorch, models that are none, bad input."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from safetensors.numpy import load_file
from test_finetune import problems

from shoal.finetune import checkpoints, models, place, rank, session, texts, tokens
from shoal.finetune.settings import Settings, make_plan

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


call = commands.call  # pytest finds fixtures by their names here
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
ROWS = [f"statement:\n{row['statement'][:60]}\n\nsolution:\n{row['solution'][:60]}" for row in problems()[:17]]


class Line:
    """Where a worker says how it goes; nobody listens."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.paused = threading.Event()

    def tell(self, kind: str, **content: Any) -> None:
        self.told.append(content)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model to begin with. Two test processes on two cores would only be in each other's way with more threads."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rank.quiet()
    models.make_tiny(folder, ROWS, 64, seed=1)
    yield folder
    torch.set_num_threads(before)


def worker(run: Path, start: Path, **changes: Any) -> Line:
    """The whole program of one worker, in this process."""
    settings = Settings(**{"model": str(start), "epochs": 2, "batch_size": 5, "context": 48, "learning_rate": 3e-3,
                           "samples": 0, "device": "cpu", "columns": ("a", "b"), **changes})  # fmt: skip
    folder = run.parent / f"{run.name}-parcel"
    for path in (run, folder):
        path.mkdir(parents=True, exist_ok=True)
    make_plan(settings, run, start, 14).write(folder)
    (folder / rank.TEXTS).write_text(json.dumps({"train": ROWS[:14], "test": ROWS[14:], "prompts": []}))
    line = Line()
    if changes.get("save_every") == 99:  # stop as soon as there is something to save
        line.paused.set()
    rank.work(folder, 0, line)
    return line


# ---- texts ----


def write(path: Path, *rows: tuple[str, ...]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_blank_cells_and_repeated_rows_are_left_out_and_said(tmp_path):
    path = write(tmp_path / "a.csv", ("q", "n", "a"), ("one", "1", "  x = 1\n"), ("one", "2", "  x = 1\n"),
                 ("", "3", " "), ("two", "4", ""), ("none", "5", "NA"))  # fmt: skip
    found = texts.read(path, ["q,a"])
    assert found.rows == [("one", "  x = 1\n"), ("two", ""), ("none", "NA")], "blanks and words like none are kept"
    assert found.read == 5
    assert found.notes == [
        "1 row left out: all cells are empty",
        "1 row left out: the same text is there already",
        "1 row with an empty cell: that part is left out of the text",
    ]
    assert texts.prompt(["q", "hint", "a"], ["one", ""]) == "q:\none\n\na:\n", "as a text with that cell empty looks"
    assert [texts.join(found.columns, row) for row in found.rows[:2]] == ["q:\none\n\na:\n  x = 1\n", "q:\ntwo"]
    assert texts.read(path).columns == ("q", "n", "a")
    assert texts.read(path, ["-1"]).columns == ("a",)


def test_what_is_cut_is_counted(tiny):
    tokenizer = models.load_tokenizer(tiny)
    whole = tokens.encode(ROWS, tokenizer, 1000)
    lengths = [len(whole[row]) for row in range(len(ROWS))]
    cut = tokens.encode(ROWS, tokenizer, lengths[0])
    assert whole.cut == 0
    assert all(whole[row][-1] == tokenizer.eos_token_id for row in range(len(ROWS)))
    assert tokenizer.decode(whole[3][:-1], clean_up_tokenization_spaces=False) == ROWS[3]
    assert cut.cut == sum(length > lengths[0] for length in lengths) > 0
    assert max(len(cut[row]) for row in range(len(ROWS))) == lengths[0]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_workers_share_out_the_same_batches(size):
    from shoal.finetune.trainer import Order

    orders = [Order(11, 4, seed=3, rank=rank, size=size) for rank in range(size)]
    whole = list(Order(11, 4, seed=3, rank=0, size=1))
    shares = list(zip(*orders, strict=True))
    assert [sorted(chain(*parts)) for parts in shares] == [sorted(batch) for batch in whole]
    assert sorted(chain(*whole)) == list(range(11)), "every row once"
    assert [orders[0].rows_in(step) for step in range(4)] == [4, 4, 3, 4]
    orders[0].epoch = 1
    assert list(chain(*orders[0])) != list(chain(*(batch[::size] for batch in whole))), (
        "another order in the next epoch"
    )


def test_a_worker_without_rows_adds_nothing(tiny):
    model = models.load_model(tiny)
    inputs = tokens.batch([], padding=0)
    loss = model(**inputs, num_items_in_batch=torch.tensor(7)).loss
    loss.backward()
    assert float(loss.detach()) == 0
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


# ---- the trainer ----


def plain_steps(start: Path, settings: Settings, count: int) -> tuple[dict[str, np.ndarray], list[float]]:
    """The same training by hand: AdamW, warm-up and linear decay, gradients cut at a norm of 1."""
    model, tokenizer = models.load_model(start), models.load_tokenizer(start)
    data = tokens.encode(ROWS[:14], tokenizer, 48)
    decayed = [p for n, p in model.named_parameters() if not n.endswith("bias") and "ln_" not in n]
    others = [p for n, p in model.named_parameters() if n.endswith("bias") or "ln_" in n]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1.0, eps=1e-6
    )
    from shoal.finetune.trainer import Order

    order, losses = Order(14, 5, settings.seed, 0, 1), []
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
    expected, losses = plain_steps(tiny, Settings(learning_rate=3e-3), 6)
    got = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name in got:
        assert np.linalg.norm(got[name] - expected[name]) <= 1e-5 * np.linalg.norm(expected[name]), name
    records = session.records(tmp_path / "run")
    assert [record["loss"] for record in records if "loss" in record] == pytest.approx(losses, rel=1e-5)
    assert line.told[0]["begun"]["run"]["context"] == 48


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
    assert session.records(tmp_path / "run")[-1]["eval_loss"] == pytest.approx(total / count, rel=1e-6)


def test_a_run_that_goes_on_draws_the_dropout_it_would_have_drawn(tmp_path, tiny):
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
    plain = session.records(tmp_path / "whole")
    assert [record.get("loss") for record in plain] == [r.get("loss") for r in session.records(tmp_path / "parts")]
    worker(tmp_path / "none", tiny, dropout=0.0)
    assert plain[1]["loss"] != session.records(tmp_path / "none")[1]["loss"], "there was dropout"


def test_lora_trains_little_and_saves_a_whole_model(tmp_path, tiny):
    pytest.importorskip("peft")
    line = worker(tmp_path / "run", tiny, lora=4)
    trained = next(
        told["begun"]["run"]["trained"] for told in line.told if "trained" in told.get("begun", {}).get("run", {})
    )
    assert 0 < trained < models.count_parameters(tiny) / 5
    before = load_file(tiny / "model.safetensors")
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed, "what was learned is in the saved model"
    assert all("c_" in name for name in changed), "and only matrices were trained"
    records = session.records(tmp_path / "run")
    assert records[-1]["eval_loss"] < records[0]["eval_loss"]


def test_a_loss_that_is_no_number_ends_the_run_with_a_remedy(tmp_path, tiny):
    with pytest.raises(ValueError, match=r"no longer a number at step \d+.*smaller --learning-rate than 1e\+06"):
        worker(tmp_path / "run", tiny, learning_rate=1e6, epochs=30, warmup=0.0)
    with pytest.raises(ValueError, match=r"no longer a number at step \d+"):  # found by the test at the end
        worker(tmp_path / "unseen", tiny, learning_rate=9e6, epochs=30, warmup=0.0, log_every=1000, eval_every=1000)
    assert not (tmp_path / "unseen" / "model").exists()


def test_one_step_is_not_lost_to_the_warm_up(tmp_path, tiny):
    worker(tmp_path / "run", tiny, epochs=1, batch_size=20)
    assert [record["learning_rate"] for record in session.records(tmp_path / "run") if "loss" in record] == [3e-3]


def test_the_last_step_is_recorded_however_rare_records_are(tmp_path, tiny):
    worker(tmp_path / "run", tiny, log_every=4)
    assert [record["step"] for record in session.records(tmp_path / "run") if "loss" in record] == [1, 4, 6]


def test_without_a_checkpoint_the_log_begins_anew(tmp_path, tiny):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / place.METRICS).write_text('{"step": 0, "eval_loss": 9.0}\n{"step": 1, "lo')
    worker(tmp_path / "run", tiny)
    assert [record["step"] for record in session.records(tmp_path / "run")] == [
        0,
        *(s for s in range(1, 7) for _ in "ab"),
    ]


def test_samples_go_on_with_their_own_prompts_in_a_small_context(tiny):
    from shoal.finetune.writing import go_on

    model, tokenizer = models.load_model(tiny), models.load_tokenizer(tiny)
    looked_at = []
    model.generate = lambda input_ids, **_: looked_at.append(input_ids) or input_ids
    for prompt in ("one two three", "four five six " * 40):
        go_on(model, tokenizer, prompt, 120, 64)
    assert tokenizer.decode(looked_at[0][0]) == "one two three"
    assert len(looked_at[1][0]) == 48, "a quarter is left to write"


def test_a_checkpoint_that_is_cut_off_does_not_count(tmp_path, tiny):
    worker(tmp_path / "run", tiny, save_every=99)
    checkpoint = checkpoints.last_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    (checkpoint / "optimizer.pt").write_bytes(b"")
    assert checkpoints.last_checkpoint(tmp_path / "run") is None


def test_the_log_ends_at_a_line_that_was_cut_off(tmp_path):
    (tmp_path / place.METRICS).write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert session.records(tmp_path) == [{"step": 1, "loss": 2.0}]


# ---- room on the disk ----


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("only root can make a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_too_small_is_found_out_before(small_disk):
    with pytest.raises(OSError, match=r"needs about 15.* in .*run .*the model and two checkpoints.*free"):
        checkpoints.check_space(small_disk / "run", 500_000, 0)
    checkpoints.check_space(small_disk / "run", 10_000, 0)


def test_a_disk_that_fills_up_ends_the_run_in_one_sentence(small_disk, tiny):
    with pytest.raises(
        OSError, match=r"no space is left in .*checkpoints; make some, and the same command goes on"
    ) as caught:
        worker(small_disk / "run", tiny, save_every=2)
    assert "\n" not in str(caught.value)


# ---- models ----


def test_a_folder_that_is_no_model(tmp_path, tiny):
    def refused(folder: Path) -> str:
        with pytest.raises(ValueError, match="is no model") as caught:
            models.find(str(folder))
        return str(caught.value)

    (tmp_path / "notes").mkdir()
    assert refused(tmp_path / "notes").endswith("are missing; the folder is empty")
    (tmp_path / "notes" / "a.txt").write_text("a")
    assert "config.json, model.safetensors and tokenizer.json are missing; it holds a.txt" in refused(
        tmp_path / "notes"
    )
    (tmp_path / "notes" / "pytorch_model.bin").write_bytes(b"")
    assert "save them as safetensors" in refused(tmp_path / "notes")
    assert f"did you mean {tiny}" in refused(tiny.parent)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*tinny; did you mean 'tiny'"):
        models.find(str(tiny.parent / "tinny"))
    assert models.find(str(tiny)) == tiny


def test_models_that_cannot_be_read(tmp_path, tiny):
    shutil.copytree(tiny, tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="damaged or cut off"):
        models.count_parameters(tmp_path / "cut")
    (tmp_path / "cut" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the configuration of a model"):
        models.load_config(tmp_path / "cut")
    (tmp_path / "cut" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ValueError, match="of type 't5', which does not write text on its own"):
        models.load_config(tmp_path / "cut")
    (tmp_path / "cut" / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"the tokenizer in .* cannot be read"):
        models.load_tokenizer(tmp_path / "cut")


def test_names_on_the_hub_without_a_connection(tmp_path, tiny, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    lacking = "config.json, model.safetensors and tokenizer.json are missing from"
    with pytest.raises(FileNotFoundError, match=f"{lacking} {tmp_path}/models--some--gpt, and HF_HUB_OFFLINE is set"):
        models.find("some/gpt")
    snapshot = tmp_path / "models--some--gpt" / "snapshots" / ("a" * 40)
    shutil.copytree(tiny, snapshot)
    (tmp_path / "models--some--gpt" / "refs").mkdir()
    (tmp_path / "models--some--gpt" / "refs" / "main").write_text("a" * 40)
    assert models.find("some/gpt") == snapshot
    (snapshot / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=f"tokenizer.json is missing from {snapshot}"):
        models.find("some/gpt")


# ---- folders of runs ----


def test_a_run_goes_on_only_where_it_is_the_same_run(tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    marks = {"data": "x", "epochs": 3}
    assert place.choose(None, "a-tiny", marks) == (Path("shoal-runs/a-tiny-1"), False)
    for number in (1, 2, 10):
        folder = Path(f"shoal-runs/a-tiny-{number}")
        folder.mkdir(parents=True)
        checkpoints.write_json(folder / "settings.json", {"format": place.FORMAT, "version": 1, "fingerprint": marks})
    assert place.choose(None, "a-tiny", marks) == (Path("shoal-runs/a-tiny-10"), True)
    assert place.choose(None, "a-tiny", marks, fresh=True) == (Path("shoal-runs/a-tiny-3"), False)
    assert place.choose(None, "a-tiny", {**marks, "epochs": 4}) == (Path("shoal-runs/a-tiny-3"), False)
    Path("shoal-runs/a-tiny-10/model").mkdir()
    with place.opened(None, "a-tiny", marks) as second, place.opened(None, "a-tiny", marks) as first:
        assert (second, first) == ((Path("shoal-runs/a-tiny-2"), True), (Path("shoal-runs/a-tiny-1"), True))
        with place.opened(None, "a-tiny", marks) as third:
            assert third == (Path("shoal-runs/a-tiny-3"), False), "nobody works in a folder of another"
        with pytest.raises(ValueError, match="is in use by another process"), place.opened(second[0], "", marks):
            pass
    assert not Path("shoal-runs/a-tiny-3").exists()
    assert Path("shoal-runs/a-tiny-2/settings.json").exists(), "what was there before stays"
    with pytest.raises(ValueError, match="holds a finished run"):
        place.choose(Path("shoal-runs/a-tiny-10"), "", marks)
    with pytest.raises(ValueError, match=r"another run: epochs differs \(it was 3 and is now 4\)"):
        place.choose(Path("shoal-runs/a-tiny-1"), "", {**marks, "epochs": 4})
    with pytest.raises(ValueError, match="is not empty"):
        place.choose(Path("shoal-runs"), "", marks)


def test_fresh_begins_anew_in_the_folder_that_was_named(tmp_path):
    marks = {"data": "x"}
    out = tmp_path / "out"
    (out / "checkpoints").mkdir(parents=True)
    checkpoints.write_json(out / "settings.json", {"format": place.FORMAT, "version": 1, "fingerprint": {"data": "y"}})
    with place.opened(out, "", marks, fresh=True) as (path, resumes):
        assert (path, resumes) == (out, False)
        assert not (out / "checkpoints").exists()
        (out / place.METRICS).write_text("")
    assert out.is_dir()


def test_names_with_brackets_are_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with place.opened(None, "t[1]-tiny", {}) as (path, _):
        (path / place.METRICS).write_text("")
        checkpoints.write_json(path / "settings.json", {"format": place.FORMAT, "version": 1, "fingerprint": {}})
    assert place.choose(None, "t[1]-tiny", {}) == (path, True)


def test_a_folder_in_which_nothing_came_to_pass_goes_again(tmp_path):
    with place.opened(tmp_path / "runs" / "one", "", {}) as (path, _):
        (path / "settings.json").write_text("{}")
    assert not (tmp_path / "runs").exists()
    (tmp_path / "mine").mkdir()
    with place.opened(tmp_path / "mine", "", {}) as (path, _):
        (path / "start").mkdir()
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"], "what was there before stays"
    assert not any((tmp_path / "mine").iterdir())


def test_a_changed_model_is_another_run(tmp_path, tiny):
    shutil.copytree(tiny, tmp_path / "model")
    found = texts.Texts("a.csv", ("a",), [("x",), ("y",)], 2)
    marks = [session.fingerprint(Settings(model="model"), found, tmp_path / "model")]
    marks.append(session.fingerprint(Settings(model="model", workers=2, eval_every=3), found, tmp_path / "model"))
    assert marks[0] == marks[1], "who computes is not what is computed"
    config = (tmp_path / "model" / "config.json").read_text()
    (tmp_path / "model" / "config.json").write_text(config.replace("gelu_pytorch_tanh", "relu"))
    assert session.fingerprint(Settings(model="model"), found, tmp_path / "model") != marks[0]


# ---- bad input, on the command line ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.csv", "--columns", "q,anser"], "there is no column 'anser'; did you mean 'answer'?"),
        (["b.csv"], "there is no file b.csv; did you mean 'a.csv'?"),
        (["empty.csv"], "empty.csv is empty"),
        (["one.csv"], "has only one row with text; at least 2 are needed"),
        (["blank.csv"], "has no row with text"),
        ([], "give the file with texts"),
        (["a.csv", "--demo"], "--demo brings its own texts"),
        (["a.csv", "--schedule", "cosin"], "did you mean 'cosine'?"),
        (["a.csv", "--workers", "0"], "--workers must be a whole number of at least 1; got 0"),
        (["a.csv", "--test", "1"], "--test must be a share of at least 0 and below 1; got 1.0"),
        (["a.csv", "--device", "gpu"], "--device must be one of auto, cpu, cuda, mps; got 'gpu'"),
        (["a.csv", "--model", "empty.csv"], "empty.csv is a file"),
        (["a.csv", "--model", ""], "got an empty text"),
        (["a.csv", "--model", "tiny", "--out", "empty.csv"], "--out must be a new folder"),
    ],
)
def test_bad_input_ends_in_one_sentence(tmp_path, call, arguments, words):
    write(tmp_path / "a.csv", ("q", "answer"), ("one", "1"), ("two", "2"))
    write(tmp_path / "one.csv", ("q", "answer"), ("one", "1"))
    write(tmp_path / "blank.csv", ("q", "answer"), (" ", ""), ("", " "))
    (tmp_path / "empty.csv").touch()
    said = call(tmp_path, "finetune", *arguments, code=2)
    assert words in said.stderr
    assert said.stderr.count("\n") == 1
    assert not (tmp_path / "shoal-runs").exists()


def test_generate_refuses_before_it_loads(tmp_path, call, tiny):
    checkpoints.write_json(tmp_path / "settings.json", {
        "format": place.FORMAT, "version": 1, "fingerprint": {}, "settings": {"columns": ["q", "a"]}
    })  # fmt: skip
    said = call(tmp_path, "generate", ".", "text", code=2)
    assert "has not come to its end; give its shoal finetune command again" in said.stderr
    shutil.copytree(tiny, tmp_path / "model")
    assert "give at most 1 of them" in call(tmp_path, "generate", ".", "one", "two", code=2).stderr
    assert "would all be the same" in call(tmp_path, "generate", ".", "one", "--samples", 2, code=2).stderr
    assert "did you mean 'model'?" in call(tmp_path, "generate", "modle", "one", code=2).stderr


def test_generate_reads_standard_input_draws_by_its_seed_and_cuts_what_is_too_long(tmp_path, call, tiny, monkeypatch):
    import io

    flags = ("--temperature", 1.0, "--tokens", 12, "--samples", 2, "--device", "cpu")
    first = call(tmp_path, "generate", tiny, "数を足す", *flags).stdout
    monkeypatch.setattr("sys.stdin", io.StringIO("数を足す\n"))
    assert call(tmp_path, "generate", tiny, "-", *flags).stdout == first
    one, other = first.split("---\n")
    assert one != other
    assert call(tmp_path, "generate", tiny, "数を足す", *flags, "--seed", 9).stdout != first
    said = call(tmp_path, "generate", tiny, "word " * 100, "--tokens", 5)
    assert "the model looks at 64: its beginning is cut" in said.stderr


# ---- the screen and signals ----


def test_the_screen_shows_texts_as_they_are(capsys):
    from shoal.progress import Screen

    Screen(lambda record: None).say("a[i:key:j] = ':fish:' [bold]")
    assert capsys.readouterr().out == "a[i:key:j] = ':fish:' [bold]\n"


def test_sigterm_is_heard_where_ctrl_c_is_ignored():
    """As in a command that a script has put into the background."""
    from shoal.progress import interruptible

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupt.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupt.requested
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

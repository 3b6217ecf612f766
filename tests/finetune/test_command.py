"""The command `shoal finetune`: real runs, interrupted in several ways, and their models in `shoal generate`."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support.commands import run, start
from support.finetune import problems
from support.processes import children_of
from support.waiting import wait_until

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from safetensors.numpy import load_file

FOREIGN = [("Grüße auf Griechisch", 'print("Ελλάδα, Κύπρος €")'), ("数を足す", "合計 = 一 + 二  # naïve")]
SMALL = ("--columns", "statement,solution", "--model", "tiny", "--context", 64, "--batch-size", 6, "--epochs", 4,
         "--lr", 3e-3, "--threads", 1, "--samples", 1, "--eval-every", 10)  # fmt: skip
STEPS = 4 * 7  # 38 of 42 rows are trained on, in batches of 6, the last one of 2
FILES = {"metrics.jsonl", "model", "report.html", "samples.json", "settings.json", "start", "run.json", "live.jsonl"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some texts."""
    folder = tmp_path_factory.mktemp("finetune")
    with open(folder / "texts.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["statement", "solution"])
        writer.writerows([(row["statement"], row["solution"]) for row in problems()[:40]])
        writer.writerows(FOREIGN)
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    """An uninterrupted run with one worker."""
    said = run(place, "finetune", "texts.csv", *SMALL, "--out", "one", "--tensorboard")
    (place / "said.txt").write_text(said.stdout + said.stderr, encoding="utf-8")
    return place / "one"


@pytest.fixture(scope="module")
def shared_out(place: Path) -> Path:
    """An uninterrupted run with two workers."""
    run(place, "finetune", "texts.csv", *SMALL, "--workers", 2, "--out", "two")
    return place / "two"


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model" / "model.safetensors")


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def losses(folder: Path) -> list[tuple[int, str, float]]:
    return [(record["step"], name, record[name]) for record in log(folder) for name in ("loss", "eval_loss")
            if name in record]  # fmt: skip


def assert_same(first: Path, second: Path) -> None:
    """Assert that weights and logged losses are equal to the bit."""
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    assert losses(first) == losses(second)


def assert_close(first: Path, second: Path) -> None:
    a, b = weights(first), weights(second)
    for name in a:
        assert np.linalg.norm(a[name] - b[name]) <= 1e-4 * np.linalg.norm(a[name]), name
    one, other = losses(first), losses(second)
    assert [entry[:2] for entry in one] == [entry[:2] for entry in other]
    assert [entry[2] for entry in one] == pytest.approx([entry[2] for entry in other], rel=1e-4)


def saved(folder: Path) -> list[Path]:
    return list(folder.glob("checkpoints/*/complete.json"))


# ---- results of a run ----


def test_the_demo_halves_the_loss_and_its_model_writes_in_a_new_process(tmp_path):
    said = run(tmp_path, "finetune", "--demo", "--threads", 1, "--samples", 1).stdout
    folder = tmp_path / "shoal-runs" / "problems-tiny-1"
    tested = [record for record in log(folder) if "eval_loss" in record]
    assert tested[0]["step"] == 0
    assert tested[-1]["step"] == log(folder)[-1]["step"] == 216
    assert tested[0]["eval_loss"] == pytest.approx(math.log(512), rel=0.02)  # random weights: all tokens equally likely
    assert tested[-1]["eval_loss"] <= tested[0]["eval_loss"] / 2
    assert said.rstrip().endswith("report: shoal-runs/problems-tiny-1/report.html")
    sample = json.loads((folder / "samples.json").read_text(encoding="utf-8"))[0]
    row = next(row for row in problems() if row["statement"] in sample["prompt"])
    assert sample["expected"] == row["solution"]
    written = run(tmp_path, "generate", folder, row["statement"], "--tokens", 120).stdout
    assert written.rstrip("\n") == sample["after"].rstrip("\n")
    events = [json.loads(line) for line in (folder / "live.jsonl").read_text(encoding="utf-8").splitlines()]
    shown = [event["when"] for event in events if event["e"] == "sample"]
    assert shown == ["before", *(f"step {one['step']}" for one in sample["meanwhile"]), "after"]
    assert written.startswith("def "), "it has learned what a solution begins with"


def test_the_folder_holds_everything_and_the_log_is_complete(place, undisturbed):
    assert {file.name for file in undisturbed.iterdir()} == FILES | {"events"}
    records = log(undisturbed)
    trained = [record for record in records if "loss" in record]
    tested = [record for record in records if "eval_loss" in record]
    assert [record["step"] for record in trained] == list(range(1, STEPS + 1))
    assert [record["step"] for record in tested] == [0, 10, 20, STEPS]
    for record in records:
        kind = "eval_" if "eval_loss" in record else ""
        names = {f"{kind}{name}" for name in ("loss", "samples_per_second", "steps_per_second")}
        names |= {"eval_runtime"} if kind else {"learning_rate", "grad_norm", "tokens_per_second"}
        assert record.keys() == names | {"step", "epoch", "seconds"}
        assert all(isinstance(record[name], float) and math.isfinite(record[name]) for name in record if name != "step")
    assert [record["epoch"] for record in trained] == pytest.approx([(step + 1) / 7 for step in range(STEPS)])
    assert max(record["learning_rate"] for record in trained) == pytest.approx(3e-3)
    page = (undisturbed / "report.html").read_text(encoding="utf-8")
    assert "texts.csv" in page
    assert "interrupted" not in page.lower()
    settings = json.loads((undisturbed / "settings.json").read_text(encoding="utf-8"))
    assert settings["data"]["train"] == 38
    assert settings["run"]["trained"] == settings["run"]["parameters"] > 100_000


def test_the_screen_shows_the_format_and_what_was_cut(place, undisturbed):
    said = (place / "said.txt").read_text(encoding="utf-8")
    assert "  | statement:" in said
    assert "  | solution:" in said
    settings = json.loads((undisturbed / "settings.json").read_text(encoding="utf-8"))
    cut = settings["data"]["cut"]
    assert 0 < cut < 42
    assert f"{cut} texts are longer than 64 tokens and cut there" in said
    assert "38 texts to train on, 4 to test with" in said
    assert f"step {STEPS} (epoch 4.00): test loss {log(undisturbed)[-1]['eval_loss']:.3f}" in said
    assert "warn" not in said.lower()
    assert "it/s]" not in said


def test_the_page_of_a_real_run_in_a_browser(window, undisturbed):
    window.complaints.clear()
    window.address = (undisturbed / "report.html").as_uri()
    page = window.shared
    page.goto(window.address)
    last = log(undisturbed)[-1]
    words = page.locator(".slider output").inner_text()
    assert words.startswith(f"Step {STEPS}, epoch 4: training loss ")
    assert words.endswith(f"evaluation loss {last['eval_loss']:.3g}")
    captions = page.locator(".multiples figcaption").all_inner_texts()
    assert [caption.splitlines()[0] for caption in captions] == [
        "Learning rate", "Gradient norm", "Epoch", "Evaluation runtime", "Evaluation samples per second",
        "Evaluation steps per second", "Training samples per second", "Training steps per second",
        "Training tokens per second",
    ]  # fmt: skip
    assert page.locator(".sample .after pre").count() == 1
    assert window.complaints == []


def test_tensorboard_finds_the_same_numbers(undisturbed):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(undisturbed / "events")).Reload()
    shown = {event.step: event.value for event in events.Scalars("train/loss")}
    assert shown == {record["step"]: pytest.approx(record["loss"]) for record in log(undisturbed) if "loss" in record}
    assert len(events.Scalars("eval/loss")) == 4


def test_texts_of_other_scripts_are_generated_without_broken_characters(undisturbed):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(undisturbed / "model")
    for text in [*(cell for row in FOREIGN for cell in row), "🐟 öäü ß \t  blanks  ", "def f():\n    return 'é'\n"]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


# ---- workers ----


def test_two_workers_give_the_weights_of_one(undisturbed, shared_out):
    assert_close(undisturbed, shared_out)


def test_a_killed_worker_is_replaced_and_the_weights_are_the_same(place, shared_out):
    process = start(place, "finetune", "texts.csv", *SMALL, "--workers", 2, "--save-every", 3, "--out", "hurt")
    wait_until(lambda: saved(place / "hurt"))
    os.kill(children_of(process.pid, "shoal.finetune.rank")[0], signal.SIGKILL)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert "restarting from the last checkpoint with 2 workers" in out
    assert_same(place / "hurt", shared_out)
    assert not (place / "hurt" / "checkpoints").exists()


def test_a_killed_and_resumed_run_gives_the_same_weights(place, undisturbed):
    process = start(place, "finetune", "texts.csv", *SMALL, "--save-every", 3, "--out", "dead")
    wait_until(lambda: saved(place / "dead"))
    workers = children_of(process.pid, "shoal.finetune.rank")
    process.kill()
    process.communicate()
    wait_until(lambda: not any(psutil.pid_exists(worker) for worker in workers), 10)
    assert not (place / "dead" / "model").exists()
    said = run(place, "finetune", "texts.csv", *SMALL, "--out", "dead").stdout
    assert "resuming dead from step" in said
    assert_same(place / "dead", undisturbed)
    assert json.loads((place / "dead" / "settings.json").read_text())["run"]["resumed_at"][0] % 3 == 0


def test_ctrl_c_saves_and_the_same_command_resumes_with_any_number_of_workers(tmp_path, place, undisturbed):
    arguments = ("finetune", place / "texts.csv", *SMALL)
    process = start(tmp_path, *arguments, "--workers", 2)
    folder = tmp_path / "shoal-runs" / "texts-tiny-1"
    wait_until(lambda: (folder / "metrics.jsonl").exists() and '"loss"' in (folder / "metrics.jsonl").read_text())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "stopped at step" in out
    assert "Traceback" not in err
    assert len(saved(folder)) == 1
    assert "interrupted" in (folder / "report.html").read_text(encoding="utf-8").lower()
    step = int(saved(folder)[0].parent.name.rpartition("-")[2])
    assert 0 < step < STEPS
    said = run(tmp_path, *arguments)
    assert f"resuming texts-tiny-1 from step {step}" in said.stdout
    assert_close(folder, undisturbed)

"""The parts of fine-tuning: texts, batches, models that are none, bad input."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
from itertools import chain
from pathlib import Path

import pytest
from support.finetune import ROWS

from shoal.finetune import checkpoints, models, place, session, texts, tokens
from shoal.finetune.options import FinetuneOptions

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
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
    marks = [session.fingerprint(FinetuneOptions(model="model"), found, tmp_path / "model")]
    others = FinetuneOptions(model="model", workers=2, eval_every=3)
    marks.append(session.fingerprint(others, found, tmp_path / "model"))
    assert marks[0] == marks[1], "who computes is not what is computed"
    assert marks[0].keys() - {"data", "start"} == {
        "columns", "model", "epochs", "batch_size", "learning_rate", "schedule", "warmup", "weight_decay", "dropout",
        "context", "lora", "test", "seed",
    }, "runs on disk could not go on"  # fmt: skip
    config = (tmp_path / "model" / "config.json").read_text()
    (tmp_path / "model" / "config.json").write_text(config.replace("gelu_pytorch_tanh", "relu"))
    assert session.fingerprint(FinetuneOptions(model="model"), found, tmp_path / "model") != marks[0]


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
    from shoal.interrupts import interruptible

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupt.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupt.requested == "SIGTERM"
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_phrase_for_the_demo_has_the_form_of_its_texts_and_survives_a_shell():
    from shoal.cli.finetune import DEMO_PHRASE, GENERATE_EXAMPLES

    table = Path(texts.__file__).parent / "problems.csv"
    with open(table, encoding="utf-8", newline="") as file:
        statements = [row["statement"] for row in csv.DictReader(file)]
    form = re.compile(r"Write a (function|generator|class) `\w+` .*\.")
    assert all(form.fullmatch(statement.split("\n")[0]) for statement in statements)
    assert form.fullmatch(DEMO_PHRASE)
    assert DEMO_PHRASE not in statements
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for text in (readme, GENERATE_EXAMPLES):
        (command,) = re.findall(r"^shoal generate shoal-runs/problems-tiny-1 .*$", text, re.MULTILINE)
        assert f"'{DEMO_PHRASE}'" in command, "between single quotes: in double ones a shell runs what is in backticks"

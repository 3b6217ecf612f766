"""Arguments of `shoal finetune` and `shoal generate`: bad input gives an error of one sentence."""

from __future__ import annotations

import shutil

import pytest
from support.finetune import write

from shoal.finetune import checkpoints
from shoal.runs.kinds import FINETUNE_FORMAT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


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
def test_bad_input_gives_an_error_of_one_sentence(tmp_path, call, arguments, words):
    write(tmp_path / "a.csv", ("q", "answer"), ("one", "1"), ("two", "2"))
    write(tmp_path / "one.csv", ("q", "answer"), ("one", "1"))
    write(tmp_path / "blank.csv", ("q", "answer"), (" ", ""), ("", " "))
    (tmp_path / "empty.csv").touch()
    said = call(tmp_path, "finetune", *arguments, code=2)
    assert words in said.stderr
    assert said.stderr.count("\n") == 1
    assert not (tmp_path / "shoal-runs").exists()


def test_generate_checks_its_input_before_loading_the_model(tmp_path, call, tiny):
    checkpoints.write_json(tmp_path / "settings.json", {
        "format": FINETUNE_FORMAT, "version": 1, "fingerprint": {}, "settings": {"columns": ["q", "a"]}
    })  # fmt: skip
    said = call(tmp_path, "generate", ".", "text", code=2)
    assert "is not finished; repeat its shoal finetune command to resume it" in said.stderr
    shutil.copytree(tiny, tmp_path / "model")
    assert "give at most 1 of them" in call(tmp_path, "generate", ".", "one", "two", code=2).stderr
    assert "would all be equal" in call(tmp_path, "generate", ".", "one", "--samples", 2, code=2).stderr
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
    assert "the model takes 64: its beginning is cut" in said.stderr

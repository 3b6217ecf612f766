"""Folders of runs: when a run is resumed, and where a new one starts."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.finetune import checkpoints, texts
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.run import fingerprint
from shoal.runs.folder import RunFolder
from shoal.runs.kinds import FINETUNE, FINETUNE_FORMAT, METRICS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


@contextmanager
def opened(out, name, marks, fresh=False):
    with RunFolder(FINETUNE, out, name, marks, fresh=fresh, again=True) as folder:
        yield folder.path, folder.resumes


def written(folder, marks):
    """A run that was ended."""
    with opened(folder, "", marks):
        (folder / METRICS).touch()
        checkpoints.write_json(
            folder / "settings.json", {"format": FINETUNE_FORMAT, "version": 1, "fingerprint": marks}
        )


def test_only_the_same_run_is_resumed(tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    marks = {"data": "x", "epochs": 3}
    with opened(None, "a-tiny", marks) as found:
        assert found == (Path("shoal-runs/a-tiny-1"), False)
    for number in (1, 2, 10):
        written(Path(f"shoal-runs/a-tiny-{number}"), marks)
    with opened(None, "a-tiny", marks) as found:
        assert found == (Path("shoal-runs/a-tiny-10"), True)
    with opened(None, "a-tiny", marks, fresh=True) as found:
        assert found == (Path("shoal-runs/a-tiny-3"), False)
    with opened(None, "a-tiny", {**marks, "epochs": 4}) as found:
        assert found == (Path("shoal-runs/a-tiny-3"), False)
    Path("shoal-runs/a-tiny-10/model").mkdir()
    with opened(None, "a-tiny", marks) as second, opened(None, "a-tiny", marks) as first:
        assert (second, first) == ((Path("shoal-runs/a-tiny-2"), True), (Path("shoal-runs/a-tiny-1"), True))
        with opened(None, "a-tiny", marks) as third:
            assert third == (Path("shoal-runs/a-tiny-3"), False), "a folder in use is not shared"
        with pytest.raises(ValueError, match="is in use by process"), opened(second[0], "", marks):
            pass
    assert not Path("shoal-runs/a-tiny-3").exists()
    assert Path("shoal-runs/a-tiny-2/settings.json").exists(), "what was there before stays"
    for fresh in (False, True):
        finished = opened(Path("shoal-runs/a-tiny-10"), "", marks, fresh)
        with pytest.raises(ValueError, match="holds a finished run"), finished:
            pass
    with (
        pytest.raises(ValueError, match="the beginning of a run that differs: epochs was 3 and is 4"),
        opened(Path("shoal-runs/a-tiny-1"), "", {**marks, "epochs": 4}),
    ):
        pass
    with pytest.raises(ValueError, match="is not empty"), opened(Path("shoal-runs"), "", marks):
        pass


def test_fresh_starts_over_in_the_named_folder(tmp_path):
    marks = {"data": "x"}
    out = tmp_path / "out"
    written(out, {"data": "y"})
    (out / "checkpoints").mkdir()
    with opened(out, "", marks, fresh=True) as (path, resumes):
        assert (path, resumes) == (out, False)
        assert not (out / "checkpoints").exists()
        (out / METRICS).write_text("")
    assert out.is_dir()


def test_names_with_brackets_are_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(None, "t[1]-tiny", {}) as (path, _):
        (path / METRICS).write_text("")
        checkpoints.write_json(path / "settings.json", {"format": FINETUNE_FORMAT, "version": 1, "fingerprint": {}})
    with opened(None, "t[1]-tiny", {}) as found:
        assert found == (path, True)


def test_a_folder_in_which_nothing_was_trained_is_removed(tmp_path):
    with opened(tmp_path / "runs" / "one", "", {}) as (path, _):
        (path / "settings.json").write_text("{}")
    assert not (tmp_path / "runs").exists()
    (tmp_path / "mine").mkdir()
    with opened(tmp_path / "mine", "", {}) as (path, _):
        (path / "start").mkdir()
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"], "what was there before stays"
    assert not any((tmp_path / "mine").iterdir())


def test_a_changed_model_is_another_run(tmp_path, tiny):
    shutil.copytree(tiny, tmp_path / "model")
    found = texts.Texts("a.csv", ("a",), [("x",), ("y",)], 2)
    marks = [fingerprint(FinetuneOptions(model="model"), found, tmp_path / "model")]
    others = FinetuneOptions(model="model", workers=2, eval_every=3)
    marks.append(fingerprint(others, found, tmp_path / "model"))
    assert marks[0] == marks[1], "who computes is not what is computed"
    assert marks[0].keys() - {"data", "start"} == {
        "columns", "model", "epochs", "batch_size", "learning_rate", "schedule", "warmup", "weight_decay", "dropout",
        "context", "lora", "test", "seed",
    }, "runs on disk could not be resumed"  # fmt: skip
    config = (tmp_path / "model" / "config.json").read_text()
    (tmp_path / "model" / "config.json").write_text(config.replace("gelu_pytorch_tanh", "relu"))
    assert fingerprint(FinetuneOptions(model="model"), found, tmp_path / "model") != marks[0]

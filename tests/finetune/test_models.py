"""Folders that are models, and those that are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shoal.finetune import models

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours


def test_a_folder_that_is_not_a_model(tmp_path, tiny):
    def refused(folder: Path) -> str:
        with pytest.raises(ValueError, match="is not a model") as caught:
            models.find(str(folder))
        return str(caught.value)

    (tmp_path / "notes").mkdir()
    assert refused(tmp_path / "notes").endswith("tokenizer.json; the folder is empty")
    (tmp_path / "notes" / "a.txt").write_text("a")
    assert "it lacks config.json, model.safetensors, tokenizer.json; it holds a.txt" in refused(tmp_path / "notes")
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
    with pytest.raises(ValueError, match="is not a model configuration"):
        models.load_config(tmp_path / "cut")
    (tmp_path / "cut" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ValueError, match="of type 't5', which is not a causal language model"):
        models.load_config(tmp_path / "cut")
    (tmp_path / "cut" / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"the tokenizer in .* cannot be read"):
        models.load_tokenizer(tmp_path / "cut")


def test_names_on_the_hub_without_a_connection(tmp_path, tiny, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    lacks = "models--some--gpt lacks config.json, model.safetensors, tokenizer.json"
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/{lacks}, and HF_HUB_OFFLINE is set"):
        models.find("some/gpt")
    snapshot = tmp_path / "models--some--gpt" / "snapshots" / ("a" * 40)
    shutil.copytree(tiny, snapshot)
    (tmp_path / "models--some--gpt" / "refs").mkdir()
    (tmp_path / "models--some--gpt" / "refs" / "main").write_text("a" * 40)
    assert models.find("some/gpt") == snapshot
    (snapshot / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=f"{snapshot} lacks tokenizer.json"):
        models.find("some/gpt")

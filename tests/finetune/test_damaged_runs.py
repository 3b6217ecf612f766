"""What a run that is resumed finds in its folder: damaged by disks, by other programs, or by who killed it."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.damage import JUNK, damage
from support.finetune import ROWS

from shoal.errors import UserError
from shoal.finetune import checkpoints, generating, rank
from shoal.finetune.folder import read_samples
from shoal.finetune.options import FinetuneOptions
from shoal.finetune.plan import make_plan
from shoal.finetune.samples import SampleWriter
from shoal.live.recorders import FinetuneRecorder
from shoal.report.finetune import sections
from shoal.runs.kinds import SAMPLES, START

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
OPTIONS = FinetuneOptions(model="tiny", context=32, columns=("a",), device="cpu")
SAMPLE = {"prompt": "a:", "expected": "x", "before": "y", "meanwhile": [{"step": 3, "text": "z"}]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its tiny model, made as the first worker makes it, in `run`."""
    place = tmp_path_factory.mktemp("tiny")
    begin(place)
    return place


def begin(place: Path) -> None:
    (place / "run").mkdir(exist_ok=True)
    (place / "payload").mkdir(exist_ok=True)
    plan = make_plan(OPTIONS, place / "run", place / "run" / START, 14)
    (place / "payload" / rank.TEXTS).write_text(
        json.dumps({"train": ROWS[:14], "test": ROWS[14:], "prompts": [SAMPLE]})
    )
    rank._read_texts(plan, place / "payload")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


@pytest.mark.parametrize("what", [flip, lambda file: os.truncate(file, 9), Path.unlink])
def test_an_initial_model_that_is_damaged_or_half_written_is_made_again(made, tmp_path, what):
    """A network that begins elsewhere, or other tokens, would be another run."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    right = files_of(made / "run" / START)
    what(tmp_path / "run" / START / random.choice(sorted(right)))
    begin(tmp_path)
    assert files_of(tmp_path / "run" / START) == right


def test_what_somebody_put_in_its_place_is_not_written_over(made, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(made / "run" / START, mine)
    (mine / checkpoints.COMPLETE).unlink()
    flip(mine / "model.safetensors")
    before = files_of(mine)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / START).symlink_to(mine)
    with pytest.raises(UserError, match="holds other things than a model of Shoal's"):
        begin(tmp_path)
    (tmp_path / "run" / START).unlink()
    (tmp_path / "run" / START / "config.json").mkdir(parents=True)
    (tmp_path / "run" / START / "config.json" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other things than a model of Shoal's"):
        begin(tmp_path)
    assert (tmp_path / "run" / START / "config.json" / "notes.txt").read_text() == "mine"
    assert files_of(mine) == before


def test_a_list_of_files_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / checkpoints.COMPLETE)
    assert not checkpoints.is_complete(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_texts_are_written_again_and_stop_nothing(tmp_path_factory, data):
    run = tmp_path_factory.mktemp("run")
    (run / SAMPLES).write_text(json.dumps([SAMPLE, SAMPLE]))
    damage(run / SAMPLES, data)
    found = read_samples(run)
    assert all(isinstance(one["prompt"], str) for one in found)
    with FinetuneRecorder(run, {}, pytest.fail) as recorder:
        recorder._record_samples()
    sections.samples({"samples": found})


def test_texts_that_are_lost_are_planned_again(made, monkeypatch):
    monkeypatch.setattr("shoal.finetune.models.longest_context", lambda *_: 32)
    plan = make_plan(OPTIONS, made / "run", made / "run" / START, 14)
    writer = SampleWriter(plan, made / "payload", type("Trainer", (), {"model": type("M", (), {"config": None})}), None)
    assert writer.samples == [SAMPLE]


@given(JUNK, st.sampled_from(["settings", "columns", "all"]))
def test_settings_that_do_not_name_the_columns_are_refused(junk, where):
    run = {"settings": junk} if where == "settings" else {} if where == "all" else {"settings": {"columns": junk}}
    named = where == "columns" and isinstance(junk, list) and all(isinstance(name, str) for name in junk)
    if named:
        assert generating._columns_of(run) == tuple(junk)
    else:
        with pytest.raises(UserError, match="it does not name the columns"):
            generating._columns_of(run)

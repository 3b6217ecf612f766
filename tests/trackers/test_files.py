"""Trackers that write files: JSON lines and TensorBoard; and events that are not those of a search."""

from __future__ import annotations

import json
import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Member, Population
from shoal.callbacks import JSONLines, TensorBoard
from shoal.errors import UserError
from shoal.search.strategies import Random
from shoal.trackers import background, content
from shoal.trackers.find import find_tracker


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_lines_of_a_search(model_with, tmp_path):
    path = tmp_path / "new" / "log.jsonl"
    model = model_with(JSONLines(path))
    found = lines(path)
    assert [line["event"] for line in found if line["event"] != "step"] == ["started", *["recipe"] * 4, "ended"]
    assert [line["step"] for line in found if line["event"] == "step"] == [
        *range(1, sum("step" in x for x in found) + 1)
    ]
    assert found[-1]["status"] == "finished"
    assert found[-1]["scores"]["honest_score"] == model.honest_score_.corrected
    assert [line["scores"]["score"] for line in found if line["event"] == "recipe"] == model.board_["score"].tolist()


def test_a_resumed_search_says_so_and_repeats_no_step(model_with, tmp_path):
    class Ends:
        def step_ended(self, event):
            return True

    path = tmp_path / "log.jsonl"
    model_with(JSONLines(path), Ends(), journal=tmp_path / "journal", recipes=12)
    path.write_bytes(path.read_bytes()[:-9])  # as if the process had been killed while it wrote
    model_with(JSONLines(path), journal=tmp_path / "journal", recipes=12)
    whole = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    assert [line["event"] for line in whole].count("started") == 1
    assert [line["event"] for line in whole].count("resumed") == 1
    steps = [line["step"] for line in whole if line["event"] == "step"]
    assert steps == [*range(1, len(steps) + 1)]
    assert len(steps) > 1


@pytest.mark.parametrize("tracker", [JSONLines, TensorBoard])
def test_a_place_that_cannot_be_written_warns_once(model_with, tmp_path, tracker):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="does not get the rest of this run") as seen:
        model = model_with(tracker(tmp_path / "file" / "inside"))
    assert len(seen) == 1
    assert len(model.board_) == 4


def test_objects_of_the_users_are_logged_by_what_they_say(model_with, tmp_path):
    strategy, path = Random(), tmp_path / "log.jsonl"
    model_with(JSONLines(path), strategy=strategy)
    found = lines(path)
    assert found[0]["parameters"]["strategy"] == str(strategy)
    assert found[-1]["event"] == "ended"


@pytest.mark.parametrize("waiting", [1, 2, 3])
def test_the_end_does_not_wait_for_room_in_the_queue_of_a_tracker_that_hangs(monkeypatch, waiting):
    monkeypatch.setattr(background, "MOST_WAITING", 2)
    hangs, held = background.Background("test"), threading.Event()
    hangs.put(lambda: held.wait(60))
    while not hangs._waiting.empty():
        time.sleep(0.01)
    for _ in range(waiting):
        hangs.put(lambda: None)
    ended = threading.Thread(target=hangs.end, args=(0.2,), daemon=True)
    ended.start()
    ended.join(10)
    stuck = ended.is_alive()
    held.set()
    assert not stuck
    assert hangs.problem == ("it is too slow" if waiting > 2 else "it did not answer for 0 s")


def test_a_full_disk_warns_once(model_with):
    with pytest.warns(UserWarning, match="No space left on device") as seen:
        model_with(JSONLines("/dev/full"))
    assert len(seen) == 1


def test_the_curves_of_tensorboard(model_with, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    model = model_with(TensorBoard(tmp_path))
    read = accumulator(str(tmp_path)).Reload()
    assert read.Scalars("honest_score")[0].value == pytest.approx(model.honest_score_.corrected)
    assert len(read.Scalars("trained")) > 0
    texts = {tag: read.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in read.Tags()["tensors"]}
    assert "| recipes | 4 |" in texts["settings"]
    assert "honest_score" in texts["results"]
    folders = sorted((tmp_path / "recipes").iterdir())
    assert [folder.name for folder in folders] == ["001", "002", "003", "004"]
    best = accumulator(str(folders[0])).Reload()
    assert [one.step for one in best.Scalars("valid_loss")] == [*range(1, len(best.Scalars("valid_loss")) + 1)]
    assert best.Scalars("score")[0].value == pytest.approx(model.board_["score"][0])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_search_removes_no_recipe_that_another_search_has_logged(model_with, tmp_path, resumed):
    pytest.importorskip("tensorboard")

    class Ends:
        def step_ended(self, event):
            return True

    def files():
        return {path for path in (tmp_path / "log").rglob("events.out.*") if path.parent.parent.name == "recipes"}

    model_with(TensorBoard(tmp_path / "log"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.9999999999.x").write_text("mine")
    (tmp_path / "log/recipes/mine").symlink_to(elsewhere)
    first = files()
    assert len(first) == 4
    for file in first:  # as if that search were older by more than a second, which names of files tell apart
        begun = file.name.split(".")[3]
        file.rename(file.with_name(file.name.replace(begun, str(int(begun) - 60))))
    first = files()
    if resumed:
        model_with(TensorBoard(tmp_path / "log"), Ends(), journal=tmp_path / "journal", recipes=12)
    begun = files()
    model_with(TensorBoard(tmp_path / "log"), journal=tmp_path / "journal", recipes=12)
    assert first <= files()
    assert not (begun - first) & files(), "those of its own earlier attempt are replaced"
    assert len(files() - first) == 12
    assert (elsewhere / "events.out.tfevents.9999999999.x").exists()


def test_a_population_is_logged(tmp_path):
    population = Population([Member(hidden=2), Member(hidden=3)], 1, 1, "mse")
    X = np.linspace(0, 1, 20)[:, None]
    history = population.fit(X, X[:, 0], epochs=4, rows=0.5, callbacks=[JSONLines(tmp_path / "log")])
    last = lines(tmp_path / "log")[-1]
    assert last["scores"]["median_loss"] == pytest.approx(float(np.median(history.last("loss"))))
    assert last["scores"]["best_valid_score"] == pytest.approx(float(history.last("valid_score").max()))


def test_a_parallel_training_is_logged(tmp_path):
    torch = pytest.importorskip("torch")
    from shoal import parallel

    X = torch.linspace(0, 1, 32)[:, None]
    data = torch.utils.data.TensorDataset(X, X)
    options = {"loss": "mse", "epochs": 2, "strategy": "serial", "workers": 1}
    parallel.fit(torch.nn.Linear(1, 1), data, callbacks=[JSONLines(tmp_path / "log")], **options)
    found = lines(tmp_path / "log")
    assert found[0]["parameters"]["strategy"] == "serial"
    assert [line["step"] for line in found if line["event"] == "step"] == [1, 2]
    assert all("train_loss" in line["scores"] for line in found if line["event"] == "step")
    assert "seconds_per_epoch" in found[-1]["scores"]


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.text(), st.booleans(), st.integers(), st.floats())))
def test_only_finite_numbers_are_scores(values):
    found = content.numbers(values)
    assert all(type(value) is float and np.isfinite(value) for value in found.values())
    assert set(found) == {
        name for name, value in values.items() if type(value) in (int, float) and np.isfinite(float(value))
    }


@pytest.mark.parametrize("name", ["", "mlflo:x", "jsonl", "jsonl:", "tensorboard:", ":x"])
def test_wrong_names_are_refused_in_words(name):
    with pytest.raises(UserError, match="--log"):
        find_tracker(name)


@pytest.mark.parametrize("name", ["jsonl:a:b.jsonl", "tensorboard:runs", "mlflow:sqlite:///x.db", "mlflow"])
def test_the_address_of_a_tracker_is_its_name(name):
    found = find_tracker(name)
    assert found.address == name
    assert pickle.loads(pickle.dumps(found)).address == name


def test_importing_callbacks_loads_no_tracker():
    import subprocess
    import sys

    code = "import sys, shoal.callbacks; print([m for m in sys.modules if 'tracker' in m or 'mlflow' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"

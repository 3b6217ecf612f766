"""The recording of a run: bounded, continued, and of no harm to the run."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disks import small_disk
from support.live import FakeTime

from shoal.live import recording as module
from shoal.live.recording import Recording, read_lines, request_stop
from shoal.runs.kinds import LIVE, STOP


def recorded_lines(folder):
    return (folder / LIVE).read_bytes().splitlines()


def recorded(folder):
    return [json.loads(line) for line in recorded_lines(folder)]


@pytest.fixture(name="begin")
def recordings():
    """Begins a recording; and a list of what it says."""
    made = []

    def begin(folder, clock=None):
        said = []
        made.append(Recording(folder, said.append, clock or FakeTime()))
        return made[-1], said

    yield begin
    for recording in made:
        recording.close()


def test_events_have_the_seconds_of_the_run_and_no_number_that_json_lacks(begin, tmp_path):
    clock = FakeTime()
    recording, said = begin(tmp_path, clock)
    recording.write("dots", score=float("nan"), low=float("-inf"))
    clock.seconds = 2.5
    recording.write("note", text="a\nb\u2028</script>")
    recording.close()
    assert recorded(tmp_path) == [
        {"e": "dots", "t": 0.0, "score": None, "low": None},
        {"e": "note", "t": 2.5, "text": "a\nb\u2028</script>"},
    ]
    assert said == []


def test_a_resumed_run_continues_the_time_also_after_half_a_line(begin, tmp_path):
    first, _ = begin(tmp_path)
    first.write("begin")
    first._start -= 40.0
    first.write("now")
    with open(tmp_path / LIVE, "ab") as file:
        file.write(b'{"e":"now","t":41')  # killed while it wrote
    second, _ = begin(tmp_path)
    second.write("begin")
    lines = (tmp_path / LIVE).read_bytes().splitlines()
    assert json.loads(lines[-1]) == {"e": "begin", "t": 40.0}
    assert lines[-2] == b'{"e":"now","t":41'


def test_a_recording_has_a_largest_size_and_room_for_the_end(begin, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 20_000)
    monkeypatch.setattr(module, "KEPT_BYTES", 5_000)
    recording, _ = begin(tmp_path)
    for _ in range(1_000):
        recording.write("note", text="x" * 100)
    recording.write("end", last=True)
    assert 14_000 < os.path.getsize(tmp_path / LIVE) < 20_000
    assert recorded(tmp_path)[-1]["e"] == "end"


def test_progress_of_a_long_run_is_recorded_less_often(begin, tmp_path):
    clock = FakeTime()
    recording, _ = begin(tmp_path, clock)
    due = 0
    for _ in range(200_000):  # eleven days, asked every five seconds
        clock.seconds += 5
        due += recording.is_due()
    assert 5_000 < due < 20_000
    for _ in range(10):
        assert not recording.is_due()  # the clock stands still


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_what_is_no_file_is_not_written_to(begin, tmp_path, kind):
    place, other = tmp_path / LIVE, tmp_path / "mine.txt"
    other.write_text("mine\n")
    if kind == "folder":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(other)
    recording, said = begin(tmp_path)
    recording.write("begin")
    recording.close()
    assert other.read_text() == "mine\n"
    assert len(said) == 1
    assert "cannot be written" in said[0]


def test_a_full_disk_ends_the_recording_with_one_note(begin, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        recording, said = begin(disk)
        for _ in range(30):
            recording.write("note", text="x" * 100_000)
        recording.close()
    assert len(said) == 1
    assert "No space left" in said[0]


def test_a_request_to_stop_counts_for_one_attempt(begin, tmp_path):
    clock = FakeTime()
    request_stop(tmp_path)
    recording, _ = begin(tmp_path, clock)
    assert not recording.stop_requested()  # that of an earlier attempt
    request_stop(tmp_path)
    assert not recording.stop_requested()  # looked a moment ago
    clock.seconds += 1
    assert recording.stop_requested()
    recording.close()
    assert not (tmp_path / STOP).exists()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("t"), inner), max_leaves=3),
       st.binary(max_size=8))  # fmt: skip
@settings(deadline=None)
def test_a_damaged_recording_is_continued_at_a_time_that_a_page_can_show(tmp_path_factory, time, rest):
    folder = tmp_path_factory.mktemp("run")
    ending = [json.dumps({"e": "now", "t": 7.0}), json.dumps(time), json.dumps({"e": "now", "t": time})]
    (folder / LIVE).write_bytes("\n".join(ending).encode() + rest)
    recording = Recording(folder, print, FakeTime())
    recording.write("begin")
    recording.close()
    event = json.loads(recorded_lines(folder)[-1], parse_constant=pytest.fail)
    assert 0 <= event["t"] <= module.LONGEST_SECONDS


@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "dangling link"])
def test_only_a_file_asks_to_stop_and_what_else_has_its_name_stays_as_it_is(begin, tmp_path, kind):
    other, clock = tmp_path / "mine.txt", FakeTime()
    other.write_text("mine\n")
    if kind == "folder":
        (tmp_path / STOP).mkdir()
    elif kind == "fifo":
        os.mkfifo(tmp_path / STOP)
    else:
        (tmp_path / STOP).symlink_to(other if kind == "link" else tmp_path / "nothing")
    before = os.lstat(tmp_path / STOP).st_mode
    recording, said = begin(tmp_path, clock)
    with pytest.raises(FileExistsError):
        request_stop(tmp_path)
    clock.seconds += 1
    assert not recording.stop_requested()
    recording.close()
    assert os.lstat(tmp_path / STOP).st_mode == before
    assert (other.read_text(), (tmp_path / "nothing").exists(), said) == ("mine\n", False, [])


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path):
    (tmp_path / LIVE).touch()
    os.truncate(tmp_path / LIVE, 2**40)
    assert read_lines(tmp_path / LIVE, 0) == (b"", 0)
    (tmp_path / LIVE).write_bytes(b"x" * 300 + b"\n{}\n{")
    assert read_lines(tmp_path / LIVE, 0, most=10) == (b"x" * 300 + b"\n", 301)


@given(st.lists(st.text(max_size=200), max_size=30), st.integers(1, 300), st.integers(0, 100))
@settings(deadline=None)
def test_a_reader_gets_every_whole_line_once(tmp_path_factory, texts, most, cut):
    folder = tmp_path_factory.mktemp("run")
    recording = Recording(folder, print)
    for text in texts:
        recording.write("note", text=text)
    recording.close()
    whole = (folder / LIVE).read_bytes()
    (folder / LIVE).write_bytes(whole + b'{"e":"no'[: cut % 9])  # a line that is being written
    place, found = 0, b""
    while True:
        lines, place = read_lines(folder / LIVE, place, most)
        if not lines:
            break
        assert lines.endswith(b"\n")
        found += lines
    assert found == whole

"""The journal finds again what was written whole, and never gives anything else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journal import flip, same

from shoal.errors import CannotWrite
from shoal.files import tensors
from shoal.runs import journal as journal_module
from shoal.runs.journal import DAMAGED, EVENTS, Journal, read_events

ARRAYS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "strided": np.arange(20, dtype=np.int16)[::3],
    "flag": np.array(True),
    "none": np.zeros((0, 4)),
    "swapped": np.arange(3, dtype=">i8"),
}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def journal(tmp_path: Path, warned: list[str]) -> Journal:
    return Journal(tmp_path / "journal", warned.append)


def reopened(journal: Journal) -> Journal:
    return Journal(journal.folder, journal.warn)


def test_what_was_written_is_found_by_each_key_also_later(journal: Journal, warned: list[str]) -> None:
    about = {"seconds": 1 / 3, "worst": float("inf"), "label": "naïve\n"}
    path = journal.write("shard", ["aa", "0b"], ARRAYS, about)
    for later in (journal, reopened(journal)):
        assert [later.find("shard", key) for key in ("aa", "0b", "cc")] == [(path, 0), (path, 1), None]
        assert later.find("rung", "aa") is None, "another kind"
        entry = later.read(path)
        assert entry is not None
        assert (entry.keys, entry.about) == (("aa", "0b"), about)
        assert same(entry.arrays, ARRAYS)
        assert later.files == 1
    assert not warned
    assert names(journal.folder) == {path.name}


def test_the_safetensors_library_reads_the_files(journal: Journal) -> None:
    load_file = pytest.importorskip("safetensors.numpy").load_file
    assert same(load_file(journal.write("shard", ["aa"], ARRAYS)), ARRAYS)


def test_arrays_are_views_of_what_was_checked_and_cannot_be_written_to(journal: Journal) -> None:
    entry = journal.read(journal.write("shard", ["aa"], ARRAYS))
    assert entry is not None
    weights = entry.arrays["weights"]
    assert weights.ctypes.data % weights.itemsize == 0
    assert not weights.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        weights[0] = 1


def test_equal_work_is_an_equal_file_that_takes_the_place_of_the_old_one(journal: Journal) -> None:
    path = journal.write("shard", ["aa", "bb"], ARRAYS)
    content = path.read_bytes()
    assert journal.write("shard", ["aa", "bb"], dict(reversed(ARRAYS.items()))) == path
    assert path.read_bytes() == content
    assert journal.files == 1


def test_each_key_counts_in_the_name_of_a_file(journal: Journal) -> None:
    paths = {journal.write("shard", keys, ARRAYS) for keys in (["aa"], ["aa", "bb"], ["bb", "aa"], ["aabb"])}
    assert len(paths) == journal.files == 4


def test_a_key_in_two_files_is_found_as_long_as_one_of_them_is_good(journal: Journal, warned: list[str]) -> None:
    one = journal.write("shard", ["aa", "bb"], {"x": np.zeros(1)})
    two = journal.write("shard", ["cc", "bb"], {"x": np.ones(1)})
    assert journal.find("shard", "bb") == (two, 1)
    flip(two, 8 * two.stat().st_size - 1)
    assert journal.read(two) is None
    assert journal.find("shard", "bb") == (one, 1)
    assert journal.find("shard", "cc") is None
    journal.remove(one)
    assert journal.find("shard", "aa") is None
    assert journal.find("shard", "bb") is None
    assert (journal.files, len(warned)) == (0, 1)
    assert not one.exists()


@pytest.mark.parametrize("keys", [[], ["aa", "aa"], ["xyz"], ["../../aa"], [""]])
def test_keys_are_different_hashes(journal: Journal, keys: list[str]) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        journal.write("shard", keys, ARRAYS)


def test_kinds_are_words_and_arrays_are_numbers(journal: Journal) -> None:
    with pytest.raises(ValueError, match="a kind is a word"):
        journal.write("../shard", ["aa"], ARRAYS)
    with pytest.raises(ValueError, match="no room for 'names'"):
        journal.write("shard", ["aa"], {"names": np.array(["a"])})
    assert not names(journal.folder)


def test_threads_may_write_at_the_same_time(journal: Journal, warned: list[str]) -> None:
    """As a search does: one thread waits for the disk, the other goes on and looks."""

    def work(thread: int) -> None:
        for number in range(40):
            key = f"{thread:04x}{number:04x}"
            path = journal.write("shard", [key, "ff"], {"x": np.full(3, number)})
            journal.note("written", key)
            assert journal.find("shard", key) == (path, 0)
            assert journal.count("shard") >= 1
            if number % 3 == 0:
                journal.remove(path)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [None] * 4
    later = reopened(journal)
    assert len(later.events()) == 160
    assert journal.files == later.files == 4 * 26
    assert journal.count("shard") == later.count("shard") == 4 * 26 + 1, "the key that all have counts once"
    assert not warned


# Files that lie


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_cut_or_changed_anywhere_is_set_aside(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    warned: list[str] = []
    journal = Journal(tmp_path_factory.mktemp("cut"), warned.append)
    path = journal.write("shard", ["aa", "bb"], ARRAYS, {"a": 1})
    other = journal.write("shard", ["cc"], ARRAYS)
    size = path.stat().st_size
    if data.draw(st.booleans()):
        os.truncate(path, data.draw(st.integers(0, size - 1)))
    else:
        flip(path, data.draw(st.integers(0, 8 * size - 1)))
    if data.draw(st.booleans()):
        journal = reopened(journal)
    found = journal.find("shard", "aa")
    assert (found and journal.read(found[0])) is None
    assert journal.find("shard", "aa") is journal.find("shard", "bb") is None
    assert not path.exists()
    assert names(journal.folder / DAMAGED) == {path.name}
    assert len(warned) == 1
    assert path.name in warned[0]
    assert warned[0].endswith("it was moved to damaged/, and its work is computed again")
    assert journal.read(other) is not None


def test_a_cut_file_is_found_when_the_journal_is_opened(journal: Journal, warned: list[str]) -> None:
    """So that a run can say how much it has to compute again."""
    path = journal.write("shard", ["aa"], ARRAYS)
    os.truncate(path, path.stat().st_size - 1)
    assert reopened(journal).files == 0
    assert "is damaged (cut short)" in warned[0]


def test_every_bit_of_a_small_file_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    path = journal.write("shard", ["aa"], {"x": np.arange(4, dtype=np.uint8)}, {"a": 1})
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(tensors.NotTensors):
            tensors.unseal(np.frombuffer(bytes(changed), np.uint8))


@pytest.mark.parametrize("again", [True, False], ids=["opened again", "still open"])
def test_two_files_that_changed_names_are_both_refused(journal: Journal, warned: list[str], again: bool) -> None:
    one, two = (journal.write("shard", [key], {"x": np.full(1, i)}) for i, key in enumerate(("aa", "bb")))
    one.rename(journal.folder / "third")
    two.rename(one)
    (journal.folder / "third").rename(two)
    if again:
        journal = reopened(journal)
    for key in ("aa", "bb"):
        found = journal.find("shard", key)
        assert (found and journal.read(found[0])) is None
    assert len(warned) == 2
    assert all("has a name that does not match its content" in text for text in warned)


def test_a_file_of_another_kind_or_name_is_refused(journal: Journal, warned: list[str]) -> None:
    path = journal.write("shard", ["aa"], ARRAYS)
    shutil.copy(path, path.with_name(path.name.replace("shard", "rung")))
    shutil.copy(path, path.with_name("copy.safetensors"))
    journal = reopened(journal)
    assert journal.find("rung", "aa") is None
    assert journal.find("shard", "aa") == (path, 0)
    assert len(warned) == 2


def test_a_file_of_another_version_is_set_aside(
    journal: Journal, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, version in (("aa", "0"), ("bb", "2")):
        monkeypatch.setattr(journal_module, "VERSION", version)
        journal.write("shard", [key], ARRAYS)
    monkeypatch.undo()
    journal = reopened(journal)
    assert journal.files == 0
    assert len(names(journal.folder / DAMAGED)) == 2
    assert sorted(text.split(" has ")[1] for text in warned) == [
        f"version {version}, and this Shoal reads version 1; it was moved to damaged/, and its work is computed again"
        for version in ("0", "2")
    ]


def test_other_safetensors_and_nonsense_are_set_aside(journal: Journal, warned: list[str]) -> None:
    good = journal.write("shard", ["aa"], ARRAYS)
    strange = {
        "none": b"",
        "zeros": b"\0" * 100,
        "deep": b"\xa0\x86\x01" + b"\0" * 5 + b"[" * 100_000,
        "list": b"\x02" + b"\0" * 7 + b"[]",
        "long": b"\xff" * 200,
        "foreign": b"\x10" + b"\0" * 7 + b'{"__metadata__":{"format":"pt"}}'[:16],
    }
    for name, content in strange.items():
        (journal.folder / f"{name}.safetensors").write_bytes(content)
    (journal.folder / "folder.safetensors").mkdir()
    journal = reopened(journal)
    assert names(journal.folder) == {good.name, DAMAGED}
    assert len(warned) == len(strange) + 1


def test_a_right_checksum_does_not_make_wrong_shapes_right(journal: Journal, warned: list[str]) -> None:
    """A file that somebody made: its checksum fits, and its arrays do not."""
    path = journal.write("shard", ["aa"], {"x": np.zeros(4), "y": np.zeros(4)})
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    for old, new in [
        (b'"shape":[4]', b'"shape":[5]'),
        (b'"shape":[4]', b'"shape":"4"'),
        (b"[0,32]", b"[8,40]"),
        (b'"F64"', b'"F99"'),
        (b'{"dtype"', b'["dtype"'),
    ]:
        text = content[8:length].replace(old, new, 1)
        begin = tensors.sealed(content[:8] + text, tensors.NO_SEAL)
        right = hashlib.sha256(begin + content[length:]).hexdigest()
        path.write_bytes(tensors.sealed(begin, right) + content[length:])
        assert journal.read(path) is None
    assert len(warned) == 5
    assert len(names(journal.folder / DAMAGED)) == 5, "numbered where names clash"


def test_a_file_that_is_gone_is_computed_again(journal: Journal, warned: list[str]) -> None:
    path = journal.write("shard", ["aa"], ARRAYS)
    path.unlink()
    assert journal.read(path) is None
    assert journal.find("shard", "aa") is None
    assert warned == [f"{path} has disappeared; its work is computed again"]


def test_what_a_crash_left_half_written_is_removed(journal: Journal, warned: list[str]) -> None:
    path = journal.write("shard", ["aa"], ARRAYS)
    (journal.folder / f".{path.stem}.shoal-4711-3.part.safetensors").write_bytes(b"half")
    (journal.folder / ".events.shoal-4711-4.part.jsonl").write_bytes(b"half")
    (journal.folder / ".mine.4711-4.part.jsonl").touch()
    (journal.folder / ".of-somebody-else").touch()
    assert names(reopened(journal).folder) == {path.name, ".of-somebody-else", ".mine.4711-4.part.jsonl"}
    assert not warned


# Events

EVENTS_GIVEN = [
    ("rung", {"kept": [1, 2], "score": 1 / 3}),
    ("clock", float("inf")),
    ("note", "naïve\n\r\u2028"),
    ("n", None),
]


def test_events_come_back_in_order(journal: Journal) -> None:
    assert journal.events() == []
    for number, event in enumerate(EVENTS_GIVEN):
        journal = reopened(journal) if number == 2 else journal
        journal.note(*event)
    journal.note("numpy", {"array": np.arange(2), "number": np.float32(0.5)})
    expected = [*EVENTS_GIVEN, ("numpy", {"array": [0, 1], "number": 0.5})]
    assert journal.events() == reopened(journal).events() == read_events(journal.folder) == expected
    lines = (journal.folder / EVENTS).read_text().splitlines()
    assert [json.loads(line)[1] for line in lines] == ["rung", "clock", "note", "n", "numpy"]


def test_the_last_event_may_be_cut_anywhere(journal: Journal, warned: list[str]) -> None:
    for event in EVENTS_GIVEN:
        journal.note(*event)
    path = journal.folder / EVENTS
    content = path.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        whole = EVENTS_GIVEN[: content[:end].count(b"\n")]
        assert read_events(journal.folder) == whole
        assert path.stat().st_size == end, "looking changes nothing"
        if end % 7 == 0:
            later = reopened(journal)
            later.note("more", end)
            assert later.events() == [*whole, ("more", end)]
    assert not warned
    assert names(journal.folder) == {EVENTS}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_event_ends_the_list(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    warned: list[str] = []
    journal = Journal(tmp_path_factory.mktemp("events"), warned.append)
    for event in EVENTS_GIVEN:
        journal.note(*event)
    path = journal.folder / EVENTS
    content = path.read_bytes()
    bit = data.draw(st.integers(0, 8 * (len(content) - 1) - 1))
    flip(path, bit)
    whole = EVENTS_GIVEN[: content[: bit // 8].count(b"\n")]
    journal = reopened(journal)
    assert journal.events() == whole
    assert warned == [
        f"{path} is damaged after event {len(whole)}; a copy is in damaged/, and what came after that event "
        "is decided again"
    ]
    journal.note("more", 1)
    assert reopened(journal).events() == [*whole, ("more", 1)]
    assert len(warned) == 1
    assert names(journal.folder / DAMAGED) == {EVENTS}


@pytest.mark.parametrize("change", ["left out", "swapped", "twice", "first left out"])
def test_lines_of_events_cannot_move(journal: Journal, warned: list[str], change: str) -> None:
    for event in EVENTS_GIVEN:
        journal.note(*event)
    path = journal.folder / EVENTS
    a, b, c, d = path.read_bytes().splitlines(keepends=True)
    changed, good = {
        "left out": ([a, c, d], 1),
        "swapped": ([a, c, b, d], 1),
        "twice": ([a, b, b, c, d], 2),
        "first left out": ([b, c, d], 0),
    }[change]
    path.write_bytes(b"".join(changed))
    assert reopened(journal).events() == EVENTS_GIVEN[:good]
    assert len(warned) == 1


def test_a_second_writer_is_noticed(journal: Journal) -> None:
    other = reopened(journal)
    other.note("a", 1)
    with pytest.raises(CannotWrite, match="was changed by another process"):
        journal.note("b", 2)
    assert reopened(journal).events() == [("a", 1)]


def test_what_is_no_file_is_set_aside_and_nobody_waits_for_it(journal: Journal, warned: list[str]) -> None:
    path = journal.write("shard", ["aa"], ARRAYS)
    path.unlink()
    os.mkfifo(path)
    again = reopened(journal)
    assert again.find("shard", "aa") is None
    assert "is a FIFO, not a file" in warned[0]
    os.mkfifo(journal.folder / "fifo.jsonl")
    os.replace(journal.folder / "fifo.jsonl", journal.folder / "events.jsonl")
    with pytest.raises(ValueError, match="is a FIFO, not a file"):
        reopened(journal)

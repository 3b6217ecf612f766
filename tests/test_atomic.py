"""Files and folders appear whole or not at all, and reach the disk before their name does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal import atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_half(path: Path) -> None:
    with path.open("w") as file:
        file.writelines(["half", 7])  # type: ignore[list-item]


def test_a_file_takes_the_place_of_the_old_one_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    with atomic.new_file(target) as partial:
        assert partial.suffix == ".html", "some libraries write by the ending"
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names(tmp_path) == ["page.html"]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("old")
    (tmp_path / "file").write_text("old")
    with pytest.raises(TypeError), atomic.new_folder(tmp_path / "model") as folder:
        write_half(folder / "weights")
    with pytest.raises(TypeError), atomic.new_file(tmp_path / "file") as partial:
        write_half(partial)
    assert names(tmp_path) == ["file", "model"]
    assert (tmp_path / "model" / "weights").read_text() == (tmp_path / "file").read_text() == "old"


def test_a_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "older").touch()
    with atomic.new_folder(tmp_path / "model") as folder:
        (folder / "weights").write_text("new")
        assert names(tmp_path / "model") == ["older"]
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["weights"]


def test_content_is_on_the_disk_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted(handle: int) -> None:
        happened.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        sync(handle)

    def renamed(source: Path, target: Path) -> None:
        happened.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", renamed)
    atomic.write_text(tmp_path / "settings.json", "{}\n")
    assert happened == ["file", "rename", "folder"]
    happened.clear()
    with atomic.new_folder(tmp_path / "model") as folder:
        (folder / "weights").touch()
    assert happened == ["file", "folder", "rename", "folder"]


def test_a_link_stays_a_link_and_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "there" / "real.csv")
    atomic.write_text(tmp_path / "link.csv", "a,b\n")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "there" / "real.csv").read_text() == "a,b\n"
    atomic.write_text(Path(os.devnull), "x")
    assert not Path(os.devnull).is_file()


def test_a_finished_run_is_never_written_over(tmp_path: Path) -> None:
    for name in ("new", "taken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    with pytest.raises(OSError, match="taken"):
        atomic.rename(tmp_path / "new", tmp_path / "taken")
    atomic.rename(tmp_path / "new", tmp_path / "free")
    assert names(tmp_path) == ["free", "taken"]


def test_what_a_killed_process_left_is_known_by_its_marker(tmp_path: Path) -> None:
    with atomic.new_folder(tmp_path / "model") as folder, atomic.new_file(tmp_path / "page.html") as file:
        file.touch()
        assert atomic.is_left_over(folder)
        assert atomic.is_left_over(file)
        (tmp_path / ".link.shoal-1-1.part").symlink_to(folder)
        (tmp_path / ".mine.shoal-1-1.part").mkdir()
        (tmp_path / ".other.1-1.part").touch()
        for name in (".link.shoal-1-1.part", ".mine.shoal-1-1.part", ".other.1-1.part"):
            assert not atomic.is_left_over(tmp_path / name)
    assert names(tmp_path / "model") == []


def test_a_folder_takes_the_mode_of_the_one_it_replaces_and_no_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model").chmod(0o750)
    with atomic.new_folder(tmp_path / "model"):
        pass
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o750
    (tmp_path / "model" / "precious").touch()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(ValueError, match="is a symbolic link"), atomic.new_folder(tmp_path / "link"):
        pass
    assert names(tmp_path) == ["link", "model"]
    assert names(tmp_path / "model") == ["precious"]

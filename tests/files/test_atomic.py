"""Files and folders appear whole or not at all, and reach the disk before their name does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.disks import small_disk

from shoal.errors import CannotWrite, UserError
from shoal.files import atomic


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


# ---- errors name what was asked for ----


def broken_places(folder: Path) -> dict[str, Path]:
    """Where nothing can be written: below a file, in a folder that is not there, under a name that is too long."""
    (folder / "file").write_text("x")
    return {
        "its folder is a file; choose another": folder / "file" / "page.html",
        "create the folder": folder / "missing" / "page.html",
        "shorter name": folder / f"{'n' * 250}.html",
    }


def hidden(text: str) -> bool:
    return ".part" in text or "Errno" in text


def test_errors_name_the_file_that_was_asked_for_and_a_remedy(tmp_path: Path) -> None:
    for remedy, target in broken_places(tmp_path).items():
        for write in (lambda: atomic.write_text(target, "x"), lambda: _write_folder(target),  # noqa: B023
                      lambda: _write_by_library(target)):  # fmt: skip # noqa: B023
            with pytest.raises(CannotWrite) as caught:
                write()
            assert str(target) in str(caught.value)
            assert remedy in str(caught.value)
            assert not hidden(str(caught.value)), caught.value
            assert caught.value.errno


def _write_folder(target: Path) -> None:
    with atomic.new_folder(target) as folder:
        (folder / "weights").touch()


def _write_by_library(target: Path) -> None:
    """Safetensors and torch raise errors of their own, which name the hidden file or none."""
    with atomic.new_file(target) as partial:
        raise RuntimeError(f"Parent directory {partial} does not exist")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_while_writing_is_named_by_its_folder(tmp_path: Path, number: int) -> None:
    says = r"page\.html cannot be written: "
    with pytest.raises(CannotWrite, match=says) as caught, atomic.new_file(tmp_path / "page.html"):
        raise OSError(number, os.strerror(number))
    assert str(tmp_path) in str(caught.value)
    assert (caught.value.errno, caught.value.strerror) == (number, os.strerror(number))
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [
    FileNotFoundError(errno.ENOENT, "No such file", "table.csv"), ConnectionResetError(errno.ECONNRESET, "Reset"),
    OSError("the mirror says no"), ValueError("a row is too long"),
])  # fmt: skip
def test_errors_of_something_else_stay_what_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, atomic.new_file(tmp_path / "page.html"):
        raise error
    assert caught.value is error


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system that cannot be written to, where this user may mount one."""
    with small_disk(tmp_path / "disk", "ro") as place:
        yield place


def test_a_read_only_disk(read_only: Path) -> None:
    for write in (lambda: atomic.write_text(read_only / "page.html", "x"), lambda: _write_folder(read_only / "model"),
                  lambda: atomic.check_target(read_only / "page.html")):  # fmt: skip
        with pytest.raises(CannotWrite, match=r"Read-only file system; make .*disk writable, or choose") as caught:
            write()
        assert not hidden(str(caught.value))


def test_a_place_is_tried_before_the_work(tmp_path: Path) -> None:
    for remedy, target in broken_places(tmp_path).items():
        if remedy != "create the folder":
            with pytest.raises(CannotWrite, match=remedy):
                atomic.check_target(target)
    atomic.check_target(tmp_path / "new" / "page.html")
    assert names(tmp_path / "new") == []
    atomic.check_target(Path(os.devnull))
    with pytest.raises(UserError, match="is a folder: give the name of a file"):
        atomic.check_target(tmp_path / "new")

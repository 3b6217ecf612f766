"""The search itself is killed, and its journal damaged: the same command goes on, and gives the same bytes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from support.faults import RECIPES, Scene, scene

from shoal.bench.faults import kinds


def unchanged(files: dict[Path, int]) -> bool:
    """Whether files that were there are the same ones: nothing was computed again and written in their place."""
    return all(path.stat().st_mtime_ns == written for path, written in files.items() if path.exists())


@pytest.mark.parametrize("cluster", ["serial", "local"])
def test_a_search_that_is_killed_again_and_again_ends_with_the_same_bytes(
    tmp_path: Path, table: Path, right: bytes, cluster: str
) -> None:
    with scene(table, tmp_path / "a", RECIPES, cluster) as search:
        for _ in range(3 if cluster == "serial" else 1):
            search.start_and_kill(files=random.randint(1, 2))
        finished = {path: path.stat().st_mtime_ns for path in search.story.files}
        search.finish()
        assert search.story.weights() == right
        assert unchanged(finished)
        assert search.story.resumed >= 1
    assert len(search.story.attempts) >= 2


@pytest.fixture(scope="module")
def interrupted(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a search has left that was killed when it had written some files."""
    folder = tmp_path_factory.mktemp("interrupted")
    with scene(table, folder, RECIPES) as search:
        search.start_and_kill(files=4)
    return folder / "out"


def resume(table: Path, interrupted: Path, folder: Path, *ways: kinds.Way) -> tuple[Scene, str]:
    """Damage a copy of an interrupted run in some ways, each in another file, and go on with it."""
    shutil.copytree(interrupted, folder / "out")
    with scene(table, folder, RECIPES) as search:
        files = search.story.files
        chance = random.Random()
        chance.shuffle(files)
        for way in ways:
            count = 2 if way is kinds.swap else 1
            assert way(files[:count], chance)
            del files[:count]
        said = search.finish()
    return search, " ".join(said.split())


def test_files_of_the_journal_that_were_cut_or_changed_are_computed_again(
    tmp_path: Path, table: Path, interrupted: Path, right: bytes
) -> None:
    search, said = resume(table, interrupted, tmp_path, kinds.truncate, kinds.flip)
    assert search.story.weights() == right
    assert said.count("its work is computed again") == 2


def test_files_of_the_journal_that_were_swapped_or_removed_are_computed_again(
    tmp_path: Path, table: Path, interrupted: Path, right: bytes
) -> None:
    search, said = resume(table, interrupted, tmp_path, kinds.swap, kinds.delete)
    assert search.story.weights() == right
    assert said.count("has the name of other work than it holds") == 2

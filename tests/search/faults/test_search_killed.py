"""The search itself is killed, and its journal damaged: the same command goes on, and gives the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from safetensors import safe_open
from support.faults import RECIPES, scene

from benchmarks.search.faults import kinds
from shoal.runs.journal import Journal


def written(files: list[Path]) -> dict[Path, int]:
    """Files with results, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in files if path.name.startswith("shard-")}


def keys_in(path: Path) -> list[str]:
    with safe_open(path, "np") as file:
        keys: str = file.metadata()["keys"]
    return keys.split(",")


def results_in(folder: Path) -> int:
    """Results that a search has left, as its journal has them."""
    return Journal(folder / "journal").count("shard")


@pytest.mark.parametrize("cluster", ["serial", "local"])
def test_a_search_that_is_killed_again_and_again_ends_with_the_same_bytes(
    tmp_path: Path, table: Path, right: bytes, cluster: str
) -> None:
    with scene(table, tmp_path / "a", RECIPES, cluster) as search:
        search.start_and_kill(shards=random.randint(1, 2))
        before = written(search.story.files)
        search.start_and_kill(shards=1)
        after = written(search.story.files)
        assert before.items() <= after.items(), "what was finished stays as it is"
        keys = [key for path in after for key in keys_in(path)]
        assert len(keys) == len(set(keys)), "and is not trained again"
        left = results_in(search.story.out)
        search.finish()
        assert search.story.weights() == right
        assert search.story.attempts[-1].found == left == len(keys)


def test_a_journal_that_lies_is_not_believed(tmp_path: Path, table: Path, right: bytes) -> None:
    """One file is cut, one changed, one gone, two have each other's name: their work, and no more, is done again."""
    with scene(table, tmp_path / "a", RECIPES) as search:
        search.start_and_kill(shards=4)
        results = results_in(search.story.out)
        files, chance = search.story.files, random.Random()
        chance.shuffle(files)
        files.sort(key=lambda path: not path.name.startswith("shard-"))  # results first: some of them must be lost
        assert kinds.truncate(files[:1], chance)
        assert kinds.flip(files[1:2], chance)
        assert kinds.delete(files[2:3], chance)
        assert kinds.swap(files[3:5], chance)
        said = " ".join(search.finish().split())
        assert search.story.weights() == right
    assert said.count("has a name that does not match its content; it was moved to damaged/") == 2
    assert search.story.attempts[-1].found < results

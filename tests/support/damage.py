"""Ways in which a file of a run may be damaged, drawn by hypothesis."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from support.in_process import working_in

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["score", "x"]), inner, max_size=2),
    max_leaves=4,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from _paths(inner, (*path, key))


def _damage_json(file: Path, data: st.DataObject) -> None:
    """A value of another type somewhere in a file of JSON; in each line, if it has several."""
    try:
        values = [json.loads(line) for line in [file.read_text()] if line]
    except ValueError:
        values = [json.loads(line) for line in file.read_text().splitlines()]
    written = []
    for value in values or [{}]:
        path = data.draw(st.sampled_from(list(_paths(value))))
        junk = data.draw(JUNK)
        if path:
            inner = value
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = junk
        else:
            value = junk
        written.append(json.dumps(value))
    file.write_text("\n".join(written))


def damage(file: Path, data: st.DataObject) -> None:
    """Do something to a file that users, disks and other programs do."""
    how = data.draw(st.sampled_from(HOW))
    content = file.read_bytes()
    if how == "other types":
        if file.suffix in (".json", ".jsonl"):
            _damage_json(file, data)
        return
    if how in ("truncated", "bytes"):
        cut = data.draw(st.integers(0, len(content)))
        file.write_bytes(content[:cut] + (data.draw(st.binary(max_size=20)) if how == "bytes" else b""))
        return
    if how == "empty":
        file.write_bytes(b"")
        return
    if how == "huge":
        os.truncate(file, 2**40)
        return
    if how == "unreadable":  # but for root, who may read everything
        file.chmod(0)
        return
    file.unlink()
    if how == "fifo":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
    elif how == "loop":
        file.symlink_to(file)
    elif how == "socket":
        with working_in(file.parent), socket.socket(socket.AF_UNIX) as bound:
            bound.bind(file.name)


HOW = (
    "deleted",
    "empty",
    "truncated",
    "bytes",
    "other types",
    "fifo",
    "folder",
    "loop",
    "socket",
    "huge",
    "unreadable",
)

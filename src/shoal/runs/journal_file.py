"""A file of the journal: safetensors, with a sha256 over all its bytes in the metadata.

The checksum covers the header too: it stands at a known place there, and is zeros while it is computed. The pieces of a
file are written from where they are in memory, and read into one piece of memory, once: what was checked is what is
used. (A file mapped into memory could change after the check, and a bad disk would be a SIGBUS.)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal import tensors
from shoal.plain_files import open_file
from shoal.tensors import METADATA

FORMAT, VERSION, ENDING = "shoal-journal", "1", ".safetensors"
START = b'{"__metadata__":{"sha256":"'
ZEROS = "0" * 64
FIRST = 65_536  # bytes; most headers fit


class Damaged(Exception):
    """A file that cannot be used; the text is the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Head:
    """What a file holds, and for which keys. Its name follows from that."""

    kind: str
    keys: tuple[str, ...]

    @property
    def file_name(self) -> str:
        return f"{self.kind}-{hashlib.sha256(','.join((self.kind, *self.keys)).encode()).hexdigest()[:32]}{ENDING}"


def pieces(head: Head, arrays: Mapping[str, np.ndarray], about: str) -> list[bytes | memoryview]:
    """A file's bytes, in pieces: arrays are not copied, unless they are strided."""
    metadata = {
        "sha256": ZEROS, "format": FORMAT, "version": VERSION,
        "kind": head.kind, "keys": ",".join(head.keys), "about": about,
    }  # fmt: skip
    described, data = tensors.layout(arrays)
    begin = tensors.header_bytes({METADATA: metadata} | described)
    return [_with_checksum(begin, _sha256([begin, *data])), *data]


def read_head(path: Path) -> Head:
    """What the beginning of a file says, without its arrays. The name and the length are checked."""
    with open(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = file.read(FIRST)
        length = 8 + int.from_bytes(begin[:8], "little")
        if len(begin) < 8 or length > size:
            raise Damaged("is damaged (cut short)")
        begin += file.read(max(0, length - len(begin)))
    header, head = _parsed(path.name, begin[8:length])
    if length + _data_size(header) != size:
        raise Damaged("is damaged (cut short)")
    return head


def read(path: Path) -> np.ndarray:
    """The bytes of a file, read once."""
    with open(open_file(path), "rb", buffering=0) as file:
        content = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        rest = content.data
        while rest:
            count = file.readinto(rest)
            if not count:
                raise Damaged("is damaged (cut short)")
            rest = rest[count:]
    content.flags.writeable = False
    return content


def checked(name: str, content: np.ndarray) -> tuple[Head, dict[str, np.ndarray], str]:
    """What the bytes of a file with this name hold: keys, arrays, and a JSON text about them."""
    length = 8 + int.from_bytes(content[:8].tobytes(), "little")
    if len(content) < 8 or length > len(content):
        raise Damaged("is damaged (cut short)")
    begin = content[:length].tobytes()
    header, head = _parsed(name, begin[8:])
    place = 8 + len(START)
    if _sha256([_with_checksum(begin, ZEROS), content[length:].data]).encode() != begin[place : place + 64]:
        raise Damaged("is damaged (checksum)")
    try:
        arrays = tensors.arrays_in(header, content[length:])
    except tensors.NotTensors as error:
        raise Damaged(f"is damaged ({error})") from None
    return head, arrays, header[METADATA]["about"]


def _parsed(name: str, text: bytes) -> tuple[dict[str, Any], Head]:
    try:
        header = json.loads(text)
        metadata = header[METADATA]
        found = metadata["format"], metadata["version"], metadata["kind"], metadata["keys"], metadata["about"]
        if not all(isinstance(value, str) for value in found):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Damaged("is damaged, or is no file of a journal (its header)") from None
    if found[0] != FORMAT:
        raise Damaged("is no file of a journal")
    if found[1] != VERSION:
        raise Damaged(f"is of another version ({found[1][:20]}; this Shoal has {VERSION})")
    if not text.startswith(START):
        raise Damaged("is damaged (its header)")
    head = Head(found[2], tuple(found[3].split(",")))
    if head.file_name != name:
        raise Damaged("has the name of other work than it holds")
    return header, head


def _data_size(header: dict[str, Any]) -> int:
    try:
        return sum(tensors.size_of(described) for name, described in header.items() if name != METADATA)
    except tensors.NotTensors as error:
        raise Damaged(f"is damaged ({error})") from None


def _with_checksum(begin: bytes, digits: str) -> bytes:
    place = 8 + len(START)
    return begin[:place] + digits.encode() + begin[place + 64 :]


def _sha256(parts: list[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()

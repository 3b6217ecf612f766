"""A file of the journal: safetensors, with a sha256 over all its bytes in the metadata, written and read by hand.

By hand, because the checksum covers the header too: it stands at a known place, and is zeros while it is computed.
The pieces of a file are written from where they are in memory, and read into one piece of memory, once: what was
checked is what is used. (A file mapped into memory could change after the check, and a bad disk would be a SIGBUS.)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT, VERSION, ENDING = "shoal-journal", "1", ".safetensors"
START = b'{"__metadata__":{"sha256":"'
ZEROS = "0" * 64
ALIGNED = 64  # bytes; where the arrays begin
FIRST = 65_536  # bytes; most headers fit
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}


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
    header: dict[str, Any] = {"__metadata__": metadata}
    data: list[bytes | memoryview] = []
    end = 0
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):  # each begins aligned
        array = np.asarray(arrays[name], arrays[name].dtype.newbyteorder("<"), order="C")
        if array.dtype not in NAMES or name == "__metadata__":
            raise ValueError(f"the journal has no room for {name!r}, an array of {array.dtype}")
        header[name] = {"dtype": NAMES[array.dtype], "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        data.append(array.reshape(-1).view(np.uint8).data)
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    begin = len(text).to_bytes(8, "little") + text
    return [_with_checksum(begin, _sha256([begin, *data])), *data]


def read_head(path: Path) -> Head:
    """What the beginning of a file says, without its arrays. The name and the length are checked."""
    with open(path, "rb") as file:
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
    with open(path, "rb", buffering=0) as file:
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
    data, end, arrays = content[length:], 0, {}
    for array_name, described in header.items():
        if array_name != "__metadata__":
            begin_of, end = end, end + _size(described)
            if described["data_offsets"] != [begin_of, end] or end > len(data):
                raise Damaged("is damaged (places of its arrays)")
            arrays[array_name] = data[begin_of:end].view(TYPES[described["dtype"]]).reshape(described["shape"])
    if end != len(data):
        raise Damaged("is damaged (its length)")
    return head, arrays, header["__metadata__"]["about"]


def _parsed(name: str, text: bytes) -> tuple[dict[str, Any], Head]:
    try:
        header = json.loads(text)
        metadata = header["__metadata__"]
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
    return sum(_size(described) for name, described in header.items() if name != "__metadata__")


def _size(described: Any) -> int:
    """Bytes of an array, as its description has it."""
    try:
        shape = described["shape"]
        whole = isinstance(shape, list) and isinstance(described["data_offsets"], list)
        if not whole or not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError
        return math.prod(shape) * np.dtype(TYPES[described["dtype"]]).itemsize
    except (ValueError, LookupError, TypeError):
        raise Damaged("is damaged (shapes of its arrays)") from None


def _with_checksum(begin: bytes, digits: str) -> bytes:
    place = 8 + len(START)
    return begin[:place] + digits.encode() + begin[place + 64 :]


def _sha256(parts: list[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()

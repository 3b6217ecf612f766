"""Arrays as bytes: safetensors, with JSON about them in the metadata. No code, no pickle.

Arrays are read where they lie, without a copy: in bytes, or in a file mapped into memory. What comes from elsewhere is
checked before it is used.

A sealed file (journal, population) also has a sha256 of all its bytes, header included. The digits stand at a known
place, and are zeros while they are computed. A sealed file is read into one piece of memory, once: what was checked is
what is used. (A file mapped into memory could change after the check, and a bad disk would be a SIGBUS.)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.files import atomic
from shoal.files.plain_files import open_file

ALIGNED = 64  # bytes; where the arrays begin
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
METADATA = "__metadata__"
SEALED = b'{"__metadata__":{"sha256":"'  # how the header of a sealed file begins
SEAL = slice(8 + len(SEALED), 8 + len(SEALED) + 64)  # where the digits are
NO_SEAL = "0" * 64
FIRST_READ = 65_536  # bytes; most headers fit


class NotTensors(ValueError):
    """Bytes that are not what they should be; the text says what is wrong with them."""


# ---- arrays and JSON ----


def pack(arrays: Mapping[str, np.ndarray], about: Any) -> bytes:
    """
    >>> arrays, about = unpack(pack({"x": np.arange(3)}, {"name": "three"}))
    >>> arrays["x"].tolist(), about
    ([0, 1, 2], {'name': 'three'})
    """
    return b"".join(_pieces(arrays, {"about": as_json(about)}))


def digest(arrays: Mapping[str, np.ndarray], about: Any) -> str:
    """The SHA-256 of what `pack` gives, without making it."""
    return _sha256(_pieces(arrays, {"about": as_json(about)}))


def unpack(content: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Arrays and what was said about them, from bytes or a file mapped into memory; the arrays are not copies."""
    data = np.frombuffer(content, np.uint8)
    length = _header_length(data[:8].tobytes(), len(data))
    header = _header(data[8:length].tobytes())
    return _arrays_in(header, data[length:]), _about(header)


def as_json(value: Any) -> str:
    """One form for each value, with all digits of its numbers."""
    return json.dumps(value, default=lambda other: other.tolist())


# ---- sealed files ----


def seal(arrays: Mapping[str, np.ndarray], about: Any, labels: Mapping[str, str]) -> list[bytes | memoryview]:
    """The bytes of a file in pieces, not copied unless an array is strided. `labels` are read without the arrays."""
    begin, *data = _pieces(arrays, {"sha256": NO_SEAL, **labels, "about": as_json(about)})
    return [sealed(bytes(begin), _sha256([begin, *data])), *data]


def unseal(content: np.ndarray) -> tuple[dict[str, str], dict[str, np.ndarray], Any]:
    """Labels, arrays and what was said about them; `NotTensors` if any bit has changed."""
    length = _header_length(content[:8].tobytes(), len(content))
    begin = content[:length].tobytes()
    header = _header(begin[8:])
    if (
        not begin[8:].startswith(SEALED)
        or _sha256([sealed(begin, NO_SEAL), content[length:].data]).encode() != begin[SEAL]
    ):
        raise NotTensors("checksum")
    return header[METADATA], _arrays_in(header, content[length:]), _about(header)


def sealed(begin: bytes, digits: str) -> bytes:
    """The beginning of a file with these digits for its checksum."""
    return begin[: SEAL.start] + digits.encode() + begin[SEAL.stop :]


def read_labels(path: Path) -> dict[str, str]:
    """The labels of a sealed file, read without its arrays. Only the length is checked."""
    with open(open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = file.read(FIRST_READ)
        length = _header_length(begin[:8], size)
        begin += file.read(max(0, length - len(begin)))
    header = _header(begin[8:length])
    if not begin[8:].startswith(SEALED):
        raise NotTensors("its header")
    if length + sum(_size_of(described) for name, described in header.items() if name != METADATA) != size:
        raise NotTensors("cut short")
    return header[METADATA]


def read_sealed(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray], Any]:
    """What `write_sealed` wrote. The arrays cannot be written to and share one piece of memory."""
    with open(open_file(path), "rb", buffering=0) as file:
        content = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        rest = content.data
        while rest:
            count = file.readinto(rest)
            if not count:
                raise NotTensors("cut short")
            rest = rest[count:]
    content.flags.writeable = False
    return unseal(content)


def write_sealed(path: Path, arrays: Mapping[str, np.ndarray], about: Any, labels: Mapping[str, str]) -> None:
    """Write a file that is there whole or not at all."""
    with atomic.new_file(path) as partial, open(partial, "xb", buffering=0) as file:
        for piece in seal(arrays, about, labels):
            write_all(file.fileno(), piece)


def write_all(handle: int, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


# ---- the format ----


def _pieces(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    header: dict[str, Any] = {METADATA: metadata}
    pieces: list[bytes | memoryview] = []
    end = 0
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):  # each begins aligned
        array = np.asarray(arrays[name], arrays[name].dtype.newbyteorder("<"), order="C")
        if array.dtype not in NAMES or name == METADATA:
            raise ValueError(f"safetensors have no room for {name!r}, an array of {array.dtype}")
        header[name] = {
            "dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]
        }  # fmt: skip
        pieces.append(array.reshape(-1).view(np.uint8).data)
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def _header_length(first: bytes, size: int) -> int:
    length = 8 + int.from_bytes(first, "little")
    if len(first) < 8 or length > size:
        raise NotTensors("cut short")
    return length


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
        if not all(isinstance(label, str) for label in header[METADATA].values()):
            raise TypeError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise NotTensors("its header") from None
    return dict(header)


def _about(header: Mapping[str, Any]) -> Any:
    try:
        return json.loads(header[METADATA]["about"])
    except (ValueError, LookupError, RecursionError):
        raise NotTensors("its JSON") from None


def _arrays_in(header: Mapping[str, Any], data: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that a header describes, in the bytes that follow it."""
    end, arrays = 0, {}
    for name, described in header.items():
        if name != METADATA:
            begin, end = end, end + _size_of(described)
            if described["data_offsets"] != [begin, end] or end > len(data):
                raise NotTensors("places of its arrays")
            arrays[name] = _shaped(data[begin:end].view(TYPES[described["dtype"]]), described["shape"])
    if end != len(data):
        raise NotTensors("its length")
    return arrays


def _shaped(array: np.ndarray, shape: list[int]) -> np.ndarray:
    """NumPy has limits that a right size does not imply: an empty array may claim any length or many dimensions."""
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        raise NotTensors("shapes of its arrays") from None


def _size_of(described: Any) -> int:
    """Bytes of an array, as its description has it."""
    try:
        shape = described["shape"]
        whole = isinstance(shape, list) and isinstance(described["data_offsets"], list)
        if not whole or not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError
        return math.prod(shape) * np.dtype(TYPES[described["dtype"]]).itemsize
    except (ValueError, LookupError, TypeError):
        raise NotTensors("shapes of its arrays") from None


def _sha256(parts: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()

"""Arrays as bytes: safetensors, with JSON about them in the metadata. No code, no pickle.

Arrays are read where they lie, without a copy: in bytes, or in a file mapped into memory. What comes from elsewhere is
checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

ALIGNED = 64  # bytes; where the arrays begin
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
METADATA = "__metadata__"


class NotTensors(ValueError):
    """Bytes that are not what they should be; the text says what is wrong with them."""


def layout(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], list[memoryview]]:
    """The descriptions of arrays in a header, and their bytes, which are not copied unless an array is strided."""
    described: dict[str, Any] = {}
    pieces: list[memoryview] = []
    end = 0
    for name in sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name)):  # each begins aligned
        array = np.asarray(arrays[name], arrays[name].dtype.newbyteorder("<"), order="C")
        if array.dtype not in NAMES or name == METADATA:
            raise ValueError(f"safetensors have no room for {name!r}, an array of {array.dtype}")
        described[name] = {
            "dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]
        }  # fmt: skip
        pieces.append(array.reshape(-1).view(np.uint8).data)
        end += array.nbytes
    return described, pieces


def header_bytes(header: Mapping[str, Any]) -> bytes:
    """The beginning of a file, up to its arrays."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    return len(text).to_bytes(8, "little") + text


def size_of(described: Any) -> int:
    """Bytes of an array, as its description has it."""
    try:
        shape = described["shape"]
        whole = isinstance(shape, list) and isinstance(described["data_offsets"], list)
        if not whole or not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError
        return math.prod(shape) * np.dtype(TYPES[described["dtype"]]).itemsize
    except (ValueError, LookupError, TypeError):
        raise NotTensors("shapes of its arrays") from None


def arrays_in(header: Mapping[str, Any], data: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that a header describes, in the bytes that follow it."""
    end, arrays = 0, {}
    for name, described in header.items():
        if name != METADATA:
            begin, end = end, end + size_of(described)
            if described["data_offsets"] != [begin, end] or end > len(data):
                raise NotTensors("places of its arrays")
            arrays[name] = data[begin:end].view(TYPES[described["dtype"]]).reshape(described["shape"])
    if end != len(data):
        raise NotTensors("its length")
    return arrays


def pack(arrays: Mapping[str, np.ndarray], about: Any) -> bytes:
    """
    >>> arrays, about = unpack(pack({"x": np.arange(3)}, {"name": "three"}))
    >>> arrays["x"].tolist(), about
    ([0, 1, 2], {'name': 'three'})
    """
    return b"".join(_pieces(arrays, about))


def digest(arrays: Mapping[str, np.ndarray], about: Any) -> str:
    """The SHA-256 of what `pack` gives, without making it."""
    found = hashlib.sha256()
    for piece in _pieces(arrays, about):
        found.update(piece)
    return found.hexdigest()


def _pieces(arrays: Mapping[str, np.ndarray], about: Any) -> list[bytes | memoryview]:
    described, pieces = layout(arrays)
    metadata = {"about": json.dumps(about, default=lambda other: other.tolist())}
    return [header_bytes({METADATA: metadata} | described), *pieces]


def unpack(content: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Arrays and what was said about them, from bytes or a file mapped into memory; the arrays are not copies."""
    data = np.frombuffer(content, np.uint8)
    length = 8 + int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or length > len(data):
        raise NotTensors("it is cut short")
    try:
        header = json.loads(data[8:length].tobytes())
        about = json.loads(header[METADATA]["about"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise NotTensors("its header") from None
    return arrays_in(header, data[length:]), about

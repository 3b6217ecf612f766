"""Bytes that claim to be safetensors and are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.files import tensors


@pytest.mark.parametrize("shape", [[0, 10**30], [0, 2**62, 2**62], [0] * 70, [0, 2**63]])
def test_shapes_that_numpy_cannot_have_are_refused(shape: list[int]) -> None:
    array = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    with pytest.raises(tensors.NotTensors, match="shapes of its arrays"):
        tensors.unpack(_content({"x": array}))


def _content(arrays: dict[str, Any]) -> bytes:
    header = json.dumps({"__metadata__": {"about": "{}"}, **arrays}).encode()
    return len(header).to_bytes(8, "little") + header

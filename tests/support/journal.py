"""What a journal is given in tests, and a process that writes one until killed: `python -m support.journal FOLDER`.

For each "go" on its input it starts a process that goes on with the journal, and says `ended` when that was killed. The
process says `started PID`, and then `work N` when it has written work N, `event N` when event N is noted.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from shoal.runs.journal import Journal

PARTS = 3


def keys_of(number: int) -> list[str]:
    return [hashlib.sha256(f"{number} {part}".encode()).hexdigest() for part in range(PARTS)]


def arrays_of(number: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(number)
    return {
        "weights": random.standard_normal((PARTS, int(random.integers(1, 20_000))), np.float32),
        "scores": random.standard_normal(PARTS),
    }


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    """Whether names, shapes, types and bits are equal, whatever the order of bytes was."""
    return found.keys() == expected.keys() and all(
        found[name].shape == array.shape
        and found[name].dtype == array.dtype.newbyteorder("=")
        and found[name].tobytes() == array.astype(found[name].dtype).tobytes()
        for name, array in expected.items()
    )


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def write_for_ever(folder: Path) -> NoReturn:
    os.write(1, f"started {os.getpid()}\n".encode())
    journal = Journal(folder)
    number = len(journal.events())
    while True:
        journal.write("shard", keys_of(number), arrays_of(number), {"number": number})
        os.write(1, f"work {number}\n".encode())
        journal.note("written", number)
        os.write(1, f"event {number}\n".encode())
        number += 1


def main() -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            write_for_ever(Path(sys.argv[1]))
        os.waitpid(child, 0)
        os.write(1, b"ended\n")


if __name__ == "__main__":
    main()

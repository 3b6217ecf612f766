"""Files as those of MNIST, small and made up."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from shoal import datasets


def idx_bytes(array: np.ndarray) -> bytes:
    """An array of bytes as an IDX file."""
    magic = 0x800 + array.ndim
    return np.array([magic, *array.shape], ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, train: int = 60, test: int = 20, zipped: bool = True, seed: int = 0) -> datasets.Images:
    """Ten classes that can be told apart: a bright square whose place depends on the class, on a noisy ground."""
    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    parts: list[np.ndarray] = []
    for count, prefix in ((train, "train"), (test, "t10k")):
        labels = generator.integers(0, 10, count)
        images = generator.integers(0, 60, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 6, 4:20] = 250
        for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            content = idx_bytes(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
        parts += [images.reshape(count, -1).astype(np.uint8), labels]
    return datasets.Images(*parts)

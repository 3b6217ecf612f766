"""Real data for tests, demonstrations and benchmarks: found on this machine, else downloaded."""

from __future__ import annotations

import gzip
import os
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.errors import MissingFile, UserError
from shoal.files import atomic
from shoal.validate import one_of

VARIABLE = "SHOAL_DATA"
TIMEOUT = 20  # seconds without an answer before a mirror is given up
MIRRORS = {
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    "fashion-mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
}
TORCHVISION = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}  # its folders: <root>/MNIST/raw
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IMAGES_MAGIC, LABELS_MAGIC = 0x803, 0x801  # unsigned bytes in three dimensions, in one


class Images(NamedTuple):
    """Images as rows of 784 bytes, and their classes from 0 to 9."""

    X_train: np.ndarray  # (60000, 784) uint8
    y_train: np.ndarray  # (60000,) int64
    X_test: np.ndarray  # (10000, 784) uint8
    y_test: np.ndarray  # (10000,) int64


def places() -> list[Path]:
    """Folders that may hold data sets, in the order in which they are looked at: SHOAL_DATA, and the cache."""
    named = os.environ.get(VARIABLE)
    return [*([Path(named).expanduser()] if named else []), cache_folder()]


def find(relative_path: str) -> Path:
    """A file or folder such as `tabular/german.csv` in the first place that has it."""
    candidates = [place / relative_path for place in places()]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise MissingFile(_not_found(relative_path, candidates))


def load_mnist(kind: str = "mnist", *, download: bool = True) -> Images:
    """`(X_train, y_train, X_test, y_test)` of "mnist" or "fashion-mnist", from IDX files, gzipped or not."""
    one_of("kind", kind, MIRRORS)
    folders = [place / name for place in places() for name in (kind, f"{TORCHVISION[kind]}/raw")]
    for folder in folders:
        paths = [_file(folder, name) for name in IDX_FILES]
        if all(paths):
            return _images([path for path in paths if path])
    failure = "downloading was not allowed"
    if download:
        try:
            return _images(_download(kind))
        except OSError as error:  # no network, no mirror, no place to write to
            failure = f"downloading failed: {error}"
    raise MissingFile(f"{_not_found(kind, folders)}; {failure}")


def read_idx(path: Path, magic: int) -> np.ndarray:
    """The array of unsigned bytes in an IDX file; `magic` says how many dimensions are expected.

    An IDX file is the magic number, the size of each dimension (big-endian, four bytes each), then the bytes.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content = file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is damaged or cut short: {error}. Delete it and fetch it again.") from None
    dimensions = magic & 0xFF
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise UserError(f"{path} is cut short: {len(content)} bytes, but the header alone has {header}")
    found, *shape = np.frombuffer(content, ">u4", 1 + dimensions).tolist()
    if found != magic:
        raise UserError(f"{path} is no IDX file of the kind wanted: magic number {found:#x}, expected {magic:#x}")
    expected = header + int(np.prod(shape, dtype=object))  # Python integers: a broken header must not overflow
    if len(content) != expected:
        fault = "is cut short" if len(content) < expected else "has bytes left over"
        raise UserError(f"{path} {fault}: {len(content):,} bytes, but shape {tuple(shape)} needs {expected:,}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _images(paths: list[Path]) -> Images:
    """The four files, checked against each other."""
    parts: list[np.ndarray] = []
    for images_path, labels_path in (paths[:2], paths[2:]):
        images, labels = read_idx(images_path, IMAGES_MAGIC), read_idx(labels_path, LABELS_MAGIC)
        if len(images) != len(labels):
            raise UserError(f"{images_path} has {len(images):,} images, but {labels_path} has {len(labels):,} labels")
        if images.shape[1:] != (28, 28):
            raise UserError(f"{images_path} has images of {images.shape[1]} x {images.shape[2]}, expected 28 x 28")
        if len(labels) and labels.max() > 9:
            raise UserError(f"{labels_path} has a label {labels.max()}, but classes are 0 to 9")
        parts += [images.reshape(len(images), -1), labels.astype(np.int64)]
    return Images(*parts)


def _download(kind: str) -> list[Path]:
    """Fetch the four files into the cache from the first mirror that has them."""
    folder = cache_folder() / kind
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in IDX_FILES:
        target = folder / f"{name}.gz"
        failures = []
        for mirror in MIRRORS[kind]:
            try:
                _fetch(f"{mirror}{name}.gz", target, IMAGES_MAGIC if "images" in name else LABELS_MAGIC)
                break
            except (OSError, ValueError) as error:
                failures.append(f"{mirror}: {error}")
        else:
            raise urllib.error.URLError("; ".join(failures))
        paths.append(target)
    return paths


def _fetch(address: str, target: Path, magic: int) -> None:
    """Download and check a file; a half-written one is never taken for a whole one."""
    with atomic.new_file(target) as partial:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            partial.write_bytes(answer.read())
        read_idx(partial, magic)


def _file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def cache_folder() -> Path:
    """Where downloads and measurements are kept."""
    return Path.home() / ".cache" / "shoal"


def _not_found(what: str, candidates: list[Path]) -> str:
    listed = ", ".join(map(str, candidates))
    return f"{what} is in none of: {listed}; put it there, or set {VARIABLE} to the folder that holds it"

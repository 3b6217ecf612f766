"""Data sets are found in every documented place, read correctly, and refused with a reason if they are broken."""

from __future__ import annotations

import gzip
import io
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from support.mnist import idx_bytes, write_mnist

from shoal import datasets


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the only place for data sets, without network access."""

    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", ["mnist", "fashion-mnist"])
def test_a_written_data_set_is_read_back(alone: Path, kind: str, zipped: bool) -> None:
    expected = write_mnist(alone / "data" / kind, zipped=zipped)
    for found, wanted in zip(datasets.load_mnist(kind), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    X_train, y_train, _, _ = datasets.load_mnist(kind)
    assert X_train.shape == (60, 784)
    assert (X_train.dtype, y_train.dtype) == (np.uint8, np.int64)


def test_the_layout_of_torchvision_is_known(alone: Path) -> None:
    write_mnist(alone / "home" / ".cache" / "shoal" / "MNIST" / "raw", zipped=False)
    assert len(datasets.load_mnist().X_test) == 20


def test_the_real_data_if_present() -> None:
    try:
        images = datasets.load_mnist(download=False)
    except FileNotFoundError as missing:
        pytest.skip(f"no MNIST on this machine: {missing}")
    assert [part.shape for part in images] == [(60_000, 784), (60_000,), (10_000, 784), (10_000,)]
    assert np.bincount(images.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_missing_data_names_every_place_and_the_variable(alone: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        datasets.load_mnist()
    text = str(error.value)
    assert "SHOAL_DATA" in text
    assert "no network in tests" in text
    for place in datasets.places():
        assert str(place / "mnist") in text


def test_download_can_be_refused(alone: Path) -> None:
    with pytest.raises(FileNotFoundError, match="downloading was not allowed"):
        datasets.load_mnist(download=False)


def test_a_download_is_checked_and_kept(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_mnist(alone / "server")
    asked: list[str] = []

    def serve(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO((alone / "server" / address.rsplit("/", 1)[1]).read_bytes())

    monkeypatch.setattr(urllib.request, "urlopen", serve)
    np.testing.assert_array_equal(datasets.load_mnist().X_train, expected.X_train)
    assert len(asked) == 4
    datasets.load_mnist()  # from the cache
    assert len(asked) == 4


def test_a_broken_download_is_not_kept(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: io.BytesIO(b"<html>not found</html>"))
    with pytest.raises(FileNotFoundError, match="downloading failed"):
        datasets.load_mnist()
    assert not [path for path in (alone / "home").rglob("*") if path.is_file()]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="mnist, fashion-mnist; got 'cifar'"):
        datasets.load_mnist("cifar")


WHOLE = idx_bytes(np.zeros((3, 28, 28)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[:-1], "cut short"),
        (WHOLE[:10], "header alone"),
        (WHOLE + b"x", "bytes left over"),
        (idx_bytes(np.zeros(5)) + bytes(20), "magic number 0x801, expected 0x803"),
        (np.array([0x803, 1 << 31, 1 << 31, 1 << 31], ">u4").tobytes(), "cut short"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_broken_files_are_refused(tmp_path: Path, content: bytes, message: str, zipped: bool) -> None:
    path = tmp_path / ("images.gz" if zipped else "images")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(ValueError, match=message):
        datasets.read_idx(path, datasets.IMAGES_MAGIC)


@pytest.mark.parametrize("spoil", [lambda content: content[:-20], lambda content: b"no gzip at all"])
def test_broken_compression_is_refused(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(spoil(gzip.compress(WHOLE)))  # type: ignore[operator]
    with pytest.raises(ValueError, match="damaged or cut short"):
        datasets.read_idx(path, datasets.IMAGES_MAGIC)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-labels-idx1-ubyte.gz", np.zeros(59), "60 images, but .* 59 labels"),
        ("t10k-labels-idx1-ubyte.gz", np.full(20, 10), "a label 10"),
        ("train-images-idx3-ubyte.gz", np.zeros((60, 14, 14)), "14 x 14, expected 28 x 28"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(alone: Path, name: str, array: np.ndarray, message: str) -> None:
    write_mnist(alone / "data" / "mnist")
    (alone / "data" / "mnist" / name).write_bytes(gzip.compress(idx_bytes(array)))
    with pytest.raises(ValueError, match=message):
        datasets.load_mnist()


def test_find_takes_the_first_place_that_has_the_file(alone: Path) -> None:
    for place in reversed(datasets.places()):
        (place / "tabular").mkdir(parents=True)
        (place / "tabular" / "table.csv").write_text("1,2\n")
        assert datasets.find("tabular/table.csv") == place / "tabular" / "table.csv"
    with pytest.raises(FileNotFoundError, match=r"tabular/nothing.csv is in none of: .*SHOAL_DATA"):
        datasets.find("tabular/nothing.csv")


def test_only_the_named_folder_and_the_cache_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cache = tmp_path / "home" / ".cache" / "shoal"
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    assert datasets.places() == [tmp_path, cache]
    monkeypatch.delenv("SHOAL_DATA")
    assert datasets.places() == [cache]

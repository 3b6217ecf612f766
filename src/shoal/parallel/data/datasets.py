"""Data sets by name, as tensors for training, validation and test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

from shoal.errors import UserError
from shoal.parallel.data.loader import RandomKey, epoch_order
from shoal.validate import nearest, number, one_of, whole

IMAGES = ("mnist", "fashion-mnist")
TABLES = ("iris", "wine", "digits", "breast-cancer")  # of scikit-learn
NAMES = (*IMAGES, *TABLES)
SCALES = ("standard", "unit")


class LoadedData(NamedTuple):
    """Inputs are matrices; classes are numbers from zero."""

    train: TensorDataset
    valid: TensorDataset
    test: TensorDataset
    features: int
    classes: int


def load_data(
    name: str, valid: float = 1 / 6, rows: int | None = None, scale: str = "standard", seed: int = 0
) -> LoadedData:
    """A data set by name; part of its training rows is kept for validation.

    scale    "standard": columns (images: all pixels) with mean 0 and deviation 1; "unit": pixels from 0 to 1
    rows     how many of the training rows to use; all, if not given
    """
    if name not in NAMES:
        raise UserError(
            f"data must be one of {', '.join(NAMES)}; got {name!r}{nearest(name, NAMES)} (your own table: its "
            "file in place of --data, with --target COLUMN; any other data: in Python)"
        )
    one_of("scale", scale, SCALES)
    number("the share kept for validation", valid, above=0, below=1, what="a share")
    if rows is not None:
        whole("rows", rows, 2)
    X, y, X_test, y_test = _images(name, scale) if name in IMAGES else _table(name, seed)
    order = epoch_order(len(X), seed, RandomKey.VALIDATION_ROWS, True)
    if rows is not None:
        if not 2 <= rows <= len(X):
            raise UserError(f"rows must be from 2 to the {len(X):,} that {name} has for training; got {rows}")
        order = order[:rows]
    kept = max(1, round(valid * len(order)))
    train, chosen = order[kept:], order[:kept]
    return LoadedData(
        TensorDataset(X[train], y[train]), TensorDataset(X[chosen], y[chosen]), TensorDataset(X_test, y_test),
        X.shape[1], int(y.max()) + 1,
    )  # fmt: skip


def _images(name: str, scale: str) -> tuple[torch.Tensor, ...]:
    from shoal.datasets import load_mnist

    images = load_mnist(name)
    train, test = (torch.tensor(part, dtype=torch.float32).div_(255) for part in (images.X_train, images.X_test))
    if scale == "standard":
        mean, deviation = train.mean(), train.std()
        train, test = (train - mean) / deviation, (test - mean) / deviation
    return train, torch.tensor(images.y_train), test, torch.tensor(images.y_test)


def _table(name: str, seed: int) -> tuple[torch.Tensor, ...]:
    """A fifth of the rows is the test set; columns are scaled by mean and deviation of the others."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    load = getattr(datasets, f"load_{name.replace('-', '_')}")
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    mean, deviation = X.mean(0), X.std(0)
    deviation[deviation == 0] = 1.0
    return (
        torch.from_numpy(((X - mean) / deviation).astype(np.float32)), torch.from_numpy(y.astype(np.int64)),
        torch.from_numpy(((X_test - mean) / deviation).astype(np.float32)), torch.from_numpy(y_test.astype(np.int64)),
    )  # fmt: skip

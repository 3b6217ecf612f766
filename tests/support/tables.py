"""A table that tests of tables and of encoders share."""

import datetime
from types import SimpleNamespace

import numpy as np

from shoal.tables.reading import Reading
from shoal.tables.schema import Schema

ROWS = 240
EXAMPLES = {
    "number": "size",
    "category": "colour",
    "boolean": "open",
    "date": "day",
    "text": "told",
}  # columns of kinds
UNSEEN = {
    "number": 1e300,
    "category": "violet",
    "boolean": True,
    "date": "1850-01-01 13:37",
    "text": "never heard words",
}


def columns(seed=0, n=ROWS):
    """A bit of everything, as a dict of lists with None for missing."""
    rng = np.random.default_rng(seed)
    words = ["red", "old", "slow", "kind", "blue", "new", "fast", "cruel", "house", "train"]
    size = rng.normal(size=n).tolist()
    size[3] = None
    return {
        "size": size,
        "count": rng.integers(0, 9, n).tolist(),
        "open": (rng.random(n) > 0.5).tolist(),
        "colour": rng.choice(np.array(["red", "green", "blue", None], dtype=object), n).tolist(),
        "sex": rng.choice(["m", "f"], n).tolist(),
        "day": [datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=7 * int(i)) for i in rng.integers(0, 999, n)],
        "told": [" ".join(rng.choice(words, 8)) for _ in range(n)],
    }


def small_table(rows: int = 300, columns: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, and two classes that depend on two of the columns."""
    X = np.random.default_rng(0).normal(size=(rows, columns))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def model_of(table, summary):
    """What reading new rows asks of a model."""
    reading = Reading((), tuple(table.names), summary.header, summary.separator, summary.quote)
    names = np.array(table.names, dtype=object)
    return SimpleNamespace(
        schema_=Schema.of(table, kinds=dict.fromkeys({"c"} & set(table.names), "category")), reading_=reading,
        feature_names_in_=names, n_features_in_=len(names),
    )  # fmt: skip

"""A search on a local Dask cluster, with the same bytes as in one process: `python examples/dask_cluster.py`."""

import numpy as np
from distributed import LocalCluster
from sklearn.datasets import load_wine

from shoal import ShoalClassifier


def main() -> None:
    X, y = load_wine(return_X_y=True)
    options = {"recipes": 6, "seeds": 1, "epochs": 10, "random_state": 0}
    here = ShoalClassifier(**options).fit(X, y)
    # Two processes stand for two machines. A real cluster is started with `dask scheduler` and `dask worker`.
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        there = ShoalClassifier(**options, executor=address).fit(X, y)
    assert np.array_equal(here.predict_proba(X), there.predict_proba(X))
    print(f"two workers of {address} and this process found the same model: {there.honest_score_}")


if __name__ == "__main__":  # workers import this file
    main()

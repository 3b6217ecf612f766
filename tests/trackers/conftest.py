"""A small table, and one real MLflow store for all tests: making its database takes seconds."""

from __future__ import annotations

import numpy as np
import pytest

from shoal import ShoalRegressor


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MLflow makes a folder for artifacts wherever it is."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    return X, X[:, 0] + 0.1 * rng.normal(size=80)


@pytest.fixture
def model_with(rows):
    """Fit a small model with callbacks."""

    def fit(*callbacks, **more):
        settings = {"recipes": 4, "epochs": 5, "seeds": 1, "cv": 2, "n_jobs": 1, "explain_seconds": 0} | more
        return ShoalRegressor(callbacks=list(callbacks), **settings).fit(*rows)

    return fit


@pytest.fixture(scope="session")
def store_uri(tmp_path_factory):
    """A database with an experiment whose artifacts are beside it."""
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder}/mlflow.db"
    MlflowClient(uri).create_experiment("shoal", artifact_location=str(folder / "artifacts"))
    return uri


@pytest.fixture
def runs_in(store_uri):
    """The runs that a block of code has added to the store, those of searches and their children."""
    from mlflow import MlflowClient

    client = MlflowClient(store_uri)
    experiment = client.get_experiment_by_name("shoal").experiment_id

    def found():
        return {run.info.run_id: run for run in client.search_runs([experiment], max_results=5000)}

    before = set(found())

    def new():
        added = [run for name, run in found().items() if name not in before]
        children = [run for run in added if "mlflow.parentRunId" in run.data.tags]
        return client, [run for run in added if run not in children], children

    return new

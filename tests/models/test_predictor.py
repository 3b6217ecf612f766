"""A saved model that only predicts: without scikit-learn, with the same answers."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import shoal
from shoal.errors import UserError
from shoal.models.predictor import Predictor
from shoal.tables.table import Table
from tests.support.tables import columns

QUICK = {"recipes": 2, "epochs": 2, "seeds": 1, "cv": 2, "n_jobs": 1}


@pytest.fixture(scope="module")
def estimator():
    cells = columns(0)
    return shoal.ShoalClassifier(**QUICK).fit(cells, np.where(np.array(cells["count"]) > 4, "many", "few"))


def test_answers_are_those_of_the_estimator(estimator, tmp_path):
    shoal.save(estimator, tmp_path / "model")
    served, cells = Predictor.load(tmp_path / "model"), columns(1)
    assert np.array_equal(served.predict_proba(Table.of(cells)), estimator.predict_proba(cells))
    assert served.classes_.tolist() == estimator.classes_.tolist()


def test_numbers(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    estimator = shoal.ShoalRegressor(**QUICK).fit(X, y)
    shoal.save(estimator, tmp_path / "model")
    served = Predictor.load(tmp_path / "model")
    assert np.array_equal(served.predict(Table.of(X)), estimator.predict(X))


def test_shoal_predict_loads_neither_scikit_learn_nor_scipy_nor_pandas(tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    shoal.save(shoal.ShoalRegressor(**QUICK).fit(X, y), tmp_path / "model")
    X.head(2).to_csv(tmp_path / "new.csv", index=False)
    script = (
        "import sys; from shoal.cli import main\n"
        f"sys.argv = ['shoal', 'predict', {str(tmp_path / 'model')!r}, {str(tmp_path / 'new.csv')!r}]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "print(sorted({'sklearn', 'scipy', 'pandas', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (4, "prediction", "[]")


def test_a_file_that_was_altered_is_refused(estimator, tmp_path):
    shoal.save(estimator, tmp_path / "model")
    weights = tmp_path / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(UserError, match="truncated or was altered"):
        Predictor.load(tmp_path / "model")

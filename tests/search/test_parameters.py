"""Threads of the estimators, as scikit-learn's n_jobs gives them."""

import numpy as np
import pytest

from shoal import ShoalClassifier
from shoal.search.parameters import threads_of


@pytest.mark.parametrize("jobs", [0, 5000, True, "2", 1.5])
def test_wrong_numbers_of_jobs_are_named_as_the_user_gave_them(jobs):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match=rf"^n_jobs must be a number of threads from 1 to 4096, .* got {jobs!r}$"):
        ShoalClassifier(n_jobs=jobs).fit(X, X[:, 0] > 0)


def test_minus_one_is_all_cores(monkeypatch):
    monkeypatch.setenv("SHOAL_THREADS", "4")
    assert [threads_of(jobs) for jobs in (None, 3, -1, -2, -9)] == [4, 3, 4, 3, 1]

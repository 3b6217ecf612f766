"""What a candidate keeps of an assessment."""

import dataclasses

import numpy as np

from shoal import Member
from shoal.search.rounds.candidates import Candidate
from shoal.search.rounds.training import Assessment
from shoal.search.scoring.evidence import Samples
from shoal.search.space import Recipe


def test_it_keeps_its_own_numbers_and_no_others():
    """A view of the arrays of a whole round would keep them all: memory would grow with the square of the rounds."""
    folds, rows, round_of = 2, 6, 50
    epochs = np.ones((round_of, folds), np.int64)
    numbers, predictions = (
        np.random.default_rng(0).random((4, round_of, folds)),
        np.ones((round_of, rows, 2), np.float32),
    )
    samples = Samples(np.arange(3), 2)
    candidate = Candidate(7, Recipe(Member(epochs=1)))
    candidate.note(
        Assessment(epochs[3], numbers[0][3], numbers[1][3], 0.5, 0.25, predictions[3], numbers[2][3], numbers[3][3]),
        samples,
    )
    kept = [getattr(candidate, field.name) for field in dataclasses.fields(candidate)]
    arrays = [*(value for value in kept if isinstance(value, np.ndarray)), *samples._kept.values()]
    assert len(arrays) == 7
    assert all(array.base is None for array in arrays)
    np.testing.assert_array_equal(candidate.valid_curve, numbers[3][3])
    np.testing.assert_array_equal(samples.read([7])[0], predictions[3, :3])

"""Sizes, folds, shards, workers and moments of crashes drawn at random: always the bytes of one undisturbed process."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from support.callbacks import Crash
from support.fitting import fit_table

import shoal
from shoal.runs.journal import Journal
from shoal.search.estimators import ShoalClassifier
from shoal.search.remote import on_workers, shards
from shoal.search.rounds import candidates


class CrashingJournal(Journal):
    """Ends the search when it should write for the n-th time."""

    left = 0

    def write(self, *arguments, **named):
        self.left -= 1
        if not self.left:
            raise Crash
        return super().write(*arguments, **named)


def weights(model, journal, folder):
    X, y = load_iris(return_X_y=True)
    fit_table(model, X, y, "species", journal=journal)
    shoal.save(model, folder)
    return {name: (folder / name).read_bytes() for name in ("model.json", "weights.safetensors")}


@settings(max_examples=8, deadline=None)
@given(
    recipes=st.integers(2, 13), folds=st.integers(2, 6), epochs=st.integers(1, 13), seed=st.integers(0, 99),
    share=st.integers(1, 50), least=st.sampled_from([1.0, 1e6, 1e9]), workers=st.integers(0, 5),
    crashes=st.lists(st.integers(1, 25), max_size=4),
)  # fmt: skip
def test_any_shards_workers_and_crashes_give_the_same_bytes(
    recipes, folds, epochs, seed, share, least, workers, crashes
):
    options = {"recipes": recipes, "cv": folds, "epochs": epochs, "seeds": 2, "random_state": seed}
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        alone = weights(ShoalClassifier(**options), None, folder / "alone")
        for module in (on_workers, candidates):
            patch.setattr(module, "FIRST_COST", least)
        patch.setattr(on_workers, "LEAST_SECONDS", 0.0)
        patch.setattr(shards, "SHARE", share)
        with ThreadPoolExecutor(workers) if workers else nullcontext() as executor:
            for number, moment in enumerate([*crashes, 0]):
                journal = CrashingJournal(folder / "journal")
                journal.left = moment
                try:
                    found = weights(ShoalClassifier(**options, executor=executor), journal, folder / str(number))
                except Crash:
                    assert moment
        assert found == alone

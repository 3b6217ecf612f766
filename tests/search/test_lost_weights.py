"""Weights that got lost with a worker or a file, and predictions of which only a sample was kept: the same results."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from support.callbacks import Crash, CrashAfter, watching
from support.fitting import fit_table

import shoal
from shoal import Member, ShoalClassifier
from shoal.search.remote import journaled
from shoal.search.results.result import Earlier
from shoal.search.rounds import loop
from shoal.search.rounds.candidates import Batch, LocalTrainer
from shoal.search.rounds.training import assess


class EndAfter:
    """Ends a search, as Ctrl-C does, after so many rungs."""

    def __init__(self, rungs):
        self.left = rungs

    def step_ended(self, rung):
        self.left -= 1
        return self.left <= 0


def remove_networks(folder):
    files = list(folder.glob("networks-*.safetensors"))
    assert files
    for file in files:
        file.unlink()


def assert_same_models(one, other, folder):
    files = []
    for model, name in ((one, "one"), (other, "other")):
        shoal.save(model, folder / name)
        files.append([(folder / name / file).read_bytes() for file in ("weights.safetensors", "model.json")])
    assert files[0] == files[1]


@pytest.mark.parametrize("rungs", [1, 2, 3])
def test_an_early_end_after_networks_were_lost_gives_a_model(iris, rungs, tmp_path):
    """Killed, files of networks removed, and ended by the user soon after it went on."""

    def searched(*callbacks):
        return ShoalClassifier(recipes=9, cv=3, epochs=9, seeds=2, journal=tmp_path / "j", callbacks=callbacks).fit(
            *iris
        )

    with pytest.raises(Crash):
        searched(CrashAfter(rungs))
    remove_networks(tmp_path / "j")
    model = searched(EndAfter(rungs))
    assert model.result_.ended == "interrupted"
    assert_networks_are_those_assessed(model)


def assert_networks_are_those_assessed(model):
    search = model.result_.search
    best = search.best_candidates()
    assert best
    for candidate in best:
        (found,) = _assessed(search, candidate)
        np.testing.assert_array_equal(candidate.prediction, found.prediction)


def _assessed(search, candidate):
    pool = candidate.pool
    place = pool.candidates.index(candidate)
    return assess(search.problem, search.metric, pool.encoding, pool.networks, [place], None)


def test_nobody_takes_networks_that_are_on_their_way_back(iris, tmp_path):
    """The user ends the search while networks that got lost are trained again."""
    whole = ShoalClassifier(recipes=3, cv=3, epochs=400, seeds=1, journal=tmp_path / "j").fit(*iris)
    remove_networks(tmp_path / "j")
    ending = watching(lambda progress: True)  # only training tells of progress
    ended = ShoalClassifier(recipes=3, cv=3, epochs=400, seeds=1, journal=tmp_path / "j", callbacks=[ending]).fit(*iris)
    assert_networks_are_those_assessed(ended)
    assert ended.result_.log == whole.result_.log
    names = [[candidate.number for candidate in model.result_.outcome.chosen] for model in (whole, ended)]
    assert names[0] == names[1]


class Forgetful(LocalTrainer):
    """As workers behind a slow link: networks come back at the end only."""

    def train(self, orders, control, anew=False):
        for batch in super().train(orders, control, anew):
            if not all(order.whole for order in batch.orders):
                batch = Batch(batch.orders, None, batch.assessments, batch.seconds)
            yield batch


def test_an_early_end_where_no_network_has_come_back_gives_the_best(iris, monkeypatch):
    monkeypatch.setattr("shoal.search.remote.journaled.LocalTrainer", Forgetful)
    model = ShoalClassifier(recipes=9, cv=3, epochs=9, callbacks=[EndAfter(1)]).fit(*iris)
    (chosen,) = model.result_.search.best_candidates()
    assert chosen.loss == min(candidate.loss for candidate in model.result_.search.candidates)
    assert_networks_are_those_assessed(model)


def test_recipes_that_are_there_twice_are_written_again_once(iris, monkeypatch, tmp_path):
    """Both have their networks in one file, of which little is needed any more."""
    monkeypatch.setattr(loop, "KEPT_CANDIDATES", 4)
    twice = Member(hidden=(8,), learning_rate=1e-2)
    space = [twice, twice, *(Member(hidden=(2,), learning_rate=1e-5 * k) for k in range(1, 16))]

    def searched(journal, *callbacks):
        return ShoalClassifier(
            space, recipes=17, strategy="grid", cv=2, epochs=2, seeds=1, journal=journal, callbacks=callbacks
        ).fit(*iris)

    with pytest.raises(Crash):
        searched(tmp_path / "j", CrashAfter(1))
    resumed = searched(tmp_path / "j")
    assert resumed.result_.search.trainer.recalled == 17
    assert_same_models(resumed, searched(None), tmp_path)


def test_only_samples_were_kept_of_what_turns_out_to_be_the_last_rung(monkeypatch, tmp_path):
    """A large table, and a search that was ended before anything was finished: it is done again, on and on."""
    monkeypatch.setattr(journaled, "SAMPLE_CELLS", 100)
    X, y = make_classification(200, 5, random_state=0)
    settings = {"recipes": 6, "cv": 2, "epochs": 10, "seeds": 1}
    first = ShoalClassifier(**settings, callbacks=[EndAfter(1)]).fit(X, y)
    result = first.result_
    assert not any(candidate.finished for candidate in result.search.candidates)
    earlier = Earlier(result.log, result.repeats, 40, result.effort)

    def repeated(*callbacks):
        model = ShoalClassifier(**settings, journal=tmp_path / "j", callbacks=callbacks)
        return fit_table(model, X, y, earlier=earlier)

    with pytest.raises(Crash):
        repeated(CrashAfter(1))
    again = repeated()
    assert again.result_.search.trainer.recalled == 6
    assert again.best_member_ == first.best_member_
    weights = [candidate.pool.weights(candidate, 0)[0][0] for candidate in again.result_.search.best_candidates()]
    expected = [candidate.pool.weights(candidate, 0)[0][0] for candidate in result.search.best_candidates()]
    np.testing.assert_array_equal(weights[0], expected[0])
    assert len(weights) == len(expected)


@pytest.mark.parametrize("rungs", [None, 3])
def test_no_networks_of_earlier_rungs_stay_in_the_journal(iris, rungs, monkeypatch, tmp_path):
    """Files of a single candidate: after the next rung, nobody needs them."""
    monkeypatch.setattr("shoal.search.remote.journaled.SHARD_SECONDS", 1e-6)
    monkeypatch.setattr("shoal.search.rounds.candidates.FIRST_COST", 1.0)

    def searched(*callbacks):
        return ShoalClassifier(
            recipes=18, cv=2, epochs=9, seeds=2, journal=tmp_path / "j", callbacks=list(callbacks)
        ).fit(*iris)

    if rungs is not None:
        with pytest.raises(Crash):
            searched(CrashAfter(rungs))
    model = searched()
    kept = {candidate.number for candidate in model.result_.search.best_candidates()}
    files = list((tmp_path / "j").glob("networks-*.safetensors"))
    assert 0 < len(files) <= len(kept)

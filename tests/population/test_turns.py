"""One population, several threads: nothing is lost, and who comes second is told so."""

import pickle
import threading

import numpy as np
import pytest
from support.waiting import wait_until

from shoal import Member, Population
from shoal.errors import UserError

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def small(count=6):
    return Population([Member(hidden=4, seed=k) for k in range(count)], 3, 2)


class Training:
    """A thread that trains a population until `release`; its engine is at work when this is made."""

    def __init__(self, population, engine="auto", epochs=1 << 20):
        self.population, self.epochs, self.ended = population, epochs, threading.Event()
        self.error, self.asked, self.answer = None, None, None
        self.thread = threading.Thread(target=self._work, args=(engine,), daemon=True)
        self.thread.start()
        wait_until(lambda: population.turns._running or not self.thread.is_alive())

    def _work(self, engine):
        try:
            self.population.fit(X, Y, epochs=self.epochs, engine=engine, threads=1, callbacks=[self])
        except Exception as error:
            self.error = error

    def progress(self, event):
        if self.asked is not None:
            try:
                self.answer = self.asked()
            except Exception as error:
                self.answer = error
            self.asked = None
        return self.ended.is_set()

    def inside(self, what):
        """What this gives when a callback calls it."""
        self.asked = what
        wait_until(lambda: self.asked is None)
        return self.answer

    def end(self):
        self.ended.set()
        self.thread.join()


CALLS = {
    "train": lambda p: p.fit(X, Y, epochs=1),
    "train ": lambda p: next(p.iter_fit(X, Y, epochs=1)),
    "predict": lambda p: p.predict(X),
    "evaluate": lambda p: p.evaluate(X, Y),
    "read weights": lambda p: p.weights(0),
    "read weights ": lambda p: p.extract(0),
    "set weights": lambda p: p.set_weights(0, [(np.zeros((3, 4)), np.zeros(4)), (np.zeros((4, 2)), np.zeros(2))]),
    "select members": lambda p: p.select([0]),
    "gather members": lambda p: Population.gather([(p, 0)]),
    "save": lambda p: p.save("nowhere"),
}


def refusal(call, population):
    try:
        return call(population)
    except UserError as error:
        return str(error)


def test_no_other_call_works_with_a_population_that_is_trained():
    """From another thread or inside of a callback: weights would be read or written while they change."""
    population = small()
    training = Training(population)
    try:
        for what, call in CALLS.items():
            with pytest.raises(UserError, match=rf"cannot {what.strip()}: another thread trains this population"):
                call(population)
        answers = training.inside(lambda: [refusal(call, population) for call in CALLS.values()])
        for what, answer in zip(CALLS, answers, strict=True):
            assert f"cannot {what.strip()} while this population is being trained" in answer
        assert population.epochs.max() < training.epochs
        assert len(population.status) == 6
    finally:
        training.end()
    assert training.error is None
    population.fit(X, Y, epochs=1)
    assert population.predict(X).shape == (6, 60, 2)


def test_two_threads_that_fit_never_lose_epochs():
    """Each fit is done whole or refused."""
    for _ in range(20):
        population, done, start = small(), [], threading.Barrier(4)

        def work(population=population, done=done, start=start):
            start.wait()
            try:
                population.fit(X, Y, epochs=5, threads=1)
                done.append(5)
            except UserError:
                done.append(0)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (population.epochs == sum(done)).all()
        assert sum(done) >= 5
        alone = small()
        alone.fit(X, Y, epochs=5)
        alone.fit(X, Y, until=sum(done))
        if sum(done) == 5:
            assert np.array_equal(population.predict(X), alone.predict(X))


@pytest.mark.parametrize("engine", ["native", "grouped"])
@pytest.mark.parametrize("where", ["another thread", "callback"])
def test_stop_while_a_fit_runs_takes_effect_at_the_end_of_an_epoch(engine, where):
    population = small()
    population.fit(X, Y, epochs=2, engine=engine)
    training = Training(population, engine)
    try:
        if where == "another thread":
            population.stop([1, 4])
        else:
            training.inside(lambda: population.stop([1, 4]))
        wait_until(lambda: population.status[1] == population.status[4] == "stopped early")
        done = population.epochs
        population.stop([2])
        wait_until(lambda: population.status[2] == "stopped early")
    finally:
        training.end()
    assert training.error is None
    assert population.epochs[[1, 4]].tolist() == done[[1, 4]].tolist()
    assert population.status == ["active", "stopped early", "stopped early", "active", "stopped early", "active"]
    for k in (1, 2):  # what a stopped member has learned is what it would have alone
        alone = small().select([k])
        alone.fit(X, Y, until=int(population.epochs[k]), engine=engine)
        np.testing.assert_allclose(alone.predict(X)[0], population.predict(X, [k])[0], rtol=1e-4, atol=1e-5)
    curve = population.history.loss
    assert [np.isfinite(curve[k]).sum() for k in range(6)] == population.epochs.tolist()


def test_between_two_steps_only_the_thread_that_trains_may_go_on():
    population = small()
    steps = population.iter_fit(X, Y, epochs=3)
    next(steps)
    population.predict(X)
    population.stop([0])
    answers = []

    def other():
        for what in (lambda: population.predict(X), lambda: population.stop([1])):
            try:
                answers.append(what())
            except UserError as error:
                answers.append(str(error))

    def in_another_thread():
        answers.clear()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return list(answers)

    refused, stopped = in_another_thread()
    assert "another thread trains this population" in refused
    assert stopped is None
    list(steps)
    assert population.epochs.tolist() == [1, 1, 3, 3, 3, 3]
    assert in_another_thread()[0].shape == (6, 60, 2)
    steps = population.iter_fit(X, Y, epochs=3)
    next(steps)
    steps.close()
    assert in_another_thread()[0].shape == (6, 60, 2)


def test_many_threads_may_predict_and_training_waits_for_none_of_them():
    population = small()
    expected = population.predict(X)
    found = []
    threads = [threading.Thread(target=lambda: found.append(population.predict(X))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(one, expected) for one in found)
    assert len(found) == 8
    with population.turns.reading("predict"), pytest.raises(UserError, match="cannot train: another thread predicts"):
        population.fit(X, Y, epochs=1)


def test_a_copy_of_a_population_has_turns_of_its_own():
    population = small()
    training = Training(population)
    copied = pickle.loads(pickle.dumps(population.turns))
    training.end()
    with copied.training():
        pass
    again = pickle.loads(pickle.dumps(population))
    again.fit(X, Y, epochs=1)

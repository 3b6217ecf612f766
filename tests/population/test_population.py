"""`Population`: bad input, kinds of arrays, stopping, memory, results."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import make_blobs

import shoal
from shoal import Member, Population
from shoal.population import rows
from shoal.population.engines.native import draw

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(60, 5)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


def weights_equal(a: Population, b: Population) -> bool:
    return np.array_equal(a.state.parameters, b.state.parameters) and np.array_equal(a.state.slots, b.state.slots)


def trained(X=X, y=Y, loss="cross_entropy", n_outputs=2, **fit) -> Population:
    population = Population([Member(hidden=4), Member(hidden=(), optimizer="sgd")], np.shape(X)[1], n_outputs, loss)
    population.fit(X, y, epochs=3, **fit)
    return population


# ---- bad input ----


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], 5, 2), ValueError, "at least one member; got none"),
        ((["relu"], 5, 2), TypeError, "members must be shoal.Member; number 0 is 'relu'"),
        (([Member()], 0, 2), ValueError, "n_features must be a whole number from 1 to 2147483647; got 0"),
        (([Member()], 5, 2.5), ValueError, "n_outputs must be a whole number"),
        (([Member(features=(9,))], 5, 2), ValueError, "member 0 sees column 9, but columns are 0 to 4"),
        (([Member()], 5, 2, "crossentropy"), ValueError, "did you mean 'cross_entropy'"),
        (([Member(hidden=(1 << 20, 1 << 20))] * 1000, 5, 2), ValueError, "too large for one population"),
    ],
)
def test_bad_populations_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Population(*arguments)


def bad_X(row, column, value):
    copy = X.copy()
    copy[row, column] = value
    return copy


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": X[:, :4]}, ValueError, "X must have 5 columns, as many as the population; got 4"),
        ({"X": X[0]}, ValueError, r"two dimensions, rows and features; got shape \(5,\)"),
        ({"X": X[:0], "y": Y[:0]}, ValueError, "from 1 to .* rows; got 0"),
        ({"X": bad_X(7, 3, np.nan)}, ValueError, "column 3 is nan in row 7"),
        ({"X": bad_X(59, 0, -np.inf)}, ValueError, "column 0 is -inf in row 59"),
        ({"X": np.where(X[2, 1] == X, 1e300, X.astype(float))}, ValueError, "column 1 is inf in row 2"),
        ({"X": pd.DataFrame(bad_X(1, 2, np.nan), columns=list("abcde"))}, ValueError, r"column 2 \('c'\) is nan"),
        ({"X": X.astype(str)}, TypeError, "X must hold numbers"),
        ({"X": X.astype(complex)}, TypeError, "X must hold numbers"),
        ({"y": Y[:-1]}, ValueError, "one entry per row"),
        ({"y": Y + 1}, ValueError, "y must be from 0 to 1, one class per output; got 2"),
        ({"y": Y - 1}, ValueError, "y must be from 0 to 1"),
        ({"y": Y + 0.5}, ValueError, "whole class numbers"),
        ({"y": np.full(60, np.nan)}, ValueError, "whole class numbers"),
        ({"y": Y.astype(str)}, TypeError, "class numbers"),
        ({"y": np.stack([Y, Y], 1)}, ValueError, "one class number per row"),
        ({"epochs": 0}, ValueError, "epochs must be a whole number of at least 1; got 0"),
        ({"epochs": 2.0}, ValueError, "epochs must be a whole number"),
        ({"epochs": 1, "until": 1}, ValueError, "not both"),
        ({"threads": 0}, ValueError, "threads must be a whole number from 1"),
        ({"shuffle": "yes"}, ValueError, "shuffle must be True, False or 'each'"),
        ({"engine": "nativ"}, ValueError, "did you mean 'native'"),
        ({"engine": "native", "device": "cuda"}, ValueError, "native engine runs on the cpu"),
        ({"rows": rows.Split([60])}, ValueError, "names train row 60"),
        ({"seed": -1}, ValueError, "seed must be a whole number from 0"),
        ({"seed": 1.5}, ValueError, "seed must be a whole number"),
        ({"device": "gpu"}, ValueError, "device must be one of cpu, cuda, mps; got 'gpu'"),
        ({"device": "mps"}, ValueError, "PyTorch finds no device 'mps' here"),
        ({"X": scipy.sparse.csr_matrix(X)}, TypeError, r"sparse matrix; give X\.toarray"),
        ({"X": pd.DataFrame(X).astype("Float32").mask(X[3, 2] == X)}, ValueError, r"column 2 \('2'\) is nan in row 3"),
        ({"X": [*X.astype(object).tolist()[:-1], ["a"] * 5]}, TypeError, "X must hold numbers"),
    ],
)
def test_bad_fits_are_refused_and_change_nothing(change, error, message):
    population = Population([Member(hidden=4)], 5, 2)
    before = population.state.parameters.copy()
    with pytest.raises(error, match=message):
        population.fit(**({"X": X, "y": Y} | change))
    assert np.array_equal(population.state.parameters, before)
    assert population.epochs.tolist() == [0]


def test_patience_without_validation_rows_is_refused():
    population = Population([Member(), Member(patience=3)], 5, 2)
    with pytest.raises(ValueError, match="member 1 has patience=3 but no validation rows"):
        population.fit(X, Y)


@pytest.mark.parametrize(
    ("loss", "n_outputs", "y", "message"),
    [
        ("mse", 2, Y, r"y must have shape \(n_rows, 2\)"),
        ("mse", 1, np.full(60, np.inf), "row 0, column 0 is inf"),
        ("bce", 1, Y * 2, "y must be from 0 to 1 for bce; got 2"),
        ("bce", 1, Y.astype(str), "y must hold numbers"),
    ],
)
def test_bad_targets_are_refused(loss, n_outputs, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Population([Member()], 5, n_outputs, loss).fit(X, y)


def test_bad_class_weights_are_refused():
    for weight, message in (([1], "needs 2 numbers"), ([1, 0], "above zero"), ([1, np.nan], "finite")):
        with pytest.raises(ValueError, match=message):
            Population([Member()], 5, 2, class_weight=weight)
    with pytest.raises(ValueError, match="cross_entropy only"):
        Population([Member()], 5, 2, "mse", class_weight=[1, 1])


def test_single_members_smoothing_without_classes_and_bad_limits_are_refused():
    with pytest.raises(TypeError, match="put the single one into a list"):
        Population(Member(), 5, 2)
    with pytest.raises(ValueError, match="member 1 has label_smoothing, which works with cross_entropy only, not mse"):
        Population([Member(), Member(label_smoothing=0.1)], 5, 2, "mse")
    for limit in ("1GB", -1, 0):
        with pytest.raises(ValueError, match="memory_limit must be a whole number of bytes"):
            Population([Member()], 5, 2, memory_limit=limit)


def test_the_generator_checks_its_arguments_before_the_first_step():
    with pytest.raises(ValueError, match="every must be a whole number of epochs"):
        trained().iter_fit(X, Y, every=1.5)
    with pytest.raises(ValueError, match="5 columns"):
        trained().iter_fit(X[:, :2], Y)


def test_bad_members_are_named():
    population = trained()
    for bad, error, message in (
        (2, IndexError, "no member 2"),
        (-3, IndexError, "no member -3"),
        (0.5, TypeError, "whole"),
    ):
        with pytest.raises(error, match=message):
            population.weights(bad)
    with pytest.raises(ValueError, match="at least one member"):
        population.select([])
    with pytest.raises(ValueError, match="out must be a writable, C-ordered float32 array"):
        population.predict(X, out=np.empty((1, 1, 1), np.float32))
    with pytest.raises(TypeError, match=r"out must be a writable, C-ordered float32 array .*; got list"):
        population.predict(X, out=[1])
    frozen = np.empty((2, 60, 2), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out must be a writable"):
        population.predict(X, out=frozen)


# ---- arrays as people have them ----


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(np.float64),
        np.asfortranarray,
        lambda X: X.tolist(),
        pd.DataFrame,
        lambda X: pd.DataFrame(X).astype("Float64"),
        lambda X: X.astype(object),
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X: X[::-1][::-1],
    ],
)
def test_float64_fortran_lists_frames_and_strided_views_give_the_same_bits(convert):
    assert weights_equal(trained(convert(X)), trained())


def test_labels_of_any_whole_type_give_the_same_bits():
    for y in (Y.astype(np.uint8), Y.astype(float), Y.astype(bool), Y[:, None], Y.tolist()):
        assert weights_equal(trained(y=y), trained())


def test_a_negative_index_and_a_mask_name_members():
    population = trained()
    assert np.array_equal(population.predict(X, [-1]), population.predict(X, np.array([False, True])))
    assert population.predict(X, []).shape == (0, 60, 2)


# ---- what comes out ----


def test_predict_equals_the_weights_by_hand():
    population = trained()
    (W, b), (V, c) = population.weights(0)
    assert np.allclose(population.predict(X)[0], np.maximum(X @ W + b, 0) @ V + c, atol=1e-5)
    ((W, b),) = population.weights(1)
    assert np.allclose(population.predict(X)[1], X @ W + b, atol=1e-5)


def test_weights_are_copies():
    population = trained()
    before = population.predict(X)
    population.weights(0)[0][0][:] = 0
    assert np.array_equal(population.predict(X), before)


def test_evaluate_equals_scores_by_hand():
    population = trained()
    outputs = population.predict(X)
    loss, score = population.evaluate(X, Y)
    shifted = outputs - outputs.max(axis=2, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    assert np.allclose(loss, -log_p[:, np.arange(60), Y].mean(axis=1), atol=1e-6)
    assert np.allclose(score, (outputs.argmax(axis=2) == Y).mean(axis=1))
    target = GENERATOR.normal(size=(60, 3)).astype(np.float32)
    population = trained(y=target, loss="mse", n_outputs=3)
    residual = target - population.predict(X)
    expected = 1 - (residual**2).sum(axis=(1, 2)) / ((target - target.mean(axis=0)) ** 2).sum()
    assert np.allclose(population.evaluate(X, target).score, expected, atol=1e-5)


def test_predict_writes_into_a_given_array(tmp_path):
    population = trained()
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=(2, 60, 2))
    assert population.predict(X, out=out) is out
    assert np.array_equal(out, population.predict(X))


def test_many_rows_are_predicted_in_pieces_like_few():
    population = trained()
    many = np.tile(X, (150, 1))
    assert np.array_equal(population.predict(many)[:, -60:], population.predict(X))
    assert np.allclose(population.evaluate(many, np.tile(Y, 150)).loss, population.evaluate(X, Y).loss, rtol=1e-6)


def test_history_has_a_row_per_member_and_nan_where_nothing_happened():
    population = Population([Member(epochs=2), Member()], 5, 2)
    history = population.fit(X, Y, epochs=4, rows=rows.holdout(60))
    assert history.loss.shape == history.valid_loss.shape == history.valid_score.shape == (2, 4)
    assert np.isnan(history.loss).tolist() == [[False, False, True, True], [False] * 4]
    assert np.all((history.valid_score[1] >= 0) & (history.valid_score[1] <= 1))
    assert population.status == ["finished", "active"]
    assert history.last("loss")[0] == history.loss[0, 1]
    assert "2 members, 4 epochs" in repr(history)
    assert population.fit(X, Y, epochs=1).loss.shape == (2, 5)


def test_repr_describes_the_population():
    text = repr(trained())
    assert text == (
        "Population(2 members, 5 features, 2 outputs, cross_entropy, 46 parameters, 3 epochs done: 2 active)"
    )
    assert "46 parameters" in repr(trained().layout)


# ---- rungs ----


def test_the_generator_yields_after_every_step_and_stopped_members_do_not_change():
    population = Population(shoal.grid(hidden=[2, 3, 4]), 5, 2)
    seen = []
    for history in population.iter_fit(X, Y, epochs=6, every=2):
        seen.append(population.epochs.tolist())
        if history.n_epochs == 2:
            population.stop([0])
            kept = population.weights(0)
    assert seen == [[2, 2, 2], [2, 4, 4], [2, 6, 6]]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(kept, population.weights(0), strict=True))
    assert population.status[0] == "stopped early"


def test_a_generator_left_early_leaves_a_usable_population():
    population = Population([Member(hidden=3)], 5, 2)
    for _ in population.iter_fit(X, Y, epochs=10):
        break
    assert population.epochs.tolist() == [1]
    other = Population([Member(hidden=3)], 5, 2)
    other.fit(X, Y, epochs=1)
    assert weights_equal(population, other)


def test_selected_members_train_on_exactly_as_in_the_old_population():
    members = shoal.grid(hidden=[2, 5, ()], optimizer=["adam", "sgd"], momentum=0.9)
    whole = Population(members, 5, 2)
    whole.fit(X, Y, epochs=2)
    part = whole.select([4, 1])
    assert part.members == (members[4], members[1])
    assert np.array_equal(part.history.loss, whole.history.loss[[4, 1]])
    whole.fit(X, Y, epochs=2)
    part.fit(X, Y, epochs=2)
    assert np.array_equal(part.predict(X), whole.predict(X, [4, 1]))


def test_weights_are_drawn_once_and_not_for_members_that_have_theirs(monkeypatch, tmp_path):
    drawn = []

    def spy(program, *others):
        drawn.append(len(program))
        draw(program, *others)

    monkeypatch.setattr("shoal.population.population.draw", spy)
    members = shoal.grid(hidden=[2, 5, ()], optimizer=["adam", "sgd"], momentum=0.9, patience=[0, 2])
    whole = Population(members, 5, 2, class_weight=[1, 2])
    assert drawn == [12]
    whole.fit(X, Y, epochs=2, rows=rows.holdout(len(X)))
    part = whole.select(range(12))
    whole.save(tmp_path / "whole.safetensors")
    loaded = Population.load(tmp_path / "whole.safetensors")
    assert drawn == [12]
    assert weights_equal(part, whole)
    assert weights_equal(loaded, whole)


# ---- stopping from outside ----


def test_ctrl_c_ends_a_fit_of_hours_and_leaves_every_member_at_the_end_of_an_epoch(tmp_path):
    script = textwrap.dedent("""
        import sys, threading, time, numpy as np, shoal
        X = np.random.default_rng(0).normal(size=(20000, 100)).astype(np.float32)
        y = (X[:, 0] > 0).astype(int)
        population = shoal.Population(shoal.grid(hidden=[200, (300, 300)], repeats=10), 100, 2)

        def tell():  # as soon as some network has finished an epoch
            while not population.epochs.any():
                time.sleep(0.01)
            print("ready", flush=True)

        threading.Thread(target=tell, daemon=True).start()
        try:
            population.fit(X, y, epochs=1000)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        population.save(sys.argv[1])
    """)
    path = tmp_path / "population.safetensors"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, "a thousand epochs would take hours"
        assert process.stdout.read() == "interrupted\n"
    population = Population.load(path)
    assert 0 < population.epochs.sum() < 20_000
    assert np.isfinite(population.state.parameters).all()
    X = np.random.default_rng(0).normal(size=(20000, 100)).astype(np.float32)
    touched = int(np.argmax(population.epochs > 0))
    alone = Population([population.members[touched]], 100, 2)
    alone.fit(X, (X[:, 0] > 0).astype(int), epochs=int(population.epochs[touched]))
    assert np.array_equal(alone.predict(X[:50])[0], population.predict(X[:50], [touched])[0])
    assert np.isnan(population.history.loss[touched, population.epochs[touched] :]).all()


def test_fit_works_outside_the_main_thread():
    population = Population([Member(hidden=3)], 5, 2)
    thread = threading.Thread(target=population.fit, args=(X, Y, 3))
    thread.start()
    thread.join()
    assert weights_equal(population, (lambda p: (p.fit(X, Y, 3), p)[1])(Population([Member(hidden=3)], 5, 2)))


# ---- memory ----


def test_predictions_over_the_limit_are_refused_with_a_remedy():
    population = Population([Member(hidden=4)], 5, 2, memory_limit=4000)
    assert population.predict(X).shape == (1, 60, 2)
    with pytest.raises(MemoryError, match=r"take 4\.8 kB, but the memory limit is 4\.0 kB; name fewer members or rows"):
        population.predict(np.tile(X, (10, 1)))


def test_a_fit_of_very_many_epochs_needs_no_log_of_that_length():
    population = Population([Member(hidden=2, patience=3, learning_rate=0.5)] * 20, 5, 2)
    history = population.fit(X, Y, epochs=10_000_000, rows=rows.holdout(60))
    assert set(population.status) <= {"stopped early", "diverged"}
    assert history.n_epochs == population.epochs.max() < 10_000


def test_memory_is_estimated_part_by_part():
    population = Population(shoal.grid(hidden=list(range(1, 101)), activation=["relu", "tanh"]), 100, 2)
    memory = population.memory(np.zeros((1000, 100), np.float32), epochs=7)
    assert memory.parameters == population.state.parameters.nbytes
    assert memory.slots == population.state.slots.nbytes == 2 * memory.parameters
    assert memory.data == 400_000
    assert memory.curves == 8 * 200 * (3 * 7 + 4 * 7)
    parts = memory.parameters, memory.slots, memory.members, memory.curves, memory.data, memory.workspace
    assert memory.total == sum(parts)
    assert population.memory(np.zeros((1000, 100))).data == 1_200_000  # both the numbers given and those converted
    assert str(memory).startswith("estimated peak memory ")


MEASURED = """
import sys, numpy as np
from shoal import Member, Population

def status(name):
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(name))

members, features, rows, hidden, epochs = map(int, sys.argv[1:])
X, y = np.zeros((8, 2), np.float32), np.arange(8) % 2
Population([Member(hidden=2)], 2, 2).fit(X, y, epochs=1, threads=1)  # loads what is loaded late
before = status("VmRSS")
X, y = np.random.default_rng(0).random((rows, features)), np.arange(rows) % 2
population = Population([Member(hidden=hidden, seed=k) for k in range(members)], features, 2)
estimate = population.memory(X, threads=1, epochs=epochs).total
population.fit(X, y, epochs=epochs, threads=1)
print(estimate, status("VmHWM") - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
@pytest.mark.parametrize("case", ["20000 4 40 2 120", "3000 60 60 100 1", "20 400 20000 4 1"])
def test_the_estimate_of_memory_is_what_a_process_takes(case):
    """Mostly curves, mostly parameters, mostly rows. Measured alone it is within a tenth."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *case.split()], capture_output=True, text=True, check=True)
    estimate, peak = map(int, done.stdout.split())
    assert 0.8 < estimate / peak < 1.25


def test_a_population_over_the_limit_is_kept_in_a_file_with_the_same_result():
    members = shoal.grid(hidden=[3, 4], repeats=4)
    small = Population(members, 5, 2, memory_limit=1000)
    assert small.memory().on_disk
    assert "in a temporary file" in str(small.memory())
    plain = Population(members, 5, 2)
    assert not plain.memory().on_disk
    for population in (small, plain):
        population.fit(X, Y, epochs=3)
    assert weights_equal(small, plain)


def test_a_population_that_fits_nowhere_is_refused(monkeypatch):
    class NoRoom:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr("shoal.population.memory.os.statvfs", lambda folder: NoRoom)
    with pytest.raises(MemoryError, match=r"memory limit is 1\.0 kB and .* has only 0 B free"):
        Population([Member(hidden=500)], 5, 2, memory_limit=1000)


def test_threads_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("SHOAL_THREADS", "3")
    assert shoal.machine.thread_count() == 3
    monkeypatch.setenv("SHOAL_THREADS", "many")
    with pytest.raises(ValueError, match=r"threads must be .* got 'many'"):
        shoal.machine.thread_count()


def test_progress_prints_the_plan(capsys):
    trained(callbacks=[shoal.ProgressBar()])
    printed = capsys.readouterr().out
    assert "estimated peak memory" in printed
    assert "6/6" in printed


def test_members_gathered_from_several_populations_go_on_as_they_were():
    """Whatever is brought together, and in whatever order: the same bits as without it."""
    X, y = make_blobs(80, 4, centers=3, random_state=0)
    X = X.astype(np.float32)
    kinds = ((3, "adam", 0), (5, "sgd", 2), (4, "adamw", 0))
    members = [Member(hidden=(k,), optimizer=optimizer, patience=patience) for k, optimizer, patience in kinds]
    whole = Population(members, X.shape[1], 3)
    whole.fit(X, y, 5, rows=0.25)
    parts = [Population(members[:1], X.shape[1], 3), Population(members[1:], X.shape[1], 3)]
    for part, epochs in zip(parts, (2, 3), strict=True):
        part.fit(X, y, epochs, rows=0.25)
    together = Population.gather([(parts[1], 1), (parts[0], 0), (parts[1], 0)])
    together.fit(X, y, until=5, rows=0.25)
    for place, member in enumerate((2, 0, 1)):
        assert together.members[place] == members[member]
        for (W, b), (V, c) in zip(together.weights(place), whole.weights(member), strict=True):
            assert np.array_equal(W, V)
            assert np.array_equal(b, c)
        assert np.array_equal(together.history.valid_loss[place], whole.history.valid_loss[member])

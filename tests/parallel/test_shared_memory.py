"""Memory that workers of one host share: who sees it, what remains of it, and what happens without it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parallel_cases import SETTINGS, data, far, flat, network

from shoal import parallel
from shoal.parallel.events import silent
from shoal.parallel.exact.threads import Crew
from shoal.parallel.groups import Lost, Rendezvous, Threads, shared
from shoal.parallel.groups.shared import share
from shoal.parallel.job import Job
from shoal.parallel.launch.launcher import local_mpi_launcher, loopback_only
from shoal.parallel.sums.layout import GRAIN, FlatLayout
from shoal.parallel.sums.optimizer import FlatOptimizer
from shoal.parallel.sums.shared_batch import BY_MESSAGES
from shoal.parallel.worker import Worker

pytestmark = pytest.mark.skipif(not shared.can_share(), reason="memory without a name exists on Linux")


class Sharing(Threads):
    """Threads that share memory as processes do."""

    def share(self, count: int):
        return share(self, count, self.rendezvous.timeout)


def in_threads(size: int, work, kind=Sharing, timeout: float = 60.0) -> list:
    """What `work(group)` returns, or raises, in each of so many threads."""
    rendezvous, found = Rendezvous(size, timeout), [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = work(kind(rendezvous, rank))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def shared_maps() -> str:
    return "\n".join(line for line in Path("/proc/self/maps").read_text().splitlines() if "shoal-" in line)


# ---- the memory ----


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(1, 200), st.integers(1, 30))
def test_after_a_meeting_each_sees_what_all_have_written(size, width, rounds):
    def work(group):
        memory = group.share(size * shared.bytes_of(width, torch.float64))
        vectors = [memory.new_vector(width, torch.float64) for _ in range(size)]
        for turn in range(rounds):
            vectors[group.rank][:] = turn + group.rank
            memory.meet()
            assert [float(vector.sum()) for vector in vectors] == [width * (turn + k) for k in range(size)]
            assert all(vector.data_ptr() % 64 == 0 for vector in vectors)
            memory.meet()
        return "done"

    assert in_threads(size, work) == ["done"] * size


def test_it_has_no_name_and_only_this_user_can_open_it():
    before = set(os.listdir("/dev/shm"))

    def work(group):
        if group.rank == 0:
            memory, place = shared._new_memory(4096)
            mode = os.fstat(place["file"]).st_mode
            os.close(place["file"])
            assert stat.S_IMODE(mode) == 0o600
            assert len(memory) == 4096
        memory = group.share(1 << 20)
        assert memory is not None
        assert "(deleted)" in shared_maps()

    assert in_threads(2, work) == [None, None]
    assert not {name for name in set(os.listdir("/dev/shm")) - before if "shoal" in name}


@pytest.mark.parametrize("reason", ["another host", "no memory", "another system"])
def test_none_has_it_where_one_cannot_have_it(reason, monkeypatch):
    if reason == "no memory":
        monkeypatch.setattr(shared, "available_memory", lambda: 1 << 19)
    if reason == "another system":
        monkeypatch.delattr(os, "memfd_create")

    class Far(Sharing):
        def first_object(self, value):
            place = super().first_object(value)
            if place and reason == "another host" and self.rank == 1:
                place = {**place, "name": "shoal-of-another-host"}
            return place

    assert in_threads(3, lambda group: group.share(1 << 20), Far) == [None] * 3


def test_a_worker_that_never_comes_is_lost():
    def work(group):
        memory = group.share(64)
        if group.rank == 0:
            memory.timeout = 0.3
            memory.meet()

    found = in_threads(2, work)
    assert isinstance(found[0], Lost)
    assert "has not answered for 0.3 s" in str(found[0])


def test_memory_goes_with_the_last_process_even_if_all_are_killed():
    """The first process makes it, the second opens it; both are killed while they use it."""
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        _memory, place = shared._new_memory(1 << 20)
        second = os.fork()
        if second == 0:
            opened = shared._opened(place, 1 << 20)
            os.write(write, f"{os.getpid()} {opened is not None}\n".encode())
        time.sleep(60)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        second, opened = said.readline().split()
        assert opened == "True"
        for process in (first, int(second)):
            os.kill(process, signal.SIGKILL)
        os.waitpid(first, 0)
        assert said.read() == ""  # the pipe is closed: the second is gone, too
    assert not [name for name in os.listdir("/dev/shm") if "shoal" in name]


RANK = """
import os, re, signal
from shoal.parallel.groups.mpi import Mpi
group = Mpi(60.0)
print(*re.findall(r"mpich_shm_\\w+", open("/proc/self/maps").read()), flush=True)
group.gather_objects(None)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_memory_of_mpi_itself_has_no_name_either():
    pytest.importorskip("mpi4py")
    command = [local_mpi_launcher(), "-n", "2", sys.executable, "-c", RANK]
    done = subprocess.run(command, env={**os.environ, **loopback_only()}, capture_output=True, text=True, timeout=120)
    names = set(done.stdout.split())
    if not names:
        pytest.skip(f"this MPI is not MPICH, or shares no memory: {done.stderr[-300:]}")
    assert not [name for name in names if Path("/dev/shm", name).exists()]


# ---- training ----


def trained(workers: int, kind, network_kind: str = "random", **more):
    """The weights that workers with this kind of group end with, and what was said."""
    job = Job(**{**SETTINGS, "strategy": "allreduce", "exact": True, "blas_threads": 1, "backend": "processes",
                 "workers": workers, **more})  # fmt: skip
    said: list[str] = []

    def notify(event, content):
        said.extend([content] if event == "note" else [])
        return False

    models = [network(network_kind) for _ in range(workers)]
    found = in_threads(workers, lambda group: Worker(job, group, models[group.rank], data(), None,
                       notify if group.rank == 0 else silent).run(), kind)  # fmt: skip
    for one in found:
        if isinstance(one, BaseException):
            raise one
    assert all(torch.equal(flat(models[0]), flat(model)) for model in models[1:])
    return models[0], said


OPTIMIZERS = st.sampled_from([
    {"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.01}, {"optimizer": "adam"},
    {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
    {"optimizer": lambda parameters: torch.optim.RMSprop(parameters, 0.01)},
])  # fmt: skip


@settings(max_examples=5, deadline=None)
@given(st.integers(2, 5), st.sampled_from([5, 8]), st.integers(7, 140), OPTIMIZERS, st.sampled_from([1, 2]))
def test_memory_and_messages_give_the_bits_of_one_worker(workers, shards, batch, optimizer, threads):
    job = {**optimizer, "shards": shards, "batch_size": batch, "epochs": 2, "blas_threads": threads}
    alone = network("random")
    parallel.fit(alone, data(), **{**SETTINGS, **job, "strategy": "allreduce", "exact": True, "workers": 1,
                 "backend": "threads", "blas_threads": None})  # fmt: skip
    near, quiet = trained(workers, Sharing, **job)
    away, said = trained(workers, Threads, **job)
    assert torch.equal(flat(near), flat(alone))
    assert torch.equal(flat(away), flat(alone))
    assert not quiet
    assert said == [BY_MESSAGES]


@settings(max_examples=10, deadline=None)
@given(OPTIMIZERS)
def test_steps_in_parts_are_those_of_torch(optimizer):
    """Against torch's own optimiser on the whole parameters, to rounding."""
    job = {**SETTINGS, **optimizer, "epochs": 3}
    shared_batch = parallel.fit(network(), data(), strategy="allreduce", backend="threads", workers=3, **job)
    serial = parallel.fit(network(), data(), strategy="serial", **job)
    assert far(shared_batch.model, serial.model) < 1e-5


def test_the_model_has_its_own_memory_again_afterwards():
    model = network()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    parallel.fit(model, data(), strategy="allreduce", backend="threads", workers=2, **SETTINGS)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    assert all(parameter.grad is None for parameter in model.parameters())
    in_threads(2, lambda group: Worker(Job(**SETTINGS, strategy="allreduce", exact=True, blas_threads=1, workers=2),
               group, network(), data(), None, silent).run() and None)  # fmt: skip
    assert far(model, network()) > 1e-3


def test_a_resumed_run_has_the_moments_of_all_parts(tmp_path):
    """Two workers save, three resume; each has other parts of Adam's moments."""
    whole, _ = trained(2, Sharing)
    trained(2, Sharing, epochs=2, checkpoint=str(tmp_path))
    resumed, said = trained(3, Sharing, checkpoint=str(tmp_path))
    assert any("resuming" in note for note in said)
    assert torch.equal(flat(resumed), flat(whole))


# ---- parts ----


@given(st.lists(st.integers(1, 500), min_size=1, max_size=6), st.integers(1, 9))
def test_parts_cover_a_vector_and_begin_where_vector_instructions_do(counts, parts):
    layout = FlatLayout([torch.zeros(count) for count in counts], [torch.zeros(1)])
    found = layout.parts(parts)
    assert [k for start, end in found for k in range(start, end)] == list(range(layout.count))
    assert all(start % GRAIN == 0 for start, _ in found)
    assert all(start % GRAIN == 0 for start in layout.starts)


def test_the_state_is_that_of_torch():
    model, rate = network(), 0.01
    job = Job(**{**SETTINGS, "optimizer": "adam", "learning_rate": rate})
    named = dict(model.named_parameters())
    layout = FlatLayout(list(named.values()), [])
    flat_one = FlatOptimizer(job, layout, named, 10, torch.zeros)
    other = network()
    torch_one = torch.optim.Adam(other.parameters(), rate)
    for step in range(3):
        gradient = torch.randn(layout.count, generator=torch.Generator().manual_seed(step))
        for parameter, part in zip(other.parameters(), layout.views(gradient), strict=True):
            parameter.grad = part.clone()
        torch_one.step()
        for part in layout.parts(3):
            flat_one.step(part, gradient[slice(*part)], step)
        flat_one.finish_step()
    for name, parameter in other.named_parameters():
        for key, value in torch_one.state[parameter].items():
            torch.testing.assert_close(flat_one.state()[name][key], value, rtol=1e-5, atol=1e-7)
    assert far(model, other) < 1e-6


# ---- threads ----


def test_an_error_in_any_thread_is_raised_once_all_have_ended():
    crew, ended = Crew(3), []

    def work(thread: int) -> None:
        if thread == 2:
            raise ZeroDivisionError("in thread 2")
        time.sleep(0.05)
        ended.append(thread)

    with pytest.raises(ZeroDivisionError, match="in thread 2"):
        crew.run(work)
    assert sorted(ended) == [0, 1]
    crew.run(ended.append)
    assert sorted(ended) == [0, 0, 1, 1, 2]
    crew.close()

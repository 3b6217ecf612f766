"""Exact training over threads, in many variants, against one worker: test_bits.py runs this in a process of its own.

There BLAS starts with three threads, as on a computer with three cores; the other tests give it one.
"""

import tempfile

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal import parallel
from support.parallel_cases import case_data, case_network, flat

CASES = st.fixed_dictionaries({
    "rows": st.integers(30, 130),
    "features": st.sampled_from([30, 64, 784, 784]),
    "hidden": st.lists(st.sampled_from([7, 32, 64, 64]), max_size=2),
    "norm": st.booleans(),
    "dropout": st.sampled_from([0.0, 0.3]),
})  # fmt: skip
JOBS = st.fixed_dictionaries({
    "batch_size": st.sampled_from([9, 37, 50, 56, 80, 96]),  # shards of 1 to 12 rows
    "optimizer": st.sampled_from(["sgd", "adam", "adamw"]),
    "momentum": st.sampled_from([0.0, 0.9]),
    "shards": st.sampled_from([5, 8]),
})  # fmt: skip
WORKERS = st.one_of(
    st.fixed_dictionaries({"backend": st.just("threads"), "workers": st.integers(1, 5)}),
    st.fixed_dictionaries({"backend": st.just("processes"), "workers": st.just(1), "blas_threads": st.integers(1, 4)}),
)
ALWAYS = {"strategy": "allreduce", "exact": True, "learning_rate": 0.01}
# Shards of 7 and of 10 rows: the number of threads changes such a product on AVX2 and on AVX-512.
WIDE = {"rows": 130, "features": 784, "hidden": [64], "norm": False, "dropout": 0.0}
SEVEN, TEN = ({"batch_size": size, "optimizer": "adam", "momentum": 0.0, "shards": 8} for size in (56, 80))
THREE, TWO = {"backend": "threads", "workers": 3}, {"backend": "processes", "workers": 1, "blas_threads": 2}
few = settings(max_examples=25, derandomize=True, deadline=None, database=None)


def trained(case, job, workers, epochs=2, **more):
    """The weights, in bits."""
    result = parallel.fit(case_network(case), case_data(case), **{**ALWAYS, **job, **workers, **more, "epochs": epochs})
    return flat(result.model)


@few
@given(CASES, JOBS, WORKERS)
@example(WIDE, SEVEN, THREE)
@example(WIDE, TEN, TWO)
def any_workers_end_with_the_bits_of_one_worker(case, job, workers):
    assert torch.equal(trained(case, job, workers), trained(case, job, {"backend": "threads", "workers": 1}))


@few
@given(CASES, JOBS, WORKERS, WORKERS, st.integers(1, 3))
@example(WIDE, SEVEN, {"backend": "threads", "workers": 1}, THREE, 1)
@example(WIDE, TEN, TWO, {"backend": "threads", "workers": 1}, 2)
def a_run_goes_on_with_other_workers_to_the_same_bits(case, job, first, second, every):
    with tempfile.TemporaryDirectory() as folder:
        trained(case, job, first, 1, checkpoint=folder, checkpoint_every=every)
        resumed = trained(case, job, second, 2, checkpoint=folder)
    assert torch.equal(resumed, trained(case, job, {"backend": "threads", "workers": 1}))


if __name__ == "__main__":
    torch.set_num_threads(1)  # of this thread: whatever has more is a thread that was started without being told
    any_workers_end_with_the_bits_of_one_worker()
    a_run_goes_on_with_other_workers_to_the_same_bits()

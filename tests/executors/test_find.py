"""Names of clusters, and what is said of those that cannot be."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from shoal.errors import MissingPackage, UserError
from shoal.executors.find import SerialWorkers, find_workers

KINDS = "a cluster is one of local:N, dask://host:port, tls://host:port, mpi"
COUNT = "local:N needs a whole number of processes from 1 to 1024, such as local:4"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("local:0", COUNT),
        ("local:-2", COUNT),
        ("local:many", COUNT),
        ("local:", COUNT),
        ("local", COUNT),
        ("local:2000", COUNT),
        ("local:1.5", COUNT),
        ("locl:4", f"{KINDS}; got 'locl:4'; did you mean 'local:4'?"),
        ("Local:4", f"{KINDS}; got 'Local:4'; did you mean 'local:4'?"),
        ("dsk://host:8786", f"{KINDS}; got 'dsk://host:8786'; did you mean 'dask://host:8786'?"),
        ("tcp://host:8786", f"{KINDS}; got 'tcp://host:8786'; did you mean 'dask://host:8786'?"),
        ("4", KINDS),
        ("", KINDS),
        ("spark://host:1", KINDS),
        ("mpi:4", KINDS),
        ("dask:/x", "dask://host:port needs a host and a port, such as dask://scheduler:8786; got 'dask:/x'"),
        ("dask://host", "dask://host:port needs a host and a port"),
        ("dask://host:99999", "dask://host:port needs a host and a port"),
        ("dask://user@host:8786", "dask://host:port needs a host and a port"),
        ("dask", "dask://host:port needs a host and a port"),
        ("tls://:8786", "tls://host:port needs a host and a port, such as tls://scheduler:8786; got 'tls://:8786'"),
        (
            "mpi",
            "--cluster mpi works on the ranks of mpiexec: start it as mpiexec -n 5 python -m mpi4py.futures -m shoal",
        ),
    ],
)
def test_a_name_that_cannot_be_is_one_sentence_with_the_remedy(name, said):
    with pytest.raises(UserError) as error:
        find_workers(name)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_what_there_is_is_found():
    assert isinstance(find_workers(None), SerialWorkers)
    workers = find_workers(" local:3 ")
    assert (workers.name, workers.slots()) == ("local:3", 3)
    assert find_workers(workers) is workers
    with ThreadPoolExecutor(5) as pool:
        assert (find_workers(pool).name, find_workers(pool).slots()) == ("ThreadPoolExecutor", 5)
    with pytest.raises(TypeError, match=r"must be a name such as 'local:4' or a concurrent\.futures\.Executor; got 4"):
        find_workers(4)


@pytest.mark.parametrize(("name", "package"), [("local:2", "loky"), ("mpi", "mpi4py.futures")])
def test_a_library_that_is_not_there_is_named(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=r"pip install 'shoal-ml\[(cluster|mpi)\]'"):
        find_workers(name)

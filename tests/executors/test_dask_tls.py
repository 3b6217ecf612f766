"""Dask with encryption: the certificates of Dask's own configuration, and what is said where they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import dask as dask_library
import distributed  # its settings are known once it is imported
import pytest
from support.certificates import make_certificates
from support.dask_cluster import Cluster
from support.executors import Bench, gained, run, tasks_of

from shoal.errors import UserError
from shoal.executors.dask import workers as dask
from shoal.executors.dask.workers import DaskWorkers
from shoal.executors.dispatch import Dispatcher
from shoal.executors.find import find_workers


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("dask")
    with closing(Cluster(folder, workers=1, scheme="tls", variables=settings)) as cluster:
        yield cluster


def use(settings: dict[str, str], **others: object) -> dask_library.config.set:
    """Dask reads the environment once, when it is imported."""
    assert distributed
    names = {variable: variable.removeprefix("DASK_").lower().replace("__", ".") for variable in settings}
    return dask_library.config.set({names[variable]: value for variable, value in {**settings, **others}.items()})


def refused(cluster: str, bench: Bench) -> str:
    workers = DaskWorkers(cluster)
    with pytest.raises(UserError) as caught:
        workers.start(bench.job)
    workers.close()
    return str(caught.value)


def test_a_search_on_an_encrypted_cluster(encrypted, settings, bench, said):
    assert encrypted.name.startswith("tls://127.0.0.1:")
    with use(settings), Dispatcher(find_workers(encrypted.name), bench.job) as dispatcher:
        assert gained(run(dispatcher, tasks_of(6))) == bench.expected(tasks_of(6))
    assert said() == []


def test_certificates_of_another_authority_are_refused(encrypted, bench, tmp_path, said):
    with use(make_certificates(tmp_path, "theirs")):
        text = refused(encrypted.name, bench)
    assert "no encrypted connection to a Dask scheduler (CERTIFICATE_VERIFY_FAILED)" in text
    assert said() == []


def test_no_certificates(encrypted, bench):
    text = refused(encrypted.name, bench)
    assert "has no distributed.comm.tls.ca-file and distributed.comm.tls.client.cert; set them in ~/" in text
    assert "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=..." in text


def test_a_certificate_that_is_not_there(encrypted, settings, bench, tmp_path):
    with use(settings, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=str(tmp_path / "nothing.pem")):
        text = refused(encrypted.name, bench)
    assert "nothing.pem', which Dask's configuration names as distributed.comm.tls.client.cert" in text


def test_one_side_encrypts_and_the_other_does_not(encrypted, settings, bench, monkeypatch, tmp_path):
    monkeypatch.setattr(dask, "SPEAKING_SECONDS", 0.5)
    plain = encrypted.name.replace("tls:", "dask:")
    assert f"or {encrypted.name}" in refused(plain, bench)
    with closing(Cluster(tmp_path)) as cluster, use(settings):
        assert "no encrypted connection to a Dask scheduler" in refused(cluster.address.replace("tcp:", "tls:"), bench)

"""Every kind of executor, with workers that are ended after each test."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.dask_cluster import close_shared
from support.executors import KINDS, Bench, Kind, Watched

from shoal.executors.dask.workers import LOGGERS
from shoal.executors.dispatch import Dispatcher

FEWER = [name for name in KINDS if name != "dask, 1 worker"]  # Dask takes seconds: the search's suite has 1, 2 and 4


@pytest.fixture(params=FEWER)
def any_kind(request: pytest.FixtureRequest) -> Kind:
    """Each of them."""
    return KINDS[request.param]


@pytest.fixture(params=["serial", "local:2"])
def some_kind(request: pytest.FixtureRequest) -> Kind:
    """In this process and in others: for what the dispatcher does alike with all of them."""
    return KINDS[request.param]


@pytest.fixture(params=[name for name in FEWER if not KINDS[name].in_process and name != "local:1"])
def process_kind(request: pytest.FixtureRequest) -> Kind:
    """Those whose workers may be killed."""
    return KINDS[request.param]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def begin(bench: Bench) -> Iterator[Callable[..., Dispatcher]]:
    """begin(kind) -> a dispatcher that has started; its workers are watched, and may be changed before that."""
    opened = []

    def started(kind: Kind, prepare: Callable[[Watched], None] = lambda _: None, **options: object) -> Dispatcher:
        made = kind.make()
        watched = Watched(made.__enter__())
        dispatcher = Dispatcher(watched, bench.job, **options)  # type: ignore[arg-type]
        opened.append((made, dispatcher))
        prepare(watched)
        dispatcher.start()
        return dispatcher

    yield started
    for made, dispatcher in opened:
        dispatcher.close()
        made.__exit__(None, None, None)


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """What was written to the terminal so far, and what Dask would have written: pytest does not catch that."""
    pytest.importorskip("distributed")  # it sets up its loggers when it is imported
    heard = _Heard()
    for name in LOGGERS:
        logging.getLogger(name).addHandler(heard)
    yield lambda: [text for text in (*heard.texts, *capfd.readouterr()) if text]
    for name in LOGGERS:
        logging.getLogger(name).removeHandler(heard)


@pytest.fixture(scope="module", autouse=True)
def no_idle_clusters() -> Iterator[None]:
    """Dask clusters are shared by the tests of a module."""
    yield
    close_shared()

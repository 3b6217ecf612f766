"""What runs in a worker."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shoal import _native
from shoal.executors import replies, worker
from shoal.executors.interface import Call, WorkerInfo

LOADING = threading.Event()
LOADED: list[str] = []


def slow_load(content: bytes) -> str:
    """Takes until the test says so."""
    LOADED.append(bytes(content[:]).decode())
    assert LOADING.wait(60)
    return LOADED[-1]


def give(job: str, payload: bytes, threads: int) -> bytes:
    return f"{job} {payload.decode()} {threads}".encode()


def give_text(_job: str, _payload: bytes, _threads: int) -> str:
    return "text"


def tell_instruction_set(_job: str, _payload: bytes, _threads: int) -> bytes:
    """Several times, while tasks of other threads begin and end."""
    seen = set()
    for _ in range(20):
        seen.add(_native.instruction_set())
        time.sleep(0.001)
    return " ".join(sorted(seen)).encode()


def call(job: bytes, function: str = "give", **changes: object) -> Call:
    values: dict[str, object] = {
        "task": "task", "payload": b"payload", "key": hashlib.sha256(job).hexdigest(), "load": f"{__name__}:slow_load",
        "work": f"{__name__}:{function}", "file": None, "content": job, "threads": 1, "threads_on": {},
        "instruction_set": _native.instruction_set(), "versions": worker.versions(), "token": "secret",
    }  # fmt: skip
    return Call(**values | changes)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nothing_loaded():
    LOADED.clear()
    LOADING.set()
    worker._JOBS.clear()


def test_threads_of_a_process_load_a_job_once():
    LOADING.clear()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(worker.run, call(b"job")) for _ in range(8)]
        LOADING.set()
        contents = {future.result()["content"] for future in futures}
    assert contents == {b"job payload 1"}
    assert LOADED == ["job"]


def test_the_latest_jobs_are_kept_and_others_are_loaded_again():
    for name in ("a", "b", "a", "c", "a", "b"):
        assert worker.run(call(name.encode()))["content"] == f"{name} payload 1".encode()
    assert LOADED == ["a", "b", "c", "b"]


def test_a_job_brought_beforehand_needs_no_content_and_can_be_forgotten():
    whole, bare = call(b"job"), call(b"job", content=None)
    assert worker.run(bare)["status"] == replies.MISSING
    worker.receive(whole.key, whole.load, 0, b"jo", 3)
    worker.receive(whole.key, whole.load, 2, b"b", 3)
    assert worker.run(bare)["content"] == b"job payload 1"
    worker.forget(whole.key)
    assert worker.run(bare)["status"] == replies.MISSING


def test_content_that_is_not_what_the_key_says_is_not_loaded():
    reply = worker.run(call(b"job", content=b"other"))
    assert reply["status"] == replies.FAILED
    assert b"does not have the hash" in reply["content"]
    assert LOADED == []


def test_work_that_does_not_give_bytes_has_failed():
    reply = replies.check(call(b"job"), worker.run(call(b"job", "give_text")))
    assert reply.status == replies.FAILED
    assert "give_text must return bytes; got str" in reply.text


def test_a_host_has_its_own_number_of_threads():
    host = str(worker.hello()["host"])
    assert worker.run(call(b"job", threads_on={host: 7, "other": 3}))["content"] == b"job payload 7"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"versions": {"shoal": "9"}}, "it has shoal .*, and the search has shoal 9"),
        ({"versions": {"unheard": "1"}}, "it has unheard of no known version"),
        ({"instruction_set": "neon"}, "it has the instruction sets .*baseline.*, and the search uses neon"),
    ],
)
def test_what_cannot_be_done_with_the_same_bits_is_refused(changes, reason):
    bad = call(b"job", **changes)
    reply = replies.check(bad, worker.run(bad))
    assert reply.status == replies.REFUSED
    assert re.fullmatch(f"{reason}.*", reply.text)
    assert LOADED == []


def test_settings_of_the_process_are_put_back(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.delenv("SHOAL_ISA", raising=False)
    before = threadpoolctl.threadpool_info()
    worker.run(call(b"job", instruction_set="baseline", threads=2))
    assert threadpoolctl.threadpool_info() == before
    assert "SHOAL_ISA" not in os.environ


def test_searches_with_different_instruction_sets_do_not_mix_in_a_process_with_threads(monkeypatch):
    """As on a Dask worker with several threads, which works for two searches."""
    monkeypatch.delenv("SHOAL_ISA", raising=False)
    names = [_native.instruction_sets()[0], "baseline"] * 10
    with ThreadPoolExecutor(4) as pool:
        calls = [
            call(b"job", "tell_instruction_set", instruction_set=name, task=str(k)) for k, name in enumerate(names)
        ]
        found = [reply["content"].decode() for reply in pool.map(worker.run, calls)]
    assert found == names
    assert "SHOAL_ISA" not in os.environ


def test_a_proof_belongs_to_one_task_status_and_content():
    one = call(b"job")
    proofs = {
        replies.proof(one, "done", b"a"),
        replies.proof(one, "done", b"b"),
        replies.proof(one, "failed", b"a"),
        replies.proof(call(b"job", task="other"), "done", b"a"),
        replies.proof(call(b"other job"), "done", b"a"),
        replies.proof(call(b"job", token="guessed"), "done", b"a"),
    }
    assert len(proofs) == 6


@pytest.mark.parametrize(
    "change",
    [{"host": 3}, {"pid": "1"}, {"cores": 0}, {"versions": {"shoal": 1}}, {"instruction_sets": [1]}, {"memory": None}],
)
def test_what_a_worker_says_of_itself_is_checked(change):
    said = json.loads(json.dumps(worker.hello()))  # plain values
    assert WorkerInfo.of(said).pid == os.getpid()
    with pytest.raises(ValueError, match="a worker"):
        WorkerInfo.of(said | change)
    with pytest.raises(ValueError, match="must describe itself by a dict"):
        WorkerInfo.of([said])

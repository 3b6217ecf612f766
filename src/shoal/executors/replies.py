"""The reply of a worker, and its check: nothing of a reply is used before."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass

from shoal.executors.interface import Call, Reply, WorkerInfo
from shoal.validate import shown

STATUSES = ("done", "missing", "refused", "avoided", "failed", "environment", "memory")
DONE, MISSING, REFUSED, AVOIDED, FAILED, ENVIRONMENT, MEMORY = STATUSES


@dataclass(frozen=True, eq=False)
class CheckedReply:
    """A reply that is what it says.

    done         the content is what the task gave
    missing      the worker has not got the job: send the call again, with the content of the job
    refused      the worker cannot give the same bits; the content says why
    avoided      the call says that this worker must not do it: send it again, for another one to take it
    failed       the task has raised an exception; the content is the traceback
    environment  the same, of a kind that does not come from the task: files, network, libraries
    memory       the task has run out of memory; the content is the traceback
    """

    status: str
    content: bytes
    seconds: float  # that the task took
    loading: float  # seconds that loading the job took before it, 0 if it was there
    worker: WorkerInfo

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


def make(call: Call, status: str, content: bytes, seconds: float, loading: float, worker: Reply) -> Reply:
    reply = {"status": status, "content": content, "seconds": seconds, "loading": loading, "worker": worker}
    return reply | {"proof": proof(call, status, content)}


def proof(call: Call, status: str, content: bytes) -> str:
    """Only who has seen the call can make it: the token is a secret of this search."""
    digest = hmac.new(call.token.encode(), json.dumps([call.key, call.task, status]).encode() + b"\n", hashlib.sha256)
    digest.update(content)
    return digest.hexdigest()


def check(call: Call, reply: object) -> CheckedReply:
    """The reply to this call; ValueError in words where it cannot be one."""
    if not isinstance(reply, dict):
        raise ValueError(f"a reply must be a dict; got {shown(reply)}")
    status, content, given = reply.get("status"), reply.get("content"), reply.get("proof")
    if status not in STATUSES:
        raise ValueError(f"the status of a reply must be one of {', '.join(STATUSES)}; got {shown(status)}")
    if not isinstance(content, bytes):
        raise ValueError(f"the content of a reply must be bytes; got {shown(content)}")
    seconds = {name: reply.get(name) for name in ("seconds", "loading")}
    for name, value in seconds.items():
        if not isinstance(value, float) or not 0 <= value < float("inf"):
            raise ValueError(f"{name} of a reply must be a number from 0; got {shown(value)}")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), proof(call, status, content).encode()):
        raise ValueError(f"the reply to task {call.task} has a wrong proof")
    return CheckedReply(
        status, content, float(reply["seconds"]), float(reply["loading"]), WorkerInfo.of(reply.get("worker"))
    )

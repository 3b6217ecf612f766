"""The simplest executor: it does each call at once, in this process."""

from __future__ import annotations

from concurrent.futures import Future

from shoal.executors import worker
from shoal.executors.interface import Call, RemoteJob, Reply, WorkerInfo, Workers


class SerialWorkers(Workers):
    name = "serial"
    ahead = 0

    def start(self, job: RemoteJob) -> list[WorkerInfo]:
        return [WorkerInfo.of(worker.hello())]

    def slots(self) -> int:
        return 1

    def submit(self, call: Call) -> Future[Reply]:
        future: Future[Reply] = Future()
        future.set_result(worker.run(call))
        return future

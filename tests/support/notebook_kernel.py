"""A real kernel of a notebook, as JupyterLab starts one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SECONDS = 120.0  # guards against hanging


class Kernel:
    """Runs cells and keeps what they show."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str, seen: Callable[[dict[str, Any]], bool] = lambda shown: False) -> list[dict[str, Any]]:
        """The messages of a cell. `seen`: whether to interrupt the kernel, asked for each message until it is."""
        cell, found, waits = self.client.execute(code), [], True
        while True:
            message = self.client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
            found.append({"type": message["msg_type"], **message["content"]})
            if waits and seen(found[-1]):
                waits = False
                self.manager.interrupt_kernel()

    def printed(self, code: str) -> str:
        """What a cell prints; its error, if it has one."""
        parts = [one.get("text") or "\n".join(one.get("traceback", [])) for one in self.run(code)]
        return "".join(parts)


@contextmanager
def open_kernel() -> Iterator[Kernel]:
    manager_of = pytest.importorskip("jupyter_client.manager")
    pytest.importorskip("ipykernel")
    manager, client = manager_of.start_new_kernel(startup_timeout=SECONDS)
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def html_of(message: dict[str, Any]) -> str:
    return str(message.get("data", {}).get("text/html", ""))

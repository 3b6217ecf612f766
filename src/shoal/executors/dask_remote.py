"""What runs in the processes of a Dask cluster. It travels by value: nothing of Shoal is needed to unpickle it.

Dask pickles functions of a module by their name. A scheduler without Shoal could then unpickle no task, and a plugin of
a class that a worker cannot import keeps that worker from starting, for everybody who uses the cluster (distributed
issues 8694, 8695). Functions and classes made inside a function travel as code instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def make_plugin(name: str, key: str, load: str, content: bytes | None) -> Any:
    """A WorkerPlugin that brings a job to every worker, now and later, and takes it away at the end.

    Without a content it only has a place for one that is sent in pieces.
    """
    from distributed import WorkerPlugin

    class JobPlugin(WorkerPlugin):
        idempotent = True

        def __init__(self) -> None:
            self.name, self.key, self.load, self.content = name, key, load, content
            self.pieces: Any = None
            self.ready = False

        async def setup(self, worker: Any) -> None:
            """Errors must not reach Dask: a worker whose plugin fails does not start. `greet` and tasks tell them."""
            import asyncio
            import contextlib

            if self.content is not None:
                with contextlib.suppress(Exception):
                    await asyncio.to_thread(self.keep, self.content)
                self.content = None
            self.ready = True

        def keep(self, content: Any) -> None:
            import hashlib

            from shoal.executors import worker

            if hashlib.sha256(content).hexdigest() != self.key:
                raise ValueError("the content of the job does not have the hash that was sent with it")
            worker.keep(self.key, self.load, content)

        def teardown(self, worker: Any) -> None:
            import sys

            module = sys.modules.get("shoal.executors.worker")
            if module is not None:
                module.forget(self.key)

    return JobPlugin()


def make_greet() -> Callable[..., Any]:
    """A function that tells what a worker is, as soon as the plugin is there."""

    async def greet(name: str, dask_worker: Any = None) -> dict[str, Any]:
        import asyncio
        import importlib

        try:
            worker = await asyncio.to_thread(importlib.import_module, "shoal.executors.worker")
        except ImportError as error:
            without = isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "shoal"
            return {"refused": "it has no Shoal of this version" if without else f"its Shoal cannot be used ({error})"}
        while not getattr(dask_worker.plugins.get(name), "ready", False):
            await asyncio.sleep(0.05)
        return {"hello": await asyncio.to_thread(worker.hello)}

    return greet


def make_take() -> Callable[..., Any]:
    """A function that takes a piece of the job's content, and loads the job with the last one."""

    async def take(name: str, begin: int, piece: bytes, size: int, dask_worker: Any = None) -> None:
        import asyncio
        import mmap

        plugin = dask_worker.plugins[name]
        if begin == 0:
            plugin.pieces = mmap.mmap(-1, size)
        plugin.pieces[begin : begin + len(piece)] = piece
        if begin + len(piece) == size:
            pieces, plugin.pieces = plugin.pieces, None
            await asyncio.to_thread(plugin.keep, pieces)

    return take


def make_run() -> Callable[..., Any]:
    """A function that does a call, given as a dict: its class would be looked up in Shoal by the scheduler."""

    def run(call: dict[str, Any]) -> dict[str, Any]:
        from shoal.executors import interface, worker

        return worker.run(interface.Call(**call))

    return run

"""Functions that run in the workers of a Dask cluster. They are sent by value: unpickling them needs no Shoal.

Dask pickles functions of a module by their name, and a scheduler without Shoal could then unpickle no task. Functions
made inside a function travel as code instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def make_greet() -> Callable[..., Any]:
    """A function that says what a worker is."""

    async def greet() -> dict[str, Any]:
        import asyncio
        import importlib

        try:
            worker = await asyncio.to_thread(importlib.import_module, "shoal.executors.worker")
        except ImportError as error:
            without = isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "shoal"
            return {"refused": "it has no Shoal of this version" if without else f"Shoal cannot be imported ({error})"}
        return {"hello": await asyncio.to_thread(worker.hello)}

    return greet


def make_receive() -> Callable[..., Any]:
    """A function that takes a piece of the job's content, and loads the job with the last one."""

    async def receive(*arguments: Any) -> None:
        import asyncio

        from shoal.executors import worker

        await asyncio.to_thread(worker.receive, *arguments)

    return receive


def make_forget() -> Callable[..., Any]:
    """A function that frees the job, also in workers without Shoal, which do not have it."""

    def forget(key: str) -> None:
        import sys

        module = sys.modules.get("shoal.executors.worker")
        if module is not None:
            module.forget(key)

    return forget


def make_run() -> Callable[..., Any]:
    """A function that does a call, given as a dict: its class would be looked up in Shoal by the scheduler."""

    def run(call: dict[str, Any]) -> dict[str, Any]:
        from shoal.executors import interface, worker

        return worker.run(interface.Call(**call))

    return run

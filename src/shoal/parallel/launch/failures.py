"""Errors of workers: what a worker reports, and what its launcher raises."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shoal.errors import UserError
from shoal.parallel.groups import Lost

NETWORK = re.compile(r"gloo/transport|Gloo connect|ProcessGroupGloo|NCCL")  # in torch's errors about other ranks
USER_ERRORS = (UserError, OSError, ModuleNotFoundError, MemoryError)  # shown without a traceback


class WorkerError(RuntimeError):
    """A worker failed with an error of its own.

    Attributes
    ----------
    rank : int
        The worker.
    kind, reason, trace : str
        The name of the error's type, its message, and where it was raised.
    """

    def __init__(self, rank: int, size: int, report: dict[str, Any]) -> None:
        kind, reason, trace = report["type"], report["message"], report["traceback"]
        super().__init__(f"worker {rank} of {size} failed: {kind}: {reason}\n\n{trace.rstrip()}")
        self.rank, self.kind, self.reason, self.trace = rank, kind, reason, trace
        self.user_error = bool(report["user_error"])


class WorkerLost(RuntimeError):
    """A worker is gone, and there are no restarts left."""


def is_peer_lost(error: BaseException) -> bool:
    """Whether an error only says that another worker is gone: that one's own error is the one to show."""
    return isinstance(error, Lost) or (isinstance(error, RuntimeError) and bool(NETWORK.search(str(error))))


def describe(error: BaseException) -> dict[str, Any]:
    """An error as a worker reports it."""
    kind = type(error).__name__
    return {
        "type": kind, "message": str(error) or kind, "user_error": isinstance(error, USER_ERRORS),
        "traceback": "".join(traceback.format_exception(error)),
    }  # fmt: skip


@contextmanager
def as_user_errors(own_network: str = "") -> Iterator[None]:
    """For commands: errors of workers end in one sentence; where it is not a user's error, after the traceback.

    own_network  a network from the user's own file: what fails in this process is then shown in the same way
    """
    try:
        yield
    except WorkerError as error:
        if error.user_error:
            raise UserError(error.reason) from None
        print(error.trace.rstrip(), file=sys.stderr)
        raise UserError(str(error).splitlines()[0]) from None
    except WorkerLost as error:
        raise UserError(str(error)) from None
    except (*USER_ERRORS, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not own_network:
            raise
        traceback.print_exception(error)
        kind, reason = type(error).__name__, " ".join(str(error).split())
        raise UserError(f"{own_network} failed: {kind}{f': {reason}' if reason else ''}") from None

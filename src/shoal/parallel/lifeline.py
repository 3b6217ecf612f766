"""Who is alive: each worker has a line to one place and says every second that it is there.

Libraries that workers compute and talk with are blind to much: a stopped process, a cable that was pulled, a dead
rank of MPI. So liveness has a connection of its own. When a worker is silent for too long, or its line breaks, the
hub tells all others to end, and workers that do not hear from the hub end themselves: nobody waits for ever.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import queue
import secrets
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BEAT = 1.0  # seconds between two signs of life
PATIENCE = 7.0  # seconds of silence after which somebody counts as lost
STOPPED = 75  # exit code of a worker that was told to end


@dataclass
class Event:
    """Something the hub has heard or noticed."""

    kind: str  # "error", "lost", "done", "progress", "here"
    rank: int
    content: dict[str, Any] = field(default_factory=dict)


class Hub:
    """Listens to all workers. `events` is what there is to react to."""

    def __init__(self, host: str = "127.0.0.1", patience: float = PATIENCE) -> None:
        """Others reach it at `host`; it listens on all addresses unless that is this machine alone."""
        self.token = secrets.token_hex(16)
        self.patience = patience
        self.events: queue.Queue[Event] = queue.Queue()
        self.heard: dict[int, float] = {}
        self.pids: dict[int, tuple[str, int]] = {}
        self.lines: dict[int, socket.socket] = {}
        self.ended: set[int] = set()
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.server = socket.create_server((host if host == "127.0.0.1" else "", 0))
        self.address = f"{host}:{self.server.getsockname()[1]}:{self.token}"
        threading.Thread(target=self._accept, name="shoal-hub", daemon=True).start()
        threading.Thread(target=self._watch, name="shoal-watch", daemon=True).start()

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                line, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        rank = None
        try:
            line.settimeout(30)
            reader = line.makefile("r", encoding="utf-8")
            hello = json.loads(reader.readline() or "{}")
            if not hmac.compare_digest(str(hello.get("token")), self.token):
                line.close()
                return
            line.settimeout(None)
            _limit_sending(line)
            rank = int(hello["rank"])
            with self.lock:
                self.lines[rank], self.heard[rank] = line, time.monotonic()
                self.pids[rank] = (hello["host"], hello["pid"])
            self.events.put(Event("here", rank, hello))
            for text in reader:
                self._hear(rank, json.loads(text))
        except (OSError, ValueError, KeyError):
            pass
        if rank is not None:
            self._lose(rank, "is gone")

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        with self.lock:
            self.heard[rank] = time.monotonic()
        kind = message.pop("kind")
        if kind == "done":
            self.ended.add(rank)
        if kind != "beat":
            self.events.put(Event(kind, rank, message))

    def _lose(self, rank: int, reason: str) -> None:
        with self.lock:
            if rank in self.ended or self.closed.is_set():
                return
            self.ended.add(rank)
        self.events.put(Event("lost", rank, {"reason": reason}))

    def _watch(self) -> None:
        """Answer every worker each second; notice those that are silent. If this process itself slept, start anew."""
        last = time.monotonic()
        while not self.closed.wait(BEAT):
            now = time.monotonic()
            with self.lock:
                if now - last > BEAT + 2:
                    self.heard = dict.fromkeys(self.heard, now)
                silent = [r for r, heard in self.heard.items() if now - heard > self.patience and r not in self.ended]
            last = now
            self._tell_all({"kind": "beat"})
            for rank in silent:
                self._lose(rank, f"has been silent for {self.patience:g} s")

    def _tell_all(self, message: dict[str, Any]) -> None:
        with self.lock:
            lines = list(self.lines.values())
        for line in lines:
            with contextlib.suppress(OSError):
                line.sendall((json.dumps(message) + "\n").encode())

    def pause(self) -> None:
        """Ask all workers to save what they have and to end when they can."""
        self._tell_all({"kind": "pause"})

    def stop(self) -> None:
        """Tell all workers to end; end those of this machine that are stopped and cannot hear it."""
        self._tell_all({"kind": "stop"})
        self.kill_all(only_stopped=True)

    def kill_all(self, only_stopped: bool = False) -> None:
        """End workers of this machine that are still there. They are ours: each has shown the token."""
        with self.lock:
            pids = list(self.pids.values())
        for host, pid in pids:
            mine = host == socket.gethostname() and pid != os.getpid()
            if mine and _state(pid) and (_state(pid) in "Tt" or not only_stopped):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.closed.set()
        _close(self.server)
        with self.lock:
            for line in self.lines.values():
                _close(line)


def _close(line: socket.socket) -> None:
    """Close a socket, and wake the thread that waits for something to come from it."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


def _limit_sending(line: socket.socket) -> None:
    """To somebody who does not read, a message waits for two seconds; reading may wait for ever, in its own thread."""
    if os.name == "posix":
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 2, 0))


def _state(pid: int) -> str:
    """The state of a worker's process, "T" if it is stopped; empty if there is none, or another program."""
    try:
        with open(f"/proc/{pid}/stat") as file, open(f"/proc/{pid}/cmdline") as command:
            return file.read().rsplit(")", 1)[1].split()[0] if "shoal" in command.read() else ""
    except OSError:
        return ""


class Line:
    """A worker's line to the hub."""

    def __init__(self, address: str, rank: int, on_silence: Callable[[str], None] | None = None) -> None:
        host, port, token = address.rsplit(":", 2)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.settimeout(None)
        _limit_sending(self.socket)
        self.rank = rank
        self.on_silence = on_silence or end_now
        self.lock = threading.Lock()
        self.closed = threading.Event()
        self.paused = threading.Event()  # somebody wants the work to be saved and ended
        self.heard = time.monotonic()
        self.tell("hello", token=token, rank=rank, pid=os.getpid(), host=socket.gethostname())
        threading.Thread(target=self._listen, name="shoal-line", daemon=True).start()
        threading.Thread(target=self._beat, name="shoal-beat", daemon=True).start()

    def tell(self, kind: str, **content: Any) -> None:
        with self.lock, contextlib.suppress(OSError):  # the hub is gone: the listener ends this worker
            self.socket.sendall((json.dumps({"kind": kind, **content}) + "\n").encode())

    def _beat(self) -> None:
        last = time.monotonic()
        while not self.closed.wait(BEAT):
            now = time.monotonic()
            if now - last > BEAT + 2:  # this process itself was stopped
                self.heard = now
            last = now
            self.tell("beat")
            if now - self.heard > PATIENCE:
                self._end(f"nothing was heard from the others for {PATIENCE:g} s")

    def _listen(self) -> None:
        try:
            for text in self.socket.makefile("r", encoding="utf-8"):
                self.heard = time.monotonic()
                kind = json.loads(text)["kind"]
                if kind == "stop":
                    self._end("")
                elif kind == "pause":
                    self.paused.set()
        except (OSError, ValueError):
            pass
        self._end("the line to the others broke")

    def _end(self, reason: str) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self.on_silence(reason)

    def close(self) -> None:
        self.closed.set()
        _close(self.socket)


def end_now(reason: str) -> None:
    """The main thread may be deep in a library that waits for somebody: only this helps."""
    os._exit(STOPPED)
